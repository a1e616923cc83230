//! Eviction: which page goes next. Lesser tiers first, and none above what the taker may reach; inside a tier older
//! weights first, then the least recently used leaf.

use super::tier::Tier;
use super::{EvictionKey, FlushPolicy, NodeId, Residency};
use crate::ids::Version;

impl Residency {
    /// Frees up to `pages` cached pages of tiers up to `reach`. A leaf is cut from its end: what is left of it is still
    /// a usable prefix.
    pub(super) fn evict(&mut self, mut pages: u32, reach: Tier) {
        while pages > 0 {
            let Some((tier, key)) = self.tiers.first(reach) else { return };
            self.visits += 1;
            let leaf = key.2;
            let node = &self.tree[leaf];
            let take = pages.min(node.pages.len() as u32);
            pages -= take;
            self.shared_by_high -= node.refs.high_sharers() * u64::from(take);
            self.tiers.take(tier, take as usize);
            if take as usize == node.pages.len() {
                self.tiers.leaves_mut(tier).remove(&key);
                self.remove_leaf(leaf);
            } else {
                self.tree.cut(leaf, take as usize, &mut self.free);
            }
        }
    }

    fn remove_leaf(&mut self, leaf: NodeId) {
        let version = self.tree[leaf].version;
        let (parent, ends) = self.tree.remove(leaf, &mut self.free);
        // The parent counts them already. Each move is paid for by the walk that put the reference so deep.
        for trajectory in ends {
            self.references.get_mut(&trajectory).expect("references end where they say").at = parent;
            self.tree[parent].ends.insert(trajectory);
        }
        self.note_leaf(parent);
        self.drop_if_empty(version);
    }

    /// A node is no longer locked: its pages are cached.
    pub(super) fn note_unlocked(&mut self, id: NodeId) {
        let node = &self.tree[id];
        self.tiers.put(node.refs.tier(), node.pages.len());
        self.note_leaf(id);
    }

    /// A node is about to be locked: its pages are not cached any more.
    pub(super) fn note_locking(&mut self, id: NodeId) {
        let (tier, key) = (self.tree[id].refs.tier(), self.eviction_key(id));
        self.tiers.take(tier, self.tree[id].pages.len());
        self.tiers.leaves_mut(tier).remove(&key);
    }

    /// The counters of a node changed.
    pub(super) fn move_tier(&mut self, id: NodeId, old: Tier, new: Tier) {
        let node = &self.tree[id];
        if old == new || node.locks > 0 {
            return;
        }
        let (pages, key) = (node.pages.len(), self.eviction_key(id));
        self.tiers.take(old, pages);
        self.tiers.put(new, pages);
        if self.tiers.leaves_mut(old).remove(&key) {
            self.tiers.leaves_mut(new).insert(key);
        }
    }

    /// Lists `id` as evictable if it became an unlocked leaf.
    fn note_leaf(&mut self, id: NodeId) {
        let node = &self.tree[id];
        if node.locks == 0 && node.children.is_empty() && node.parent.is_some() {
            let (tier, key) = (node.refs.tier(), self.eviction_key(id));
            self.tiers.leaves_mut(tier).insert(key);
        }
    }

    pub(super) fn eviction_key(&self, id: NodeId) -> EvictionKey {
        let node = &self.tree[id];
        (self.namespaces[&node.version].epoch, node.used, id)
    }

    /// Forgets a version that is not current and has no pages left.
    pub(super) fn drop_if_empty(&mut self, version: Version) {
        let Some(root) = self.namespaces.get(&version).map(|namespace| namespace.root) else { return };
        let node = &self.tree[root];
        if version != self.current && node.children.is_empty() && node.locks == 0 {
            self.tree.remove_root(root);
            self.namespaces.remove(&version);
        }
    }

    /// Nothing refers to pages of other weights than the current, so they are all in the least tier.
    pub(super) fn flush_stale(&mut self) {
        if self.policy == FlushPolicy::Keep {
            return;
        }
        let current = self.epoch();
        while let Some(&(epoch, _, leaf)) = self.tiers.leaves(Tier::Unused).first()
            && epoch < current
        {
            self.evict(self.tree[leaf].pages.len() as u32, Tier::Unused);
        }
    }
}
