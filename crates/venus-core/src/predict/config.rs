//! Which predictor, and how it is set up.

use super::{Constant, Learned, Noisy, Oracle, Outside, Predictor, Random, Silent};
use crate::units::Tokens;
use serde::{Deserialize, Serialize};

/// Which predictor orders the work. In TOML: `predictor = { kind = "random", seed = 7 }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PredictorConfig {
    /// [`Silent`].
    None,
    /// [`Constant`].
    Constant {
        /// What it says before it has learned.
        #[serde(default = "default_prior")]
        prior: Tokens,
    },
    /// [`Oracle`]; only of use where recorded trajectories are replayed.
    Oracle,
    /// [`Noisy`]; only of use where recorded trajectories are replayed.
    Noisy(NoisyConfig),
    /// [`Random`].
    Random {
        /// What it depends on.
        #[serde(default)]
        seed: u64,
    },
    /// [`Learned`].
    Learned(LearnedConfig),
    /// [`Outside`].
    Outside {
        /// Turns that an answer may be old.
        #[serde(default = "default_patience")]
        patience: u32,
        /// Who is asked where there is no answer.
        #[serde(default)]
        fallback: Box<PredictorConfig>,
    },
}

fn default_prior() -> Tokens {
    LearnedConfig::default().prior
}

fn default_patience() -> u32 {
    2
}

impl Default for PredictorConfig {
    fn default() -> Self {
        Self::Learned(LearnedConfig::default())
    }
}

impl PredictorConfig {
    /// The predictor. The only place where one is chosen.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting that cannot work.
    pub fn build(&self) -> Result<Box<dyn Predictor>, ConfigError> {
        Ok(match self {
            Self::None => Box::new(Silent),
            Self::Constant { prior } => Box::new(Constant::new(*prior)),
            Self::Oracle => Box::new(Oracle),
            Self::Noisy(config) => {
                config.validate()?;
                Box::new(Noisy::new(*config))
            }
            Self::Random { seed } => Box::new(Random::new(*seed)),
            Self::Learned(config) => {
                config.validate()?;
                Box::new(Learned::new(config.clone()))
            }
            Self::Outside { patience, fallback } => Box::new(Outside::new(*patience, fallback.build()?)),
        })
    }
}

/// How [`Learned`] learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearnedConfig {
    /// What is said of every trajectory before the first one finished.
    pub prior: Tokens,
    /// Trajectories learned from before the model speaks; until then it is the median of what was seen.
    pub warm_after: u32,
    /// Weight versions after which what the model learned counts for half.
    pub half_life: f64,
    /// Weight versions after which the history of a prompt counts for half. Longer than an epoch, or it is of no use.
    pub history_half_life: f64,
    /// Rows worth of doubt about every coefficient; larger is more cautious. Rows of one trajectory resemble each other,
    /// so this is a few trajectories.
    pub ridge: f64,
}

impl Default for LearnedConfig {
    fn default() -> Self {
        Self { prior: Tokens(1024), warm_after: 16, half_life: 32.0, history_half_life: 64.0, ridge: 100.0 }
    }
}

impl LearnedConfig {
    /// Refuses settings under which nothing is learned.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { half_life, history_half_life, ridge, .. } = *self;
        positive("half_life", half_life)?;
        positive("history_half_life", history_half_life)?;
        positive("ridge", ridge)
    }
}

/// How [`Noisy`] errs. The defaults are what a prompt without history shows on recorded trajectories; with history
/// `bias` is about 0.65 (`docs/predictor.md`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NoisyConfig {
    /// What the errors depend on.
    pub seed: u64,
    /// Standard deviation of `ln(said / true)` that stays with the trajectory.
    pub bias: f64,
    /// Standard deviation of the part that wanders from turn to turn.
    pub noise: f64,
}

impl Default for NoisyConfig {
    fn default() -> Self {
        Self { seed: 0, bias: 0.8, noise: 0.6 }
    }
}

impl NoisyConfig {
    /// Refuses errors that are no numbers.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (key, value) in [("bias", self.bias), ("noise", self.noise)] {
            if !(0.0..=10.0).contains(&value) {
                return Err(ConfigError { key, value, allowed: "0 to 10" });
            }
        }
        Ok(())
    }
}

fn positive(key: &'static str, value: f64) -> Result<(), ConfigError> {
    if value > 0.0 && value.is_finite() { Ok(()) } else { Err(ConfigError { key, value, allowed: "more than 0" }) }
}

/// A setting of a predictor that cannot work.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key} of the predictor is {value}: set it to {allowed}")]
pub struct ConfigError {
    /// The setting.
    pub key: &'static str,
    /// Its value.
    pub value: f64,
    /// What works.
    pub allowed: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PredictorConfig, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn every_predictor_is_chosen_by_its_name() {
        for (name, debug) in [
            ("none", "Silent"),
            ("constant", "Constant"),
            ("oracle", "Oracle"),
            ("noisy", "Noisy"),
            ("random", "Random"),
            ("learned", "Learned"),
            ("outside", "Outside"),
        ] {
            let config = read(&format!(r#"{{"kind":"{name}"}}"#)).unwrap();
            assert!(format!("{:?}", config.build().unwrap()).starts_with(debug), "{name}");
            assert_eq!(read(&serde_json::to_string(&config).unwrap()).unwrap(), config);
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_name() {
        let refusal = |text: &str| read(text).unwrap().build().unwrap_err().to_string();
        assert_eq!(
            refusal(r#"{"kind":"learned","half_life":0.0}"#),
            "half_life of the predictor is 0: set it to more than 0"
        );
        assert_eq!(
            refusal(r#"{"kind":"outside","fallback":{"kind":"noisy","bias":-1.0}}"#),
            "bias of the predictor is -1: set it to 0 to 10"
        );
        assert!(read(r#"{"kind":"learned","halflife":3}"#).is_err());
    }
}
