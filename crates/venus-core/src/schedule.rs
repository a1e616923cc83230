//! The coordinator's scheduler: which groups start, which turns get a slot, what is handed to the trainer.
//!
//! [`Scheduler::on`] is the only way in. The shell feeds it facts ([`Event`]) and carries out what it decides
//! ([`Action`]), in order; it never asks the scheduler to do something. Same events, same actions.
//!
//! - Groups start in the order offered, through one window of `floor(B x async factor)` groups.
//! - A trajectory's turns wait in one queue: greater classes first, then by rank if the policy has one, then by
//!   seniority. A turn sent again keeps its place. Whether its slot outlasts the turn, and for whom it may be
//!   taken away, is the [`Policy`]'s to say.
//! - Under the priority policy the groups that the next batch lacks are the high class; how far any group can be
//!   overtaken, whatever the predictor says, is bounded (`docs/decisions/0006-critical-groups.md`).
//! - A trajectory that would span more weight versions than the limit begins again from its prompt.
//! - Complete groups are delivered once, B at a time, in the order they completed.
//!
//! Every step costs O(log n) in the live trajectories, plus the trajectories that a new version touches, or whose group
//! becomes critical or ceases to be.

mod config;
mod critical;
mod delivery;
mod discard;
pub mod event;
mod group;
mod invariants;
mod outlook;
mod policy;
mod preemption;
mod queue;
mod ranking;
mod slot;
mod stats;
mod trajectory;
mod turns;
mod version;

pub use config::{ConfigError, SchedulerConfig};
pub use event::{Action, DiscardReason, Event};
pub use invariants::{Invariant, Violation};
pub use policy::{GroupScore, Policy, PriorityConfig, UnknownPolicy};
pub use stats::{ClassCounts, DiscardCounts, GroupCounts, SchedulerStats, StageCounts, Totals};
pub use trajectory::Stage;

use crate::ids::{AttemptId, BatchId, GroupId, TrajectoryId, Version, WorkerId};
use crate::message::engine::Class;
use crate::units::Instant;
use critical::Order;
use delivery::Deliveries;
use group::Groups;
use preemption::Running;
use queue::TurnQueue;
use slot::Slots;
use std::collections::BTreeSet;
use trajectory::{Late, Trajectories};

/// Where a run goes on after its coordinator was restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResumePoint {
    /// The version in use.
    pub version: Version,
    /// The batch to be delivered next. Groups of a batch that was delivered and not trained are listed first
    /// in `complete`, so that the same batch is made again.
    pub next_batch: BatchId,
    /// Complete groups that were not trained, in the order they completed.
    pub complete: Vec<(GroupId, Vec<TrajectoryId>)>,
    /// Groups trained or dropped; they are not started again should they be offered.
    pub ended: Vec<GroupId>,
}

/// The decision core of the coordinator; see the [module](self).
///
/// ```
/// use venus_core::ids::{GroupId, TrajectoryId};
/// use venus_core::schedule::{Action, Event, Scheduler, SchedulerConfig};
/// use venus_core::units::Instant;
///
/// let config = SchedulerConfig { groups_per_batch: 1, group_size: 2, ..SchedulerConfig::default() };
/// let mut scheduler = Scheduler::new(config)?;
/// let mut actions = Vec::new();
/// let members = vec![TrajectoryId(0), TrajectoryId(1)];
/// scheduler.on(Instant(0), Event::GroupOffered { group: GroupId(0), members }, &mut actions);
/// assert_eq!(actions[0], Action::Start { trajectory: TrajectoryId(0), restart: 0 });
/// # Ok::<(), venus_core::schedule::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    groups: Groups,
    trajectories: Trajectories,
    queue: TurnQueue,
    slots: Slots,
    deliveries: Deliveries,
    /// Unfinished trajectories by start version.
    starts: BTreeSet<(Version, TrajectoryId)>,
    order: Order,
    running: Running,
    version: Version,
    next_attempt: AttemptId,
    draining: bool,
    restored: usize,
    totals: Totals,
}

