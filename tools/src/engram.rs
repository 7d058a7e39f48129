//! `chimere engram`: tables of n-grams as files. What a table is and does is the engine's; here are texts, tokenizers
//! and paths.

mod build;
mod calibrate;
mod corpus;
mod eval;
mod inspect;
mod merge;
mod prune;
mod rollback;

use super::CliError;
use super::figures::{bytes_text, count_text};
use super::find_model;
use chimere::engram::unix_seconds as now;
use chimere::text::{Fingerprint, Tokenizer};
use chimere_engine::engram::{Image, Table, TableError, publish};
use chimere_engine::ids::TokenId;
use chimere_engine::model::{self, Model};
use std::path::Path;

/// The commands on tables.
#[derive(clap::Subcommand, Debug)]
pub enum EngramCommand {
    /// Make a table from texts.
    Build(build::BuildArgs),
    /// Show what a table holds.
    Inspect(inspect::InspectArgs),
    /// Make one table of several.
    Merge(merge::MergeArgs),
    /// Forget what is old or rare.
    Prune(prune::PruneArgs),
    /// Undo the last write of a table that is taught over the API.
    Rollback(rollback::RollbackArgs),
    /// Fit how far matches are believed where no strength is given.
    Calibrate(Box<calibrate::CalibrateArgs>),
    /// Measure what tables do for a text.
    Eval(Box<eval::EvalArgs>),
}

/// Runs one of them.
pub fn run(command: &EngramCommand) -> Result<(), CliError> {
    match command {
        EngramCommand::Build(args) => build::run(args),
        EngramCommand::Inspect(args) => inspect::run(args),
        EngramCommand::Merge(args) => merge::run(args),
        EngramCommand::Prune(args) => prune::run(args),
        EngramCommand::Rollback(args) => rollback::run(args),
        EngramCommand::Calibrate(args) => calibrate::run(args),
        EngramCommand::Eval(args) => eval::run(args),
    }
}

/// A model's tokenizer, and what ties tables to it.
struct TableVocabulary {
    tokenizer: Tokenizer,
    fingerprint: Fingerprint,
}

impl TableVocabulary {
    /// Of the model that an option or its absence means; its weights are mapped and not read.
    fn find(asked: Option<&Path>) -> Result<Self, CliError> {
        Self::of(&model::load(&find_model(asked)?).map_err(failed)?)
    }

    fn of(model: &Model) -> Result<Self, CliError> {
        let tokenizer = Tokenizer::new(&model.text.tokenizer).map_err(failed)?;
        let fingerprint = Fingerprint::of(&tokenizer);
        Ok(Self { tokenizer, fingerprint })
    }

    /// Ids of a text. Without `markup` it is nothing but text, whatever it looks like.
    fn encode(&self, text: &str, markup: bool) -> Vec<TokenId> {
        if markup { self.tokenizer.encode(text) } else { self.tokenizer.encode_plain(text) }
    }

    /// Refuses a table that was made for another tokenizer.
    fn open(&self, path: &Path) -> Result<Table, CliError> {
        Table::open_for(path, self.fingerprint.hash).map_err(failed)
    }
}

fn failed(e: impl std::fmt::Display) -> CliError {
    CliError::Failed(e.to_string())
}

/// Says how large the file will be, puts it in place, and says what it became.
fn write(path: &Path, image: &Image) -> Result<String, CliError> {
    eprintln!("{}: {} will be written", path.display(), bytes_text(image.bytes()));
    publish(path, |out| image.write(out)).map_err(failed)?;
    summary(path).map_err(failed)
}

/// One line. The file is read back, so a table that is reported is one that opens.
fn summary(path: &Path) -> Result<String, TableError> {
    let table = Table::open(path)?;
    let sum = |of: fn(&chimere_engine::engram::OrderStats) -> u64| count_text(table.stats().iter().map(of).sum());
    let (contexts, ngrams) = (sum(|s| s.contexts), sum(|s| s.ngrams));
    let (tokens, bytes) = (count_text(table.tokens()), bytes_text(table.bytes() as u64));
    let orders = orders_text(&table);
    Ok(format!(
        "{}: {ngrams} n-grams after {contexts} contexts of orders {orders}, from {tokens} tokens, {bytes}",
        path.display()
    ))
}

fn orders_text(table: &Table) -> String {
    let all: Vec<String> = table.stats().iter().map(|s| s.order.to_string()).collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

#[cfg(test)]
mod tests;
