//! Products of quantised matrices with few int8 activation rows: `out[c][r] = factor * norm(c) * sum_k w[r][k]
//! x[c][k]`, and the same added to the residual stream, or gated or squared in int8: see [`Epilogue`].
//!
//! `csrc/product/product.cu` says how. An output is the same for any number of rows (columns of the product) beside it.
//! Matrices of experts have their own kernels in [`crate::cuda::moe::experts`].

mod activated;
pub mod halves;
pub mod layout;
mod residual;
pub mod sample;

pub use activated::{Activated, ActivatedRows};
pub use residual::{NextRows, Residual};

use crate::cuda::lora::{LORA, Lora, LoraParts};
use crate::cuda::rows::quantized::{BLOCK, Planes};
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaView, CudaViewMut};
use layout::{Codes, Layout, Scales, TILE_ROWS, UNIT};

/// Activation rows that one launch takes; more are done in turns.
pub const ROWS_MAX: usize = 8;

/// What becomes of a product's sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// The sums are written as f32.
    Plain,
    /// Added to the residual stream, whose int8 form times the next norm's weight and sums of squares are written too.
    Residual,
    /// The matrix has 8 rows of gate, the same 8 of up, and so on: the int8 form of `silu(gate) * up`.
    Gated,
    /// The int8 form of `relu(sum)^2`.
    Squared,
    /// The int8 form of the sums.
    Rounded,
}

impl Epilogue {
    /// Tiles of 16 rows of the matrix that a block of its int8 form is made of; 1 where there is none.
    pub const fn block_tiles(self) -> usize {
        match self {
            Self::Plain => 1,
            Self::Residual | Self::Squared | Self::Rounded => 2,
            Self::Gated => 4,
        }
    }

    /// Whether the outputs are int8 rows that the next matrix reads.
    pub(in crate::cuda) fn is_activated(self) -> bool {
        matches!(self, Self::Gated | Self::Squared | Self::Rounded)
    }

    /// Rows that a matrix has a multiple of.
    pub(in crate::cuda) fn block_rows(self) -> usize {
        if self == Self::Plain { 1 } else { TILE_ROWS * self.block_tiles() }
    }
}

/// A matrix that a kernel can be made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixShape {
    layout: Layout,
    rows: usize,
    cols: usize,
    planes: Planes,
    adapted: bool,
}

impl MatrixShape {
    /// `[rows, cols]` in `layout`, for activations of one plane.
    ///
    /// # Errors
    /// If there are no rows, or `cols` are not whole units.
    pub fn new(layout: Layout, rows: usize, cols: usize) -> Result<Self, CudaError> {
        if rows == 0 || cols == 0 || !cols.is_multiple_of(UNIT) {
            return Err(CudaError::shape(
                "product",
                format!("a matrix of {rows} x {cols}: inputs must be a multiple of {UNIT}"),
            ));
        }
        Ok(Self { layout, rows, cols, planes: Planes::One, adapted: false })
    }

    /// Sets the number of int8 codes for each activation, read or written by an epilogue; it is one by default.
    pub fn with_planes(self, planes: Planes) -> Self {
        Self { planes, ..self }
    }

    /// Sets whether adapters add to the products: see [`crate::cuda::lora`].
    pub fn with_adapters(self, adapted: bool) -> Self {
        Self { adapted, ..self }
    }

    /// Whether adapters add to the products.
    pub fn adapted(&self) -> bool {
        self.adapted
    }

    /// Planes of the activations' int8 form.
    pub fn planes(&self) -> Planes {
        self.planes
    }

    /// How many outputs and inputs the matrix has.
    pub fn size(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// How it is stored.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> usize {
        self.layout.matrix_bytes(self.rows, self.cols)
    }
}

