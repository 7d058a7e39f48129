//! `chimere bench step`: the engine alone, without scheduler, text or HTTP.

mod driver;
mod replay;
mod report;
mod traffic;

use crate::CliError;
use crate::figures::bytes_text;
use crate::find_model;
use chimere::config::{Activations, Budget, Device, DraftIds, Embedding, KvType, Residents};
use chimere::device::{self, Built, DeviceError, DeviceRequest, EarlyLook, Setup};
use chimere::memory::MemoryPlan;
use chimere_engine::PAGE_TOKENS;
use chimere_engine::adapter::Adapter;
use chimere_engine::backend::BackendError;
use chimere_engine::backend::cuda::AdapterRoom;
use chimere_engine::model::{self, AdapterTargets, Model, Summary};
use driver::Driver;
pub(super) use driver::MeasuredBackend;
use replay::Replay;
use report::{Decode, DecodeCase, Moved, Prefill, StepReport};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use traffic::{KvBytes, Traffic};

/// Sequences that each prompt length is measured with.
const PREFILL_SEQUENCES: [u32; 2] = [1, 8];

/// Measures decoding and prefill on one device.
#[derive(clap::Args, Debug, Clone)]
pub struct BenchStepArgs {
    /// Model: a GGUF file, a directory with one, or a Hugging Face directory [default: as for `serve`].
    #[arg(long, value_name = "FILE|DIR")]
    pub model: Option<PathBuf>,
    /// The device to compute on.
    #[arg(long, value_enum, default_value = "auto")]
    pub device: Device,
    /// Sequences that decode together, a list; 0 measures no decoding.
    #[arg(long, value_name = "N,..", default_value = "1,8", value_delimiter = ',')]
    pub batch: Vec<u32>,
    /// Positions before the decoded ones, a list; KV and state are filled with equal made-up values.
    #[arg(long, value_name = "TOKENS,..", default_value = "0,1024", value_delimiter = ',')]
    pub context: Vec<u32>,
    /// Prompt lengths, a list, each measured with 1 and 8 sequences; 0 measures no prefill.
    #[arg(long, value_name = "TOKENS,..", default_value = "512", value_delimiter = ',')]
    pub prefill: Vec<u32>,
    /// Threads that compute on the CPU, 0 for every core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: u32,
    /// Decode steps a measurement.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Measurements of each case, after one to warm up; the median is reported.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Positions one step may compute [default: as for `serve`].
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(64..))]
    pub step_tokens: Option<u32>,
    /// Memory for all that the process takes on its device, as for `serve`; cases that it cannot hold are left out.
    #[arg(long, value_name = "BYTES", default_value = "auto")]
    pub vram_budget: Budget,
    /// Type of the KV cache, as for `serve`.
    #[arg(long, value_enum, default_value = "f16")]
    pub kv_type: KvType,
    /// Bits of activations when a GPU computes, as for `serve`.
    #[arg(long, value_enum, default_value = "auto")]
    pub activations: Activations,
    /// Where the rows of the embedding lie when a GPU computes.
    #[arg(long, value_enum, default_value = "device")]
    pub embedding: Embedding,
    /// Routed experts in the memory of a GPU, as for `serve`.
    #[arg(long, value_name = "N|BYTES", default_value = "auto")]
    pub experts_resident: Residents,
    /// Decoded weights and f32 activations and KV: on the CPU only, slow, the yardstick.
    #[arg(long)]
    pub exact: bool,
    /// Drafted tokens behind each decoded one. They are random tokens, and whether they are accepted is drawn too, as
    /// --accept says: what is measured is how long steps take that verify them and, where the model has a draft head,
    /// in which it guesses as many.
    #[arg(long, value_name = "K", default_value_t = 0, requires = "accept",
        value_parser = clap::value_parser!(u32).range(0..=7))]
    pub drafts: u32,
    /// The share of steps in which at least the first, the first two, and so on, of the drafts are accepted: K falling
    /// numbers from 1 to 0.
    #[arg(long, value_name = "SHARE,..", value_delimiter = ',')]
    pub accept: Vec<f64>,
    /// Guesses of the draft head in each step with drafts, at most as many: so many unless named. With 0 drafts cost
    /// nothing to make, as those of other sources.
    #[arg(long, value_name = "N", requires = "accept")]
    pub guesses: Option<u32>,
    /// What the model's draft head guesses among, as for `serve`.
    #[arg(long, value_name = "auto|all|N|FILE", default_value = "auto")]
    pub draft_ids: DraftIds,
    /// Which experts decoded tokens use, instead of what the model's router would choose: a trace of `chimere trace`, a
    /// sequence of it for each of the batch, token after token through all measurements. On a GPU only.
    #[arg(long, value_name = "FILE", conflicts_with = "drafts")]
    pub expert_trace: Option<PathBuf>,
    /// Random low-rank adapters that the rows have in turn; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub adapters: u16,
    /// The rank of each of them.
    #[arg(long, value_name = "R", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub rank: u16,
    /// Rows of a batch that have an adapter: all, unless named. With 0 the backend holds adapters that nobody has.
    #[arg(long, value_name = "N", requires = "adapters")]
    pub adapter_rows: Option<u32>,
    /// Seed of the tokens fed and sampled.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the figures here as JSON too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Loads the model, measures, prints a table.
