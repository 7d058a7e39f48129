//! A tree of the prompts that were read lately, in units of [`CHUNK_TOKENS`] tokens: which beginnings they share.
//!
//! Two prompts share a node if they are of one scope and equal up to its end. A unit is found by a hash and then
//! compared token for token, with everything before it: two prompts never pass for one another.

use crate::CHUNK_TOKENS;
use crate::ids::{CacheScope, TokenId};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Nodes that are remembered, some 300 bytes each, before room is made. Those of the longest unread prompts go first;
/// where most are kept it may become a third more than these.
pub(crate) const NODES_MAX: usize = 1 << 16;

/// A node of the tree; of another one once this one is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(u32);

#[derive(Debug)]
struct Node<T> {
    scope: CacheScope,
    parent: Option<NodeId>,
    /// Of its unit behind all before it.
    hash: u64,
    /// Units up to its end.
    depth: u32,
    tokens: Box<[TokenId]>,
    children: u32,
    /// When a prompt last went through it.
    read: u64,
    value: T,
}

/// See the module. `T` is what is kept at a node; one that keeps something is never forgotten.
#[derive(Debug)]
pub(crate) struct Prompts<T> {
    nodes: Vec<Option<Node<T>>>,
    free: Vec<NodeId>,
    index: HashMap<u64, NodeId>,
    reads: u64,
    /// Places for nodes at which room is made: more than there are where the last time brought little.
    full_at: usize,
}

impl<T: Default + NodeValue> Default for Prompts<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), index: HashMap::new(), reads: 0, full_at: NODES_MAX }
    }
}

/// Whether a node's value must stay.
pub(crate) trait NodeValue {
    /// It may not be forgotten.
    fn is_kept(&self) -> bool;
}

impl<T: Default + NodeValue> Prompts<T> {
    /// The nodes along the beginning of a prompt, as far as they are known.
    pub(crate) fn path<'a>(&'a self, scope: CacheScope, tokens: &'a [TokenId]) -> impl Iterator<Item = NodeId> + 'a {
        let mut parent = None;
        tokens.chunks_exact(CHUNK_TOKENS as usize).map_while(move |unit| {
            parent = self.child(scope, parent, unit);
            parent
        })
    }

    /// Notes that a prompt was read: nodes for all its whole units. Returns the last of them, and how many units were
    /// known before.
    pub(crate) fn read(&mut self, scope: CacheScope, tokens: &[TokenId]) -> (Option<NodeId>, u32) {
        self.reads += 1;
        let (mut parent, mut known) = (None, 0);
        for unit in tokens.chunks_exact(CHUNK_TOKENS as usize) {
            let node = match self.child(scope, parent, unit) {
                Some(node) => {
                    known += 1;
                    node
                }
                None => self.add(scope, parent, unit),
            };
            self.node_mut(node).read = self.reads;
            parent = Some(node);
        }
        (parent, known)
    }

    /// Units up to a node's end.
    pub(crate) fn depth(&self, node: NodeId) -> u32 {
        self.node(node).depth
    }

    /// Hash of its scope and of all tokens up to its end.
    pub(crate) fn hash(&self, node: NodeId) -> u64 {
        self.node(node).hash
    }

    /// The tokens of its unit.
    pub(crate) fn tokens(&self, node: NodeId) -> &[TokenId] {
        &self.node(node).tokens
    }

    fn hash_behind(&self, scope: CacheScope, parent: Option<NodeId>, unit: &[TokenId]) -> u64 {
        unit_hash(scope, parent.map(|parent| self.hash(parent)), unit)
    }

