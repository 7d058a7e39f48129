//! `chimere pipelines`: an operator's files, looked at without a service.

use chimere::pipelines::{described, read_directory};
use chimere::printable::printable;
use chimere_tools::CliError;
use clap::Subcommand;
use std::path::PathBuf;

/// Pipelines: read an operator's files and say what each does.
#[derive(Subcommand, Debug)]
pub(crate) enum PipelinesCommand {
    /// Say what each file of a directory does, or what is wrong with it.
    Check {
        /// The directory of the files, as `pipelines.directory` has it.
        directory: PathBuf,
    },
}

/// Runs the command. Exit code 2 says that a file has a mistake.
pub(crate) fn run(command: &PipelinesCommand) -> Result<(), CliError> {
    let PipelinesCommand::Check { directory } = command;
    let files = read_directory(directory).map_err(CliError::Usage)?;
    let (count, mut wrong) = (files.len(), 0);
    for file in files {
        match file {
            Ok(pipeline) => println!("{}", printable_lines(&described(&pipeline))),
            Err(error) => {
                wrong += 1;
                println!("{}", printable(&error.to_string()));
            }
        }
    }
    match (count, wrong) {
        (0, _) => Err(CliError::Usage(format!("{}: no file ends in .toml", directory.display()))),
        (_, 0) => Ok(()),
        (count, wrong) => Err(CliError::Usage(format!("{wrong} of {count} files have a mistake"))),
    }
}

fn printable_lines(text: &str) -> String {
    text.lines().map(|line| printable(line).to_string()).collect::<Vec<_>>().join("\n")
}
