//! The radix tree itself: nodes, matching, splitting. It knows nothing of eviction or free pages.

use super::PageId;
use super::tier::{RefCount, TierPages};
use crate::ids::{TokenId, TrajectoryId, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

/// Index of a node in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(u32);

impl NodeId {
    pub(super) const MIN: Self = Self(0);
}

/// A run of whole pages. Only roots are empty.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) version: Version,
    pub(super) parent: Option<NodeId>,
    pub(super) tokens: Vec<TokenId>,
    pub(super) pages: Vec<PageId>,
    /// By the tokens of the child's first page: two children never share a whole page.
    pub(super) children: BTreeMap<Box<[TokenId]>, NodeId>,
    /// Running turns whose prefix ends here or below.
    pub(super) locks: u32,
    /// Trajectories whose reference ends here or below.
    pub(super) refs: RefCount,
    /// Those of them whose reference ends here.
    pub(super) ends: BTreeSet<TrajectoryId>,
    /// When it was last used. Never later than its parent's.
    pub(super) used: u64,
}

/// Where a walk ended.
pub(super) struct Walk {
    /// The last node that matched.
    pub(super) node: NodeId,
    /// Pages of that node that matched.
    pub(super) within: usize,
    /// Whether that is all of them.
    pub(super) whole: bool,
    /// Pages matched in all, those of the start not counted.
    pub(super) pages: usize,
    /// Of these, in nodes nobody locks.
    pub(super) cached: TierPages,
}

/// An arena of nodes: several trees, one root a version.
#[derive(Debug)]
pub(super) struct Tree {
    page_size: usize,
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
}

impl Index<NodeId> for Tree {
    type Output = Node;
    fn index(&self, id: NodeId) -> &Node {
        self.nodes[id.0 as usize].as_ref().expect("ids of removed nodes are not kept")
    }
}

impl IndexMut<NodeId> for Tree {
    fn index_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id.0 as usize].as_mut().expect("ids of removed nodes are not kept")
    }
}

impl Tree {
    pub(super) fn new(page_size: usize) -> Self {
        Self { page_size, nodes: Vec::new(), vacant: Vec::new() }
    }

    /// A new, empty tree.
    pub(super) fn root(&mut self, version: Version) -> NodeId {
        self.add(Node {
            version,
            parent: None,
            tokens: Vec::new(),
            pages: Vec::new(),
            children: BTreeMap::new(),
            locks: 0,
            refs: RefCount::default(),
            ends: BTreeSet::new(),
            used: 0,
        })
    }

    /// Follows `tokens` down from the end of `start` as far as whole pages match.
    pub(super) fn walk(&self, start: NodeId, tokens: &[TokenId]) -> Walk {
        let size = self.page_size;
        let (within, cached) = (self[start].pages.len(), TierPages::default());
        let mut walk = Walk { node: start, within, whole: true, pages: 0, cached };
        while walk.whole {
            let rest = &tokens[walk.pages * size..];
            let Some(&child) = rest.get(..size).and_then(|page| self[walk.node].children.get(page)) else { break };
            let node = &self[child];
            let same = node.tokens.chunks_exact(size).zip(rest.chunks_exact(size)).take_while(|(a, b)| a == b).count();
            walk.node = child;
            walk.within = same;
            walk.whole = same == node.pages.len();
            walk.pages += same;
            walk.cached.add(node.refs.tier(), if node.locks == 0 { same } else { 0 });
        }
        walk
    }

    /// The node that ends where the walk ended, made by a split if there is none.
    pub(super) fn boundary(&mut self, walk: &Walk) -> NodeId {
        if walk.whole { walk.node } else { self.split(walk.node, walk.within) }
    }

