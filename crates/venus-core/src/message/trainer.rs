//! Coordinator to trainer and back: complete groups in, weight versions out.

use crate::ids::{BatchId, GroupId, TokenId, TrajectoryId, Version};
use crate::message::engine::VersionSpan;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One finished trajectory as the trainer sees it. All per-token arrays have one entry a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainTrajectory {
    /// Which trajectory.
    pub trajectory: TrajectoryId,
    /// Prompt, generated tokens and tool output, in order, exactly as the engine saw and drew them.
    pub tokens: Vec<TokenId>,
    /// 1 where the engine drew the token (it carries loss), 0 for prompt and tool output.
    pub mask: Vec<u8>,
    /// Log-probability with which the token was drawn; 0 where the mask is 0.
    pub logprobs: Vec<f32>,
    /// Which weights made which tokens; `start..end` index into `tokens` and cover the masked ones.
    pub spans: Vec<VersionSpan>,
    /// The grader's verdict. Finite.
    pub reward: f32,
}

/// The trajectories of one prompt, all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainGroup {
    /// Which group.
    pub group: GroupId,
    /// Its K members.
    pub trajectories: Vec<TrainTrajectory>,
}

/// B complete groups, delivered once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainBatch {
    /// Which batch.
    pub batch: BatchId,
    /// Temperature at which its tokens were drawn; the trainer's log-probabilities use the same.
    pub temperature: f32,
    /// Its groups.
    pub groups: Vec<TrainGroup>,
}

/// A finished step. The directory holds weights, optimizer state and the ids of the groups trained, complete or absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// The batch trained; the acknowledgement.
    pub batch: BatchId,
    /// The version made.
    pub version: Version,
    /// Where it is: `config.json`, `tokenizer.json`, `model.safetensors` and the trainer's own state.
    pub dir: PathBuf,
    /// What happened.
    pub metrics: StepMetrics,
}

/// Figures of one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Mean reward of the batch.
    pub reward_mean: f64,
    /// Loss before the update.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Mean entropy of the distributions tokens were drawn from, nats.
    pub entropy: f64,
    /// Mean of `old - new + exp(new - old) - 1`-style estimate of the KL between the policy that drew and the one trained, nats a token.
    pub kl: f64,
    /// Share of loss tokens whose ratio was clipped.
    pub clip_fraction: f64,
    /// Share of loss tokens whose importance weight was truncated.
    pub truncated_fraction: f64,
    /// Groups whose rewards were all equal: no signal.
    pub zero_variance_groups: u32,
    /// Largest absolute difference between the engine's and the trainer's log-probability of a token drawn by the weights being trained.
    pub logprob_gap_max: f64,
    /// Tokens run through the model.
    pub tokens: u64,
    /// Of these, loss tokens.
    pub loss_tokens: u64,
    /// Seconds of forward, backward and update.
    pub seconds: f64,
}
