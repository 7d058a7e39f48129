//! What a model takes on a device, computed from its shape and the configuration alone: matrices as they are packed,
//! kernels that are compiled, rows and bytes of every buffer. Nothing here opens a device.

pub(crate) mod activations;
pub(crate) mod config;
pub(crate) mod draft_head;
pub(crate) mod effective_config;
pub(crate) mod experts;
pub(crate) mod matrix;
pub(crate) mod memory;
pub(crate) mod operators;
pub(crate) mod outputs;
pub(crate) mod pack;
pub(crate) mod products;
pub(crate) mod programs;
pub(crate) mod shape;
pub(crate) mod store;
pub(crate) mod weights;
pub(crate) mod workspace;