    /// Cuts a node in two. `id` stays the lower half, so that locks and references which end there still do; returns the
    /// upper half, which has the same counters.
    fn split(&mut self, id: NodeId, pages: usize) -> NodeId {
        let tokens = pages * self.page_size;
        let node = &mut self[id];
        let tail_tokens = node.tokens.split_off(tokens);
        let tail_pages = node.pages.split_off(pages);
        let upper = Node {
            version: node.version,
            parent: node.parent,
            tokens: std::mem::replace(&mut node.tokens, tail_tokens),
            pages: std::mem::replace(&mut node.pages, tail_pages),
            children: BTreeMap::new(),
            locks: node.locks,
            refs: node.refs,
            ends: BTreeSet::new(),
            used: node.used,
        };
        let parent = node.parent.expect("roots are empty and never split");
        let key = self.key(&upper.tokens);
        let lower_key = self.key(&self[id].tokens);
        let upper = self.add(upper);
        self[upper].children.insert(lower_key, id);
        self[id].parent = Some(upper);
        self[parent].children.insert(key, upper);
        upper
    }

    /// Adds pages below `node`, which the caller alone extends, and returns the node that ends with them: `node`
    /// itself where nobody but its owner can tell, so that a trajectory stays one node through all its turns.
    pub(super) fn append(
        &mut self,
        id: NodeId,
        owner: TrajectoryId,
        (tokens, pages): (&[TokenId], &[PageId]),
        used: u64,
    ) -> NodeId {
        let node = &mut self[id];
        let alone = node.locks == 1 && node.ends.iter().all(|&trajectory| trajectory == owner);
        if node.parent.is_some() && alone && node.children.is_empty() {
            node.tokens.extend_from_slice(tokens);
            node.pages.extend_from_slice(pages);
            return id;
        }
        let child = Node {
            version: node.version,
            parent: Some(id),
            tokens: tokens.to_vec(),
            pages: pages.to_vec(),
            children: BTreeMap::new(),
            locks: 1,
            refs: RefCount::default(),
            ends: BTreeSet::new(),
            used,
        };
        let key = self.key(tokens);
        let child = self.add(child);
        self[id].children.insert(key, child);
        child
    }

    /// Drops the last `pages` pages of a leaf, which keeps at least one.
    pub(super) fn cut(&mut self, leaf: NodeId, pages: usize, freed: &mut Vec<PageId>) {
        let size = self.page_size;
        let node = &mut self[leaf];
        freed.extend(node.pages.drain(node.pages.len() - pages..));
        node.tokens.truncate(node.pages.len() * size);
    }

    /// Removes a leaf and returns its parent, and the trajectories whose reference ended at the leaf.
    pub(super) fn remove(&mut self, leaf: NodeId, freed: &mut Vec<PageId>) -> (NodeId, BTreeSet<TrajectoryId>) {
        let node = self.take(leaf);
        freed.extend_from_slice(&node.pages);
        let parent = node.parent.expect("a leaf that is removed is not a root");
        let size = self.page_size;
        self[parent].children.remove(&node.tokens[..size]);
        (parent, node.ends)
    }

    /// Removes an empty tree.
    pub(super) fn remove_root(&mut self, root: NodeId) {
        self.take(root);
    }

    /// Appends the `pages` pages of the path that ends with `node`, root first.
    pub(super) fn copy_path_pages(&self, node: NodeId, pages: usize, table: &mut Vec<PageId>) {
        let from = table.len();
        table.resize(from + pages, 0);
        self.copy_end_pages(node, &mut table[from..]);
    }

    /// Fills `table` with the last pages of the path that ends with `node`.
    pub(super) fn copy_end_pages(&self, node: NodeId, table: &mut [PageId]) {
        let mut end = table.len();
        let mut at = Some(node);
        while let Some(node) = at.filter(|_| end > 0).map(|id| &self[id]) {
            let start = end - node.pages.len();
            table[start..end].copy_from_slice(&node.pages);
            end = start;
            at = node.parent;
        }
    }

    /// All nodes with their ids; for checks only.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().filter_map(|(i, node)| Some((NodeId(i as u32), node.as_ref()?)))
    }

    fn key(&self, tokens: &[TokenId]) -> Box<[TokenId]> {
        tokens[..self.page_size].into()
    }

    fn add(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.vacant.pop() {
            self.nodes[id.0 as usize] = Some(node);
            return id;
        }
        self.nodes.push(Some(node));
        NodeId(self.nodes.len() as u32 - 1)
    }

    fn take(&mut self, id: NodeId) -> Node {
        self.vacant.push(id);
        self.nodes[id.0 as usize].take().expect("ids of removed nodes are not kept")
    }
}
