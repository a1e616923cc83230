//! `venus train`.

use crate::cli::TrainArgs;
use crate::config::Resolved;
use crate::failure::Failure;
use std::process::ExitCode;

/// Runs training as configured.
///
/// # Errors
/// Whatever keeps the run from ending well, with what to do next.
pub fn run(_resolved: Resolved, _args: &TrainArgs) -> anyhow::Result<ExitCode> {
    Err(Failure::failed("`venus train` is not wired yet", "`venus train --print-config` works").into())
}
