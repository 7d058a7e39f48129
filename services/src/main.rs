//! The `chimere` binary: reads the command line and hands over.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    chimere::cli::run(chimere::cli::Cli::parse())
}