impl Scheduler {
    /// A scheduler for a new run, at version 0.
    ///
    /// # Errors
    /// [`ConfigError`] for settings under which no batch could be made.
    pub fn new(config: SchedulerConfig) -> Result<Self, ConfigError> {
        Self::resume(config, ResumePoint::default())
    }

    /// A scheduler for a run that goes on. What was in flight is offered again by the shell.
    ///
    /// # Errors
    /// [`ConfigError`] for settings under which no batch could be made.
    pub fn resume(config: SchedulerConfig, point: ResumePoint) -> Result<Self, ConfigError> {
        config.validate()?;
        let mut groups = Groups::new(config.window());
        let mut trajectories = Trajectories::default();
        let restored = point.complete.len();
        for (group, members) in point.complete {
            members.iter().for_each(|&member| trajectories.add(member, group, Stage::Finished));
            groups.restore(group, members);
        }
        point.ended.into_iter().for_each(|group| groups.exclude(group));
        Ok(Self {
            config,
            groups,
            trajectories,
            queue: TurnQueue::default(),
            slots: Slots::default(),
            deliveries: Deliveries::starting_at(point.next_batch),
            starts: BTreeSet::new(),
            order: Order::default(),
            running: Running::default(),
            version: point.version,
            next_attempt: AttemptId::default(),
            draining: false,
            restored,
            totals: Totals::default(),
        })
    }

    /// Takes in one fact and appends what follows from it to `out`, to be carried out in order.
    ///
    /// A fact about something unknown or past changes nothing and is counted in
    /// [`Totals::events_ignored`]. All policies decide by order alone, so the time is not used.
    pub fn on(&mut self, _now: Instant, event: Event, out: &mut Vec<Action>) {
        let late = self.apply(event, out).is_err();
        self.totals.events_ignored += u64::from(late);
        self.admit(out);
        self.settle(out);
        let dispatched = self.dispatch(out);
        debug_assert_eq!(dispatched, Ok(()), "every queued turn belongs to a live trajectory");
        self.preempt(out);
        self.deliver(out);
    }

    fn apply(&mut self, event: Event, out: &mut Vec<Action>) -> Result<(), Late> {
        match event {
            Event::GroupOffered { group, members } => self.group_offered(group, members, out),
            Event::SandboxReady { trajectory } => self.sandbox_ready(trajectory),
            Event::TurnQueued { trajectory, .. } => self.turn_queued(trajectory, out),
            Event::TurnEnded { trajectory, attempt, generated, versions } => {
                self.turn_ended(trajectory, attempt, generated, versions, out)
            }
            Event::ToolEnded { trajectory } => self.tool_ended(trajectory),
            Event::TrajectoryFinished { trajectory } => self.trajectory_finished(trajectory),
            Event::TrajectoryFailed { trajectory } => self.trajectory_failed(trajectory, out),
            Event::VersionPublished { version } => self.version_published(version, out),
            Event::WorkerJoined { worker, slots } => {
                self.slots.resize(worker, slots);
                self.slots_changed();
                Ok(())
            }
            Event::WorkerLost { worker } => self.worker_lost(worker),
            Event::TrainerDemand => {
                self.deliveries.demand();
                Ok(())
            }
            Event::BatchTrained { batch } => self.batch_trained(batch),
            Event::Drain => {
                self.draining = true;
                Ok(())
            }
            Event::Prediction { trajectory, remaining, .. } => self.predicted(trajectory, remaining),
            // No policy routes by memory pressure.
            Event::WorkerReport { .. } => Ok(()),
        }
    }

    /// A group that is new is queued for the window; one that does not have K members of its own is refused
    /// at once, rather than never completed.
    fn group_offered(&mut self, group: GroupId, members: Vec<TrajectoryId>, out: &mut Vec<Action>) -> Result<(), Late> {
        if self.groups.seen(group) {
            return Err(Late);
        }
        let distinct: BTreeSet<_> = members.iter().collect();
        let fresh = members.iter().all(|&member| self.trajectories.get(member).is_err());
        if members.len() != self.config.group_size || distinct.len() != members.len() || !fresh {
            self.groups.exclude(group);
            self.totals.groups_dropped += 1;
            *self.totals.discards.of(DiscardReason::Malformed) += 1;
            out.push(Action::DropGroup { group, reason: DiscardReason::Malformed });
            return Ok(());
        }
        members.iter().for_each(|&member| self.trajectories.add(member, group, Stage::Waiting));
        self.groups.offer(group, members);
        Ok(())
    }

