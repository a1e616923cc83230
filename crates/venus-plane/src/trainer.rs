//! The trainer as the coordinator sees it.

use std::future::Future;
use venus_core::message::trainer::{StepResult, TrainBatch};

/// A batch that could not be trained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TrainError(pub String);

/// Trains batches, one at a time.
pub trait TrainerClient: Send + Sync + 'static {
    /// Trains a batch and returns when the new version and its checkpoint are safely on disk.
    fn train(&self, batch: TrainBatch) -> impl Future<Output = Result<StepResult, TrainError>> + Send;
}
