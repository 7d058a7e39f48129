//! How finely a GPU rounds activations, as the command line and the configuration name it.

use chimere_engine::backend::cuda;
use serde::{Deserialize, Serialize};

/// Bits of activations when a GPU computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Activations {
    /// int16 for models of less than 1 GiB and for 16-bit weights, int8 for the rest.
    Auto,
    /// 8 bits, with a scale for 32.
    Int8,
    /// 16 bits: closer to the exact path, at twice the matrix instructions.
    Int16,
}

impl From<Activations> for cuda::Activations {
    fn from(activations: Activations) -> Self {
        match activations {
            Activations::Auto => Self::Auto,
            Activations::Int8 => Self::Int8,
            Activations::Int16 => Self::Int16,
        }
    }
}
