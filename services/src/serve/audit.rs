//! The file of the audit, if it has one of its own.

use super::ServeError;
use super::log::Log;
use crate::audit::Audit;
use crate::limits;
use std::fs::OpenOptions;

/// Adds records to this file, on a thread of its own; with no name they go to the log.
pub(super) fn open(file: &str) -> Result<Audit, ServeError> {
    if file.is_empty() {
        return Ok(Audit::default());
    }
    let failed = |e: std::io::Error| ServeError::Usage(format!("log.audit {file}: {e}"));
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let log = Log::to(options.open(file).map_err(failed)?, limits::LOG_BYTES_MAX).map_err(failed)?;
    Ok(Audit::to(move |line| log.say(line)))
}
