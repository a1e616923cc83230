//! What a run left behind, read from its record.

use super::{RunDir, Summary};
use crate::failure::Failure;
use crate::tasks;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use toml::Table;
use venus_core::ids::Version;
use venus_plane::export::{self, Exported};
use venus_plane::record::{Entry, LogError, entries};
use venus_plane::report::{EvalReport, Percentiles, StepReport};

/// What a run left behind.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Ascending by step, one a step.
    pub steps: Vec<StepReport>,
    /// Ascending by version, one a version.
    pub evals: Vec<EvalReport>,
    /// Those of complete groups.
    pub trajectories: Vec<Exported>,
    /// Their tasks, by name.
    pub tasks: BTreeMap<String, Told>,
    /// Absent while the run goes on, and after a kill.
    pub summary: Option<Summary>,
    /// The text of the configuration.
    pub config: String,
}

/// What people want to know of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// What the agent was told; empty if the task is no longer there.
    pub instruction: String,
    /// Its family; the name of a Harbor task.
    pub family: String,
}

impl Records {
    /// Reads a run that has ended, goes on, or was killed. A run without a record has no steps yet.
    ///
    /// # Errors
    /// The record or the summary cannot be read.
    pub fn read(dir: &RunDir) -> Result<Self, Failure> {
        let config = fs::read_to_string(dir.config()).unwrap_or_default();
        let mut records = Self { config, summary: read_summary(&dir.summary_file())?, ..Self::default() };
        if dir.log().exists() {
            let damaged = |error: LogError| Failure::failed(error, "the other files of the run are as they were");
            records.take(entries(&dir.log()).map_err(damaged)?);
            records.trajectories = export::trajectories(&dir.log()).map_err(damaged)?;
        }
        records.find_tasks();
        Ok(records)
    }

    /// A resumed run starts again from a checkpoint: steps and measurements after it are void.
    fn take(&mut self, entries: Vec<Entry>) {
        let (mut steps, mut evals) = (BTreeMap::new(), BTreeMap::new());
        for entry in entries {
            match entry {
                Entry::StepReported(report) => drop(steps.insert(Version(report.step), *report)),
                Entry::Evaluated(report) => drop(evals.insert(report.version, report)),
                Entry::RunResumed { version } => {
                    steps.retain(|made, _| *made <= version);
                    evals.retain(|measured, _| *measured <= version);
                }
                _ => {}
            }
        }
        self.steps = steps.into_values().collect();
        self.evals = evals.into_values().collect();
    }

    fn find_tasks(&mut self) {
        let config: Table = self.config.parse().unwrap_or_default();
        let source = config.get("data").and_then(|data| data.get("source")).and_then(|source| source.as_str());
        let harbor = source.filter(|&source| source != "generated").map(Path::new);
        let names = self.trajectories.iter().map(|t| t.task.as_str());
        self.tasks = tasks::told(names, harbor);
    }

    /// The task of this name.
    #[must_use]
    pub fn task(&self, name: &str) -> Told {
        self.tasks.get(name).cloned().unwrap_or_else(|| Told { family: name.to_owned(), ..Told::default() })
    }

    /// Turns a trajectory, by the step it was trained in.
    #[must_use]
    pub fn turns(&self) -> BTreeMap<u64, Percentiles> {
        let mut turns: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for exported in &self.trajectories {
            if let Some(version) = exported.trained_into {
                turns.entry(version.0).or_default().push(exported.trajectory.turns.len() as u64);
            }
        }
        turns.into_iter().map(|(step, counts)| (step, Percentiles::of(counts))).collect()
    }

    /// Writes steps, measurements and trajectories as JSON lines, one file each, each whole or not at all.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_lines(&self, dir: &RunDir) -> Result<(), Failure> {
        dir.write_whole(&dir.path().join("steps.jsonl"), &lines(&self.steps))?;
        dir.write_whole(&dir.path().join("evals.jsonl"), &lines(&self.evals))?;
        dir.write_whole(&dir.path().join("trajectories.jsonl"), &lines(&self.trajectories))
    }
}

fn lines<T: Serialize>(values: &[T]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        // Plain data with text keys; what the record could hold, JSON can.
        out.extend(serde_json::to_vec(value).unwrap_or_default());
        out.push(b'\n');
    }
    out
}

fn read_summary(path: &Path) -> Result<Option<Summary>, Failure> {
    let Ok(bytes) = fs::read(path) else { return Ok(None) };
    let wrong = |error| {
        let next = "remove it; `venus train --resume` writes it again";
        Failure::failed(format!("cannot read {}: {error}", path.display()), next)
    };
    serde_json::from_slice(&bytes).map(Some).map_err(wrong)
}
