//! Drawing a token from logits.
//!
//! Order of the filters, as in vLLM and Hugging Face transformers: temperature, then top-k, then top-p. The log-probability
//! reported is that of the distribution drawn from, renormalised over what the filters left (vllm#42259).

use venus_core::ids::TokenId;
use venus_core::message::engine::Sampling;

/// A token drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Which.
    pub token: TokenId,
    /// Log-probability under the distribution it was drawn from; for greedy draws, under the softmax of the plain logits.
    pub logprob: f32,
}

/// A way to draw that means nothing.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SamplingError {
    /// Negative, infinite or NaN.
    #[error("temperature is {0}: it must be 0 (greedy) or a positive number")]
    Temperature(f32),
    /// Not in `(0, 1]`.
    #[error("top_p is {0}: it must be above 0 and at most 1 (1 keeps all tokens)")]
    TopP(f32),
}

/// Refuses settings that mean nothing.
pub(crate) fn check(sampling: &Sampling) -> Result<(), SamplingError> {
    if !(sampling.temperature >= 0.0 && sampling.temperature.is_finite()) {
        return Err(SamplingError::Temperature(sampling.temperature));
    }
    if !(sampling.top_p > 0.0 && sampling.top_p <= 1.0) {
        return Err(SamplingError::TopP(sampling.top_p));
    }
    Ok(())
}

/// Draws tokens; keeps its buffers between draws and nothing else.
#[derive(Debug, Default)]
pub struct Sampler {
    /// `exp` of each token's scaled logit above the largest.
    weights: Vec<f32>,
    /// Tokens the filters look at, as (scaled logit, token).
    kept: Vec<(f32, TokenId)>,
}

impl Sampler {
    /// Draws the token at `position` of a sequence. The same logits, settings, seed and position draw the same token;
    /// equally likely tokens are ordered by id. `None` if the logits have no finite softmax.
    pub fn draw(&mut self, logits: &[f32], sampling: &Sampling, position: usize) -> Option<Draw> {
        if sampling.temperature == 0.0 {
            return greedy(logits);
        }
        let scale = 1.0 / sampling.temperature;
        let uniform = uniform(sampling.seed, position as u64);
        let (top_k, vocab) = (sampling.top_k as usize, logits.len());
        if (top_k == 0 || top_k >= vocab) && sampling.top_p >= 1.0 {
            return self.draw_any(logits, scale, uniform);
        }
        self.kept.clear();
        self.kept.extend(logits.iter().zip(0..).map(|(logit, token)| (logit * scale, token)));
        if top_k > 0 && top_k < vocab {
            self.kept.select_nth_unstable_by(top_k - 1, likelier);
            self.kept.truncate(top_k);
        }
        let max = self.kept.iter().fold(f32::NEG_INFINITY, |max, kept| max.max(kept.0));
        self.keep_nucleus(sampling.top_p, max)?;
        self.weights.clear();
        self.weights.extend(self.kept.iter().map(|kept| (kept.0 - max).exp()));
        let (index, total) = pick(&self.weights, uniform)?;
        let (logit, token) = self.kept[index];
        Some(Draw { token, logprob: logit - max - total.ln() as f32 })
    }

    fn draw_any(&mut self, logits: &[f32], scale: f32, uniform: f64) -> Option<Draw> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        self.weights.clear();
        self.weights.extend(logits.iter().map(|logit| ((logit - max) * scale).exp()));
        let (index, total) = pick(&self.weights, uniform)?;
        Some(Draw { token: index as TokenId, logprob: (logits[index] - max) * scale - total.ln() as f32 })
    }

    /// Keeps the fewest likeliest tokens whose probability reaches `top_p`, likeliest first. `None` without a finite total.
    fn keep_nucleus(&mut self, top_p: f32, max: f32) -> Option<()> {
        let weight = |kept: &(f32, TokenId)| f64::from((kept.0 - max).exp());
        let total: f64 = self.kept.iter().map(weight).sum();
        if !total.is_finite() {
            return None;
        }
        let enough = if top_p < 1.0 { total * f64::from(top_p) } else { f64::INFINITY };
        let all = self.kept.len();
        // The nucleus is small as a rule: only as much is sorted as it needs.
        let mut head = if top_p < 1.0 { 64.min(all) } else { all };
        loop {
            if head < all {
                self.kept.select_nth_unstable_by(head - 1, likelier);
            }
            self.kept[..head].sort_unstable_by(likelier);
            let mut sum = 0.0;
            let nucleus = self.kept[..head].iter().position(|kept| {
                sum += weight(kept);
                sum >= enough
            });
            match nucleus {
                Some(last) => self.kept.truncate(last + 1),
                None if head < all => {
                    head = (head * 8).min(all);
                    continue;
                }
                None => {}
            }
            return Some(());
        }
    }
}

