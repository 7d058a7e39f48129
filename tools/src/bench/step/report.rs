//! The figures of `chimere bench step`, as a table and as JSON.

use super::BenchStepArgs;
use super::driver::StepsRun;
use crate::CliError;
use crate::figures::bytes_text;
use crate::stats::OrderStatistics;
use chimere::device::Setup;
use chimere_engine::model::{Model, Summary};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Everything one call measured.
#[derive(Debug, Serialize)]
pub(super) struct StepReport {
    version: &'static str,
    model: ModelFigures,
    device: &'static str,
    /// The processor's or the GPU's own name, where the system tells it.
    processor: String,
    /// Threads that computed, on a CPU.
    threads: Option<usize>,
    kv_type: &'static str,
    exact: bool,
    /// Of the experts that decoded tokens were given, if they did not choose.
    expert_trace: Option<String>,
    step_tokens: u32,
    /// Random drafts behind each decoded token, and in what share of steps at least the first, the first two, and so
    /// on, were taken for accepted.
    drafts: Vec<f64>,
    /// How many the model's draft head guessed in each of those steps.
    pub(super) guesses: u32,
    /// Seconds until the backend was ready, kernels and weights.
    pub(super) load_s: f64,
    /// Bytes a second of a large copy in the device's memory, read and written.
    pub(super) copy_bandwidth: Option<f64>,
    repeat: u32,
    pub(super) decode: Vec<Decode>,
    pub(super) prefill: Vec<Prefill>,
}

#[derive(Debug, Serialize)]
struct ModelFigures {
    name: String,
    file: String,
    weight_bytes: u64,
}

/// One case of decoding.
#[derive(Debug, Serialize)]
pub(super) struct Decode {
    batch: u32,
    context: u32,
    steps: u32,
    /// Drafted rows behind each sequence's own.
    drafts: u32,
    /// Milliseconds a step, over the repetitions.
    step_ms: OrderStatistics,
    steps_per_s: OrderStatistics,
    /// Tokens a second, over all sequences.
    tokens_per_s: OrderStatistics,
    /// Of a step, the sampler's mean part.
    sample_ms: f64,
    /// Distinct routed experts a layer in a step, where they are counted.
    distinct_experts: Option<f64>,
    /// The share of experts that were read in the device's memory, where some lie in the host's.
    found: Option<f64>,
    /// The least bytes a step moves.
    bytes_per_step: f64,
    /// Those bytes over the median step.
    gb_per_s: f64,
    /// Of the measured bandwidth of a copy, percent.
    copy_percent: Option<f64>,
}

/// The shape of one case of decoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodeCase {
    pub(super) batch: u32,
    pub(super) context: u32,
    pub(super) steps: u32,
    pub(super) drafts: u32,
}

/// Bytes and experts of a step, and the rate of a copy to compare them with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    /// The least bytes a step moves.
    pub(super) bytes: f64,
    /// Distinct routed experts a layer.
    pub(super) distinct_experts: Option<f64>,
    /// The share of them that lay on the device, where some did not.
    pub(super) found: Option<f64>,
    /// Bytes a second that a copy in memory reaches.
    pub(super) copy_bandwidth: Option<f64>,
}

impl Decode {
    pub(super) fn new(case: DecodeCase, moved: Moved, runs: &[StepsRun]) -> Self {
        let DecodeCase { batch, context, steps, drafts } = case;
        let step_s = |r: &StepsRun| r.wall.as_secs_f64() / f64::from(steps);
        let stats = |f: &dyn Fn(&StepsRun) -> f64| {
            OrderStatistics::of(&runs.iter().map(f).collect::<Vec<_>>()).expect("there is a repetition")
        };
        let step_ms = stats(&|r| step_s(r) * 1e3);
        Self {
            batch,
            context,
            steps,
            drafts,
            step_ms,
            steps_per_s: stats(&|r| 1.0 / step_s(r)),
            tokens_per_s: stats(&|r| (f64::from(batch) + r.accepted as f64 / f64::from(steps)) / step_s(r)),
            sample_ms: stats(&|r| r.sampling.as_secs_f64() * 1e3 / f64::from(steps)).mean,
            distinct_experts: moved.distinct_experts,
            found: moved.found,
            bytes_per_step: moved.bytes,
            gb_per_s: moved.bytes / step_ms.p50 / 1e6,
            copy_percent: moved.copy_bandwidth.map(|copy| 100.0 * moved.bytes / (step_ms.p50 / 1e3) / copy),
        }
    }
}

