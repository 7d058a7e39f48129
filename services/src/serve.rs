//! `chimere serve`: from the command line to a running service, and its end.

use crate::config::{Config, ServeArgs};
use std::path::Path;
use std::process::ExitCode;

/// Exit code when the configuration or the usage is wrong, as clap has it.
pub const EXIT_USAGE: u8 = 2;

/// Serves until a signal or until the engine is lost.
pub fn run(args: &ServeArgs) -> ExitCode {
    let config = match Config::load(args, std::env::vars()) {
        Ok(config) => config,
        Err(e) => {
            eprintln!("chimere: {e}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match crate::locate::model(
        Some(Path::new(&config.model.path)),
        std::env::var_os("CHIMERE_MODEL").as_deref().map(Path::new),
        std::env::current_exe().ok().as_deref(),
    ) {
        Ok(path) => {
            eprintln!("chimere: model {}", path.display());
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("chimere: {e}");
            ExitCode::FAILURE
        }
    }
}