/// How a block's warps are used. Outputs depend on `warps_k` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProductTiling {
    /// Warps that share the inputs of a tile.
    pub warps_k: usize,
    /// Tiles that stand together: whole [`Epilogue::block_tiles`], of residual products one such.
    pub tiles: usize,
    /// Blocks that these are spread over, on chips that have clusters.
    pub cluster: usize,
    /// Units that a warp reads ahead into registers.
    pub depth: usize,
    /// Registers of a thread.
    pub registers: usize,
}

impl ProductTiling {
    /// Blocks of a cluster, and their threads.
    pub(in crate::cuda) fn block(&self, device: &Device) -> (usize, usize) {
        let cluster = if device.arch().has_clusters() { self.cluster } else { 1 };
        (cluster, self.tiles * self.warps_k / cluster * 32)
    }

    /// Units of each warp whose columns are in shared memory at a time, and the bytes of these; all of a warp's units
    /// if they fit.
    fn turn(&self, shape: MatrixShape, columns: usize) -> (usize, usize) {
        let most = (shape.cols / UNIT).div_ceil(self.warps_k);
        let of_unit = columns * (UNIT + UNIT / 32 * 8) * shape.planes.count() * self.warps_k;
        let fit = (COLUMN_BYTES_MAX - columns * COLUMN_GAP) / of_unit;
        let turn = if fit >= most {
            most
        } else if fit >= self.depth {
            fit / self.depth * self.depth
        } else {
            fit
        };
        (turn, turn * of_unit + columns * COLUMN_GAP)
    }
}

/// Shared memory for columns, at most: beside the sums of 16 warps it fits on the smallest chip.
const COLUMN_BYTES_MAX: usize = 64 << 10;
/// What keeps columns off each other's banks.
const COLUMN_GAP: usize = 64;

/// Rows of activations that kernels are made for: one, and up to so many.
pub const COLUMNS: [usize; 2] = [1, ROWS_MAX];

/// How each of [`COLUMNS`] is done. How the inputs are shared, which decides the order of additions, is chosen by the
/// matrix alone.
///
/// Few tiles are shared by four warps each, which is as much as is read ahead then; where there are many, a warp has
/// its own, because sums of shared ones cost time. More tiles of a block share what is staged of the rows
/// (docs/internals/kernels/product.md).
pub fn tilings(shape: MatrixShape, multiprocessors: usize) -> Vec<(usize, ProductTiling)> {
    const WARPS_MAX: usize = 4;
    const WARPS_A_BLOCK: usize = 8;
    const TILES_OF_ONE_ROW_MAX: usize = 4;
    const WARPS_A_MULTIPROCESSOR: usize = 24;
    let (tiles, units) = (shape.rows.div_ceil(TILE_ROWS), shape.cols / UNIT);
    let mut warps_k = 1;
    let enough = |warps_k| tiles * warps_k >= multiprocessors * WARPS_A_MULTIPROCESSOR;
    while warps_k < WARPS_MAX && 2 * warps_k <= units && !enough(warps_k) {
        warps_k *= 2;
    }
    let depth = (units / warps_k).clamp(1, depth_max(shape.layout));
    let of = |columns: usize| {
        let share = (WARPS_A_BLOCK / warps_k).min(if columns == 1 { TILES_OF_ONE_ROW_MAX } else { WARPS_A_BLOCK });
        (columns, ProductTiling { warps_k, tiles: share.min(tiles), cluster: 1, depth, registers: 80 })
    };
    COLUMNS.map(of).to_vec()
}

/// Units that fit into registers.
pub(in crate::cuda) fn depth_max(layout: Layout) -> usize {
    match layout.codes {
        Codes::Word => 1,
        Codes::Byte | Codes::E4m3 | Codes::Six => 2,
        _ => 4,
    }
}

/// The program of a shape for up to so many rows, one of [`COLUMNS`]. `norm`: true values of a row of activations, if
/// the norm of the rows is folded into the product.
pub fn program(shape: MatrixShape, norm: Option<usize>, columns: usize, tiling: ProductTiling) -> Program {
    program_of(shape, norm, columns, tiling, Epilogue::Plain)
}

