//! The files of a run: what is written while it goes, and read back for the report.
//!
//! | file | what |
//! |---|---|
//! | `config.toml` | the resolved configuration; `--resume` starts from it |
//! | `steps.jsonl` | one [`StepLine`] a trainer step |
//! | `evals.jsonl` | one [`EvalLine`] a measurement on held-out tasks |
//! | `trajectories.jsonl` | one line a trajectory, token by token (written by the plane), read here as [`Transcript`] |
//! | `summary.json` | a [`Summary`], written at the end |
//! | `report.html` | the [`crate::report`] |
//!
//! Readers skip unknown fields and a torn last line, and keep the later of two lines of one step, so that the files
//! of a run that was killed and resumed need no repair.

mod directory;
mod line;
mod summary;
mod transcript;

pub use directory::{Appender, Records, RunDir};
pub use line::{ClassCounts, EvalLine, FamilyScore, Percentiles, StepLine, TimeSplit};
pub use summary::{Summary, Versions};
pub use transcript::{Transcript, TranscriptTurn};
