//! `chimere engram build`: a table from texts.

use super::corpus::{self, TextOptions};
use super::{TableVocabulary, failed, now, write};
use crate::CliError;
use chimere_engine::engram::{BuildOptions, ORDER_MAX, Orders, build};
use std::path::PathBuf;

/// Counts which tokens follow which contexts in some texts. All texts are held in memory while the table is made.
#[derive(clap::Args, Debug, Clone)]
pub struct BuildArgs {
    /// Texts: a .jsonl file with a text a line, a plain text file, or a directory with such files.
    #[arg(long, value_name = "FILE|DIR")]
    pub from: PathBuf,
    /// Table to write; one that is there is replaced at once.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Lengths of the contexts, one number or a range within 1-8.
    #[arg(long, value_name = "N-M", default_value = "2-8")]
    pub orders: Orders,
    /// The longest contexts, up to 32: those of more than 8 tokens are kept where they say more than their ends do. A
    /// table with such is of format 3, which earlier programs refuse, and cannot be merged or pruned.
    #[arg(long, value_name = "N", default_value_t = ORDER_MAX)]
    pub longest: usize,
    /// Continuations that follow a context less often than this are not listed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub min_count: u32,
    /// Model whose token ids the table has: a GGUF file, a directory with one, or a Hugging Face directory [default: as
    /// for `serve`].
    #[arg(long, value_name = "FILE|DIR")]
    pub tokenizer_of: Option<PathBuf>,
    #[allow(missing_docs, reason = "clap flattens it")]
    #[command(flatten)]
    pub text: TextOptions,
}

pub(super) fn run(args: &BuildArgs) -> Result<(), CliError> {
    let vocabulary = TableVocabulary::find(args.tokenizer_of.as_deref())?;
    let texts = corpus::read(&args.from, &args.text, |text| vocabulary.encode(text, args.text.markup))?;
    let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    let options = BuildOptions {
        orders: args.orders,
        longest: args.longest,
        min_count: args.min_count,
        vocab: vocabulary.fingerprint.vocab,
        tokenizer: vocabulary.fingerprint.hash,
        time: now(),
    };
    let image = build(&texts, &options).map_err(failed)?;
    println!("{}", write(&args.out, &image)?);
    Ok(())
}
