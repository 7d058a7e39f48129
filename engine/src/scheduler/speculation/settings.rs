//! Whether and how a scheduler drafts, and how many drafts it has had verified.

use crate::drafts::{ByDraftCount, ByPlace, DraftKind, DraftKinds, DraftMode};
use crate::step::DraftRoom;

/// Whether and how a scheduler drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftSettings {
    /// How many tokens are drafted.
    pub mode: DraftMode,
    /// The kinds of sources that are asked for guesses.
    pub kinds: DraftKinds,
    /// What the backend takes.
    pub room: DraftRoom,
}

impl DraftSettings {
    /// Whether outputs of which a grammar leaves no choice are drafted.
    pub(super) fn drafts_grammars(&self) -> bool {
        self.kinds.contains(DraftKind::Grammar)
    }

    /// Whether the backend has a draft head and its guesses are wanted.
    pub(super) fn drafts_by_head(&self) -> bool {
        self.room.guesses && self.kinds.have_head()
    }
}

/// What was drafted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftTotals {
    /// Drafted tokens, by kind in the order of [`DraftKind::ALL`].
    pub drafted: [u64; DraftKind::ALL.len()],
    /// Accepted ones, by kind and by their place behind the sequence's own token, from 0.
    pub accepted: [ByPlace<u64>; DraftKind::ALL.len()],
    /// Pieces with drafts, by kind.
    pub pieces: [u64; DraftKind::ALL.len()],
    /// Decode rows by how many drafts stood behind them.
    pub rows: ByDraftCount<u64>,
    /// Sources that panicked and were switched off.
    pub lost: u64,
}
