//! Products of quantised matrices with very many rows, in f16 on the matrix instructions of Hopper's warpgroups:
//! `csrc/wide/warpgroup.cu` says how.
//!
//! An output depends on its row of the matrix and its row of activations alone, whatever the tiling and however many
//! rows there are. It is not that of [`super::Wide`], whose sums are of integers.

use super::halves::HalfRows;
use super::tiling::{Chip, SHARED_BYTES_MAX};
use super::{Arguments, Columns, Epilogue, Output, WideLaunch, WideShape};
use crate::cuda::lora::{Lora, LoraParts};
use crate::cuda::product::layout::{Codes, TILE_ROWS, UNIT};
use crate::cuda::rows::quantized::Planes;
use crate::cuda::runtime::compiler::source;
use crate::cuda::stack::Stack;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};

const NAME: &str = "warpgroup";
const IN_TURNS: &str = "turns";
/// Tiles of 16 rows that a matrix instruction takes: one a warp.
const GROUP_TILES: usize = 4;
/// Threads of a block that feed the others, where columns are not listed.
const FEEDING: usize = 128;
/// One is filled while another is in use, and of listed columns a third may still be.
const STAGES_MIN: usize = 2;
const STAGES_LISTED_MIN: usize = 3;
const STAGES_MAX: usize = 6;
/// Blocks of rows that a block goes through, where a matrix has whole turns of them: the better ones first, as measured
/// where columns stay in shared memory, and where they come anew for each.
const KEPT_TURNS: [usize; 2] = [4, 2];
const TURNS: [usize; 2] = [2, 1];
/// Columns from which blocks are many, so that shorter ones come out more even: a launch of gate and up of 8,192 rows
/// takes 600 to 606 us in one turn and 614 in two, of 2,048 rows 218 and 214.
const MANY_COLUMNS: usize = 128;
/// Bytes of a stage's barriers.
const BARRIERS: usize = 16;

/// How a product is cut up. `csrc/wide/warpgroup.cu` says what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarpgroupTiling {
    /// Warpgroups of a block that multiply: 1 or 2, of dense products 3, of listed columns 4.
    pub groups: usize,
    /// Tiles of 16 rows of a warp: 1, or 2 where a block has a multiprocessor to itself.
    pub tiles: usize,
    /// Columns of a block, up to 128. Fewer are done by instructions for as few as they are, in steps of 32, where
    /// they are listed of a quarter.
    pub columns: usize,
    /// Stages of shared memory.
    pub stages: usize,
    /// Blocks of rows that a block goes through with its columns: `csrc/wide/turns.cu`, for listed columns and four
    /// warpgroups. 0 elsewhere.
    pub turns: usize,
    /// Segments of the inputs with sums of their own, which are added one after another; only of dense products that
    /// can have more than one.
    pub segments: usize,
}

impl WarpgroupTiling {
    /// Output rows of a block.
    pub fn block_rows(&self) -> usize {
        TILE_ROWS * GROUP_TILES * self.groups * self.tiles
    }

