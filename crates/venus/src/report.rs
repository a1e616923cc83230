//! `venus report`: one HTML file that shows what a run did. It needs nothing from outside, runs no script, and follows
//! the reader's light or dark theme.

mod figures;
pub(crate) mod markup;
mod page;
mod plot;
mod scale;
mod stack;
mod trajectories;

use crate::cli::say;
use crate::failure::Failure;
use crate::run::{Records, RunDir};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

pub use page::page;

/// `venus report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Directory of the run; also of one that is going on or was killed
    pub run_dir: PathBuf,
}

/// Writes the report of a run and says where it is.
///
/// # Errors
/// The directory holds no run, or the report cannot be written.
pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let path = write(&RunDir::open(&args.run_dir)?)?;
    say(&format!("report: {}\n", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the record as JSON lines and `report.html` into the run's directory, from what the run has recorded so far, and
/// says where the report is.
///
/// # Errors
/// The run's files cannot be read, or the report cannot be written.
pub fn write(dir: &RunDir) -> Result<PathBuf, Failure> {
    let records = Records::read(dir)?;
    records.write_lines(dir)?;
    let path = dir.report_file();
    dir.write_whole(&path, page(&records).as_bytes())?;
    Ok(path)
}
