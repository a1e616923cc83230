//! Residency-aware demotion (paper section 2.5). Tiers keep the low class from evicting what the high class will come
//! back for; they don't keep high trajectories from evicting each other. So when all of them together need more pages
//! than there are, some are moved to the low class for a while and paused, **shortest context first**: the little they
//! have is the cheapest to compute again. They come back, **longest first**, as others end or leave the class.
//!
//! **Demand** is what the trajectories of class boundary and high need for their whole contexts and the growth of a turn
//! (what a turn has added so far, on average), resident or not, between turns as in them; pages that several share count
//! once. The paper compares it with the capacity less what low turns hold; here with the capacity, because a low turn
//! is retracted for a high one: else the low class would pause the high one.
//!
//! **Nothing starves, nothing flaps.** The last high trajectory is never demoted, however large, and a boundary one
//! never. One is promoted only when another has left, and only if its own need fits beside the demand: what a demotion
//! leaves over is for the growth of those that stay, or the next page would demote again. (One that has not run yet has
//! nothing to lose; it need not wait for that. So siblings come in as soon as the first of them has their prompt.) Those
//! that wait come before newcomers: as each that stayed active was longer than the one demoted for it, each that leaves
//! makes room for the longest that waits. A shorter one may return before a longer that does not fit.
//!
//! **Nothing stands still** (not in the paper): the active ones may all be in tool calls, or wait for the slots that the
//! paused ones occupy at the coordinator. If nothing else can run, the paused one that has the least to compute changes
//! places with the shortest active ones, and is spared until its turn ends: else the next plan would take it back, if all
//! that stay are of class boundary.

use super::trajectory::Standing;
use super::{Batch, TurnKey};
use crate::ids::TrajectoryId;
use crate::residency::ResidencyPolicy;

impl Batch {
    /// Promotes, counts newcomers, demotes; before the prefill is formed.
    pub(super) fn balance(&mut self) {
        if self.options.residency != (ResidencyPolicy::Tiered { demotion: true }) {
            return;
        }
        self.spared = self.spared.filter(|&id| !self.turns_of(id).is_empty());
        self.promote();
        self.entered.admit_fresh();
        while self.demand() > u64::from(self.options.pages.0) && self.entered.served() > 1 {
            let Some(shortest) = self.entered.shortest_active(self.spared) else { break };
            self.demote(shortest);
        }
    }

    /// If nothing runs while turns are paused, one of them is resumed in place of trajectories that have no turn here.
    /// Returns whether there was one.
    pub(super) fn end_standstill(&mut self) -> bool {
        if !self.running.is_empty() || self.paused.is_empty() {
            return false;
        }
        let paused = self.paused.iter().map(|rank| self.turn(rank.turn).trajectory);
        let Some(cheapest) = paused.min_by_key(|&id| self.missing(id)) else { return false };
        while !self.fits_beside(cheapest) {
            let Some(shortest) = self.entered.shortest_active(None) else { break };
            self.demote(shortest);
        }
        self.promote_one(cheapest);
        self.spared = Some(cheapest);
        true
    }

    /// Pages that the high class needs.
    pub(super) fn demand(&self) -> u64 {
        self.entered.high_pages().saturating_sub(self.residency.shared_by_high())
    }

    /// Promotes those that fit, longest first. No more are looked at than could run.
    fn promote(&mut self) {
        let state = (self.demand(), self.residency.clock());
        if self.unpromoted == Some(state) && !self.entered.has_fresh() && self.entered.served() > 0 {
            return;
        }
        let candidates: Vec<_> = self.entered.demoted().take(self.options.max_running as usize).collect();
        for id in candidates {
            // What its siblings computed meanwhile it need not compute.
            if let Some(&key) = self.turns_of(id).first() {
                let tokens = &self.turns[key.0 as usize].as_ref().expect("keys of ended turns are not kept").tokens;
                self.residency.enter(id, false, tokens);
            }
            let may = self.entered.left || self.entered.get(id).is_some_and(|trajectory| !trajectory.ran);
            if self.entered.served() == 0 || (may && self.fits_beside(id)) {
                self.promote_one(id);
            }
        }
        self.unpromoted = Some((self.demand(), self.residency.clock()));
    }

    /// Whether a demoted trajectory's own need fits beside the demand: its pages less those counted already.
    fn fits_beside(&self, id: TrajectoryId) -> bool {
        let pages = self.entered.get(id).map_or(0, |trajectory| trajectory.pages);
        let counted = self.residency.referred(id).map_or(0, |referred| referred.high.0);
        self.demand() + u64::from(pages.saturating_sub(counted)) <= u64::from(self.options.pages.0)
    }

    /// Pages of a trajectory that are not resident.
    fn missing(&self, id: TrajectoryId) -> u32 {
        let pages = self.entered.get(id).map_or(0, |trajectory| trajectory.pages);
        pages.saturating_sub(self.residency.referred(id).map_or(0, |referred| referred.pages.0))
    }

    fn promote_one(&mut self, id: TrajectoryId) {
        self.entered.set_standing(id, Standing::Active);
        self.residency.refer_as(id, true);
        self.resume_turns(id);
        self.counters.promotions += 1;
    }

    fn demote(&mut self, id: TrajectoryId) {
        self.entered.set_standing(id, Standing::Demoted);
        self.entered.left = false;
        // Before its turns give their pages back: they are of its new tier.
        self.residency.refer_as(id, false);
        for key in self.turns_of(id) {
            self.pause_turn(key);
        }
        self.counters.demotions += 1;
    }

    /// A turn runs or waits no more until its trajectory is promoted. It keeps its seniority.
    pub(super) fn pause_turn(&mut self, key: TurnKey) {
        if self.turn(key).held.is_some() {
            self.retract(key);
        }
        let rank = self.turn(key).rank(key);
        self.waiting.remove(&rank);
        self.paused.insert(rank);
    }

    /// The paused turns of a trajectory wait again.
    pub(super) fn resume_turns(&mut self, id: TrajectoryId) {
        for key in self.turns_of(id) {
            let rank = self.turn(key).rank(key);
            if self.paused.remove(&rank) {
                self.waiting.insert(rank);
            }
        }
    }

    /// The turns a trajectory has here: one, unless attempts overlap.
    pub(super) fn turns_of(&self, id: TrajectoryId) -> Vec<TurnKey> {
        let range = (id, TurnKey(0))..=(id, TurnKey(u32::MAX));
        self.trajectories.range(range).map(|&(_, key)| key).collect()
    }
}
