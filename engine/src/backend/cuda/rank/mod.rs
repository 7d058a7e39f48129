//! One device: memory that is taken there, what is brought to it, and the kernels of products.

pub(crate) mod adapters;
pub(crate) mod experts;
pub(crate) mod graphs;
pub(crate) mod memory;
pub(crate) mod pass;
pub(crate) mod pinned;
pub(crate) mod products;
pub(crate) mod quantized;
pub(crate) mod residual;
pub(crate) mod staging;
pub(crate) mod store;
pub(crate) mod upload;
pub(crate) mod weights;
pub(crate) mod workspace;
