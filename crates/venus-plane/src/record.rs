//! The record: an append-only log from which a run that was killed at any point goes on with no group lost and none trained
//! twice.
//!
//! The log lies in the run directory as [`LOG_FILE`]. It speaks of groups and trajectories by their ids and never by counts, so no
//! position can be off by one (OpenRLHF#1322, NeMo-RL#3480). What it says about training is checked against the
//! checkpoints: weights and log are two files, and a crash may fall between them (see [`Resume`]).

mod audit;
mod log;
mod resume;
mod storage;

pub use audit::Audit;
pub use log::{Contents, Log, LogError};
pub use resume::{Checkpoint, OpenGroup, Resume};
pub use storage::{LogFile, Storage};

use crate::agent::FinishedTrajectory;
use crate::report::{EvalReport, StepReport};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use venus_core::ids::{BatchId, GroupId, TrajectoryId, Version};
use venus_core::schedule::DiscardReason;

/// Name of the log in the run directory.
pub const LOG_FILE: &str = "log.venus";

/// What makes two starts parts of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Fingerprint of the settings that must not change within a run: tasks, model, group size.
    pub config: String,
    /// Seed of the run.
    pub seed: u64,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The run began.
    RunStarted(Identity),
    /// The run goes on from the weights of this version; commits of later versions are void, their weights are gone.
    RunResumed {
        /// Version of the checkpoint.
        version: Version,
    },
    /// A prompt was taken from the stream of tasks.
    GroupOpened {
        /// Its group; the number is the place in the stream.
        group: GroupId,
        /// Name of its task.
        task: String,
        /// The task's family.
        family: String,
        /// What the agents are told.
        instruction: String,
        /// Its trajectories.
        members: Vec<TrajectoryId>,
    },
    /// A trajectory has its reward.
    TrajectoryFinished(Box<FinishedTrajectory>),
    /// All members of a group have.
    GroupComplete {
        /// Which.
        group: GroupId,
    },
    /// Groups went to the trainer.
    BatchDelivered {
        /// Names the batch.
        batch: BatchId,
        /// Its groups.
        groups: Vec<GroupId>,
    },
    /// A batch is part of the weights.
    StepCommitted {
        /// Which batch.
        batch: BatchId,
        /// Its groups.
        groups: Vec<GroupId>,
        /// The version made.
        version: Version,
        /// Its checkpoint.
        dir: PathBuf,
    },
    /// A step's figures, for reports of the whole run.
    StepReported(Box<StepReport>),
    /// An evaluation's figures, likewise.
    Evaluated(EvalReport),
    /// A group was given up.
    GroupDropped {
        /// Which.
        group: GroupId,
        /// Why.
        reason: DiscardReason,
    },
}

/// What keeps a record from being opened or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The directory.
    #[error("cannot make the run directory {path}: {source}; choose another with --out", path = path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The run in this directory is another one.
    #[error(
        "the run in {path} was started with other settings ({was}, now {now}); use the settings of that run, or start a new one in another directory",
        path = path.display()
    )]
    OtherRun {
        /// Its log.
        path: PathBuf,
        /// Its settings.
        was: String,
        /// The present ones.
        now: String,
    },
    /// The checkpoint and the log do not belong together.
    #[error("{path}: {what}", path = path.display())]
    Mismatch {
        /// The log.
        path: PathBuf,
        /// What does not fit, and what to do.
        what: String,
    },
}

/// The record of a run, open for appending.
pub struct Record {
    log: Log,
}

impl Record {
    /// Opens the record in `dir`, making it if there is none, and says where the run stands. `checkpoints` are all
    /// complete ones of the run.
    ///
    /// # Errors
    /// When the directory cannot be written, the log is damaged, or it belongs to another run.
    pub fn open(dir: &Path, identity: &Identity, checkpoints: &[Checkpoint]) -> Result<(Self, Resume), RecordError> {
        fs::create_dir_all(dir).map_err(|source| RecordError::Directory { path: dir.to_owned(), source })?;
        let path = dir.join(LOG_FILE);
        let file = LogFile::open(&path).map_err(|e| LogError::io(&path, "open", e))?;
        Self::with_storage(&path, Box::new(file), identity, checkpoints)
    }

    /// [`Record::open`] on any storage; `path` is for messages.
    ///
    /// # Errors
    /// As [`Record::open`].
    pub fn with_storage(
        path: &Path,
        storage: Box<dyn Storage>,
        identity: &Identity,
        checkpoints: &[Checkpoint],
    ) -> Result<(Self, Resume), RecordError> {
        let (log, contents) = Log::open(path, storage)?;
        let resume = Resume::rebuild(path, &contents, identity, checkpoints)?;
        let mut record = Self { log };
        if contents.records.is_empty() {
            record.append(&Entry::RunStarted(identity.clone()))?;
        }
        if resume.resumed {
            record.append(&Entry::RunResumed { version: resume.version })?;
        }
        for entry in &resume.repairs {
            record.append(entry)?;
        }
        record.sync()?;
        Ok((record, resume))
    }

    /// Adds an entry; it survives a power loss after the next [`Record::sync`].
    ///
    /// # Errors
    /// When the disk is full or fails; the record then takes no more entries.
    pub fn append(&mut self, entry: &Entry) -> Result<(), LogError> {
        let payload = serde_json::to_vec(entry).map_err(|source| LogError::Entry {
            path: self.log.path().to_owned(),
            offset: self.log.length(),
            source,
        })?;
        self.log.append(&payload)
    }

    /// Makes what was appended safe.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.log.sync()
    }

    /// Everything recorded so far.
    ///
    /// # Errors
    /// When the log cannot be read or is damaged.
    pub fn entries(&mut self) -> Result<Vec<Entry>, LogError> {
        let contents = self.log.contents()?;
        decode_all(self.log.path(), &contents)
    }

    /// Where the log is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.log.path()
    }
}

/// The entries of a log that nobody writes to.
///
/// # Errors
/// When it cannot be read or is damaged.
pub fn entries(path: &Path) -> Result<Vec<Entry>, LogError> {
    let bytes = fs::read(path).map_err(|e| LogError::io(path, "read", e))?;
    decode_all(path, &log::read(path, &bytes)?)
}

fn decode_all(path: &Path, contents: &Contents) -> Result<Vec<Entry>, LogError> {
    contents.records.iter().map(|(offset, payload)| decode(path, *offset, payload)).collect()
}

fn decode(path: &Path, offset: u64, payload: &[u8]) -> Result<Entry, LogError> {
    serde_json::from_slice(payload).map_err(|source| LogError::Entry { path: path.to_owned(), offset, source })
}