/// Programs of all tilings, as [`Product::load`] wants them.
pub fn programs(shape: MatrixShape, norm: Option<usize>, multiprocessors: usize) -> Vec<Program> {
    tilings(shape, multiprocessors).into_iter().map(|(c, t)| program(shape, norm, c, t)).collect()
}

fn program_of(
    shape: MatrixShape,
    norm: Option<usize>,
    columns: usize,
    tiling: ProductTiling,
    epilogue: Epilogue,
) -> Program {
    let (turn, bytes) = tiling.turn(shape, columns);
    let mut defines = defines(shape, norm, columns, tiling, bytes);
    defines.extend([("EPILOGUE", epilogue as i64), ("CLUSTER", tiling.cluster as i64), ("TURN_UNITS", turn as i64)]);
    Program::naming::<LoraParts, Arguments>("product", source!("product/product.cu"), defines)
}

/// What a kernel for `columns` rows has to know of the matrix and of how it is cut up. `bytes`: of shared memory for
/// columns.
fn defines(
    shape: MatrixShape,
    norm: Option<usize>,
    columns: usize,
    tiling: ProductTiling,
    bytes: usize,
) -> Vec<(&'static str, i64)> {
    let mut defines = layout_defines(DEFINES, shape.layout);
    defines.extend([
        ("WITH_GRID", i64::from(shape.layout.codes == Codes::Grid)),
        ("ROWS", shape.rows as i64),
        ("COLS", shape.cols as i64),
        ("COLUMNS", columns as i64),
        ("NORM_BLOCKS", norm.map_or(0, |n| n as i64 / 32)),
        ("WK", tiling.warps_k as i64),
        ("WT", tiling.tiles as i64),
        ("DEPTH", tiling.depth as i64),
        ("REGISTERS", tiling.registers as i64),
        ("COLUMN_BYTES", bytes as i64),
        shape.planes.define(),
    ]);
    defines.extend(shape.adapted.then_some(LORA));
    defines
}

/// The names of a program with one layout.
pub(in crate::cuda) const DEFINES: [&str; 7] =
    ["CODES", "SCALES", "LEVELS0", "LEVELS1", "LEVELS2", "LEVELS3", "ROW_FACTORS"];

/// What `weights.cuh` has to know of a layout, under these names: codes, scales, four words of levels, whether
/// rows have factors. A program with
/// several layouts has other names for each; `WITH_GRID` says whether any is a grid.
pub(in crate::cuda) fn layout_defines(names: [&'static str; 7], layout: Layout) -> Vec<(&'static str, i64)> {
    let (codes, levels) = match layout.codes {
        Codes::Byte => (0, [0; 16]),
        Codes::Nibble => (1, [0; 16]),
        Codes::Table(levels) => (2, levels),
        Codes::Five => (3, [0; 16]),
        Codes::Six => (4, [0; 16]),
        Codes::Word => (5, [0; 16]),
        Codes::Grid => (6, [0; 16]),
        Codes::SignedFive => (7, [0; 16]),
        Codes::E4m3 => (8, [0; 16]),
        Codes::Zeroed => (9, [0; 16]),
        Codes::E2m1 => (10, [0; 16]),
    };
    let scales = match layout.scales {
        Scales::F16 => 0,
        Scales::Bf16 => 1,
        Scales::Min => 2,
        Scales::Byte => 3,
        Scales::Halves => 4,
        Scales::Nibble => 5,
        Scales::E4m3 => 6,
        Scales::Eights => 7,
        Scales::Zero => 8,
    };
    let word = |i: usize| i64::from(u32::from_le_bytes([0, 1, 2, 3].map(|j| levels[4 * i + j] as u8)));
    let factors = i64::from(layout.row_factors);
    names.into_iter().zip([codes, scales, word(0), word(1), word(2), word(3), factors]).collect()
}

/// Int8 activation rows, `[rows, cols]`, as [`crate::cuda::rows::quantized`] describes them.
#[derive(Clone, Copy)]
pub struct Activations<'a> {
    /// `[rows, cols * planes]`.
    pub codes: &'a CudaView<'a, i8>,
    /// `[rows, cols / 32 * planes, 2]`.
    pub meta: &'a CudaView<'a, f32>,
    /// What adapters add, of shapes that have some.
    pub lora: Option<Lora<'a>>,
}

