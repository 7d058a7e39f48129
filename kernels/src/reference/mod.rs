//! What each operation computes, in plain loops without speed.
//!
//! Sums run in `f64` where that makes the definition better than any backend. The exceptions are [`exp()`], [`ln()`]
//! and [`sampler`]: backends reproduce those bit for bit, so that a seed gives the same tokens everywhere.

mod activations;
mod attention;
mod conv;
mod embed;
pub mod exp;
mod gdn;
mod lora;
mod mamba2;
mod moe;
mod norms;
pub mod philox;
mod pool;
mod rope;
pub mod sampler;

pub use activations::{gelu, gelu_tanh, relu2, softplus, swiglu};
pub use attention::attention;
pub use conv::{conv_silu, short_conv};
pub use embed::{TableEncoding, remember, table_row};
pub use exp::{exp, ln};
pub use gdn::{GdnInputs, gdn_chunked, gdn_recurrent};
pub use lora::lora;
pub use mamba2::{Mamba2Inputs, mamba2_chunked, mamba2_recurrent};
pub use moe::{ExpertCut, ExpertGroups, combine, group, route, route_cut, route_sigmoid};
pub use norms::{gated_norm, l2norm, layer_norm, rmsnorm};
pub use pool::pool;
pub use rope::{Yarn, rope, rope_frequency};
