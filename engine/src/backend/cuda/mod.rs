//! The CUDA backend: quantised weights on one GPU, decode steps as captured graphs, sampling on the device.
//!
//! A step is enqueued and left alone: copies and clears, the prompt pieces, the decode graph of its bucket, the head,
//! the sampler, and the copy of the results to pinned memory. The host reads them when the stream has passed the step's
//! last mark, on the thread that waits for it. Sampled tokens stay on the device for the step after.
//!
//! The rooms, from the ground up: [`layout`] computes without a device what a model takes of one; [`rank`] has the
//! memory and the weights of one device; [`blocks`] launches the operators of a layer and [`network`] all layers;
//! [`step`] lays a plan's rows out and brings its results back; [`draft_head`] drafts behind them; [`backend`] runs
//! plans through all of these. Kernels are those of `chimere_kernels::cuda`.

mod backend;
mod blocks;
mod draft_head;
mod encode;
mod error;
mod gpu;
mod layout;
mod network;
mod rank;
mod step;

pub use backend::CudaBackend;
pub use chimere_kernels::cuda::wide::Chip;
pub use chimere_kernels::cuda::{Arch, Compiler, CudaError, KernelCache, Nvml, Program};
pub use encode::{CudaEncoder, encoder_programs};
pub use error::{CudaBackendError, CudaResult};
pub use gpu::{GpuInfo, device_count, probe};
pub use layout::config::{Activations, AdapterRoom, CudaConfig, KvStorage};
pub use layout::matrix::matrix_bytes;
pub use layout::memory::{CudaMemory, MemoryPart};
pub use layout::programs::programs;

use crate::model::ModelConfig;

/// Whether the kernels compute such a model, by its shape alone; the error names what they do not. Needs no GPU.
pub fn check(model: &ModelConfig) -> CudaResult<()> {
    layout::operators::check(model, KvStorage::F16.into())
}