/// What a folded norm still owes its readers.
#[derive(Clone, Copy)]
pub struct Norm<'a> {
    /// `[rows, values / 32]`: sums of squares of the blocks of the values before the norm.
    pub squares: &'a CudaView<'a, f32>,
    /// Added to their mean.
    pub eps: f32,
}

/// Buffer of f32 that a product writes its outputs to.
pub struct Output<'a, 'b> {
    /// Outputs of each row of activations, `[rows, stride]`.
    pub values: &'a mut CudaViewMut<'b, f32>,
    /// Values from one row to the next.
    pub stride: usize,
    /// Factor of every output.
    pub factor: f32,
}

device_struct! {
    /// What the kernel is given; nothing of it is read that only another epilogue has.
    #[derive(Default)]
    struct Arguments {
        weights: Ptr<u8>,
        /// `[count, cols * planes]`.
        codes: Ptr<i8>,
        /// `[count, cols / 32 * planes]`.
        meta: Ptr<[f32; 2]>,
        /// `[count, blocks of the norm]`.
        squares: Ptr<f32>,
        /// Outputs of a plain product, or the residual stream, `[count, stride]`.
        out: PtrMut<f32>,
        /// Of residual products: `[rows]`.
        next: Ptr<f32>,
        /// `[count, rows rounded up to 128, times planes]`; gated and squared: `[count, stride * planes]`.
        next_codes: PtrMut<i8>,
        /// `[count, the same / 32]`.
        next_meta: PtrMut<[f32; 2]>,
        /// `[count, rows / 32]`.
        next_squares: PtrMut<f32>,
        lora: LoraParts,
        count: i32,
        stride: i32,
        factor: f32,
        eps: f32,
    }
}

/// The kernels of one matrix's shape: one for each of [`COLUMNS`].
#[derive(Debug)]
struct Kernels {
    shape: MatrixShape,
    epilogue: Epilogue,
    /// Blocks of squares in a row, 0 without a norm.
    norm_blocks: usize,
    /// By the most rows of each, ascending.
    kernels: Vec<(usize, ProductTiling, Kernel<Arguments>)>,
}

impl Kernels {
    fn load(
        device: &Device,
        cache: &KernelCache,
        shape: MatrixShape,
        norm: Option<usize>,
        tilings: &[(usize, ProductTiling)],
        epilogue: Epilogue,
    ) -> Result<Self, CudaError> {
        if tilings.iter().any(|t| !COLUMNS.contains(&t.0)) {
            return Err(CudaError::shape("product", format!("{tilings:?}: not for {COLUMNS:?} rows")));
        }
        let program = |columns, tiling: ProductTiling| {
            (program_of(shape, norm, columns, tiling, epilogue), tiling.turn(shape, columns).1)
        };
        Self::of(device, cache, (shape, norm, epilogue), tilings, program)
    }

