//! `chimere engram calibrate`: fits the strengths of `mode: "auto"` to a text and the served model.

use super::corpus::{self, TextOptions};
use super::{TableVocabulary, failed};
use crate::figures::ByteProgress;
use crate::logits::LogitReader;
use crate::{CliError, find_model};
use chimere::engram::{DocumentText, Question, recollections};
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
    /// markup and not judged, `documents`, which help this line alone, as in a request, and `tables`, the names of
    /// those that help it, without folder and ending; all do if there are none.
    #[arg(long, value_name = "FILE|DIR")]
    pub on: PathBuf,
    /// A table that helps with every text; several count as one.
    #[arg(long, value_name = "TABLE")]
    pub table: Vec<PathBuf>,
    /// How much each token of a file counts, by the file's name without its ending; 1 of a file that is not named.
    #[arg(long, value_name = "NAME=WEIGHT", value_parser = weight)]
    pub weight: Vec<(String, f64)>,
    /// Leaves every Nth text of each file out of the fit, and tells the same of these; 0 leaves none out.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub judge_one_in: usize,
    /// Fits what tables are believed alone, and keeps what ships for documents.
    #[arg(long)]
    pub keep_documents: bool,
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

/// The `--weight` of a file.
fn weight(text: &str) -> Result<(String, f64), String> {
    let (name, weight) = text.split_once('=').ok_or_else(|| format!("wanted NAME=WEIGHT, got {text:?}"))?;
    match weight.parse::<f64>() {
        Ok(weight) if weight.is_finite() && weight > 0.0 => Ok((name.to_owned(), weight)),
        _ => Err(format!("wanted a weight above 0, got {weight:?}")),
    }
}

/// A line of a file of texts that strengths are fitted to.
struct FitLine {
    /// The index of its file among the files of texts.
    kind: usize,
    judged: bool,
    prompt: String,
    text: String,
    documents: Vec<String>,
    /// Indices of its tables among those of `--table`.
    tables: Vec<usize>,
}

/// A line of text as token ids, with what its matches come from.
struct HeldOutPassage {
    kind: usize,
    judged: bool,
    ids: Vec<TokenId>,
    /// The first that is looked at.
    from: usize,
    auto: Auto,
    tables: Vec<usize>,
}

/// The texts of one file.
#[derive(Default)]
struct TextKind {
    name: String,
    texts: usize,
    fitted: Fit,
    /// The figures of lines that were left out of the fit, which judge it.
    judged: Fit,
}

pub(super) fn run(args: &CalibrateArgs) -> Result<(), CliError> {
    let model = model::load(&find_model(args.model.as_deref())?).map_err(failed)?;
    let vocabulary = TableVocabulary::of(&model)?;
    let window = model.config.context.min(WINDOW_TOKENS);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if args.threads == 0 { cores } else { args.threads };
    let mut reader = LogitReader::new(&model, window, threads).map_err(failed)?;
    let (samples, mut kinds) = samples(args)?;
    let weights = kinds.iter().map(|kind| weight_of(args, kind)).collect::<Vec<_>>();
    check_weights(args, &kinds)?;
    let passages = passages(args, &vocabulary, samples, window as usize)?;
    observe(args, &vocabulary, &passages, &mut reader, &mut kinds)?;
    let before = Strengths::shipped();
    let texts: Vec<_> = kinds.iter().map(|kind| &kind.fitted).zip(weights).collect();
    let after = Fit::joint(&texts, &before, |cell| args.keep_documents && !cell.is_of_tables());
    std::fs::write(&args.out, after.to_text()).map_err(|e| failed(format!("{}: {e}", args.out.display())))?;
    for kind in &kinds {
        tell(&kind.name, &kind.fitted, &before, &after);
        tell(&format!("{}, left out", kind.name), &kind.judged, &before, &after);
    }
    println!("{}", args.out.display());
    Ok(())
}

fn weight_of(args: &CalibrateArgs, kind: &TextKind) -> f64 {
    args.weight.iter().rfind(|(name, _)| *name == kind.name).map_or(1.0, |(_, weight)| *weight)
}

fn check_weights(args: &CalibrateArgs, kinds: &[TextKind]) -> Result<(), CliError> {
    let known = || kinds.iter().map(|kind| kind.name.as_str()).collect::<Vec<_>>().join(", ");
    match args.weight.iter().find(|(name, _)| kinds.iter().all(|kind| kind.name != *name)) {
        Some((name, _)) => Err(failed(format!("--weight: wanted one of {}, got {name:?}", known()))),
        None => Ok(()),
    }
}

fn tell(name: &str, fit: &Fit, before: &Strengths, after: &Strengths) {
    if fit.is_empty() {
        return;
    }
    println!(
        "{name}: {} tokens; nats a token: {:.4} by the model, {:.4} with the strengths that ship, {:.4} with these",
        fit.len(),
        fit.nats(&Strengths::new(|_| 0.0)),
        fit.nats(before),
        fit.nats(after),
    );
}

