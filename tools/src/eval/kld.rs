//! `chimere eval kld`: Kullback-Leibler divergence of models from a base model, position by position over whole rows of
//! logits, on the CPU.

use crate::CliError;
use crate::calibration::{self, Calibration, TextMix};
use crate::figures::StepProgress;
use crate::logits::{LogitReader, threads};
use chimere::text::TextModel;
use chimere_engine::ids::TokenId;
use chimere_engine::model::{self, Model};
use chimere_engine::quantize::Divergence;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Compares models with a base model: divergence, agreement, perplexity. Weights are decoded and activations are
/// floats, so that only the weights differ.
#[derive(clap::Args, Debug, Clone)]
pub struct KldArgs {
    /// The model that is right by definition: a GGUF file or a directory.
    #[arg(long, value_name = "FILE|DIR")]
    pub base: PathBuf,
    /// A model to compare with it; several are compared one by one beside the same base.
    #[arg(long, value_name = "FILE|DIR", required = true)]
    pub model: Vec<PathBuf>,
    /// Text to compare on [default: the base model writes it].
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// The text is cut into windows of this many tokens, each read from nothing.
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..))]
    pub window: u32,
    /// Stop after this many tokens [default: all of a text, 8192 of what the model writes].
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(2..))]
    pub tokens: Option<u64>,
    /// Seed of the text that the base model writes.
    #[arg(long, default_value_t = 1_000_003)]
    pub seed: u64,
    /// Threads that compute, 0 for every core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Write the figures here as JSON too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Tokens that the base model writes where no text is given.
const OWN_TOKENS: u64 = 8192;

pub(super) fn run(args: &KldArgs) -> Result<(), CliError> {
    let reports = measure(args)?;
    for (path, divergence) in &reports {
        print!("{}", table(path, divergence));
    }
    let Some(path) = &args.json else { return Ok(()) };
    let all: Vec<_> = reports.iter().map(|(path, d)| figures(path, d)).collect();
    std::fs::write(path, format!("{:#}\n", json!({"base": args.base, "models": all})))
        .map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))
}

fn measure(args: &KldArgs) -> Result<Vec<(PathBuf, Divergence)>, CliError> {
    let base = load(&args.base)?;
    if args.window > base.config.context {
        let max = base.config.context;
        return Err(CliError::Usage(format!("--window {}: the model takes at most {max} tokens", args.window)));
    }
    let threads = threads(args.threads);
    let windows = windows(args, &base, threads)?;
    let mut base_reader = LogitReader::exact(&base, args.window, threads).map_err(CliError::Failed)?;
    let mut others = Vec::new();
    for path in &args.model {
        let model = load(path)?;
        check_vocabulary(&args.base, &base, path, &model)?;
        let reader = LogitReader::exact(&model, args.window, threads).map_err(CliError::Failed)?;
        others.push((path.clone(), reader, Divergence::default()));
    }
    let vocab = base.config.vocab;
    let all: usize = windows.iter().map(Vec::len).sum();
    let (mut done, mut progress) = (0, StepProgress::new("comparing"));
    for window in &windows {
        for start in LogitReader::starts(window) {
            let logits = base_reader.step(window, start).map_err(failed)?;
            for (_, reader, divergence) in &mut others {
                let other = reader.step(window, start).map_err(failed)?;
                for (i, (base, other)) in logits.chunks_exact(vocab).zip(other.chunks_exact(vocab)).enumerate() {
                    divergence.add(base, other, window.get(start + i + 1).copied());
                }
            }
            done += logits.len() / vocab;
            progress.show(done, all);
        }
    }
    progress.end();
    Ok(others.into_iter().map(|(path, _, divergence)| (path, divergence)).collect())
}

fn failed(e: impl std::fmt::Display) -> CliError {
    CliError::Failed(e.to_string())
}

fn load(path: &Path) -> Result<Model, CliError> {
    model::load(path).map_err(failed)
}

/// Windows of the text, or of what the base model writes.
fn windows(args: &KldArgs, base: &Model, threads: usize) -> Result<Vec<Vec<TokenId>>, CliError> {
    let text_model = TextModel::new(&base.text).map_err(failed)?;
    let Some(path) = &args.text else {
        let tokens = args.tokens.unwrap_or(OWN_TOKENS);
        let window = u64::from(args.window);
        let mix = TextMix::Half;
        let options = Calibration {
            sequences: tokens.div_ceil(window) as u32,
            tokens: args.window,
            mix,
            seed: args.seed,
            threads,
        };
        return calibration::write(base, &text_model, &options);
    };
    let text = std::fs::read_to_string(path).map_err(|e| failed(format!("{}: {e}", path.display())))?;
    let mut ids = text_model.tokenizer().encode_plain(&text);
    ids.truncate(args.tokens.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX));
    if ids.len() < 2 {
        return Err(failed(format!("{}: wanted a text of 2 tokens or more, got {}", path.display(), ids.len())));
    }
    Ok(ids.chunks(args.window as usize).map(<[TokenId]>::to_vec).collect())
}

fn check_vocabulary(base_path: &Path, base: &Model, path: &Path, model: &Model) -> Result<(), CliError> {
    if model.config.vocab == base.config.vocab {
        return Ok(());
    }
    let (want, got) = (base.config.vocab, model.config.vocab);
    Err(failed(format!("{}: wanted {want} tokens as {} has, got {got}", path.display(), base_path.display())))
}

fn table(path: &Path, d: &Divergence) -> String {
    let [median, high, most] = d.quantiles([0.5, 0.999, 1.0]);
    let [base, other] = d.perplexities();
    format!(
        "{}: {} positions\n  divergence   mean {:.6} +- {:.6}, median {median:.6}, 99.9 % {high:.5}, \
         largest {most:.4}\n  same top     {:.3} %\n  change of p  {:.3} % (root of the mean square)\n  \
         perplexity   {other:.4}, base {base:.4}\n",
        path.display(),
        d.positions(),
        d.mean(),
        d.mean_error(),
        100.0 * d.same_top(),
        100.0 * d.rms_change(),
    )
}

fn figures(path: &Path, d: &Divergence) -> serde_json::Value {
    let [median, high, most] = d.quantiles([0.5, 0.999, 1.0]);
    let [base, other] = d.perplexities();
    json!({
        "model": path, "positions": d.positions(), "mean": d.mean(), "mean_error": d.mean_error(), "median": median,
        "p99.9": high, "max": most, "same_top": d.same_top(), "rms_change": d.rms_change(),
        "perplexity": other, "base_perplexity": base,
    })
}
