//! Preemption: a turn of a greater class takes the slot of a running one (paper section 3.3, layer A).
//!
//! A full set of slots must not keep a high turn waiting behind low ones (vllm#40004). The victim is told to stop; its
//! slot is free once the engine reports what it drew until then, and goes to the head of the queue. The victim's tokens
//! are kept and its turn is queued again at its old place, before turns that came later (vllm#41951).
//!
//! Who is told to stop: of the lowest class, the member of the group with most predicted work left, for that group is
//! the last to be needed. Among equals the turn sent last, which the paper leaves open: it has drawn least, as far as can
//! be told from here, so least of it has to be recomputed should its pages be lost.

use super::Scheduler;
use super::event::Action;
use super::policy::Preemption;
use super::trajectory::{Stage, Trajectory};
use crate::ids::{AttemptId, TrajectoryId};
use crate::message::engine::Class;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A turn that runs, ordered by who keeps its slot: the last is the first victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Runner {
    class: Reverse<Class>,
    rank: u64,
    attempt: AttemptId,
    trajectory: TrajectoryId,
}

/// The turns that run, for policies that preempt.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// Those that were not told to stop.
    turns: BTreeSet<Runner>,
    /// How many were.
    stopping: usize,
}

impl Running {
    pub fn insert(&mut self, runner: Runner) {
        self.turns.insert(runner);
    }

    /// Whether it was listed.
    pub fn remove(&mut self, runner: Runner) -> bool {
        self.turns.remove(&runner)
    }

    pub fn contains(&self, runner: Runner) -> bool {
        self.turns.contains(&runner)
    }

    pub fn len(&self) -> usize {
        self.turns.len()
    }

    /// Turns that were told to stop and have not yet: as many slots are about to be free.
    pub fn stopping(&self) -> usize {
        self.stopping
    }
}

impl Trajectory {
    /// How its running turn is listed.
    pub(super) fn runner(&self, id: TrajectoryId) -> Option<Runner> {
        let Stage::Running { attempt } = self.stage() else { return None };
        Some(Runner { class: Reverse(self.class()), rank: self.rank, attempt, trajectory: id })
    }
}

impl Scheduler {
    /// A turn was sent.
    pub(super) fn start_running(&mut self, id: TrajectoryId) {
        if self.config.policy.preemption().is_some()
            && let Some(runner) = self.trajectories.get(id).ok().and_then(|trajectory| trajectory.runner(id))
        {
            self.running.insert(runner);
        }
    }

    /// A turn is about to be no longer running, for whatever reason.
    pub(super) fn stop_running(&mut self, id: TrajectoryId) {
        let Ok(trajectory) = self.trajectories.get_mut(id) else { return };
        let Some(runner) = trajectory.runner(id) else { return };
        if std::mem::take(&mut trajectory.preempted) {
            self.running.stopping -= 1;
        } else {
            self.running.remove(runner);
        }
    }

    /// Stops running turns for waiting ones that outrank them. Each turn on its way out makes room for one that waits,
    /// so never more are stopped than wait.
    pub(super) fn preempt(&mut self, out: &mut Vec<Action>) {
        while let Some(Runner { trajectory: id, attempt, .. }) = self.victim() {
            let Ok(trajectory) = self.trajectories.get_mut(id) else { return };
            let Some((runner, worker)) = trajectory.runner(id).zip(trajectory.slot) else { return };
            trajectory.preempted = true;
            self.running.remove(runner);
            self.running.stopping += 1;
            self.totals.preemptions += 1;
            out.push(Action::Preempt { trajectory: id, attempt, worker });
        }
    }

    /// The turn to stop next: the last of those that run, if the first waiting turn for which no slot is on its way
    /// outranks it.
    pub(super) fn victim(&self) -> Option<Runner> {
        let rule = self.config.policy.preemption()?;
        // Nothing stops a trajectory at its staleness boundary: it has priority until it completes (section 3.2).
        let last = self.running.turns.last().copied().filter(|last| last.class.0 < Class::Boundary)?;
        let outranked = match rule {
            Preemption::ByClass => self.queue.class_after(self.running.stopping)? > last.class.0,
            Preemption::ByRank => {
                let place = self.queue.place_after(self.running.stopping)?;
                (place.class, place.rank) < (last.class, last.rank)
            }
        };
        outranked.then_some(last)
    }
}
