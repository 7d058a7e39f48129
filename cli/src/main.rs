//! The program `chimere`: reads the command line and runs the service, a command beside it, or a conversation in the
//! terminal. The service is the library `chimere`, the commands beside it are `chimere_tools`.

mod chat;
mod command_line;
mod info;
mod key;
mod mcp;
mod parse;
mod pipelines;
mod plan;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    command_line::run(command_line::Cli::parse())
}
