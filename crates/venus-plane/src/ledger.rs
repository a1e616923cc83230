//! Every group from its opening to its training: each complete group is handed to the trainer exactly once (promise 1).

use crate::agent::FinishedTrajectory;
use std::collections::{BTreeMap, BTreeSet};
use venus_core::ids::{BatchId, GroupId, TrajectoryId, Version};
use venus_core::message::trainer::{TrainBatch, TrainGroup};

/// Where a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// Some member has no reward yet.
    Open,
    /// All members are graded; nobody has taken it.
    Complete,
    /// With the trainer.
    Delivered(BatchId),
    /// Part of the weights from this version on.
    Trained(Version),
    /// Given up.
    Dropped,
}

/// A move that no group may make. It would lose a group or train one twice, so the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Not known.
    #[error("group {0} was never opened")]
    Unknown(GroupId),
    /// Known already.
    #[error("group {0} was opened twice")]
    Reopened(GroupId),
    /// The state does not allow it.
    #[error("group {group} is {state:?} and cannot become {next:?}")]
    Move {
        /// Which.
        group: GroupId,
        /// Where it is.
        state: GroupState,
        /// Where it was to go.
        next: GroupState,
    },
    /// A trajectory that belongs to no open group, or has a reward already.
    #[error("trajectory {0} was graded but is not an unfinished member of an open group")]
    Stray(TrajectoryId),
    /// Not delivered, or committed before.
    #[error("batch {0} is not with the trainer")]
    UnknownBatch(BatchId),
}

#[derive(Debug)]
struct Group {
    state: GroupState,
    members: Vec<TrajectoryId>,
    finished: BTreeMap<TrajectoryId, FinishedTrajectory>,
}

/// How many groups are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerCounts {
    /// Some member unfinished.
    pub open: usize,
    /// Complete, not delivered.
    pub complete: usize,
    /// With the trainer.
    pub delivered: usize,
    /// Trained.
    pub trained: usize,
    /// Given up.
    pub dropped: usize,
}

impl LedgerCounts {
    fn of(&mut self, state: GroupState) -> &mut usize {
        match state {
            GroupState::Open => &mut self.open,
            GroupState::Complete => &mut self.complete,
            GroupState::Delivered(_) => &mut self.delivered,
            GroupState::Trained(_) => &mut self.trained,
            GroupState::Dropped => &mut self.dropped,
        }
    }
}

/// The groups of a run.
#[derive(Debug, Default)]
pub struct Ledger {
    groups: BTreeMap<GroupId, Group>,
    owner: BTreeMap<TrajectoryId, GroupId>,
    batches: BTreeMap<BatchId, Vec<GroupId>>,
    counts: LedgerCounts,
    trained: BTreeMap<GroupId, Version>,
    dropped: BTreeSet<GroupId>,
}

impl Ledger {
    /// Adds a group with these members.
    ///
    /// # Errors
    /// When its id, or one of its members', was used before.
    pub fn open(&mut self, group: GroupId, members: Vec<TrajectoryId>) -> Result<(), LedgerError> {
        if self.state(group).is_some() {
            return Err(LedgerError::Reopened(group));
        }
        for &member in &members {
            if self.owner.insert(member, group).is_some() {
                return Err(LedgerError::Stray(member));
            }
        }
        self.groups.insert(group, Group { state: GroupState::Open, members, finished: BTreeMap::new() });
        self.counts.open += 1;
        Ok(())
    }

    /// Notes a group that an earlier part of the run has trained.
    pub fn remember_trained(&mut self, group: GroupId, version: Version) {
        if self.trained.insert(group, version).is_none() {
            self.counts.trained += 1;
        }
    }

    /// Notes a group that an earlier part of the run has given up.
    pub fn remember_dropped(&mut self, group: GroupId) {
        if self.dropped.insert(group) {
            self.counts.dropped += 1;
        }
    }

