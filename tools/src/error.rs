//! How a command fails.

use std::process::ExitCode;

/// Why a command ended without doing what was asked.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum CliError {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The command line made sense and the work failed.
    #[error("{0}")]
    Failed(String),
}

impl CliError {
    /// The exit code of the process: 2 for a wrong command line, as clap has it, 1 for everything else.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Usage(_) => ExitCode::from(2),
            CliError::Failed(_) => ExitCode::FAILURE,
        }
    }
}
