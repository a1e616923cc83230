//! A trajectory as people read it: the part of a `trajectories.jsonl` line that the report shows.

use serde::{Deserialize, Serialize};

/// One trajectory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transcript {
    /// Trainer step whose batch it was in; absent for a held-out attempt.
    pub step: Option<u64>,
    /// Its group.
    pub group: u64,
    /// Which trajectory.
    pub trajectory: u64,
    /// The task's name.
    pub task: String,
    /// The task's family.
    pub family: String,
    /// What the agent was told.
    pub instruction: String,
    /// The grader's verdict.
    pub reward: f64,
    /// Why it ended.
    pub end: String,
    /// In order.
    pub turns: Vec<TranscriptTurn>,
}

/// One generation and the command it led to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TranscriptTurn {
    /// The model's text or, where it could be read, the command in it.
    pub command: String,
    /// What the command printed, as the model saw it; absent when none ran.
    pub output: Option<String>,
    /// Tokens drawn.
    pub tokens: u64,
    /// Seconds the command ran.
    pub seconds: Option<f64>,
}
