//! The invariants of residency, checked by looking at everything. For tests, the simulator and debugging.

use super::tier::{RefCount, Tiers};
use super::tree::Node;
use super::{Lock, NodeId, PageId, Residency, Tier, Violation};
use std::collections::BTreeMap;

/// What a running turn holds.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// Its lock.
    pub lock: &'a Lock,
    /// The pages of its block table that the lock covers.
    pub shared: &'a [PageId],
    /// The pages that are its own.
    pub private: &'a [PageId],
}

/// Returns a [`Violation`] unless `holds`.
macro_rules! ensure {
    ($holds:expr, $invariant:literal, $($found:tt)*) => {
        if !$holds {
            return Err($crate::residency::Violation { invariant: $invariant, found: format!($($found)*) });
        }
    };
}
pub(crate) use ensure;

impl Residency {
    /// Promise 3: free + unused + low + high + locked pages = capacity, no page in two places, every lock accounted for by
    /// one of `holdings` (all that there are) and every count by a reference, a parent's tier at least its child's, and
    /// only unlocked leaves evictable, each in its tier.
    pub fn check<'a>(&self, holdings: impl IntoIterator<Item = Holding<'a>>) -> Result<(), Violation> {
        let mut owners: Vec<u32> = vec![0; self.capacity as usize];
        let mut locks: BTreeMap<NodeId, u32> = BTreeMap::new();
        for page in &self.free {
            owners[*page as usize] += 1;
        }
        let mut locked = 0;
        for holding in holdings {
            locked += holding.private.len();
            for page in holding.private {
                owners[*page as usize] += 1;
            }
            self.check_path(&holding, &mut locks)?;
        }
        self.check_nodes(&mut owners, &locks)?;
        let wrong = owners.iter().position(|&n| n != 1);
        ensure!(wrong.is_none(), "every page is in exactly one place", "page {wrong:?}");
        locked += self.tree.iter().filter(|(_, node)| node.locks > 0).map(|(_, node)| node.pages.len()).sum::<usize>();
        let (free, tiers) = (self.free().0, self.tiers.pages);
        let sum = free + tiers[Tier::Unused] + tiers[Tier::LowRef] + tiers[Tier::HighRef] + locked as u32;
        ensure!(
            sum == self.capacity,
            "free, unused, low, high and locked pages are all",
            "{free}, {tiers:?}, {locked}"
        );
        self.check_references()?;
        self.check_tiers()
    }

    fn check_path(&self, holding: &Holding<'_>, locks: &mut BTreeMap<NodeId, u32>) -> Result<(), Violation> {
        let mut pages: Vec<PageId> = Vec::new();
        let mut at = Some(holding.lock.0);
        while let Some(id) = at {
            *locks.entry(id).or_default() += 1;
            pages.extend(self.tree[id].pages.iter().rev());
            at = self.tree[id].parent;
        }
        pages.reverse();
        ensure!(pages == holding.shared, "a lock covers the shared pages", "{pages:?}, table {:?}", holding.shared);
        Ok(())
    }

    fn check_nodes(&self, owners: &mut [u32], locks: &BTreeMap<NodeId, u32>) -> Result<(), Violation> {
        for (id, node) in self.tree.iter() {
            let held = locks.get(&id).copied().unwrap_or(0);
            ensure!(node.locks == held, "every lock has a holder", "{id:?} has {} locks, {held} holders", node.locks);
            let whole = node.tokens.len() == node.pages.len() * self.page_size;
            ensure!(whole, "nodes hold whole pages", "{id:?}: {} tokens", node.tokens.len());
            ensure!(node.pages.is_empty() == node.parent.is_none(), "only roots are empty", "{id:?}");
            for page in &node.pages {
                owners[*page as usize] += 1;
            }
            for (key, &child) in &node.children {
                self.check_child(id, node, key, child)?;
            }
        }
        Ok(())
    }

    fn check_child(&self, id: NodeId, node: &Node, key: &[u32], child: NodeId) -> Result<(), Violation> {
        let child_node = &self.tree[child];
        let fits = child_node.parent == Some(id) && child_node.tokens.starts_with(key);
        ensure!(fits, "children hang on their parent by their first page", "{child:?} under {id:?}");
        ensure!(child_node.version == node.version, "a tree is of one version", "{child:?}");
        ensure!(child_node.used <= node.used, "a parent is as recent as its child", "{child:?} under {id:?}");
        // Locked is the highest tier.
        let tier = |node: &Node| if node.locks > 0 { None } else { Some(node.refs.tier()) };
        let above = tier(node).is_none_or(|parent| tier(child_node).is_some_and(|child| child <= parent));
        ensure!(above, "a parent's tier is at least its child's", "{child:?} under {id:?}");
        Ok(())
    }

    fn check_references(&self) -> Result<(), Violation> {
        let mut counts: BTreeMap<NodeId, RefCount> = BTreeMap::new();
        for (trajectory, reference) in &self.references {
            let end = &self.tree[reference.at];
            ensure!(end.ends.contains(trajectory), "references end where they say", "{trajectory}");
            ensure!(end.version == self.current, "only current KV is referred to", "{trajectory}");
            let mut at = Some(reference.at);
            while let Some(id) = at {
                *counts.entry(id).or_default() += RefCount::one(reference.high);
                at = self.tree[id].parent;
            }
        }
        let (mut ends, mut shared) = (0, 0);
        for (id, node) in self.tree.iter() {
            let counted = counts.get(&id).copied().unwrap_or_default();
            ensure!(node.refs == counted, "every count has a reference", "{id:?}: {:?}, {counted:?}", node.refs);
            ends += node.ends.len();
            shared += node.refs.high_sharers() * node.pages.len() as u64;
        }
        let references = self.references.len();
        ensure!(ends == references, "a trajectory has one reference", "{ends} ends, {references} references");
        ensure!(shared == self.shared_by_high, "shared pages are counted", "{shared}, not {}", self.shared_by_high);
        Ok(())
    }

    fn check_tiers(&self) -> Result<(), Violation> {
        let mut tiers = Tiers::default();
        for (id, node) in self.tree.iter().filter(|(_, node)| node.locks == 0) {
            tiers.put(node.refs.tier(), node.pages.len());
            if node.parent.is_some() && node.children.is_empty() {
                tiers.leaves_mut(node.refs.tier()).insert(self.eviction_key(id));
            }
        }
        ensure!(tiers.pages == self.tiers.pages, "cached pages are counted", "{tiers:?}, listed {:?}", self.tiers);
        ensure!(tiers == self.tiers, "the unlocked leaves are evictable", "{tiers:?}, listed {:?}", self.tiers);
        Ok(())
    }
}
