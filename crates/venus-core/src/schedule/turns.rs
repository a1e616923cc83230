//! Turns: queued, given a slot, generated, handed to a tool; and what a lost worker does to them.

use super::Scheduler;
use super::event::{Action, DiscardReason};
use super::queue::Place;
use super::trajectory::{Late, Stage, Trajectory};
use super::version::{Span, Standing};
use crate::ids::{AttemptId, TrajectoryId, Version, WorkerId};
use crate::message::engine::Class;
use crate::units::Tokens;

impl Scheduler {
    pub(super) fn sandbox_ready(&mut self, id: TrajectoryId) -> Result<(), Late> {
        match self.trajectories.get(id)?.stage() {
            Stage::Starting => self.trajectories.advance(id, Stage::Ready).map(drop),
            _ => Err(Late),
        }
    }

    pub(super) fn tool_ended(&mut self, id: TrajectoryId) -> Result<(), Late> {
        match self.trajectories.get(id)?.stage() {
            Stage::Acting => self.trajectories.advance(id, Stage::Ready)?,
            _ => return Err(Late),
        };
        // The next turn is a new one. Where slots outlast turns, so does seniority.
        if !self.config.policy.keeps_slot() {
            self.trajectories.get_mut(id)?.ticket = None;
        }
        Ok(())
    }

    pub(super) fn turn_queued(&mut self, id: TrajectoryId, out: &mut Vec<Action>) -> Result<(), Late> {
        let trajectory = self.trajectories.get(id)?;
        if !matches!(trajectory.stage(), Stage::Ready | Stage::Acting) {
            return Err(Late);
        }
        if self.standing(trajectory.span) == Standing::Expired {
            return self.begin_again(id, DiscardReason::StaleSpan, out);
        }
        let cut_short = self.trajectories.advance(id, Stage::Queued)? == Stage::Acting;
        self.totals.requeues += u64::from(cut_short);
        match self.trajectories.get(id)?.slot {
            Some(worker) => self.send(id, worker, out),
            None => self.enter_queue(id),
        }
    }

    pub(super) fn turn_ended(
        &mut self,
        id: TrajectoryId,
        attempt: AttemptId,
        generated: Tokens,
        versions: Option<(Version, Version)>,
        out: &mut Vec<Action>,
    ) -> Result<(), Late> {
        let trajectory = self.trajectories.get(id)?;
        if trajectory.stage() != (Stage::Running { attempt }) {
            return Err(Late);
        }
        let span = trajectory.span.turned(versions);
        self.stop_running(id);
        self.trajectories.advance(id, Stage::Acting)?;
        self.trajectories.get_mut(id)?.drew(generated.0);
        self.touch(id);
        if !self.config.policy.keeps_slot() {
            self.release_slot(id);
        }
        // An engine may run a version before it is published here; its word is what counts.
        if span.versions() > u64::from(self.config.version_span_limit) {
            return self.begin_again(id, DiscardReason::StaleSpan, out);
        }
        if self.set_span(id, span) {
            self.announce_class(id, out);
        }
        Ok(())
    }

    /// The worker's turns go back to the places they had; held slots are gone with it.
    pub(super) fn worker_lost(&mut self, worker: WorkerId) -> Result<(), Late> {
        let holders = self.slots.lose(worker).ok_or(Late)?;
        self.slots_changed();
        for id in holders {
            let trajectory = self.trajectories.get_mut(id)?;
            trajectory.slot = None;
            trajectory.home = None;
            let (running, span) = (matches!(trajectory.stage(), Stage::Running { .. }), trajectory.span);
            if running {
                self.stop_running(id);
                // What the turn drew is lost, so it counts for nothing.
                self.set_span(id, span.turned(None));
                self.trajectories.advance(id, Stage::Queued)?;
                self.totals.requeues += 1;
                self.enter_queue(id)?;
            }
        }
        Ok(())
    }

    /// Gives free slots to waiting turns, the first in the queue first, until either runs out.
    pub(super) fn dispatch(&mut self, out: &mut Vec<Action>) -> Result<(), Late> {
        while let Some((place, id)) = self.queue.first() {
            let home = self.trajectories.get(id)?.home;
            let Some(worker) = self.slots.choose(home) else { break };
            self.queue.remove(place);
            self.slots.take(worker, id);
            self.trajectories.get_mut(id)?.slot = Some(worker);
            self.totals.moves += u64::from(home.is_some_and(|home| home != worker));
            self.send(id, worker, out)?;
        }
        Ok(())
    }

