//! `chimere engram calibrate`: fits the strengths of `mode: "auto"` to a text and the served model.

use super::corpus::{self, TextOptions};
use super::{Vocabulary, failed};
use crate::engram::{Question, Told, recollections};
use crate::tools::figures::Progress;
use crate::tools::logits::LogitReader;
use crate::tools::{CliError, find_model};
use chimere_engine::engram::{
    Auto, Documents, Filter, Fit, Levels, Member, PredictionRules, Query, Recent, Strengths, WordStarts, lookup,
};
use chimere_engine::ids::TokenId;
use chimere_engine::model;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tokens of a window, if the model's context is not shorter.
const WINDOW_TOKENS: u32 = 4096;
/// A match of so many tokens is no chance.
const COPIED_TOKENS: usize = 8;
/// A text of so many tokens that is half copied stands in a table.
const COPY_TOKENS_MIN: usize = 64;

/// Finds the strength of every kind of match at which a text is least surprising to the model and the tables together.
/// The text must stand in no table: on what it has learned by heart a table would learn to trust itself.
#[derive(clap::Args, Debug, Clone)]
pub struct CalibrateArgs {
    /// Text to fit to: files as for `build`. A line of a .jsonl file may also have a `prompt`, which is read with its
    /// markup and not judged, and `documents`, which help this line alone, as in a request.
    #[arg(long, value_name = "FILE|DIR")]
    pub on: PathBuf,
    /// A table that helps with every text; several count as one.
    #[arg(long, value_name = "TABLE")]
    pub table: Vec<PathBuf>,
    /// File of strengths to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// File for what was fitted to, for other fits: a line a position with the number of its passage, the model's
    /// probability of what came and of what it held most probable, and for each match its cell, its probability of
    /// what came and its strength of now.
    #[arg(long, value_name = "FILE")]
    pub rows: Option<PathBuf>,
    /// Model: a GGUF file, a directory with one, or a Hugging Face directory [default: as for `serve`].
    #[arg(long, value_name = "FILE|DIR")]
    pub model: Option<PathBuf>,
    /// Threads that compute, 0 for every core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    #[allow(missing_docs, reason = "clap flattens it")]
    #[command(flatten)]
    pub text: TextOptions,
}

/// A line of a text to fit to.
struct Sample {
    prompt: String,
    text: String,
    documents: Vec<String>,
}

/// The same in ids.
struct Passage {
    ids: Vec<TokenId>,
    /// The first that is judged.
    from: usize,
    auto: Auto,
}

pub(super) fn run(args: &CalibrateArgs) -> Result<(), CliError> {
    let model = model::load(&find_model(args.model.as_deref())?).map_err(failed)?;
    let vocabulary = Vocabulary::of(&model)?;
    let window = model.config.context.min(WINDOW_TOKENS);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if args.threads == 0 { cores } else { args.threads };
    let mut reader = LogitReader::new(&model, window, threads).map_err(failed)?;
    let passages = passages(args, &vocabulary, window as usize)?;
    let fit = observe(args, &vocabulary, &passages, &mut reader)?;
    let before = Strengths::shipped();
    let after = fit.strengths(&before);
    std::fs::write(&args.out, after.to_text()).map_err(|e| failed(format!("{}: {e}", args.out.display())))?;
    let silent = Strengths::new(|_| 0.0);
    println!(
        "{} tokens; nats a token: {:.4} by the model, {:.4} with the strengths that ship, {:.4} with these: {}",
        fit.len(),
        fit.nats(&silent),
        fit.nats(&before),
        fit.nats(&after),
        args.out.display()
    );
    Ok(())
}

fn passages(args: &CalibrateArgs, vocabulary: &Vocabulary, window: usize) -> Result<Vec<Passage>, CliError> {
    let words = Arc::new(vocabulary.tokenizer.word_starts());
    let mut passages = Vec::new();
    for sample in samples(args)? {
        let prompt = vocabulary.encode(&sample.prompt, true);
        let text = vocabulary.encode(&sample.text, args.text.markup);
        let auto = auto(vocabulary, &words, &sample, &prompt);
        let all: Vec<TokenId> = [&prompt[..], &text].concat();
        let judged = |start: usize| prompt.len().saturating_sub(start).max(1);
        let windows = all.chunks(window).enumerate().map(|(i, ids)| (i * window, ids));
        let windows = windows.filter(|(start, ids)| judged(*start) < ids.len());
        passages.extend(windows.map(|(start, ids)| Passage {
            ids: ids.to_vec(),
            from: judged(start),
            auto: auto.clone(),
        }));
    }
    match passages.is_empty() {
        true => Err(failed(format!("{}: wanted a text of 2 tokens or more, got none", args.on.display()))),
        false => Ok(passages),
    }
}

fn samples(args: &CalibrateArgs) -> Result<Vec<Sample>, CliError> {
    let mut samples = Vec::new();
    corpus::each_row(&args.on, &args.text.field, &mut |text, row| {
        let mut sample = Sample { prompt: String::new(), text: text.to_owned(), documents: Vec::new() };
        if let Some(row) = row {
            let more = |name: &str| row.get(name).cloned().unwrap_or_default();
            let wrong = |name: &str, e: serde_json::Error| format!("{name:?}: {e}");
            sample.prompt = serde_json::from_value::<Option<_>>(more("prompt"))
                .map_err(|e| wrong("prompt", e))?
                .unwrap_or_default();
            let documents = serde_json::from_value::<Option<_>>(more("documents"));
            sample.documents = documents.map_err(|e| wrong("documents", e))?.unwrap_or_default();
        }
        samples.push(sample);
        Ok(())
    })?;
    Ok(samples)
}

