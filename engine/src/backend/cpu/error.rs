//! Why a CPU backend could not be made.

use crate::backend::cpu::isa::IsaError;
use crate::backend::cpu::matmul::BLOCK;
use crate::format::NotFinite;

/// Why a backend could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// The kernels work on whole blocks of an activation's int8 form.
    #[error("{what} is {got}, this backend needs a multiple of {BLOCK}")]
    Width {
        /// The width that is not a multiple.
        what: &'static str,
        /// The model's value of that width.
        got: usize,
    },
    /// A count was zero.
    #[error("{0} is 0, at least 1 is needed")]
    Zero(&'static str),
    /// The instruction set that was asked for is not there.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// Weights that no answer can be made of.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
    /// The operating system gave no threads.
    #[error("threads could not be started: {0}")]
    Threads(#[from] std::io::Error),
    /// The operating system does not give the memory that was planned.
    #[error("the system does not give the {0} bytes of memory that were planned")]
    Memory(u64),
}
