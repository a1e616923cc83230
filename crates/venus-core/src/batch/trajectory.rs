//! What the batch knows of a trajectory from its first entry to its release, turns and tool calls alike.

use super::Batch;
use crate::ids::{TokenId, TrajectoryId};
use crate::message::engine::Class;
use crate::residency::ResidencyPolicy;
use std::collections::{BTreeMap, BTreeSet};

/// Whether a trajectory of class high may use the pages of its class. Means nothing in other classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Since the last plan; not counted yet.
    Fresh,
    /// Counted in what the high class needs.
    Active,
    /// Counted as low, and its turns are paused (paper section 2.5).
    Demoted,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Trajectory {
    pub(super) class: Class,
    pub(super) standing: Standing,
    /// What its whole context needs, the growth of a turn included.
    pub(super) pages: u32,
    /// Tokens of its first context.
    first: usize,
    /// Turns that ended.
    turns: usize,
    /// Whether a turn of it ever ran.
    pub(super) ran: bool,
}

impl Trajectory {
    /// Whether its references count as high. Boundary counts as high and is never demoted.
    pub(super) fn is_high(&self) -> bool {
        self.class > Class::Low && !self.is_paused()
    }

    /// Whether its pages are part of what the high class needs.
    pub(super) fn is_counted(&self) -> bool {
        self.class == Class::Boundary || (self.class == Class::High && self.standing == Standing::Active)
    }

    /// Whether its turns are paused.
    pub(super) fn is_paused(&self) -> bool {
        self.class == Class::High && self.standing == Standing::Demoted
    }
}

/// All that have entered and were not released, and the order of those of class high. Every operation is O(log n).
#[derive(Debug, Default)]
pub(super) struct Trajectories {
    known: BTreeMap<TrajectoryId, Trajectory>,
    /// Active ones, by pages.
    active: BTreeSet<(u32, TrajectoryId)>,
    /// Demoted ones, by pages.
    demoted: BTreeSet<(u32, TrajectoryId)>,
    /// Those of class boundary.
    boundary: usize,
    /// Pages of the active and the boundary ones.
    pages: u64,
    /// Those that may be fresh.
    fresh: Vec<TrajectoryId>,
    /// One that was counted left the high class or ended, since the last demotion.
    pub(super) left: bool,
}

impl Trajectories {
    pub(super) fn get(&self, id: TrajectoryId) -> Option<&Trajectory> {
        self.known.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TrajectoryId, &Trajectory)> {
        self.known.iter().map(|(&id, trajectory)| (id, trajectory))
    }

    /// Pages that the high class needs, those that its members share counted for each.
    pub(super) fn high_pages(&self) -> u64 {
        self.pages
    }

    /// Trajectories that are active or of class boundary.
    pub(super) fn served(&self) -> usize {
        self.active.len() + self.boundary
    }

    /// The shortest active one that is not `spared`.
    pub(super) fn shortest_active(&self, spared: Option<TrajectoryId>) -> Option<TrajectoryId> {
        self.active.iter().map(|&(_, id)| id).find(|&id| Some(id) != spared)
    }

    /// Longest first.
    pub(super) fn demoted(&self) -> impl Iterator<Item = TrajectoryId> {
        self.demoted.iter().rev().map(|&(_, id)| id)
    }

    pub(super) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Fresh ones become active.
    pub(super) fn admit_fresh(&mut self) {
        for id in std::mem::take(&mut self.fresh) {
            if self.known.get(&id).is_some_and(|trajectory| trajectory.standing == Standing::Fresh) {
                self.change(id, |trajectory| trajectory.standing = Standing::Active);
            }
        }
    }

    pub(super) fn set_standing(&mut self, id: TrajectoryId, standing: Standing) {
        self.change(id, |trajectory| trajectory.standing = standing);
    }

    fn set_class(&mut self, id: TrajectoryId, class: Class) {
        self.left |= class == Class::Low && self.known.get(&id).is_some_and(Trajectory::is_counted);
        self.change(id, |trajectory| {
            trajectory.class = class;
            trajectory.standing = Standing::Fresh;
        });
        self.fresh.push(id);
    }

    fn insert(&mut self, id: TrajectoryId, class: Class, tokens: usize) {
        let trajectory = Trajectory { class, standing: Standing::Fresh, pages: 0, first: tokens, turns: 0, ran: false };
        self.known.insert(id, trajectory);
        self.file(&trajectory, id);
        self.fresh.push(id);
    }

    fn remove(&mut self, id: TrajectoryId) {
        if let Some(trajectory) = self.known.remove(&id) {
            self.left |= trajectory.is_counted();
            self.unfile(&trajectory, id);
        }
    }

