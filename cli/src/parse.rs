//! `chimere parse`: what a service starts to read a file that somebody gave it.

use chimere::documents::parse::{self, DocumentFormat, ParseBounds};
use chimere_tools::CliError;

/// Reads a file from standard input and writes what is in it, a line of JSON for each section.
#[derive(clap::Args, Debug, Clone, Copy)]
pub(crate) struct ParseArgs {
    /// What the file is: text, markdown, html, pdf, office.
    #[arg(long)]
    format: DocumentFormat,
    /// Bytes of addresses that it may take.
    #[arg(long)]
    memory_bytes: u64,
    /// Seconds of a processor that it may take.
    #[arg(long)]
    cpu_seconds: u64,
}

/// Reads the file and writes its sections.
pub(crate) fn run(args: &ParseArgs) -> Result<(), CliError> {
    let bounds = ParseBounds { memory_bytes: args.memory_bytes, cpu_seconds: args.cpu_seconds };
    parse::run(args.format, bounds).map_err(CliError::Failed)
}
