//! Gate and up of a feed-forward part, or up alone: a product whose int8 form, gated, squared or as it is, is what the
//! next matrix reads.

use super::{
    Activations, Arguments, CudaError, CudaViewMut, Device, Epilogue, KernelCache, Kernels, MatrixShape, Norm,
    ProductTiling, Program, PtrMut, TILE_ROWS, fits, program_of, tilings,
};
use crate::cuda::rows::quantized::BLOCK;

/// Int8 rows that are written.
pub struct ActivatedRows<'a, 'b> {
    /// `[rows, stride * planes]`; what is beyond the values is not written.
    pub codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, stride / 32 * planes, 2]`.
    pub meta: &'a mut CudaViewMut<'b, f32>,
    /// Values from one row to the next, a multiple of 32.
    pub stride: usize,
    /// Factor of every sum, applied before the activation.
    pub factor: f32,
}

/// The int8 form of `silu(gate) * up`, of `relu(up)^2`, or of `up`.
#[derive(Debug)]
pub struct Activated(Kernels);

impl Activated {
    /// How each of [`super::COLUMNS`] is done, as [`super::tilings`], with whole int8 blocks a block of warps: four
    /// tiles of four warps each would have a multiprocessor to themselves, so tiles of gate and up have two where there
    /// are blocks enough.
    pub fn tilings(shape: MatrixShape, epilogue: Epilogue, multiprocessors: usize) -> Vec<(usize, ProductTiling)> {
        const WARPS_K_GATED: usize = 2;
        let whole = epilogue.block_tiles();
        let enough = shape.rows > multiprocessors * TILE_ROWS * whole;
        let of = |(columns, t): (usize, ProductTiling)| {
            let warps_k = if whole > 2 && enough { t.warps_k.min(WARPS_K_GATED) } else { t.warps_k };
            (columns, ProductTiling { warps_k, tiles: t.tiles.next_multiple_of(whole), ..t })
        };
        tilings(shape, multiprocessors).into_iter().map(of).collect()
    }

    /// The program of a shape for up to so many rows, one of [`super::COLUMNS`]. `norm` as of [`super::program`].
    pub fn program(
        shape: MatrixShape,
        epilogue: Epilogue,
        norm: Option<usize>,
        columns: usize,
        tiling: ProductTiling,
    ) -> Program {
        program_of(shape, norm, columns, tiling, epilogue)
    }

    /// Programs of all tilings, as [`Activated::load`] wants them.
    pub fn programs(
        shape: MatrixShape,
        epilogue: Epilogue,
        norm: Option<usize>,
        multiprocessors: usize,
    ) -> Vec<Program> {
        let all = Self::tilings(shape, epilogue, multiprocessors).into_iter();
        all.map(|(c, t)| Self::program(shape, epilogue, norm, c, t)).collect()
    }

    /// Loads the kernels of `shape` with one of the three epilogues.
    ///
    /// # Errors
    /// If its outputs are no whole blocks of 32 values, the norm is of no whole blocks, or they cannot be compiled or
    /// loaded.
    pub fn load(
        device: &Device,
        cache: &KernelCache,
        shape: MatrixShape,
        epilogue: Epilogue,
        norm: Option<usize>,
    ) -> Result<Self, CudaError> {
        let tilings = Self::tilings(shape, epilogue, device.multiprocessors() as usize);
        Self::load_tiled(device, cache, shape, epilogue, norm, &tilings)
    }

    /// Loads the kernels with other tilings than [`Activated::tilings`] chooses; each has the most rows that it is for,
    /// one of [`super::COLUMNS`].
    ///
    /// # Errors
    /// As [`Activated::load`], and if a tiling cannot be launched or they differ in `warps_k`.
    pub fn load_tiled(
        device: &Device,
        cache: &KernelCache,
        shape: MatrixShape,
        epilogue: Epilogue,
        norm: Option<usize>,
        tilings: &[(usize, ProductTiling)],
    ) -> Result<Self, CudaError> {
        let whole = epilogue.block_rows();
        if !epilogue.is_activated() || !shape.rows.is_multiple_of(whole) {
            let what = format!(
                "{} rows with {epilogue:?}: must be gated, squared or rounded, and a multiple of {whole}",
                shape.rows
            );
            return Err(CudaError::shape("activated", what));
        }
        Kernels::load(device, cache, shape, norm, tilings, epilogue).map(Self)
    }

    /// Enqueues it for `rows` rows of `x`.
    ///
    /// # Errors
    /// If a buffer is too small, a norm is given where none is folded or missing, or the driver refuses.
    pub fn launch(
        &self,
        device: &Device,
        weights: &cudarc::driver::CudaView<'_, u8>,
        x: Activations<'_>,
        norm: Option<Norm<'_>>,
        rows: usize,
        out: ActivatedRows<'_, '_>,
    ) -> Result<(), CudaError> {
        let Kernels { shape, epilogue, .. } = self.0;
        let values = shape.rows / epilogue.block_rows() * BLOCK;
        let inputs = self.0.inputs(device, weights, x, norm, (rows, out.factor))?;
        if out.stride < values || !out.stride.is_multiple_of(BLOCK) {
            let what = format!("rows of {values} int8 values cannot lie {} apart", out.stride);
            return Err(CudaError::shape("activated", what));
        }
        let codes = (rows.saturating_sub(1) * out.stride + if rows > 0 { values } else { 0 }) * shape.planes.count();
        fits("the output's codes", out.codes.len(), codes)?;
        fits("the output's meta", out.meta.len(), codes / BLOCK * 2)?;
        let stream = device.stream();
        let arguments = Arguments {
            next_codes: PtrMut::of(out.codes, stream),
            next_meta: PtrMut::of(out.meta, stream),
            stride: out.stride as i32,
            ..inputs
        };
        // SAFETY: the buffers were found large enough for `rows` rows; the kernel touches nothing of what is null here.
        unsafe { self.0.launch(device, arguments, rows) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::product::COLUMNS;
    use crate::cuda::product::layout::{Layout, UNIT};

    #[test]
    fn blocks_have_whole_int8_blocks_and_large_gated_matrices_leave_room_for_several() {
        let of = |rows, cols, epilogue| {
            let all = Activated::tilings(MatrixShape::new(Layout::Q8_0, rows, cols).unwrap(), epilogue, 132);
            assert!(all.iter().all(|(_, t)| t.warps_k == all[0].1.warps_k), "{rows} {epilogue:?}: one order of sums");
            assert_eq!(all.iter().map(|t| t.0).collect::<Vec<_>>(), COLUMNS);
            all.into_iter().map(|(_, t)| (t.warps_k, t.tiles)).collect::<Vec<_>>()
        };
        assert_eq!(of(24_576, 3072, Epilogue::Gated), [(2, 4), (2, 4)]);
        assert_eq!(of(4096, 2048, Epilogue::Gated), [(4, 4), (4, 4)]);
        assert_eq!(of(64, UNIT, Epilogue::Gated), [(1, 4), (1, 4)]);
        assert_eq!(of(21_504, 4096, Epilogue::Squared), [(4, 2), (4, 2)]);
        assert_eq!(of(131_072, 2048, Epilogue::Gated), [(1, 4), (1, 8)]);
    }
}