fn auto(vocabulary: &Vocabulary, words: &Arc<WordStarts>, sample: &Sample, prompt: &[TokenId]) -> Auto {
    let texts: Vec<Vec<TokenId>> = sample.documents.iter().map(|d| vocabulary.encode(d, false)).collect();
    let texts: Vec<&[TokenId]> = texts.iter().map(Vec::as_slice).collect();
    let told: Vec<Told<'_>> = sample.documents.iter().map(|text| Told { title: "", text }).collect();
    Auto {
        strengths: Strengths::shipped(),
        words: words.clone(),
        documents: (!texts.is_empty()).then(|| Arc::new(Documents::new(&texts))),
        recollections: recollections(&vocabulary.tokenizer, &told, &Question::of_prompt(&vocabulary.tokenizer, prompt)),
    }
}

/// Reads every passage with the model and asks everything that is known at every position.
fn observe(
    args: &CalibrateArgs,
    vocabulary: &Vocabulary,
    passages: &[Passage],
    reader: &mut LogitReader,
) -> Result<Fit, CliError> {
    let tables = args.table.iter().map(|path| vocabulary.open(path).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = args.rows.as_deref().map(Rows::create).transpose()?;
    let filter = Filter::of_tables(tables.iter().map(|t| &**t));
    let members = Member::all(tables.iter().cloned());
    let (mut fit, mut progress) = (Fit::default(), Progress::new("reading"));
    let (mut done, all) = (0, passages.iter().map(|p| p.ids.len() as u64 * 4).sum());
    for (number, passage) in passages.iter().enumerate() {
        let mut copied = 0;
        reader
            .read(&passage.ids, |at, logits| {
                let Some(&next) = passage.ids.get(at + 1).filter(|_| at + 1 >= passage.from) else { return };
                let said = &passage.ids[..=at];
                let recent = recent(said, at + 1 - passage.from);
                let queries = [Query { context: recent.context(), tables: &members, prior: None, own: &[] }];
                let (found, mut levels) = (lookup(&filter, &queries), Levels::default());
                levels.fill(&passage.auto, &recent, found.of(0), PredictionRules { min_count: 1 });
                copied += usize::from(
                    levels.iter().any(|(level, mut e)| level.len >= COPIED_TOKENS && e.any(|e| e.0 == next)),
                );
                let (of_next, best) = probabilities(logits, next);
                fit.add(&levels, next, of_next);
                rows.iter_mut().for_each(|rows| rows.put(number, (of_next, best), &levels, next));
            })
            .map_err(failed)?;
        refuse_copy(
            &args.on,
            &vocabulary.tokenizer.decode(&passage.ids, true),
            passage.ids.len() - passage.from,
            copied,
        )?;
        // In bytes of ids: the line shows bytes.
        done += passage.ids.len() as u64 * 4;
        progress.show(done, all);
    }
    progress.end();
    rows.map_or(Ok(()), Rows::finish)?;
    Ok(fit)
}

/// What an answer of this many tokens has behind it.
fn recent(said: &[TokenId], output: usize) -> Recent {
    let (prompt, output) = said.split_at(said.len() - output);
    let mut recent = Recent::new(prompt);
    output.iter().for_each(|&id| recent.push(id));
    recent
}

/// Of what came, and of the most probable token.
fn probabilities(logits: &[f32], next: TokenId) -> (f64, f64) {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - best).exp()).sum();
    (f64::from(logits[next as usize] - best).exp() / sum, 1.0 / sum)
}

/// The file of rows.
struct Rows {
    file: BufWriter<File>,
    /// The first thing that went wrong.
    failed: io::Result<()>,
}

impl Rows {
    fn create(path: &Path) -> Result<Self, CliError> {
        let file = File::create(path).map_err(|e| failed(format!("{}: {e}", path.display())))?;
        Ok(Self { file: BufWriter::new(file), failed: Ok(()) })
    }

    fn put(&mut self, passage: usize, (of_next, best): (f64, f64), levels: &Levels<'_>, next: TokenId) {
        let strengths = Strengths::shipped();
        let matches = levels.iter().map(|(level, mut expected)| {
            let p = expected.find(|e| e.0 == next).map_or(0.0, |e| e.1);
            format!(" {}:{p:.6}:{:.4}", level.cell.index(), strengths.of(level.cell))
        });
        let matches: String = matches.collect();
        if self.failed.is_ok() {
            self.failed = writeln!(self.file, "{passage} {of_next:.9} {best:.6}{matches}");
        }
    }

    fn finish(mut self) -> Result<(), CliError> {
        self.failed.and_then(|()| self.file.flush()).map_err(|e| failed(format!("rows: {e}")))
    }
}

fn refuse_copy(on: &Path, text: &str, tokens: usize, copied: usize) -> Result<(), CliError> {
    if tokens < COPY_TOKENS_MIN || 2 * copied <= tokens {
        return Ok(());
    }
    let shown: String = text.chars().take(60).collect();
    Err(failed(format!(
        "{}: wanted texts that are in no table, got one of which {copied} of {tokens} tokens stand there after the same \
         {COPIED_TOKENS}: {shown:?}; on it tables would learn to trust themselves",
        on.display()
    )))
}
