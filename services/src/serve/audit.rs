//! The file of the audit, if it has one of its own.

use super::ServeError;
use super::log::ProcessLog;
use crate::audit::Audit;
use crate::limits;
use chimere_engine::files::open_regular_to_append;
use std::path::Path;

/// Adds records to this file, on a thread of its own; with no name they go to the log.
pub(super) fn open(file: &str) -> Result<Audit, ServeError> {
    if file.is_empty() {
        return Ok(Audit::default());
    }
    let failed = |e: std::io::Error| ServeError::Usage(format!("log.audit {file}: {e}"));
    // A FIFO or a device would hold the start up, and lose lines where nobody reads.
    let opened = open_regular_to_append(Path::new(file)).map_err(failed)?;
    let log = ProcessLog::to(opened, limits::LOG_BYTES_MAX).map_err(failed)?;
    Ok(Audit::to(move |line| log.say(line)))
}
