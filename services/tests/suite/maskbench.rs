//! Schemas that people wrote, with texts that keep to them and texts that do not: MaskBench, of which only the names of
//! those that fail are here. CHIMERE_MASKBENCH names its directory `data`, from
//! <https://github.com/guidance-ai/jsonschemabench>; CHIMERE_MASKBENCH_EVERY [1] takes only every so many-th file, and
//! CHIMERE_MASKBENCH_WRITE=1 writes the list anew. The limits of requests are in force, the vocabulary is the shipped
//! model's.

use chimere::text::grammar::{AnswerForm, CompiledGrammar, Grammars, Structure};
use chimere::text::{Thinking, Tokenizer};
use chimere_engine::constraint::Effect;
use chimere_engine::format::{Gguf, TextAssets};
use chimere_engine::ids::TokenId;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of a hundred schemas so many are taken, with all their texts judged rightly.
const PASSING_MIN: f64 = 90.0;
/// Of a hundred texts that do not keep to their schema at most so many are let through.
const INVALID_MAX: f64 = 0.15;
/// Where a schema fails for more than one reason it is listed under the first of these.
const REASONS: [&str; 3] = ["lets through what is invalid", "stops what is valid", "is refused"];
const STACK_BYTES: usize = 64 << 20;

#[derive(Default)]
struct Seen {
    /// Names of the failing schemas by the reason for which they fail.
    failing: BTreeMap<&'static str, BTreeSet<String>>,
    schemas: usize,
    valid: usize,
    invalid: usize,
    let_through: usize,
    compile: Vec<Duration>,
    masks: Vec<Duration>,
    /// What it took to go on by a token that is allowed.
    takes: Vec<Duration>,
    /// Tokens of valid texts, and those of them that were the only ones allowed.
    tokens: usize,
    forced: usize,
}

struct Judge {
    tokenizer: Arc<Tokenizer>,
    grammars: Grammars,
    end: TokenId,
}

impl Judge {
    fn new() -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-q8_0.gguf");
        let assets = TextAssets::from_gguf(&Gguf::open(&file).unwrap()).unwrap();
        let tokenizer = Arc::new(Tokenizer::new(&assets.tokenizer).unwrap());
        let end = tokenizer.id("<|im_end|>").unwrap();
        Self { grammars: Grammars::new(tokenizer.clone(), vec![end]), tokenizer, end }
    }

    /// Looks at a schema and its texts.
    fn look(&self, name: &str, file: &Value, seen: &mut Seen) {
        seen.schemas += 1;
        let form = AnswerForm::Json { schema: file["schema"].clone(), compact: false, closed: false };
        let begin = Instant::now();
        let compiled = self.grammars.compile(&Structure { form: Some(form), calls: None });
        seen.compile.push(begin.elapsed());
        let mut wrong = BTreeSet::new();
        match compiled {
            Err(error) => {
                println!("{name}: {error}");
                wrong.insert(2);
            }
            Ok(grammar) => {
                for test in file["tests"].as_array().unwrap_or(&Vec::new()) {
                    wrong.extend(self.judge(&grammar, test, seen));
                }
            }
        }
        if let Some(worst) = wrong.first() {
            seen.failing.entry(REASONS[*worst]).or_default().insert(name.to_owned());
        }
    }

    /// The reason that a text was judged wrongly.
    fn judge(&self, grammar: &Arc<CompiledGrammar>, test: &Value, seen: &mut Seen) -> Option<usize> {
        let valid = test["valid"] == true;
        *(if valid { &mut seen.valid } else { &mut seen.invalid }) += 1;
        match (valid, self.follow(grammar, &test["data"].to_string(), valid, seen)) {
            (true, false) => Some(1),
            (false, true) => {
                seen.let_through += 1;
                Some(0)
            }
            _ => None,
        }
    }

    /// Whether the text and an end after it are allowed.
    fn follow(&self, grammar: &Arc<CompiledGrammar>, text: &str, valid: bool, seen: &mut Seen) -> bool {
        let mut sequence = grammar.after(Some(Thinking::Closed)).unwrap().begin(0);
        let mut ids = self.tokenizer.encode_plain(text);
        ids.push(self.end);
        for id in ids {
            let begin = Instant::now();
            let Ok(Some(Effect::Allow(mask))) = sequence.rule() else { return false };
            seen.masks.push(begin.elapsed());
            if mask.get(id as usize / 32).is_none_or(|word| word >> (id % 32) & 1 == 0) {
                return false;
            }
            if valid {
                seen.tokens += 1;
                seen.forced += usize::from(mask.iter().map(|word| word.count_ones()).sum::<u32>() == 1);
            }
            let begin = Instant::now();
            if sequence.take(id).is_err() {
                return false;
            }
            seen.takes.push(begin.elapsed());
        }
        true
    }
}

