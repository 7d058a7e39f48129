//! The CPU backend: exact and the reference, but a product too.
//!
//! A step runs as one team of threads through a fixed sequence of phases (`network`). Weights are read once for all
//! rows of a step; a row's bytes depend on its sequence's tokens and the form of each position alone, never on the rows
//! beside it or the number of threads. `chimere_kernels::reference` defines the operations; products are in [`matmul`].
//!
//! A folder names only those below it. From the ground up: vectors, threads and products (`simd`, `team`, `matmul`);
//! the sampler; what outlives a step (`store`); the rows of a pass as operators see them (`pass`); the operators
//! (`blocks`); all layers (`network`); what a step reports (`step`); guesses (`draft_head`); and the backend.

mod backend;
mod blocks;
mod config;
mod draft_head;
mod error;
mod isa;
pub mod matmul;
mod network;
mod pass;
mod sampler;
pub(crate) mod simd;
mod step;
mod store;
mod team;

pub use backend::memory::MemoryUse;
pub use backend::reservation::Reservation;
pub use backend::{CpuBackend, check};
pub use config::{CpuConfig, KvType};
pub use error::CpuError;
pub use pass::probe::{Perturbation, Probe, Recording};
