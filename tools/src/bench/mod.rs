//! `chimere bench`: the benchmarks, each in a file of its own.

pub mod drafts;
pub mod engram;
pub mod serve;
pub mod step;

use super::CliError;

/// The benchmarks that the program has.
#[derive(clap::Subcommand, Debug)]
pub enum BenchCommand {
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
pub fn run(bench: &BenchCommand) -> Result<(), CliError> {
    match bench {
        BenchCommand::Step(args) => step::run(args),
        BenchCommand::Drafts(args) => drafts::run(args),
        BenchCommand::Engram(args) => engram::run(args),
        BenchCommand::Serve(args) => serve::run(args),
    }
}