/// One case of prefill.
#[derive(Debug, Serialize)]
pub(super) struct Prefill {
    sequences: u32,
    tokens: u32,
    /// Milliseconds for all prompts, over the repetitions.
    ms: OrderStatistics,
    /// Tokens a second, over all sequences.
    tokens_per_s: OrderStatistics,
}

impl Prefill {
    pub(super) fn new(sequences: u32, tokens: u32, runs: &[StepsRun]) -> Self {
        let stats = |f: &dyn Fn(f64) -> f64| {
            OrderStatistics::of(&runs.iter().map(|r| f(r.wall.as_secs_f64())).collect::<Vec<_>>())
                .expect("there is a repetition")
        };
        let all = f64::from(sequences * tokens);
        Self { sequences, tokens, ms: stats(&|s| s * 1e3), tokens_per_s: stats(&|s| all / s) }
    }
}

impl StepReport {
    pub(super) fn new(file: &Path, model: &Model, summary: &Summary, setup: &Setup, args: &BenchStepArgs) -> Self {
        let (device, processor, threads) = match setup {
            Setup::Cpu(c) => ("cpu", processor(), Some(c.threads)),
            Setup::Cuda(_, gpu) => ("cuda", gpu.name.clone(), None),
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            model: ModelFigures {
                name: model.config.name.clone(),
                file: file.display().to_string(),
                weight_bytes: summary.bytes(),
            },
            device,
            processor,
            threads,
            kv_type: args.kv_type.name(),
            exact: args.exact,
            expert_trace: args.expert_trace.as_ref().map(|path| path.display().to_string()),
            step_tokens: args.step_tokens.unwrap_or(setup.step_tokens()),
            drafts: args.accept.clone(),
            guesses: 0,
            load_s: 0.0,
            copy_bandwidth: None,
            repeat: args.repeat,
            decode: Vec::new(),
            prefill: Vec::new(),
        }
    }

    pub(super) fn write(&self, file: Option<&Path>) -> Result<(), CliError> {
        let Some(file) = file else { return Ok(()) };
        let text = serde_json::to_string_pretty(self).expect("numbers and strings");
        std::fs::write(file, text + "\n").map_err(|e| CliError::Failed(format!("cannot write {}: {e}", file.display())))
    }

    /// The table's first line: the model, the device and the options.
    pub(super) fn title(&self) -> String {
        let weights = bytes_text(self.model.weight_bytes);
        let mut out = format!("chimere {}: {} ({weights}), {}", self.version, self.model.name, self.processor);
        out += &self.threads.map(|n| format!(" with {n} threads")).unwrap_or_default();
        out += &format!(", KV {}", self.kv_type);
        out += &self.copy_bandwidth.map(|b| format!(", copies at {:.0} GB/s", b / 1e9)).unwrap_or_default();
        out += &self.expert_trace.as_ref().map(|path| format!(", experts of {path}")).unwrap_or_default();
        if !self.drafts.is_empty() {
            out += &format!(", {} drafts of which {:?} are taken for accepted", self.drafts.len(), self.drafts);
            out += &format!(" and {} guesses of the draft head", self.guesses);
        }
        out += &format!(", median of {} (± half the range)\n", self.repeat);
        out
    }
}

impl Decode {
    /// The names of the columns.
    pub(super) fn heading() -> String {
        format!(
            "\n{:<8}{:>6}{:>9}{:>8}{:>11}{:>8}{:>11}{:>11}{:>12}{:>9}{:>8}{:>9}{:>8}{:>11}\n",
            "decode",
            "batch",
            "context",
            "drafts",
            "ms/step",
            "±",
            "steps/s",
            "tokens/s",
            "bytes/step",
            "GB/s",
            "of copy",
            "experts",
            "found",
            "sample ms"
        )
    }

