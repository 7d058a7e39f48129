//! What every kernel rests on: its source is compiled for a device, loaded, and launched with a struct of arguments.
//!
//! Nothing here knows an operation. The list of waits and the files that sources may include are the exceptions: both
//! are kept in one place so that tests can hold them against `csrc`.

pub(in crate::cuda) mod arguments;
mod cache;
pub(in crate::cuda) mod compiler;
mod device;
pub mod endless;
pub(in crate::cuda) mod error;
mod info;
mod nvml;
pub mod waits;

pub use cache::KernelCache;
pub use compiler::{Arch, Compiler, Program};
pub(in crate::cuda) use device::Kernel;
pub use device::{Device, Grid, Module};
pub use error::CudaError;
pub use info::DeviceInfo;
pub use nvml::{Nvml, NvmlDevice, NvmlError, NvmlMemory};
