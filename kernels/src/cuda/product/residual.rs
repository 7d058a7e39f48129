//! Out-projections: a product that is added to the residual stream, and what the next matrix reads of the stream then.

use super::{
    Activations, Arguments, COLUMNS, CudaError, CudaView, CudaViewMut, Device, Epilogue, KernelCache, Kernels,
    MatrixShape, Planes, ProductTiling, Program, Ptr, PtrMut, TILE_ROWS, UNIT, depth_max, fits, program_of,
};
use cudarc::driver::CudaStream;

/// Tiles of an int8 block of outputs.
const TILES: usize = Epilogue::Residual.block_tiles();

/// What the reader of a row of the residual stream `x` reads: the int8 form of `x * weight`, and the sums of squares
/// that the norm is made of.
pub struct NextRows<'a, 'b> {
    /// `[values]`: of the next norm, the factor itself.
    pub weight: &'a CudaView<'a, f32>,
    /// `[rows, values rounded up to 128, times planes]`; what is beyond the values is not written.
    pub codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, the same / 32, 2]`.
    pub meta: &'a mut CudaViewMut<'b, f32>,
    /// `[rows, values / 32]`.
    pub squares: &'a mut CudaViewMut<'b, f32>,
}

impl NextRows<'_, '_> {
    /// Addresses of codes, meta and squares, for the kernel that writes them.
    pub(in crate::cuda) fn pointers(self, stream: &CudaStream) -> (PtrMut<i8>, PtrMut<[f32; 2]>, PtrMut<f32>) {
        (PtrMut::of(self.codes, stream), PtrMut::of(self.meta, stream), PtrMut::of(self.squares, stream))
    }

    /// Whether `rows` rows of `values` fit.
    pub(in crate::cuda) fn check(&self, rows: usize, values: usize, planes: Planes) -> Result<(), CudaError> {
        let padded = values.next_multiple_of(UNIT) * planes.count();
        fits("the weight of the next norm", self.weight.len(), values)?;
        fits("the next codes", self.codes.len(), rows * padded)?;
        fits("the next meta", self.meta.len(), rows * padded / 16)?;
        fits("the next squares", self.squares.len(), rows * values / 32)
    }
}

/// `x[c] += factor * w y[c]`, then [`NextRows`] of `x`.
#[derive(Debug)]
pub struct Residual(Kernels);

impl Residual {
    /// How each of [`COLUMNS`] is done, as [`super::tilings`]. There are few outputs, so that many warps share a tile's
    /// inputs.
    pub fn tilings(shape: MatrixShape, multiprocessors: usize) -> Vec<(usize, ProductTiling)> {
        const WARPS_MAX: usize = 8;
        const WARPS_A_MULTIPROCESSOR: usize = 8;
        let (tiles, units) = (shape.rows.div_ceil(TILE_ROWS), shape.cols / UNIT);
        let mut warps_k = 1;
        while warps_k < WARPS_MAX && 2 * warps_k <= units && tiles * warps_k < multiprocessors * WARPS_A_MULTIPROCESSOR
        {
            warps_k *= 2;
        }
        // Blocks have a multiprocessor each and hold all their weights; five units are what fits.
        let held = (2 * depth_max(shape.layout())).min(5);
        let tiling = ProductTiling {
            warps_k,
            tiles: TILES,
            cluster: 1,
            depth: (units / warps_k).clamp(1, held),
            registers: 128,
        };
        COLUMNS.map(|columns| (columns, tiling)).to_vec()
    }

    /// The program of a shape for up to so many rows, one of [`COLUMNS`].
    pub fn program(shape: MatrixShape, columns: usize, tiling: ProductTiling) -> Program {
        program_of(shape, None, columns, ProductTiling { tiles: TILES, ..tiling }, Epilogue::Residual)
    }

    /// Programs of all tilings, as [`Residual::load`] wants them.
    pub fn programs(shape: MatrixShape, multiprocessors: usize) -> Vec<Program> {
        Self::tilings(shape, multiprocessors).into_iter().map(|(c, t)| Self::program(shape, c, t)).collect()
    }

    /// Loads the kernels of `shape`.
    ///
    /// # Errors
    /// If its outputs are no whole blocks of 32, or they cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, shape: MatrixShape) -> Result<Self, CudaError> {
        Self::load_tiled(device, cache, shape, &Self::tilings(shape, device.multiprocessors() as usize))
    }

    /// Loads the kernels with other tilings than [`Residual::tilings`] chooses; each has two tiles, whatever it says.
    ///
    /// # Errors
    /// As [`Residual::load`], and if a tiling cannot be launched or they differ in `warps_k`.
    pub fn load_tiled(
        device: &Device,
        cache: &KernelCache,
        shape: MatrixShape,
        tilings: &[(usize, ProductTiling)],
    ) -> Result<Self, CudaError> {
        if !shape.rows.is_multiple_of(32) {
            return Err(CudaError::shape("residual", format!("{} outputs: must be a multiple of 32", shape.rows)));
        }
        let tilings: Vec<_> = tilings.iter().map(|(c, t)| (*c, ProductTiling { tiles: TILES, ..*t })).collect();
        Kernels::load(device, cache, shape, None, &tilings, Epilogue::Residual).map(Self)
    }

    /// Enqueues it for `rows` rows of `y`; `x` is `[rows, outputs]`.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
    pub fn launch(
        &self,
        device: &Device,
        weights: &CudaView<'_, u8>,
        y: Activations<'_>,
        factor: f32,
        rows: usize,
        x: &mut CudaViewMut<'_, f32>,
        next: NextRows<'_, '_>,
    ) -> Result<(), CudaError> {
        let (outputs, _) = self.0.shape.size();
        let inputs = self.0.inputs(device, weights, y, None, (rows, factor))?;
        fits("the residual stream", x.len(), rows * outputs)?;
        next.check(rows, outputs, self.0.shape.planes)?;
        let stream = device.stream();
        let weight = Ptr::of(next.weight, stream);
        let (next_codes, next_meta, next_squares) = next.pointers(stream);
        let arguments = Arguments {
            out: PtrMut::of(x, stream),
            next: weight,
            next_codes,
            next_meta,
            next_squares,
            stride: outputs as i32,
            ..inputs
        };
        // SAFETY: the buffers were found large enough for `rows` rows; squares, which are null here, are not read
        // without a norm.
        unsafe { self.0.launch(device, arguments, rows) }
    }
}
