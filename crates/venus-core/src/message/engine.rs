//! Coordinator to engine and back: one turn is tokens in, tokens out.

use crate::ids::{AttemptId, GroupId, TokenId, TrajectoryId, Version};
use crate::units::{Pages, Tokens};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Standing of a trajectory (paper sections 3.2-3.3). Ordered: a greater class goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Runs when a slot would otherwise idle.
    #[default]
    Low,
    /// Member of a critical group.
    High,
    /// In its last valid weight version: nothing may overtake it.
    Boundary,
}

/// How tokens are drawn. `temperature == 0` is greedy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Most tokens to generate in this turn, the stop token included.
    pub max_tokens: u32,
    /// Softmax temperature; 0 takes the most likely token.
    pub temperature: f32,
    /// Keep the smallest set of tokens whose probability reaches this; 1 keeps all.
    pub top_p: f32,
    /// Keep this many most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Seed of this attempt. The same seed, tokens and weights draw the same tokens in any batch.
    pub seed: u64,
    /// Generation ends after any of these; the stop token is part of the output.
    pub stop: Vec<TokenId>,
}

/// One turn to generate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnRequest {
    /// Names the answer.
    pub attempt: AttemptId,
    /// Whose turn it is.
    pub trajectory: TrajectoryId,
    /// Its group.
    pub group: GroupId,
    /// Its class when dispatched.
    pub class: Class,
    /// The whole context; the engine finds the part it still has cached.
    pub context: Vec<TokenId>,
    /// How to draw.
    pub sampling: Sampling,
}

/// Which weights made which tokens: `start..end` index into the output of the turn (SGLang and vLLM report the same shape).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionSpan {
    /// The weights.
    pub version: Version,
    /// First token made by them.
    pub start: u32,
    /// One past the last.
    pub end: u32,
}

/// Why a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum FinishReason {
    /// A stop token was drawn.
    Stop {
        /// That token.
        token: TokenId,
    },
    /// `max_tokens` were drawn.
    Length,
    /// The coordinator aborted it; the tokens so far are returned.
    Aborted,
    /// It cannot be served, whatever is tried again: the reason says why.
    Rejected {
        /// What is wrong and what to do.
        reason: String,
    },
}

/// The generated turn. `tokens`, `logprobs` and the spans cover each other exactly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnResult {
    /// The request's attempt.
    pub attempt: AttemptId,
    /// The request's trajectory.
    pub trajectory: TrajectoryId,
    /// Sampled tokens, in order. These are the record; text is never re-tokenised.
    pub tokens: Vec<TokenId>,
    /// Log-probability of each token under the distribution it was drawn from (after temperature, top-k and top-p).
    pub logprobs: Vec<f32>,
    /// Which weights made which tokens.
    pub spans: Vec<VersionSpan>,
    /// Why it ended.
    pub finish: FinishReason,
    /// Context tokens whose KV was found cached at first admission.
    pub cached_tokens: Tokens,
    /// Tokens whose KV was there and was computed again after a retraction, drawn ones included. None counts as cached.
    pub recomputed_tokens: Tokens,
}

/// What the coordinator tells an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineCommand {
    /// Generate a turn.
    Submit(TurnRequest),
    /// Stop this attempt, in whatever state it is; answered by a result with [`FinishReason::Aborted`] unless it has ended.
    Abort(AttemptId),
    /// A trajectory changed class.
    SetClass(TrajectoryId, Class),
    /// The trajectory ended: its references on cached pages go.
    Release(TrajectoryId),
    /// Stop between two iterations; what is in flight is kept (vLLM's `pause?mode=keep`).
    Pause,
    /// Go on.
    Resume,
    /// Load these weights between two iterations, without dropping what is in flight; answered by [`EngineEvent::Loaded`].
    LoadWeights {
        /// Their version.
        version: Version,
        /// Directory with `config.json` and `model.safetensors`.
        dir: PathBuf,
    },
    /// Answer with [`EngineEvent::Stats`].
    Stats,
    /// Finish the iteration and end.
    Shutdown,
}

/// What an engine tells the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineEvent {
    /// A turn ended.
    Turn(TurnResult),
    /// Weights are in use from the next iteration on.
    Loaded(Version),
    /// Weights could not be loaded; the old ones stay in use.
    LoadFailed {
        /// The version asked for.
        version: Version,
        /// What is wrong and what to do.
        reason: String,
    },
    /// State and counters.
    Stats(EngineStats),
}

/// State of an engine and its counters since start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineStats {
    /// Turns being generated.
    pub running: u32,
    /// Turns waiting for admission.
    pub waiting: u32,
    /// KV pages in all.
    pub pages: Pages,
    /// Free pages.
    pub pages_free: Pages,
    /// Pages held by the prefix cache alone, reclaimable.
    pub pages_cached: Pages,
    /// Of these, those that no trajectory will come back for.
    #[serde(default)]
    pub pages_unused: Pages,
    /// Of these, those that only low trajectories will come back for.
    #[serde(default)]
    pub pages_low: Pages,
    /// Of these, those that a high trajectory will come back for.
    #[serde(default)]
    pub pages_high: Pages,
    /// Tokens drawn.
    pub generated_tokens: Tokens,
    /// Context tokens asked for.
    pub context_tokens: Tokens,
    /// Of these, found cached.
    pub cached_tokens: Tokens,
    /// Tokens computed again after a retraction, drawn ones included: a hit rate is net of these.
    pub recomputed_tokens: Tokens,
    /// Turns retracted, because decoding needed pages or a higher class waited.
    pub retractions: u64,
    /// Of these, those for a higher class.
    #[serde(default)]
    pub preemptions: u64,
    /// High trajectories moved to the low class for a while, because all of them together need more pages than there are.
    #[serde(default)]
    pub demotions: u64,
    /// Engine iterations.
    pub iterations: u64,
    /// Nanoseconds spent in iterations.
    pub busy_nanos: u64,
}
