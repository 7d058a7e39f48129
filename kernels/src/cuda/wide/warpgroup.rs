//! The same products for very many rows, in f16 on the matrix instructions of Hopper's warpgroups:
//! `csrc/wide/warpgroup.cu` says how.
//!
//! An output depends on its row of the matrix and its row of activations alone, whatever the tiling and however many
//! rows there are. It is not that of [`super::Wide`], whose sums are of integers.

use super::halves::HalfRows;
use super::tiling::{Chip, SHARED_BYTES_MAX};
use super::{Arguments, Columns, Output, WideShape, Work, fits};
use crate::cuda::arguments::{self, DeviceStruct, Ptr};
use crate::cuda::compiler::source;
use crate::cuda::product::layout::{Codes, TILE_ROWS, UNIT};
use crate::cuda::quantized::{BLOCK, Planes};
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::CudaView;

const NAME: &str = "warpgroup";
/// Tiles of 16 rows that a matrix instruction takes: one a warp.
const GROUP_TILES: usize = 4;
/// Threads of a block that feed the others.
const FEEDING: usize = 128;
/// One is filled while another is in use.
const STAGES_MIN: usize = 2;
const STAGES_MAX: usize = 6;
/// Bytes of a stage's barriers.
const BARRIERS: usize = 16;

/// How a product is cut up. `csrc/wide/warpgroup.cu` says what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiling {
    /// Warpgroups of a block that multiply: 1 or 2.
    pub groups: usize,
    /// Tiles of 16 rows of a warp: 1, or 2 where a block has a multiprocessor to itself.
    pub tiles: usize,
    /// Columns of a block: a multiple of 32 up to 128. Fewer are done by as many instructions for 32 as they take.
    pub columns: usize,
    /// Stages of shared memory.
    pub stages: usize,
}

impl Tiling {
    /// Output rows of a block.
    pub fn block_rows(&self) -> usize {
        TILE_ROWS * GROUP_TILES * self.groups * self.tiles
    }

    fn threads(&self) -> usize {
        32 * GROUP_TILES * self.groups + FEEDING
    }

    /// Dynamic shared memory of a block, as the source lays it out.
    pub fn shared_bytes(&self, shape: WideShape) -> usize {
        let layout = shape.matrix.layout();
        let stage = self.columns * 2 * UNIT + self.block_rows() / TILE_ROWS * layout.unit_bytes();
        let sums = self.columns * (self.block_rows() + 4) * 4;
        let grid = if layout.codes == Codes::Grid { 2048 } else { 0 };
        (self.stages * stage.next_multiple_of(1024)).max(sums) + 12 * self.columns + grid + BARRIERS * self.stages
    }

    /// Whether there is such a kernel for `shape`.
    ///
    /// # Errors
    /// With what does not fit.
    pub fn check(&self, shape: WideShape) -> Result<(), CudaError> {
        let wrong = |what: String| Err(CudaError::shape(NAME, format!("{self:?} of {shape:?}: {what}")));
        let (rows, _) = shape.matrix.size();
        let warps = matches!((self.groups, self.tiles), (1 | 2, 1 | 2) | (4, 1));
        let most = if self.groups == 4 { 96 } else { 128 };
        if !warps || self.columns == 0 || !self.columns.is_multiple_of(32) || self.columns > most {
            return wrong(
                "1, 2 or 4 warpgroups, 1 or 2 tiles a warp and 32 to 128 columns, of four 1 and to 96".into(),
            );
        }
        if shape.matrix.layout().codes == Codes::Word || shape.matrix.planes() != Planes::One {
            return wrong("weights and activations of 16 bits do not fit into f16".into());
        }
        if rows.div_ceil(TILE_ROWS) * TILE_ROWS < self.block_rows() {
            return wrong(format!("{rows} rows are fewer than a block's"));
        }
        if self.stages < STAGES_MIN || self.shared_bytes(shape) > SHARED_BYTES_MAX {
            return wrong(format!("{} bytes of shared memory, at most {SHARED_BYTES_MAX}", self.shared_bytes(shape)));
        }
        Ok(())
    }
}

