//! What a person is told when a command cannot do its work: what is wrong, and what to do next.

use std::fmt;
use std::process::ExitCode;

/// The exit codes of every verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Something failed that the caller could not have known: 1.
    Failed,
    /// The command line, the environment or a file is wrong: 2.
    Usage,
    /// Ctrl-C: 130, as shells have it.
    Interrupted,
}

impl Exit {
    /// The number the process ends with.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Interrupted => 130,
        }
    }
}

/// An error for people. `what` names the thing that is wrong, `next` what to do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    what: String,
    next: String,
    exit: Exit,
}

impl Failure {
    /// The input is wrong: exit code 2.
    pub fn usage(what: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self { what: what.to_string(), next: next.to_string(), exit: Exit::Usage }
    }

    /// The work failed: exit code 1.
    pub fn failed(what: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self { what: what.to_string(), next: next.to_string(), exit: Exit::Failed }
    }

    /// Ctrl-C ended the work; `next` says how to go on: exit code 130.
    pub fn interrupted(what: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self { what: what.to_string(), next: next.to_string(), exit: Exit::Interrupted }
    }

    /// What to do next.
    #[must_use]
    pub fn next(&self) -> &str {
        &self.next
    }

    /// How the process ends.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.exit
    }
}

/// Prints `error` with all its causes and what to do next to standard error, and gives the exit code that goes with it.
pub fn tell(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = |e: &std::io::Error| e.kind() == std::io::ErrorKind::BrokenPipe;
    if error.downcast_ref::<std::io::Error>().is_some_and(broken_pipe) {
        return ExitCode::SUCCESS;
    }
    let failure = error.chain().find_map(|cause| cause.downcast_ref::<Failure>());
    eprintln!("error: {error:#}");
    match failure {
        Some(failure) => eprintln!(" next: {}", failure.next()),
        None => eprintln!(" next: `venus doctor` checks this machine; `venus --verbose ...` shows what led here"),
    }
    ExitCode::from(failure.map_or(Exit::Failed, Failure::exit).code())
}
