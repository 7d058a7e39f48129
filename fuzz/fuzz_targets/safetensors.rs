//! A weight file of any bytes beside a good config.json is an error or a model, never a panic.
#![no_main]

use chimere_engine::format::HfDir;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let dir = std::env::temp_dir().join(format!("chimere-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder for one file");
    std::fs::write(dir.join("config.json"), include_bytes!("../../engine/tests/golden/moe/config.json")).expect("room for it");
    std::fs::write(dir.join("model.safetensors"), bytes).expect("room for it");
    if let Ok(model) = HfDir::open(&dir) {
        for name in ["model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"] {
            if let Ok(Some(tensor)) = model.tensor(name) {
                assert!(tensor.bytes().len() <= 2 * bytes.len());
            }
        }
    }
});
