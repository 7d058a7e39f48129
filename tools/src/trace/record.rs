//! Which experts a model's own answers use, on the CPU: conversations and free text that it writes at temperature 1, as
//! for calibration. Every token that was drawn is one of the trace; what the template puts between turns is not.

use super::file::{ExpertTrace, TraceHead};
use crate::CliError;
use crate::calibration::{self, Calibration, TextMix};
use crate::find_model;
use crate::logits::threads;
use chimere::text::TextModel;
use chimere_engine::model::{self, MoeConfig};
use chimere_engine::step::Sample;
use std::path::PathBuf;

/// Records a trace while a model writes.
#[derive(clap::Args, Debug)]
pub struct RecordArgs {
    /// Model: a GGUF file, a directory with one, or a Hugging Face directory [default: as for `serve`].
    #[arg(long, value_name = "FILE|DIR")]
    model: Option<PathBuf>,
    /// File to write the trace to.
    #[arg(long, value_name = "FILE")]
    pub(super) out: PathBuf,
    /// Conversations, side by side.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    sequences: u32,
    /// Tokens of each, those of the template among them.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..))]
    tokens: u32,
    /// Seed of the text; equal seeds write equal texts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads that compute, 0 for every core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
}

pub(super) fn run(args: &RecordArgs) -> Result<ExpertTrace, CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::Failed(e.to_string());
    let path = find_model(args.model.as_deref())?;
    let model = model::load(&path).map_err(|e| failed(&e))?;
    let moe = model.config.each::<MoeConfig>().next().map(|moe| (moe.experts, moe.used));
    let (experts, used) = moe.ok_or_else(|| failed(&format!("{}: no layer of it has experts", path.display())))?;
    if args.tokens > model.config.context {
        let (asked, max) = (args.tokens, model.config.context);
        return Err(CliError::Usage(format!("--tokens {asked}: the model takes at most {max} tokens")));
    }
    let text = TextModel::new(&model.text).map_err(|e| failed(&e))?;
    let RecordArgs { sequences, tokens, seed, .. } = *args;
    let (mix, threads) = (TextMix::Half, threads(args.threads));
    let options = Calibration { sequences, tokens, mix, seed, threads };
    let mut all = vec![Vec::new(); sequences as usize];
    let layers = model.config.each::<MoeConfig>().count();
    let mut note = |of: u32, sample: &Sample| {
        let Some(experts) = sample.report.as_ref().and_then(|report| report.experts.as_ref()) else { return };
        all[of as usize].extend(experts.iter().flatten().map(|e| *e as u16));
    };
    calibration::write_watched(&model, &text, &options, true, &mut note)?;
    let made = format!("recorded while {} wrote, seed {seed}", model.config.name);
    Ok(ExpertTrace { head: TraceHead::new(layers, experts, used, made), sequences: all })
}
