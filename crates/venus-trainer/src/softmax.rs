//! Rows of logits to log-probabilities and back to gradients, in place.

/// What a row of logits says about the token that was drawn from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drawn {
    /// Natural log of the probability of the target.
    pub logprob: f32,
    /// Entropy of the row's distribution, nats.
    pub entropy: f32,
}

/// Replaces a row of logits by the probabilities `softmax(row * inverse_temperature)`.
pub(crate) fn to_probabilities(row: &mut [f32], target: u32, inverse_temperature: f32) -> Drawn {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let target_logit = (row[target as usize] - max) * inverse_temperature;
    // f64 sums: over a large vocabulary the error of an f32 sum would show in the engine/trainer comparison.
    let (mut sum, mut weighted) = (0.0f64, 0.0f64);
    for value in row.iter_mut() {
        let scaled = (*value - max) * inverse_temperature;
        let exp = scaled.exp();
        sum += f64::from(exp);
        weighted += f64::from(exp) * f64::from(scaled);
        *value = exp;
    }
    let scale = (1.0 / sum) as f32;
    row.iter_mut().for_each(|value| *value *= scale);
    let log_sum = sum.ln();
    Drawn { logprob: (f64::from(target_logit) - log_sum) as f32, entropy: (log_sum - weighted / sum) as f32 }
}

/// The target's log-probability under `softmax(row * inverse_temperature)`; the row is left alone.
pub(crate) fn logprob(row: &[f32], target: u32, inverse_temperature: f32) -> f32 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|&value| f64::from(((value - max) * inverse_temperature).exp())).sum();
    (f64::from((row[target as usize] - max) * inverse_temperature) - sum.ln()) as f32
}

/// Replaces probabilities by the gradient with respect to the logits of a loss whose derivative with respect to the
/// target's log-probability is `slope`: `slope * inverse_temperature * (onehot(target) - p)`.
pub(crate) fn to_gradient(row: &mut [f32], target: u32, slope: f32, inverse_temperature: f32) {
    let scale = slope * inverse_temperature;
    row.iter_mut().for_each(|value| *value *= -scale);
    row[target as usize] += scale;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_row_has_the_entropy_of_a_fair_die() {
        let mut row = [2.5; 6];
        let drawn = to_probabilities(&mut row, 3, 0.7);
        assert!((drawn.logprob + 6f32.ln()).abs() < 1e-6 && (drawn.entropy - 6f32.ln()).abs() < 1e-6, "{drawn:?}");
        assert!(row.iter().all(|p| (p - 1.0 / 6.0).abs() < 1e-6));
    }

    #[test]
    fn a_large_logit_does_not_overflow() {
        let mut row = [1e30, 0.0, -1e30];
        assert_eq!(to_probabilities(&mut row, 0, 1.0), Drawn { logprob: 0.0, entropy: 0.0 });
    }

    #[test]
    fn the_gradient_agrees_with_finite_differences() {
        let logits = [0.3f32, -1.2, 2.0, 0.1];
        let inverse_temperature = 1.0 / 0.8;
        let mut row = logits;
        to_probabilities(&mut row, 2, inverse_temperature);
        to_gradient(&mut row, 2, -1.5, inverse_temperature);
        for (index, gradient) in row.iter().enumerate() {
            let loss = |delta: f32| {
                let mut moved = logits;
                moved[index] += delta;
                -1.5 * logprob(&moved, 2, inverse_temperature)
            };
            let numeric = (loss(1e-2) - loss(-1e-2)) / 2e-2;
            assert!((numeric - gradient).abs() < 1e-3, "{index}: {numeric} {gradient}");
        }
    }
}