    fn change(&mut self, id: TrajectoryId, change: impl FnOnce(&mut Trajectory)) {
        let Some(mut trajectory) = self.known.get(&id).copied() else { return };
        self.unfile(&trajectory, id);
        change(&mut trajectory);
        self.file(&trajectory, id);
        self.known.insert(id, trajectory);
    }

    fn file(&mut self, trajectory: &Trajectory, id: TrajectoryId) {
        self.pages += if trajectory.is_counted() { u64::from(trajectory.pages) } else { 0 };
        match (trajectory.class, trajectory.standing) {
            (Class::Boundary, _) => self.boundary += 1,
            (Class::High, Standing::Active) => _ = self.active.insert((trajectory.pages, id)),
            (Class::High, Standing::Demoted) => _ = self.demoted.insert((trajectory.pages, id)),
            (Class::High, Standing::Fresh) | (Class::Low, _) => {}
        }
    }

    fn unfile(&mut self, trajectory: &Trajectory, id: TrajectoryId) {
        self.pages -= if trajectory.is_counted() { u64::from(trajectory.pages) } else { 0 };
        match (trajectory.class, trajectory.standing) {
            (Class::Boundary, _) => self.boundary -= 1,
            (Class::High, Standing::Active) => _ = self.active.remove(&(trajectory.pages, id)),
            (Class::High, Standing::Demoted) => _ = self.demoted.remove(&(trajectory.pages, id)),
            (Class::High, Standing::Fresh) | (Class::Low, _) => {}
        }
    }
}

impl Batch {
    /// Whether trajectories refer to pages by class.
    pub(super) fn is_tiered(&self) -> bool {
        matches!(self.options.residency, ResidencyPolicy::Tiered { .. })
    }

    /// A turn of this trajectory enters. On the first, its class is recorded and it refers to the prefix it will reuse.
    pub(super) fn enter_trajectory(&mut self, id: TrajectoryId, class: Class, context: &[TokenId]) {
        if self.options.residency == ResidencyPolicy::Lru {
            return;
        }
        match self.entered.get(id).map(|trajectory| trajectory.class) {
            None => {
                self.entered.insert(id, class, context.len());
                // A turn that outlived its trajectory's release is of the new one.
                self.reclass_turns(id, class);
            }
            Some(old) if old != class => self.reclass(id, class),
            Some(_) => {}
        }
        if self.is_tiered() && self.residency.referred(id).is_none() {
            self.residency.enter(id, class > Class::Low, context);
        }
        self.measure(id, context.len());
    }

    /// What a trajectory of this many tokens needs now: they, and what a turn has added to it so far on average.
    pub(super) fn measure(&mut self, id: TrajectoryId, tokens: usize) {
        let Some(trajectory) = self.entered.get(id) else { return };
        let added = tokens.saturating_sub(trajectory.first).checked_div(trajectory.turns);
        let growth = added.unwrap_or(self.options.page_size as usize);
        let pages = self.pages_for(tokens + growth).min(self.options.pages.0);
        self.entered.change(id, |trajectory| trajectory.pages = pages);
    }

    /// A turn of this trajectory runs.
    pub(super) fn begin_trajectory(&mut self, id: TrajectoryId) {
        if self.entered.get(id).is_some_and(|trajectory| !trajectory.ran) {
            self.entered.change(id, |trajectory| trajectory.ran = true);
        }
    }

    /// A turn of this trajectory has drawn its way to this many tokens, more than was expected perhaps.
    pub(super) fn measure_growth(&mut self, id: TrajectoryId, tokens: usize) {
        if tokens % self.options.page_size as usize != 1 % self.options.page_size as usize {
            return;
        }
        let pages = self.pages_for(tokens).min(self.options.pages.0);
        if self.entered.get(id).is_some_and(|trajectory| trajectory.pages < pages) {
            self.entered.change(id, |trajectory| trajectory.pages = pages);
        }
    }

    /// A turn ended.
    pub(super) fn end_trajectory_turn(&mut self, id: TrajectoryId, tokens: usize) {
        self.entered.change(id, |trajectory| trajectory.turns += 1);
        self.measure(id, tokens);
    }

    /// The trajectory's class changed. One that was demoted and is not high any more is not paused any more either.
    pub(super) fn reclass_trajectory(&mut self, id: TrajectoryId, class: Class) {
        let Some(trajectory) = self.entered.get(id).copied().filter(|trajectory| trajectory.class != class) else {
            return;
        };
        if trajectory.is_paused() {
            self.resume_turns(id);
        }
        self.entered.set_class(id, class);
        if self.is_tiered() {
            self.residency.refer_as(id, class > Class::Low);
        }
    }

    /// The trajectory ended: it refers to nothing any more. A turn that it still has goes on.
    pub(super) fn release_trajectory(&mut self, id: TrajectoryId) {
        self.resume_turns(id);
        self.entered.remove(id);
        self.residency.leave(id);
    }
}
