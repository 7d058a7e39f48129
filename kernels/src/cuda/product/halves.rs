//! Products of few rows in f16, with the bits that [`Warpgroup`] gives many: `csrc/product/halves.cu` says how.
//!
//! For a matrix whose products have one arithmetic, however many rows there are. An output depends on its row of the
//! matrix and its row of activations alone.
//!
//! [`Warpgroup`]: crate::cuda::wide::warpgroup::Warpgroup

use super::{Arguments, Epilogue, Kernels, LoraParts, MatrixShape, Product, ProductTiling, defines};
use crate::cuda::rows::quantized::Planes;
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, KernelCache, Program};

const NAME: &str = "half_product";
/// Rows of activations that kernels are made for: what expands a weight serves all of them.
pub const COLUMNS: [usize; 3] = [1, 8, 16];
/// Units that a warp reads ahead, unless they have 16 bits a weight, and registers of a thread that hold them: 24 warps
/// stand on a multiprocessor.
const DEPTH: usize = 2;
const REGISTERS: usize = 80;
/// Warps of a block, unless each warp has a tile to itself and there are at most eight rows. Two blocks of twelve stand
/// on a multiprocessor, and begin beside what the experts of one row leave of its shared memory.
const WARPS: usize = 12;
/// Warps of a block for one row where each warp has a tile to itself: such blocks have little to begin with.
const WARPS_OF_ONE_ROW: usize = 4;
const WARPS_OF_MORE: usize = 8;
/// What keeps columns off each other's banks.
const COLUMN_GAP: usize = 128;
/// Shared memory of columns: two blocks stand on a multiprocessor.
const COLUMN_BYTES_MAX: usize = 96 << 10;

/// Dynamic shared memory of a block.
fn column_bytes(cols: usize, columns: usize) -> usize {
    if columns == 1 { 2 * cols } else { columns * (2 * cols + COLUMN_GAP) }
}

/// Those of [`COLUMNS`] that have room; none where activations do not fit into f16, or eight rows have no room.
fn columns_of(shape: MatrixShape) -> impl Iterator<Item = usize> {
    let fits = move |columns| column_bytes(shape.cols, columns) <= COLUMN_BYTES_MAX;
    let any = shape.planes == Planes::One && fits(COLUMNS[1]);
    COLUMNS.into_iter().filter(move |columns| any && fits(*columns))
}

/// How each of [`COLUMNS`] is done that there is a kernel for; none where activations do not fit into f16, or eight
/// rows have no room. Sums are taken in as many segments as `warps_k` says, which is that of
/// [`super::tilings`].
pub fn tilings(shape: MatrixShape, multiprocessors: usize) -> Vec<(usize, ProductTiling)> {
    let warps_k = super::tilings(shape, multiprocessors)[0].1.warps_k;
    let of = |columns: usize| {
        let warps = match (warps_k, columns) {
            (1, 1) => WARPS_OF_ONE_ROW,
            (1, 2..=8) => WARPS_OF_MORE,
            _ => WARPS,
        };
        let depth = DEPTH.min(super::depth_max(shape.layout));
        (columns, ProductTiling { warps_k, tiles: warps / warps_k, cluster: 1, depth, registers: REGISTERS })
    };
    columns_of(shape).map(of).collect()
}

fn program(shape: MatrixShape, norm: Option<usize>, columns: usize, tiling: ProductTiling) -> Program {
    let defines = defines(shape, norm, columns, tiling, column_bytes(shape.cols, columns));
    Program::naming::<LoraParts, Arguments>(NAME, source!("product/halves.cu"), defines)
}

/// The programs of a shape, as [`Product::in_halves`] wants them. `norm`: as of [`super::program`].
pub fn programs(shape: MatrixShape, norm: Option<usize>, multiprocessors: usize) -> Vec<Program> {
    tilings(shape, multiprocessors).into_iter().map(|(c, t)| program(shape, norm, c, t)).collect()
}

impl Product {
    /// Loads the kernels of `shape` that do it in f16. `norm`: as of [`super::program`].
    ///
    /// # Errors
    /// If there are none for the shape ([`tilings`]) or the device, the norm is of no whole blocks, or they cannot be
    /// compiled or loaded.
    pub fn in_halves(
        device: &Device,
        cache: &KernelCache,
        shape: MatrixShape,
        norm: Option<usize>,
    ) -> Result<Self, CudaError> {
        if !device.arch().has_warpgroups() {
            // Others may add the products of an instruction in another order.
            let what = format!("{} has no matrix instructions of warpgroups, whose bits these are", device.arch());
            return Err(CudaError::shape(NAME, what));
        }
        let tilings = tilings(shape, device.multiprocessors() as usize);
        let program = |columns, tiling| (program(shape, norm, columns, tiling), column_bytes(shape.cols, columns));
        Kernels::of(device, cache, (shape, norm, Epilogue::Plain), &tilings, program).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::*;

    #[test]
    fn what_has_no_room_or_two_planes_has_no_kernels() {
        let shape = |layout, rows, cols| MatrixShape::new(layout, rows, cols).unwrap();
        let of = |shape| -> Vec<_> { tilings(shape, 132).into_iter().map(|(c, t)| (c, t.warps_k, t.tiles)).collect() };
        assert_eq!(of(shape(Layout::Q6_K, 248_320, 2048)), [(1, 1, 4), (8, 1, 8), (16, 1, 12)]);
        assert_eq!(of(shape(Layout::Q8_0, 12_416, 2048)), [(1, 4, 3), (8, 4, 3), (16, 4, 3)]);
        assert_eq!(of(shape(Layout::Q8_0, 12_416, 5120)).last(), Some(&(8, 4, 3)), "sixteen rows have no room");
        assert!(of(shape(Layout::Q8_0, 12_416, 8192)).is_empty());
        assert_eq!(of(shape(Layout::W16, 12_416, 2048)), of(shape(Layout::Q8_0, 12_416, 2048)));
        assert!(of(shape(Layout::Q8_0, 12_416, 2048).with_planes(Planes::Two)).is_empty());
    }
}
