//! `venus tasks`.

use crate::failure::Failure;
use clap::Subcommand;
use std::path::PathBuf;
use std::process::ExitCode;

/// `venus tasks`.
#[derive(Clone, Debug, Subcommand)]
pub enum TasksVerb {
    /// The generated families and the tasks of a directory
    List {
        /// Directory of Harbor tasks
        #[arg(long, value_name = "DIR")]
        tasks: Option<PathBuf>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// One task: instruction, files, grader
    Show {
        /// Its name
        name: String,
        /// Directory of Harbor tasks
        #[arg(long, value_name = "DIR")]
        tasks: Option<PathBuf>,
    },
}

/// Shows tasks.
///
/// # Errors
/// There is no such task, or its directory is malformed.
pub fn run(_verb: &TasksVerb) -> anyhow::Result<ExitCode> {
    Err(Failure::failed("`venus tasks` is not wired yet", "use another verb").into())
}
