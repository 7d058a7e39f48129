//! A model file of any bytes is an error or a model, never a panic, and takes memory in proportion to its size.

use chimere_engine::format::{Gguf, TextAssets};
use chimere_engine::model::{Summary, load_gguf};
use std::path::Path;

pub fn run(bytes: &[u8]) {
    let Ok(file) = Gguf::from_bytes(bytes, Path::new("fuzz.gguf")) else { return };
    for tensor in file.tensors() {
        assert!(tensor.bytes().len() <= bytes.len(), "{tensor:?} lies in the file");
    }
    let _ = TextAssets::from_gguf(&file);
    if let Ok(model) = load_gguf(&file) {
        assert!(Summary::of(&model).bytes() > 0);
    }
}
