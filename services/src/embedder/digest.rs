//! Tells encoders apart by their contents: two directories of one name may have other weights.

use chimere_engine::files::open_regular;
use sha2::{Digest, Sha256};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Files that change vectors, beside the weights. One that is not there is nothing.
const FILES: [&str; 8] = [
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
];
/// Hexadecimal digits of a digest: as many as tell any two encoders apart that somebody meets.
const DIGITS: usize = 12;

/// The first digits of the SHA-256 of a directory's weights, of its files about them, and of these words.
pub(super) fn of_directory(dir: &Path, words: &[&str]) -> io::Result<String> {
    let mut weights = std::fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<String>>>()?;
    weights.retain(|name| name.ends_with(".safetensors"));
    weights.sort();
    let mut hash = Sha256::new();
    for name in FILES.into_iter().chain(weights.iter().map(String::as_str)) {
        add_file(&mut hash, dir, name)?;
    }
    Ok(finished(hash, words))
}

/// As [`of_directory`], of words alone.
pub(super) fn of_words(words: &[&str]) -> String {
    finished(Sha256::new(), words)
}

fn finished(mut hash: Sha256, words: &[&str]) -> String {
    for word in words {
        hash.update((word.len() as u64).to_le_bytes());
        hash.update(word);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>()[..DIGITS].to_owned()
}

fn add_file(hash: &mut Sha256, dir: &Path, name: &str) -> io::Result<()> {
    const BUFFER_BYTES: usize = 1 << 20;
    let mut file = match open_regular(&dir.join(name)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    hash.update(name);
    hash.update(file.metadata()?.len().to_le_bytes());
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            n => hash.update(&buffer[..n]),
        }
    }
}
