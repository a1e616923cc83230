//! What is recorded of each step and each measurement.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use venus_core::message::trainer::StepMetrics;

/// One trainer step, and the trajectories that went into it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepLine {
    /// Trainer step, from 1.
    pub step: u64,
    /// Seconds since the start of the run, at the end of the step; a resumed run counts on.
    pub seconds: f64,
    /// Trajectories of the batch.
    pub trajectories: u64,
    /// Share of them that solved their task (reward 1), 0 to 1.
    pub success: f64,
    /// Turns a trajectory.
    pub turns: Percentiles,
    /// Tokens a trajectory drew.
    pub tokens: Percentiles,
    /// Where the time went.
    pub time: TimeSplit,
    /// Tokens drawn by the engines since the step before.
    pub tokens_generated: u64,
    /// The same, a second of wall time.
    pub tokens_per_second: f64,
    /// Share of context tokens found in the prefix cache, net of those computed again; 0 to 1.
    pub hit_rate: f64,
    /// Weight versions between the weights that drew a token and those it trained, mean over tokens.
    pub staleness_mean: f64,
    /// The same, largest.
    pub staleness_max: u64,
    /// Sandboxes alive at the end of the step.
    pub sandboxes_live: u64,
    /// Trajectories in flight by class, at the end of the step.
    pub classes: ClassCounts,
    /// Trajectories thrown away since the step before, whatever the reason.
    pub discarded: u64,
    /// How the trajectories of the batch ended, by end reason.
    pub ends: BTreeMap<String, u64>,
    /// What the trainer reported.
    pub trainer: StepMetrics,
}

/// Trajectories by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassCounts {
    /// In their last valid weight version.
    pub boundary: u64,
    /// Of a critical group.
    pub high: u64,
    /// All others.
    pub low: u64,
}

/// Nearest-rank percentiles: values that occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Percentiles {
    /// Half are at most this.
    pub p50: f64,
    /// Nine of ten are at most this.
    pub p90: f64,
    /// Ninety-nine of a hundred are at most this.
    pub p99: f64,
}

impl Percentiles {
    /// Percentiles of `values`, in any order; all zero when there are none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let rank = |p: f64| {
            let index = (p * values.len() as f64).ceil() as usize;
            values.get(index.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Self { p50: rank(0.5), p90: rank(0.9), p99: rank(0.99) }
    }
}

/// The mean life of a trajectory of the batch, and the training of the batch. Seconds of wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeSplit {
    /// A trajectory's turns being generated.
    pub generation: f64,
    /// Its commands running, its sandbox being made included.
    pub tools: f64,
    /// Its grader running.
    pub grading: f64,
    /// Waiting: for a slot, for its group, for the trainer.
    pub waiting: f64,
    /// The trainer's step.
    pub training: f64,
}

/// One measurement on held-out tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EvalLine {
    /// Trainer steps the weights had taken; 0 is the model the run started from.
    pub step: u64,
    /// Seconds since the start of the run, at the end of the measurement.
    pub seconds: f64,
    /// Seconds it took.
    pub took: f64,
    /// Temperature it sampled with.
    pub temperature: f64,
    /// Tasks attempted, each once.
    pub tasks: u64,
    /// Tasks solved.
    pub solved: u64,
    /// Both by family.
    pub families: BTreeMap<String, FamilyScore>,
}

/// Held-out tasks of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FamilyScore {
    /// Attempted.
    pub tasks: u64,
    /// Solved.
    pub solved: u64,
}

impl EvalLine {
    /// Share of tasks solved, 0 to 1; 0 when none was attempted.
    #[must_use]
    pub fn success(&self) -> f64 {
        FamilyScore { tasks: self.tasks, solved: self.solved }.success()
    }

    /// Binomial standard error of [`Self::success`].
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        let p = self.success();
        if self.tasks == 0 { 0.0 } else { (p * (1.0 - p) / self.tasks as f64).sqrt() }
    }
}

impl FamilyScore {
    /// Share of tasks solved, 0 to 1; 0 when none was attempted.
    #[must_use]
    pub fn success(&self) -> f64 {
        if self.tasks == 0 { 0.0 } else { self.solved as f64 / self.tasks as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let of = |values: &[f64]| Percentiles::of(values.to_vec());
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(of(&hundred), Percentiles { p50: 50.0, p90: 90.0, p99: 99.0 });
        assert_eq!(of(&[7.0]), Percentiles { p50: 7.0, p90: 7.0, p99: 7.0 });
        assert_eq!(of(&[]), Percentiles::default());
    }
}