    /// The node before it; `None` for a prompt's first unit.
    pub(crate) fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.node(node).parent
    }

    /// Do prompts part behind it?
    pub(crate) fn parts(&self, node: NodeId) -> bool {
        self.node(node).children > 1
    }

    /// From a node back to the first unit.
    pub(crate) fn up(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(Some(node), |node| self.parent(*node))
    }

    /// What is kept at a node.
    pub(crate) fn get(&self, node: NodeId) -> &T {
        &self.node(node).value
    }

    /// Mutable access to the value at a node.
    pub(crate) fn get_mut(&mut self, node: NodeId) -> &mut T {
        &mut self.node_mut(node).value
    }

    /// Iterates over the nodes of the tree.
    #[cfg(test)]
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..).map(NodeId).zip(&self.nodes).filter(|(_, node)| node.is_some()).map(|(id, _)| id)
    }

    fn node(&self, id: NodeId) -> &Node<T> {
        self.nodes[id.0 as usize].as_ref().expect("a node that is named is there")
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node<T> {
        self.nodes[id.0 as usize].as_mut().expect("a node that is named is there")
    }

    fn child(&self, scope: CacheScope, parent: Option<NodeId>, unit: &[TokenId]) -> Option<NodeId> {
        let id = *self.index.get(&self.hash_behind(scope, parent, unit))?;
        let node = self.node(id);
        (node.scope == scope && node.parent == parent && *node.tokens == *unit).then_some(id)
    }

    fn add(&mut self, scope: CacheScope, parent: Option<NodeId>, unit: &[TokenId]) -> NodeId {
        let depth = parent.map_or(0, |parent| self.depth(parent)) + 1;
        if let Some(parent) = parent {
            // It is read now, so that making room does not forget it.
            let reads = self.reads;
            let parent = self.node_mut(parent);
            (parent.children, parent.read) = (parent.children + 1, reads);
        }
        if self.free.is_empty() && self.nodes.len() >= self.full_at {
            self.forget_some();
        }
        let (hash, read) = (self.hash_behind(scope, parent, unit), self.reads);
        let node = Node { scope, parent, hash, depth, tokens: unit.into(), children: 0, read, value: T::default() };
        let id = self.free.pop().unwrap_or(NodeId(self.nodes.len() as u32));
        match self.nodes.get_mut(id.0 as usize) {
            Some(place) => *place = Some(node),
            None => self.nodes.push(Some(node)),
        }
        // Of two units with one hash the later is found; the other is as one that was never read.
        self.index.insert(hash, id);
        id
    }

    /// Forgets the prompts that were not read for longest, from their ends on: a quarter of all nodes, if so many may
    /// go. One pass over all nodes, once in a quarter as many new ones: those that it could not forget come on top.
    fn forget_some(&mut self) {
        let goal = (self.nodes.len() / 4).max(1);
        let all = self.nodes.iter().enumerate().filter_map(|(i, n)| n.as_ref().map(|n| (n.read, NodeId(i as u32))));
        let mut ends: Vec<_> = all.filter(|(_, id)| self.may_go(*id)).collect();
        ends.sort_unstable();
        let mut forgotten = 0;
        for (_, end) in ends {
            let mut next = Some(end).filter(|_| forgotten < goal);
            while let Some(id) = next {
                forgotten += 1;
                next = self.forget(id).filter(|id| forgotten < goal && self.may_go(*id));
            }
        }
        self.full_at = self.nodes.len() + (goal - forgotten);
    }

    /// Nothing lies behind it, nothing is kept at it, and it is of no prompt that is being read.
    fn may_go(&self, id: NodeId) -> bool {
        let node = self.node(id);
        node.children == 0 && node.read < self.reads && !node.value.is_kept()
    }

    /// Returns the node before it.
    fn forget(&mut self, id: NodeId) -> Option<NodeId> {
        let node = self.nodes[id.0 as usize].take().expect("it was found just now");
        if self.index.get(&node.hash) == Some(&id) {
            self.index.remove(&node.hash);
        }
        if let Some(parent) = node.parent {
            self.node_mut(parent).children -= 1;
        }
        self.free.push(id);
        node.parent
    }
}

