//! References: a trajectory's claim on the pages it will come back for, from its first entry to its end (paper section
//! 2.5: released when the whole multi-turn trajectory completes, not when a request does).
//!
//! A reference is one place in the tree; it counts in every node from there to the root. So a parent's tier is never
//! below its child's, and evicting leaves in order of tiers leaves usable prefixes. It does not pin: a referenced page
//! can be evicted, in the order and within the reach of its tier (sglang#28891: sessions that pin pages out of the
//! scheduler's sight run it out of memory). When its last pages go, the reference moves up to what is left of its path.
//!
//! Each trajectory has at most one, kept here by its name. To release it twice does nothing the second time
//! (sglang#16369), and no path has to know what another one counted (sglang#27024).
//!
//! Costs: the length of the path in nodes to add, move, release or re-class one.

use super::tier::RefCount;
use super::{Lock, NodeId, Residency};
use crate::ids::{TokenId, TrajectoryId};
use crate::units::Pages;

/// Where a trajectory's reference ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    pub(super) at: NodeId,
    pub(super) high: bool,
}

/// What a trajectory will come back for, as far as it is resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referred {
    /// All of it.
    pub pages: Pages,
    /// Of these, what a high trajectory refers to, itself or another.
    pub high: Pages,
}

impl Residency {
    /// A trajectory enters, or is looked at again: it refers to the longest known prefix of `tokens`, by the rules of
    /// [`refer`](Self::refer).
    pub fn enter(&mut self, trajectory: TrajectoryId, high: bool, tokens: &[TokenId]) {
        let walk = self.tree.walk(self.root(), tokens);
        let node = self.tree.boundary(&walk);
        self.refer_to(trajectory, high, node);
    }

    /// A trajectory refers to all that `lock` covers. If its reference ends below, it stays there; if it was elsewhere,
    /// the rest of the old path is given up. `high` counts only if it had none. KV of other weights than the current
    /// ones will not be matched, so it is not referred to.
    pub fn refer(&mut self, trajectory: TrajectoryId, high: bool, lock: &Lock) {
        if self.tree[lock.0].version == self.current {
            self.refer_to(trajectory, high, lock.0);
        }
    }

    /// What a trajectory makes after its first entry carries its reference.
    pub(super) fn inherit(&mut self, owner: TrajectoryId, node: NodeId) {
        if let Some(reference) = self.references.get(&owner).copied() {
            self.refer_to(owner, reference.high, node);
        }
    }

    fn refer_to(&mut self, trajectory: TrajectoryId, high: bool, node: NodeId) {
        match self.references.get(&trajectory).copied() {
            Some(old) if self.is_above(node, old.at) => {}
            // Added first: what both paths share never leaves its tier.
            Some(old) => {
                self.attach(trajectory, old.high, node);
                self.detach(trajectory, old);
            }
            None => self.attach(trajectory, high, node),
        }
    }

    /// A trajectory's class changed: its count moves on its whole path.
    pub fn refer_as(&mut self, trajectory: TrajectoryId, high: bool) {
        let Some(reference) = self.references.get_mut(&trajectory).filter(|reference| reference.high != high) else {
            return;
        };
        reference.high = high;
        let at = reference.at;
        self.recount(at, RefCount::one(high), RefCount::one(!high));
    }

    /// A trajectory ended. Returns whether it had a reference.
    pub fn leave(&mut self, trajectory: TrajectoryId) -> bool {
        let Some(reference) = self.references.remove(&trajectory) else { return false };
        self.detach(trajectory, reference);
        true
    }

    /// Trajectories that have a reference.
    #[must_use]
    pub fn references(&self) -> usize {
        self.references.len()
    }

    /// Whether a trajectory's reference counts as high; `None` if it has none.
    #[must_use]
    pub fn refers_as_high(&self, trajectory: TrajectoryId) -> Option<bool> {
        self.references.get(&trajectory).map(|reference| reference.high)
    }

    /// Pages that high trajectories share, each counted once less than it is shared: what adding up their contexts counts
    /// too much.
    #[must_use]
    pub fn shared_by_high(&self) -> u64 {
        self.shared_by_high
    }

    /// What a trajectory refers to, if it has a reference.
    #[must_use]
    pub fn referred(&self, trajectory: TrajectoryId) -> Option<Referred> {
        let mut referred = Referred { pages: Pages(0), high: Pages(0) };
        let mut at = Some(self.references.get(&trajectory)?.at);
        while let Some(node) = at.map(|id| &self.tree[id]) {
            let pages = Pages(node.pages.len() as u32);
            referred.pages += pages;
            referred.high += if node.refs.high > 0 { pages } else { Pages(0) };
            at = node.parent;
        }
        Some(referred)
    }

    /// New weights: no page of the old ones will be matched, so nobody refers to any. Walks all references, once a
    /// weight update.
    pub(super) fn refer_to_nothing(&mut self) {
        let root = self.root();
        for (trajectory, old) in std::mem::take(&mut self.references) {
            self.attach(trajectory, old.high, root);
            self.detach(trajectory, old);
        }
    }

    fn attach(&mut self, trajectory: TrajectoryId, high: bool, node: NodeId) {
        self.recount(node, RefCount::one(high), RefCount::default());
        self.tree[node].ends.insert(trajectory);
        self.references.insert(trajectory, Reference { at: node, high });
    }

    fn detach(&mut self, trajectory: TrajectoryId, reference: Reference) {
        self.tree[reference.at].ends.remove(&trajectory);
        self.recount(reference.at, RefCount::default(), RefCount::one(reference.high));
    }

    /// Whether `above` is on the path from `below` to its root.
    fn is_above(&self, above: NodeId, below: NodeId) -> bool {
        let mut at = Some(below);
        while let Some(id) = at {
            if id == above {
                return true;
            }
            at = self.tree[id].parent;
        }
        false
    }

    /// Changes the counters from `node` to the root. Goes up, so that a parent is of its child's tier or above again
    /// only at the end; nothing looks in between.
    fn recount(&mut self, node: NodeId, more: RefCount, less: RefCount) {
        let mut at = Some(node);
        while let Some(id) = at {
            self.visits += 1;
            let node = &mut self.tree[id];
            let (old, pages) = (node.refs, node.pages.len() as u64);
            node.refs += more;
            node.refs -= less;
            let new = node.refs;
            at = node.parent;
            self.shared_by_high += new.high_sharers() * pages;
            self.shared_by_high -= old.high_sharers() * pages;
            self.move_tier(id, old.tier(), new.tier());
        }
    }
}