pub fn run(args: &BenchStepArgs) -> Result<(), CliError> {
    let path = find_model(args.model.as_deref())?;
    let mut model = model::load(&path).map_err(|e| CliError::Failed(e.to_string()))?;
    args.draft_ids.limit(&mut model).map_err(CliError::Usage)?;
    let mut cases = Cases::of(args, model.config.context)?;
    let trace = args.expert_trace.as_deref().map(|path| Replay::open(path, args, &cases, &model.config)).transpose()?;
    let (mut setup, said) = device::choose(&cases.wanted(args), &model, EarlyLook::later()).map_err(|e| match e {
        DeviceError::Usage(why) => CliError::Usage(why),
        DeviceError::Unusable(why) => CliError::Failed(why),
    })?;
    let step_tokens = args.step_tokens.unwrap_or(setup.step_tokens());
    cases.check_rows(step_tokens)?;
    let plan = setup.plan(args.vram_budget, &model, false).map_err(CliError::Failed)?;
    let dropped = cases.keep_what_fits(plan.pages);
    setup.set_room(&MemoryPlan { pages: cases.pages(), ..plan });
    eprintln!("{said}\n{plan}\n{dropped}loading {}", bytes_text(Summary::of(&model).bytes()));
    let summary = Summary::of(&model);
    let traffic =
        Traffic::of(&model.config, &summary, model.weights.head.is_none(), KvBytes::of(args.kv_type, args.exact));
    if trace.is_some() && matches!(setup, Setup::Cpu(_)) {
        return Err(CliError::Usage("--expert-trace: a trace is replayed on a GPU only".into()));
    }
    let mut report = StepReport::new(&path, &model, &summary, &setup, args);
    let begin = Instant::now();
    let mut backend: Box<dyn MeasuredBackend> = match setup.build(&model, &mut |_| {}).map_err(CliError::Failed)? {
        Built::Cpu(backend) => Box::new(backend),
        Built::Cuda(backend) => Box::new(backend),
    };
    report.load_s = begin.elapsed().as_secs_f64();
    eprintln!("loaded in {:.1} s", report.load_s);
    if args.vram_budget == Budget::Auto {
        // It takes memory of its own for a moment, which a budget that somebody named does not have.
        report.copy_bandwidth = backend.copy_bandwidth();
    }
    let driver = Driver::new(&mut *backend, args.seed, step_tokens);
    let mut driver = driver.map_err(|e| CliError::Failed(format!("completion thread: {e}")))?;
    report.guesses = if driver.guesses() { guesses(args) } else { 0 };
    driver.replay(trace);
    driver.adapt(adapters(args, &model)?, args.adapter_rows.unwrap_or(u32::MAX));
    print!("{}", report.title());
    measure(&mut driver, &cases, args, &traffic, &mut report).map_err(|e| CliError::Failed(e.to_string()))?;
    report.write(args.json.as_deref())
}