/// Hash of a unit of a scope, behind the unit of the hash `before` if it is not a prompt's first. The hasher has a
/// fixed seed, so equal prompts have equal hashes in every run.
pub fn unit_hash(scope: CacheScope, before: Option<u64>, unit: &[TokenId]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (scope, before, unit).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    impl NodeValue for bool {
        fn is_kept(&self) -> bool {
            *self
        }
    }

    const UNIT: usize = CHUNK_TOKENS as usize;

    /// Units that each repeat one token.
    pub(in crate::cache) fn prompt(units: &[u32]) -> Vec<TokenId> {
        units.iter().flat_map(|unit| vec![*unit; UNIT]).collect()
    }

    #[test]
    fn prompts_share_what_they_begin_with_in_whole_units() {
        let (mut prompts, scope) = (Prompts::<bool>::default(), CacheScope(1));
        assert_eq!(prompts.read(scope, &prompt(&[1, 2, 3])).1, 0);
        assert_eq!(prompts.read(scope, &prompt(&[1, 2, 4])).1, 2);
        assert_eq!(prompts.read(scope, &prompt(&[2, 2])).1, 0, "the same unit elsewhere is another");
        assert_eq!(prompts.read(CacheScope(2), &prompt(&[1])).1, 0, "another scope shares nothing");
        assert_eq!(prompts.path(scope, &[prompt(&[1, 2]), vec![3; UNIT - 1]].concat()).count(), 2);
        assert_eq!(prompts.path(scope, &[1; UNIT - 1]).count(), 0);
        let last = prompts.path(scope, &prompt(&[1, 2, 4])).last().unwrap();
        assert_eq!((prompts.depth(last), prompts.up(last).count()), (3, 3));
    }

    #[test]
    fn the_ends_of_old_prompts_are_forgotten_but_not_what_is_kept() {
        let (mut prompts, scope) = (Prompts::<bool>::default(), CacheScope(1));
        let kept = prompts.read(scope, &prompt(&[7, 8])).0.unwrap();
        *prompts.get_mut(kept) = true;
        for number in 0..2 * NODES_MAX as u32 {
            prompts.read(scope, &prompt(&[number + 100]));
        }
        assert!(prompts.nodes().count() <= NODES_MAX);
        assert_eq!(prompts.path(scope, &prompt(&[7, 8])).last(), Some(kept));
        assert_eq!(prompts.path(scope, &prompt(&[100])).count(), 0, "the oldest went");
        assert_eq!(prompts.path(scope, &prompt(&[2 * NODES_MAX as u32 + 99])).count(), 1, "the newest is there");
    }

    #[test]
    fn where_nothing_may_be_forgotten_it_is_not_tried_for_each_new_node() {
        let (mut prompts, scope) = (Prompts::<bool>::default(), CacheScope(1));
        for number in 0..NODES_MAX as u32 {
            let node = prompts.read(scope, &prompt(&[number + 100])).0.unwrap();
            *prompts.get_mut(node) = true;
        }
        prompts.read(scope, &prompt(&[1, 2]));
        assert_eq!(prompts.full_at, NODES_MAX + NODES_MAX / 4);
        for number in 0..2 * NODES_MAX as u32 {
            prompts.read(scope, &prompt(&[number, number]));
        }
        let most = NODES_MAX + NODES_MAX / 3 + 1;
        assert!(prompts.nodes().count() <= most, "what is kept, and a quarter of all beside it");
        assert_eq!(prompts.path(scope, &prompt(&[1, 2])).count(), 0, "the oldest went");
        assert_eq!(prompts.path(scope, &prompt(&[2 * NODES_MAX as u32 - 1])).count(), 1, "the newest is there");
    }

    #[test]
    fn a_prompt_longer_than_the_tree_has_room_for_keeps_its_nodes_together() {
        let (mut prompts, scope) = (Prompts::<bool>::default(), CacheScope(1));
        let long: Vec<u32> = (0..NODES_MAX as u32 + 10).collect();
        let (last, _) = prompts.read(scope, &prompt(&long));
        assert_eq!(prompts.depth(last.unwrap()) as usize, long.len());
        prompts.read(scope, &prompt(&[1 << 20]));
        assert_eq!(prompts.read(scope, &prompt(&[1 << 21])).1, 0);
    }
}
