//! A weight file of any bytes beside a good config.json is an error or a model, never a panic.

use chimere_engine::format::HfDir;
use std::path::PathBuf;
use std::sync::LazyLock;

/// In memory where there is such a folder: a file is written for each input.
pub static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let dir = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let dir = dir.join(format!("chimere-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder for two files");
    let config = include_bytes!("../../engine/tests/golden/moe/config.json");
    std::fs::write(dir.join("config.json"), config).expect("room for it");
    dir
});

pub fn run(bytes: &[u8]) {
    std::fs::write(DIR.join("model.safetensors"), bytes).expect("room for it");
    let Ok(model) = HfDir::open(&DIR) else { return };
    for name in ["model.embed_tokens.weight", "lm_head.weight", "model.norm.weight", "w"] {
        if let Ok(Some(tensor)) = model.tensor(name) {
            assert!(tensor.bytes().len() <= 2 * bytes.len(), "{name} lies in the file");
        }
    }
    let _ = chimere_engine::model::load(&DIR);
}
