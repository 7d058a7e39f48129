//! What can go wrong on the device, before and while it serves.

use crate::format::NotFinite;
use chimere_kernels::cuda::CudaError;
use cudarc::driver::DriverError;

/// A result of the CUDA backend's host code.
pub type CudaResult<T> = Result<T, CudaBackendError>;

/// Why a CUDA backend could not be made, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum CudaBackendError {
    /// The device, the compiler or a kernel.
    #[error(transparent)]
    Kernel(#[from] CudaError),
    /// The device's memory does not suffice.
    #[error("out of device memory while {doing}")]
    Memory {
        /// What it was wanted for.
        doing: &'static str,
    },
    /// Weights that no answer can be made of.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
    /// A call of the driver failed.
    #[error("{doing}: {error}")]
    Driver {
        /// What was being done.
        doing: &'static str,
        /// What the driver said.
        error: DriverError,
    },
    /// The host has no memory for it.
    #[error("{what}: {why}")]
    Host {
        /// What the backend wanted the memory of the host for.
        what: &'static str,
        /// What the system said.
        why: String,
    },
    /// The model or the configuration asks for what the kernels do not do.
    #[error("{what} is {got}, the GPU's kernels need {need}")]
    Unsupported {
        /// Which size or option.
        what: &'static str,
        /// What its value is.
        got: String,
        /// What it may be.
        need: String,
    },
}

impl CudaBackendError {
    /// The device has no room for what was asked of it.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Memory { .. } => true,
            Self::Kernel(error) => error.is_out_of_memory(),
            Self::NotFinite(_) | Self::Driver { .. } | Self::Host { .. } | Self::Unsupported { .. } => false,
        }
    }
}

/// Names what was being done when the driver refused.
pub(crate) trait During<T> {
    fn during(self, doing: &'static str) -> CudaResult<T>;
}

impl<T> During<T> for Result<T, DriverError> {
    fn during(self, doing: &'static str) -> CudaResult<T> {
        self.map_err(|error| match error.0 {
            cudarc::driver::sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => CudaBackendError::Memory { doing },
            _ => CudaBackendError::Driver { doing, error },
        })
    }
}
