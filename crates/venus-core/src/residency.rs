//! KV residency: which page holds which tokens, and which page goes next (paper section 2.5, layer B).
//!
//! A radix tree over token ids, one a weight version, whose nodes own whole pages. A turn that starts with tokens the
//! tree knows shares those pages; a turn that ends leaves its pages behind as cache. What is neither free nor held by
//! a running turn is cached, and goes leaf by leaf, least recently used first.
//!
//! **Trajectories refer to the pages they will come back for** while a tool runs ([`Residency::enter`] to
//! [`Residency::leave`]). That makes tiers of what is cached ([`Tier`]): lesser tiers are evicted first, and whoever asks
//! for pages says how far it may reach. Where nobody refers to anything, all is one tier: plain least recently used.
//!
//! **KV is named by the weights that made it.** A prefix made under version `v` is matched only while `v` is current:
//! a cache that survives a weight update under the same name makes log-probabilities drift (lmdeploy#4917,
//! prime-rl#1651). A version names its weights: activating the current version again changes nothing.
//!
//! Nothing here looks at all nodes: matching, locking and referring cost the length of the path, evicting a page O(log n).

mod check;
mod eviction;
mod reference;
mod tier;
mod tree;

use crate::ids::{TokenId, TrajectoryId, Version};
use crate::units::Pages;
use reference::Reference;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tier::Tiers;
use tree::{NodeId, Tree};

pub use check::Holding;
pub(crate) use check::ensure;
pub use reference::Referred;
pub use tier::{ResidencyPolicy, Tier, TierPages};

/// Index of a page in the engine's KV storage.
pub type PageId = u32;

/// What becomes of cached pages when the weights change. Pages of running turns stay in both cases, until the turn ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlushPolicy {
    /// They stay, unmatched, and are the first to go when pages are short. If their version comes back, they match again.
    #[default]
    Keep,
    /// They are freed at once.
    Flush,
}

/// A running turn's hold on the path from a node to its root: no page on it is evicted. Given back by
/// [`Residency::release`]; exactly one turn owns it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lock that is not released keeps its pages for ever"]
pub struct Lock(NodeId);

impl Lock {
    /// Where the locked prefix ends.
    #[must_use]
    pub fn place(&self) -> Place {
        Place(self.0)
    }
}

/// A place in the tree where a prefix ends. Valid while some lock ends there or below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(NodeId);

/// What a look at the tree found. Nothing is changed by looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Pages that can be shared.
    pub pages: u32,
    /// Of these, those that nobody holds now: sharing them takes them out of what can be evicted.
    pub cached: TierPages,
    /// Where the match ended, unless that is inside a node.
    pub place: Option<Place>,
}

/// A broken invariant: what should hold, and what was found instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{invariant}: {found}")]
pub struct Violation {
    /// What should hold.
    pub invariant: &'static str,
    /// What was found instead.
    pub found: String,
}

/// The tree of one weight version.
#[derive(Debug)]
struct Namespace {
    root: NodeId,
    /// Counts activations: a greater epoch is more recent.
    epoch: u64,
}

/// Order of eviction: older namespaces first, then the least recently used leaf.
type EvictionKey = (u64, u64, NodeId);

/// Owner of all pages: free, cached, or held by running turns.
#[derive(Debug)]
pub struct Residency {
    capacity: u32,
    page_size: usize,
    policy: FlushPolicy,
    /// Last in, first out: a page just freed is likeliest to be in the processor's cache.
    free: Vec<PageId>,
    tree: Tree,
    namespaces: BTreeMap<Version, Namespace>,
    current: Version,
    /// What is cached.
    tiers: Tiers,
    references: BTreeMap<TrajectoryId, Reference>,
    /// See [`Residency::shared_by_high`].
    shared_by_high: u64,
    /// See [`Residency::visits`].
    visits: u64,
    /// Counts uses; the order of last use.
    clock: u64,
}

