//! `chimere eval logits`: the model's logits of given tokens in a file, whole rows, to be compared with those of
//! another program for the same model file (`scripts/compare_logits.py`).

use crate::CliError;
use crate::logits::{LogitReader, threads};
use chimere_engine::ids::TokenId;
use chimere_engine::model;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes the logits of given tokens: at each of them those of the token that follows, f32 in little-endian order, one
/// row of the vocabulary after the other. On the CPU.
#[derive(clap::Args, Debug, Clone)]
pub struct LogitsArgs {
    /// A GGUF file or a directory.
    #[arg(long, value_name = "FILE|DIR")]
    pub model: PathBuf,
    /// Ids of tokens, with white space between them.
    #[arg(long, value_name = "FILE")]
    pub ids: PathBuf,
    /// The tokens are cut into windows of this many, each read from nothing.
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub window: u32,
    /// Decoded weights and float activations instead of what the service computes with.
    #[arg(long)]
    pub exact: bool,
    /// Threads that compute, 0 for every core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// File to write the logits to.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

pub(super) fn run(args: &LogitsArgs) -> Result<(), CliError> {
    let model = model::load(&args.model).map_err(failed)?;
    let (context, vocab) = (model.config.context, model.config.vocab);
    if args.window > context {
        let window = args.window;
        return Err(CliError::Usage(format!("--window {window}: the model takes at most {context} tokens")));
    }
    let text = std::fs::read_to_string(&args.ids).map_err(|e| at(&args.ids, e))?;
    let ids = parse(&text, vocab).map_err(|e| at(&args.ids, e))?;
    let reader = if args.exact { LogitReader::exact } else { LogitReader::new };
    let mut reader = reader(&model, args.window, threads(args.threads)).map_err(CliError::Failed)?;
    let mut out = BufWriter::new(File::create(&args.out).map_err(|e| at(&args.out, e))?);
    for window in ids.chunks(args.window as usize) {
        for start in LogitReader::starts(window) {
            let logits = reader.step(window, start).map_err(failed)?;
            logits.iter().try_for_each(|x| out.write_all(&x.to_le_bytes())).map_err(|e| at(&args.out, e))?;
        }
    }
    out.flush().map_err(|e| at(&args.out, e))?;
    println!("{}: {} rows of {vocab}", args.out.display(), ids.len());
    Ok(())
}

fn parse(text: &str, vocab: usize) -> Result<Vec<TokenId>, String> {
    let id = |word: &str| match word.parse::<TokenId>() {
        Ok(id) if (id as usize) < vocab => Ok(id),
        _ => Err(format!("wanted ids of tokens below {vocab}, got {word:?}")),
    };
    let ids: Vec<_> = text.split_whitespace().map(id).collect::<Result<_, _>>()?;
    if ids.is_empty() { Err("wanted ids of tokens, got none".into()) } else { Ok(ids) }
}

fn at(path: &Path, e: impl std::fmt::Display) -> CliError {
    CliError::Failed(format!("{}: {e}", path.display()))
}

fn failed(e: impl std::fmt::Display) -> CliError {
    CliError::Failed(e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_numbers_within_the_vocabulary() {
        assert_eq!(parse("3 0\n511\t7 ", 512).unwrap(), [3, 0, 511, 7]);
        for (text, named) in [("3 512", "\"512\""), ("3 -1", "\"-1\""), ("a", "\"a\""), (" \n", "none")] {
            let error = parse(text, 512).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
