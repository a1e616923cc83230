//! Where a run stands, rebuilt from the ids in its log and the checkpoints beside it.

use super::log::Contents;
use super::{Entry, Identity, RecordError, decode};
use crate::agent::FinishedTrajectory;
use crate::report::{EvalReport, StepReport};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use venus_core::ids::{BatchId, GroupId, TrajectoryId, Version};

/// A complete checkpoint, as its own files describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its version.
    pub version: Version,
    /// The batch that made it.
    pub batch: BatchId,
    /// Groups trained into it, at least those of that batch.
    pub groups: Vec<GroupId>,
    /// Where it is.
    pub dir: PathBuf,
}

/// A group that was opened and is neither trained nor dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenGroup {
    /// Name of its task.
    pub task: String,
    /// Its trajectories.
    pub members: Vec<TrajectoryId>,
    /// Those of them that have a reward: all or, if the group is to start again, none.
    pub finished: BTreeMap<TrajectoryId, FinishedTrajectory>,
}

impl OpenGroup {
    /// Whether it can go to the trainer as it is.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.members.is_empty() && self.finished.len() == self.members.len()
    }
}

/// Where a run stands.
///
/// The weights decide what is trained. The newest checkpoint is where the run goes on; the groups trained are those committed to
/// it or to its ancestors, by the log or by the checkpoints themselves:
///
/// - A checkpoint whose commit is missing from the log (the crash fell between the two) counts, and the log is repaired.
/// - A commit whose checkpoint is gone does not count: the weights that had seen its groups no longer exist, and the groups go to
///   the trainer again.
/// - A complete group that was not trained is handed over again, as it is.
/// - An incomplete group starts again as a whole: same prompt, same ids, same seeds. What its graded members made is not kept,
///   for at most one window of groups is concerned and a half-restored group would need rules of its own.
/// - A group that was dropped stays dropped.
#[derive(Debug, Default)]
pub struct Resume {
    /// Whether there is anything to go on from.
    pub resumed: bool,
    /// Version of the weights to go on from; 0 is the initial model.
    pub version: Version,
    /// Their checkpoint; none for the initial model.
    pub checkpoint: Option<Checkpoint>,
    /// Groups opened and still to be trained.
    pub open: BTreeMap<GroupId, OpenGroup>,
    /// Those of them that are complete, in the order they became so.
    pub complete: Vec<GroupId>,
    /// Groups trained into the weights, and since which version.
    pub trained: BTreeMap<GroupId, Version>,
    /// Groups given up.
    pub dropped: BTreeSet<GroupId>,
    /// Figures of the steps that count, oldest first.
    pub steps: Vec<StepReport>,
    /// Figures of the evaluations that count, oldest first.
    pub evaluations: Vec<EvalReport>,
    /// First batch id that was never used.
    pub next_batch: BatchId,
    /// For the user: what was cut, repaired or undone.
    pub notices: Vec<String>,
    pub(super) repairs: Vec<Entry>,
}

impl Resume {
    /// Whether this place in the stream of tasks has been taken.
    #[must_use]
    pub fn consumed(&self, group: GroupId) -> bool {
        self.open.contains_key(&group) || self.trained.contains_key(&group) || self.dropped.contains(&group)
    }

    pub(super) fn rebuild(
        path: &Path,
        contents: &Contents,
        identity: &Identity,
        checkpoints: &[Checkpoint],
    ) -> Result<Self, RecordError> {
        let mut resume = Self::default();
        if contents.torn > 0 {
            let (torn, path) = (contents.torn, path.display());
            resume.notices.push(format!("{path}: {torn} bytes of an unfinished record were cut off its end"));
        }
        let mut commits = Commits::default();
        for (offset, payload) in &contents.records {
            let entry = decode(path, *offset, payload)?;
            if let Entry::RunStarted(was) = &entry {
                same_run(path, was, identity)?;
            }
            resume.replay(entry, &mut commits);
        }
        resume.resumed = contents.records.len() > 1 || !checkpoints.is_empty();
        resume.settle(commits, checkpoints);
        Ok(resume)
    }