    /// Sends the queued turn of a trajectory to the worker on which it holds a slot.
    fn send(&mut self, id: TrajectoryId, worker: WorkerId, out: &mut Vec<Action>) -> Result<(), Late> {
        let attempt = self.next_attempt;
        self.next_attempt.0 += 1;
        self.trajectories.advance(id, Stage::Running { attempt })?;
        let span = self.trajectories.get(id)?.span;
        self.set_span(id, span.dispatched(self.version));
        let trajectory = self.trajectories.get_mut(id)?;
        trajectory.home = Some(worker);
        let class = trajectory.class();
        self.start_running(id);
        self.totals.dispatches += 1;
        out.push(Action::Dispatch { trajectory: id, attempt, worker, class });
        Ok(())
    }

    /// Puts a queued trajectory into the queue, at the place it has or at a new one.
    fn enter_queue(&mut self, id: TrajectoryId) -> Result<(), Late> {
        let trajectory = self.trajectories.get_mut(id)?;
        let ticket = *trajectory.ticket.get_or_insert_with(|| self.queue.ticket());
        self.queue.insert(self.config.policy.place(trajectory.class(), trajectory.rank, ticket), id);
        Ok(())
    }

    pub(super) fn leave_queue(&mut self, id: TrajectoryId) {
        let Ok(trajectory) = self.trajectories.get(id) else { return };
        if let Some(place) = self.place_of(trajectory) {
            self.queue.remove(place);
        }
    }

    pub(super) fn release_slot(&mut self, id: TrajectoryId) {
        let Ok(trajectory) = self.trajectories.get_mut(id) else { return };
        if let Some(worker) = trajectory.slot.take() {
            self.slots.release(worker, id);
        }
    }

    pub(super) fn standing(&self, span: Span) -> Standing {
        Standing::of(span, self.version, self.config.version_span_limit)
    }

    /// Sets what drew a trajectory, and the class that follows from it. Whether the class changed.
    pub(super) fn set_span(&mut self, id: TrajectoryId, span: Span) -> bool {
        self.unlist_start(id);
        let Ok(trajectory) = self.trajectories.get_mut(id) else { return false };
        trajectory.span = span;
        if let Some(start) = span.start() {
            self.starts.insert((start, id));
        }
        self.reclassify(id)
    }

    pub(super) fn unlist_start(&mut self, id: TrajectoryId) {
        let Ok(trajectory) = self.trajectories.get(id) else { return };
        if let Some(start) = trajectory.span.start() {
            self.starts.remove(&(start, id));
        }
    }

    /// Recomputes a trajectory's class and moves it in the queue accordingly. Whether it changed.
    pub(super) fn reclassify(&mut self, id: TrajectoryId) -> bool {
        let Ok(trajectory) = self.trajectories.get(id) else { return false };
        let critical = self.order.ranking.is_critical(trajectory.group);
        let class = self.config.policy.class(self.standing(trajectory.span), critical);
        let before = trajectory.class();
        let changed = self.reposition(id, class, trajectory.rank);
        if changed && (before == Class::Boundary || class == Class::Boundary) {
            self.touch(id);
        }
        changed
    }

    /// Sets class and rank of a trajectory, wherever it is listed by them. Whether the class changed.
    pub(super) fn reposition(&mut self, id: TrajectoryId, class: Class, rank: u64) -> bool {
        let Ok(trajectory) = self.trajectories.get(id) else { return false };
        if (trajectory.class(), trajectory.rank) == (class, rank) {
            return false;
        }
        let queued = self.place_of(trajectory).is_some_and(|place| self.queue.remove(place).is_some());
        let running = trajectory.runner(id).is_some_and(|runner| self.running.remove(runner));
        let changed = self.trajectories.set_class(id, class).is_some();
        let Ok(trajectory) = self.trajectories.get_mut(id) else { return changed };
        trajectory.rank = rank;
        let (runner, ticket) = (trajectory.runner(id).filter(|_| running), trajectory.ticket.filter(|_| queued));
        if let Some(runner) = runner {
            self.running.insert(runner);
        }
        if let Some(ticket) = ticket {
            self.queue.insert(self.config.policy.place(class, rank, ticket), id);
        }
        changed
    }

    /// Where a queued trajectory stands in the queue.
    pub(super) fn place_of(&self, trajectory: &Trajectory) -> Option<Place> {
        let ticket = trajectory.ticket.filter(|_| trajectory.stage() == Stage::Queued)?;
        Some(self.config.policy.place(trajectory.class(), trajectory.rank, ticket))
    }

    /// Tells the worker that has the trajectory's prefix about its class.
    pub(super) fn announce_class(&self, id: TrajectoryId, out: &mut Vec<Action>) {
        let Ok(trajectory) = self.trajectories.get(id) else { return };
        if let Some(worker) = trajectory.home.filter(|&home| self.slots.knows(home)) {
            out.push(Action::SetClass { trajectory: id, worker, class: trajectory.class() });
        }
    }
}
