//! The one-file result of a run, for scripts.

use serde::{Deserialize, Serialize};

/// What a run came to. Fields are added over time, never renamed or removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Trainer steps done.
    pub steps: u64,
    /// Seconds of rollout and training, measurements and start-up left out.
    pub rl_seconds: f64,
    /// Held-out success of the model the run started from, 0 to 1; absent when it was not measured.
    pub heldout_success_first: Option<f64>,
    /// Held-out success of the newest weights measured, 0 to 1; absent when none were.
    pub heldout_success_last: Option<f64>,
    /// Groups the trainer was handed.
    pub groups_trained: u64,
    /// Groups that were complete and never reached the trainer though the run went on: must be 0.
    pub groups_lost: u64,
    /// Groups the trainer was handed more than once: must be 0.
    pub groups_doubled: u64,
    /// Largest difference between the engine's and the trainer's log-probability of one token, same weights.
    pub logprob_gap_max: f64,
    /// Tokens drawn by the engines.
    pub tokens_generated: u64,
    /// The same, a second of `rl_seconds`.
    pub tokens_per_second: f64,
    /// Share of context tokens found in the prefix cache, net of those computed again; 0 to 1.
    pub hit_rate: f64,
    /// Trajectories thrown away.
    pub discarded: u64,
    /// Groups whose rewards were all equal.
    pub zero_variance_groups: u64,
    /// Seconds from start to end.
    pub wall_seconds: f64,
    /// The seed.
    pub seed: u64,
    /// Isolation of the sandboxes.
    pub level: String,
    /// What the isolation lacks on this host, in words; empty when nothing.
    pub missing: Vec<String>,
    /// The command that started the run.
    pub command: Vec<String>,
    /// The machine: CPU, cores, memory, kernel.
    pub machine: String,
    /// What was run.
    pub versions: Versions,
    /// Set when Ctrl-C ended the run before its last step.
    pub interrupted: bool,
}

/// What was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Versions {
    /// Of Venus.
    pub venus: String,
    /// Newest weight version: trainer updates applied.
    pub weights: u64,
}

impl Default for Versions {
    fn default() -> Self {
        Self { venus: env!("CARGO_PKG_VERSION").to_owned(), weights: 0 }
    }
}
