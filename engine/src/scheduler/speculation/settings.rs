//! Whether and how a scheduler drafts, and how many drafts it has had verified.

use crate::drafts::{ByDraftCount, ByPlace, DRAFTS_MAX, DraftKind, DraftKinds};
use crate::step::DraftRoom;

/// How many tokens are drafted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DraftMode {
    /// No token is drafted.
    #[default]
    Off,
    /// As many as should save time.
    Auto,
    /// So many wherever a source has as many, whether it pays or not.
    Fixed(u32),
}

impl DraftMode {
    /// The most drafts behind one token.
    pub(super) fn drafts_max(self) -> u32 {
        let most = DRAFTS_MAX as u32;
        match self {
            Self::Off => 0,
            Self::Auto => most,
            Self::Fixed(n) => n.min(most),
        }
    }
}

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
        self.room.guesses && self.kinds.contains(DraftKind::Mtp)
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
