//! CUDA kernels: sources in `csrc`, compiled at run time for the device at hand, launched through typed calls.
//!
//! An operation is a module: its head says what is computed, a shape is checked when it is made, which tiles are used
//! is a pure function, and the launcher's `unsafe` stands under its checks. Not here: which operations make a layer.

pub mod addresses;
mod arguments;
pub mod attention;
mod cache;
pub mod carry;
pub mod combine;
mod compiler;
mod device;
pub mod draft_head;
pub mod embed;
pub mod encode;
mod error;
pub mod experts;
pub mod gather;
pub mod gdn_decode;
pub mod gdn_prefill;
pub mod history;
mod info;
pub mod mamba2;
mod nvml;
pub mod pool;
pub mod product;
pub mod quantized;
pub mod router;
pub mod rows;
pub mod sampler;
pub mod stack;
pub mod uses;
pub mod waits;
pub mod wide;

pub use cache::KernelCache;
pub use compiler::{Arch, Compiler, Program};
pub use device::{Device, Grid, Module};

use device::Kernel;
pub use error::CudaError;
pub use info::DeviceInfo;
pub use nvml::{Nvml, NvmlDevice, NvmlError, NvmlMemory};
