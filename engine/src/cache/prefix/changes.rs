//! What changes in the prefix cache, for those who are told: routers that choose an engine by the prompts that it
//! keeps.
//!
//! A unit is told of while an entry at it or further on is kept, because only then can a prompt go on behind it. Where
//! nobody is told, nothing is noted.

use super::PrefixCache;
use crate::cache::Pages;
use crate::cache::prompts::NodeId;
use crate::ids::{StepId, TokenId};

/// A change of what prompts may go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixChange {
    /// These units, one behind the other, are there.
    Stored {
        /// The memory that they lie in.
        tier: CacheTier,
        /// Hash of the unit before the first of them, if it is not the first of its prompt.
        parent: Option<u64>,
        /// The units in order.
        units: Vec<StoredUnit>,
    },
    /// The units of these hashes are there no longer.
    Removed {
        /// The memory that they lay in.
        tier: CacheTier,
        /// Hashes of the units.
        units: Vec<u64>,
    },
}

/// A unit of [`crate::CHUNK_TOKENS`] tokens that prompts begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUnit {
    /// Hash of the scope and of all tokens up to its end.
    pub hash: u64,
    /// The unit's own tokens.
    pub tokens: Box<[TokenId]>,
}

/// Where an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheTier {
    /// In the memory of the device that computes.
    Device,
    /// In the memory of its host.
    Host,
}

/// What a flush did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushedEntries {
    /// Entries that went, each once for each tier where it lay.
    pub flushed: u32,
    /// Entries that stay, likewise: somebody is about to go on from them, or they are being copied.
    pub kept: u32,
}

impl PrefixCache {
    /// Notes changes from now on.
    pub(crate) fn note_changes(&mut self) {
        self.changes = Some(Vec::new());
    }

    /// The changes since the last time.
    pub(crate) fn take_changes(&mut self) -> Vec<PrefixChange> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Prompts with these units are nobody's business: they mean something else than their tokens say.
    pub(crate) fn keep_quiet(&mut self, nodes: &[NodeId]) {
        if self.changes.is_some() {
            for node in nodes.iter().flat_map(|node| self.path_to(*node)).collect::<Vec<_>>() {
                self.prompts.get_mut(node).quiet = true;
            }
        }
    }

    /// Units that are there from now on, from the first to the last of them.
    pub(super) fn note_stored(&mut self, tier: CacheTier, nodes: &[NodeId]) {
        let told = |node: &&NodeId| !self.prompts.get(**node).quiet;
        let (Some(_), Some(first)) = (&self.changes, nodes.first().filter(told)) else { return };
        let parent = self.prompts.parent(*first).map(|parent| self.prompts.hash(parent));
        let unit = |node: &NodeId| {
            let (hash, tokens) = (self.prompts.hash(*node), self.prompts.tokens(*node).into());
            StoredUnit { hash, tokens }
        };
        let stored = PrefixChange::Stored { tier, parent, units: nodes.iter().map(unit).collect() };
        self.changes.get_or_insert_default().push(stored);
    }

    /// Units that are there no longer.
    pub(super) fn note_removed(&mut self, tier: CacheTier, nodes: &[NodeId]) {
        if self.changes.is_none() {
            return;
        }
        let told = nodes.iter().filter(|node| !self.prompts.get(**node).quiet);
        let units: Vec<u64> = told.map(|node| self.prompts.hash(*node)).collect();
        if let Some(changes) = self.changes.as_mut().filter(|_| !units.is_empty()) {
            changes.push(PrefixChange::Removed { tier, units });
        }
    }

    /// Gives up every entry that nobody is about to go on from and that is not being copied. What a running sequence
    /// has of it stays that sequence's.
    pub(crate) fn flush(&mut self, now: StepId, pages: &mut Pages) -> FlushedEntries {
        let here: Vec<_> = self.by_priority().collect();
        for node in &here {
            self.let_go(*node, now, pages);
        }
        let there: Vec<_> = self.host.order.ascending().filter(|node| self.on_host(*node).is_idle()).collect();
        for node in &there {
            self.leave_host(*node);
        }
        let kept = self.order.len() + self.host.order.len();
        FlushedEntries { flushed: (here.len() + there.len()) as u32, kept }
    }
}
