//! Tasks: what an agent is asked to do, the files it finds, and how the result is graded.
//!
//! One type, [`Task`], for every source: Harbor task directories ([`harbor`]) and generated families ([`family`]).
//! What grades a task ([`Task::tests`]) is kept apart from what the agent sees ([`Task::environment`]), and a solution is
//! never part of either, so neither can end up in the agent's image.

mod catalog;
pub mod family;
pub mod harbor;
pub mod reward;

pub use catalog::{CatalogEntry, catalog};
pub use family::Family;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use venus_core::message::sandbox::Limits;

/// Where [`Task::tests`] are placed in the sandbox, after the agent has stopped.
pub const TESTS_DIR: &str = "/tests";

/// Where a grader leaves its reward file. It is emptied before the grader starts.
pub const VERIFIER_LOGS: &str = "/logs/verifier";

/// Set for a grader that can't have [`VERIFIER_LOGS`] at its own place: where to write instead. Every grader that Venus
/// generates or ships honours it; a foreign Harbor grader may not.
pub const VERIFIER_LOGS_ENV: &str = "VERIFIER_LOGS";

/// Which half of the tasks one belongs to. No task is in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Trained on.
    #[default]
    Train,
    /// Only ever measured on.
    Heldout,
}

impl Split {
    /// The word used in names and configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Heldout => "heldout",
        }
    }
}

/// Where a task comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Generated: the task is a pure function of these and its split.
    Family {
        /// Its family.
        family: Family,
        /// Seed of the whole set.
        seed: u64,
        /// Place in the set.
        index: u64,
    },
    /// Read from a Harbor task directory.
    Harbor {
        /// The directory.
        dir: PathBuf,
    },
}

/// One task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Unique among the tasks of a run; letters, digits, `-`, `_` and `.` only.
    pub name: String,
    /// Where it comes from.
    pub source: Source,
    /// Trained on or measured on.
    pub split: Split,
    /// The prompt.
    pub instruction: String,
    /// What the agent finds.
    pub environment: Environment,
    /// The grader's files, paths relative to [`TESTS_DIR`]; `test.sh` is always among them.
    pub tests: Vec<File>,
    /// How the grader runs.
    pub verifier: Verifier,
    /// What the sandbox may use.
    pub limits: Limits,
    /// Wall time for the agent's whole trajectory.
    pub agent_timeout: Duration,
    /// How to solve it, where known.
    pub oracle: Option<Oracle>,
    /// What was read but is not honoured, for a person to see.
    pub notices: Vec<String>,
}

/// A known way to solve a task. Never placed where an agent can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Oracle {
    /// A shell script on the coordinator's disk, run in the working directory.
    Script(PathBuf),
    /// [`family::Demonstrator`] at skill 1.
    Demonstrator,
}

/// What the agent finds in its sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environment {
    /// Absolute path in the sandbox; agent commands, set-up commands and the grader start here. To be created if absent.
    pub workdir: String,
    /// Added to the sandbox's environment.
    pub env: BTreeMap<String, String>,
    /// Files to place, absolute paths.
    pub files: Vec<File>,
    /// Commands run once, in order, after the files are placed and before any agent sees the sandbox.
    pub setup: Vec<Setup>,
}

/// A command that prepares the environment, with the directory it runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// For `sh -c`.
    pub command: String,
    /// Absolute path in the sandbox.
    pub workdir: String,
}

/// How a grader runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    /// Wall time, after which grading has failed.
    pub timeout: Duration,
    /// Added to the environment of the grader alone.
    pub env: BTreeMap<String, String>,
}

/// A file to place in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// `/`-separated; absolute or relative as the holder says. Never contains `..`.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// What it holds.
    pub content: Content,
}

/// The bytes of a [`File`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Held in memory.
    Held(Vec<u8>),
    /// On the coordinator's disk, read when it is placed.
    At(PathBuf),
}

impl File {
    /// A file held in memory.
    #[must_use]
    pub fn held(path: impl Into<String>, mode: u32, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode, content: Content::Held(bytes.into()) }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// The file it stands for can't be read any more.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        match &self.content {
            Content::Held(bytes) => Ok(bytes.clone()),
            Content::At(path) => fs::read(path),
        }
    }
}

/// Writes `files` beneath `root`, whatever their paths start with, and makes the directories they need.
///
/// # Errors
/// Disk errors, and a path that would leave `root`.
pub fn place(files: &[File], root: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    for file in files {
        if file.path.split('/').any(|part| part == "..") {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{}: leaves its directory", file.path)));
        }
        let path = root.join(file.path.trim_start_matches('/'));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, file.bytes()?)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
    }
    Ok(())
}
