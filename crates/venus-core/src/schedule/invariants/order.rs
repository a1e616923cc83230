//! What must hold for the order of groups and for preemption.

use super::{Invariant, Scheduler, Stage, Trajectory, Violation, about, require};
use crate::ids::{GroupId, TrajectoryId};
use crate::schedule::group::Group;

impl Scheduler {
    pub(super) fn check_running(&self, id: TrajectoryId, trajectory: &Trajectory) -> Result<(), Violation> {
        let runner = trajectory.runner(id).filter(|_| self.config.policy.preemption().is_some());
        let listed = runner.is_some_and(|runner| self.running.contains(runner));
        require(
            listed == (runner.is_some() && !trajectory.preempted),
            Invariant::Preemption,
            about(id, format_args!("is {}, listed as a victim: {listed}", trajectory.stage())),
        )
    }

    pub(super) fn check_preemption(&self) -> Result<(), Violation> {
        let (mut running, mut stopping) = (0, 0);
        for (_, trajectory) in self.trajectories.iter() {
            running += usize::from(matches!(trajectory.stage(), Stage::Running { .. }) && !trajectory.preempted);
            stopping += usize::from(trajectory.preempted);
        }
        let listed = if self.config.policy.preemption().is_some() { running } else { 0 };
        require((listed, stopping) == (self.running.len(), self.running.stopping()), Invariant::Preemption, || {
            format!("{running} turns run and {stopping} are told to stop, not as listed")
        })?;
        let victim = self.victim();
        require(victim.is_none(), Invariant::Preemption, || format!("{victim:?} keeps a turn that outranks it waiting"))
    }

    pub(super) fn check_order(&self) -> Result<(), Violation> {
        let mut ordered = 0;
        for (id, group) in self.groups.iter().filter(|_| self.config.policy.looks_ahead()) {
            ordered += self.check_group_order(id, group)?;
        }
        require(ordered == self.order.ranking.len(), Invariant::Order, || "the order lists strangers".into())?;
        let ascending = self.order.ranking.iter().map(|(key, _)| key).is_sorted();
        require(ascending, Invariant::Order, || "the order is not in order".into())?;
        let (need, mark) = (self.need(), self.config.policy.knows_critical_groups());
        let keep = self.config.priority.keep(need);
        for (rank, (key, critical)) in self.order.ranking.iter().enumerate().filter(|_| mark) {
            let holds = if rank < need { critical } else { !critical || rank < keep };
            require(holds, Invariant::Order, || {
                format!("{} is critical: {critical}, at rank {rank}, and {need} groups are needed", key.group)
            })?;
        }
        Ok(())
    }

    /// Compares a group's place and its members' ranks with what they should be; the number of places it has.
    fn check_group_order(&self, id: GroupId, group: &Group) -> Result<usize, Violation> {
        let outlook = self.outlook(group);
        let key = outlook.as_ref().map(|outlook| self.key(id, outlook));
        let listed = self.order.ranking.key(id);
        require(listed == key, Invariant::Order, || format!("{id} is listed at {listed:?} and belongs at {key:?}"))?;
        let Some((outlook, key)) = outlook.zip(key) else { return Ok(0) };
        for (index, member) in outlook.members.iter().enumerate() {
            let rank = self.config.policy.rank(&outlook, index, key.score);
            let has = self.trajectories.get(member.id).map(|trajectory| trajectory.rank);
            require(has == Ok(rank), Invariant::Order, about(member.id, format_args!("has rank {has:?}, not {rank}")))?;
        }
        Ok(1)
    }

    pub(super) fn check_overtaking(&self) -> Result<(), Violation> {
        let mut passed = None;
        for (key, critical) in self.order.ranking.iter().filter(|_| self.config.policy.knows_critical_groups()) {
            if !critical && !key.young {
                passed = Some(key.group);
            }
            require(!critical || passed.is_none(), Invariant::Overtaking, || {
                format!("{} is critical before {passed:?}, which is due", key.group)
            })?;
        }
        Ok(())
    }
}
