//! How work ends: finished, thrown away and begun again, or given up with its group.

use super::event::{Action, DiscardReason};
use super::trajectory::{Late, Stage};
use super::version::{Span, Standing};
use super::{Scheduler, version};
use crate::ids::{GroupId, TrajectoryId, Version};

impl Scheduler {
    /// The trajectory is graded. One that has not had a turn since it was started cannot be: that verdict
    /// belongs to a start that was discarded.
    pub(super) fn trajectory_finished(&mut self, id: TrajectoryId) -> Result<(), Late> {
        let trajectory = self.trajectories.get(id)?;
        let group = trajectory.group;
        if trajectory.stage() == Stage::Ready && !matches!(trajectory.span, Span::Drawn { .. }) {
            return Err(Late);
        }
        self.trajectories.advance(id, Stage::Finished)?;
        self.release_slot(id);
        self.unlist_start(id);
        self.groups.member_finished(group);
        self.order.touch(group);
        Ok(())
    }

    /// One failed trajectory is begun again, and given up with its group when its restarts are used up. Its
    /// siblings are never left waiting for it (TRL#7176, TRL#5320).
    pub(super) fn trajectory_failed(&mut self, id: TrajectoryId, out: &mut Vec<Action>) -> Result<(), Late> {
        let limit = self.config.max_restarts;
        let trajectory = self.trajectories.get_mut(id)?;
        if matches!(trajectory.stage(), Stage::Waiting | Stage::Finished) {
            return Err(Late);
        }
        trajectory.failures += 1;
        if trajectory.failures <= limit {
            return self.begin_again(id, DiscardReason::Retry, out);
        }
        let group = trajectory.group;
        self.drop_group(group, id, out);
        Ok(())
    }

    /// Gives up a group because of one of its members.
    fn drop_group(&mut self, group: GroupId, failed: TrajectoryId, out: &mut Vec<Action>) {
        self.order.touch(group);
        for member in self.groups.end(group) {
            let reason = if member == failed { DiscardReason::Failed } else { DiscardReason::GroupDropped };
            self.discard(member, reason, out);
            self.trajectories.remove(member);
        }
        self.totals.groups_dropped += 1;
        out.push(Action::DropGroup { group, reason: DiscardReason::Failed });
    }

    /// Discards what a trajectory made and starts it from its prompt; its group is kept.
    pub(super) fn begin_again(
        &mut self,
        id: TrajectoryId,
        reason: DiscardReason,
        out: &mut Vec<Action>,
    ) -> Result<(), Late> {
        self.discard(id, reason, out);
        self.trajectories.advance(id, Stage::Starting)?;
        let trajectory = self.trajectories.get_mut(id)?;
        trajectory.restarts += 1;
        out.push(Action::Start { trajectory: id, restart: trajectory.restarts });
        Ok(())
    }

    /// Takes a trajectory out of queue, slot and version index, and throws away what it made.
    fn discard(&mut self, id: TrajectoryId, reason: DiscardReason, out: &mut Vec<Action>) {
        self.leave_queue(id);
        self.stop_running(id);
        self.release_slot(id);
        self.set_span(id, Span::Empty);
        if let Ok(trajectory) = self.trajectories.get_mut(id) {
            trajectory.ticket = None;
            trajectory.home = None;
            trajectory.drawn = 0;
            trajectory.predicted = None;
        }
        self.touch(id);
        *self.totals.discards.of(reason) += 1;
        out.push(Action::Discard { trajectory: id, reason });
    }

    /// A newer version is in use. Only trajectories old enough to be touched by it are looked at.
    pub(super) fn version_published(&mut self, published: Version, out: &mut Vec<Action>) -> Result<(), Late> {
        if published <= self.version {
            return Err(Late);
        }
        self.version = published;
        self.order.come_due(published, self.config.version_span_limit);
        for group in self.deliveries.published() {
            self.consume_group(group);
        }
        for id in self.started_up_to(version::oldest_fresh(published, self.config.version_span_limit)) {
            self.age(id, out)?;
        }
        Ok(())
    }

    /// Applies the new version to one trajectory. Running turns go on under the new weights (pause-keep), so one
    /// that may not draw another token is stopped at once. One that is acting may be at its end: it is stopped
    /// only if it asks for another turn.
    fn age(&mut self, id: TrajectoryId, out: &mut Vec<Action>) -> Result<(), Late> {
        let trajectory = self.trajectories.get(id)?;
        let drawing = matches!(trajectory.stage(), Stage::Queued | Stage::Running { .. });
        if drawing && self.standing(trajectory.span) == Standing::Expired {
            return self.begin_again(id, DiscardReason::StaleSpan, out);
        }
        if self.reclassify(id) {
            self.announce_class(id, out);
        }
        Ok(())
    }

    /// Unfinished trajectories that started before `fresh`, oldest first.
    fn started_up_to(&self, fresh: Version) -> Vec<TrajectoryId> {
        self.starts.range(..(fresh, TrajectoryId(0))).map(|&(_, id)| id).collect()
    }
}