    fn name(&self) -> &'static str {
        if self.turns > 0 { IN_TURNS } else { NAME }
    }

    fn threads(&self, dense: bool) -> usize {
        32 * GROUP_TILES * self.groups + if dense { FEEDING } else { 0 }
    }

    /// Whether `shape` can be done in turns: sums are stored as lanes have them.
    fn takes_turns(&self, shape: WideShape) -> bool {
        let whole = shape.matrix.size().0.is_multiple_of(self.block_rows() * self.turns);
        let stored = shape.epilogue == Epilogue::Plain || shape.epilogue == Epilogue::Gated && shape.half_rows;
        !shape.dense && stored && (self.groups, self.tiles, self.columns) == (4, 1, 128) && whole
    }

    /// Whether all inputs of a block's columns stay in shared memory beside weights.
    fn keeps(&self, shape: WideShape) -> bool {
        self.turns > 0 && self.columns * 2 * shape.matrix.size().1 <= KEPT_BYTES_MAX
    }

    /// Blocks of a matrix of so many rows.
    fn row_blocks(&self, rows: usize) -> usize {
        rows.div_ceil(self.block_rows() * self.turns.max(1))
    }

    /// Blocks of a dense product.
    fn blocks(&self, rows: usize, columns: usize) -> usize {
        self.row_blocks(rows) * columns.div_ceil(self.columns)
    }

    /// Whether a thread has the registers for the sums of a segment beside those of all before it.
    fn holds_sums(&self) -> bool {
        self.segments == 1 || self.tiles * self.columns <= 128
    }

    /// Whether two blocks stand on a multiprocessor and hide each other's beginnings and ends.
    fn shares(&self, shape: WideShape, columns: usize, chip: Chip) -> bool {
        self.tiles * self.columns <= 64 && self.blocks(shape.matrix.size().0, columns) > chip.multiprocessors
    }

    /// What a dense product takes about: an instruction 24 cycles and 0.55 a column, a block 7,000 beside its
    /// instructions (docs/internals/kernels/warpgroup.md).
    fn cycles(&self, shape: WideShape, columns: usize, chip: Chip) -> usize {
        let (rows, cols) = shape.matrix.size();
        let instructions = self.groups * self.tiles * cols.div_ceil(16);
        let alone = if self.shares(shape, columns, chip) { 3000 } else { 7000 };
        let turns = self.blocks(rows, columns).div_ceil(chip.multiprocessors);
        turns * (instructions * (240 + 55 * self.columns / 10) / 10 + alone)
    }

    /// Dynamic shared memory of a block, as the source lays it out.
    pub fn shared_bytes(&self, shape: WideShape) -> usize {
        let layout = shape.matrix.layout();
        let (columns, weights) = (self.columns * 2 * UNIT, self.block_rows() / TILE_ROWS * layout.unit_bytes());
        let grid = if layout.codes == Codes::Grid { 2048 } else { 0 };
        let both = self.stages * (columns + weights).next_multiple_of(1024);
        let stages = match self.turns {
            0 => both.max(self.columns * (self.block_rows() + 4) * 4),
            _ if self.keeps(shape) => {
                columns * (shape.matrix.size().1 / UNIT) + self.stages * weights.next_multiple_of(128)
            }
            _ => both,
        };
        stages + 12 * self.columns + grid + BARRIERS * self.stages
    }

    /// Whether there is such a kernel for `shape`.
    ///
    /// # Errors
    /// With what does not fit.
    pub fn check(&self, shape: WideShape) -> Result<(), CudaError> {
        let wrong = |what: String| Err(CudaError::shape(NAME, format!("{self:?} of {shape:?}: {what}")));
        let (rows, _) = shape.matrix.size();
        // Beside those that feed there is no room for four.
        let (warps, columns): (_, &[usize]) = match shape.dense {
            true => (matches!((self.groups, self.tiles), (1 | 2, 1 | 2) | (3, 1)), &[32, 64, 96, 128]),
            false => (matches!((self.groups, self.tiles), (1 | 2, 1 | 2) | (4, 1)), &[32, 64, 128]),
        };
        if !warps || !columns.contains(&self.columns) {
            return wrong(format!(
                "1, 2, dense 3 or listed 4 warpgroups, 1 or 2 tiles a warp, of 3 and 4 one, {columns:?} columns"
            ));
        }
        let units = shape.matrix.size().1 / UNIT;
        if self.segments == 0 || self.segments > units || self.segments > 1 && !(shape.dense && self.holds_sums()) {
            return wrong(format!("1 segment, or of {units} units at most as many where products are dense"));
        }
        if self.turns > 0 && !self.takes_turns(shape) {
            return wrong(
                "turns are whole ones of four warpgroups' rows, for plain outputs or gated rows of f16".into(),
            );
        }
        if shape.half_rows && !shape.may_make_half_rows() {
            return wrong("rows of f16 are whole units of activated values of 8 bits".into());
        }
        if shape.matrix.planes() != Planes::One {
            return wrong("activations of 16 bits do not fit into f16".into());
        }
        if rows.div_ceil(TILE_ROWS) * TILE_ROWS < self.block_rows() {
            return wrong(format!("{rows} rows are fewer than a block's"));
        }
        let fewest = if shape.dense || self.keeps(shape) { STAGES_MIN } else { STAGES_LISTED_MIN };
        if self.stages < fewest || self.shared_bytes(shape) > SHARED_BYTES_MAX {
            let bytes = self.shared_bytes(shape);
            return wrong(format!(
                "{fewest} stages and more, {bytes} bytes of shared memory, at most {SHARED_BYTES_MAX}"
            ));
        }
        Ok(())
    }
}

