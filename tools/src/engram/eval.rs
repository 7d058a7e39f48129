//! `chimere engram eval`: what tables do to the model's surprise at a text that neither has seen.

use super::corpus::{self, TextOptions};
use super::{TableVocabulary, failed};
use crate::CliError;
use crate::figures::ByteProgress;
use crate::find_model;
use crate::logits::LogitReader;
use chimere_engine::engram::{
    Auto, Context, Filter, Levels, Member, Mixing, Mode, ModeError, Prediction, PredictionRules, Query, Recent,
    Strengths, Table, lookup,
};
use chimere_engine::ids::TokenId;
use chimere_engine::model::{self, Model};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Neighbouring tokens are not independent: so many in a row count as one observation for the interval.
const BLOCK_TOKENS: usize = 64;
/// Windows are no longer than this unless asked for.
const WINDOW_TOKENS: u32 = 4096;

/// Measures the negative log-likelihood per token of a text, without a table and with each, on the CPU.
#[derive(clap::Args, Debug, Clone)]
pub struct EvalArgs {
    /// Text to judge on: files as for `build`. It should stand in no table.
    #[arg(long, value_name = "FILE|DIR")]
    pub on: PathBuf,
    /// A table; with several, each is measured alone and then all together.
    #[arg(long, value_name = "TABLE", required = true)]
    pub table: Vec<PathBuf>,
    /// Model: a GGUF file, a directory with one, or a Hugging Face directory [default: as for `serve`].
    #[arg(long, value_name = "FILE|DIR")]
    pub model: Option<PathBuf>,
    /// Strengths of the bias mode, a list within 0 to 2.
    #[arg(long, value_name = "A,..", default_value = "0.25,0.5,1", value_delimiter = ',')]
    pub alpha: Vec<f32>,
    /// Shares of the mixture mode, a list within 0 to 0.95.
    #[arg(long, value_name = "L,..", default_value = "0.1,0.3,0.5", value_delimiter = ',')]
    pub lambda: Vec<f32>,
    /// Continuations that the tables have seen less often than this are passed over.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub min_count: u32,
    /// Texts are cut into windows of this many tokens [default: the model's context, 4096 at most].
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(2..))]
    pub window: Option<u32>,
    /// Stop after this many tokens [default: all].
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(2..))]
    pub tokens: Option<u64>,
    /// Threads that compute, 0 for every core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Write the figures here as JSON too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[allow(missing_docs, reason = "clap flattens it")]
    #[command(flatten)]
    pub text: TextOptions,
}

pub(super) fn run(args: &EvalArgs) -> Result<(), CliError> {
    let model = model::load(&find_model(args.model.as_deref())?).map_err(failed)?;
    let report = measure(args, &model)?;
    print!("{report}");
    match &args.json {
        Some(path) => std::fs::write(path, format!("{:#}\n", report.json()))
            .map_err(|e| failed(format!("{}: {e}", path.display()))),
        None => Ok(()),
    }
}

