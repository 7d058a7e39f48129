//! `chimere bench step`: the engine alone, without scheduler, text or HTTP.

mod driver;
mod report;
mod traffic;

use super::CliError;
use super::info::find;
use super::text::bytes_text;
use crate::config::Device;
use chimere_engine::PAGE_TOKENS;
use chimere_engine::backend::BackendError;
use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, KvType};
use chimere_engine::model::{self, Summary};
use driver::Driver;
use report::{Decode, Prefill, Report};
use std::path::PathBuf;
use traffic::Traffic;

/// Sequences that each prompt length is measured with.
const PREFILL_SEQUENCES: [u32; 2] = [1, 8];

/// Measures decoding and prefill on one device.
#[derive(clap::Args, Debug, Clone)]
pub struct BenchStepArgs {
    /// Model: a GGUF file, a directory with one, or a Hugging Face directory [default: as for `serve`].
    #[arg(long, value_name = "FILE|DIR")]
    pub model: Option<PathBuf>,
    /// Where to compute.
    #[arg(long, value_enum, default_value = "auto")]
    pub device: Device,
    /// Sequences that decode together, a list; 0 measures no decoding.
    #[arg(long, value_name = "N,..", default_value = "1,8", value_delimiter = ',')]
    pub batch: Vec<u32>,
    /// Positions before the decoded ones, a list; KV and state are filled with random values.
    #[arg(long, value_name = "TOKENS,..", default_value = "0,1024", value_delimiter = ',')]
    pub context: Vec<u32>,
    /// Prompt lengths, a list, each measured with 1 and 8 sequences; 0 measures no prefill.
    #[arg(long, value_name = "TOKENS,..", default_value = "512", value_delimiter = ',')]
    pub prefill: Vec<u32>,
    /// Threads that compute, 0 for every core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Decode steps a measurement.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Measurements of each case, after one to warm up; the median is reported.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Positions one step may compute, as for `serve`.
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(64..))]
    pub step_tokens: u32,
    /// Decoded weights and f32 activations and KV: slow, the yardstick.
    #[arg(long)]
    pub exact: bool,
    /// Seed of the tokens fed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the figures here as JSON too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Loads the model, measures, prints a table.
pub fn run(args: &BenchStepArgs) -> Result<(), CliError> {
    if args.device == Device::Cuda {
        return Err(CliError::Usage("--device cuda: this build computes on the CPU alone".into()));
    }
    let path = find(args.model.as_deref())?;
    let model = model::load(&path).map_err(|e| CliError::Failed(e.to_string()))?;
    let cases = Cases::of(args, model.config.context)?;
    let config = cases.backend_config(args);
    let summary = Summary::of(&model);
    eprintln!("packing {} for {} threads", bytes_text(summary.bytes()), config.threads);
    let mut backend = CpuBackend::new(&model, &config, &mut |_| {}).map_err(|e| CliError::Failed(e.to_string()))?;
    let kv_bytes = if args.exact { 4 } else { 2 };
    let traffic = Traffic::of(&model.config, &summary, model.weights.head.is_none(), kv_bytes);
    let mut report = Report::new(&path, &model, &summary, &config, args);
    measure(&mut Driver::new(&mut backend, args.seed), &cases, args, &traffic, &mut report)
        .map_err(|e| CliError::Failed(e.to_string()))?;
    print!("{}", report.table());
    report.write(args.json.as_deref())
}

/// What is measured, checked against the model.
#[derive(Debug, PartialEq)]
struct Cases {
    /// (sequences, position of the first decoded token)
    decode: Vec<(u32, u32)>,
    /// (sequences, tokens)
    prefill: Vec<(u32, u32)>,
    /// The most positions a sequence has.
    positions: u32,
    /// The most sequences at once.
    sequences: u32,
}

