//! The length predictor: how many tokens a trajectory will still generate (paper section 2.2, "length predictor").
//!
//! At a turn boundary, while the tool runs, a [`Predictor`] is shown what the trajectory did so far (its [`Trail`]) and
//! says how many tokens it will still generate, with a spread. Only generated tokens count, not tool output: with a
//! saturated batch they stand in for remaining GPU time.
//!
//! The paper fine-tunes a 0.6B language model and runs it as a service. Here the model is a ridge regression on counters
//! and on the history of the same prompt ([`Learned`]): it reads no text, costs a dot product, and learns online. A model
//! that reads text can be put in front of it through [`Outside`]. Predictions order work, they never decide whether
//! a trajectory may go on: nothing here is trusted by an invariant of the scheduler.
//!
//! # Use
//! One [`Trail`] a trajectory, dropped with it. At each boundary [`Predictor::predict`]; after each turn and its tool
//! [`Trail::turn`]; at the end [`Predictor::remember`] at once, so that siblings see it at their next boundary, and
//! [`Predictor::learn`] whenever there is time for it. What a predictor keeps of a live trajectory is in its trail, so
//! a discarded trajectory leaves nothing behind.
//!
//! # Learning
//! Rows come from finished trajectories, so a run begins with the short ones: until the first long ones end, the long are
//! underestimated. What was known of the prompt is noted at the boundary, not reconstructed at the end; otherwise
//! the model would be taught with siblings that finish later.

mod baseline;
mod config;
mod features;
mod history;
mod learned;
mod outside;
mod quantiles;
mod ridge;
mod tool;
mod trail;

pub use baseline::{Constant, Noisy, Oracle, Random, Silent};
pub use config::{ConfigError, LearnedConfig, NoisyConfig, PredictorConfig};
pub use learned::Learned;
pub use outside::Outside;
pub use tool::ToolKind;
pub use trail::{Answer, Progress, Trail, Turn};

use crate::ids::Version;
use crate::units::Tokens;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a trajectory will still generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// Tokens still to be generated; as likely too high as too low.
    pub remaining: Tokens,
    /// Their spread: one standard deviation, or half the width of the middle 68 %.
    pub spread: Tokens,
}

impl Prediction {
    /// From quantiles (16, 50, 84 %) of `ln(1 + remaining)`. Somebody at a turn boundary has a token to generate.
    fn from_log([low, middle, high]: [f64; 3]) -> Self {
        let tokens = |log: f64| log.clamp(0.0, LOG_MOST).exp_m1();
        Self {
            remaining: Tokens(tokens(middle).round().max(1.0) as u64),
            spread: Tokens(((tokens(high) - tokens(low)) / 2.0).round().max(0.0) as u64),
        }
    }
}

/// No prediction exceeds `e^20`, half a thousand million tokens.
const LOG_MOST: f64 = 20.0;

/// `ln(1 + count)`.
fn log(count: u64) -> f64 {
    (count as f64).ln_1p()
}

/// Something that says how much a trajectory will still generate.
///
/// Predictors have no clock and no randomness of their own: the same calls give the same answers.
pub trait Predictor: fmt::Debug + Send {
    /// What the trajectory will still generate, asked at a turn boundary before its next turn; `None` from one that has
    /// nothing to say. Notes in the trail what it saw, for [`Predictor::learn`]. Costs O(features).
    fn predict(&self, trail: &mut Trail, version: Version) -> Option<Prediction>;

    /// The trajectory finished under `version`: from now on this is history of its prompt. Costs O(log prompts).
    fn remember(&mut self, _trail: &Trail, _version: Version) {}

    /// Learns from a finished trajectory. Off the critical path: nothing else depends on when, or whether, it is called.
    /// Costs O(features^2) a boundary noted, of which a trail holds at most [`Trail::MOST_BOUNDARIES`].
    fn learn(&mut self, _trail: &Trail, _version: Version) {}

    /// Checks the predictor's invariants by looking at everything: for tests and debugging.
    ///
    /// # Errors
    /// The first [`Violation`] found.
    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}

/// A broken invariant of a predictor: a defect of it, never of its input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("predictor invariant \"{invariant}\" is broken: {found}")]
pub struct Violation {
    /// What must hold.
    pub invariant: &'static str,
    /// What was found instead.
    pub found: String,
}

fn require(holds: bool, invariant: &'static str, found: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { invariant, found: found() }) }
}
