//! Who gives way: the victims of a waiting turn of a higher class, and of decoding that is short of pages.

use super::form::{Admission, reach};
use super::{Batch, Rank, TurnKey};
use crate::residency::Tier;
use std::cmp::Reverse;

impl Batch {
    /// Makes room by retracting running turns of a lower class; if all of them together would not make enough, none is
    /// touched (vllm#39375).
    pub(super) fn displace(&mut self, rank: Rank, pages: u32) -> Admission {
        // Locked while counting, so that what it shares with a victim is not counted as gained.
        let turn = self.turns[rank.turn.0 as usize].as_ref().expect("keys of ended turns are not kept");
        let lock = self.residency.acquire(&turn.tokens[..turn.tokens.len() - 1], &mut Vec::new());
        // A class with a lower one below it reaches all tiers, and so all that a victim leaves behind.
        let mut available = self.residency.available(Tier::HighRef).0;
        let mut victims = self.victims_of(rank);
        let mut enough = false;
        for (n, &victim) in victims.iter().enumerate() {
            available += self.gain(victim);
            enough = self.fits(pages, available, self.running.len() - n - 1);
            if enough {
                victims.truncate(n + 1);
                break;
            }
        }
        if enough {
            for victim in victims {
                self.retract(victim);
                self.counters.preemptions += 1;
            }
        }
        self.residency.release(lock, &[]);
        if !enough {
            return Admission::Full;
        }
        // What the victims published may match: then it needs less than was counted.
        self.enter(rank.turn);
        Admission::Admitted
    }

    /// Running turns of a lower class than `rank`, the lowest class first; inside a class the latest first, or with tiers
    /// the cheapest to compute again (vllm#53723: half of what preemption costs is the choice of victims).
    fn victims_of(&self, rank: Rank) -> Vec<TurnKey> {
        let mut victims: Vec<_> = self.running.iter().rev().take_while(|victim| victim.class > rank.class).collect();
        if self.is_tiered() {
            victims.sort_by_cached_key(|victim| (Reverse(victim.class), self.cost(victim.turn)));
        }
        victims.into_iter().map(|victim| victim.turn).collect()
    }

    /// Pages that retracting this turn makes available, at least.
    fn gain(&self, key: TurnKey) -> u32 {
        let turn = self.turn(key);
        let held = turn.held.as_ref().expect("a running turn holds its path");
        self.residency.held_alone(&held.lock).0 + (turn.table.len() - held.shared) as u32
    }

    /// Tokens that a turn computes again if it is retracted and what nobody else holds is evicted.
    fn cost(&self, key: TurnKey) -> usize {
        let turn = self.turn(key);
        let held = turn.held.as_ref().expect("a running turn holds its path");
        let others = held.shared - self.residency.held_alone(&held.lock).0 as usize;
        turn.computed - others * self.options.page_size as usize
    }

    /// Gives each decoding turn the page its next position needs, the most senior of the highest class first.
    pub(super) fn reserve_growth(&mut self) {
        let mut ranks = std::mem::take(&mut self.ranks);
        ranks.extend(self.running.iter());
        for rank in ranks.drain(..) {
            while self.running.contains(&rank) && !self.grow(rank.turn) {
                let bounded = reach(self.options.residency, rank.class.0) < Tier::HighRef;
                assert!(self.running.len() > 1 || bounded, "a turn alone fits: it was accepted");
                let victim = self.victim();
                self.retract(victim);
                self.counters.retractions += 1;
            }
        }
        self.ranks = ranks;
    }

    /// The next to be retracted for pages: of the lowest class that runs.
    fn victim(&self) -> TurnKey {
        let last = self.running.last().expect("a turn that grows runs");
        if !self.is_tiered() {
            return last.turn;
        }
        let lowest = self.running.iter().rev().take_while(|rank| rank.class == last.class);
        lowest.min_by_key(|rank| self.cost(rank.turn)).map_or(last.turn, |rank| rank.turn)
    }
}