    /// Enters a graded trajectory; the group's id if that completes it.
    ///
    /// # Errors
    /// When it is no unfinished member of an open group.
    pub fn finish(&mut self, finished: FinishedTrajectory) -> Result<Option<GroupId>, LedgerError> {
        let id = finished.train.trajectory;
        let group = self.owner.get(&id).copied().ok_or(LedgerError::Stray(id))?;
        let entry = self.groups.get_mut(&group).ok_or(LedgerError::Stray(id))?;
        if entry.state != GroupState::Open || entry.finished.contains_key(&id) {
            return Err(LedgerError::Stray(id));
        }
        entry.finished.insert(id, finished);
        if entry.finished.len() < entry.members.len() {
            return Ok(None);
        }
        self.advance(group, GroupState::Complete)?;
        Ok(Some(group))
    }

    /// Hands complete groups over as one batch.
    ///
    /// # Errors
    /// When one of them is not complete or was handed over before. Nothing is handed over then.
    pub fn deliver(
        &mut self,
        batch: BatchId,
        temperature: f32,
        groups: Vec<GroupId>,
    ) -> Result<TrainBatch, LedgerError> {
        let next = GroupState::Delivered(batch);
        for &group in &groups {
            match self.state(group) {
                None => return Err(LedgerError::Unknown(group)),
                Some(GroupState::Complete) => {}
                Some(state) => return Err(LedgerError::Move { group, state, next }),
            }
        }
        let mut payload = Vec::with_capacity(groups.len());
        for &group in &groups {
            self.advance(group, next)?;
            payload.push(self.payload(group));
        }
        self.batches.insert(batch, groups);
        Ok(TrainBatch { batch, temperature, groups: payload })
    }

    /// Enters a batch as trained; what its trajectories were.
    ///
    /// # Errors
    /// When the batch is not with the trainer.
    pub fn commit(&mut self, batch: BatchId, version: Version) -> Result<Vec<CommittedGroup>, LedgerError> {
        let groups = self.batches.remove(&batch).ok_or(LedgerError::UnknownBatch(batch))?;
        let mut committed = Vec::with_capacity(groups.len());
        for group in groups {
            self.advance(group, GroupState::Trained(version))?;
            let trajectories = self.forget(group).map(|g| g.finished.into_values().collect()).unwrap_or_default();
            self.trained.insert(group, version);
            committed.push(CommittedGroup { group, trajectories });
        }
        Ok(committed)
    }

    /// Gives a group up.
    ///
    /// # Errors
    /// When it is unknown or with the trainer.
    pub fn drop_group(&mut self, group: GroupId) -> Result<(), LedgerError> {
        self.advance(group, GroupState::Dropped)?;
        self.forget(group);
        self.dropped.insert(group);
        Ok(())
    }

    /// Where a group is; `None` if it was never opened.
    #[must_use]
    pub fn state(&self, group: GroupId) -> Option<GroupState> {
        if let Some(entry) = self.groups.get(&group) {
            return Some(entry.state);
        }
        if let Some(&version) = self.trained.get(&group) {
            return Some(GroupState::Trained(version));
        }
        self.dropped.contains(&group).then_some(GroupState::Dropped)
    }

    /// The groups of a batch that is with the trainer.
    #[must_use]
    pub fn batch(&self, batch: BatchId) -> Option<&[GroupId]> {
        self.batches.get(&batch).map(Vec::as_slice)
    }

    /// The group of a trajectory that is neither trained nor dropped.
    #[must_use]
    pub fn group_of(&self, trajectory: TrajectoryId) -> Option<GroupId> {
        self.owner.get(&trajectory).copied()
    }

    /// How many groups are where.
    #[must_use]
    pub fn counts(&self) -> LedgerCounts {
        self.counts
    }

