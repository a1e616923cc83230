//! The files of a run.
//!
//! | file | what |
//! |---|---|
//! | `config.toml` | the resolved configuration; `--resume` starts from it |
//! | `log.venus` | the record: everything that happened, safe against a kill at any point (written by the plane) |
//! | `summary.json` | a [`Summary`], written at the end |
//! | `steps.jsonl`, `evals.jsonl`, `trajectories.jsonl` | the record as JSON lines, for other programs |
//! | `report.html` | the [`crate::report`] |
//!
//! All but the first two are made from the record, at the end of a run or by `venus report`, so that the files of a run
//! that was killed need no repair.

mod directory;
mod records;
mod summary;

pub use directory::RunDir;
pub use records::{Records, Told};
pub use summary::{Conditions, Summary};

use crate::failure::Failure;
use crate::report;
use std::path::PathBuf;

/// Ends a run: writes its summary, its record as JSON lines and its report, and says where the report is.
///
/// # Errors
/// The record cannot be read, or a file cannot be written.
pub fn finish(dir: &RunDir, summary: &Summary) -> Result<PathBuf, Failure> {
    dir.write_summary(summary)?;
    report::write(dir)
}
