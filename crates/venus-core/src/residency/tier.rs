//! The tiers of cached pages (paper section 2.5): which go first, and who may take them.

use super::EvictionKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::{AddAssign, Index, SubAssign};

/// How cached pages are kept between the turns of a trajectory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResidencyPolicy {
    /// Least recently used first, whoever comes back for it.
    #[default]
    Lru,
    /// What a live trajectory will come back for goes after what none will (SGLang's session references, sglang#29173):
    /// one tier for all classes, referenced when a turn ends, and everything can be evicted for everybody.
    SessionReferenced,
    /// The paper's: tiers by class, referenced from a trajectory's first entry on, and a low turn takes nothing that
    /// a high trajectory will come back for.
    Tiered {
        /// Whether high trajectories are paused while all of them together need more pages than there are.
        demotion: bool,
    },
}

/// Standing of a cached page, by the trajectories that will come back for it. Ordered: a lesser tier is evicted first.
/// Pages held by running turns are of none: they are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// None.
    Unused,
    /// Trajectories of low class, demoted ones included.
    LowRef,
    /// At least one of high or boundary class.
    HighRef,
}

impl Tier {
    pub(super) const ALL: [Self; 3] = [Self::Unused, Self::LowRef, Self::HighRef];
}

/// Pages by tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierPages([u32; 3]);

impl TierPages {
    /// Pages of this tier and the lesser ones.
    #[must_use]
    pub fn up_to(self, tier: Tier) -> u32 {
        self.0[..=tier as usize].iter().sum()
    }

    /// Pages of all tiers.
    #[must_use]
    pub fn total(self) -> u32 {
        self.up_to(Tier::HighRef)
    }

    pub(super) fn add(&mut self, tier: Tier, pages: usize) {
        self.0[tier as usize] += pages as u32;
    }
}

impl Index<Tier> for TierPages {
    type Output = u32;
    fn index(&self, tier: Tier) -> &u32 {
        &self.0[tier as usize]
    }
}

/// Trajectories that will come back for a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RefCount {
    pub(super) high: u32,
    pub(super) low: u32,
}

impl RefCount {
    pub(super) fn one(high: bool) -> Self {
        Self { high: u32::from(high), low: u32::from(!high) }
    }

    pub(super) fn tier(self) -> Tier {
        match self {
            Self { high: 1.., .. } => Tier::HighRef,
            Self { low: 1.., .. } => Tier::LowRef,
            _ => Tier::Unused,
        }
    }

    /// How often a high trajectory shares these pages with another.
    pub(super) fn high_sharers(self) -> u64 {
        u64::from(self.high.saturating_sub(1))
    }
}

impl AddAssign for RefCount {
    fn add_assign(&mut self, other: Self) {
        self.high += other.high;
        self.low += other.low;
    }
}

impl SubAssign for RefCount {
    fn sub_assign(&mut self, other: Self) {
        self.high -= other.high;
        self.low -= other.low;
    }
}

/// Unlocked pages counted, and unlocked leaves in order of eviction; both by tier. Reading a count is O(1)
/// (sglang#33799), finding the next leaf to evict O(log n) without a scan or a heap built anew (sglang#14339,
/// sglang-omni#1724).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tiers {
    pub(super) pages: TierPages,
    leaves: [BTreeSet<EvictionKey>; 3],
}

impl Tiers {
    pub(super) fn leaves(&self, tier: Tier) -> &BTreeSet<EvictionKey> {
        &self.leaves[tier as usize]
    }

    pub(super) fn leaves_mut(&mut self, tier: Tier) -> &mut BTreeSet<EvictionKey> {
        &mut self.leaves[tier as usize]
    }

    pub(super) fn take(&mut self, tier: Tier, pages: usize) {
        self.pages.0[tier as usize] -= pages as u32;
    }

    pub(super) fn put(&mut self, tier: Tier, pages: usize) {
        self.pages.add(tier, pages);
    }

    /// The next leaf to go, of tiers up to `reach`.
    pub(super) fn first(&self, reach: Tier) -> Option<(Tier, EvictionKey)> {
        let tiers = Tier::ALL.into_iter().take_while(|&tier| tier <= reach);
        tiers.filter_map(|tier| Some((tier, *self.leaves(tier).first()?))).next()
    }
}
