//! Groups: K trajectories of one prompt, admitted by one window and handed over whole.

use super::stats::GroupCounts;
use crate::ids::{BatchId, GroupId, TrajectoryId, Version};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where a group is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupStage {
    /// Waits for the async window.
    Offered,
    /// Started; this many members are not finished.
    InFlight { unfinished: usize },
    /// Complete.
    Ready,
    /// Handed to the trainer.
    Delivered { batch: BatchId },
}

#[derive(Debug)]
pub(super) struct Group {
    pub members: Vec<TrajectoryId>,
    /// Place in the order in which groups started, and the version in use then; once it started.
    pub begun: Option<(u64, Version)>,
    stage: GroupStage,
}

impl Group {
    pub fn stage(&self) -> GroupStage {
        self.stage
    }
}

/// The groups that are neither consumed nor dropped, and the async window they pass through.
///
/// The window is the only throttle on starting: a place is taken when a group starts and given back when it
/// is consumed or dropped. A second one (say, a bound on the ready queue) would fight it (verl#6624).
#[derive(Debug)]
pub(super) struct Groups {
    window: usize,
    known: BTreeMap<GroupId, Group>,
    /// Consumed and dropped groups: a late second offer must not train a prompt twice.
    ended: BTreeSet<GroupId>,
    offered: VecDeque<GroupId>,
    ready: VecDeque<GroupId>,
    /// Groups started so far.
    started: u64,
    counts: GroupCounts,
}

impl Groups {
    pub fn new(window: usize) -> Self {
        Self {
            window,
            known: BTreeMap::new(),
            ended: BTreeSet::new(),
            offered: VecDeque::new(),
            ready: VecDeque::new(),
            started: 0,
            counts: GroupCounts::default(),
        }
    }

    /// Whether this group was offered before.
    pub fn seen(&self, id: GroupId) -> bool {
        self.known.contains_key(&id) || self.ended.contains(&id)
    }

    pub fn get(&self, id: GroupId) -> Option<&Group> {
        self.known.get(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.known.iter().map(|(&id, group)| (id, group))
    }

    /// Adds a group at the end of those that wait for the window.
    pub fn offer(&mut self, id: GroupId, members: Vec<TrajectoryId>) {
        self.counts.offered += 1;
        self.offered.push_back(id);
        self.known.insert(id, Group { members, begun: None, stage: GroupStage::Offered });
    }

    /// Adds a group that was completed before a restart of the coordinator. It takes a place in the window.
    pub fn restore(&mut self, id: GroupId, members: Vec<TrajectoryId>) {
        self.counts.ready += 1;
        self.ready.push_back(id);
        self.known.insert(id, Group { members, begun: None, stage: GroupStage::Ready });
    }

    /// Starts the group offered first under the version in use, if the window has a place.
    pub fn start_next(&mut self, version: Version) -> Option<(GroupId, &Group)> {
        if self.in_window() >= self.window {
            return None;
        }
        let id = self.offered.pop_front()?;
        self.counts.offered -= 1;
        self.counts.in_flight += 1;
        let group = self.known.get_mut(&id)?;
        group.stage = GroupStage::InFlight { unfinished: group.members.len() };
        group.begun = Some((self.started, version));
        self.started += 1;
        Some((id, group))
    }

    /// One more member of the group is finished; with the last one the group is ready.
    pub fn member_finished(&mut self, id: GroupId) {
        let Some(group) = self.known.get_mut(&id) else { return };
        let GroupStage::InFlight { unfinished } = &mut group.stage else { return };
        *unfinished -= 1;
        if *unfinished == 0 {
            group.stage = GroupStage::Ready;
            self.counts.in_flight -= 1;
            self.counts.ready += 1;
            self.ready.push_back(id);
        }
    }

    /// Takes the `size` groups that completed first into a batch; nothing if fewer are ready.
    pub fn take_batch(&mut self, size: usize, batch: BatchId) -> Option<Vec<GroupId>> {
        if self.ready.len() < size {
            return None;
        }
        let taken: Vec<GroupId> = self.ready.drain(..size).collect();
        for id in &taken {
            if let Some(group) = self.known.get_mut(id) {
                group.stage = GroupStage::Delivered { batch };
            }
        }
        self.counts.ready -= size;
        self.counts.delivered += size;
        Some(taken)
    }

    /// Forgets a started group that was not completed (dropped) or was delivered (consumed), which gives its
    /// place back; its members. A ready group stays: it is still to be delivered.
    pub fn end(&mut self, id: GroupId) -> Vec<TrajectoryId> {
        match self.known.get(&id).map(Group::stage) {
            Some(GroupStage::InFlight { .. }) => self.counts.in_flight -= 1,
            Some(GroupStage::Delivered { .. }) => self.counts.delivered -= 1,
            Some(GroupStage::Offered | GroupStage::Ready) | None => return Vec::new(),
        }
        self.ended.insert(id);
        self.known.remove(&id).map(|group| group.members).unwrap_or_default()
    }

    /// Remembers a group that was refused or ended before a restart of the coordinator.
    pub fn exclude(&mut self, id: GroupId) {
        self.ended.insert(id);
    }

    /// Places of the window.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Places of the window in use.
    pub fn in_window(&self) -> usize {
        self.counts.in_flight + self.counts.ready + self.counts.delivered
    }

    /// Groups that would start at once if they were offered now.
    pub fn room(&self) -> usize {
        self.window.saturating_sub(self.in_window() + self.counts.offered)
    }

    pub fn counts(&self) -> GroupCounts {
        self.counts
    }
}