/// The likeliest token, the least id among equals.
fn greedy(logits: &[f32]) -> Option<Draw> {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        if *logit > *logits.get(best)? {
            best = index;
        }
    }
    let max = *logits.get(best)?;
    let total: f64 = logits.iter().map(|logit| f64::from((logit - max).exp())).sum();
    total.is_finite().then(|| Draw { token: best as TokenId, logprob: -total.ln() as f32 })
}

/// The index at which the running sum of weights passes `uniform` of their total, and that total.
fn pick(weights: &[f32], uniform: f64) -> Option<(usize, f64)> {
    let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    if !total.is_finite() || total <= 0.0 {
        return None;
    }
    let mut left = uniform * total;
    let mut last = None;
    for (index, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        last = Some((index, total));
        left -= f64::from(*weight);
        if left < 0.0 {
            break;
        }
    }
    last
}

/// Likelier first, then the lesser id.
fn likelier(a: &(f32, TokenId), b: &(f32, TokenId)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// A number in `[0, 1)` that depends on seed and position only: SplitMix64 started at the mixed seed, read at `position`.
/// No state, so a turn that is retracted, resumed or run beside others draws the same.
fn uniform(seed: u64, position: u64) -> f64 {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let start = mix(seed.wrapping_add(STEP));
    let bits = mix(start.wrapping_add(STEP.wrapping_mul(position.wrapping_add(1))));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(temperature: f32, top_k: u32, top_p: f32) -> Sampling {
        Sampling { max_tokens: 1, temperature, top_p, top_k, seed: 7, stop: Vec::new() }
    }

    /// The distribution by the book: full sort, 64-bit floats.
    fn reference(logits: &[f32], settings: &Sampling) -> Vec<f64> {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        if settings.top_k > 0 {
            order.truncate(settings.top_k as usize);
        }
        let weight = |i: usize| (f64::from(logits[i]) / f64::from(settings.temperature)).exp();
        let total: f64 = order.iter().map(|&i| weight(i)).sum();
        let mut sum = 0.0;
        let kept = order.iter().position(|&i| {
            sum += weight(i) / total;
            sum >= f64::from(settings.top_p)
        });
        order.truncate(kept.map_or(order.len(), |last| last + 1));
        let total: f64 = order.iter().map(|&i| weight(i)).sum();
        let mut probabilities = vec![0.0; logits.len()];
        order.iter().for_each(|&i| probabilities[i] = weight(i) / total);
        probabilities
    }

    fn logits(count: usize) -> Vec<f32> {
        (0..count).map(|i| (uniform(1, i as u64) * 8.0) as f32).collect()
    }

    #[test]
    fn tokens_come_as_often_as_reported_and_as_the_filters_say() {
        let logits = logits(300);
        for settings in [sampling(1.0, 0, 1.0), sampling(0.7, 20, 1.0), sampling(1.3, 0, 0.8), sampling(1.0, 150, 0.97)]
        {
            let expected = reference(&logits, &settings);
            let mut counts = vec![0; logits.len()];
            let draws = 20_000;
            for position in 0..draws {
                let draw = Sampler::default().draw(&logits, &settings, position).unwrap();
                counts[draw.token as usize] += 1;
                let probability = expected[draw.token as usize];
                assert!((f64::from(draw.logprob) - probability.ln()).abs() < 1e-4, "{draw:?}, expected {probability}");
            }
            let distance: f64 =
                counts.iter().zip(&expected).map(|(&n, p)| (f64::from(n) / draws as f64 - p).abs()).sum();
            assert!(distance < 0.1, "{settings:?}: {distance}");
        }
    }

    #[test]
    fn greedy_takes_the_first_of_the_likeliest() {
        let draw = Sampler::default().draw(&[0.0, 2.0, 2.0, 1.0], &sampling(0.0, 0, 1.0), 0).unwrap();
        let total = 1.0f32 + 2.0 * 2.0f32.exp() + 1.0f32.exp();
        assert_eq!(draw.token, 1);
        assert!((draw.logprob - (2.0 - total.ln())).abs() < 1e-6);
    }

    #[test]
    fn masked_tokens_are_never_drawn_and_broken_logits_never_draw() {
        let mut sampler = Sampler::default();
        let masked = [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY];
        for settings in [sampling(0.0, 0, 1.0), sampling(1.0, 0, 1.0), sampling(1.0, 2, 0.9)] {
            assert!((0..50).all(|i| sampler.draw(&masked, &settings, i).unwrap().token == 1));
            for broken in [f32::NAN, f32::INFINITY] {
                assert_eq!(sampler.draw(&[0.0, broken, 1.0], &settings, 0), None);
            }
        }
    }

    #[test]
    fn meaningless_settings_are_refused() {
        assert!(check(&sampling(-1.0, 0, 1.0)).is_err());
        assert!(check(&sampling(f32::NAN, 0, 1.0)).is_err());
        assert!(check(&sampling(1.0, 0, 0.0)).is_err());
        assert!(check(&sampling(1.0, 0, 1.1)).is_err());
        assert!(check(&sampling(0.0, 5, 1.0)).is_ok());
    }
}
