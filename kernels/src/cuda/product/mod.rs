//! Products of quantised matrices with int8 activation rows: `out[c][r] = factor * sum_k w[r][k] x[c][k]`.
//!
//! `csrc/product.cu` says how. An output is the same for any number of columns beside it. With [`Columns::Listed`] one launch does
//! several matrices of the same shape, each with its own columns: the experts of a layer.

pub mod layout;
pub mod sample;

use super::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaView, CudaViewMut, DevicePtr, DevicePtrMut};
use layout::{Codes, Layout, Scales, TILE_ROWS, UNIT};
use std::ffi::c_void;

/// A matrix that a kernel can be made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    layout: Layout,
    rows: usize,
    cols: usize,
}

impl Shape {
    /// `[rows, cols]` in `layout`.
    ///
    /// # Errors
    /// If there are no rows, or `cols` are not whole units.
    pub fn new(layout: Layout, rows: usize, cols: usize) -> Result<Self, CudaError> {
        if rows == 0 || cols == 0 || !cols.is_multiple_of(UNIT) {
            return Err(CudaError::shape("product", format!("a matrix of {rows} x {cols}: inputs must be a multiple of {UNIT}")));
        }
        Ok(Self { layout, rows, cols })
    }

    /// Outputs and inputs.
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

/// How a block's warps are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Warps that share the inputs of a tile.
    pub warps_k: usize,
    /// Tiles of a block.
    pub tiles: usize,
    /// Units that a warp reads ahead.
    pub depth: usize,
}

/// Chosen by the matrix alone, never by the columns of a call: how inputs are shared decides the order of additions. `side_by_side`
/// is how many such matrices a launch multiplies at least.
///
/// Enough warps to give each multiprocessor two blocks' worth, and no more, because every warp that shares a tile costs a part of
/// the sum; and as much read ahead as fits in registers. Measured best of twelve (docs/kernels/product.md).
pub fn tiling(shape: Shape, side_by_side: usize, multiprocessors: usize) -> Tiling {
    const WARPS_MAX: usize = 8;
    const WARPS_A_BLOCK: usize = 4;
    const WARPS_A_MULTIPROCESSOR: usize = 8;
    let (tiles, units) = (shape.rows.div_ceil(TILE_ROWS), shape.cols / UNIT);
    let mut warps_k = 1;
    let enough = |warps_k| tiles * side_by_side * warps_k >= multiprocessors * WARPS_A_MULTIPROCESSOR;
    while warps_k < WARPS_MAX && 2 * warps_k <= units && !enough(warps_k) {
        warps_k *= 2;
    }
    let depth_max = if matches!(shape.layout.codes, Codes::Byte | Codes::Six) { 2 } else { 4 };
    Tiling { warps_k, tiles: (WARPS_A_BLOCK / warps_k).max(1).min(tiles), depth: (units / warps_k).clamp(1, depth_max) }
}

/// The program of a shape.
pub fn program(shape: Shape, tiling: Tiling) -> Program {
    let (codes, levels) = match shape.layout.codes {
        Codes::Byte => (0, [0; 16]),
        Codes::Nibble => (1, [0; 16]),
        Codes::Table(levels) => (2, levels),
        Codes::Five => (3, [0; 16]),
        Codes::Six => (4, [0; 16]),
    };
    let scales = match shape.layout.scales {
        Scales::F16 => 0,
        Scales::Bf16 => 1,
        Scales::Min => 2,
        Scales::Byte => 3,
        Scales::Halves => 4,
    };
    let word = |i: usize| i64::from(u32::from_le_bytes([0, 1, 2, 3].map(|j| levels[4 * i + j] as u8)));
    let defines = vec![
        ("ROWS", shape.rows as i64),
        ("COLS", shape.cols as i64),
        ("CODES", codes),
        ("SCALES", scales),
        ("LEVELS0", word(0)),
        ("LEVELS1", word(1)),
        ("LEVELS2", word(2)),
        ("LEVELS3", word(3)),
        ("WK", tiling.warps_k as i64),
        ("WT", tiling.tiles as i64),
        ("DEPTH", tiling.depth as i64),
    ];
    Program { name: "product", source: include_str!("../../../csrc/product.cu"), defines }
}

/// The kernels of one shape: for up to 8, 16 and more columns at a time.
#[derive(Debug)]
pub struct Product {
    shape: Shape,
    tiling: Tiling,
    kernels: [Kernel; 3],
}

/// Int8 activation rows, `[rows, cols]`, as [`super::quantized`] describes them.
#[derive(Clone, Copy)]
pub struct Activations<'a> {
    /// `[rows, cols]`.
    pub codes: &'a CudaView<'a, i8>,
    /// `[rows, cols / 32, 2]`.
    pub meta: &'a CudaView<'a, f32>,
}

/// Which rows are multiplied with what.
pub enum Columns<'a> {
    /// Rows `0..n` with the one matrix, into rows `0..n`.
    First(usize),
    /// Slot `s` is `{matrix, first, count, 0}` and takes the columns `first..first + count` of the lists.
    Listed {
        /// `[slots, 4]`.
        slots: &'a CudaView<'a, i32>,
        /// Row of the activations, by column.
        in_rows: &'a CudaView<'a, i32>,
        /// Row of the outputs, by column.
        out_rows: &'a CudaView<'a, i32>,
        /// Columns that a slot is expected to have at most; more are done, in turns.
        expected: usize,
    },
}

/// Where outputs go.
pub struct Output<'a, 'b> {
    /// `[rows, stride]`.
    pub values: &'a mut CudaViewMut<'b, f32>,
    /// Values from one row to the next.
    pub stride: usize,
    /// Multiplies every output.
    pub factor: f32,
    /// Whether outputs are added to what is there.
    pub add: bool,
}