/// Random adapters for the rows.
fn adapters(args: &BenchStepArgs, model: &Model) -> Result<Vec<Arc<Adapter>>, CliError> {
    let failed = |error: String| CliError::Failed(format!("--adapters: {error}"));
    let targets = AdapterTargets::of(model);
    let adapter = |number: u16| {
        let path = std::env::temp_dir().join(format!("chimere-bench-{}-{number}", std::process::id()));
        let seed = args.seed.wrapping_add(number.into());
        let written = model::write_random_adapter(&path, &targets, args.rank.into(), seed);
        let read = written.map(|_| model::read_adapter(&path, &format!("a{number}"), &targets));
        // What is left is a few megabytes where the system looks after them.
        drop(std::fs::remove_dir_all(&path));
        read.map_err(|e| failed(e.to_string()))?.map(Arc::new).map_err(|e| failed(e.to_string()))
    };
    (0..args.adapters).map(adapter).collect()
}

/// The cases to measure, checked against the model.
#[derive(Debug, PartialEq)]
struct Cases {
    /// (sequences, position of the first decoded token)
    decode: Vec<(u32, u32)>,
    /// Pairs of sequences and prompt tokens of each, to measure one by one.
    prefill: Vec<(u32, u32)>,
    /// Decoded positions of a sequence, at most.
    steps: u32,
    /// The most positions a sequence has.
    positions: u32,
    /// The most sequences at once.
    sequences: u32,
}

impl Cases {
    fn of(args: &BenchStepArgs, context: u32) -> Result<Self, CliError> {
        let listed = |list: &[u32]| list.iter().copied().filter(|n| *n > 0).collect::<Vec<_>>();
        let decode: Vec<_> =
            args.context.iter().flat_map(|c| listed(&args.batch).into_iter().map(move |b| (b, *c))).collect();
        let prefill: Vec<_> =
            listed(&args.prefill).into_iter().flat_map(|l| PREFILL_SEQUENCES.map(|n| (n, l))).collect();
        // Guesses stand behind the last step's drafts.
        let steps = args.steps.saturating_mul(1 + args.drafts).saturating_add(args.drafts);
        check_shares(args)?;
        let mut cases = Self { decode, prefill, steps, positions: 0, sequences: 0 };
        let all: Vec<_> = cases.sizes().collect();
        let largest = all.iter().max_by_key(|c| c.1);
        cases.positions =
            largest.ok_or_else(|| CliError::Usage("--batch and --prefill name nothing to measure".into()))?.1;
        cases.sequences = all.iter().map(|c| c.0).max().expect("there is a case");
        if cases.positions > context {
            let longest = cases.positions;
            return Err(CliError::Usage(format!(
                "the longest case has {longest} positions, the model takes {context}"
            )));
        }
        Ok(cases)
    }

    /// (sequences, positions of each) of every case.
    fn sizes(&self) -> impl Iterator<Item = (u32, u32)> {
        let decode = self.decode.iter().map(|(n, c)| (*n, c.saturating_add(self.steps)));
        decode.chain(self.prefill.iter().copied())
    }

    fn wanted(&self, args: &BenchStepArgs) -> DeviceRequest {
        DeviceRequest {
            device: args.device,
            threads: args.threads,
            seqs: self.sequences,
            context: self.positions,
            step_tokens: args.step_tokens.unwrap_or(0),
            kv_type: args.kv_type,
            activations: args.activations,
            embedding: args.embedding,
            experts_resident: args.experts_resident,
            exact: args.exact,
            replayed: args.expert_trace.is_some(),
            drafts: args.drafts,
            draft_head: guesses(args) > 0,
            adapters: AdapterRoom { slots: args.adapters.into(), rank_max: args.rank.into() },
            budget: args.vram_budget,
        }
    }

    fn check_rows(&self, step_tokens: u32) -> Result<(), CliError> {
        match self.sequences > step_tokens {
            true => {
                Err(CliError::Usage(format!("--batch {} is more than --step-tokens {step_tokens}", self.sequences)))
            }
            false => Ok(()),
        }
    }

    /// Pages that a case needs.
    fn pages_of(sequences: u32, positions: u32) -> u32 {
        sequences.saturating_mul(positions.div_ceil(PAGE_TOKENS))
    }