    /// Its line of the table.
    pub(super) fn line(&self) -> String {
        let mut out = String::new();
        let (ms, spread) = (self.step_ms.p50, self.step_ms.spread() * 100.0);
        let bytes = bytes_text(self.bytes_per_step as u64);
        write!(out, "{:<8}{:>6}{:>9}{:>8}{ms:>11.3}", "", self.batch, self.context, self.drafts).expect("to a string");
        write!(out, "{:>8}", format!("{spread:.1}%")).expect("to a string");
        let (steps, tokens) = (self.steps_per_s.p50, self.tokens_per_s.p50);
        let copy = self.copy_percent.map_or("-".into(), |p| format!("{p:.1}%"));
        let experts = self.distinct_experts.map_or("-".into(), |n| format!("{n:.1}"));
        write!(out, "{steps:>11.1}{tokens:>11.1}{bytes:>12}{:>9.1}", self.gb_per_s).expect("to a string");
        let found = self.found.map_or("-".into(), |share| format!("{:.1}%", 100.0 * share));
        writeln!(out, "{copy:>8}{experts:>9}{found:>8}{:>11.3}", self.sample_ms).expect("to a string");
        out
    }
}

impl Prefill {
    /// The names of the columns.
    pub(super) fn heading() -> String {
        let names = ["prefill", "seqs", "tokens", "ms", "±", "", "tokens/s"];
        let [a, b, c, d, e, f, g] = names;
        format!("\n{a:<8}{b:>6}{c:>9}{d:>11}{e:>8}{f:>11}{g:>11}\n")
    }

    /// Its line of the table.
    pub(super) fn line(&self) -> String {
        let (ms, spread, tokens) = (self.ms.p50, self.ms.spread() * 100.0, self.tokens_per_s.p50);
        let (sequences, length, spread) = (self.sequences, self.tokens, format!("{spread:.1}%"));
        format!("{:<8}{sequences:>6}{length:>9}{ms:>11.2}{spread:>8}{:>11}{tokens:>11.1}\n", "", "")
    }
}

fn processor() -> String {
    let system = sysinfo::System::new().ok().map(|mut system| {
        system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
        system
    });
    let name = system.and_then(|s| s.cpus().first().map(|cpu| cpu.brand().trim().to_owned()));
    name.filter(|n| !n.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_case_reports_the_median_step_and_all_sequences_tokens() {
        let run = |ms| StepsRun {
            wall: Duration::from_millis(ms),
            sampling: Duration::from_millis(1),
            ..StepsRun::default()
        };
        let case = DecodeCase { batch: 8, context: 0, steps: 10, drafts: 0 };
        let d = Decode::new(case, Moved { bytes: 2e6, ..Moved::default() }, &[run(90), run(100), run(110)]);
        assert_eq!((d.step_ms.p50, d.steps_per_s.p50, d.tokens_per_s.p50), (10.0, 100.0, 800.0));
        assert!((d.sample_ms - 0.1).abs() < 1e-9 && (d.gb_per_s - 0.2).abs() < 1e-9, "{d:?}");
        assert_eq!((d.copy_percent, d.distinct_experts), (None, None));
        let moved = Moved { bytes: 2e6, distinct_experts: Some(31.5), found: Some(0.963), copy_bandwidth: Some(4e8) };
        let d = Decode::new(DecodeCase { batch: 8, context: 0, steps: 10, drafts: 0 }, moved, &[run(100)]);
        assert_eq!(d.copy_percent.map(f64::round), Some(50.0));
        let line = d.line();
        assert!(line.contains("50.0%") && line.contains("31.5") && line.contains("96.3%"), "{line}");
        let drafting = StepsRun { accepted: 40, ..run(100) };
        let case = DecodeCase { batch: 8, context: 0, steps: 10, drafts: 0 };
        let d = Decode::new(case, Moved::default(), &[drafting]);
        assert_eq!((d.steps_per_s.p50, d.tokens_per_s.p50), (100.0, 1200.0));
        let p = Prefill::new(2, 512, &[run(1024)]);
        assert_eq!(p.tokens_per_s.p50, 1000.0);
    }
}
