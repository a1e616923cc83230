//! The one-file result of a run, for scripts.

use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use venus_plane::report::{Ending, RunSummary, StepReport};
use venus_sandbox::{Level, MissingLimit};

/// What a run came to. Fields are added over time, never renamed or removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// What the coordinator says: steps, groups, held-out success, tokens.
    #[serde(flatten)]
    pub run: RunSummary,
    /// Tokens drawn, a second of `rl_seconds`.
    pub tokens_per_second: f64,
    /// Share of context tokens found in the prefix cache, net of those computed again; 0 to 1.
    pub hit_rate: f64,
    /// Trajectories started and thrown away.
    pub discarded: u64,
    /// Groups whose rewards were all equal.
    pub zero_variance_groups: u64,
    /// Where and how it was run.
    #[serde(flatten)]
    pub conditions: Conditions,
}

/// Where and how a run was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
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
    /// Version of Venus.
    pub version: String,
    /// Seconds from start to end of this process.
    pub wall_seconds: f64,
}

impl Conditions {
    /// Of this process. `level` and `missing` as the env node says them.
    #[must_use]
    pub fn here(seed: u64, level: Level, missing: &[MissingLimit], wall_seconds: f64) -> Self {
        Self {
            seed,
            level: level.to_string(),
            missing: missing.iter().map(|limit| format!("{}: {}", limit.name, limit.detail)).collect(),
            command: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
            machine: Machine::here().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            wall_seconds,
        }
    }
}

impl Summary {
    /// Of a run and all its steps.
    #[must_use]
    pub fn new(run: RunSummary, steps: &[StepReport], conditions: Conditions) -> Self {
        let tokens: u64 = steps.iter().map(|s| s.generated_tokens).sum();
        let seconds: f64 = steps.iter().map(|s| s.seconds).sum();
        let hits: f64 = steps.iter().map(|s| s.kv_hit_rate * s.generated_tokens as f64).sum();
        let rate = |amount: f64, of: f64| if of > 0.0 { amount / of } else { 0.0 };
        Self {
            run,
            tokens_per_second: rate(tokens as f64, seconds),
            hit_rate: rate(hits, tokens as f64),
            discarded: steps.iter().flat_map(|s| s.discards.values()).sum(),
            zero_variance_groups: steps.iter().map(|s| u64::from(s.metrics.zero_variance_groups)).sum(),
            conditions,
        }
    }

    /// Whether Ctrl-C ended the run before its last step.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.run.ending != Ending::Finished
    }
}