/// Chosen by the matrix and the columns that are expected beside one another, all of a dense product's or those of one
/// expert; none where the chip or the matrix has no such kernel.
///
/// Measured (docs/internals/kernels/warpgroup.md). An instruction costs some 23 cycles beside those of its columns, so
/// it wants many; but nearly every multiprocessor wants a block.
pub fn tiling(shape: WideShape, columns: usize, chip: Chip) -> Option<WarpgroupTiling> {
    if !chip.warpgroups {
        return None;
    }
    if !shape.dense {
        let many = columns > MANY_COLUMNS;
        let (groups, tiles, columns, limit) = match columns {
            0..=20 => (1, 2, 32, FOUR_BLOCKS),
            21..=48 => (2, 1, 64, TWO_BLOCKS),
            _ => (4, 1, 128, ONE_BLOCK),
        };
        // A narrow expert has fewer rows than such a block, a wide encoding more bytes.
        let smaller = [(groups, tiles), (2, 1), (1, 1)].into_iter().filter(|(g, t)| g * t <= groups * tiles);
        let of_turns = |turns| WarpgroupTiling { groups, tiles, columns, stages: STAGES_MAX, turns, segments: 1 };
        let turns: &[usize] = match (of_turns(1).keeps(shape), many) {
            (true, _) => &KEPT_TURNS,
            (false, true) => &[1],
            (false, false) => &TURNS,
        };
        let in_turns = turns.iter().map(|turns| of_turns(*turns)).filter(|t| t.takes_turns(shape));
        if let Some(in_turns) = in_turns.filter_map(|t| within(shape, t, ONE_BLOCK)).next() {
            return Some(in_turns);
        }
        let all = smaller.flat_map(|of| [limit, THREE_BLOCKS.max(limit), TWO_BLOCKS].map(|limit| (of, limit)));
        let of = |((groups, tiles), limit)| {
            within(shape, WarpgroupTiling { groups, tiles, columns, stages: STAGES_MAX, turns: 0, segments: 1 }, limit)
        };
        return all.into_iter().find_map(of);
    }
    dense_tiling(shape, columns, chip, 1)
}

/// Chooses the tiling of a dense product whose sums are taken in `segments`, as [`Product::in_halves`] takes those of
/// few rows.
///
/// [`Product::in_halves`]: crate::cuda::product::Product::in_halves
pub fn tiling_in(segments: usize, shape: WideShape, columns: usize, chip: Chip) -> Option<WarpgroupTiling> {
    if chip.warpgroups && shape.dense { dense_tiling(shape, columns, chip, segments) } else { None }
}

fn dense_tiling(shape: WideShape, columns: usize, chip: Chip, segments: usize) -> Option<WarpgroupTiling> {
    let tiles = [(2, 2, 128), (3, 1, 128), (2, 1, 128), (2, 1, 64), (1, 1, 64), (2, 1, 32), (1, 1, 32)];
    let tiles = tiles.into_iter().filter(|t| t.2 <= columns.next_multiple_of(32));
    let all = tiles.map(|(groups, tiles, columns)| WarpgroupTiling {
        groups,
        tiles,
        columns,
        stages: STAGES_MAX,
        turns: 0,
        segments,
    });
    let tall = TILE_ROWS * shape.matrix.size().0.div_ceil(TILE_ROWS);
    let all = all.filter(|t| t.block_rows() <= tall && t.holds_sums());
    let chosen = all.min_by_key(|t| t.cycles(shape, columns, chip))?;
    within(shape, chosen, if chosen.shares(shape, columns, chip) { TWO_BLOCKS } else { ONE_BLOCK })
}