    fn replay(&mut self, entry: Entry, commits: &mut Commits) {
        match entry {
            Entry::RunStarted(_) | Entry::GroupComplete { .. } => {}
            Entry::RunResumed { version } => {
                commits.undo_after(version);
                self.forget_figures_after(version);
                self.forget_unfinished();
            }
            Entry::GroupOpened { group, task, members, .. } => {
                self.open.insert(group, OpenGroup { task, members, finished: BTreeMap::new() });
            }
            Entry::TrajectoryFinished(finished) => {
                let id = finished.train.trajectory;
                // Members are known before they finish; the few groups in flight make a search by range unnecessary.
                let mut newest_first = self.open.iter_mut().rev();
                if let Some((&id_of_group, group)) = newest_first.find(|(_, g)| g.members.contains(&id)) {
                    group.finished.insert(id, *finished);
                    if group.is_complete() {
                        self.complete.push(id_of_group);
                    }
                }
            }
            Entry::BatchDelivered { batch, .. } => self.use_batch(batch),
            Entry::StepCommitted { batch, groups, version, .. } => {
                self.use_batch(batch);
                commits.0.insert(version, groups);
            }
            Entry::StepReported(report) => self.steps.push(*report),
            Entry::Evaluated(report) => self.evaluations.push(report),
            Entry::GroupDropped { group, .. } => {
                self.open.remove(&group);
                self.dropped.insert(group);
            }
        }
    }

    /// Decides what is trained, once the whole log is known.
    fn settle(&mut self, mut commits: Commits, checkpoints: &[Checkpoint]) {
        let newest = checkpoints.iter().max_by_key(|c| c.version).cloned();
        self.version = newest.as_ref().map_or(Version(0), |c| c.version);
        for (version, groups) in commits.0.split_off(&Version(self.version.0 + 1)) {
            self.notices.push(format!(
                "step {version} is in the log but its checkpoint is gone: its {} groups are trained again",
                groups.len()
            ));
        }
        for checkpoint in checkpoints {
            self.use_batch(checkpoint.batch);
            if !commits.0.contains_key(&checkpoint.version) {
                self.notices.push(format!(
                    "checkpoint {} of {} was not yet in the log: entered",
                    checkpoint.version, checkpoint.batch
                ));
                self.repairs.push(Entry::StepCommitted {
                    batch: checkpoint.batch,
                    groups: checkpoint.groups.clone(),
                    version: checkpoint.version,
                    dir: checkpoint.dir.clone(),
                });
            }
            let since = commits.0.entry(checkpoint.version).or_default();
            since.extend(checkpoint.groups.iter().copied());
        }
        // Oldest first, so that a checkpoint that lists its ancestors' groups too does not make them younger.
        for (version, groups) in commits.0 {
            for group in groups {
                self.trained.entry(group).or_insert(version);
                self.open.remove(&group);
            }
        }
        self.forget_unfinished();
        self.forget_figures_after(self.version);
        self.complete.retain(|group| self.open.contains_key(group));
        self.checkpoint = newest;
    }

    fn forget_figures_after(&mut self, version: Version) {
        self.steps.retain(|report| report.step <= version.0);
        self.evaluations.retain(|report| report.version <= version);
    }

    fn forget_unfinished(&mut self) {
        for group in self.open.values_mut().filter(|group| !group.is_complete()) {
            group.finished.clear();
        }
    }

    fn use_batch(&mut self, batch: BatchId) {
        self.next_batch = self.next_batch.max(BatchId(batch.0 + 1));
    }
}

/// Groups by the version they were trained into.
#[derive(Default)]
pub(super) struct Commits(pub BTreeMap<Version, Vec<GroupId>>);

impl Commits {
    pub fn undo_after(&mut self, version: Version) {
        self.0.split_off(&Version(version.0 + 1));
    }
}

fn same_run(path: &Path, was: &Identity, now: &Identity) -> Result<(), RecordError> {
    if was == now {
        return Ok(());
    }
    let show = |id: &Identity| format!("settings {}, seed {}", id.config, id.seed);
    Err(RecordError::OtherRun { path: path.to_owned(), was: show(was), now: show(now) })
}
