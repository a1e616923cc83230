//! What node, launcher and inits say to each other. One datagram a message; both ends are the same executable.

use crate::level::{Level, MissingLimit};
use crate::template::Template;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use venus_core::message::sandbox::{Limits, SandboxErrorKind};

/// Names one creation. Unlike a `SandboxId` it is never used twice by a node.
pub(crate) type Serial = u64;
/// Names one request to an init.
pub(crate) type Call = u64;

/// First message to a launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Directory for this node and its dead predecessors.
    pub state_dir: PathBuf,
    /// Use this level or fail.
    pub level: Option<Level>,
    /// Bytes a sandbox may write to its root and `/tmp`.
    pub disk: u64,
}

/// Node to launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LauncherRequest {
    Start(Start),
    Register(Template),
    /// Carries the init's end of its socket.
    Create {
        serial: Serial,
        template: String,
        limits: Limits,
    },
    Kill(Serial),
}

/// Launcher to node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LauncherEvent {
    Started(Started),
    /// The launcher cannot work here.
    Unusable(String),
    /// The sandbox's processes, cgroups and files are gone.
    Gone(Serial),
}

/// What the launcher found and chose.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Started {
    pub level: Level,
    pub reason: String,
    pub missing: Vec<MissingLimit>,
    /// Where the kernel counts OOM kills: `dir/SERIAL/file`.
    pub oom_counter: Option<(PathBuf, String)>,
    /// This node's directory.
    pub instance: PathBuf,
}

/// Node to init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InitRequest {
    /// Carries the output pipe and, if `stdin`, standard input.
    Exec { call: Call, argv: Vec<String>, env: BTreeMap<String, String>, cwd: Option<String>, stdin: bool },
    /// Kill a command and all it started.
    KillExec { call: Call, target: Call },
    /// Kill everything but the init.
    KillAll { call: Call },
    /// Open a regular file to read; answered by `File`.
    Read { call: Call, path: String },
    /// Make a regular file and its parents; answered by `File`.
    Write { call: Call, path: String, mode: u32 },
    /// Remove a file or a tree; fine if it is not there.
    Remove { call: Call, path: String },
}

/// Init to node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InitReply {
    Ready,
    /// The sandbox could not be made.
    Failed {
        kind: SandboxErrorKind,
        message: String,
    },
    /// A command's first process ended, with this wait status.
    Ended {
        call: Call,
        status: i32,
    },
    /// Carries the file.
    File {
        call: Call,
    },
    Done {
        call: Call,
    },
    Refused {
        call: Call,
        kind: SandboxErrorKind,
        message: String,
    },
}

impl InitReply {
    /// The request this answers, if it answers one.
    pub(crate) fn call(&self) -> Option<Call> {
        match self {
            Self::Ready | Self::Failed { .. } => None,
            Self::Ended { call, .. } | Self::File { call } | Self::Done { call } | Self::Refused { call, .. } => {
                Some(*call)
            }
        }
    }
}