/// `t` with as many stages as `limit` bytes of shared memory hold.
fn within(shape: WideShape, t: WarpgroupTiling, limit: usize) -> Option<WarpgroupTiling> {
    let stages = |stages| WarpgroupTiling { stages, ..t };
    (STAGES_MIN..=t.stages).rev().map(stages).find(|t| t.check(shape).is_ok() && t.shared_bytes(shape) <= limit)
}

/// Shared memory of a block that has a multiprocessor to itself, and of those that share one.
const ONE_BLOCK: usize = SHARED_BYTES_MAX;
/// Columns of 512 inputs, which leave room for weights.
const KEPT_BYTES_MAX: usize = 128 << 10;
const TWO_BLOCKS: usize = 113 << 10;
const THREE_BLOCKS: usize = 75 << 10;
const FOUR_BLOCKS: usize = 56 << 10;
/// The program of a shape.
///
/// # Errors
/// If there is no such tiling for it.
pub fn program(shape: WideShape, tiling: WarpgroupTiling) -> Result<Program, CudaError> {
    tiling.check(shape)?;
    let mut defines = shape.defines();
    defines.push(("STAGES", tiling.stages as i64));
    let source = if tiling.turns > 0 {
        defines.extend([("TURNS", tiling.turns as i64), ("KEEP", i64::from(tiling.keeps(shape)))]);
        source!("wide/turns.cu")
    } else {
        let (groups, tiles, columns) = (tiling.groups as i64, tiling.tiles as i64, tiling.columns as i64 / 8);
        let segments = ("HALF_SEGMENTS", tiling.segments as i64);
        defines.extend([("GROUPS", groups), ("TW", tiles), ("C8", columns), segments]);
        source!("wide/warpgroup.cu")
    };
    Ok(Program::naming::<LoraParts, Arguments>(tiling.name(), source, defines))
}

/// Rows of f16 that a product reads, and their factor.
#[derive(Clone, Copy)]
pub struct HalfInputs<'a> {
    /// `[rows, cols]`, with the norm that the shape has.
    pub rows: &'a HalfRows,
    /// Factor of every sum, applied before the epilogue.
    pub factor: f32,
    /// What adapters add, of shapes that have some.
    pub lora: Option<Lora<'a>>,
}

/// The kernel of one shape and tiling.
#[derive(Debug)]
pub struct Warpgroup {
    shape: WideShape,
    tiling: WarpgroupTiling,
    kernel: Kernel<Arguments>,
}

impl Warpgroup {
    /// Loads the kernel.
    ///
    /// # Errors
    /// If there is none for the shape or the device, or it cannot be compiled or loaded.
    pub fn load(
        device: &Device,
        cache: &KernelCache,
        shape: WideShape,
        tiling: WarpgroupTiling,
    ) -> Result<Self, CudaError> {
        if !device.arch().has_warpgroups() {
            let arch = device.arch();
            return Err(CudaError::shape(NAME, format!("{arch} has no matrix instructions of warpgroups")));
        }
        let module = device.module(cache, &program(shape, tiling)?)?;
        Ok(Self { shape, tiling, kernel: module.kernel(tiling.name())?.with_shared(tiling.shared_bytes(shape))? })
    }

    /// What it was made for.
    pub fn shape(&self) -> WideShape {
        self.shape
    }

