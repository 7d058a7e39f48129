//! Whether a file that was read at the start is still the one that was read.

use std::path::Path;
use std::time::SystemTime;

/// What tells a file from one that took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    bytes: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

/// The stamp of a file as it is now; `None` where there is none.
pub(super) fn stamp(path: &Path) -> Option<FileStamp> {
    let meta = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&meta);
    #[cfg(not(unix))]
    let inode = 0;
    Some(FileStamp { bytes: meta.len(), modified: meta.modified().ok(), inode })
}
