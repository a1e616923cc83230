//! Forming an iteration: who is admitted, how much of each context is computed, who must give way.

use super::{Batch, Rank, TurnKey, Work};
use crate::message::engine::Class;
use crate::residency::{Found, ResidencyPolicy, Tier};

/// What became of a waiting turn.
pub(super) enum Admission {
    Admitted,
    /// Its next page is being computed by another turn.
    Delayed,
    /// No slot, or not enough pages.
    Full,
}

/// The highest tier that a turn of this class may evict from (paper section 2.5). Boundary counts as high.
pub(super) fn reach(policy: ResidencyPolicy, class: Class) -> Tier {
    match (policy, class) {
        (ResidencyPolicy::Tiered { .. }, Class::Low) => Tier::LowRef,
        _ => Tier::HighRef,
    }
}

impl Batch {
    /// Hands the budget to prefill, class by class; inside a class to those that have begun, then to those that wait.
    pub(super) fn form_prefill(&mut self) {
        let mut begun = std::mem::take(&mut self.ranks);
        begun.extend(self.running.iter().filter(|rank| self.turn(rank.turn).remaining() > 1));
        let mut begun_at = begun.iter().peekable();
        let mut budget = self.options.prefill_budget.0 as usize;
        let mut next = self.waiting.first().copied();
        // No more are looked at than could run: turns that wait for a page of another must not make this a scan.
        let mut looks = self.options.max_running;
        while budget > 0 {
            match (begun_at.peek(), next) {
                (Some(first), waiting) if waiting.is_none_or(|waiting| first.class <= waiting.class) => {
                    budget -= self.assign_chunk(first.turn, budget);
                    begun_at.next();
                }
                (_, Some(waiting)) if looks > 0 => {
                    looks -= 1;
                    match self.try_admit(waiting) {
                        Admission::Admitted => budget -= self.assign_chunk(waiting.turn, budget),
                        Admission::Delayed => {}
                        // Nobody overtakes it.
                        Admission::Full => looks = 0,
                    }
                    let after = (std::ops::Bound::Excluded(waiting), std::ops::Bound::Unbounded);
                    next = self.waiting.range(after).next().copied().filter(|_| looks > 0);
                }
                _ => break,
            }
        }
        begun.clear();
        self.ranks = begun;
    }

    /// Lets a running turn compute up to `budget` tokens of its context; returns how many. One retracted meanwhile gets none.
    fn assign_chunk(&mut self, turn: TurnKey, budget: usize) -> usize {
        let turn = self.turn_mut(turn);
        let chunk = turn.remaining().min(budget);
        match &mut turn.held {
            Some(held) => {
                held.chunk = chunk;
                chunk
            }
            None => 0,
        }
    }

    fn try_admit(&mut self, rank: Rank) -> Admission {
        let turn = self.turn(rank.turn);
        // The last token is always computed: its logits are needed.
        let tokens = &turn.tokens[..turn.tokens.len() - 1];
        let found = self.residency.lookup(tokens);
        if self.is_being_computed(rank, &found) {
            return Admission::Delayed;
        }
        let pages = self.pages_for(turn.tokens.len()) - found.pages;
        // What it shares it can't evict as well.
        let reach = reach(self.options.residency, turn.class);
        let available = self.residency.available(reach).0 - found.cached.up_to(reach);
        let running = self.running.len();
        if self.fits(pages, available, running) {
            self.enter(rank.turn);
            return Admission::Admitted;
        }
        let lower_runs = self.running.last().is_some_and(|last| last.class > rank.class);
        if lower_runs { self.displace(rank, pages) } else { Admission::Full }
    }

    /// Whether a turn of `pages` new pages can join `running` others: there is a slot, and pages for it now and for one
    /// page of growth of everybody.
    pub(super) fn fits(&self, pages: u32, available: u32, running: usize) -> bool {
        let growth = if running == 0 { 0 } else { running as u32 + 1 };
        running < self.options.max_running as usize && pages + growth <= available
    }

    /// Admits a turn for which `fits` holds.
    pub(super) fn enter(&mut self, key: TurnKey) {
        let needed = self.pages_for(self.turn(key).tokens.len());
        let turn = self.turns[key.0 as usize].as_mut().expect("keys of ended turns are not kept");
        let mut table = std::mem::take(&mut turn.table);
        let lock = self.residency.acquire(&turn.tokens[..turn.tokens.len() - 1], &mut table);
        let shared = table.len();
        let reach = reach(self.options.residency, turn.class);
        let allocated = self.residency.allocate(needed - shared as u32, reach, &mut table);
        assert!(allocated, "admission implies allocation");
        self.admit(key, lock, table, shared);
    }

    /// Whether the page after what was found is about to be published by a turn at least as urgent.
    fn is_being_computed(&self, rank: Rank, found: &Found) -> bool {
        let Some(place) = found.place else { return false };
        let turn = self.turn(rank.turn);
        let page_size = self.options.page_size as usize;
        let next = found.pages as usize * page_size;
        if next + page_size >= turn.tokens.len() || self.claims.is_empty() {
            return false;
        }
        let claim = (place, turn.tokens[next..next + page_size].into());
        self.claims.get(&claim).is_some_and(|&owner| self.turn(owner).class >= turn.class)
    }

    /// Whether the turn has pages for all its tokens, after giving it what is missing if there is some.
    pub(super) fn grow(&mut self, key: TurnKey) -> bool {
        let needed = self.pages_for(self.turn(key).tokens.len());
        let turn = self.turns[key.0 as usize].as_mut().expect("keys of ended turns are not kept");
        let missing = needed - turn.table.len() as u32;
        let reach = reach(self.options.residency, turn.class);
        self.residency.allocate(missing, reach, &mut turn.table)
    }

    pub(super) fn list_work(&mut self) {
        for rank in &self.running {
            let turn = self.turn(rank.turn);
            let held = turn.held.as_ref().expect("a running turn holds its path");
            let tokens = if turn.remaining() == 1 { 1 } else { held.chunk };
            if tokens == 0 {
                continue;
            }
            let (start, end) = (turn.computed, turn.computed + tokens);
            let draws = end == turn.tokens.len();
            let work = Work { attempt: turn.attempt, start, end, draws, admitted: held.fresh, turn: rank.turn };
            self.work.push(work);
        }
    }

    pub(super) fn pages_for(&self, tokens: usize) -> u32 {
        tokens.div_ceil(self.options.page_size as usize) as u32
    }
}
