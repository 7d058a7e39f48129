//! Rows in the int8 form, in memory of the device.

use crate::backend::cuda::error::{CudaResult, During};
use chimere_kernels::cuda::Device;
use chimere_kernels::cuda::quantized::{BLOCK, Planes};
use chimere_kernels::cuda::rows::padded;
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};

/// Rows in the int8 form.
pub(crate) struct Quantized {
    /// `[rows, cols * planes]`, cols padded.
    codes: CudaSlice<i8>,
    /// `[rows, cols / 32 * planes, 2]`.
    meta: CudaSlice<f32>,
}

impl Quantized {
    /// Takes the memory, zeroed. Never empty, as the driver gives no memory of 0 bytes.
    pub(crate) fn new(device: &Device, rows: usize, cols: usize, planes: Planes) -> CudaResult<Self> {
        let (stream, n) = (device.stream(), rows * padded(cols) * planes.count());
        Ok(Self {
            codes: stream.alloc_zeros(n.max(1)).during("allocating the workspace")?,
            meta: stream.alloc_zeros((n / BLOCK * 2).max(1)).during("allocating the workspace")?,
        })
    }
}

impl Quantized {
    /// Codes, then what stands beside them.
    pub(crate) fn views(&self) -> (CudaView<'_, i8>, CudaView<'_, f32>) {
        (self.codes.as_view(), self.meta.as_view())
    }

    /// Both views for a launch that writes them.
    pub(crate) fn views_mut(&mut self) -> (CudaViewMut<'_, i8>, CudaViewMut<'_, f32>) {
        (self.codes.as_view_mut(), self.meta.as_view_mut())
    }
}
