//! The invariants of the batch, checked by looking at everything. For tests, the simulator and debugging.

use super::Batch;
use crate::residency::{Holding, Violation, ensure};

impl Batch {
    /// Promise 3 (see [`Residency::check`](crate::residency::Residency::check)), and: every turn either waits or runs,
    /// no more run than may, each has pages for what it computed, and claims have living owners.
    pub fn check(&self) -> Result<(), Violation> {
        let turns = || self.turns.iter().flatten();
        let holding = turns().filter_map(|turn| {
            let held = turn.held.as_ref()?;
            let (shared, private) = turn.table.split_at(held.shared);
            Some(Holding { lock: &held.lock, shared, private })
        });
        self.residency.check(holding)?;
        let (running, waiting) = (self.running.len(), self.waiting.len());
        let held = turns().filter(|turn| turn.held.is_some()).count();
        ensure!(running == held, "exactly the running turns hold pages", "{running} run, {held} hold");
        ensure!(running + waiting == turns().count(), "every turn waits or runs", "{running} + {waiting}");
        ensure!(running <= self.options.max_running as usize, "no more run than may", "{running}");
        ensure!(self.attempts.len() == turns().count(), "every turn has its attempt", "{:?}", self.attempts);
        for rank in self.running.iter().chain(&self.waiting) {
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
        Ok(())
    }
}
