//! The section `tools`.

use serde::{Deserialize, Serialize};

/// Tools that the service runs for models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolKeys {
    /// File of the MCP servers whose tools may be called; empty runs none.
    pub file: String,
}
