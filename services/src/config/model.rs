//! The section `model`.

use serde::{Deserialize, Serialize};

/// The model and the name that it answers to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelChoice {
    /// GGUF file or directory; empty looks in the usual places.
    pub path: String,
    /// Name in the API; empty takes the model's own.
    pub name: String,
    /// Other names that it answers to, with commas between them.
    pub aliases: String,
}

/// The names of a list.
pub fn aliases(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}