pub(super) fn measure(args: &EvalArgs, model: &Model) -> Result<EvalReport, CliError> {
    let modes = modes(args)?;
    let window = window(args, model.config.context)?;
    let vocabulary = TableVocabulary::of(model)?;
    let tables = args.table.iter().map(|path| vocabulary.open(path).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let words = Arc::new(vocabulary.tokenizer.word_starts());
    let auto =
        Auto { strengths: Strengths::shipped(), words, documents: None, recollections: Vec::new(), opening: None };
    let mut subjects = Subject::all(args, &tables, &auto, &modes);
    let texts = corpus::read(&args.on, &args.text, |text| vocabulary.encode(text, args.text.markup))?;
    let mut left = args.tokens.unwrap_or(u64::MAX);
    // A window's first token has nothing before it, so it takes two to have one to judge.
    let windows = texts.iter().flat_map(|ids| ids.chunks(window as usize)).map(|ids| {
        let take = ids.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        left -= take as u64;
        &ids[..take]
    });
    let windows: Vec<&[TokenId]> = windows.filter(|ids| ids.len() >= 2).collect();
    if windows.is_empty() {
        return Err(failed(format!("{}: wanted a text of 2 tokens or more, got none", args.on.display())));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if args.threads == 0 { cores } else { args.threads };
    let mut reader = LogitReader::new(model, window, threads).map_err(failed)?;
    let mut baseline = Blocks::default();
    let rules = PredictionRules { min_count: args.min_count };
    let mut progress = ByteProgress::new("judging");
    let (mut done, all) = (0, windows.iter().map(|w| w.len() as u64 * 4).sum());
    for ids in &windows {
        baseline.next_window();
        reader
            .read(ids, |at, logits| {
                let Some(&next) = ids.get(at + 1) else { return };
                let row = PositionLogits::new(logits, next);
                baseline.add(at, row.nll(&Mixing::Add(Vec::new())));
                let said = &ids[..=at];
                subjects.iter_mut().for_each(|s| s.judge(&row, said, rules, baseline.place(at)));
            })
            .map_err(failed)?;
        // In bytes of ids: the line shows bytes.
        done += ids.len() as u64 * 4;
        progress.show(done, all);
    }
    progress.end();
    let windows = windows.len();
    Ok(EvalReport { windows, baseline, subjects: subjects.into_iter().map(|s| s.figures).collect() })
}

fn modes(args: &EvalArgs) -> Result<Vec<(String, Option<Mode>)>, CliError> {
    // The option is called what the mode calls its strength.
    let usage = |e: ModeError| CliError::Usage(format!("--{e}"));
    let mut modes = Vec::new();
    for &alpha in &args.alpha {
        modes.push((format!("bias {alpha}"), Some(Mode::bias(alpha).map_err(usage)?)));
    }
    for &lambda in &args.lambda {
        modes.push((format!("mixture {lambda}"), Some(Mode::mixture(lambda).map_err(usage)?)));
    }
    modes.push(("auto".to_owned(), None));
    Ok(modes)
}

fn window(args: &EvalArgs, context: u32) -> Result<u32, CliError> {
    match args.window {
        None => Ok(context.min(WINDOW_TOKENS)),
        Some(window) if window <= context => Ok(window),
        Some(window) => Err(CliError::Usage(format!("--window {window}: the model takes at most {context} tokens"))),
    }
}

/// Logits of one position, and the token that really stands next.
struct PositionLogits<'a> {
    logits: &'a [f32],
    lse: f64,
    next: TokenId,
}

impl<'a> PositionLogits<'a> {
    fn new(logits: &'a [f32], next: TokenId) -> Self {
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|l| f64::from(l - best).exp()).sum();
        Self { logits, lse: f64::from(best) + sum.ln(), next }
    }

    /// Surprise at the next token once the listed logits are changed. The tokens that are not listed weigh what they
    /// weighed.
    fn nll(&self, mixing: &Mixing) -> f64 {
        let lse = self.lse as f32;
        let (list, change): (_, &dyn Fn(f32, f32) -> f32) = match mixing {
            Mixing::Add(list) => (list, &|l, bias| l + bias),
            Mixing::Mix(list) => (list, &|l, weight| Mixing::mixed(l, weight, lse)),
        };
        let (mut next, mut sum) = (f64::from(self.logits[self.next as usize]), 1.0);
        for &(token, by) in list {
            let old = self.logits[token as usize];
            let new = f64::from(change(old, by));
            sum += (new - self.lse).exp() - (f64::from(old) - self.lse).exp();
            if token == self.next {
                next = new;
            }
        }
        self.lse + sum.ln() - next
    }
}

/// One table, or all of them, with the figures so far.
struct Subject<'a> {
    tables: Vec<Member>,
    filter: Filter,
    auto: &'a Auto,
    modes: &'a [(String, Option<Mode>)],
    figures: EvalFigures,
}

impl<'a> Subject<'a> {
    fn all(args: &EvalArgs, tables: &[Arc<Table>], auto: &'a Auto, modes: &'a [(String, Option<Mode>)]) -> Vec<Self> {
        let names = args.table.iter().map(|path| path.display().to_string());
        let mut subjects: Vec<_> =
            names.zip(tables).map(|(name, t)| Self::new(name, std::slice::from_ref(t), auto, modes)).collect();
        if tables.len() > 1 {
            subjects.push(Self::new("all together".into(), tables, auto, modes));
        }
        subjects
    }

