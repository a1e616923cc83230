//! What must hold after every event. Property tests, the simulator, CI and the debug endpoint call the same check.

mod order;

use super::Scheduler;
use super::group::GroupStage;
use super::trajectory::{Stage, Trajectory};
use super::version::Standing;
use crate::ids::TrajectoryId;
use std::fmt;

/// An invariant of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    /// Exactly the queued trajectories are in the queue, each at its place.
    Queue,
    /// Who runs holds a slot; no worker has more holders than slots; no slot is free while a turn waits.
    Slots,
    /// Exactly the unfinished trajectories with a start version are in the version index.
    Starts,
    /// Classes follow from versions and critical groups: a trajectory at its boundary has the boundary class, no other
    /// has, and the high class is that of the other members of critical groups.
    Classes,
    /// Exactly the groups in flight are in the order, each where what is known of it belongs, and the first that the
    /// next batch needs are critical.
    Order,
    /// Whenever a group is critical, every due group before it is too: no prediction lets younger groups overtake one
    /// that is as old as the staleness boundary (promise 5).
    Overtaking,
    /// Exactly the running turns are listed as victims or told to stop, and no waiting turn outranks a running one
    /// unless a slot is on its way for it.
    Preemption,
    /// No trajectory spans more versions than the limit, and none that would is waiting to draw (promise 2).
    VersionSpan,
    /// A group is ready exactly when all its members are finished.
    Groups,
    /// The async window is never exceeded, and a group waits only if it is full or the run drains.
    Window,
    /// The trainer does not wait while a batch is ready.
    Delivery,
    /// If no group is ready and work exists, something is runnable, running or waited for outside (promise 5).
    Progress,
}

/// A broken invariant: a defect of the scheduler, never of its input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scheduler invariant {invariant:?} is broken: {detail}")]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// By what.
    pub detail: String,
}

fn require(holds: bool, invariant: Invariant, detail: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { invariant, detail: detail() }) }
}

fn about(id: TrajectoryId, what: impl fmt::Display) -> impl FnOnce() -> String {
    move || format!("{id} {what}")
}

impl Scheduler {
    /// Checks every [`Invariant`] by looking at everything: for tests and debugging, not for the hot path.
    ///
    /// # Errors
    /// The first [`Violation`] found.
    pub fn check(&self) -> Result<(), Violation> {
        for (id, trajectory) in self.trajectories.iter() {
            self.check_place(id, trajectory)?;
            self.check_slot(id, trajectory)?;
            self.check_versions(id, trajectory)?;
            self.check_running(id, trajectory)?;
        }
        self.check_totals()?;
        self.check_groups()?;
        self.check_order()?;
        self.check_overtaking()?;
        self.check_preemption()?;
        self.check_progress()
    }

    fn check_place(&self, id: TrajectoryId, trajectory: &Trajectory) -> Result<(), Violation> {
        let place =
            trajectory.ticket.map(|ticket| self.config.policy.place(trajectory.class(), trajectory.rank, ticket));
        let listed = place.and_then(|place| self.queue.get(place)) == Some(id);
        require(
            listed == (trajectory.stage() == Stage::Queued),
            Invariant::Queue,
            about(id, format_args!("is {}, in the queue: {listed}", trajectory.stage())),
        )
    }

    fn check_slot(&self, id: TrajectoryId, trajectory: &Trajectory) -> Result<(), Violation> {
        let stage = trajectory.stage();
        let running = matches!(stage, Stage::Running { .. });
        let between = matches!(stage, Stage::Acting | Stage::Ready);
        let allowed = match trajectory.slot {
            Some(worker) => self.slots.holds(worker, id) && (running || between && self.config.policy.keeps_slot()),
            None => !running,
        };
        require(allowed, Invariant::Slots, about(id, format_args!("is {stage} with slot {:?}", trajectory.slot)))
    }

