//! The section `model`.

use serde::{Deserialize, Serialize};

/// The model and the name that it answers to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelChoice {
    /// GGUF file or directory; empty looks in the usual places.
    pub path: String,
    /// Name in the API; empty takes the model's own.
    pub name: String,
}
