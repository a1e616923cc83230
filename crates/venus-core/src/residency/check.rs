//! The invariants of residency, checked by looking at everything. For tests, the simulator and debugging.

use super::{Lock, NodeId, PageId, Residency, Violation};
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
    /// Promise 3: free + cached + locked pages = capacity, no page in two places, every lock accounted for by one of
    /// `holdings` (all that there are), and only unlocked leaves evictable.
    pub fn check<'a>(&self, holdings: impl IntoIterator<Item = Holding<'a>>) -> Result<(), Violation> {
        let mut owners: Vec<u32> = vec![0; self.capacity as usize];
        let mut locks: BTreeMap<NodeId, u32> = BTreeMap::new();
        for page in &self.free {
            owners[*page as usize] += 1;
        }
        for holding in holdings {
            for page in holding.private {
                owners[*page as usize] += 1;
            }
            self.check_path(&holding, &mut locks)?;
        }
        self.check_nodes(&mut owners, &locks)?;
        let wrong = owners.iter().position(|&n| n != 1);
        ensure!(wrong.is_none(), "every page is in exactly one place", "page {wrong:?}");
        self.check_evictable()
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
        let mut cached = 0;
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
                let child_node = &self.tree[child];
                let fits = child_node.parent == Some(id) && child_node.tokens.starts_with(key);
                ensure!(fits, "children hang on their parent by their first page", "{child:?} under {id:?}");
                ensure!(child_node.version == node.version, "a tree is of one version", "{child:?}");
                ensure!(child_node.used <= node.used, "a parent is as recent as its child", "{child:?} under {id:?}");
            }
            cached += if node.locks == 0 { node.pages.len() as u32 } else { 0 };
        }
        ensure!(cached == self.cached, "cached pages are counted", "{cached}, counted {}", self.cached);
        Ok(())
    }

    fn check_evictable(&self) -> Result<(), Violation> {
        let mut leaves = 0;
        for (id, node) in self.tree.iter() {
            if node.parent.is_some() && node.locks == 0 && node.children.is_empty() {
                leaves += 1;
                let listed = self.evictable.contains(&self.eviction_key(id));
                ensure!(listed, "every unlocked leaf is evictable", "{id:?} is not listed");
            }
        }
        let listed = self.evictable.len();
        ensure!(listed == leaves, "only unlocked leaves are evictable", "{listed} listed, {leaves} leaves");
        Ok(())
    }
}
