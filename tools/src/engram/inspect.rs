//! `chimere engram inspect`: what a table holds.

use super::{TableVocabulary, failed, now};
use crate::CliError;
use crate::figures::{bytes_text, count_text};
use chimere_engine::engram::{Entry, Ngrams, Table};
use chimere_engine::ids::TokenId;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Continuations of a context that are shown.
const SHOWN_CONTINUATIONS: usize = 5;
const DAY_S: f64 = 24.0 * 60.0 * 60.0;

/// Checks a table in full, and shows its sizes by order and its most frequent contexts.
#[derive(clap::Args, Debug, Clone)]
pub struct InspectArgs {
    /// Table to look into.
    #[arg(value_name = "TABLE")]
    pub table: PathBuf,
    /// Model to read contexts with; a table that was made for another tokenizer is refused. Without it contexts are
    /// ids.
    #[arg(long, value_name = "FILE|DIR")]
    pub tokenizer_of: Option<PathBuf>,
    /// How many of each order's most frequent contexts to show.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub top: usize,
}

pub(super) fn run(args: &InspectArgs) -> Result<(), CliError> {
    let vocabulary = args.tokenizer_of.as_deref().map(|path| TableVocabulary::find(Some(path))).transpose()?;
    let table = match &vocabulary {
        Some(vocabulary) => vocabulary.open(&args.table)?,
        None => Table::open(&args.table).map_err(failed)?,
    };
    print!("{}", report(&args.table, &table, now()));
    print!("{}", contexts(&table, args.top, |ids| show(ids, vocabulary.as_ref())));
    Ok(())
}

pub(super) fn report(path: &Path, table: &Table, now: u32) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| writeln!(out, "{name:<16}{value}").expect("writing to a string");
    line("table", path.display().to_string());
    line("size", bytes_text(table.bytes() as u64));
    line("tokenizer", table.tokenizer().to_string());
    line("vocabulary", table.vocab().to_string());
    line("built from", format!("{} tokens", count_text(table.tokens())));
    writeln!(out, "\n{:<8}{:>12}{:>12}{:>12}  seen, days ago", "order", "contexts", "n-grams", "bytes")
        .expect("to a string");
    for s in table.stats() {
        let days = |time: u32| f64::from(now.saturating_sub(time)) / DAY_S;
        let (contexts, ngrams, bytes) = (count_text(s.contexts), count_text(s.ngrams), bytes_text(s.bytes));
        let (old, new) = (days(s.times.0), days(s.times.1));
        writeln!(out, "{:<8}{contexts:>12}{ngrams:>12}{bytes:>12}  {old:.1} to {new:.1}", s.order)
            .expect("to a string");
    }
    out
}

/// The most frequent contexts of each order, ties in the file's order.
pub(super) fn contexts(table: &Table, top: usize, show: impl Fn(&[TokenId]) -> String) -> String {
    let mut out = String::new();
    for order in table.stats().iter().map(|s| s.order).filter(|_| top > 0) {
        writeln!(out, "\norder {order}").expect("to a string");
        let mut best: Vec<Entry> = Vec::new();
        for entry in table.entries(order) {
            // Kept short on the way: a table may have millions of contexts.
            best.push(entry);
            if best.len() >= top.saturating_mul(2).max(1024) {
                keep_best(&mut best, top);
            }
        }
        keep_best(&mut best, top);
        for entry in &best {
            let list = entry.list.iter().take(SHOWN_CONTINUATIONS).map(|c| format!("{} {}", show(&[c.token]), c.count));
            let list = list.collect::<Vec<_>>().join(", ");
            writeln!(out, "  {} x {}: {list}", show(&entry.key), entry.total).expect("to a string");
        }
    }
    out
}

fn keep_best(entries: &mut Vec<Entry>, n: usize) {
    entries.sort_by_key(|e| std::cmp::Reverse(e.total));
    entries.truncate(n);
}

fn show(ids: &[TokenId], vocabulary: Option<&TableVocabulary>) -> String {
    match vocabulary {
        Some(vocabulary) => format!("{:?}", vocabulary.tokenizer.decode(ids, true)),
        None => format!("{ids:?}"),
    }
}