/// Laid out as the kernel's parameter is.
#[repr(C)]
struct Call {
    weights: u64,
    codes: u64,
    meta: u64,
    out: u64,
    slots: u64,
    in_rows: u64,
    out_rows: u64,
    matrix_bytes: u64,
    count: i32,
    out_stride: i32,
    factor: f32,
    add: i32,
}

impl Product {
    /// Loads the kernels of `shape`, of which `side_by_side` are multiplied at least in a launch (1, or the experts that a token uses).
    ///
    /// # Errors
    /// If they cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, shape: Shape, side_by_side: usize) -> Result<Self, CudaError> {
        let tiling = tiling(shape, side_by_side, device.multiprocessors() as usize);
        let module = device.module(cache, &program(shape, tiling))?;
        let kernels = [module.kernel("product_n1")?, module.kernel("product_n2")?, module.kernel("product_n4")?];
        Ok(Self { shape, tiling, kernels })
    }

    /// Enqueues the product. `weights` holds one or more packed matrices, one after another.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// What the lists of [`Columns::Listed`] name lies within `weights`, `x` and `out`: they are on the device and cannot be
    /// checked here. [`Columns::First`] asks for nothing.
    pub unsafe fn launch(
        &self,
        device: &Device,
        weights: &CudaView<'_, u8>,
        x: Activations<'_>,
        columns: Columns<'_>,
        out: Output<'_, '_>,
    ) -> Result<(), CudaError> {
        self.check(weights, &x, &columns, &out)?;
        let stream = device.stream();
        let pointer = |list: &CudaView<'_, i32>| list.device_ptr(stream).0;
        let (count, slots, lists) = match &columns {
            Columns::First(n) => (*n, 1, [0; 3]),
            Columns::Listed { slots, in_rows, out_rows, expected } => {
                (*expected, slots.len() / 4, [pointer(slots), pointer(in_rows), pointer(out_rows)])
            }
        };
        if count == 0 || slots == 0 {
            return Ok(());
        }
        let mut call = Call {
            weights: weights.device_ptr(stream).0,
            codes: x.codes.device_ptr(stream).0,
            meta: x.meta.device_ptr(stream).0,
            out: out.values.device_ptr_mut(stream).0,
            slots: lists[0],
            in_rows: lists[1],
            out_rows: lists[2],
            matrix_bytes: self.shape.bytes() as u64,
            count: count as i32,
            out_stride: out.stride as i32,
            factor: out.factor,
            add: i32::from(out.add),
        };
        let kernel = &self.kernels[if count <= 8 { 0 } else { usize::from(count > 16) + 1 }];
        let blocks = self.shape.rows.div_ceil(TILE_ROWS * self.tiling.tiles);
        let grid = Grid { blocks: (blocks as u32, slots as u32), threads: (self.tiling.warps_k * self.tiling.tiles * 32) as u32 };
        // SAFETY: `Call` is the kernel's one parameter; `check` found every buffer large enough for columns that are not listed,
        // the caller vouches for those that are. Before its wait the kernel reads weights only.
        unsafe { kernel.launch(device, grid, &mut [(&raw mut call).cast::<c_void>()]) }
    }

    fn check(
        &self,
        weights: &CudaView<'_, u8>,
        x: &Activations<'_>,
        columns: &Columns<'_>,
        out: &Output<'_, '_>,
    ) -> Result<(), CudaError> {
        let Shape { rows, cols, .. } = self.shape;
        let n = if let Columns::First(n) = columns { *n } else { 1 };
        let fits = |what: &str, got: usize, need: usize| {
            let text = || format!("{what} has {got} elements, {n} columns of {rows} x {cols} need {need}");
            if got >= need { Ok(()) } else { Err(CudaError::shape("product", text())) }
        };
        fits("weights", weights.len(), self.shape.bytes())?;
        fits("codes", x.codes.len(), n * cols)?;
        fits("meta", x.meta.len(), n * cols / 16)?;
        fits("a row of the output", out.stride, rows)?;
        fits("the output", out.values.len(), n.saturating_sub(1) * out.stride + if n > 0 { rows } else { 0 })?;
        if let Columns::Listed { in_rows, out_rows, .. } = columns {
            fits("the list of output rows", out_rows.len(), in_rows.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_matrices_share_their_inputs_among_warps_and_large_ones_do_not() {
        let of = |layout, rows, cols, n| tiling(Shape::new(layout, rows, cols).unwrap(), n, 132);
        assert_eq!(of(Layout::Q8_0, 2048, 4096, 1), Tiling { warps_k: 8, tiles: 1, depth: 2 });
        assert_eq!(of(Layout::Q8_0, 12352, 2048, 1), Tiling { warps_k: 2, tiles: 2, depth: 2 });
        assert_eq!(of(Layout::Q4_K, 1024, 2048, 8), Tiling { warps_k: 4, tiles: 1, depth: 4 });
        assert_eq!(of(Layout::Q4_K, 2048, 512, 8), Tiling { warps_k: 2, tiles: 2, depth: 2 });
        assert_eq!(of(Layout::Q6_K, 248_320, 2048, 1), Tiling { warps_k: 1, tiles: 4, depth: 2 });
        assert_eq!(of(Layout::Q8_0, 16, 128, 1), Tiling { warps_k: 1, tiles: 1, depth: 1 });
    }

    #[test]
    fn a_matrix_of_broken_units_is_refused_with_its_size() {
        let error = Shape::new(Layout::Q8_0, 16, 96).unwrap_err().to_string();
        assert!(error.contains("16 x 96") && error.contains("multiple of 128"), "{error}");
    }
}