    /// The only place where a state changes.
    fn advance(&mut self, group: GroupId, next: GroupState) -> Result<(), LedgerError> {
        let state = self.state(group).ok_or(LedgerError::Unknown(group))?;
        let legal = matches!(
            (state, next),
            (GroupState::Open, GroupState::Complete | GroupState::Dropped)
                | (GroupState::Complete, GroupState::Delivered(_) | GroupState::Dropped)
                | (GroupState::Delivered(_), GroupState::Trained(_))
        );
        match self.groups.get_mut(&group) {
            Some(entry) if legal => entry.state = next,
            _ => return Err(LedgerError::Move { group, state, next }),
        }
        *self.counts.of(state) -= 1;
        *self.counts.of(next) += 1;
        Ok(())
    }

    fn payload(&self, group: GroupId) -> TrainGroup {
        let entry = &self.groups[&group];
        let trajectories = entry.members.iter().map(|member| entry.finished[member].train.clone()).collect();
        TrainGroup { group, trajectories }
    }

    fn forget(&mut self, group: GroupId) -> Option<Group> {
        let entry = self.groups.remove(&group)?;
        for member in &entry.members {
            self.owner.remove(member);
        }
        Some(entry)
    }
}

/// A group that is part of the weights now.
#[derive(Clone, Debug, PartialEq)]
pub struct CommittedGroup {
    /// Which.
    pub group: GroupId,
    /// Its trajectories, by id.
    pub trajectories: Vec<FinishedTrajectory>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::End;
    use venus_core::message::trainer::TrainTrajectory;

    fn finished(id: u64) -> FinishedTrajectory {
        let train = TrainTrajectory {
            trajectory: TrajectoryId(id),
            tokens: vec![1],
            mask: vec![1],
            logprobs: vec![0.0],
            spans: Vec::new(),
            reward: 1.0,
        };
        FinishedTrajectory {
            train,
            prompt_tokens: 0,
            end: End::Done,
            restart: 0,
            turns: Vec::new(),
            create: 0.0,
            grading: 0.0,
            total: 0.0,
        }
    }

    fn with_complete_group() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.open(GroupId(0), vec![TrajectoryId(1), TrajectoryId(0)]).unwrap();
        assert_eq!(ledger.finish(finished(0)), Ok(None));
        assert_eq!(ledger.finish(finished(1)), Ok(Some(GroupId(0))));
        ledger
    }

    #[test]
    fn a_group_is_handed_over_whole_and_in_the_order_of_its_members() {
        let mut ledger = with_complete_group();
        let batch = ledger.deliver(BatchId(0), 1.0, vec![GroupId(0)]).unwrap();
        let members: Vec<_> = batch.groups[0].trajectories.iter().map(|t| t.trajectory.0).collect();
        assert_eq!(members, [1, 0]);
        assert_eq!(ledger.commit(BatchId(0), Version(1)).unwrap()[0].trajectories.len(), 2);
        assert_eq!(ledger.counts(), LedgerCounts { trained: 1, ..LedgerCounts::default() });
    }

    #[test]
    fn what_would_train_a_group_twice_or_in_part_is_refused_and_changes_nothing() {
        let mut ledger = with_complete_group();
        ledger.open(GroupId(1), vec![TrajectoryId(2)]).unwrap();
        assert!(ledger.deliver(BatchId(0), 1.0, vec![GroupId(0), GroupId(1)]).is_err(), "one is not complete");
        assert_eq!(ledger.state(GroupId(0)), Some(GroupState::Complete));
        ledger.deliver(BatchId(0), 1.0, vec![GroupId(0)]).unwrap();
        assert!(ledger.deliver(BatchId(1), 1.0, vec![GroupId(0)]).is_err(), "it is with the trainer");
        assert!(ledger.drop_group(GroupId(0)).is_err(), "likewise");
        ledger.commit(BatchId(0), Version(1)).unwrap();
        assert_eq!(ledger.commit(BatchId(0), Version(2)), Err(LedgerError::UnknownBatch(BatchId(0))));
        assert_eq!(ledger.open(GroupId(0), Vec::new()), Err(LedgerError::Reopened(GroupId(0))));
        assert_eq!(ledger.finish(finished(0)), Err(LedgerError::Stray(TrajectoryId(0))));
    }
}
