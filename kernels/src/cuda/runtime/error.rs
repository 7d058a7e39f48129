use cudarc::driver::result::DriverError;
use std::path::PathBuf;

/// Why the GPU cannot be used, or what failed on it.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// The driver's library cannot be loaded.
    #[error("no NVIDIA driver found (libcuda.so.1 cannot be loaded)")]
    NoDriver,
    /// The driver speaks an older interface than the one used here.
    #[error(
        "the NVIDIA driver supports CUDA {}.{}, 13.0 or newer is needed (driver 580 or newer)",
        .version / 1000, .version % 1000 / 10)]
    OldDriver {
        /// As the driver says it: 1000 * major + 10 * minor.
        version: i32,
    },
    /// The driver shows no device of this number.
    #[error(
        "there is no GPU {ordinal}: the driver shows {count}, numbered from 0 (CUDA_VISIBLE_DEVICES decides which)"
    )]
    NoDevice {
        /// The number that was asked for.
        ordinal: usize,
        /// How many devices there are.
        count: usize,
    },
    /// The run-time compiler cannot be loaded.
    #[error(
        "the CUDA run-time compiler (libnvrtc.so.13) cannot be loaded{}; install the package cuda-nvrtc-13-0, \
         or `pip install nvidia-cuda-nvrtc==13.0.*` and set CHIMERE_NVRTC to its libnvrtc.so.13",
        .tried.as_ref().map(|p| format!(" from CHIMERE_NVRTC={}", p.display())).unwrap_or_default()
    )]
    NoCompiler {
        /// The path that CHIMERE_NVRTC named, if it was set.
        tried: Option<PathBuf>,
    },
    /// The compiler is older than the architectures and options used here.
    #[error("libnvrtc is of CUDA {major}.{minor}, 13.0 or newer is needed")]
    OldCompiler {
        /// Version of the library.
        major: i32,
        /// Version of the library.
        minor: i32,
    },
    /// A source was refused.
    #[error("kernel `{program}` does not compile for {arch} with {options}: {code}\n{log}")]
    Compile {
        /// Name of the program.
        program: &'static str,
        /// Architecture it was compiled for.
        arch: String,
        /// The options as they were passed.
        options: String,
        /// What the compiler returned.
        code: String,
        /// What the compiler printed.
        log: String,
    },
    /// An architecture's name is not one of those supported.
    #[error("architecture `{got}` is not one of sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_120a")]
    Arch {
        /// What was asked for.
        got: String,
    },
    /// A shape that a kernel cannot take.
    #[error("{kernel}: {reason}")]
    Shape {
        /// Name of the operation.
        kernel: &'static str,
        /// Field, limit and value.
        reason: String,
    },
    /// A kernel takes something else than what is passed to it.
    #[error("kernel `{kernel}` takes an argument of {got} bytes, it would get one of {want}")]
    Argument {
        /// Name of the kernel.
        kernel: String,
        /// Bytes of its first parameter.
        got: usize,
        /// Bytes of what the host passes.
        want: usize,
    },
    /// A call to the driver failed.
    #[error("{call}: {error}")]
    Driver {
        /// The call that failed.
        call: &'static str,
        /// What the driver returned.
        error: DriverError,
    },
}

impl CudaError {
    /// The device has no room for what was asked of it.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Driver { error, .. } if error.0 == cudarc::driver::sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    pub(in crate::cuda) fn shape(kernel: &'static str, reason: impl Into<String>) -> Self {
        Self::Shape { kernel, reason: reason.into() }
    }
}

/// Names the call that failed.
pub(in crate::cuda) trait DriverResult<T> {
    fn during(self, call: &'static str) -> Result<T, CudaError>;
}

impl<T> DriverResult<T> for Result<T, DriverError> {
    fn during(self, call: &'static str) -> Result<T, CudaError> {
        self.map_err(|error| CudaError::Driver { call, error })
    }
}