    /// Enqueues the product, as [`super::Wide::launch`]; columns are listed unless the shape is dense.
    ///
    /// # Errors
    /// If a buffer is too small, the output is not that of the shape's epilogue, or the driver refuses.
    ///
    /// # Safety
    /// As [`super::Wide::launch`].
    pub unsafe fn launch<'a>(
        &self,
        device: &Device,
        weights: impl Into<Stack<'a>>,
        x: HalfInputs<'_>,
        columns: Columns<'_>,
        out: Output<'_, '_>,
    ) -> Result<(), CudaError> {
        let (n, (rows, cols)) = (columns.rows(), self.shape.matrix.size());
        if self.shape.dense != matches!(columns, Columns::First(_)) {
            return Err(CudaError::shape(NAME, "columns are listed of several matrices and of no other"));
        }
        x.rows.check(n, cols)?;
        let work = WideLaunch::of(device, self.shape, &weights.into(), columns, out, self.tiling.columns)?;
        let (halves, row_scales) = x.rows.pointers(device);
        let lora = self.shape.lora(NAME, x.lora, n, device)?;
        let arguments = Arguments { halves, row_scales, lora, half_rows: n as i32, factor: x.factor, ..work.arguments };
        if work.column_blocks == 0 {
            return Ok(());
        }
        let (row_blocks, column_blocks) = (self.tiling.row_blocks(rows) as u32, work.column_blocks as u32);
        let blocks = if self.shape.dense { (column_blocks, row_blocks) } else { (row_blocks, column_blocks) };
        let grid = Grid { blocks, threads: self.tiling.threads(self.shape.dense) as u32 };
        // SAFETY: every buffer was found large enough for columns that are not listed, the caller vouches for those
        // that are. Before its wait the kernel reads weights only.
        unsafe { self.kernel.launch(device, grid, &arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::product::{self, sample::LAYOUTS};

    fn shape(layout: usize, rows: usize, cols: usize, planes: Planes) -> WideShape {
        let matrix = product::MatrixShape::new(LAYOUTS[layout], rows, cols).unwrap().with_planes(planes);
        WideShape::new(matrix, Epilogue::Plain, None, true).unwrap()
    }

    #[test]
    fn the_choice_is_legal_and_there_is_none_for_activations_of_two_planes() {
        let chip = Chip { multiprocessors: 132, clusters: true, shared_bytes: 227 << 10, warpgroups: true };
        for (i, layout) in LAYOUTS.iter().enumerate() {
            for (rows, cols) in [(1024, 2048), (12416, 2048), (248_320, 2048)] {
                for columns in [1, 16, 128, 512, 4096] {
                    let tiling = tiling(shape(i, rows, cols, Planes::One), columns, chip);
                    let tiling = tiling.unwrap_or_else(|| panic!("{layout:?} {rows} x {columns}"));
                    tiling.check(shape(i, rows, cols, Planes::One)).unwrap();
                }
            }
            assert_eq!(tiling(shape(i, 1024, 2048, Planes::Two), 64, chip), None);
            assert_eq!(tiling(shape(i, 1024, 2048, Planes::One), 64, Chip { warpgroups: false, ..chip }), None);
            assert_eq!(tiling(shape(i, 40, 2048, Planes::One), 64, chip), None, "fewer rows than a block's");
        }
    }

    #[test]
    fn many_columns_go_through_whole_turns_of_rows() {
        let chip = Chip { multiprocessors: 132, clusters: true, shared_bytes: 227 << 10, warpgroups: true };
        let turns = |rows, cols, (epilogue, half_rows), columns| {
            let matrix = product::MatrixShape::new(LAYOUTS[0], rows, cols).unwrap();
            let shape = WideShape::new(matrix, epilogue, None, false).unwrap().with_half_rows(half_rows);
            let t = tiling(shape, columns, chip).unwrap();
            t.check(shape).unwrap();
            (t.turns, t.keeps(shape))
        };
        let plain = (Epilogue::Plain, false);
        assert_eq!([2048, 1536, 1280].map(|rows| turns(rows, 512, plain, 256).0), [4, 2, 0]);
        assert_eq!(turns(2048, 512, plain, 48).0, 0, "few columns want more blocks");
        assert_eq!(turns(2048, 512, plain, 256), (4, true));
        assert_eq!(turns(1024, 2048, plain, 128), (2, false), "so many inputs have no room");
        assert_eq!(turns(1024, 2048, plain, 129), (1, false), "many blocks come out even");
        assert_eq!(turns(768, 2048, (Epilogue::Gated, true), 256), (1, false));
        assert_eq!(turns(1024, 2048, (Epilogue::Gated, false), 256).0, 0, "int8 blocks have values of several warps");
    }
}