    /// Pages that the largest case needs.
    fn pages(&self) -> u32 {
        self.sizes().map(|(n, positions)| Self::pages_of(n, positions)).max().unwrap_or(1)
    }

    /// Drops the cases that need more pages than there are, and says which.
    fn keep_what_fits(&mut self, pages: u32) -> String {
        let mut dropped = String::new();
        let mut fits = |what: &str, n: u32, length: u32, positions: u32| {
            let needs = Self::pages_of(n, positions);
            if needs > pages {
                dropped += &format!(
                    "left out: {what} of {n} sequences with {length} tokens needs {needs} pages, {pages} fit\n"
                );
            }
            needs <= pages
        };
        let steps = self.steps;
        self.decode.retain(|&(n, c)| fits("decode", n, c, c + steps));
        self.prefill.retain(|&(n, l)| fits("prefill", n, l, l));
        dropped
    }
}

/// Guesses of the draft head in each step with drafts.
fn guesses(args: &BenchStepArgs) -> u32 {
    args.guesses.unwrap_or(args.drafts)
}

/// Refuses shares of accepted drafts that are no falling probabilities.
fn check_shares(args: &BenchStepArgs) -> Result<(), CliError> {
    let falls = args.accept.windows(2).all(|pair| pair[0] >= pair[1]);
    if args.accept.len() != args.drafts as usize || !falls || args.accept.iter().any(|p| !(0.0..=1.0).contains(p)) {
        let (got, k) = (&args.accept, args.drafts);
        return Err(CliError::Usage(format!(
            "--accept wants {k} numbers from 1 to 0, none above the one before, got {got:?}"
        )));
    }
    if guesses(args) > args.drafts {
        let (got, k) = (guesses(args), args.drafts);
        return Err(CliError::Usage(format!("--guesses wants at most the {k} of --drafts, got {got}")));
    }
    Ok(())
}

/// Measures and prints a line a case as soon as it is known.
fn measure(
    driver: &mut Driver<'_>,
    cases: &Cases,
    args: &BenchStepArgs,
    traffic: &Traffic,
    report: &mut StepReport,
) -> Result<(), BackendError> {
    for &(batch, context) in &cases.decode {
        let lacks = driver.lacks_room_for(batch, args.drafts);
        if let Some(room) = lacks {
            eprintln!("left out: {} drafts of each of {batch} sequences, steps take {room}", args.drafts);
        }
        driver.make_room(batch, context + cases.steps);
        driver.fill(batch, context);
        // Beside steps with drafts stand those of the same backend without.
        for drafts in [0, args.drafts].into_iter().take(1 + usize::from(args.drafts > 0 && lacks.is_none())) {
            let mut distinct = Vec::new();
            let runs = repeated(args.repeat, || {
                let run = match drafts {
                    0 => driver.decode(batch, context, args.steps)?,
                    _ => driver.decode_drafted(batch, context, args.steps, (&args.accept, guesses(args)))?,
                };
                distinct.extend(driver.distinct_experts());
                Ok(run)
            })?;
            let distinct = mean(&distinct);
            let positions = args.steps * (1 + drafts);
            let bytes = traffic.decode_bytes(batch, context + positions / 2, distinct);
            let found = found(&runs);
            let moved = Moved { bytes, distinct_experts: distinct, found, copy_bandwidth: report.copy_bandwidth };
            let row = Decode::new(DecodeCase { batch, context, steps: args.steps, drafts }, moved, &runs);
            print!("{}{}", if report.decode.is_empty() { Decode::heading() } else { String::new() }, row.line());
            report.decode.push(row);
        }
    }
    for (n, &(sequences, length)) in cases.prefill.iter().enumerate() {
        driver.make_room(sequences, length);
        let runs = repeated(args.repeat, || driver.prefill(sequences, length))?;
        let row = Prefill::new(sequences, length, &runs);
        print!("{}{}", if n == 0 { Prefill::heading() } else { String::new() }, row.line());
        report.prefill.push(row);
    }
    Ok(())
}

/// One run to warm up, which is dropped, then as many as asked for.
fn repeated(
    times: u32,
    mut run: impl FnMut() -> Result<driver::StepsRun, BackendError>,
) -> Result<Vec<driver::StepsRun>, BackendError> {
    run()?;
    (0..times).map(|_| run()).collect()
}

