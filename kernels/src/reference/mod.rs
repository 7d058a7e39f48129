//! What each operation computes, in plain loops without speed.
//!
//! Sums run in `f64` where that makes the definition better than any backend. The exceptions are [`exp()`], [`ln()`]
//! and [`sampler`]: backends reproduce those bit for bit, so that a seed gives the same tokens everywhere.

mod attention;
mod combine;
mod conv;
mod embed;
pub mod exp;
mod gated_norm;
mod gdn;
mod group;
mod l2norm;
mod mamba2;
pub mod philox;
mod pool;
mod relu2;
mod rmsnorm;
mod rope;
mod router;
pub mod sampler;
mod swiglu;

pub use attention::attention;
pub use combine::combine;
pub use conv::conv_silu;
pub use embed::{TableEncoding, remember, table_row};
pub use exp::{exp, ln};
pub use gated_norm::gated_norm;
pub use gdn::{GdnInputs, gdn_chunked, gdn_recurrent};
pub use group::{Groups, group};
pub use l2norm::l2norm;
pub use mamba2::{Mamba2Inputs, mamba2_chunked, mamba2_recurrent};
pub use pool::pool;
pub use relu2::relu2;
pub use rmsnorm::rmsnorm;
pub use rope::rope;
pub use router::{ExpertCut, route, route_cut, route_sigmoid};
pub use swiglu::swiglu;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// `log(1 + e^x)`, and `x` itself where the difference is below one part in 10^8.
pub fn softplus(x: f64) -> f64 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
