//! A Hugging Face directory in memory, to be changed and loaded.

use super::golden_dir;
use chimere_engine::model::{self, Model};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Type, shape and bytes by name.
pub type StoredTensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// A directory's tensors and config.json.
pub struct Directory {
    pub tensors: StoredTensors,
    pub config: Value,
}

impl Directory {
    /// That of a golden preset.
    pub fn of(preset: &str) -> Self {
        let dir = golden_dir(preset);
        let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
        let owned = |t: TensorView<'_>| (t.dtype(), t.shape().to_vec(), t.data().to_vec());
        let config = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        Self { tensors: tensors.tensors().into_iter().map(|(name, t)| (name, owned(t))).collect(), config }
    }

    /// What config.json says of the text part.
    pub fn text(&mut self) -> &mut Value {
        if self.config["text_config"].is_object() { &mut self.config["text_config"] } else { &mut self.config }
    }

    /// The model, with a tokenizer of the golden files.
    pub fn load(&self, tokenizer: &str) -> Result<Model, String> {
        let dir = tempfile::tempdir().unwrap();
        let views = self.tensors.iter().map(|(name, (dtype, shape, bytes))| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        std::fs::write(dir.path().join("model.safetensors"), serialize(views, None).unwrap()).unwrap();
        std::fs::write(dir.path().join("config.json"), self.config.to_string()).unwrap();
        std::fs::copy(golden_dir(tokenizer), dir.path().join("tokenizer.json")).unwrap();
        // The file is mapped: its folder may go.
        model::load(dir.path()).map_err(|e| e.to_string())
    }
}