impl Cases {
    fn of(args: &BenchStepArgs, context: u32) -> Result<Self, CliError> {
        let listed = |list: &[u32]| list.iter().copied().filter(|n| *n > 0).collect::<Vec<_>>();
        let decode: Vec<_> = args.context.iter().flat_map(|c| listed(&args.batch).into_iter().map(move |b| (b, *c))).collect();
        let prefill: Vec<_> = listed(&args.prefill).into_iter().flat_map(|l| PREFILL_SEQUENCES.map(|n| (n, l))).collect();
        let ends = decode.iter().map(|(_, c)| c.saturating_add(args.steps)).chain(prefill.iter().map(|(_, l)| *l));
        let positions = ends.max().ok_or_else(|| CliError::Usage("--batch and --prefill name nothing to measure".into()))?;
        let sequences = decode.iter().chain(&prefill).map(|(n, _)| *n).max().expect("there is a case");
        match (positions > context, sequences > args.step_tokens) {
            (true, _) => Err(CliError::Usage(format!("the longest case has {positions} positions, the model takes {context}"))),
            (_, true) => Err(CliError::Usage(format!("--batch {sequences} is more than --step-tokens {}", args.step_tokens))),
            _ => Ok(Self { decode, prefill, positions, sequences }),
        }
    }

    fn backend_config(&self, args: &BenchStepArgs) -> CpuConfig {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        CpuConfig {
            threads: if args.threads == 0 { cores } else { args.threads },
            slots: self.sequences,
            pages: self.sequences * self.positions.div_ceil(PAGE_TOKENS),
            kv_type: KvType::F16,
            exact: args.exact,
            step_rows_max: args.step_tokens,
            context: self.positions,
        }
    }
}

fn measure(
    driver: &mut Driver<'_>,
    cases: &Cases,
    args: &BenchStepArgs,
    traffic: &Traffic,
    report: &mut Report,
) -> Result<(), BackendError> {
    for &(batch, context) in &cases.decode {
        driver.fill(batch, context);
        let runs = repeated(args.repeat, || driver.decode(batch, context, args.steps))?;
        let bytes = traffic.decode_bytes(batch, context + args.steps / 2);
        report.decode.push(Decode::new(batch, context, args.steps, bytes, &runs));
    }
    for &(sequences, length) in &cases.prefill {
        let runs = repeated(args.repeat, || driver.prefill(sequences, length))?;
        report.prefill.push(Prefill::new(sequences, length, &runs));
    }
    Ok(())
}

/// One run to warm up, which is dropped, then as many as asked for.
fn repeated(times: u32, mut run: impl FnMut() -> Result<driver::Run, BackendError>) -> Result<Vec<driver::Run>, BackendError> {
    run()?;
    (0..times).map(|_| run()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: BenchStepArgs,
    }

    fn cases(flags: &[&str]) -> Result<Cases, CliError> {
        Cases::of(&Cli::parse_from([&["x"], flags].concat()).args, 4096)
    }

    #[test]
    fn every_batch_meets_every_context_and_prompts_come_alone_and_eight_at_once() {
        let c = cases(&["--batch", "1,8", "--context", "0,1024", "--prefill", "512"]).unwrap();
        assert_eq!(c.decode, [(1, 0), (8, 0), (1, 1024), (8, 1024)]);
        assert_eq!(c.prefill, [(1, 512), (8, 512)]);
        assert_eq!((c.positions, c.sequences), (1088, 8));
    }

    #[test]
    fn nothing_to_measure_and_more_than_the_model_takes_are_usage_errors() {
        let usage = |flags: &[&str]| cases(flags).unwrap_err().to_string();
        assert_eq!(usage(&["--batch", "0", "--prefill", "0"]), "--batch and --prefill name nothing to measure");
        assert_eq!(usage(&["--context", "4090"]), "the longest case has 4154 positions, the model takes 4096");
        assert_eq!(usage(&["--batch", "600"]), "--batch 600 is more than --step-tokens 512");
    }

    #[test]
    fn the_shipped_model_is_measured_and_the_figures_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let json = dir.path().join("out.json");
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/nano/nano-q8_0.gguf");
        let flags = ["x", "--model", model, "--batch", "2", "--context", "64", "--prefill", "65", "--steps", "2", "--repeat", "1"];
        run(&Cli::parse_from(flags.into_iter().chain(["--json", json.to_str().unwrap()])).args).unwrap();
        let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert!(figures["decode"][0]["tokens_per_s"]["p50"].as_f64().unwrap() > 0.0);
        assert_eq!(figures["prefill"].as_array().unwrap().len(), 2);
        assert_eq!(figures["model"]["name"], "Chimère Nano");
    }
}
