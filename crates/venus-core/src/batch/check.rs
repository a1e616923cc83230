//! The invariants of the batch, checked by looking at everything. For tests, the simulator and debugging.

use super::{Batch, Rank};
use crate::residency::{Holding, Violation, ensure};

impl Batch {
    /// Promise 3 (see [`Residency::check`](crate::residency::Residency::check)), and: every turn either waits, runs or is
    /// paused, no more run than may, each has pages for what it computed, claims have living owners; every trajectory
    /// that entered has its reference and its count, and exactly the turns of demoted ones are paused.
    pub fn check(&self) -> Result<(), Violation> {
        let turns = || self.turns.iter().flatten();
        let holding = turns().filter_map(|turn| {
            let held = turn.held.as_ref()?;
            let (shared, private) = turn.table.split_at(held.shared);
            Some(Holding { lock: &held.lock, shared, private })
        });
        self.residency.check(holding)?;
        let (running, waiting) = (self.running.len(), self.waiting());
        let held = turns().filter(|turn| turn.held.is_some()).count();
        ensure!(running == held, "exactly the running turns hold pages", "{running} run, {held} hold");
        ensure!(running + waiting == turns().count(), "every turn waits, runs or is paused", "{running} + {waiting}");
        ensure!(running <= self.options.max_running as usize, "no more run than may", "{running}");
        ensure!(self.attempts.len() == turns().count(), "every turn has its attempt", "{:?}", self.attempts);
        for rank in self.running.iter().chain(&self.waiting).chain(&self.paused) {
            let turn = self.turn(rank.turn);
            let rank_fits = rank.class.0 == turn.class && rank.seniority == turn.seniority;
            ensure!(rank_fits, "ranks follow their turns", "{rank:?} of {}", turn.attempt);
            let room = turn.table.len() * self.options.page_size as usize;
            ensure!(turn.computed <= room, "what is computed has pages", "{} in {room}", turn.computed);
            ensure!(turn.computed < turn.tokens.len(), "something is left to compute", "{}", turn.attempt);
        }
        for (claim, &owner) in &self.claims {
            let owned = self.turn(owner).held.as_ref().is_some_and(|held| held.claim.as_ref() == Some(claim));
            ensure!(owned, "claims belong to running turns", "{claim:?}");
        }
        self.check_trajectories()
    }

    fn check_trajectories(&self) -> Result<(), Violation> {
        let (mut referring, mut pages, mut served) = (0, 0, 0);
        for (id, trajectory) in self.entered.iter() {
            let high = self.residency.refers_as_high(id);
            referring += usize::from(high.is_some());
            if self.is_tiered() {
                ensure!(high == Some(trajectory.is_high()), "a reference is of its trajectory's class", "{id}");
            }
            served += usize::from(trajectory.is_counted());
            pages += if trajectory.is_counted() { u64::from(trajectory.pages) } else { 0 };
            for key in self.turns_of(id) {
                let paused = self.paused.contains(&self.turn(key).rank(key));
                ensure!(paused == trajectory.is_paused(), "turns are paused with their trajectory", "{id}");
            }
        }
        let references = self.residency.references();
        ensure!(references == referring, "who refers has entered", "{references} references, {referring} entered");
        let entered = |rank: &Rank| self.entered.get(self.turn(rank.turn).trajectory).is_some();
        ensure!(self.paused.iter().all(entered), "paused turns have a trajectory", "{:?}", self.paused);
        let (counted, demand) = (self.entered.served(), self.entered.high_pages());
        ensure!(
            counted == served && demand == pages,
            "demand is counted",
            "{counted}: {demand}, not {served}: {pages}"
        );
        Ok(())
    }
}
