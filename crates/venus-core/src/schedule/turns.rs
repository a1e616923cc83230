//! Turns: queued, given a slot, generated, handed to a tool; and what a lost worker does to them.

use super::Scheduler;
use super::event::{Action, DiscardReason};
use super::trajectory::{Late, Stage};
use super::version::{Span, Standing};
use crate::ids::{AttemptId, TrajectoryId, Version, WorkerId};

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
        versions: Option<(Version, Version)>,
        out: &mut Vec<Action>,
    ) -> Result<(), Late> {
        let trajectory = self.trajectories.get(id)?;
        if trajectory.stage() != (Stage::Running { attempt }) {
            return Err(Late);
        }
        let span = trajectory.span.turned(versions);
        self.trajectories.advance(id, Stage::Acting)?;
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
        for id in self.slots.lose(worker).ok_or(Late)? {
            let trajectory = self.trajectories.get_mut(id)?;
            trajectory.slot = None;
            trajectory.home = None;
            let (running, span) = (matches!(trajectory.stage(), Stage::Running { .. }), trajectory.span);
            if running {
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
        self.totals.dispatches += 1;
        out.push(Action::Dispatch { trajectory: id, attempt, worker, class: trajectory.class() });
        Ok(())
    }

    /// Puts a queued trajectory into the queue, at the place it has or at a new one.
    fn enter_queue(&mut self, id: TrajectoryId) -> Result<(), Late> {
        let trajectory = self.trajectories.get_mut(id)?;
        let ticket = *trajectory.ticket.get_or_insert_with(|| self.queue.ticket());
        self.queue.insert(self.config.policy.place(trajectory.class(), ticket), id);
        Ok(())
    }

    pub(super) fn leave_queue(&mut self, id: TrajectoryId) {
        let Ok(trajectory) = self.trajectories.get(id) else { return };
        if let (Stage::Queued, Some(ticket)) = (trajectory.stage(), trajectory.ticket) {
            self.queue.remove(self.config.policy.place(trajectory.class(), ticket));
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
        let class = self.config.policy.class(self.standing(trajectory.span));
        let queued = (trajectory.stage() == Stage::Queued).then_some(trajectory.ticket).flatten();
        let Some(before) = self.trajectories.set_class(id, class) else { return false };
        if let Some(ticket) = queued
            && self.queue.remove(self.config.policy.place(before, ticket)).is_some()
        {
            self.queue.insert(self.config.policy.place(class, ticket), id);
        }
        true
    }

    /// Tells the worker that has the trajectory's prefix about its class.
    pub(super) fn announce_class(&self, id: TrajectoryId, out: &mut Vec<Action>) {
        let Ok(trajectory) = self.trajectories.get(id) else { return };
        if let Some(worker) = trajectory.home.filter(|&home| self.slots.knows(home)) {
            out.push(Action::SetClass { trajectory: id, worker, class: trajectory.class() });
        }
    }
}
