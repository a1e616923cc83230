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
    /// The task's family.
    pub family: String,
    /// What the agent was told.
    pub instruction: String,
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
    let mut groups: BTreeMap<GroupId, Group> = BTreeMap::new();
    let mut owner: BTreeMap<TrajectoryId, GroupId> = BTreeMap::new();
    for entry in entries(log)? {
        match entry {
            Entry::GroupOpened { group, task, family, instruction, members } => {
                owner.extend(members.iter().map(|&member| (member, group)));
                groups.insert(group, Group { task, family, instruction, members, ..Group::default() });
            }
            Entry::TrajectoryFinished(trajectory) => {
                let id = trajectory.train.trajectory;
                if let Some(group) = owner.get(&id).and_then(|group| groups.get_mut(group)) {
                    group.finished.insert(id, *trajectory);
                }
            }
            Entry::StepCommitted { groups: trained, version, .. } => {
                for id in trained {
                    groups.entry(id).and_modify(|group| group.trained_into = Some(version));
                }
            }
            Entry::RunResumed { version } => {
                let keep =
                    |group: &mut Group| group.trained_into = group.trained_into.filter(|since| *since <= version);
                groups.values_mut().for_each(keep);
            }
            _ => {}
        }
    }
    let complete = groups.into_iter().filter(|(_, group)| group.finished.len() == group.members.len());
    Ok(complete.flat_map(|(id, group)| group.export(id)).collect())
}

/// A group as the log tells it.
#[derive(Default)]
struct Group {
    task: String,
    family: String,
    instruction: String,
    members: Vec<TrajectoryId>,
    finished: BTreeMap<TrajectoryId, FinishedTrajectory>,
    trained_into: Option<Version>,
}

impl Group {
    fn export(self, id: GroupId) -> impl Iterator<Item = Exported> {
        let Self { task, family, instruction, finished, trained_into, .. } = self;
        finished.into_values().map(move |trajectory| Exported {
            group: id,
            task: task.clone(),
            family: family.clone(),
            instruction: instruction.clone(),
            trained_into,
            trajectory,
        })
    }
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