/// The share of the experts' reads that found theirs on the device, where some lie elsewhere.
fn found(runs: &[driver::StepsRun]) -> Option<f64> {
    let (hits, all) = runs.iter().fold((0, 0), |(h, a), r| (h + r.reads.0, a + r.reads.0 + r.reads.1));
    (all > 0).then(|| hits as f64 / all as f64)
}

fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() { None } else { Some(values.iter().sum::<f64>() / values.len() as f64) }
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
        assert_eq!((c.positions, c.sequences, c.pages()), (1088, 8, 8 * 34));
    }

    #[test]
    fn cases_that_memory_cannot_hold_are_left_out_by_name_and_the_others_measured() {
        let mut c = cases(&["--batch", "1,8", "--context", "0,1024", "--prefill", "512"]).unwrap();
        let dropped = c.keep_what_fits(130);
        assert_eq!(dropped, "left out: decode of 8 sequences with 1024 tokens needs 272 pages, 130 fit\n");
        assert_eq!((c.decode.len(), c.prefill.len(), c.pages()), (3, 2, 128));
    }

    #[test]
    fn nothing_to_measure_and_more_than_the_model_takes_are_usage_errors() {
        let usage = |flags: &[&str]| cases(flags).unwrap_err().to_string();
        assert_eq!(usage(&["--batch", "0", "--prefill", "0"]), "--batch and --prefill name nothing to measure");
        assert_eq!(usage(&["--context", "4090"]), "the longest case has 4154 positions, the model takes 4096");
        let many = cases(&["--batch", "600"]).unwrap().check_rows(512).unwrap_err().to_string();
        assert_eq!(many, "--batch 600 is more than --step-tokens 512");
    }

    #[test]
    fn drafts_come_with_the_shares_of_them_that_count_and_take_room() {
        let usage = |flags: &[&str]| cases(flags).unwrap_err().to_string();
        for shares in ["0.5", "0.5,0.6", "1.2,0.1", "0.5,-0.1"] {
            let why = usage(&["--drafts", "2", "--accept", shares]);
            assert!(why.starts_with("--accept wants 2 numbers from 1 to 0"), "{why}");
        }
        assert!(Cli::try_parse_from(["x", "--drafts", "2"]).is_err());
        let more = usage(&["--drafts", "1", "--accept", "0.5", "--guesses", "2"]);
        assert_eq!(more, "--guesses wants at most the 1 of --drafts, got 2");
        let c = cases(&["--drafts", "2", "--accept", "0.9,0.9", "--batch", "1", "--context", "8", "--prefill", "0"]);
        assert_eq!(c.unwrap().positions, 8 + 3 * 64 + 2);
    }

    #[test]
    fn the_shipped_model_is_measured_and_the_figures_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let json = dir.path().join("out.json");
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/nano/nano-q8_0.gguf");
        let flags = [
            "x",
            "--model",
            model,
            "--batch",
            "2",
            "--context",
            "64",
            "--prefill",
            "65",
            "--steps",
            "2",
            "--repeat",
            "1",
            "--drafts",
            "3",
            "--accept",
            "1,0.5,0",
        ];
        run(&Cli::parse_from(flags.into_iter().chain(["--json", json.to_str().unwrap()])).args).unwrap();
        let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let (steps, tokens) =
            (&figures["decode"][1]["steps_per_s"]["p50"], &figures["decode"][1]["tokens_per_s"]["p50"]);
        // Two sequences, each with one draft that counts at least and two at most.
        let a_step = tokens.as_f64().unwrap() / steps.as_f64().unwrap();
        assert!((4.0..=6.01).contains(&a_step), "{a_step}");
        assert_eq!((&figures["decode"][1]["drafts"], &figures["guesses"]), (&3.into(), &3.into()));
        assert_eq!(figures["decode"][0]["drafts"], 0, "without any, of the same backend");
        assert_eq!(figures["prefill"].as_array().unwrap().len(), 2);
        assert_eq!(figures["model"]["name"], "Chimère Nano");
    }
}
