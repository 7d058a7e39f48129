//! The section `documents.embedder` of the configuration.

use serde::{Deserialize, Serialize};

/// Which maker of vectors collections and stores of documents have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbedderSettings {
    /// Directory of an encoder; empty takes the server at `url`, or the served model where that is empty too.
    pub directory: String,
    /// OpenAI-compatible server, such as `http://10.0.0.7:8000/v1`.
    pub url: String,
    /// The encoder's name in the API, empty for its directory's; or the model that the server at `url` is asked for.
    pub name: String,
    /// Numbers of a vector from the server at `url`.
    pub dimensions: u32,
    /// File whose first line is the key of the server at `url`; empty sends none.
    pub api_key_file: String,
    /// Stands before every text that is looked for; empty takes the directory's own.
    pub query_prefix: String,
    /// Stands before every text that is to be found; empty takes the directory's own.
    pub passage_prefix: String,
    /// Threads of the encoder; 0 takes half of the cores.
    pub threads: u32,
}
