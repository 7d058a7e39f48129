//! Which entry goes first when room is short: GreedyDual.
//!
//! `priority = clock + worth`, and the clock is the priority of the last that went, so that what is never wanted again
//! ages. Each tier has an order of its own.

use super::prompts::NodeId;
use std::collections::BTreeSet;

/// The entries of a tier, those that are worth least first.
#[derive(Debug, Default)]
pub(crate) struct EvictionOrder {
    /// Priorities are not negative, so their bits are in order.
    entries: BTreeSet<(u64, NodeId)>,
    clock: f64,
}

/// Where an entry stands in an [`EvictionOrder`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Priority(f64);

impl EvictionOrder {
    /// Puts an entry in.
    pub(crate) fn enter(&mut self, node: NodeId, worth: f64) -> Priority {
        let priority = Priority(self.clock + worth);
        self.entries.insert((priority.0.to_bits(), node));
        priority
    }

    /// Takes an entry out.
    pub(crate) fn leave(&mut self, node: NodeId, priority: Priority) {
        let was_in = self.entries.remove(&(priority.0.to_bits(), node));
        assert!(was_in, "{node:?} has a priority and no place");
    }

    /// Gives an entry a new place; without worth it is the next to go.
    pub(crate) fn renew(&mut self, node: NodeId, priority: &mut Priority, worth: f64) {
        self.leave(node, *priority);
        *priority = self.enter(node, worth);
    }

    /// An entry of this priority was given up for others: what stays has to be worth more from now on.
    pub(crate) fn age(&mut self, priority: Priority) {
        self.clock = self.clock.max(priority.0);
    }

    /// Those that are worth least first.
    pub(crate) fn ascending(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.entries.iter().map(|(_, node)| *node)
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }
}