fn passages(
    args: &CalibrateArgs,
    vocabulary: &TableVocabulary,
    samples: Vec<FitLine>,
    window: usize,
) -> Result<Vec<HeldOutPassage>, CliError> {
    let words = Arc::new(vocabulary.tokenizer.word_starts());
    let mut passages = Vec::new();
    for sample in samples {
        let prompt = vocabulary.encode(&sample.prompt, true);
        let text = vocabulary.encode(&sample.text, args.text.markup);
        let auto = auto(vocabulary, &words, &sample, &prompt);
        let all: Vec<TokenId> = [&prompt[..], &text].concat();
        let judged = |start: usize| prompt.len().saturating_sub(start).max(1);
        let windows = all.chunks(window).enumerate().map(|(i, ids)| (i * window, ids));
        let windows = windows.filter(|(start, ids)| judged(*start) < ids.len());
        passages.extend(windows.map(|(start, ids)| HeldOutPassage {
            kind: sample.kind,
            judged: sample.judged,
            ids: ids.to_vec(),
            from: judged(start),
            auto: auto.clone(),
            tables: sample.tables.clone(),
        }));
    }
    match passages.is_empty() {
        true => Err(failed(format!("{}: wanted a text of 2 tokens or more, got none", args.on.display()))),
        false => Ok(passages),
    }
}

fn samples(args: &CalibrateArgs) -> Result<(Vec<FitLine>, Vec<TextKind>), CliError> {
    let (mut samples, mut kinds) = (Vec::new(), Vec::<TextKind>::new());
    let names: Vec<_> = args.table.iter().map(|path| stem(path)).collect();
    corpus::each_row(&args.on, &args.text.field, &mut |file, text, row| {
        let name = stem(file);
        let kind = kinds.iter().position(|kind| kind.name == name).unwrap_or_else(|| {
            kinds.push(TextKind { name, ..TextKind::default() });
            kinds.len() - 1
        });
        kinds[kind].texts += 1;
        let field = |name: &str| row.and_then(|row| row.get(name)).cloned().unwrap_or_default();
        samples.push(FitLine {
            kind,
            judged: args.judge_one_in > 0 && kinds[kind].texts % args.judge_one_in == 0,
            prompt: optional::<String>("prompt", field("prompt"))?.unwrap_or_default(),
            text: text.to_owned(),
            documents: optional("documents", field("documents"))?.unwrap_or_default(),
            tables: places(optional("tables", field("tables"))?, &names)?,
        });
        Ok(())
    })?;
    Ok((samples, kinds))
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn optional<T: serde::de::DeserializeOwned>(name: &str, value: serde_json::Value) -> Result<Option<T>, String> {
    serde_json::from_value(value).map_err(|e| format!("{name:?}: {e}"))
}

/// Of the tables with these names; of all if none are named.
fn places(wanted: Option<Vec<String>>, names: &[String]) -> Result<Vec<usize>, String> {
    let Some(wanted) = wanted else { return Ok((0..names.len()).collect()) };
    let place = |name: &String| {
        let known = || names.join(", ");
        names
            .iter()
            .position(|n| n == name)
            .ok_or_else(|| format!("\"tables\": wanted some of [{}], got {name:?}", known()))
    };
    wanted.iter().map(place).collect()
}

fn auto(vocabulary: &TableVocabulary, words: &Arc<WordStarts>, sample: &FitLine, prompt: &[TokenId]) -> Auto {
    let texts: Vec<Vec<TokenId>> = sample.documents.iter().map(|d| vocabulary.encode(d, false)).collect();
    let texts: Vec<&[TokenId]> = texts.iter().map(Vec::as_slice).collect();
    let told: Vec<DocumentText<'_>> = sample.documents.iter().map(|text| DocumentText { title: "", text }).collect();
    Auto {
        strengths: Strengths::shipped(),
        words: words.clone(),
        documents: (!texts.is_empty()).then(|| Arc::new(Documents::new(&texts))),
        recollections: recollections(&vocabulary.tokenizer, &told, &Question::of_prompt(&vocabulary.tokenizer, prompt)),
        // Openings are not fitted: what a text begins with is not how an answer should.
        opening: None,
    }
}

/// Reads every passage with the model and asks everything that is known at every position.
fn observe(
    args: &CalibrateArgs,
    vocabulary: &TableVocabulary,
    passages: &[HeldOutPassage],
    reader: &mut LogitReader,
    kinds: &mut [TextKind],
) -> Result<(), CliError> {
    let tables = args.table.iter().map(|path| vocabulary.open(path).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = args.rows.as_deref().map(RowsFile::create).transpose()?;
    let filter = Filter::of_tables(tables.iter().map(|t| &**t));
    let members = Member::all(tables.iter().cloned());
    let mut progress = ByteProgress::new("reading");
    let (mut done, all) = (0, passages.iter().map(|p| p.ids.len() as u64 * 4).sum());
    for (number, passage) in passages.iter().enumerate() {
        let mut copied = 0;
        let kind = &mut kinds[passage.kind];
        let fit = if passage.judged { &mut kind.judged } else { &mut kind.fitted };
        let members: Vec<_> = passage.tables.iter().map(|&at| members[at].clone()).collect();
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
    rows.map_or(Ok(()), RowsFile::finish)
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
struct RowsFile {
    file: BufWriter<File>,
    /// The first thing that went wrong.
    failed: io::Result<()>,
}

impl RowsFile {
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
        "{}: wanted texts that are in no table, got one of which {copied} of {tokens} tokens stand there after the \
         same {COPIED_TOKENS}: {shown:?}; on it tables would learn to trust themselves",
        on.display()
    )))
}
