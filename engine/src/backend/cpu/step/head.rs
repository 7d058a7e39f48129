//! What a step leaves for the draft head.

use crate::ids::TokenId;
use crate::step::SampleRow;
use std::sync::Arc;

/// What a step's pieces leave for the draft head.
#[derive(Default)]
pub(crate) struct HeadOutputs {
    pub(crate) pieces: Vec<BackfillPiece>,
    /// Rows behind which the state is kept, and where, as if it were a slot.
    pub(crate) exports: Vec<(usize, usize)>,
    pub(crate) requests: Vec<GuessRequest>,
}

/// The rows of a piece, whose keys and values the draft head computes at once or later.
pub(crate) struct BackfillPiece {
    pub(crate) slot: usize,
    pub(crate) first_row: usize,
    /// Rows that count whatever is sampled.
    pub(crate) certain: usize,
    pub(crate) start: usize,
    /// The rows' tokens where the head reads them later.
    pub(crate) late: Option<Vec<TokenId>>,
}

/// A piece that asks for guesses.
pub(crate) struct GuessRequest {
    pub(crate) slot: usize,
    pub(crate) pages: Vec<usize>,
    /// Position of its last row that counts whatever is sampled.
    pub(crate) position: u32,
    /// How that row is sampled.
    pub(crate) row: SampleRow,
    pub(crate) guesses: u32,
    /// Ids behind which nothing is guessed.
    pub(crate) ends: Arc<[TokenId]>,
}
