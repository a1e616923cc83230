//! What can go wrong, each with what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use venus_core::ids::{BatchId, Version};
use venus_lm::ModelError;

/// Why a trainer could not be made, or a step not be taken. A failed step leaves the trainer as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// An option has a value that cannot work.
    #[error("trainer option {option}: {problem}")]
    Option {
        /// The option's name as written in a configuration.
        option: &'static str,
        /// What is wrong and what is allowed.
        problem: String,
    },
    /// A batch (or demonstration) that must not be trained: it would teach something nobody meant.
    #[error("{place}: {problem}")]
    Data {
        /// Which batch, group, trajectory.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// The batch is part of the present weights already.
    #[error("batch {batch} is already trained into {version}: acknowledge it instead of training it twice")]
    AlreadyTrained {
        /// The batch.
        batch: BatchId,
        /// The version that holds it.
        version: Version,
    },
    /// The checkpoint to write is there already.
    #[error("{} exists already: resume from it, or choose another output directory", .dir.display())]
    CheckpointExists {
        /// Its directory.
        dir: PathBuf,
    },
    /// A checkpoint that does not fit together.
    #[error("checkpoint {}: {problem}; resume from an older one", .path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The model's files do not make a model.
    #[error("model in {}: {source}", .dir.display())]
    Model {
        /// Its directory.
        dir: PathBuf,
        /// The reason.
        source: ModelError,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}{}", .path.display(), io_advice(.source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Loss or gradient overflowed. The update was not applied.
    #[error(
        "{what} is not finite; the weights are unchanged. Lower the learning rate (now {learning_rate:e}), \
         or resume from an older checkpoint if it happens at once"
    )]
    NonFinite {
        /// What is not finite.
        what: String,
        /// The learning rate of the refused update.
        learning_rate: f64,
    },
}

impl TrainerError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// A model's file trouble is told as any other's, with the same advice.
    pub(crate) fn model(action: &'static str, dir: &Path) -> impl FnOnce(ModelError) -> Self + use<> {
        let dir = dir.to_owned();
        move |error| match error {
            ModelError::Io { path, source } => Self::Io { action, path, source },
            source => Self::Model { dir, source },
        }
    }

    pub(crate) fn option(option: &'static str, problem: impl Into<String>) -> Self {
        Self::Option { option, problem: problem.into() }
    }
}

fn io_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space (older checkpoints may go), then train the batch again"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; choose an output directory that can be written"
        }
        _ => "",
    }
}
