//! What a run says about itself while it goes on, for terminals, reports and tests.

use crate::agent::{End, FinishedTrajectory};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use venus_core::ids::{BatchId, GroupId, Version};
use venus_core::message::trainer::StepMetrics;
use venus_core::schedule::ClassCounts;

/// Something happened that a person may want to see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEvent {
    /// The run begins or goes on.
    Started {
        /// Version it begins with.
        version: Version,
        /// Version it ends with.
        target: Version,
        /// Whether an earlier part of it exists.
        resumed: bool,
    },
    /// Where things stand, a few times a second.
    Progress(Progress),
    /// A step is done and its version in use.
    StepFinished(Box<StepReport>),
    /// An evaluation is done.
    EvalFinished(EvalReport),
    /// Worth a line: something was repaired, retried, given up or lost.
    Notice(String),
}

/// Where things stand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Seconds since the start of this process's part of the run.
    pub elapsed: f64,
    /// What the run is waiting for.
    pub phase: Phase,
    /// Version in use.
    pub version: Version,
    /// Complete groups waiting for the trainer, of `groups_wanted`.
    pub groups_complete: usize,
    /// Groups of a batch.
    pub groups_wanted: usize,
    /// Trajectories with a sandbox or getting one.
    pub trajectories: usize,
    /// Sandboxes that are up.
    pub sandboxes: usize,
    /// Turns being generated.
    pub generating: usize,
    /// Turns waiting for a slot.
    pub queued: usize,
    /// Tools and graders running.
    pub acting: usize,
    /// Held-out tasks done, while an evaluation runs.
    pub evaluated: usize,
    /// Held-out tasks of that evaluation.
    pub to_evaluate: usize,
    /// Tokens drawn since the start.
    pub generated_tokens: u64,
}

/// What a run is busy with. Rollout goes on meanwhile where the async factor allows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits for a batch.
    #[default]
    Rollout,
    /// The trainer works.
    Training,
    /// Engines load weights.
    Loading,
    /// Held-out tasks run.
    Evaluating,
}

/// A step: a batch that was trained, and what happened since the step before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Its number, from 1; the version it made.
    pub step: u64,
    /// Its batch.
    pub batch: BatchId,
    /// Its groups.
    pub groups: Vec<GroupId>,
    /// Where the new weights are.
    pub dir: PathBuf,
    /// The trainer's figures.
    pub metrics: StepMetrics,
    /// Mean reward of its trajectories.
    pub reward_mean: f64,
    /// Share of its trajectories with a reward of at least 1.
    pub success: f64,
    /// Its trajectories.
    pub trajectories: u64,
    /// Mean turns of a trajectory.
    pub turns_mean: f64,
    /// Turns of a trajectory.
    pub turns: Percentiles,
    /// Drawn tokens of a trajectory.
    pub length: Percentiles,
    /// Why agents stopped.
    pub ends: BTreeMap<End, u64>,
    /// Versions between the weights that drew a token and those its batch was trained on: mean over tokens.
    pub staleness_mean: f64,
    /// The same, largest.
    pub staleness_max: u64,
    /// Most versions that drew one trajectory.
    pub span_max: u64,
    /// Tokens drawn since the last step, thrown-away ones included.
    pub generated_tokens: u64,
    /// The same, a second of `seconds`.
    pub tokens_per_second: f64,
    /// Share of context tokens whose KV was cached, net of those computed again.
    pub kv_hit_rate: f64,
    /// Starts thrown away since the last step, by reason.
    pub discards: BTreeMap<String, u64>,
    /// Failures since the last step, by kind.
    pub failures: BTreeMap<String, u64>,
    /// Unfinished trajectories by class.
    pub classes: ClassCounts,
    /// Sandboxes up.
    pub sandboxes: usize,
    /// Most sandboxes up at once since the last step.
    pub sandboxes_peak: usize,
    /// Where the time went.
    pub time: TimeSplit,
    /// Seconds since the last step, without evaluation.
    pub seconds: f64,
    /// Seconds since the start of the run, without evaluation; a resumed run counts on.
    pub elapsed: f64,
}

/// Where time went. The first five are sums over the trajectories of the batch; they run side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSplit {
    /// Getting sandboxes.
    pub create: f64,
    /// Turns waiting for a slot.
    pub queued: f64,
    /// Turns with an engine.
    pub generation: f64,
    /// Commands.
    pub tool: f64,
    /// Graders.
    pub grading: f64,
    /// The trainer, by the clock.
    pub training: f64,
    /// Loading weights, by the clock.
    pub loading: f64,
    /// The trainer waiting for a batch, by the clock.
    pub waiting: f64,
}

impl TimeSplit {
    pub(crate) fn add(&mut self, trajectory: &FinishedTrajectory) {
        self.create += trajectory.create;
        self.grading += trajectory.grading;
        for turn in &trajectory.turns {
            self.queued += turn.queued;
            self.generation += turn.generation;
            self.tool += turn.tool;
        }
    }
}

/// Order statistics, nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half are at most this.
    pub p50: u64,
    /// Nine of ten are.
    pub p90: u64,
    /// Ninety-nine of a hundred are.
    pub p99: u64,
    /// All are.
    pub max: u64,
}

impl Percentiles {
    /// Of these values; all zero if there are none.
    #[must_use]
    pub fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let rank = |percent: usize| values.get((values.len() * percent).div_ceil(100).max(1) - 1).copied().unwrap_or(0);
        Self { p50: rank(50), p90: rank(90), p99: rank(99), max: rank(100) }
    }
}

/// Held-out tasks, each tried once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvalReport {
    /// Version that was evaluated.
    pub version: Version,
    /// Tasks with a reward.
    pub tasks: u64,
    /// Tasks without one: sandbox or grader failed each time.
    pub failed: u64,
    /// Of `tasks`, those with a reward of at least 1.
    pub solved: u64,
    /// The same as a share.
    pub success: f64,
    /// Temperature at which tokens were drawn.
    pub temperature: f32,
    /// Seconds since the start of the run, at its end.
    pub at: f64,
    /// Mean reward.
    pub reward_mean: f64,
    /// Mean turns.
    pub turns_mean: f64,
    /// Mean drawn tokens.
    pub tokens_mean: f64,
    /// Why agents stopped.
    pub ends: BTreeMap<End, u64>,
    /// Success by the task's family.
    pub by_kind: BTreeMap<String, f64>,
    /// Seconds it took.
    pub seconds: f64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All steps are done.
    Finished,
    /// It was stopped after a step.
    Stopped,
    /// It was stopped at once.
    Aborted,
}

/// A run in figures, its earlier parts included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// How it ended.
    pub ending: Ending,
    /// Version in the end: steps of the whole run.
    pub steps: u64,
    /// Newest checkpoint; none before the first step.
    pub dir: Option<PathBuf>,
    /// Seconds without evaluation; of earlier parts those up to their last step.
    pub rl_seconds: f64,
    /// First evaluation's success.
    pub heldout_success_first: Option<f64>,
    /// Last evaluation's success.
    pub heldout_success_last: Option<f64>,
    /// Groups trained.
    pub groups_trained: u64,
    /// Groups that are neither trained nor with the coordinator, from the log. Must be 0.
    pub groups_lost: u64,
    /// Groups trained more than once, from the log. Must be 0.
    pub groups_doubled: u64,
    /// Groups given up.
    pub groups_dropped: u64,
    /// Largest difference between an engine's and the trainer's logprob of a token.
    pub logprob_gap_max: f64,
    /// Tokens drawn, thrown-away ones included; those of evaluation only for this part.
    pub tokens_generated: u64,
}