fn at(sorted: &[Duration], share: f64) -> Duration {
    sorted
        .get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

impl Seen {
    fn report(&mut self) {
        self.compile.sort_unstable();
        self.masks.sort_unstable();
        self.takes.sort_unstable();
        for (what, times) in [("compile", &self.compile), ("mask", &self.masks), ("token", &self.takes)] {
            let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(|share| at(times, share));
            println!("{what}: median {p50:.1?}, 99 % {p99:.1?}, 99.9 % {p999:.1?}, max {max:.1?} of {}", times.len());
        }
        for reason in REASONS {
            println!("{reason}: {} schemas", self.failing.get(reason).map_or(0, BTreeSet::len));
        }
        println!("{} schemas, passing {:.2} %", self.schemas, self.passing());
        println!("{} valid texts; {} of {} invalid ones let through", self.valid, self.let_through, self.invalid);
        println!("{} of {} tokens had no alternative", self.forced, self.tokens);
    }

    fn passing(&self) -> f64 {
        let failing: usize = self.failing.values().map(BTreeSet::len).sum();
        100.0 * (self.schemas - failing) as f64 / self.schemas.max(1) as f64
    }
}

fn list() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/maskbench_failures.txt")
}

fn write_list(seen: &Seen) {
    let mut text = String::from("# MaskBench's schemas that fail, by reason; written by tests/suite/maskbench.rs\n");
    for (reason, names) in &seen.failing {
        text += &format!("## {reason}\n");
        names.iter().for_each(|name| text += &format!("{name}\n"));
    }
    std::fs::write(list(), text).unwrap();
}

fn run(directory: &Path) {
    let every: usize = std::env::var("CHIMERE_MASKBENCH_EVERY").map_or(1, |n| n.parse().unwrap());
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let (judge, mut seen) = (Judge::new(), Seen::default());
    for (number, path) in files.iter().step_by(every).enumerate() {
        let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        judge.look(&path.file_stem().unwrap().to_string_lossy(), &file, &mut seen);
        if number % 500 == 499 {
            println!("{} of {}", number + 1, files.len().div_ceil(every));
        }
    }
    seen.report();
    if std::env::var_os("CHIMERE_MASKBENCH_WRITE").is_some() {
        write_list(&seen);
    }
    let listed = std::fs::read_to_string(list()).unwrap();
    let listed: BTreeSet<&str> = listed.lines().collect();
    let new: Vec<_> = seen.failing.values().flatten().filter(|name| !listed.contains(name.as_str())).collect();
    assert!(new.is_empty(), "fail and are not listed: {new:?}");
    let let_through = 100.0 * seen.let_through as f64 / seen.invalid.max(1) as f64;
    assert!(
        seen.passing() >= PASSING_MIN && let_through <= INVALID_MAX,
        "{:.2} % pass, {let_through:.3} % let through",
        seen.passing()
    );
}

#[test]
fn schemas_that_people_wrote_are_kept_to() {
    let Some(directory) = std::env::var_os("CHIMERE_MASKBENCH").map(PathBuf::from) else {
        println!("skipped: CHIMERE_MASKBENCH names no directory");
        return;
    };
    // As wide as the threads that compile in the service: schemas nest.
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || run(&directory)).unwrap();
    thread.join().unwrap();
}
