//! What a user may choose about training. Plain data: a configuration file embeds these as they are.

use crate::advantage::Algorithm;
use crate::error::TrainerError;
use crate::loss::{Aggregation, Clip, OldPolicy};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Options of reinforcement learning on complete groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainerOptions {
    /// Which algorithm.
    pub algorithm: Algorithm,
    /// Passes over a batch in one step.
    pub epochs: u32,
    /// Updates in one pass; each takes an equal share of the trajectories, in an order given by `seed`.
    pub minibatches: u32,
    /// Seed of that order.
    pub seed: u64,
    /// Most tokens in one forward and backward of one thread: bounds the memory for activations. A longer trajectory
    /// goes alone. Beyond the default a tiny model gets slower: its activations leave the cache.
    pub micro_batch_tokens: u32,
    /// Threads, each with a share of the trajectories; 0 takes one for each core. Results are bitwise the same for
    /// the same number of threads.
    pub threads: u32,
    /// The loss.
    pub loss: LossOptions,
    /// The optimizer.
    pub optimizer: OptimizerOptions,
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Grpo,
            epochs: 1,
            minibatches: 2,
            seed: 0,
            micro_batch_tokens: 1024,
            threads: 0,
            loss: LossOptions::default(),
            optimizer: OptimizerOptions::default(),
        }
    }
}

impl TrainerOptions {
    /// Whether the options can work.
    ///
    /// # Errors
    /// [`TrainerError::Option`] names the first that cannot, and what is allowed.
    pub fn validate(&self) -> Result<(), TrainerError> {
        at_least_one("epochs", self.epochs)?;
        at_least_one("minibatches", self.minibatches)?;
        at_least_one("micro_batch_tokens", self.micro_batch_tokens)?;
        self.loss.validate()?;
        self.optimizer.validate()
    }

    /// Updates in one step, if there are that many trajectories with a gradient.
    #[must_use]
    pub fn updates(&self) -> u64 {
        u64::from(self.epochs) * u64::from(self.minibatches)
    }

    /// [`OldPolicy`] with `auto` decided; never [`OldPolicy::Auto`].
    #[must_use]
    pub fn old_policy(&self) -> OldPolicy {
        match self.loss.old {
            OldPolicy::Auto if self.updates() > 1 || self.loss.filtered_sampling => OldPolicy::StepStart,
            OldPolicy::Auto => OldPolicy::Behaviour,
            decided => decided,
        }
    }
}

/// Options of the policy loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossOptions {
    /// Added to the standard deviation that advantages are divided by. The default damps groups that differ only by
    /// a small penalty, and hardly touches groups of failures and successes.
    pub advantage_epsilon: f32,
    /// Bounds of the ratio; absent takes the algorithm's own.
    pub clip: Option<Clip>,
    /// What the ratio is taken against.
    pub old: OldPolicy,
    /// Bound of the importance weight.
    pub importance_cap: f32,
    /// Weight of the KL to the reference model; 0 for none.
    pub kl_coefficient: f32,
    /// Directory of the reference model; needed if `kl_coefficient` is not 0.
    pub reference: Option<PathBuf>,
    /// How token losses become one number; absent takes the algorithm's own.
    pub aggregation: Option<Aggregation>,
    /// Tokens are drawn with top-p or top-k: the engine's log-probabilities are then of the truncated distribution
    /// and are compared with nothing here (no importance weight, no `logprob_gap_max`).
    pub filtered_sampling: bool,
}

impl Default for LossOptions {
    fn default() -> Self {
        Self {
            advantage_epsilon: 0.05,
            clip: None,
            old: OldPolicy::Auto,
            importance_cap: 2.0,
            kl_coefficient: 0.0,
            reference: None,
            aggregation: None,
            filtered_sampling: false,
        }
    }
}

impl LossOptions {
    fn validate(&self) -> Result<(), TrainerError> {
        not_negative("loss.advantage_epsilon", self.advantage_epsilon)?;
        not_negative("loss.kl_coefficient", self.kl_coefficient)?;
        positive("loss.importance_cap", self.importance_cap)?;
        if let Some(clip) = self.clip {
            if !(0.0..1.0).contains(&clip.low) {
                return Err(TrainerError::option("loss.clip.low", format!("{} is not in 0..1", clip.low)));
            }
            not_negative("loss.clip.high", clip.high)?;
        }
        if self.kl_coefficient > 0.0 && self.reference.is_none() {
            let problem = "a KL needs a reference model: give its directory, or set loss.kl_coefficient to 0";
            return Err(TrainerError::option("loss.reference", problem));
        }
        if self.aggregation == Some(Aggregation::ConstantLength { tokens: 0 }) {
            return Err(TrainerError::option("loss.aggregation", "the constant length must be at least 1"));
        }
        if self.filtered_sampling && self.old == OldPolicy::Behaviour {
            let problem = "log-probabilities of filtered sampling cannot be a ratio's base: use step_start or auto";
            return Err(TrainerError::option("loss.old", problem));
        }
        Ok(())
    }
}

