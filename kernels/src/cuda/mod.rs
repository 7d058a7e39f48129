//! CUDA kernels: sources in `csrc`, compiled at run time for the device at hand, launched through typed calls.
//!
//! An operation is a module: its head says what is computed, a shape is checked when it is made, which tiles are used is a pure
//! function, and the launcher's `unsafe` stands under its checks. Not here: which operations make a layer.

mod cache;
mod compiler;
mod device;
mod error;
pub mod gdn_decode;
pub mod norm_quantize;
pub mod product;
pub mod quantized;

pub use cache::KernelCache;
pub use compiler::{Arch, Compiler, Program};
pub use device::{Device, Grid, Kernel, Module};
pub use error::CudaError;
