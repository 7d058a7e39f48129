//! The section `adapters`.

use serde::{Deserialize, Serialize};

/// Adapters that are served beside the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdapterKeys {
    /// Directory of adapters: directories in PEFT's layout and GGUF files; empty serves none.
    pub directory: String,
}
