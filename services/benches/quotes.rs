//! What it takes to allow only quotes of passages: before the first token of a request, and at each row.
//!
//! `cargo bench -p chimere --bench quotes` measures the shipped model's vocabulary, and the family's if
//! `CHIMERE_FAMILY_DIR` names the folder of its files.

#![allow(clippy::unwrap_used, reason = "a measurement")]

use chimere::text::Tokenizer;
use chimere::text::grammar::{GrammarStart, Grammars};
use chimere_engine::constraint::Effect;
use chimere_engine::format::{Gguf, TextAssets};
use chimere_engine::ids::TokenId;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PASSAGES: u32 = 8;
const WORDS: u32 = 300;
const QUOTES: usize = 200;
const QUOTE_TOKENS: usize = 20;

/// Numbers that are the same every time.
struct Numbers(u32);

impl Numbers {
    fn below(&mut self, most: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % most
    }
}

/// As prose has them: few words are most of a text.
fn passage(numbers: &mut Numbers) -> String {
    let words = ["the", "of", "and", "a", "port", "ship", "north", "built", "year", "land", "captain", "winter"];
    let word = |numbers: &mut Numbers| match numbers.below(3) {
        0 => format!("{}{}", words[numbers.below(12) as usize], numbers.below(200)),
        _ => words[numbers.below(12) as usize].to_owned(),
    };
    (0..WORDS).map(|_| word(numbers)).collect::<Vec<_>>().join(" ")
}

fn allowed(mask: &[u32], draw: u32) -> Option<TokenId> {
    let ids: Vec<TokenId> =
        (0..mask.len() as u32 * 32).filter(|id| mask[(id / 32) as usize] >> (id % 32) & 1 == 1).collect();
    (!ids.is_empty()).then(|| ids[draw as usize % ids.len()])
}

fn measure(file: &Path) {
    let tokenizer =
        Arc::new(Tokenizer::new(&TextAssets::from_gguf(&Gguf::open(file).unwrap()).unwrap().tokenizer).unwrap());
    let (end, mark) = (tokenizer.id("<|im_end|>").unwrap(), tokenizer.id("\"").unwrap());
    let grammars = Grammars::new(tokenizer.clone(), vec![end]);
    let mut numbers = Numbers(1);
    let passages: Vec<String> = (0..PASSAGES).map(|_| passage(&mut numbers)).collect();
    let prepare = || grammars.quotes(passages.iter().map(String::as_str)).unwrap();
    prepare();
    let begin = Instant::now();
    let quotes = prepare();
    println!("{} tokens, {PASSAGES} passages of {WORDS} words: {:.1?} a request", tokenizer.len(), begin.elapsed());
    let (mut outside, mut inside): (Vec<Duration>, Vec<Duration>) = Default::default();
    for _ in 0..QUOTES {
        let mut sequence = GrammarStart::of_quotes(quotes.clone(), None).begin(0);
        let begin = Instant::now();
        sequence.rule().unwrap();
        outside.push(begin.elapsed());
        sequence.take(mark).unwrap();
        for _ in 0..QUOTE_TOKENS {
            let begin = Instant::now();
            let rule = sequence.rule().unwrap();
            inside.push(begin.elapsed());
            let Some(Effect::Allow(mask)) = rule else { break };
            let Some(id) = allowed(&mask, numbers.below(1 << 20)) else { break };
            sequence.take(id).unwrap();
        }
    }
    for (name, times) in [("outside of quotes", &mut outside), ("inside", &mut inside)] {
        times.sort_unstable();
        let (middle, late) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!("  a row {name}: {middle:.1?}, 99 of 100 within {late:.1?}");
    }
}

fn main() {
    measure(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-q8_0.gguf"));
    match std::env::var_os("CHIMERE_FAMILY_DIR").map(PathBuf::from) {
        Some(folder) => measure(&folder.join("qwen35-vocab.gguf")),
        None => println!("CHIMERE_FAMILY_DIR does not name the family's files"),
    }
}