    /// With the program of each tiling, and the shared memory that it wants.
    fn of(
        device: &Device,
        cache: &KernelCache,
        (shape, norm, epilogue): (MatrixShape, Option<usize>, Epilogue),
        tilings: &[(usize, ProductTiling)],
        program: impl Fn(usize, ProductTiling) -> (Program, usize),
    ) -> Result<Self, CudaError> {
        let ascending = tilings.windows(2).all(|t| t[0].0 < t[1].0 && t[0].1.warps_k == t[1].1.warps_k);
        if tilings.is_empty() || !ascending {
            let what = format!("{tilings:?}: not for more and more rows in one order of sums");
            return Err(CudaError::shape("product", what));
        }
        let load = |(columns, tiling): &(usize, ProductTiling)| {
            check_tiling(shape, norm, *tiling, epilogue)?;
            let (program, shared) = program(*columns, *tiling);
            let kernel = device.module(cache, &program)?.kernel(program.name)?.with_shared(shared)?;
            Ok((*columns, *tiling, kernel))
        };
        let kernels = tilings.iter().map(load).collect::<Result<_, CudaError>>()?;
        Ok(Self { shape, epilogue, norm_blocks: norm.unwrap_or(0) / 32, kernels })
    }

    /// Whether `rows` rows of activations are there, and the norm that the program has.
    fn check(
        &self,
        weights: &CudaView<'_, u8>,
        x: &Activations<'_>,
        norm: Option<&Norm<'_>>,
        rows: usize,
    ) -> Result<(), CudaError> {
        let (_, cols) = self.shape.size();
        fits("weights", weights.len(), self.shape.bytes())?;
        let codes = rows * cols * self.shape.planes.count();
        fits("codes", x.codes.len(), codes)?;
        fits("meta", x.meta.len(), codes / 16)?;
        if (self.norm_blocks > 0) != norm.is_some() {
            return Err(CudaError::shape("product", "a norm is given and none folded, or the other way round"));
        }
        fits("squares", norm.map_or(0, |n| n.squares.len()), rows * self.norm_blocks)?;
        Lora::check("product", x.lora.as_ref(), self.shape.adapted, rows, self.shape.rows)
    }

    /// What all epilogues read for `rows` rows, of which [`Kernels::check`] says whether it is there. What is written
    /// is the caller's to name.
    fn inputs(
        &self,
        device: &Device,
        weights: &CudaView<'_, u8>,
        x: Activations<'_>,
        norm: Option<Norm<'_>>,
        (rows, factor): (usize, f32),
    ) -> Result<Arguments, CudaError> {
        self.check(weights, &x, norm.as_ref(), rows)?;
        let stream = device.stream();
        Ok(Arguments {
            weights: Ptr::of(weights, stream),
            codes: Ptr::of(x.codes, stream),
            meta: Ptr::of(x.meta, stream),
            squares: Ptr::of_some(norm.map(|n| n.squares), stream),
            lora: x.lora.map_or_else(LoraParts::default, |lora| lora.parts(stream)),
            factor,
            eps: norm.map_or(0.0, |n| n.eps),
            ..Arguments::default()
        })
    }

    /// Enqueues `all` for `rows` rows in turns.
    ///
    /// # Safety
    /// Every buffer that `all` names is as large as the kernel takes it to be for `rows` rows.
    unsafe fn launch(&self, device: &Device, all: Arguments, rows: usize) -> Result<(), CudaError> {
        let (outputs, cols) = self.shape.size();
        let next_values = match self.epilogue {
            Epilogue::Gated | Epilogue::Squared | Epilogue::Rounded => all.stride as usize,
            Epilogue::Plain | Epilogue::Residual => outputs.next_multiple_of(UNIT),
        };
        // Codes of a row; each 32 of them have a pair.
        let [codes, next_codes] = [cols, next_values].map(|n| n * self.shape.planes.count());
        let most = self.kernels.last().expect("there is one at least").0;
        for first in (0..rows).step_by(most) {
            let count = (rows - first).min(most);
            let arguments = Arguments {
                codes: all.codes.skip(first * codes),
                meta: all.meta.skip(first * codes / BLOCK),
                squares: all.squares.skip(first * self.norm_blocks),
                out: all.out.skip(first * all.stride as usize),
                next_codes: all.next_codes.skip(first * next_codes),
                next_meta: all.next_meta.skip(first * next_codes / BLOCK),
                next_squares: all.next_squares.skip(first * outputs / BLOCK),
                lora: all.lora.skip(first),
                count: count as i32,
                ..all
            };
            let (_, tiling, kernel) = self.kernels.iter().find(|k| count <= k.0).expect("the last takes as many");
            let (cluster, threads) = tiling.block(device);
            let blocks = outputs.div_ceil(TILE_ROWS * tiling.tiles) * cluster;
            let grid = Grid { blocks: (blocks as u32, 1), threads: threads as u32 };
            // SAFETY: the caller vouches for the buffers. Before its wait the kernel reads weights only.
            unsafe { kernel.launch(device, grid, &arguments) }?;
        }
        Ok(())
    }
}