    fn check_versions(&self, id: TrajectoryId, trajectory: &Trajectory) -> Result<(), Violation> {
        let (stage, span) = (trajectory.stage(), trajectory.span);
        let limit = self.config.version_span_limit;
        require(
            span.versions() <= u64::from(limit),
            Invariant::VersionSpan,
            about(id, format_args!("spans {} versions, the limit is {limit}", span.versions())),
        )?;
        if stage == Stage::Finished {
            return Ok(());
        }
        let standing = self.standing(span);
        let drawing = matches!(stage, Stage::Queued | Stage::Running { .. });
        require(
            !(drawing && standing == Standing::Expired),
            Invariant::VersionSpan,
            about(id, format_args!("is {stage} though {} is past its last version", self.version)),
        )?;
        let listed = span.start().is_none_or(|start| self.starts.contains(&(start, id)));
        require(listed, Invariant::Starts, about(id, "is not in the version index"))?;
        require(
            trajectory.class() == self.config.policy.class(standing, self.is_critical(trajectory.group)),
            Invariant::Classes,
            about(id, format_args!("has class {:?} and standing {standing:?}", trajectory.class())),
        )
    }

    fn check_totals(&self) -> Result<(), Violation> {
        let (mut slots, mut starts, mut queued) = (0, 0, 0);
        for (_, trajectory) in self.trajectories.iter() {
            slots += usize::from(trajectory.slot.is_some());
            starts += usize::from(trajectory.stage() != Stage::Finished && trajectory.span.start().is_some());
            queued += usize::from(trajectory.stage() == Stage::Queued);
        }
        require(slots == self.slots.held(), Invariant::Slots, || "a slot is held by nobody".into())?;
        let overcommitted = self.slots.overcommitted();
        require(overcommitted.is_none(), Invariant::Slots, || format!("{overcommitted:?} has more turns than slots"))?;
        require(self.slots.index_is_true(), Invariant::Slots, || "the index of free slots is wrong".into())?;
        require(starts == self.starts.len(), Invariant::Starts, || "the version index lists strangers".into())?;
        require(queued == self.queue.len(), Invariant::Queue, || "the queue lists strangers".into())?;
        require(queued == 0 || !self.slots.any_free(), Invariant::Slots, || {
            format!("{queued} turns wait beside a free slot")
        })
    }

    fn check_groups(&self) -> Result<(), Violation> {
        for (id, group) in self.groups.iter() {
            let finished = group
                .members
                .iter()
                .filter(|&&member| self.trajectories.get(member).is_ok_and(|t| t.stage() == Stage::Finished))
                .count();
            let waited_for = group.members.len() - finished;
            let holds = match group.stage() {
                GroupStage::Offered => finished == 0,
                GroupStage::InFlight { unfinished } => unfinished == waited_for && unfinished > 0,
                GroupStage::Ready | GroupStage::Delivered { .. } => waited_for == 0,
            };
            require(holds, Invariant::Groups, || {
                format!("{id} is {:?} with {finished} of {} members finished", group.stage(), group.members.len())
            })?;
        }
        Ok(())
    }

    fn check_progress(&self) -> Result<(), Violation> {
        let groups = self.groups.counts();
        let ready_for_trainer = groups.ready >= self.config.groups_per_batch && self.deliveries.wanted().is_some();
        require(!ready_for_trainer, Invariant::Delivery, || {
            format!("{} groups are ready and the trainer waits", groups.ready)
        })?;
        let (held, window) = (self.groups.in_window(), self.groups.window());
        require(held <= window.max(self.restored), Invariant::Window, || {
            format!("{held} groups are in a window of {window}")
        })?;
        let held_back = groups.offered > 0 && held < window && !self.draining;
        require(!held_back, Invariant::Window, || {
            format!("{} groups wait though the window has {held} of {window}", groups.offered)
        })?;
        let stages = self.trajectories.stages();
        let alive = stages.starting + stages.ready + stages.queued + stages.running + stages.acting;
        require(groups.in_flight == 0 || alive > 0, Invariant::Progress, || {
            format!("{} groups are in flight and no trajectory can move", groups.in_flight)
        })
    }
}
