//! `venus bench`.

use crate::failure::Failure;
use clap::Args;
use std::process::ExitCode;

/// `venus bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_name = "WHAT")]
    pub what: Option<String>,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}

/// Measures.
///
/// # Errors
/// Whatever keeps it from measuring, with what to do next.
pub fn run(_args: &BenchArgs) -> anyhow::Result<ExitCode> {
    Err(Failure::failed("`venus bench` is not wired yet", "use another verb").into())
}