    fn new(name: String, tables: &[Arc<Table>], auto: &'a Auto, modes: &'a [(String, Option<Mode>)]) -> Self {
        let modes_of = modes.iter().map(|(name, _)| (name.clone(), Blocks::default())).collect();
        Self {
            tables: Member::all(tables.iter().cloned()),
            filter: Filter::of_tables(tables.iter().map(|t| &**t)),
            auto,
            modes,
            figures: EvalFigures { name, known: 0, listed: 0, modes: modes_of },
        }
    }

    fn judge(&mut self, row: &PositionLogits<'_>, said: &[TokenId], rules: PredictionRules, place: usize) {
        let context = Context::new(said);
        let queries = [Query { context: &context, tables: &self.tables, prior: None, own: &[] }];
        let found = lookup(&self.filter, &queries);
        let prediction = Prediction::new(&queries[0], found.of(0), rules);
        self.figures.known += u64::from(!prediction.listed.is_empty());
        self.figures.listed += u64::from(prediction.listed.binary_search_by_key(&row.next, |p| p.token).is_ok());
        for ((_, mode), (_, blocks)) in self.modes.iter().zip(&mut self.figures.modes) {
            let mixing = match mode {
                Some(mode) => Mixing::new(&prediction, *mode),
                None => {
                    let mut levels = Levels::default();
                    levels.fill(self.auto, &Recent::new(said), found.of(0), rules);
                    Mixing::Mix(levels.weights(&self.auto.strengths))
                }
            };
            blocks.put(place, row.nll(&mixing));
        }
    }
}

/// Sums over blocks of neighbouring tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    /// (nats, tokens) of each block.
    sums: Vec<(f64, u32)>,
    /// The block that the window began with.
    first: usize,
}

impl Blocks {
    fn next_window(&mut self) {
        self.first = self.sums.len();
    }

    /// The block of a window's position.
    fn place(&self, at: usize) -> usize {
        self.first + at / BLOCK_TOKENS
    }

    fn add(&mut self, at: usize, nats: f64) {
        self.put(self.place(at), nats);
    }

    fn put(&mut self, place: usize, nats: f64) {
        self.sums.resize(self.sums.len().max(place + 1), (0.0, 0));
        let (sum, tokens) = &mut self.sums[place];
        (*sum, *tokens) = (*sum + nats, *tokens + 1);
    }

    pub(super) fn tokens(&self) -> u64 {
        self.sums.iter().map(|s| u64::from(s.1)).sum()
    }

    pub(super) fn mean(&self) -> f64 {
        self.sums.iter().map(|s| s.0).sum::<f64>() / self.tokens() as f64
    }

    /// How much lower or higher than `other` a token is in the mean, and half the width of the 95 % interval: a ratio
    /// of sums over blocks, which need not be equally long. Of a single block there is no interval.
    pub(super) fn change(&self, other: &Self) -> (f64, Option<f64>) {
        let (blocks, tokens) = (self.sums.len() as f64, self.tokens() as f64);
        let change = self.mean() - other.mean();
        let squares = self.sums.iter().zip(&other.sums).map(|(a, b)| (a.0 - b.0 - change * f64::from(a.1)).powi(2));
        let variance = squares.sum::<f64>() * blocks / (blocks - 1.0) / (tokens * tokens);
        (change, (self.sums.len() > 1).then(|| 1.96 * variance.sqrt()))
    }
}

/// The figures of one table, or of all together.
pub(super) struct EvalFigures {
    pub(super) name: String,
    /// Positions with a prediction.
    pub(super) known: u64,
    /// Positions where the next token was in it.
    pub(super) listed: u64,
    pub(super) modes: Vec<(String, Blocks)>,
}

/// All figures of an evaluation.
pub(super) struct EvalReport {
    windows: usize,
    pub(super) baseline: Blocks,
    pub(super) subjects: Vec<EvalFigures>,
}

