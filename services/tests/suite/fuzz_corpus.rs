//! What the fuzzer checks at length, briefly and everywhere: its targets run over their corpus, and over damage to it.

#![allow(unreachable_pub, reason = "the targets are shared with the fuzzer, whose programs are other crates")]

use std::path::Path;

#[path = "../../../fuzz/targets/dialects.rs"]
mod dialects;
#[path = "../../../fuzz/targets/engr.rs"]
mod engr;
#[path = "../../../fuzz/targets/gguf.rs"]
mod gguf;
#[path = "../../../fuzz/targets/grammar.rs"]
mod grammar;
#[path = "../../../fuzz/targets/keys.rs"]
mod keys;
#[path = "../../../fuzz/targets/request.rs"]
mod request;
#[path = "../../../fuzz/targets/safetensors.rs"]
mod safetensors;
#[path = "../../../fuzz/targets/template.rs"]
mod template;

/// Damaged copies of each file.
const COPIES: u64 = 8;

/// Runs a target over what it begins with and over what a run of the fuzzer found to reach something new.
fn replay(target: &str, run: fn(&[u8])) {
    replay_folders(target, &["corpus", "found"], run);
}

fn replay_folders(target: &str, folders: &[&str], run: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let folders = folders.iter().map(|folder| std::fs::read_dir(fuzz.join(folder).join(target)).unwrap());
    let mut files: Vec<_> = folders.flatten().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "{target}: {} files", files.len());
    for (i, path) in (0..).zip(&files) {
        // A failure is told of the file that was shown last.
        println!("{}", path.display());
        let whole = std::fs::read(path).unwrap();
        run(&whole);
        (0..COPIES).for_each(|copy| run(&damaged(&whole, COPIES * i + copy)));
    }
}

/// A copy in which one to four bytes are others, and that may be cut.
fn damaged(whole: &[u8], seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below.max(1)
    };
    let mut bytes = whole.to_vec();
    for _ in 0..1 + draw(4) {
        let at = draw(bytes.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte = [0, 1, 0x7f, 0xff, b'{', b'"', b'9', draw(256) as u8][draw(8)];
        }
    }
    if draw(4) == 0 {
        bytes.truncate(draw(whole.len() + 1));
    }
    bytes
}

#[test]
fn model_files() {
    replay("gguf", gguf::run);
}

#[test]
fn weight_files() {
    replay("safetensors", safetensors::run);
    std::fs::remove_dir_all(&*safetensors::DIR).unwrap();
}

#[test]
fn tables() {
    replay("engr", engr::run);
}

#[test]
fn key_files() {
    replay("keys", keys::run);
}

#[test]
fn forms_of_answers() {
    replay("grammar", grammar::run);
}

#[test]
fn request_bodies() {
    replay("request", request::run);
}

#[test]
fn bodies_in_other_dialects() {
    // The fuzzer has not run it yet.
    replay_folders("dialects", &["corpus"], dialects::run);
}

#[test]
fn chat_templates_and_conversations() {
    replay("template", template::run);
}