/// Options of AdamW and its learning rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerOptions {
    /// Learning rate after the warm-up.
    pub learning_rate: f64,
    /// Updates over which the rate rises linearly from 0.
    pub warmup_updates: u64,
    /// What happens after the warm-up.
    pub decay: Decay,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of their squares.
    pub beta2: f64,
    /// Added to the root of the mean of squares.
    pub epsilon: f64,
    /// Decoupled weight decay, times the learning rate, of matrices; norms are not decayed.
    pub weight_decay: f64,
    /// A gradient with a larger norm is scaled down to it.
    pub max_grad_norm: f64,
}

impl Default for OptimizerOptions {
    fn default() -> Self {
        Self {
            learning_rate: 4e-4,
            warmup_updates: 0,
            decay: Decay::Constant,
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            weight_decay: 0.01,
            max_grad_norm: 1.0,
        }
    }
}

impl OptimizerOptions {
    pub(crate) fn validate(&self) -> Result<(), TrainerError> {
        positive("optimizer.learning_rate", self.learning_rate as f32)?;
        positive("optimizer.epsilon", self.epsilon as f32)?;
        positive("optimizer.max_grad_norm", self.max_grad_norm as f32)?;
        not_negative("optimizer.weight_decay", self.weight_decay as f32)?;
        for (option, beta) in [("optimizer.beta1", self.beta1), ("optimizer.beta2", self.beta2)] {
            if !(0.0..1.0).contains(&beta) {
                return Err(TrainerError::option(option, format!("{beta} is not in 0..1")));
            }
        }
        if let Decay::Linear { updates, end } = self.decay
            && (updates == 0 || !(0.0..=1.0).contains(&end))
        {
            let problem = "needs at least 1 update and an end between 0 and 1";
            return Err(TrainerError::option("optimizer.decay", problem));
        }
        Ok(())
    }

    /// The learning rate of the update after `done` others.
    #[must_use]
    pub fn rate(&self, done: u64) -> f64 {
        if done < self.warmup_updates {
            return self.learning_rate * (done + 1) as f64 / self.warmup_updates as f64;
        }
        match self.decay {
            Decay::Constant => self.learning_rate,
            Decay::Linear { updates, end } => {
                let progress = ((done - self.warmup_updates) as f64 / updates as f64).min(1.0);
                self.learning_rate * (1.0 - progress * (1.0 - end))
            }
        }
    }
}

/// How the learning rate goes on after its warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Decay {
    /// It stays.
    #[default]
    Constant,
    /// It falls in a straight line and then stays.
    Linear {
        /// Updates until the end of the line.
        updates: u64,
        /// Share of the learning rate there.
        end: f64,
    },
}

pub(crate) fn at_least_one(option: &'static str, value: u32) -> Result<(), TrainerError> {
    if value == 0 { Err(TrainerError::option(option, "must be at least 1")) } else { Ok(()) }
}

pub(crate) fn positive(option: &'static str, value: f32) -> Result<(), TrainerError> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(TrainerError::option(option, format!("{value} must be a number above 0")))
    }
}

fn not_negative(option: &'static str, value: f32) -> Result<(), TrainerError> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(TrainerError::option(option, format!("{value} must be a number of at least 0")))
    }
}

/// The number of threads meant by `threads`, where 0 stands for one a core.
pub(crate) fn thread_count(threads: u32) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        given => given as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_option_is_refused_by_name() {
        let error = serde_json::from_str::<TrainerOptions>(r#"{"minibatch": 2}"#).unwrap_err().to_string();
        assert!(error.contains("minibatch") && error.contains("minibatches"), "{error}");
    }

    #[test]
    fn options_that_cannot_work_are_named() {
        let mut options = TrainerOptions::default();
        options.validate().unwrap();
        options.loss.kl_coefficient = 0.1;
        assert!(options.validate().unwrap_err().to_string().contains("loss.reference"));
        options = TrainerOptions { minibatches: 0, ..Default::default() };
        assert!(options.validate().unwrap_err().to_string().contains("minibatches"));
        options = TrainerOptions::default();
        options.optimizer.learning_rate = f64::NAN;
        assert!(options.validate().unwrap_err().to_string().contains("learning_rate"));
    }

    #[test]
    fn the_rate_warms_up_and_decays() {
        let options = OptimizerOptions {
            learning_rate: 1.0,
            warmup_updates: 4,
            decay: Decay::Linear { updates: 10, end: 0.1 },
            ..Default::default()
        };
        let rates: Vec<f64> = [0, 3, 4, 9, 14, 100].iter().map(|&done| options.rate(done)).collect();
        for (rate, expected) in rates.iter().zip([0.25, 1.0, 1.0, 0.55, 0.1, 0.1]) {
            assert!((rate - expected).abs() < 1e-12, "{rates:?}");
        }
    }

    #[test]
    fn several_updates_are_measured_from_the_start_of_the_step() {
        let mut options = TrainerOptions { minibatches: 1, ..Default::default() };
        assert_eq!(options.old_policy(), OldPolicy::Behaviour);
        options.epochs = 2;
        assert_eq!(options.old_policy(), OldPolicy::StepStart);
    }
}