/// Chosen by the matrix and the columns that are expected beside one another, all of a dense product's or those of one
/// expert; none where the chip or the matrix has no such kernel, or int8 is as fast.
///
/// Measured (docs/kernels/warpgroup.md). An instruction costs some 23 cycles beside those of its columns, so it wants
/// many; but nearly every multiprocessor wants a block.
pub fn tiling(shape: WideShape, columns: usize, chip: Chip) -> Option<Tiling> {
    let (rows, _) = shape.matrix.size();
    if !chip.warpgroups || columns < fewest_columns(shape) {
        return None;
    }
    if !shape.dense {
        let (tiles, columns) = if columns < EXPERT_COLUMNS_LARGE { (1, 64) } else { (2, 128) };
        return within(shape, Tiling { groups: 2, tiles, columns, stages: STAGES_MAX }, ONE_BLOCK);
    }
    let tiles = [(2, 2, 128), (2, 1, 128), (2, 1, 64), (1, 1, 64), (2, 1, 32)];
    let tiles = tiles.into_iter().filter(|t| t.2 <= columns.next_multiple_of(32));
    let of = |(groups, tiles, columns)| Tiling { groups, tiles, columns, stages: STAGES_MAX };
    let blocks = |t: &Tiling| rows.div_ceil(t.block_rows()) * columns.div_ceil(t.columns);
    let enough = chip.multiprocessors * 7 / 10;
    let chosen = tiles.map(of).find(|t| blocks(t) >= enough)?;
    // Where there is more than one block for each multiprocessor, two of them hide each other's beginnings and ends.
    let two = chosen.tiles * chosen.columns <= 64 && blocks(&chosen) > chip.multiprocessors;
    within(shape, chosen, if two { TWO_BLOCKS } else { ONE_BLOCK })
}

/// Columns from which it is faster than int8, with what it takes to make f16 of them.
fn fewest_columns(shape: WideShape) -> usize {
    match (shape.dense, shape.matrix.size().0) {
        (false, _) => 32,
        (true, VERY_MANY_ROWS..) => 17,
        (true, _) => 96,
    }
}

/// `t` with as many stages as `limit` bytes of shared memory hold.
fn within(shape: WideShape, t: Tiling, limit: usize) -> Option<Tiling> {
    let stages = |stages| Tiling { stages, ..t };
    (STAGES_MIN..=STAGES_MAX).rev().map(stages).find(|t| t.check(shape).is_ok() && t.shared_bytes(shape) <= limit)
}

/// Shared memory of a block that has a multiprocessor to itself, and of one that shares it with another.
const ONE_BLOCK: usize = SHARED_BYTES_MAX;
const TWO_BLOCKS: usize = 113 << 10;
/// From so many columns an expert on, a block does all of them at once.
const EXPERT_COLUMNS_LARGE: usize = 48;
/// Rows of a head, whose product is worth it from few columns on.
const VERY_MANY_ROWS: usize = 1 << 16;

/// The program of a shape.
///
/// # Errors
/// If there is no such tiling for it.
pub fn program(shape: WideShape, tiling: Tiling) -> Result<Program, CudaError> {
    tiling.check(shape)?;
    let mut defines = shape.defines();
    defines.extend([
        ("LISTED", i64::from(!shape.dense)),
        ("GROUPS", tiling.groups as i64),
        ("TW", tiling.tiles as i64),
        ("C8", (tiling.columns / 8) as i64),
        ("STAGES", tiling.stages as i64),
    ]);
    Ok(Program {
        name: NAME,
        source: source!("wide/warpgroup.cu"),
        arguments: arguments::file(&[Arguments::declaration()]),
        defines,
    })
}

/// Rows of activations.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// `[rows, cols]`.
    pub rows: &'a HalfRows,
    /// `[rows, norm / 32]`, where the shape has a norm.
    pub squares: Option<&'a CudaView<'a, f32>>,
    /// Epsilon of that norm.
    pub eps: f32,
    /// Multiplies every sum.
    pub factor: f32,
}

/// The kernel of one shape and tiling.
#[derive(Debug)]
pub struct Warpgroup {
    shape: WideShape,
    tiling: Tiling,
    kernel: Kernel<Arguments>,
}

