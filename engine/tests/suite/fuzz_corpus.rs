//! The corpus of the fuzz targets, replayed, and random damage to it: what the fuzzer checks at length, briefly and
//! everywhere.

use chimere_engine::format::{Gguf, TextAssets};
use chimere_engine::model::load_gguf;
use proptest::prelude::*;
use std::path::Path;
use std::sync::LazyLock;

/// Name and bytes of each file.
static CORPUS: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/gguf");
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|f| f.unwrap().path())
        .map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&p).unwrap()))
        .collect();
    files.sort();
    files
});

/// Everything that the fuzz target does.
fn loads(bytes: &[u8]) -> bool {
    let Ok(file) = Gguf::from_bytes(bytes, Path::new("fuzz.gguf")) else { return false };
    let _ = TextAssets::from_gguf(&file);
    load_gguf(&file).is_ok()
}

#[test]
fn every_file_of_the_corpus_is_a_model_or_an_error() {
    let models: Vec<_> = CORPUS.iter().filter(|(_, bytes)| loads(bytes)).map(|(name, _)| name.as_str()).collect();
    assert_eq!(models, ["model"], "the other files of the corpus are broken");
    assert!(CORPUS.len() >= 8, "{} files", CORPUS.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_are_models_or_errors(
        file in 0..100usize,
        damage in prop::collection::vec((0..1usize << 20, prop_oneof![Just(0u8), Just(1), Just(0x7f), Just(0xff), any::<u8>()]), 1..6),
        cut in prop::option::of(0..1usize << 20),
    ) {
        let mut bytes = CORPUS[file % CORPUS.len()].1.clone();
        for (at, value) in damage {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(cut.map_or(usize::MAX, |c| c % (bytes.len() + 1)));
        loads(&bytes);
    }
}
