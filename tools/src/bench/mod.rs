//! `chimere bench`: what can be measured, each in a file of its own.

pub mod drafts;
pub mod engram;
pub mod serve;
pub mod step;

use super::CliError;

/// What can be measured.
#[derive(clap::Subcommand, Debug)]
pub enum Bench {
    /// The engine alone: decoding and prefill on one device.
    Step(step::BenchStepArgs),
    /// What drafts gain or cost at a stated acceptance, through the scheduler and its gate.
    Drafts(drafts::BenchDraftsArgs),
    /// Lookups in tables, as they run beside each step.
    Engram(engram::BenchEngramArgs),
    /// A running service under load, over HTTP.
    Serve(serve::BenchServeArgs),
}

/// Measures, and prints what came out.
pub fn run(bench: &Bench) -> Result<(), CliError> {
    match bench {
        Bench::Step(args) => step::run(args),
        Bench::Drafts(args) => drafts::run(args),
        Bench::Engram(args) => engram::run(args),
        Bench::Serve(args) => serve::run(args),
    }
}
