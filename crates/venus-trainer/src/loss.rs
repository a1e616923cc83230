//! The policy loss of one trajectory, as a function of the log-probabilities of its drawn tokens.
//!
//! Three policies meet in a token's loss: `mu`, which drew it (the engine's record, whatever weights and kernels that
//! was), `old`, from which the update may not stray, and `new`, which is differentiated. With ratio `r = new / old`,
//! advantage `A` and importance weight `w` (no gradient flows through it):
//!
//! ```text
//! loss = -w * min(r * A, clip(r, 1 - low, 1 + high) * A) + beta * k3(new, reference)      w = min(old / mu, cap)
//! ```
//!
//! [`OldPolicy`] says what `old` is. `old = mu` makes `w = 1`: PPO as first written, where the clip also bounds how far
//! stale tokens may pull. `old =` the weights at the start of the step is decoupled PPO (arXiv 2110.00641): the clip
//! bounds this step alone, and `w`, truncated importance sampling, corrects for who drew the token.

use serde::{Deserialize, Serialize};

/// How far the ratio may leave 1 before a token stops pulling: `1 - low ..= 1 + high`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clip {
    /// Below 1, in `0..1`.
    pub low: f32,
    /// Above 1. Larger than `low` lets unlikely tokens grow (DAPO's "clip-higher").
    pub high: f32,
}

/// Over what the ratio is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    /// A ratio for each token.
    Token,
    /// One ratio for the trajectory: the geometric mean of its tokens' (GSPO). So is the importance weight.
    Sequence,
}

/// From which policy the update may not stray.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OldPolicy {
    /// [`Self::StepStart`] where a step makes several updates or sampling was filtered, else [`Self::Behaviour`].
    #[default]
    Auto,
    /// The policy that drew the token, by the engine's log-probability: plain PPO, no forward pass of its own.
    Behaviour,
    /// The weights at the start of the step: decoupled PPO. Costs a forward pass if the step makes several updates;
    /// if it makes one, `old` is `new` at that moment and nothing is computed twice.
    StepStart,
}

/// How token losses become one number. Tool output and prompts carry no loss under any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Aggregation {
    /// The mean over all drawn tokens of the batch: long trajectories weigh more.
    TokenMean,
    /// The mean over trajectories of each one's token mean: all weigh the same.
    SequenceMean,
    /// The sum over tokens, divided by the number of trajectories and by this constant: every token weighs the same
    /// in every batch.
    ConstantLength {
        /// The constant, such as the generation budget.
        tokens: u32,
    },
}

impl Aggregation {
    /// What a token of a trajectory with `length` drawn tokens is multiplied with, in a batch of `sequences`
    /// trajectories with `tokens` drawn tokens.
    #[must_use]
    pub fn token_weight(self, length: usize, sequences: usize, tokens: usize) -> f64 {
        match self {
            Self::TokenMean => 1.0 / tokens as f64,
            Self::SequenceMean => 1.0 / (sequences as f64 * length as f64),
            Self::ConstantLength { tokens: constant } => 1.0 / (sequences as f64 * f64::from(constant)),
        }
    }
}

/// The loss, with everything that is the same for all trajectories of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyLoss {
    /// Bounds of the ratio.
    pub clip: Clip,
    /// What the ratio is taken over.
    pub level: RatioLevel,
    /// Bound of the importance weight.
    pub importance_cap: f32,
    /// Weight of the KL to the reference; 0 for none.
    pub kl_coefficient: f32,
}

/// One trajectory's constants. Slices have one entry a drawn token.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Log-probability with which each token was drawn.
    pub behaviour: &'a [f32],
    /// What the ratio is taken against.
    pub old: Old<'a>,
    /// Log-probabilities of the reference policy, if there is one.
    pub reference: Option<&'a [f32]>,
    /// The trajectory's advantage.
    pub advantage: f32,
    /// [`Aggregation::token_weight`].
    pub token_weight: f64,
}

/// The old policy's log-probabilities.
#[derive(Clone, Copy, Debug)]
pub enum Old<'a> {
    /// Those with which the tokens were drawn.
    Behaviour,
    /// Those of the policy being differentiated, before its first update.
    Current,
    /// These; the importance weight corrects from the behaviour to them.
    Given(&'a [f32]),
    /// These or, if absent, the current ones, without importance weight: the behaviour's were taken under a filtered
    /// distribution and cannot be compared.
    Uncorrected(Option<&'a [f32]>),
}

/// Sums over a trajectory's drawn tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossSums {
    /// The weighted loss.
    pub loss: f64,
    /// `exp(new - mu) - 1 - (new - mu)`: an estimate of KL(mu || new) that is never negative (k3, Schulman 2020).
    pub kl: f64,
    /// Tokens whose pull the clip removed.
    pub clipped: u64,
    /// Tokens whose importance weight was truncated.
    pub truncated: u64,
}

