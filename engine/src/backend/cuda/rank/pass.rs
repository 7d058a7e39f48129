//! Rows on their way through the layers: arrays of them in memory of the device.

use crate::backend::cuda::layout::products::RowCount;
use cudarc::driver::{CudaSlice, CudaView};

/// Rows on their way through the layers.
pub(crate) struct Pass<'a> {
    pub(crate) rows: RowCount,
    pub(crate) tokens: CudaView<'a, i32>,
    pub(crate) slots: CudaView<'a, i32>,
    pub(crate) positions: CudaView<'a, i32>,
    pub(crate) prompt_lens: CudaView<'a, i32>,
    /// Positions before a decode row that the stored states lack.
    pub(crate) pending: CudaView<'a, i32>,
    /// Of those how many were drafted rows of the step before.
    pub(crate) drafted: CudaView<'a, i32>,
    pub(crate) cuts: CudaView<'a, i32>,
    /// Decode rows may be drafted, or lack drafted positions.
    pub(crate) drafts: bool,
    /// Rows may have adapters.
    pub(crate) adapted: bool,
    pub(crate) prompts: Option<PromptPieces<'a>>,
}

/// Where the prompts of a prefill begin and end.
#[derive(Clone, Copy)]
pub(crate) struct PromptPieces<'a> {
    /// Pieces of the prompts, `[count, 4]`: slot, position of the first row, number of the first row, rows.
    pub(crate) pieces: &'a CudaView<'a, i32>,
    pub(crate) count: usize,
    /// Tiles of rows that the attention kernel computes together, `[tiles, 2]`.
    pub(crate) tiles: &'a CudaView<'a, i32>,
    pub(crate) tile_count: usize,
    /// By number of a chunk, where the state after it is kept.
    pub(crate) exports: Option<&'a CudaView<'a, i32>>,
}

impl<'a> PromptPieces<'a> {
    /// Prompts of which no state is kept on the way; `counts` are those of pieces and of tiles.
    pub(crate) fn new(
        pieces: &'a CudaView<'a, i32>,
        tiles: &'a CudaView<'a, i32>,
        (count, tile_count): (usize, usize),
    ) -> Self {
        Self { pieces, count, tiles, tile_count, exports: None }
    }
}

impl<'a> Pass<'a> {
    /// `words` holds tokens, slots, positions, prompt lengths, cuts, pending updates and drafted positions of `count`
    /// rows, one array of `room` rows after another; those of a decode pass have drafts if it is so.
    fn new(
        (count, room): (usize, usize),
        words: &'a CudaSlice<i32>,
        drafts: bool,
        prompts: Option<PromptPieces<'a>>,
    ) -> Self {
        let part = |i: usize| words.slice(i * room..i * room + count);
        let rows = RowCount { count, prefill: prompts.is_some() };
        // The cuts are read as pairs, so they stand behind an even number of arrays.
        let (cuts, pending, drafted) = (words.slice(4 * room..4 * room + 2 * count), part(6), part(7));
        let (tokens, slots, positions, prompt_lens) = (part(0), part(1), part(2), part(3));
        Self { rows, tokens, slots, positions, prompt_lens, pending, drafted, cuts, drafts, adapted: false, prompts }
    }

    /// This pass, of rows that may have adapters if it is so.
    pub(crate) fn adapted(self, adapted: bool) -> Self {
        Self { adapted, ..self }
    }

    /// A decode pass of `count` rows.
    pub(crate) fn decode(count: usize, words: &'a CudaSlice<i32>, drafts: bool) -> Self {
        Self::new((count, count), words, drafts, None)
    }

    /// A pass of `count` guesses, whose arrays have `room` for more.
    pub(crate) fn guesses(count: usize, room: usize, words: &'a CudaSlice<i32>) -> Self {
        Self::new((count, room), words, false, None)
    }

    /// A pass of `count` rows that the draft head reads late, computed as those of a prompt are: they are many.
    pub(crate) fn late(count: usize, words: &'a CudaSlice<i32>) -> Self {
        let pass = Self::new((count, count), words, false, None);
        Self { rows: RowCount { count, prefill: true }, ..pass }
    }

    /// A pass of `count` rows of prompts.
    pub(crate) fn prompts(count: usize, words: &'a CudaSlice<i32>, prompts: PromptPieces<'a>) -> Self {
        Self::new((count, count), words, false, Some(prompts))
    }
}