impl Warpgroup {
    /// Loads the kernel.
    ///
    /// # Errors
    /// If there is none for the shape or the device, or it cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, shape: WideShape, tiling: Tiling) -> Result<Self, CudaError> {
        if !device.arch().has_warpgroups() {
            let what = format!("{} has no matrix instructions of warpgroups", device.arch());
            return Err(CudaError::shape(NAME, what));
        }
        let module = device.module(cache, &program(shape, tiling)?)?;
        Ok(Self { shape, tiling, kernel: module.kernel(NAME)?.with_shared(tiling.shared_bytes(shape))? })
    }

    /// Enqueues the product, as [`super::Wide::launch`]; columns are listed unless the shape is dense.
    ///
    /// # Errors
    /// If a buffer is too small, the output is not that of the shape's epilogue, or the driver refuses.
    ///
    /// # Safety
    /// As [`super::Wide::launch`].
    pub unsafe fn launch(
        &self,
        device: &Device,
        weights: &CudaView<'_, u8>,
        x: Inputs<'_>,
        columns: Columns<'_>,
        out: Output<'_, '_>,
    ) -> Result<(), CudaError> {
        let (n, size) = (columns.rows(), self.shape.matrix.size());
        if self.shape.dense != matches!(columns, Columns::First(_)) {
            return Err(CudaError::shape(NAME, "columns are listed of several matrices and of no other"));
        }
        x.rows.check(n, size.1)?;
        fits("squares", x.squares.map_or(0, |s| s.len()), n * self.shape.norm / BLOCK, n, size)?;
        let work = Work::of(device, self.shape, weights, columns, out, self.tiling.columns)?;
        let (halves, row_scales) = x.rows.pointers(device);
        let arguments = Arguments {
            halves,
            row_scales,
            half_rows: n as i32,
            squares: Ptr::of_some(x.squares, device.stream()),
            eps: x.eps,
            factor: x.factor,
            ..work.arguments
        };
        if work.column_blocks == 0 {
            return Ok(());
        }
        let (row_blocks, column_blocks) = (size.0.div_ceil(self.tiling.block_rows()) as u32, work.column_blocks as u32);
        let blocks = if self.shape.dense { (column_blocks, row_blocks) } else { (row_blocks, column_blocks) };
        let grid = Grid { blocks, threads: self.tiling.threads() as u32 };
        // SAFETY: every buffer was found large enough for columns that are not listed, the caller vouches for those
        // that are. Before its wait the kernel reads weights only.
        unsafe { self.kernel.launch(device, grid, &arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::product::{self, sample::LAYOUTS};
    use crate::cuda::wide::Epilogue;

    fn shape(layout: usize, rows: usize, cols: usize, planes: Planes) -> WideShape {
        let matrix = product::MatrixShape::new(LAYOUTS[layout], rows, cols).unwrap().with_planes(planes);
        WideShape::new(matrix, Epilogue::Plain, None, true).unwrap()
    }

    #[test]
    fn the_choice_is_legal_and_there_is_none_where_f16_has_too_few_bits() {
        let chip = Chip { multiprocessors: 132, clusters: true, shared_bytes: 227 << 10, warpgroups: true };
        for (i, layout) in LAYOUTS.iter().enumerate() {
            for (rows, cols) in [(1024, 2048), (12416, 2048), (248_320, 2048)] {
                for columns in [128, 512, 4096] {
                    let tiling = tiling(shape(i, rows, cols, Planes::One), columns, chip);
                    let many = rows / 64 * columns / 64 >= 92;
                    assert_eq!(tiling.is_some(), many && layout.codes != Codes::Word, "{layout:?} {rows} x {columns}");
                    tiling.iter().for_each(|t| t.check(shape(i, rows, cols, Planes::One)).unwrap());
                }
                assert_eq!(tiling(shape(i, rows, cols, Planes::One), 16, chip), None, "few columns are int8's");
            }
            assert_eq!(tiling(shape(i, 1024, 2048, Planes::Two), 64, chip), None);
            assert_eq!(tiling(shape(i, 1024, 2048, Planes::One), 64, Chip { warpgroups: false, ..chip }), None);
            assert_eq!(tiling(shape(i, 40, 2048, Planes::One), 64, chip), None, "fewer rows than a block's");
        }
    }
}
