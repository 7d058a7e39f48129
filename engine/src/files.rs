//! Files that the owner of a machine names, opened with suspicion: only regular ones, never waiting for anybody, never
//! more than was said.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::Path;
use std::time::SystemTime;

/// Opens a regular file to read it. Anything else is an error that says what it is: opening a FIFO would wait for its
/// writer, and a device has no end.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Looked at before it is opened, since to open a device may already do something, and once more behind the name.
    check_kind(&std::fs::metadata(path)?)?;
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    check_kind(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file to read and change it; one that is not there is made, for its owner alone. Anything else is an
/// error that says what it is.
pub fn open_regular_to_change(path: &Path) -> io::Result<File> {
    open_or_make(path, OpenOptions::new().read(true).write(true).truncate(false))
}

/// Opens a regular file to write at its end; one that is not there is made, for its owner alone. Anything else is an
/// error that says what it is.
pub fn open_regular_to_append(path: &Path) -> io::Result<File> {
    open_or_make(path, OpenOptions::new().append(true))
}

fn open_or_make(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match std::fs::metadata(path) {
        Ok(meta) => check_kind(&meta)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    options.create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NONBLOCK).mode(0o600);
    }
    let file = options.open(path)?;
    check_kind(&file.metadata()?)?;
    Ok(file)
}

/// All bytes of a regular file that has at most so many.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut file = open_regular(path)?;
    let announced = file.metadata()?.len();
    let mut bytes = Vec::new();
    if announced <= bytes_max {
        // One more than it has: a file that grows meanwhile is not believed either.
        io::Read::by_ref(&mut file).take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    }
    let got = announced.max(bytes.len() as u64);
    if got > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("wanted at most {bytes_max} bytes, got {got}"),
        ));
    }
    Ok(bytes)
}

/// The text of a regular file that has at most so many bytes.
pub fn read_regular_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read_regular(path, bytes_max)?)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.utf8_error()))
}

/// Bytes that whoever runs this may still write to the disk of a directory.
#[cfg(unix)]
pub fn room(dir: &Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(dir.as_os_str().as_bytes())?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the name ends with a zero, and the call fills the structure when it says so.
    let stat = unsafe {
        if libc::statvfs(name.as_ptr(), stat.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        stat.assume_init()
    };
    #[allow(clippy::unnecessary_cast, reason = "the fields are narrower on other systems")]
    Ok((stat.f_bavail as u64).saturating_mul(stat.f_frsize as u64))
}

/// What a disk has left is not asked here: to write will tell.
#[cfg(not(unix))]
pub fn room(_dir: &Path) -> io::Result<u64> {
    Ok(u64::MAX)
}

fn check_kind(meta: &Metadata) -> io::Result<()> {
    let kind = meta.file_type();
    if kind.is_file() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("wanted a regular file, got {}", name_of(kind))))
}

fn name_of(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        for (is, name) in [
            (kind.is_fifo(), "a FIFO"),
            (kind.is_socket(), "a socket"),
            (kind.is_char_device(), "a character device"),
            (kind.is_block_device(), "a block device"),
        ] {
            if is {
                return name;
            }
        }
    }
    if kind.is_dir() { "a directory" } else { "something else" }
}

/// What tells a file from what it was before and from one that took its name: how many bytes it has, when they were
/// written, and its number on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    inode: u64,
    /// When its owner, its mode or its contents last changed, of a file that is watched by its name: one that could not
    /// be read may be readable since.
    changed: Option<(i64, i64)>,
}

impl Stamp {
    /// Of an open file, so that it stays that of this file whatever takes its name.
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(Self { changed: None, ..Self::of_metadata(&file.metadata()?) })
    }

    /// Of the file that has a name now; none where there is none.
    pub fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().as_ref().map(Self::of_metadata)
    }

    /// Of a file that was looked at.
    pub fn of_metadata(meta: &Metadata) -> Self {
        #[cfg(unix)]
        let (inode, changed) = {
            use std::os::unix::fs::MetadataExt;
            (meta.ino(), Some((meta.ctime(), meta.ctime_nsec())))
        };
        #[cfg(not(unix))]
        let (inode, changed) = (0, None);
        Self { bytes: meta.len(), modified: meta.modified().ok(), inode, changed }
    }

    /// How many bytes the file has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_regular_text(&path, 5).unwrap(), "12345");
        let error = read_regular(&path, 4).unwrap_err().to_string();
        assert_eq!(error, "wanted at most 4 bytes, got 5");
    }

    #[test]
    #[cfg(unix)]
    fn what_is_no_regular_file_is_refused_by_kind_and_nobody_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        for (path, kind) in [
            (fifo.as_path(), "a FIFO"),
            (&dir.path().join("socket"), "a socket"),
            (dir.path(), "a directory"),
            (Path::new("/dev/zero"), "a character device"),
        ] {
            for error in [
                read_regular(path, 1 << 20).unwrap_err(),
                open_regular_to_change(path).unwrap_err(),
                open_regular_to_append(path).unwrap_err(),
            ] {
                assert_eq!(error.to_string(), format!("wanted a regular file, got {kind}"));
            }
        }
    }
}