impl std::fmt::Display for EvalReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tokens = self.baseline.tokens();
        writeln!(
            f,
            "{tokens} tokens in {} windows, {:.4} nats a token without a table",
            self.windows,
            self.baseline.mean()
        )?;
        for s in &self.subjects {
            let share = |n: u64| 100.0 * n as f64 / tokens as f64;
            let (known, listed) = (share(s.known), share(s.listed));
            writeln!(f, "\n{}: knows {known:.1} % of the contexts, lists {listed:.1} % of the tokens", s.name)?;
            writeln!(f, "  {:<16}{:>14}{:>12}  95 %", "mode", "nats a token", "change")?;
            for (mode, blocks) in &s.modes {
                let (change, half) = blocks.change(&self.baseline);
                let mut interval = String::from("-");
                if let Some(half) = half {
                    interval.clear();
                    write!(interval, "{:+.4} to {:+.4}", change - half, change + half)?;
                }
                writeln!(f, "  {mode:<16}{:>14.4}{change:>+12.4}  {interval}", blocks.mean())?;
            }
        }
        Ok(())
    }
}

impl EvalReport {
    fn json(&self) -> serde_json::Value {
        let mode = |(name, blocks): &(String, Blocks)| {
            let (change, half) = blocks.change(&self.baseline);
            serde_json::json!({"mode": name, "nats": blocks.mean(), "change": change, "half_width": half})
        };
        let subject = |s: &EvalFigures| {
            let modes: Vec<_> = s.modes.iter().map(mode).collect();
            serde_json::json!({"table": s.name, "known": s.known, "listed": s.listed, "modes": modes})
        };
        serde_json::json!({
            "tokens": self.baseline.tokens(),
            "windows": self.windows,
            "nats": self.baseline.mean(),
            "tables": self.subjects.iter().map(subject).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::engram::Predicted;

    #[test]
    fn the_surprise_after_a_change_is_that_of_a_whole_softmax() {
        let logits: Vec<f32> = (0..50).map(|i| ((i * 7 % 23) as f32) * 0.3).collect();
        let listed = [(4, 0.3, 0.01), (9, 0.05, 0.2), (30, 0.2, 0.001)];
        let listed = listed.map(|(token, p, prior)| Predicted { token, p, prior }).to_vec();
        let prediction = Prediction { listed, order: 2, seen: 9 };
        for mode in [Mode::bias(1.3).unwrap(), Mode::mixture(0.4).unwrap()] {
            let mixing = Mixing::new(&prediction, mode);
            let lse = PositionLogits::new(&logits, 0).lse;
            let mut all: Vec<f64> = logits.iter().map(|l| f64::from(*l)).collect();
            match &mixing {
                Mixing::Add(list) => list.iter().for_each(|(t, bias)| all[*t as usize] += f64::from(*bias)),
                Mixing::Mix(list) => {
                    list.iter().for_each(|(t, w)| {
                        all[*t as usize] = (all[*t as usize].exp() + f64::from(*w) * lse.exp()).ln()
                    });
                }
            }
            let sum: f64 = all.iter().map(|l| l.exp()).sum();
            for next in [4, 5, 30] {
                let want = sum.ln() - all[next];
                let got = PositionLogits::new(&logits, next as TokenId).nll(&mixing);
                assert!((got - want).abs() < 1e-5, "{mode:?}, token {next}: {got} instead of {want}");
            }
        }
    }

    #[test]
    fn an_interval_counts_blocks_and_not_tokens() {
        let (mut a, mut b) = (Blocks::default(), Blocks::default());
        for (at, difference) in (0..256).zip([1.0, 3.0, 1.0, 3.0].into_iter().flat_map(|d| [d; BLOCK_TOKENS])) {
            b.add(at, 5.0);
            a.add(at, 5.0 + difference);
        }
        let (change, half) = a.change(&b);
        // Four observations of 1, 3, 1, 3: standard deviation 2 / sqrt 3, and half of it for the mean.
        assert!(
            (change - 2.0).abs() < 1e-12 && (half.unwrap() - 1.96 / 3f64.sqrt()).abs() < 1e-12,
            "{change} {half:?}"
        );
        a.next_window();
        assert_eq!(a.place(0), 4);
        let mut one = Blocks::default();
        one.add(0, 1.0);
        assert_eq!(one.change(&one).1, None);
    }
}
