//! A directory in PEFT's layout: `adapter_config.json` and `adapter_model.safetensors`.

use super::json::Json;
use super::tensors::Tensors;
use crate::format::{Files, LoadError, Problem, Tensor};
use std::path::{Path, PathBuf};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// Weights as Python pickles them: reading them runs whatever program they hold.
const PICKLED: &str = "adapter_model.bin";

/// An adapter's directory, open.
#[derive(Debug)]
pub(crate) struct AdapterDir {
    path: PathBuf,
    config: Json,
    tensors: Tensors,
}

impl AdapterDir {
    /// Reads the configuration and maps the weights.
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        let config = Json::read(&path.join(CONFIG))?;
        if !path.join(WEIGHTS).exists() && path.join(PICKLED).exists() {
            let want = format!("{WEIGHTS}, without a program in it");
            return Err(Problem::container("weights", want, format_args!("{PICKLED}, a pickle")).in_file(path));
        }
        Ok(Self { path: path.to_owned(), config, tensors: Tensors::open_file(path, WEIGHTS)? })
    }

    /// Whether a path is such a directory.
    pub(crate) fn is_one(path: &Path) -> bool {
        path.join(CONFIG).exists() && !path.join("config.json").exists()
    }

    /// What the configuration says.
    pub(crate) fn config(&self) -> &Json {
        &self.config
    }

    /// The file of its weights.
    pub(crate) fn files(&self) -> &Files {
        self.tensors.files()
    }

    /// Names of all tensors.
    pub(crate) fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.names()
    }

    /// The tensor of a name that is there.
    pub(crate) fn tensor(&self, name: &str) -> Result<Tensor, LoadError> {
        let missing = || Problem::tensor(name, "a tensor", "none").in_file(&self.path);
        self.tensors.plain(name)?.ok_or_else(missing)
    }
}