impl Residency {
    /// `pages` pages of `page_size` tokens, all free, with `version` current.
    #[must_use]
    pub fn new(pages: Pages, page_size: u32, policy: FlushPolicy, version: Version) -> Self {
        let page_size = page_size as usize;
        let mut tree = Tree::new(page_size);
        let root = tree.root(version);
        Self {
            capacity: pages.0,
            page_size,
            policy,
            free: (0..pages.0).rev().collect(),
            tree,
            namespaces: BTreeMap::from([(version, Namespace { root, epoch: 0 })]),
            current: version,
            tiers: Tiers::default(),
            references: BTreeMap::new(),
            shared_by_high: 0,
            visits: 0,
            clock: 0,
        }
    }

    /// The version whose pages are matched and made.
    #[must_use]
    pub fn version(&self) -> Version {
        self.current
    }

    /// Which activation is current. A turn that started in another epoch has KV of other weights.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.namespaces[&self.current].epoch
    }

    /// Pages in all.
    #[must_use]
    pub fn capacity(&self) -> Pages {
        Pages(self.capacity)
    }

    /// Pages that hold nothing.
    #[must_use]
    pub fn free(&self) -> Pages {
        Pages(self.free.len() as u32)
    }

    /// Pages held by the tree alone.
    #[must_use]
    pub fn cached(&self) -> Pages {
        Pages(self.tiers.pages.total())
    }

    /// The same by tier. Free, these and locked ones are all there are.
    #[must_use]
    pub fn tiers(&self) -> TierPages {
        self.tiers.pages
    }

    /// Pages held by running turns.
    #[must_use]
    pub fn locked(&self) -> Pages {
        Pages(self.capacity - self.tiers.pages.total() - self.free.len() as u32)
    }

    /// Pages an [`allocate`](Self::allocate) of the same reach can deliver now.
    #[must_use]
    pub fn available(&self, reach: Tier) -> Pages {
        self.free() + Pages(self.tiers.pages.up_to(reach))
    }

    /// Counts what changed the tree; equal means that nothing did.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Nodes locked, released, re-counted or evicted since the start: what changes cost, the logarithm for the ordered
    /// sets apart.
    #[must_use]
    pub fn visits(&self) -> u64 {
        self.visits
    }

    /// Makes `version` current. See [`FlushPolicy`] for what happens to the pages of the others.
    pub fn activate(&mut self, version: Version) {
        if version == self.current {
            return;
        }
        let epoch = self.epoch() + 1;
        let previous = std::mem::replace(&mut self.current, version);
        if let Some(namespace) = self.namespaces.get_mut(&version) {
            // Its leaves are re-ordered: the one walk over a namespace, once a version comes back. Nobody referred to them.
            let stale = std::mem::replace(&mut namespace.epoch, epoch);
            let leaves = self.tiers.leaves_mut(Tier::Unused);
            let old: Vec<_> = leaves.range((stale, 0, NodeId::MIN)..(stale + 1, 0, NodeId::MIN)).copied().collect();
            for (_, used, node) in old {
                leaves.remove(&(stale, used, node));
                leaves.insert((epoch, used, node));
            }
        } else {
            let root = self.tree.root(version);
            self.namespaces.insert(version, Namespace { root, epoch });
        }
        self.refer_to_nothing();
        self.drop_if_empty(previous);
        self.flush_stale();
    }

    /// How much of `tokens` can be shared, in whole pages.
    #[must_use]
    pub fn lookup(&self, tokens: &[TokenId]) -> Found {
        let walk = self.tree.walk(self.root(), tokens);
        let place = walk.whole.then_some(Place(walk.node));
        Found { pages: walk.pages as u32, cached: walk.cached, place }
    }

    /// Locks the longest known prefix of `tokens` and appends its pages to `table`. Splits a node the prefix ends in.
    pub fn acquire(&mut self, tokens: &[TokenId], table: &mut Vec<PageId>) -> Lock {
        let walk = self.tree.walk(self.root(), tokens);
        let node = self.tree.boundary(&walk);
        self.lock_path(node, None);
        self.tree.copy_path_pages(node, walk.pages, table);
        Lock(node)
    }

    /// Appends `pages` pages to `table`, evicting cached ones of tiers up to `reach` as needed. Returns false, and
    /// changes nothing, if fewer are [`available`](Self::available).
    pub fn allocate(&mut self, pages: u32, reach: Tier, table: &mut Vec<PageId>) -> bool {
        if pages > self.available(reach).0 {
            return false;
        }
        self.evict(pages.saturating_sub(self.free.len() as u32), reach);
        table.extend(self.free.drain(self.free.len() - pages as usize..).rev());
        true
    }

    /// Gives private pages of a turn of `owner` to the tree, so that others can share them, and locks them for the turn.
    ///
    /// `table` is the turn's block table cut to `tokens.len() / page_size` pages; its first `held` pages are those `lock`
    /// covers. Where the tree already has the same tokens, `table` gets the tree's page and the turn's own is freed.
    /// If `owner` has a reference, it covers them from now on. The KV of `tokens` must have been made wholly by the current
    /// version.
    pub fn publish(
        &mut self,
        owner: TrajectoryId,
        lock: Lock,
        held: usize,
        tokens: &[TokenId],
        table: &mut [PageId],
    ) -> Lock {
        debug_assert_eq!(tokens.len(), table.len() * self.page_size, "only whole pages are shared");
        let walk = self.tree.walk(lock.0, &tokens[held * self.page_size..]);
        let node = self.tree.boundary(&walk);
        self.lock_path(node, Some(lock.0));
        let known = held + walk.pages;
        self.free.extend_from_slice(&table[held..known]);
        self.tree.copy_end_pages(node, &mut table[held..known]);
        let rest = (&tokens[known * self.page_size..], &table[known..]);
        let end = if rest.1.is_empty() { node } else { self.tree.append(node, owner, rest, self.clock) };
        self.inherit(owner, end);
        Lock(end)
    }

    /// Takes back a turn's hold: what `lock` covers becomes cached (unless others hold it), `private` pages become free.
    pub fn release(&mut self, lock: Lock, private: &[PageId]) {
        self.free.extend_from_slice(private);
        self.clock += 1;
        let mut at = Some(lock.0);
        while let Some(id) = at {
            self.visits += 1;
            let node = &mut self.tree[id];
            node.locks -= 1;
            node.used = self.clock;
            at = node.parent;
            if node.locks == 0 {
                self.note_unlocked(id);
            }
        }
        let version = self.tree[lock.0].version;
        self.drop_if_empty(version);
        self.flush_stale();
    }

    /// Pages that would become available if `lock` were released: those on its path that nobody else holds.
    #[must_use]
    pub fn held_alone(&self, lock: &Lock) -> Pages {
        let mut pages = 0;
        let mut at = Some(lock.0);
        while let Some(node) = at.map(|id| &self.tree[id]).filter(|node| node.locks == 1) {
            pages += node.pages.len() as u32;
            at = node.parent;
        }
        Pages(pages)
    }

    fn root(&self) -> NodeId {
        self.namespaces[&self.current].root
    }

    /// Locks the nodes from `node` up to, but without, `until`, whose path is locked already; all count as used.
    fn lock_path(&mut self, node: NodeId, until: Option<NodeId>) {
        self.clock += 1;
        let mut locked = false;
        let mut at = Some(node);
        while let Some(id) = at {
            locked |= Some(id) == until;
            if !locked && self.tree[id].locks == 0 {
                self.note_locking(id);
            }
            self.visits += 1;
            let node = &mut self.tree[id];
            node.locks += u32::from(!locked);
            node.used = self.clock;
            at = node.parent;
        }
    }
}
