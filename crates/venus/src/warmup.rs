//! `venus warmup`.

use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// `venus warmup`.
#[derive(Clone, Debug, Args)]
pub struct WarmupArgs {
    /// Directory for the model
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Seed of everything that is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Makes the warm-start model.
///
/// # Errors
/// Whatever keeps it from being made, with what to do next.
pub fn run(_args: &WarmupArgs) -> anyhow::Result<ExitCode> {
    Err(Failure::failed("`venus warmup` is not wired yet", "use another verb").into())
}
