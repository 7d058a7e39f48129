//! The parent's side of a parser: starts the child, reads its lines, and ends it when it takes too long or nobody wants
//! its result any more. A child that lies can write no more than a bound of bytes.

use super::format::DocumentFormat;
use super::lines::ParsedLine;
use crate::limits::DOCUMENT_TEXT_BYTES_MAX;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often it is asked whether the result is still wanted.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Bytes that a child may write: its text with all that JSON adds.
const LINES_BYTES_MAX: u64 = 8 * DOCUMENT_TEXT_BYTES_MAX as u64;

/// Why a child has no result.
#[derive(Debug)]
pub(in crate::documents) enum ChildFault {
    /// Nobody wants the result any more.
    Unwanted,
    /// It took longer than it may.
    TooSlow,
    /// It ended before its last line, as one that takes too much memory does.
    Died(String),
    /// It could not be started or heard, or its lines could not be kept.
    Io(io::Error),
}

impl From<io::Error> for ChildFault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What a child may take, and the program that it is.
#[derive(Clone, Copy, Debug)]
pub(in crate::documents) struct ChildBounds<'a> {
    pub(in crate::documents) program: &'a Path,
    pub(in crate::documents) memory_bytes: u64,
    pub(in crate::documents) seconds: u64,
}

/// Reads a file with a child, and hands on its lines until `hear` has the last one and returns true.
pub(in crate::documents) fn read_with_child(
    bounds: ChildBounds<'_>,
    (file, format): (File, DocumentFormat),
    wanted: impl Fn() -> bool + Send,
    mut hear: impl FnMut(ParsedLine) -> io::Result<bool>,
) -> Result<(), ChildFault> {
    let mut child = start(bounds, file, format)?;
    let out = child.stdout.take().ok_or_else(|| io::Error::other("the child has no output"))?;
    let mut lines = BufReader::new(out.take(LINES_BYTES_MAX));
    let (ended, end) = channel();
    let pid = rustix::process::Pid::from_child(&child);
    let (heard, stopped) = std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let why = watch(&end, Duration::from_secs(bounds.seconds), wanted);
            if why.is_some() {
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            }
            why
        });
        let heard = hear_all(&mut lines, &mut hear);
        drop(ended);
        (heard, watch.join().unwrap_or(None))
    });
    // It may have more to say, which nobody hears.
    drop(lines);
    let status = finish(&mut child)?;
    match (heard, stopped) {
        (_, Some(why)) => Err(why),
        (Ok(true), None) => Ok(()),
        (Ok(false), None) => Err(ChildFault::Died(last_words(status))),
        (Err(error), None) => Err(error.into()),
    }
}

/// Its environment is empty, and its place the root: it needs nothing but its two pipes.
fn start(bounds: ChildBounds<'_>, file: File, format: DocumentFormat) -> io::Result<Child> {
    Command::new(bounds.program)
        .args(["parse", "--format", format.name()])
        .args(["--memory-bytes", &bounds.memory_bytes.to_string(), "--cpu-seconds", &bounds.seconds.to_string()])
        .env_clear()
        .current_dir("/")
        .stdin(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// Waits until all lines were heard, or until the child is to be ended.
fn watch(end: &Receiver<()>, time: Duration, wanted: impl Fn() -> bool) -> Option<ChildFault> {
    let begin = Instant::now();
    loop {
        match end.recv_timeout(ASK_EVERY) {
            Err(RecvTimeoutError::Timeout) if begin.elapsed() > time => return Some(ChildFault::TooSlow),
            Err(RecvTimeoutError::Timeout) if !wanted() => return Some(ChildFault::Unwanted),
            Err(RecvTimeoutError::Timeout) => {}
            _ => return None,
        }
    }
}

/// True if the last line came.
fn hear_all(lines: &mut impl BufRead, hear: &mut impl FnMut(ParsedLine) -> io::Result<bool>) -> io::Result<bool> {
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        if line.last() == Some(&b'\n') && hear(serde_json::from_slice(&line)?)? {
            return Ok(true);
        }
        line.clear();
    }
    Ok(false)
}

/// It has closed its output, or its output is closed: it ends by itself or is ended.
fn finish(child: &mut Child) -> io::Result<ExitStatus> {
    child.kill().ok();
    child.wait()
}

fn last_words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.signal(), status.code()) {
        (Some(signal), _) if signal == libc::SIGXCPU || signal == libc::SIGKILL => "it takes too long to read".into(),
        (Some(_), _) => "it takes too much memory to read, or breaks the parser".into(),
        (None, code) => format!("the parser ended with the code {}", code.unwrap_or_default()),
    }
}
