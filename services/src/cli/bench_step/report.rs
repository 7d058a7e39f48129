//! The figures of `chimere bench step`, as a table and as JSON.

use super::BenchStepArgs;
use super::driver::Run;
use crate::cli::CliError;
use crate::cli::stats::Stats;
use crate::cli::text::bytes_text;
use chimere_engine::backend::cpu::CpuConfig;
use chimere_engine::model::{Model, Summary};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Everything one call measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: &'static str,
    model: ModelFigures,
    device: &'static str,
    /// The processor's own name, where the system tells it.
    processor: String,
    threads: usize,
    exact: bool,
    step_tokens: u32,
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
    /// Milliseconds a step, over the repetitions.
    step_ms: Stats,
    steps_per_s: Stats,
    /// Over all sequences.
    tokens_per_s: Stats,
    /// Of a step, the sampler's mean part.
    sample_ms: f64,
    /// The least bytes a step moves.
    bytes_per_step: f64,
    /// Those bytes over the median step.
    gb_per_s: f64,
}

impl Decode {
    pub(super) fn new(batch: u32, context: u32, steps: u32, bytes: f64, runs: &[Run]) -> Self {
        let step_s = |r: &Run| r.wall.as_secs_f64() / f64::from(steps);
        let stats = |f: &dyn Fn(&Run) -> f64| Stats::of(&runs.iter().map(f).collect::<Vec<_>>()).expect("there is a repetition");
        let step_ms = stats(&|r| step_s(r) * 1e3);
        Self {
            batch,
            context,
            steps,
            step_ms,
            steps_per_s: stats(&|r| 1.0 / step_s(r)),
            tokens_per_s: stats(&|r| f64::from(batch) / step_s(r)),
            sample_ms: stats(&|r| r.sampling.as_secs_f64() * 1e3 / f64::from(steps)).mean,
            bytes_per_step: bytes,
            gb_per_s: bytes / step_ms.p50 / 1e6,
        }
    }
}

/// One case of prefill.
#[derive(Debug, Serialize)]
pub(super) struct Prefill {
    sequences: u32,
    tokens: u32,
    /// Milliseconds for all prompts, over the repetitions.
    ms: Stats,
    /// Over all sequences.
    tokens_per_s: Stats,
}

impl Prefill {
    pub(super) fn new(sequences: u32, tokens: u32, runs: &[Run]) -> Self {
        let stats = |f: &dyn Fn(f64) -> f64| {
            Stats::of(&runs.iter().map(|r| f(r.wall.as_secs_f64())).collect::<Vec<_>>()).expect("there is a repetition")
        };
        let all = f64::from(sequences * tokens);
        Self { sequences, tokens, ms: stats(&|s| s * 1e3), tokens_per_s: stats(&|s| all / s) }
    }
}

impl Report {
    pub(super) fn new(file: &Path, model: &Model, summary: &Summary, config: &CpuConfig, args: &BenchStepArgs) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            model: ModelFigures {
                name: model.config.name.clone(),
                file: file.display().to_string(),
                weight_bytes: summary.bytes(),
            },
            device: "cpu",
            processor: processor(),
            threads: config.threads,
            exact: args.exact,
            step_tokens: args.step_tokens,
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

    pub(super) fn table(&self) -> String {
        let mut out = format!(
            "chimere {}: {} ({}), {} with {} threads, median of {} (± half the range)\n",
            self.version,
            self.model.name,
            bytes_text(self.model.weight_bytes),
            self.processor,
            self.threads,
            self.repeat
        );
        if !self.decode.is_empty() {
            out += &format!(
                "\n{:<8}{:>6}{:>9}{:>11}{:>8}{:>11}{:>11}{:>12}{:>8}{:>11}\n",
                "decode", "batch", "context", "ms/step", "±", "steps/s", "tokens/s", "bytes/step", "GB/s", "sample ms"
            );
        }
        self.decode.iter().for_each(|d| d.line(&mut out));
        if !self.prefill.is_empty() {
            out += &format!("\n{:<8}{:>6}{:>9}{:>11}{:>8}{:>11}{:>11}\n", "prefill", "seqs", "tokens", "ms", "±", "", "tokens/s");
        }
        self.prefill.iter().for_each(|p| p.line(&mut out));
        out
    }
}

impl Decode {
    fn line(&self, out: &mut String) {
        let (ms, spread) = (self.step_ms.p50, self.step_ms.spread() * 100.0);
        let bytes = bytes_text(self.bytes_per_step as u64);
        write!(out, "{:<8}{:>6}{:>9}{ms:>11.3}{:>8}", "", self.batch, self.context, format!("{spread:.1}%")).expect("to a string");
        let (steps, tokens) = (self.steps_per_s.p50, self.tokens_per_s.p50);
        writeln!(out, "{steps:>11.1}{tokens:>11.1}{bytes:>12}{:>8.1}{:>11.3}", self.gb_per_s, self.sample_ms).expect("to a string");
    }
}

impl Prefill {
    fn line(&self, out: &mut String) {
        let (ms, spread, tokens) = (self.ms.p50, self.ms.spread() * 100.0, self.tokens_per_s.p50);
        writeln!(
            out,
            "{:<8}{:>6}{:>9}{ms:>11.2}{:>8}{:>11}{tokens:>11.1}",
            "",
            self.sequences,
            self.tokens,
            format!("{spread:.1}%"),
            ""
        )
        .expect("to a string");
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
        let run = |ms| Run { wall: Duration::from_millis(ms), sampling: Duration::from_millis(1) };
        let d = Decode::new(8, 0, 10, 2e6, &[run(90), run(100), run(110)]);
        assert_eq!((d.step_ms.p50, d.steps_per_s.p50, d.tokens_per_s.p50), (10.0, 100.0, 800.0));
        assert!((d.sample_ms - 0.1).abs() < 1e-9 && (d.gb_per_s - 0.2).abs() < 1e-9, "{d:?}");
        let p = Prefill::new(2, 512, &[run(1024)]);
        assert_eq!(p.tokens_per_s.p50, 1000.0);
    }
}
