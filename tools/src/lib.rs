//! The commands that an operator or a developer runs beside the service: benchmarks, tables of n-grams from texts,
//! model files of random weights or of fewer bits, GPU code made ahead of time. They use the service's library, which
//! knows nothing of them; the program `chimere` has their command line (`cli/`).

pub mod bench;
mod calibration;
pub mod client;
mod connection;
pub mod documents;
pub mod engram;
mod error;
pub mod eval;
pub mod figures;
pub mod kernels;
pub mod learn;
mod logits;
pub mod quantize;
mod stats;
pub mod synth;
pub mod trace;
mod trust;

pub use error::CliError;

use std::path::{Path, PathBuf};

/// The model that `--model` or its absence means.
pub fn find_model(asked: Option<&Path>) -> Result<PathBuf, CliError> {
    let env = std::env::var_os("CHIMERE_MODEL");
    let exe = std::env::current_exe().ok();
    chimere::locate::model(asked, env.as_deref().map(Path::new), exe.as_deref()).map_err(CliError::Failed)
}
