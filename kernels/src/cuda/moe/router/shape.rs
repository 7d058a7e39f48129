//! The shape of a layer's router, the orders in which sums are taken, and how rows and experts are cut up for each.

use super::NAME;
use crate::cuda::CudaError;
use crate::cuda::rows::check_cols;

/// Longest row: what a thread of the few-rows kernel can hold.
const COLS_MAX: usize = 8192;
/// Most experts: two for each thread that groups.
const EXPERTS_MAX: usize = 512;
/// Most experts of a row: a lane each.
pub(super) const USED_MAX: usize = 32;

// As in the source.
const STEP: usize = 32;
const SEGMENTS_MAX: usize = 16;
pub(super) const CHUNK: usize = 2048;
/// Rows of a block of each of the three kernels of [`Variant::Ordered`].
pub(super) const ORDERED_ROWS: [usize; 3] = [16, 32, 64];
/// Bytes of shared memory that a block may have on every device that is served.
pub(super) const ORDERED_BYTES_MAX: usize = 99 << 10;
/// Rows of a block of [`Variant::Prompts`].
pub(super) const PROMPT_ROWS: usize = 64;
/// Steps of a prompt's rows that are on their way, and stages of shared memory.
const PROMPT_AHEAD: usize = 4;
const PROMPT_STAGES: usize = 4;
/// Parts that a row's sums come in where they have one order.
pub(super) const SCORE_PARTS: usize = 8;

/// Up to so many rows the few-rows kernel is the faster one.
const FEW_ROWS: usize = 16;
/// Most rows that the few-rows kernel takes: the largest step of decoding.
pub const FEW_ROWS_MAX: usize = 256;
/// Rows that one block groups beside the choice.
pub const GROUPED_ROWS: usize = 256;
/// From so many rows on, tiles alone fill the device, and the sums of segments need not be stored.
pub(super) const WHOLE_ROWS: usize = 2560;

/// The shape of a layer's router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouterShape {
    /// Values of a row.
    pub cols: usize,
    /// Experts to choose from.
    pub experts: usize,
    /// Experts of a row.
    pub used: usize,
    /// Whether they are chosen by sigmoids with biases, and weighed by the sigmoids; else by softmax.
    pub sigmoid: bool,
}

/// The order in which a row's sums are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Weights in registers, a row after another, up to [`FEW_ROWS_MAX`]; selects and groups in the same launch.
    Few,
    /// On tensor cores, for any number of rows.
    Tiled,
    /// The sums of [`Variant::Few`], bit for bit, for many rows.
    Ordered,
    /// On the matrix instructions of warpgroups, for any number of rows, of which it wants many: see
    /// [`super::Router::for_prompts`].
    Prompts,
}

/// The faster one for `rows` decode rows of those that have one order of sums, which the experts' own launch has too.
pub fn decode_variant(rows: usize) -> Variant {
    if rows <= FEW_ROWS { Variant::Few } else { Variant::Ordered }
}

impl RouterShape {
    pub(super) fn check(&self) -> Result<(), CudaError> {
        check_cols(NAME, self.cols, COLS_MAX)?;
        let RouterShape { experts, used, .. } = *self;
        if experts == 0 || experts > EXPERTS_MAX || used == 0 || used > USED_MAX.min(experts) {
            let text = format!("{used} of {experts} experts: must be 1 to {USED_MAX} of at most {EXPERTS_MAX}");
            return Err(CudaError::shape(NAME, text));
        }
        Ok(())
    }

    /// Scores from one row to the next: one an expert, the shared gate's, and what aligns them.
    pub(super) fn stride(&self) -> usize {
        (self.experts + 1).next_multiple_of(8)
    }

    /// Parts that a row's sums come in, of whole steps each.
    pub(super) fn segments(&self) -> usize {
        let steps = self.cols / STEP;
        steps.div_ceil(steps.div_ceil(SEGMENTS_MAX))
    }

    /// Sums of each score that are stored.
    pub(super) fn stored(&self, variant: Variant, rows: usize) -> usize {
        match variant {
            Variant::Few => 1,
            Variant::Ordered => SCORE_PARTS,
            Variant::Tiled | Variant::Prompts if rows >= WHOLE_ROWS => 1,
            Variant::Tiled | Variant::Prompts => self.segments(),
        }
    }

    /// Vectors of a row that a lane of a part has.
    pub(super) fn vectors(&self) -> usize {
        (self.cols / 4).div_ceil(SCORE_PARTS * 32)
    }

    /// Experts of a block of [`Variant::Ordered`].
    pub(super) fn ordered_columns(&self) -> usize {
        match self.vectors() {
            ..=2 => 32,
            3..=4 => 16,
            _ => 8,
        }
    }

    /// Shared memory of such a block with so many rows.
    pub(super) fn ordered_bytes(&self, rows: usize) -> usize {
        (rows + self.ordered_columns()) * (self.vectors() * 128 + 4) * 4
    }

    /// Which of [`ORDERED_ROWS`] serves `n` rows, as measured; the most of those that have room.
    pub(super) fn ordered_kernel(&self, n: usize) -> usize {
        let wanted = usize::from(n > 32) + usize::from(n > 128);
        (0..=wanted).rev().find(|i| self.ordered_bytes(ORDERED_ROWS[*i]) <= ORDERED_BYTES_MAX).unwrap_or(0)
    }

    /// Experts of a block of [`Variant::Prompts`].
    pub(super) fn prompt_columns(&self) -> usize {
        match self.experts {
            ..=64 => 64,
            65..=128 => 128,
            _ => 256,
        }
    }

    /// Threads of such a block: a warpgroup for 64 or 128 experts.
    pub(super) fn prompt_threads(&self) -> u32 {
        128 * self.prompt_columns().div_ceil(128) as u32
    }

    /// Shared memory of such a block: stages of 128 bytes a row, and rows on their way.
    pub(super) fn prompt_bytes(&self) -> usize {
        128 * (PROMPT_STAGES * (PROMPT_ROWS + self.prompt_columns()) + PROMPT_AHEAD * PROMPT_ROWS)
    }

    /// Pairs of halves that a layer's weights are split into, of whole tiles of experts.
    pub(super) fn halves(&self) -> usize {
        self.experts.next_multiple_of(self.prompt_columns()) * self.cols
    }

    pub(super) fn chunks(&self, rows: usize) -> usize {
        (rows * self.used).div_ceil(CHUNK)
    }
}
