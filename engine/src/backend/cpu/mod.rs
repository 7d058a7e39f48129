//! The CPU backend: exact and the reference, but a product too.
//!
//! A step runs as one team of threads through a fixed sequence of phases (`network`). Weights are read once for all
//! rows of a step; a row's bytes depend on its sequence's tokens and the form of each position alone, never on the rows
//! beside it or the number of threads. What the operations are stands in `chimere_kernels::reference`; products are in
//! [`matmul`].

mod backend;
mod blocks;
mod draft_head;
mod isa;
pub mod matmul;
mod network;
mod pass;
mod sampler;
mod simd;
mod step;
mod store;
mod team;

pub use backend::memory::{MemoryUse, Reservation};
pub use backend::{CpuBackend, CpuConfig, CpuError, KvType, check};
pub use pass::probe::{Perturbation, Probe, Recording};

use backend::WIDTH;
