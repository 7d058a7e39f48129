//! Whether and how a scheduler drafts, and how many drafts it has had verified.

use crate::drafts::{DRAFTS_MAX, DraftKind, DraftKinds};
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

/// What was drafted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftTotals {
    /// Drafted tokens, by kind in the order of [`DraftKind::ALL`].
    pub drafted: [u64; DraftKind::ALL.len()],
    /// Accepted ones, by kind and by their place behind the sequence's own token, from 0.
    pub accepted: [[u64; DRAFTS_MAX]; DraftKind::ALL.len()],
    /// Pieces with drafts, by kind.
    pub pieces: [u64; DraftKind::ALL.len()],
    /// Decode rows by how many drafts stood behind them.
    pub rows: [u64; DRAFTS_MAX + 1],
    /// Sources that panicked and were switched off.
    pub lost: u64,
}