    /// Starts groups while the window has a place.
    fn admit(&mut self, out: &mut Vec<Action>) {
        while !self.draining
            && let Some((id, group)) = self.groups.start_next(self.version)
        {
            for &member in &group.members {
                if self.trajectories.advance(member, Stage::Starting).is_ok() {
                    out.push(Action::Start { trajectory: member, restart: 0 });
                }
            }
            self.group_started(id);
        }
    }

    /// Hands the groups that completed first to a trainer that waits, once there are B of them.
    fn deliver(&mut self, out: &mut Vec<Action>) {
        let Some(batch) = self.deliveries.wanted() else { return };
        let Some(groups) = self.groups.take_batch(self.config.groups_per_batch, batch) else { return };
        self.totals.groups_delivered += groups.len() as u64;
        self.deliveries.delivered(groups.clone());
        out.push(Action::Deliver { batch, groups });
    }

    fn batch_trained(&mut self, batch: BatchId) -> Result<(), Late> {
        for group in self.deliveries.trained(batch).ok_or(Late)? {
            self.consume_group(group);
        }
        Ok(())
    }

    fn consume_group(&mut self, group: GroupId) {
        self.order.touch(group);
        for member in self.groups.end(group) {
            self.trajectories.remove(member);
        }
        self.totals.groups_consumed += 1;
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// The version in use.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Groups that would start at once if they were offered now; 0 while the run drains.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.draining { 0 } else { self.groups.room() }
    }

    /// The group of a trajectory that is neither consumed nor dropped.
    #[must_use]
    pub fn group_of(&self, trajectory: TrajectoryId) -> Option<GroupId> {
        self.trajectories.get(trajectory).ok().map(|t| t.group)
    }

    /// The members of a group that is neither consumed nor dropped.
    #[must_use]
    pub fn members_of(&self, group: GroupId) -> Option<&[TrajectoryId]> {
        self.groups.get(group).map(|g| g.members.as_slice())
    }

    /// Whether the next batch is taken to need this group; never under a policy that does not know critical groups.
    #[must_use]
    pub fn is_critical(&self, group: GroupId) -> bool {
        self.order.ranking.is_critical(group)
    }

    /// The class of a trajectory that is neither consumed nor dropped.
    #[must_use]
    pub fn class_of(&self, trajectory: TrajectoryId) -> Option<Class> {
        self.trajectories.get(trajectory).ok().map(|t| t.class())
    }

    /// Where a trajectory is in its life, while it is neither consumed nor dropped.
    #[must_use]
    pub fn stage_of(&self, trajectory: TrajectoryId) -> Option<Stage> {
        self.trajectories.get(trajectory).ok().map(|t| t.stage())
    }

    /// The worker that has a trajectory's prefix: where its last turn went.
    #[must_use]
    pub fn worker_of(&self, trajectory: TrajectoryId) -> Option<WorkerId> {
        self.trajectories.get(trajectory).ok().and_then(|t| t.home)
    }

    /// The version from which a trajectory's span is counted, once it was dispatched.
    #[must_use]
    pub fn start_version_of(&self, trajectory: TrajectoryId) -> Option<Version> {
        self.trajectories.get(trajectory).ok().and_then(|t| t.span.start())
    }

    /// A snapshot. Costs O(workers).
    #[must_use]
    pub fn stats(&self) -> SchedulerStats {
        let (slots, free_slots) = self.slots.totals();
        SchedulerStats {
            version: self.version,
            stages: self.trajectories.stages(),
            classes: self.trajectories.classes(),
            groups: self.groups.counts(),
            critical_groups: self.order.ranking.critical(),
            queued_turns: self.queue.len(),
            preempting: self.running.stopping(),
            slots,
            free_slots,
            oldest_start: self.starts.first().map(|&(version, _)| version),
            newest_start: self.starts.last().map(|&(version, _)| version),
            totals: self.totals,
        }
    }
}