fn check_tiling(
    shape: MatrixShape,
    norm: Option<usize>,
    tiling: ProductTiling,
    epilogue: Epilogue,
) -> Result<(), CudaError> {
    let ProductTiling { warps_k, tiles, cluster, depth, registers, .. } = tiling;
    let warps = tiles * warps_k;
    // The warps of a block are whole tiles or a whole part of one.
    let whole = cluster > 0 && warps.is_multiple_of(cluster) && {
        let block = warps / cluster;
        block > 0 && (block.is_multiple_of(warps_k) || warps_k.is_multiple_of(block))
    };
    let whole = whole && tiles.is_multiple_of(epilogue.block_tiles());
    if warps_k == 0 || !whole || warps > 32 || depth == 0 || !(32..=255).contains(&registers) {
        return Err(CudaError::shape("product", format!("{tiling:?} for {shape:?} cannot be launched")));
    }
    if norm.is_some_and(|n| n == 0 || !n.is_multiple_of(32) || n > shape.cols) {
        return Err(CudaError::shape(
            "product",
            format!("a norm of {norm:?} values: must be whole blocks of 32 within {}", shape.cols),
        ));
    }
    Ok(())
}

fn fits(what: &str, got: usize, need: usize) -> Result<(), CudaError> {
    if got >= need {
        Ok(())
    } else {
        Err(CudaError::shape("product", format!("{what} has {got} elements, {need} are needed")))
    }
}

/// `out[c][r] = factor * norm(c) * sum_k w[r][k] x[c][k]`.
#[derive(Debug)]
pub struct Product(Kernels);

impl Product {
    /// Loads the kernels of `shape`. `norm`: see [`program`].
    ///
    /// # Errors
    /// If the norm is of no whole blocks, or they cannot be compiled or loaded.
    pub fn load(
        device: &Device,
        cache: &KernelCache,
        shape: MatrixShape,
        norm: Option<usize>,
    ) -> Result<Self, CudaError> {
        Self::load_tiled(device, cache, shape, norm, &tilings(shape, device.multiprocessors() as usize))
    }

    /// Loads the kernels with other tilings than [`tilings`] chooses; each has the most rows that it is for, one of
    /// [`COLUMNS`].
    ///
    /// # Errors
    /// As [`Product::load`], and if a tiling cannot be launched or they differ in `warps_k`.
    pub fn load_tiled(
        device: &Device,
        cache: &KernelCache,
        shape: MatrixShape,
        norm: Option<usize>,
        tilings: &[(usize, ProductTiling)],
    ) -> Result<Self, CudaError> {
        let alone: Vec<_> = tilings.iter().map(|(c, t)| (*c, ProductTiling { cluster: 1, ..*t })).collect();
        Kernels::load(device, cache, shape, norm, &alone, Epilogue::Plain).map(Self)
    }

    /// Rows that one launch takes.
    pub fn rows_max(&self) -> usize {
        self.0.kernels.last().map_or(0, |k| k.0)
    }

