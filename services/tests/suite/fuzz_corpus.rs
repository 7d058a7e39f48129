//! What the fuzzer checks at length, briefly and everywhere: its targets run over their corpus, and over damage to it.

#![allow(unreachable_pub, reason = "the targets are shared with the fuzzer, whose programs are other crates")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[path = "../../../fuzz/targets/dialects.rs"]
mod dialects;
#[path = "../../../fuzz/targets/engr.rs"]
mod engr;
#[path = "../../../fuzz/targets/forms.rs"]
mod forms;
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

/// Random forms that a test run compiles and follows; CHIMERE_FORMS is another number.
const FORMS: u64 = 3_000;
/// The first of them.
const FIRST_FORM: &str = "CHIMERE_FIRST_FORM";
/// Where a process notes which form it reads, to be told of when it has ended there.
const NOTE: &str = "CHIMERE_FORMS_NOTE";

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// In a process of their own, for a stack that overflows ends the process.
#[test]
fn no_random_form_ends_the_process() {
    let note = std::env::temp_dir().join(format!("chimere-forms-{}", std::process::id()));
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "fuzz_corpus::random_forms_in_this_process", "--ignored", "--nocapture"]).env(NOTE, &note);
    let ended = process.status().unwrap();
    let read = std::fs::read(&note).unwrap();
    std::fs::remove_file(&note).unwrap();
    let last = u64::from_le_bytes(read[..8].try_into().unwrap());
    assert!(ended.success(), "{ended} at form {last}: {}", String::from_utf8_lossy(&forms::of(last)));
    assert_eq!(last + 1, setting(FIRST_FORM, 0) + setting("CHIMERE_FORMS", FORMS), "all of them were read");
}

#[test]
#[ignore = "what the test above runs apart"]
fn random_forms_in_this_process() {
    let note = File::create(std::env::var(NOTE).unwrap()).unwrap();
    let first = setting(FIRST_FORM, 0);
    let forms = first..first + setting("CHIMERE_FORMS", FORMS);
    let read = move || {
        let (begin, mut slowest) = (Instant::now(), (Duration::ZERO, first));
        for form in forms.clone() {
            note.write_all_at(&form.to_le_bytes(), 0).unwrap();
            let begin = Instant::now();
            grammar::run(&forms::of(form));
            slowest = slowest.max((begin.elapsed(), form));
        }
        println!("forms {forms:?} in {:?}; the slowest, {}, took {:?}", begin.elapsed(), slowest.1, slowest.0);
    };
    // As where grammars are made.
    let thread = std::thread::Builder::new().stack_size(chimere::limits::GRAMMAR_STACK_BYTES).spawn(read);
    thread.unwrap().join().unwrap();
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
