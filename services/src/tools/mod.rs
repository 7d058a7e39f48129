//! What an operator or a developer runs beside the service: benchmarks, tables of n-grams from texts, model files of
//! random weights or of fewer bits, GPU code made ahead of time. The service itself needs none of it, and its rooms may
//! not name it (`tests/suite/dependencies.rs`).

pub mod bench;
pub(crate) mod client;
mod connection;
pub mod engram;
mod error;
pub mod eval;
pub(crate) mod figures;
pub mod kernels;
pub(crate) mod logits;
pub mod quantize;
mod stats;
pub mod synth;
pub mod trace;

pub use error::CliError;

use std::path::{Path, PathBuf};

/// The model that `--model` or its absence means.
pub(crate) fn find_model(asked: Option<&Path>) -> Result<PathBuf, CliError> {
    let env = std::env::var_os("CHIMERE_MODEL");
    let exe = std::env::current_exe().ok();
    crate::locate::model(asked, env.as_deref().map(Path::new), exe.as_deref()).map_err(CliError::Failed)
}
