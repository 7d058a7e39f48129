//! The command line: one variant a subcommand. What a subcommand does is in a file of its own, here or in
//! [`chimere_tools`].

use crate::{chat, info, key, mcp, parse, pipelines, plan};
use chimere::config::ServeArgs;
use chimere::printable::printable;
use chimere_tools::bench::{self, BenchCommand};
use chimere_tools::eval::{self, EvalCommand};
use chimere_tools::trace::{self, TraceCommand};
use chimere_tools::{CliError, documents, engram, kernels, learn, quantize, synth};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Serves hybrid Gated-DeltaNet and mixture-of-experts language models over an OpenAI-compatible endpoint.
///
/// Without a subcommand, `serve` runs. Exit codes: 0 all well, 1 failed (model, address, request), 2 wrong usage or
/// configuration, 3 the engine was lost while serving.
#[derive(Parser, Debug)]
#[command(name = "chimere", version, max_term_width = 110, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    /// What to do; `serve` when absent.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Options of `serve`, for when the subcommand is left out.
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

/// The commands of the program.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serve a model over HTTP (the default).
    Serve(Box<ServeArgs>),
    /// Talk to a running service in the terminal.
    Chat(chat::ChatArgs),
    /// Show what a model file holds and what it will need.
    Info(info::InfoArgs),
    /// Show what takes which bytes of a GPU's memory, without a GPU.
    Plan(Box<plan::PlanArgs>),
    /// Write a model file of a released shape with random weights.
    Synth(synth::SynthArgs),
    /// Write a model file whose weights take fewer bits.
    Quantize(Box<quantize::QuantizeArgs>),
    /// Compare a model with another, or with known answers.
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Traces of which experts tokens use: record, draw, look into.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// GPU code, made ahead of time.
    #[command(subcommand)]
    Kernels(kernels::KernelsCommand),
    /// Tables of n-grams: make, look into, join, forget.
    #[command(subcommand)]
    Engram(engram::EngramCommand),
    /// API keys: make one, or the line of the key file for one.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Pipelines: read an operator's files and say what each does.
    #[command(subcommand)]
    Pipelines(pipelines::PipelinesCommand),
    /// MCP servers whose tools a service runs for its models: list, accept, import.
    #[command(subcommand)]
    Mcp(mcp::McpCommand),
    /// Documents of a running service: put files into a store, list stores.
    #[command(subcommand)]
    Documents(documents::DocumentsCommand),
    /// What a running service learns from corrections: learn now, look, serve, take back.
    #[command(subcommand)]
    Learn(learn::LearnCommand),
    /// Read one file for a service, within bounds: standard input to lines of JSON.
    #[command(hide = true)]
    Parse(parse::ParseArgs),
    /// Measure the engine, tables, or a running service.
    #[command(subcommand)]
    Bench(BenchCommand),
}

/// Runs what the command line asks for. The exit code is part of the interface; see [`Cli`].
pub(crate) fn run(cli: Cli) -> ExitCode {
    match cli.command.unwrap_or_else(|| Command::Serve(Box::new(cli.serve))) {
        Command::Serve(args) => chimere::serve::run(&args),
        Command::Chat(args) => finish(chat::run(&args)),
        Command::Info(args) => finish(info::run(&args)),
        Command::Plan(args) => finish(plan::run(&args)),
        Command::Synth(args) => finish(synth::run(&args)),
        Command::Quantize(args) => finish(quantize::run(&args)),
        Command::Eval(eval) => finish(eval::run(&eval)),
        Command::Trace(command) => finish(trace::run(&command)),
        Command::Kernels(args) => finish(kernels::run(&args)),
        Command::Engram(command) => finish(engram::run(&command)),
        Command::Key(command) => finish(key::run(&command)),
        Command::Pipelines(command) => finish(pipelines::run(&command)),
        Command::Mcp(command) => finish(mcp::run(&command)),
        Command::Documents(command) => finish(documents::run(&command)),
        Command::Learn(command) => finish(learn::run(&command)),
        Command::Parse(args) => finish(parse::run(&args)),
        Command::Bench(bench) => finish(bench::run(&bench)),
    }
}

fn finish(result: Result<(), CliError>) -> ExitCode {
    result.map_or_else(
        |e| {
            eprintln!("chimere: {}", printable(&e.to_string()));
            e.exit_code()
        },
        |()| ExitCode::SUCCESS,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_is_the_default_subcommand_and_takes_the_same_flags() {
        let bare = Cli::try_parse_from(["chimere", "--port", "9000"]).unwrap();
        assert!(bare.command.is_none());
        assert_eq!(bare.serve.port, Some(9000));
        let named = Cli::try_parse_from(["chimere", "serve", "--port", "9000"]).unwrap();
        let Some(Command::Serve(args)) = named.command else { panic!("serve was asked for") };
        assert_eq!(args.port, Some(9000));
    }
}
