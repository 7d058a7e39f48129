//! The scalar definition of every operation, and the CUDA kernels that are tested against it.
//!
//! Nothing here needs CUDA to build. Libraries are looked for when [`cuda`] is asked for something, and their absence
//! is an error value.

pub mod cuda;
pub mod reference;
