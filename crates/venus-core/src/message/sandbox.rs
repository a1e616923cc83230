//! Coordinator to env node and back: a sandbox is a lease on a private root file system and its processes.

use crate::ids::SandboxId;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a sandbox may use. `None` means no limit of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Resident memory of all processes together.
    pub memory: Option<Bytes>,
    /// Processes and threads at once.
    pub pids: Option<u32>,
    /// CPU time per wall time, in thousandths of a core.
    pub cpu_millis: Option<u32>,
    /// Size of one file written.
    pub file_size: Option<Bytes>,
}

/// A sandbox wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreateSandbox {
    /// Caller-chosen, so that a repeated create is recognised.
    pub sandbox: SandboxId,
    /// Name of a template known to the node.
    pub template: String,
    /// What it may use.
    pub limits: Limits,
    /// The node removes the sandbox this long after creation, whatever happens to its owner. Milliseconds.
    pub deadline_ms: u64,
}

/// One command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exec {
    /// Program and arguments; the program is looked up in the sandbox's PATH.
    pub argv: Vec<String>,
    /// Added to the template's environment.
    pub env: BTreeMap<String, String>,
    /// Working directory; the template's if absent.
    pub cwd: Option<String>,
    /// Written to standard input, then closed.
    pub stdin: Vec<u8>,
    /// The command and all it started are killed after this. Milliseconds.
    pub timeout_ms: u64,
    /// Bytes of output kept: the first half and the last half of this when there is more.
    pub max_output: u32,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum ExecStatus {
    /// It exited.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// A signal ended it.
    Signaled {
        /// The signal's number.
        signal: i32,
    },
    /// It ran past its time-out and was killed; the output so far is kept.
    TimedOut,
    /// The kernel killed it because the sandbox reached its memory limit.
    OutOfMemory,
}

/// A finished command. Standard output and error are one stream, in the order written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecResult {
    /// How it ended.
    pub status: ExecStatus,
    /// Output, shortened to `max_output` (see [`Exec::max_output`]).
    pub output: Vec<u8>,
    /// Bytes left out of the middle of `output`; `output[..max_output/2]` is the head.
    pub omitted: u64,
    /// Wall time from start to end, nanoseconds.
    pub nanos: u64,
}

/// What a node refuses or fails with. `kind` says what the caller should do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct SandboxError {
    /// What to do.
    pub kind: SandboxErrorKind,
    /// What is wrong.
    pub message: String,
}

/// What the caller of a failed sandbox operation should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxErrorKind {
    /// The request is wrong: change it.
    Invalid,
    /// The sandbox is gone: start over in a new one.
    Gone,
    /// The node is full: wait or try another.
    Busy,
    /// This host cannot do it: see `venus doctor`.
    Unsupported,
    /// The node failed: report it.
    Internal,
}
