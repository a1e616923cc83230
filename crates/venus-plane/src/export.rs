//! Finished trajectories as JSON lines, for programs.

use crate::agent::FinishedTrajectory;
use crate::record::{Entry, LogError, entries};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use venus_core::ids::{GroupId, TrajectoryId, Version};

/// A trajectory of a complete group, with what the rest of the log knows of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exported {
    /// Its group.
    pub group: GroupId,
    /// Name of its task.
    pub task: String,
    /// Version its group was trained into; none if it was not.
    pub trained_into: Option<Version>,
    /// Everything else: token ids, mask, logprobs, version spans, reward, turns, times.
    #[serde(flatten)]
    pub trajectory: FinishedTrajectory,
}

/// What keeps an export from being written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The export cannot be written.
    #[error("cannot write {path}: {source}; the record is untouched, export again once there is space", path = path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The trajectories of all complete groups in a log, by group and trajectory. Of a trajectory that ran again after a crash
/// the last result counts, as it does for training.
///
/// # Errors
/// When the log cannot be read.
pub fn trajectories(log: &Path) -> Result<Vec<Exported>, LogError> {
    let mut tasks = BTreeMap::new();
    let mut owner: BTreeMap<TrajectoryId, GroupId> = BTreeMap::new();
    let mut finished: BTreeMap<GroupId, BTreeMap<TrajectoryId, FinishedTrajectory>> = BTreeMap::new();
    let mut size = BTreeMap::new();
    let mut trained: BTreeMap<GroupId, Version> = BTreeMap::new();
    for entry in entries(log)? {
        match entry {
            Entry::GroupOpened { group, task, members } => {
                size.insert(group, members.len());
                tasks.insert(group, task);
                owner.extend(members.into_iter().map(|member| (member, group)));
            }
            Entry::TrajectoryFinished(trajectory) => {
                let id = trajectory.train.trajectory;
                if let Some(&group) = owner.get(&id) {
                    finished.entry(group).or_default().insert(id, *trajectory);
                }
            }
            Entry::StepCommitted { groups, version, .. } => trained.extend(groups.into_iter().map(|g| (g, version))),
            Entry::RunResumed { version } => trained.retain(|_, since| *since <= version),
            _ => {}
        }
    }
    let complete = finished.into_iter().filter(|(group, members)| size.get(group) == Some(&members.len()));
    let export = |(group, members): (GroupId, BTreeMap<_, FinishedTrajectory>)| {
        let task = tasks.get(&group).cloned().unwrap_or_default();
        let trained_into = trained.get(&group).copied();
        members.into_values().map(move |trajectory| Exported { group, task: task.clone(), trained_into, trajectory })
    };
    Ok(complete.flat_map(export).collect())
}

/// Writes one line of JSON a trajectory. The file is complete or absent.
///
/// # Errors
/// When the log cannot be read or the file not be written.
pub fn write_jsonl(log: &Path, path: &Path) -> Result<u64, ExportError> {
    let all = trajectories(log)?;
    let failed = |source| ExportError::Write { path: path.to_owned(), source };
    let partial = path.with_extension("partial");
    let write = || -> io::Result<()> {
        let mut file = BufWriter::new(std::fs::File::create(&partial)?);
        for trajectory in &all {
            serde_json::to_writer(&mut file, trajectory)?;
            file.write_all(b"\n")?;
        }
        file.flush()?;
        std::fs::rename(&partial, path)
    };
    write().map_err(|source| {
        let _ = std::fs::remove_file(&partial);
        failed(source)
    })?;
    Ok(all.len() as u64)
}
