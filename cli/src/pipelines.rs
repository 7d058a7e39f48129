//! `chimere pipelines`: an operator's files, looked at or made without a service.

use chimere::limits::PIPELINE_FILE_BYTES_MAX;
use chimere::pipelines::{described, imported, read_directory};
use chimere::printable::printable;
use chimere_engine::files::read_regular_text;
use chimere_tools::CliError;
use clap::Subcommand;
use std::path::{Path, PathBuf};

/// Pipelines: read an operator's files and say what each does, or make one of a route of the first Chimère.
#[derive(Subcommand, Debug)]
pub(crate) enum PipelinesCommand {
    /// Say what each file of a directory does, or what is wrong with it.
    Check {
        /// The directory of the files, as `pipelines.directory` has it.
        directory: PathBuf,
    },
    /// Print the pipeline of a route in YAML, as the first Chimère has them; what is left out stands at its head.
    Import {
        /// The route's file, which is left as it is.
        file: PathBuf,
        /// The vector store that is searched where the route says `rag_collection: auto`.
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
    },
}

/// Runs the command. Exit code 2 says that a file has a mistake.
pub(crate) fn run(command: &PipelinesCommand) -> Result<(), CliError> {
    match command {
        PipelinesCommand::Check { directory } => check(directory),
        PipelinesCommand::Import { file, store } => import(file, store.as_deref()),
    }
}

fn import(file: &Path, store: Option<&str>) -> Result<(), CliError> {
    let wrong = |error: &dyn std::fmt::Display| CliError::Usage(format!("{}: {error}", file.display()));
    let text = read_regular_text(file, PIPELINE_FILE_BYTES_MAX).map_err(|e| wrong(&e))?;
    print!("{}", printable_lines(&imported(&text, store).map_err(|e| wrong(&e))?));
    println!();
    Ok(())
}

fn check(directory: &Path) -> Result<(), CliError> {
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
