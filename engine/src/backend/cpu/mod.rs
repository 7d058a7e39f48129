//! The CPU backend.

pub mod matmul;