/// Log-ratios are kept within this, so that a ratio neither overflows nor turns a zero into NaN.
const LOG_RATIO_BOUND: f64 = 20.0;

impl PolicyLoss {
    /// The trajectory's loss at the log-probabilities `new`, and its derivative with respect to each in `slopes`
    /// (cleared first).
    ///
    /// # Panics
    /// If the slices of `terms` do not have the length of `new`.
    pub fn evaluate(&self, new: &[f32], terms: &Terms<'_>, slopes: &mut Vec<f32>) -> LossSums {
        assert_eq!(new.len(), terms.behaviour.len(), "one behaviour log-probability a drawn token");
        slopes.clear();
        let mut sums = LossSums::default();
        let sequence = (self.level == RatioLevel::Sequence).then(|| self.surrogate(terms, mean_logs(new, terms)));
        for (index, &new_logprob) in new.iter().enumerate() {
            let surrogate = sequence.unwrap_or_else(|| self.surrogate(terms, token_logs(new, terms, index)));
            let reference = terms.reference.map(|logprobs| logprobs[index]);
            let (kl_loss, kl_slope) = self.reference_kl(new_logprob, reference);
            sums.loss += terms.token_weight * (surrogate.loss + kl_loss);
            sums.kl += k3(bounded(new_logprob - terms.behaviour[index]));
            sums.clipped += u64::from(surrogate.clipped);
            sums.truncated += u64::from(surrogate.truncated);
            slopes.push((terms.token_weight * (surrogate.slope + kl_slope)) as f32);
        }
        sums
    }

    /// `-w * min(r A, clip(r) A)` and its derivative with respect to the log of the ratio. For a sequence ratio that
    /// is also the derivative of the sum over its tokens with respect to each token's log-probability.
    fn surrogate(&self, terms: &Terms<'_>, logs: Logs) -> Surrogate {
        let advantage = f64::from(terms.advantage);
        let ratio = logs.ratio.exp();
        let clipped_ratio = ratio.clamp(1.0 - f64::from(self.clip.low), 1.0 + f64::from(self.clip.high));
        let cap = f64::from(self.importance_cap);
        let importance = logs.importance.exp();
        let weight = importance.min(cap);
        let clipped = clipped_ratio * advantage < ratio * advantage;
        Surrogate {
            loss: -weight * (ratio * advantage).min(clipped_ratio * advantage),
            slope: if clipped { 0.0 } else { -weight * ratio * advantage },
            clipped,
            truncated: importance > cap,
        }
    }

    /// `beta * k3` of KL(new || reference) (DeepSeekMath eq. 4) and its derivative.
    fn reference_kl(&self, new: f32, reference: Option<f32>) -> (f64, f64) {
        let Some(reference) = reference else { return (0.0, 0.0) };
        let coefficient = f64::from(self.kl_coefficient);
        let log_ratio = bounded(reference - new);
        (coefficient * k3(log_ratio), coefficient * (1.0 - log_ratio.exp()))
    }
}

#[derive(Clone, Copy)]
struct Surrogate {
    loss: f64,
    slope: f64,
    clipped: bool,
    truncated: bool,
}

/// Logs of the ratio and of the importance weight.
#[derive(Clone, Copy)]
struct Logs {
    ratio: f64,
    importance: f64,
}

fn token_logs(new: &[f32], terms: &Terms<'_>, index: usize) -> Logs {
    let behaviour = terms.behaviour[index];
    let old = match terms.old {
        Old::Behaviour => behaviour,
        Old::Current | Old::Uncorrected(None) => new[index],
        Old::Given(old) | Old::Uncorrected(Some(old)) => old[index],
    };
    let corrected = !matches!(terms.old, Old::Uncorrected(_));
    let importance = if corrected { bounded(old - behaviour) } else { 0.0 };
    Logs { ratio: bounded(new[index] - old), importance }
}

fn mean_logs(new: &[f32], terms: &Terms<'_>) -> Logs {
    let mut sum = Logs { ratio: 0.0, importance: 0.0 };
    for index in 0..new.len() {
        let token = token_logs(new, terms, index);
        sum = Logs { ratio: sum.ratio + token.ratio, importance: sum.importance + token.importance };
    }
    let count = new.len() as f64;
    Logs { ratio: sum.ratio / count, importance: sum.importance / count }
}

fn bounded(log_ratio: f32) -> f64 {
    f64::from(log_ratio).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
}

fn k3(log_ratio: f64) -> f64 {
    log_ratio.exp_m1() - log_ratio
}
