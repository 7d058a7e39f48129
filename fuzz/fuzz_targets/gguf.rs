//! A model file of any bytes is an error or a model, never a panic, and takes memory in proportion to its size.
#![no_main]

use chimere_engine::format::{Gguf, TextAssets};
use chimere_engine::model::{Summary, load_gguf};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = Gguf::from_bytes(bytes, Path::new("fuzz.gguf")) else { return };
    for tensor in file.tensors() {
        assert!(tensor.bytes().len() <= bytes.len(), "{tensor:?} lies in the file");
    }
    let _ = TextAssets::from_gguf(&file);
    if let Ok(model) = load_gguf(&file) {
        assert!(Summary::of(&model).bytes() > 0);
    }
});
