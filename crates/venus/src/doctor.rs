//! `venus doctor`.

use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// `venus doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
    /// Where runs would be written
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
}

/// Checks this machine; exit code 0 if training can run on it.
///
/// # Errors
/// Standard output is closed.
pub fn run(_args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    Err(Failure::failed("`venus doctor` is not wired yet", "use another verb").into())
}
