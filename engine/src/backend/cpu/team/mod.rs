//! The threads of a step, and memory that they divide among themselves.

pub(crate) mod pool;
pub(crate) mod shared;
