//! Puts a file in the place of another so that every reader sees the old one or the new one, whole.

use super::error::{TableError, TableProblem};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file beside `path`, brings it to the disk, and renames it. A reader that has read the old one keeps it; a
/// crash leaves the old one, and perhaps a file whose name starts with a dot and ends with `.part`.
pub fn publish(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), TableError> {
    let part = part_path(path);
    let done = write_synced(&part, write).and_then(|()| fs::rename(&part, path)).and_then(|()| sync_directory(path));
    done.map_err(|e| {
        // What is in the way of writing may be in the way of removing too; the first error is the one to report.
        let _ = fs::remove_file(&part);
        TableProblem::from(e).in_file(path)
    })
}

fn write_synced(part: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    // What a table was made from can be read out of it.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = BufWriter::with_capacity(1 << 20, options.open(part)?);
    write(&mut out)?;
    out.flush()?;
    out.get_ref().sync_all()
}

/// The new name is safe only when the directory is on the disk.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Two writers of one table, in one process or two, never write to one file.
fn part_path(path: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{}.part", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}
