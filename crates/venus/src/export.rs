//! `venus export`.

use crate::failure::Failure;
use clap::Subcommand;
use std::path::PathBuf;
use std::process::ExitCode;

/// `venus export`.
#[derive(Clone, Debug, Subcommand)]
pub enum ExportVerb {
    /// Agent Trajectory Interchange Format v1.8: one JSON file a trajectory, below RUN_DIR/atif
    Atif {
        /// Directory of the run
        run_dir: PathBuf,
        /// Directory to write instead
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// Exports.
///
/// # Errors
/// The run cannot be read, or the directory cannot be written.
pub fn run(verb: &ExportVerb) -> anyhow::Result<ExitCode> {
    let ExportVerb::Atif { run_dir, out: _ } = verb;
    Err(Failure::failed(format!("cannot export {}: not wired yet", run_dir.display()), "use another verb").into())
}
