//! CUDA kernels: sources in `csrc`, compiled at run time for the device at hand, launched through typed calls.
//!
//! An operation is a module: its head says what is computed, a shape is checked when it is made, which tiles are used
//! is a pure function, and the launcher's `unsafe` stands under its checks. Not here: which operations make a layer.
//!
//! From the ground up: [`runtime`] compiles, loads and launches; [`rows`] are activations and what moves or sums them;
//! [`product`] and [`wide`] multiply matrices with few rows and with many, and [`lora`] is what adapters add there;
//! [`attention`], [`gdn`], [`mamba2`] and [`moe`] are the operators of layers; [`sampler`] and [`draft_head`] stand
//! behind the last one. Operations are also named without their folder, as `cuda::router`.

pub mod attention;
pub mod carry;
pub mod draft_head;
pub mod encode;
pub mod gdn;
pub mod lora;
pub mod mamba2;
pub mod moe;
pub mod product;
pub mod rows;
pub mod runtime;
pub mod sampler;
pub mod stack;
pub mod wide;

pub use gdn::{decode as gdn_decode, prefill as gdn_prefill};
pub use moe::{addresses, combine, experts, router, uses};
pub use rows::{embed, gather, history, pool, quantized};
pub use runtime::{
    Arch, Compiler, CudaError, Device, DeviceInfo, Grid, KernelCache, Module, Nvml, NvmlDevice, NvmlError, NvmlMemory,
    Program, endless, waits,
};

use runtime::Kernel;
