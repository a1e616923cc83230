//! Critical groups: those that the next batch still lacks (paper section 3.2).
//!
//! Facts only mark a group as touched. Once an event is taken in, each touched group is judged anew, once, from the
//! trajectories themselves; then the first groups in order become the high class. Members change class, and workers
//! are told, only where that changed something: a policy pushed on every prediction would be all churn (section 3.2).
//! Costs O(K log n) for each touched group.

use super::Scheduler;
use super::event::Action;
use super::group::{Group, GroupStage};
use super::outlook::{Outlook, Prospect};
use super::policy;
use super::ranking::{GroupKey, Ranking};
use super::trajectory::{Late, Stage, Trajectory};
use crate::ids::{GroupId, TrajectoryId, Version};
use crate::message::engine::Class;
use crate::units::Tokens;
use std::collections::{BTreeSet, VecDeque};

/// The order of groups, and what is still to be looked at for it.
#[derive(Debug, Default)]
pub(super) struct Order {
    pub ranking: Ranking,
    /// Slots for each group of a batch; see [`policy::lanes`].
    lanes: u64,
    touched: BTreeSet<GroupId>,
    /// Groups younger than the staleness boundary when last looked at, in the order they started.
    young: VecDeque<(Version, GroupId)>,
}

impl Order {
    /// Something about this group changed.
    pub fn touch(&mut self, group: GroupId) {
        self.touched.insert(group);
    }

    /// A group started under this version.
    fn begin(&mut self, group: GroupId, version: Version) {
        self.touch(group);
        self.young.push_back((version, group));
    }

    /// Touches the groups that are as old as the staleness boundary under a new version.
    pub fn come_due(&mut self, published: Version, limit: u32) {
        while let Some(&(version, group)) = self.young.front()
            && is_due(version, published, limit)
        {
            self.young.pop_front();
            self.touch(group);
        }
    }
}

/// Whether a group that started under `begun` is as old as the staleness boundary. Its members may be younger, or not
/// have had a slot yet: a trajectory without a token never becomes stale, so only the age of its group can say that it
/// has waited long enough.
fn is_due(begun: Version, published: Version, limit: u32) -> bool {
    published.0.saturating_sub(begun.0) + 1 >= u64::from(limit)
}

impl Scheduler {
    /// The predictor spoke. The spread is not used: the order of groups is all that counts (section 3.2).
    pub(super) fn predicted(&mut self, id: TrajectoryId, remaining: Tokens) -> Result<(), Late> {
        if !self.config.policy.looks_ahead() {
            return Ok(());
        }
        let trajectory = self.trajectories.get_mut(id)?;
        if trajectory.stage() == Stage::Finished {
            return Err(Late);
        }
        trajectory.predicted = Some(remaining.0);
        self.touch(id);
        Ok(())
    }

    /// Something about the trajectory changed that its group may be judged by.
    pub(super) fn touch(&mut self, id: TrajectoryId) {
        if self.config.policy.looks_ahead()
            && let Ok(trajectory) = self.trajectories.get(id)
        {
            self.order.touch(trajectory.group);
        }
    }

    pub(super) fn group_started(&mut self, group: GroupId) {
        if self.config.policy.looks_ahead() {
            self.order.begin(group, self.version);
        }
    }

    /// The number of slots changed. Scores are made anew only if a group of a batch can count on another number of
    /// them: that costs O(n log n), when workers come and go.
    pub(super) fn slots_changed(&mut self) {
        let (slots, _) = self.slots.totals();
        let lanes = policy::lanes(slots, self.config.groups_per_batch, self.config.group_size);
        if self.config.policy.looks_ahead() && std::mem::replace(&mut self.order.lanes, lanes) != lanes {
            let all: Vec<GroupId> = self.order.ranking.iter().map(|(key, _)| key.group).collect();
            self.order.touched.extend(all);
        }
    }

    /// Groups that the first batch which is not complete still lacks. A batch that is about to be delivered is
    /// complete, and so is one that the trainer has not asked for yet: finishing one more group for that batch
    /// unblocks nobody, so the need of the batch after it counts.
    pub(super) fn need(&self) -> usize {
        let size = self.config.groups_per_batch;
        size - self.groups.counts().ready % size
    }

    /// Judges the touched groups and makes classes follow.
    pub(super) fn settle(&mut self, out: &mut Vec<Action>) {
        if !self.config.policy.looks_ahead() {
            return self.order.touched.clear();
        }
        while let Some(group) = self.order.touched.pop_first() {
            self.judge(group);
        }
        if !self.config.policy.knows_critical_groups() {
            return;
        }
        let need = self.need();
        for group in self.order.ranking.settle(need, self.config.priority.keep(need)) {
            self.totals.critical_changes += 1;
            for member in self.groups.get(group).map(|group| group.members.clone()).unwrap_or_default() {
                if self.unfinished(member).is_some() && self.reclassify(member) {
                    self.announce_class(member, out);
                }
            }
        }
    }

    /// Gives a group the place it now deserves, and its members their ranks.
    fn judge(&mut self, id: GroupId) {
        let Some(outlook) = self.groups.get(id).and_then(|group| self.outlook(group)) else {
            return self.order.ranking.remove(id);
        };
        let key = self.key(id, &outlook);
        self.order.ranking.set(key);
        for (index, member) in outlook.members.iter().enumerate() {
            let rank = self.config.policy.rank(&outlook, index, key.score);
            if let Ok(trajectory) = self.trajectories.get(member.id) {
                self.reposition(member.id, trajectory.class(), rank);
            }
        }
    }

    /// Where a group belongs in the order.
    ///
    /// Due groups go by the order in which they started, not by least remaining work: that no prediction can set them
    /// back is what bounds overtaking.
    pub(super) fn key(&self, group: GroupId, outlook: &Outlook) -> GroupKey {
        let score = self.config.policy.group_score(&self.config.priority, outlook, self.order.lanes.max(1));
        let score = if outlook.due { 0 } else { score };
        GroupKey { young: !outlook.due, score, order: outlook.order, group }
    }

    /// The future of a group that is in flight.
    pub(super) fn outlook(&self, group: &Group) -> Option<Outlook> {
        let (order, begun) = group.begun.filter(|_| matches!(group.stage(), GroupStage::InFlight { .. }))?;
        let mut outlook = Outlook {
            due: is_due(begun, self.version, self.config.version_span_limit),
            order,
            group_size: group.members.len(),
            ..Outlook::default()
        };
        for (index, &id) in group.members.iter().enumerate() {
            let Ok(trajectory) = self.trajectories.get(id) else { continue };
            if trajectory.stage() == Stage::Finished {
                outlook.longest_finished = outlook.longest_finished.max(Some(trajectory.drawn));
                continue;
            }
            outlook.due |= trajectory.class() == Class::Boundary;
            let remaining = trajectory.predicted.unwrap_or(self.config.priority.default_remaining);
            outlook.members.push(Prospect { id, leads: index == 0, drawn: trajectory.drawn, remaining });
        }
        Some(outlook)
    }

    fn unfinished(&self, id: TrajectoryId) -> Option<&Trajectory> {
        self.trajectories.get(id).ok().filter(|trajectory| trajectory.stage() != Stage::Finished)
    }
}
