//! Whole commands on files, with the shipped model's tokenizer.

use super::*;
use chimere_engine::engram::Entry;
use chimere_engine::engram::{Evidence, Joint, Ngrams, Strengths, Witness};
use clap::Parser;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: EngramCommand,
}

fn nano() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../models/nano/nano-q8_0.gguf")
}

/// Another tokenizer than the shipped model's: a Hugging Face directory.
fn golden() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../engine/tests/golden/moe")
}

/// A directory to work in; words that start with `@` are files in it.
struct Desk(TempDir);

impl Desk {
    fn new(files: &[(&str, &str)]) -> Self {
        let desk = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            let path = desk.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn parse(&self, line: &str) -> Result<EngramCommand, clap::Error> {
        let word = |word: &str| match word.strip_prefix('@') {
            Some(name) => self.path(name).to_str().unwrap().to_owned(),
            None => word.to_owned(),
        };
        Cli::try_parse_from(["engram".to_owned()].into_iter().chain(line.split_whitespace().map(word)))
            .map(|c| c.command)
    }

    fn run(&self, line: &str) -> Result<(), String> {
        let command = self.parse(line).map_err(|e| e.to_string())?;
        super::run(&command).map_err(|e| e.to_string())
    }

    fn build(&self, from: &str, out: &str, more: &str) -> Result<(), String> {
        self.run(&format!("build --from {from} --out {out} --tokenizer-of {} {more}", nano()))
    }

    fn table(&self, name: &str) -> Table {
        Table::open(&self.path(name)).unwrap()
    }
}

/// All that a table says, times left out.
fn contents(table: &Table) -> Vec<Entry> {
    let orders = table.stats().iter().map(|s| s.order).collect::<Vec<_>>();
    let mut entries: Vec<Entry> =
        orders.into_iter().flat_map(|order| table.entries(order).collect::<Vec<_>>()).collect();
    entries.iter_mut().flat_map(|e| &mut e.list).for_each(|c| c.time = 0);
    entries
}

#[test]
fn a_table_knows_what_followed_in_every_file_of_a_directory() {
    let desk = Desk::new(&[
        (
            "texts/a.jsonl",
            "{\"text\": \"The port of Vorland is open.\"}\n\n{\"text\": \"The port of Vorland is closed.\"}\n",
        ),
        ("texts/deep/b.md", "The port of Vorland is open."),
        ("texts/c.bin", "The port of Vorland is nowhere."),
    ]);
    desk.build("@texts", "@t.engr", "--orders 2-3").unwrap();
    let (table, words) = (desk.table("t.engr"), TableVocabulary::find(Some(Path::new(nano()))).unwrap());
    assert_eq!((table.tokenizer(), table.vocab()), (words.fingerprint.hash, words.fingerprint.vocab));
    assert_eq!(table.stats().iter().map(|s| s.order).collect::<Vec<_>>(), [2, 3]);
    let ids = words.tokenizer.encode_plain("The port of Vorland is");
    let open = words.tokenizer.encode_plain("The port of Vorland is open")[ids.len()];
    let found = table.find(&chimere_engine::engram::Context::new(&ids), 3).unwrap();
    assert_eq!((found.total(), found.iter().next().unwrap()), (3, (open, 2)), "the file of another kind is not read");
}

#[test]
fn markup_is_spelled_out_unless_it_is_asked_for() {
    let desk = Desk::new(&[("t.txt", "a <|im_end|> b <|im_end|> c")]);
    let end = TableVocabulary::find(Some(Path::new(nano()))).unwrap().tokenizer.id("<|im_end|>").unwrap();
    for (flag, wanted) in [("", 0), ("--markup", 2)] {
        desk.build("@t.txt", "@t.engr", flag).unwrap();
        assert_eq!(desk.table("t.engr").prior(end), wanted, "with {flag:?}");
    }
}

#[test]
fn merging_is_building_from_all_texts_and_refuses_another_tokenizer_s_table() {
    let (a, b) = ("one two three two three four", "two three five one two three");
    let desk = Desk::new(&[("all/a.txt", a), ("all/b.txt", b)]);
    desk.build("@all/a.txt", "@a.engr", "").unwrap();
    desk.build("@all/b.txt", "@b.engr", "").unwrap();
    desk.build("@all", "@all.engr", "").unwrap();
    desk.run("merge @a.engr @b.engr --out @a.engr").unwrap();
    assert_eq!(contents(&desk.table("a.engr")), contents(&desk.table("all.engr")));
    desk.run(&format!("build --from @all --out @other.engr --tokenizer-of {}", golden())).unwrap();
    let refused = desk.run("merge @b.engr @other.engr --out @never.engr").unwrap_err();
    assert!(refused.contains("other.engr") && refused.contains("another tokenizer"), "{refused}");
    assert!(!desk.path("never.engr").exists());
}

#[test]
fn pruning_forgets_what_is_rare_and_wants_a_rule() {
    let desk = Desk::new(&[("t.txt", "one two three. one two three. one two four.")]);
    desk.build("@t.txt", "@t.engr", "--orders 2").unwrap();
    desk.build("@t.txt", "@twice.engr", "--orders 2 --min-count 2").unwrap();
    desk.run("prune @t.engr --out @kept.engr --age-days-max 1").unwrap();
    assert_eq!(contents(&desk.table("kept.engr")), contents(&desk.table("t.engr")), "nothing is a day old");
    desk.run("prune @t.engr --out @t.engr --min-count 2 --half-life-days 30").unwrap();
    assert_eq!(contents(&desk.table("t.engr")), contents(&desk.table("twice.engr")));
    let usage = |line: &str| desk.parse(line).unwrap_err().to_string();
    assert!(usage("prune @t.engr --out @t.engr").contains("--min-count"));
    assert!(usage("prune @t.engr --out @t.engr --age-days-max 1 --half-life-days 3").contains("--min-count"));
    assert!(usage("prune @t.engr --out @t.engr --min-count 0").contains("--min-count"));
}

#[test]
fn a_table_is_shown_by_order_and_in_words() {
    let desk = Desk::new(&[("t.txt", "one two one two one two three")]);
    desk.build("@t.txt", "@t.engr", "--orders 1-2").unwrap();
    let (table, words) = (desk.table("t.engr"), TableVocabulary::find(Some(Path::new(nano()))).unwrap());
    let report = inspect::report(&desk.path("t.engr"), &table, now());
    assert!(report.contains(&words.fingerprint.hash.to_string()) && report.contains("\n2 "), "{report}");
    let shown = inspect::contexts(&table, 1, |ids| words.tokenizer.decode(ids, true));
    assert!(shown.contains(" x 3: ") && shown.matches('\n').count() == 6, "{shown}");
    desk.run(&format!("inspect @t.engr --top 3 --tokenizer-of {}", nano())).unwrap();
    let refused = desk.run(&format!("inspect @t.engr --tokenizer-of {}", golden())).unwrap_err();
    assert!(refused.contains("t.engr") && refused.contains("another tokenizer"), "{refused}");
}

#[test]
fn what_is_no_text_or_no_table_is_refused_by_name_and_line() {
    let desk = Desk::new(&[
        ("field.jsonl", "{\"text\": \"a b c\"}\n{\"body\": \"d\"}\n"),
        ("broken.jsonl", "{\"text\": \n"),
        ("empty.txt", ""),
        ("none/x.bin", "x"),
        ("no.engr", "not a table"),
    ]);
    let says = |result: Result<(), String>, wanted: &[&str]| {
        let error = result.unwrap_err();
        assert!(wanted.iter().all(|w| error.contains(w)), "{wanted:?} is not in {error:?}");
    };
    says(desk.build("@field.jsonl", "@t.engr", ""), &["field.jsonl: line 2", "\"text\"", "\"body\""]);
    says(desk.build("@broken.jsonl", "@t.engr", ""), &["broken.jsonl: line 1"]);
    says(desk.build("@empty.txt", "@t.engr", ""), &["empty.txt", "at least one text"]);
    says(desk.build("@none", "@t.engr", ""), &["none", ".jsonl"]);
    says(desk.build("@missing.txt", "@t.engr", ""), &["missing.txt"]);
    says(desk.build("@field.jsonl", "@t.engr", "--orders 5-2"), &["--orders", "5-2"]);
    says(desk.build("@field.jsonl", "@t.engr", "--orders 2-9"), &["--orders", "1-8"]);
    says(desk.run("inspect @no.engr"), &["no.engr", "not an engram table"]);
    assert!(!desk.path("t.engr").exists(), "what failed wrote nothing");
}

/// What `eval` measures; the options are those of the command line.
fn measured(desk: &Desk, line: &str) -> eval::EvalReport {
    let EngramCommand::Eval(args) = desk.parse(line).unwrap() else { panic!("eval was asked for") };
    eval::measure(&args, &model::load(Path::new(nano())).unwrap()).map_err(|e| e.to_string()).unwrap()
}

#[test]
fn a_table_lowers_the_surprise_at_what_it_has_read_and_one_of_other_text_does_not_help() {
    let fact = "The Zuvrek harbour is Obelkantir, as the Zuvrek harbour was Obelkantir before. ";
    let desk = Desk::new(&[
        ("facts.txt", &fact.repeat(3)),
        ("other.txt", "fn main() { println!(\"{}\", 1 + 2); }"),
        ("on.txt", "Obelkantir? The Zuvrek harbour is Obelkantir, as the Zuvrek harbour was Obelkantir before."),
    ]);
    desk.build("@facts.txt", "@facts.engr", "").unwrap();
    desk.build("@other.txt", "@other.engr", "").unwrap();
    let report = measured(
        &desk,
        "eval --on @on.txt --table @facts.engr --table @other.engr --alpha 0,1 --lambda 0,0.5 --threads 1",
    );
    let change = |subject: usize, mode: usize| report.subjects[subject].modes[mode].1.change(&report.baseline).0;
    assert_eq!(report.subjects.iter().map(|s| s.modes.len()).collect::<Vec<_>>(), [5; 3]);
    for subject in 0..3 {
        assert!(change(subject, 0).abs() < 1e-9 && change(subject, 2).abs() < 1e-9, "a strength of 0 changes nothing");
    }
    for mode in [1, 3, 4] {
        assert!(change(0, mode) < -0.3, "{report}");
        assert!(change(1, mode) > -0.01, "{report}");
        assert!(change(2, mode) < -0.3, "all together know it too: {report}");
    }
    assert!(report.subjects[0].listed > report.subjects[1].listed, "{report}");
}

#[test]
fn windows_and_a_limit_on_tokens_bound_what_is_judged() {
    let desk = Desk::new(&[("t.txt", &"one two three four five. ".repeat(40))]);
    desk.build("@t.txt", "@t.engr", "--orders 2").unwrap();
    // A window judges all of its tokens but the first.
    let report =
        measured(&desk, "eval --on @t.txt --table @t.engr --window 70 --tokens 150 --alpha 1 --lambda 0.1 --threads 1");
    assert_eq!(report.baseline.tokens(), 69 + 69 + 9);
    let json = desk.path("out.json");
    desk.run(&format!("eval --on @t.txt --table @t.engr --tokens 20 --threads 1 --model {} --json @out.json", nano()))
        .unwrap();
    let figures: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!((figures["tokens"].as_u64(), figures["tables"][0]["modes"].as_array().unwrap().len()), (Some(19), 7));
}

#[test]
fn strengths_are_fitted_to_what_is_in_no_table_and_refused_on_what_is() {
    let fact = "The Zuvrek harbour is Obelkantir, as the Zuvrek harbour was Obelkantir before. ";
    let asked = r#"{"prompt": "<|im_start|>user\nharbour?<|im_end|>", "text": "The Zuvrek harbour is Obelkantir.", "documents": ["The Zuvrek harbour is Obelkantir."]}"#;
    let desk = Desk::new(&[
        ("facts.txt", &fact.repeat(6)),
        ("other.txt", "fn main() { println!(\"{}\", 1 + 2); }"),
        ("asked.jsonl", &format!("{asked}\n").repeat(8)),
        ("once.jsonl", asked),
        ("elsewhere.jsonl", "{\"text\": \"a b\", \"tables\": [\"others\"]}"),
        ("wrong.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"a b\", \"documents\": [1]}\n"),
    ]);
    desk.build("@facts.txt", "@facts.engr", "").unwrap();
    desk.build("@other.txt", "@other.engr", "").unwrap();
    let calibrate = |on: &str, table: &str| {
        desk.run(&format!("calibrate --on {on} --table {table} --out @s.txt --threads 1 --model {}", nano()))
    };
    let refused = calibrate("@facts.txt", "@facts.engr").unwrap_err();
    assert!(refused.contains("facts.txt: wanted texts that are in no table, got one of which"), "{refused}");
    assert!(!desk.path("s.txt").exists(), "what failed wrote nothing");
    let wrong = calibrate("@wrong.jsonl", "@other.engr").unwrap_err();
    assert!(wrong.contains("wrong.jsonl: line 2: \"documents\": "), "{wrong}");
    for (option, wanted) in [
        ("--weight asked", "wanted NAME=WEIGHT, got \"asked\""),
        ("--weight asked=0", "wanted a weight above 0, got \"0\""),
        ("--weight other=2", "--weight: wanted one of asked, got \"other\""),
    ] {
        let wrong = calibrate("@asked.jsonl", &format!("@other.engr {option}")).unwrap_err();
        assert!(wrong.contains(wanted), "{wrong}");
    }
    let wrong = calibrate("@elsewhere.jsonl", "@other.engr").unwrap_err();
    assert!(wrong.contains("line 1: \"tables\": wanted some of [other], got \"others\""), "{wrong}");
    // Of the one text there is none left to fit to, so that what was not seen stays.
    calibrate("@once.jsonl", "@other.engr --judge-one-in 1").unwrap();
    let strengths = || fs::read_to_string(desk.path("s.txt")).unwrap().parse::<Strengths>().unwrap();
    assert_eq!(strengths().to_text(), Strengths::shipped().to_text());
    calibrate("@asked.jsonl", "@other.engr --keep-documents").unwrap();
    assert_eq!(strengths().to_text(), Strengths::shipped().to_text());
    calibrate("@asked.jsonl", "@other.engr --weight asked=2").unwrap();
    let fitted = strengths();
    let joint = Joint::AfterCommon;
    let e = Evidence { witness: Witness::Documents, words: 4, occurrences: 1, continuations: 1, joint, rareness: 35.0 };
    let shipped = Strengths::shipped();
    assert!(fitted != *shipped && fitted.of(e.cell()) > 0.5, "{}", fitted.of(e.cell()));
}

#[test]
fn a_table_with_longer_contexts_is_written_where_it_is_asked_for_and_neither_joined_nor_pruned() {
    let said = "before you open the door turn the small brass key twice to the";
    let text = format!("Today {said} left\n\nTonight {said} right\n");
    let desk = Desk::new(&[("a.jsonl", &format!("{}\n{}\n", json(&text[..text.len() / 2]), json(&text)))]);
    desk.build("@a.jsonl", "@long.engr", "--longest 32").unwrap();
    desk.build("@a.jsonl", "@plain.engr", "").unwrap();
    let (long, plain) = (desk.table("long.engr"), desk.table("plain.engr"));
    assert!(long.is_long() && !plain.is_long(), "{:?}", long.stats());
    assert!(contents(&long).starts_with(&contents(&plain)));
    let joined = desk.run("merge @plain.engr @long.engr --out @all.engr").unwrap_err();
    assert!(joined.contains("table 1: wanted one without contexts of more than 8 tokens"), "{joined}");
    let pruned = desk.run("prune @long.engr --out @all.engr --min-count 2").unwrap_err();
    assert!(pruned.contains("long.engr: wanted a table without contexts of more than 8 tokens"), "{pruned}");
    let refused = desk.build("@a.jsonl", "@all.engr", "--longest 33").unwrap_err();
    assert!(refused.contains("longest: wanted 8, or up to 32 with orders up to 8, got 33"), "{refused}");
    desk.run("inspect @long.engr --top 1").unwrap();
}

/// A line of a .jsonl file.
fn json(text: &str) -> String {
    serde_json::json!({ "text": text }).to_string()
}

#[test]
fn an_evaluation_that_makes_no_sense_is_refused_by_option() {
    let desk = Desk::new(&[("t.txt", "one two three")]);
    desk.build("@t.txt", "@t.engr", "").unwrap();
    desk.run(&format!("build --from @t.txt --out @other.engr --tokenizer-of {}", golden())).unwrap();
    let refused = |more: &str| desk.run(&format!("eval --on @t.txt --model {} {more}", nano())).unwrap_err();
    assert_eq!(refused("--table @t.engr --alpha 3"), "--alpha: wanted 0 to 2, got 3");
    assert_eq!(refused("--table @t.engr --lambda 0.96"), "--lambda: wanted 0 to 0.95, got 0.96");
    assert_eq!(refused("--table @t.engr --window 5000"), "--window 5000: the model takes at most 4096 tokens");
    assert!(refused("--table @other.engr").contains("another tokenizer"));
}
