//! Scores of rows of which no block has all experts: by tiles of rows and experts, on tensor cores or in the order of
//! the kernel for few rows.

use super::operands::{LayerWeights, RouterRows};
use super::shape::{GROUPED_ROWS, ORDERED_ROWS, PROMPT_ROWS, SCORE_PARTS, WHOLE_ROWS};
use super::workspace::Workspace;
use super::{Arguments, NAME, Router, THREADS};
use crate::cuda::rows::fits;
use crate::cuda::runtime::arguments::{Ptr, PtrMut};
use crate::cuda::{CudaError, Device, Grid, Kernel};

// As in the source.
pub(super) const TILED_THREADS: u32 = 128;
const ORDERED_THREADS: u32 = 256;

/// Rows and experts of a block of each kernel of tiles that stores segments.
pub(super) const TILES: [(usize, usize); 3] = [(32, 32), (64, 32), WHOLE_TILE];
/// Rows and experts of a block that goes over all segments itself.
const WHOLE_TILE: (usize, usize) = (64, 64);

/// Up to so many rows tiles are of 32 rows and 32 experts, and of 64 and 32, as measured.
const SMALL_ROWS: usize = 128;
const NARROW_ROWS: usize = 256;
/// Blocks of tiles that a multiprocessor has room for with all the registers that they want.
pub(super) const FEW_BLOCKS: usize = 3;
/// Blocks that score few rows, of a multiprocessor: multiprocessors come free one after another as the launch before
/// ends, and the first would get as many as they have room for, five, and the last none.
pub(super) const SPREAD_BLOCKS: usize = 2;

impl Router {
    /// What scores need; zeros elsewhere.
    pub(super) fn score_arguments(
        &self,
        device: &Device,
        work: &mut Workspace,
        rows: RouterRows<'_>,
        layer: LayerWeights<'_>,
    ) -> Result<Arguments, CudaError> {
        let (shape, n, stream) = (self.shape, rows.count, device.stream());
        fits(NAME, "slots", rows.slots.len(), n)?;
        fits(NAME, "x", rows.x.len(), n * shape.cols)?;
        fits(NAME, "squares", rows.squares.len(), n * shape.cols / 32)?;
        layer.check(NAME, shape.experts, shape.cols, shape.sigmoid)?;
        fits(NAME, "the workspace", work.scores.len(), n * shape.stride())?;
        Ok(Arguments {
            x: Ptr::of(rows.x, stream),
            squares: Ptr::of(rows.squares, stream),
            norm: Ptr::of(layer.norm, stream),
            weights: Ptr::of(layer.experts, stream),
            shared_gate: Ptr::of(layer.shared_gate, stream),
            bias: Ptr::of_some(layer.bias, stream),
            slots: Ptr::of(rows.slots, stream),
            scores: PtrMut::of(&mut work.scores, stream),
            rows: n as i32,
            segments: 1,
            eps: layer.eps,
            ..Arguments::default()
        })
    }

    /// What scores `n` rows by tiles, and how many blocks of experts, and of rows and segments.
    pub(super) fn tiled_kernel(&self, n: usize, segments: usize) -> (&Kernel<Arguments>, (usize, usize)) {
        let tiles = |(rows, columns)| (self.shape.experts.div_ceil(columns), n.div_ceil(rows) * segments);
        if n >= WHOLE_ROWS {
            return (&self.whole, tiles(WHOLE_TILE));
        }
        let i = usize::from(n > SMALL_ROWS) + usize::from(n > NARROW_ROWS);
        let (x, y) = tiles(TILES[i]);
        if i == 0 && x * y <= SPREAD_BLOCKS * self.multiprocessors {
            return (&self.spread, (x, y));
        }
        let crowded = n > NARROW_ROWS && x * y > FEW_BLOCKS * self.multiprocessors;
        (if crowded { &self.crowded } else { &self.tiled[i] }, (x, y))
    }

    pub(super) fn enqueue_prompts(
        &self,
        device: &Device,
        segments: usize,
        arguments: &Arguments,
    ) -> Result<(), CudaError> {
        let Some([split, of_segment, whole]) = &self.prompts else {
            let what = format!("{} has no matrix instructions of warpgroups", device.arch());
            return Err(CudaError::shape(NAME, what));
        };
        let (n, columns) = (arguments.rows as usize, self.shape.prompt_columns());
        let (x, y) = (self.shape.experts.div_ceil(columns), n.div_ceil(PROMPT_ROWS) * segments);
        let vectors = self.shape.halves() / 4;
        let grid = Grid { blocks: (vectors.div_ceil(THREADS as usize) as u32, 1), threads: THREADS };
        self.enqueue(device, split, grid, arguments)?;
        let grid = Grid { blocks: (x as u32, y as u32), threads: self.shape.prompt_threads() };
        self.enqueue(device, if n >= WHOLE_ROWS { whole } else { of_segment }, grid, arguments)?;
        self.enqueue_choice(device, n, arguments)
    }

    /// Scores and the choice: of decode rows, whose lists have a place for each expert, in one launch with a block more
    /// for each row.
    pub(super) fn enqueue_ordered(&self, device: &Device, arguments: &Arguments) -> Result<(), CudaError> {
        let n = arguments.rows as usize;
        let kernel = self.shape.ordered_kernel(n);
        let x = self.shape.experts.div_ceil(self.shape.ordered_columns());
        let scoring = n.div_ceil(ORDERED_ROWS[kernel]) * SCORE_PARTS;
        let together = n <= GROUPED_ROWS && (arguments.groups.address() == 0 || arguments.pitch != 0);
        let choosing = if together { n.div_ceil(x) } else { 0 };
        let grid = Grid { blocks: (x as u32, (scoring + choosing) as u32), threads: ORDERED_THREADS };
        self.enqueue(device, &self.ordered[kernel], grid, arguments)?;
        if together { Ok(()) } else { self.enqueue_choice(device, n, arguments) }
    }
}