    /// Enqueues the product for `rows` rows of `x`, as many at a time as there is a tiling for.
    ///
    /// # Errors
    /// If a buffer is too small, a norm is given where none is folded or missing, or the driver refuses.
    pub fn launch(
        &self,
        device: &Device,
        weights: &CudaView<'_, u8>,
        x: Activations<'_>,
        norm: Option<Norm<'_>>,
        rows: usize,
        out: Output<'_, '_>,
    ) -> Result<(), CudaError> {
        let (outputs, _) = self.0.shape.size();
        let inputs = self.0.inputs(device, weights, x, norm, (rows, out.factor))?;
        fits("a row of the output", out.stride, outputs)?;
        fits("the output", out.values.len(), rows.saturating_sub(1) * out.stride + if rows > 0 { outputs } else { 0 })?;
        let values = PtrMut::of(out.values, device.stream());
        let arguments = Arguments { out: values, stride: out.stride as i32, ..inputs };
        // SAFETY: the buffers were found large enough for `rows` rows; the kernel touches nothing of what is null here.
        unsafe { self.0.launch(device, arguments, rows) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_matrices_share_their_inputs_among_warps_and_large_ones_do_not() {
        let of = |layout, rows, cols| {
            let tiling = tilings(MatrixShape::new(layout, rows, cols).unwrap(), 132)[0].1;
            (tiling.warps_k, tiling.tiles, tiling.depth)
        };
        assert_eq!(of(Layout::Q8_0, 12416, 2048), (4, 2, 2));
        assert_eq!(of(Layout::Q6_K, 248_320, 2048), (1, 4, 2));
        assert_eq!(of(Layout::Q8_0, 16, 128), (1, 1, 1));
    }

    #[test]
    fn columns_of_all_of_a_warps_units_are_staged_at_once_if_they_fit() {
        let turn = |cols, warps_k, depth, columns| {
            let tiling = ProductTiling { warps_k, tiles: 2, cluster: 1, depth, registers: 80 };
            tiling.turn(MatrixShape::new(Layout::Q8_0, 64, cols).unwrap(), columns)
        };
        assert_eq!(turn(4096, 8, 2, 8), (4, 8 * (32 * 128 + 64) + 32 * 4 * 8 * 8));
        assert_eq!(turn(4096, 8, 2, 16).0, 2, "half a share, in whole steps of what is read ahead");
        assert_eq!(turn(128, 1, 1, 1), (1, 128 + 32 + 64));
        for (cols, warps_k, depth, columns) in [(8192, 8, 2, 16), (17408, 8, 4, 8), (2048, 4, 2, 8)] {
            let (units, bytes) = turn(cols, warps_k, depth, columns);
            assert!(units > 0 && bytes <= COLUMN_BYTES_MAX, "{cols} {columns}: {units} {bytes}");
        }
    }

    #[test]
    fn a_matrix_of_broken_units_is_refused_with_its_size() {
        let error = MatrixShape::new(Layout::Q8_0, 16, 96).unwrap_err().to_string();
        assert!(error.contains("16 x 96") && error.contains("multiple of 128"), "{error}");
    }

    #[test]
    fn a_tiling_whose_blocks_are_no_whole_parts_is_refused() {
        let shape = MatrixShape::new(Layout::Q8_0, 64, 1024).unwrap();
        let fine = ProductTiling { warps_k: 8, tiles: 2, cluster: 4, depth: 2, registers: 80 };
        assert!(check_tiling(shape, None, fine, Epilogue::Residual).is_ok());
        for wrong in [
            ProductTiling { cluster: 3, ..fine },
            ProductTiling { warps_k: 0, ..fine },
            ProductTiling { registers: 300, ..fine },
        ] {
            assert!(check_tiling(shape, None, wrong, Epilogue::Residual).is_err(), "{wrong:?}");
        }
        assert!(check_tiling(shape, Some(48), fine, Epilogue::Residual).is_err());
        assert!(check_tiling(shape, None, fine, Epilogue::Gated).is_err(), "half an int8 block");
    }
}
