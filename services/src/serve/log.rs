//! The log on standard error, written by a thread of its own: where nobody reads it, or reads slowly, records are
//! dropped and counted, and nobody who has something to say waits.

use super::ServeError;
use crate::config::{self, LogFormat};
use crate::printable::printable;
use crate::{limits, metrics};
use parking_lot::{Condvar, Mutex};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Libraries that have a line for each connection that ends through a fault of its client. The service counts these
/// itself and tells them now and then, or anybody with the address could fill the disk. A filter that names one of them
/// has its lines again.
const STRANGERS: &str = "actix_http=off,rustls=off";

/// How long the end of the process waits for what was said last.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where records go. Clones share one thread.
#[derive(Clone, Debug)]
pub(super) struct ProcessLog {
    shared: Arc<LogShared>,
}

#[derive(Debug)]
struct LogShared {
    lines: Mutex<PendingLines>,
    added: Condvar,
    written: Condvar,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct PendingLines {
    waiting: Vec<u8>,
    /// The thread is writing what it took out of `waiting`.
    busy: bool,
}

impl ProcessLog {
    /// Starts it for the whole process: records of `tracing`, and what a panic says.
    pub(super) fn start(config: &config::Log) -> Result<Self, ServeError> {
        let filter = EnvFilter::try_new(format!("{STRANGERS},{}", config.filter))
            .map_err(|e| ServeError::Usage(format!("log.filter {:?} is no filter: {e}", config.filter)))?;
        let log =
            Self::to(io::stderr(), limits::LOG_BYTES_MAX).map_err(|e| ServeError::Start(format!("log thread: {e}")))?;
        let records = tracing_subscriber::fmt().with_env_filter(filter).with_writer(log.clone()).with_target(false);
        // Escape sequences are for people; a file or a journal would keep them as garbage.
        let records = records.with_ansi(io::stderr().is_terminal());
        match config.format {
            LogFormat::Text => records.init(),
            LogFormat::Json => records.json().init(),
        }
        // The usual hook writes by itself, and a thread that panics while nobody reads would never end.
        std::panic::set_hook(Box::new(tell_panic));
        Ok(log)
    }

    /// For words before there is a configuration, and so before there are records.
    pub(super) fn bare() -> io::Result<Self> {
        Self::to(io::stderr(), limits::LOG_BYTES_MAX)
    }

    /// Writes to `out`, with at most so many bytes that wait for it.
    pub(super) fn to(out: impl Write + Send + 'static, bytes_max: usize) -> io::Result<Self> {
        let lines = Mutex::new(PendingLines::default());
        let shared = Arc::new(LogShared { lines, added: Condvar::new(), written: Condvar::new(), bytes_max });
        let thread = shared.clone();
        std::thread::Builder::new().name("chimere-log".into()).spawn(move || thread.write_for_ever(out))?;
        Ok(Self { shared })
    }

    /// A line that is no record.
    pub(super) fn say(&self, line: &str) {
        self.shared.add(format!("{}\n", printable(line)).as_bytes());
    }

    /// Part of a line, such as how far something is.
    pub(super) fn show(&self, part: &str) {
        self.shared.add(part.as_bytes());
    }

    /// Waits until all is written, not for long: the process must end also where nobody reads what it says.
    pub(super) fn finish(&self) {
        let mut lines = self.shared.lines.lock();
        let unwritten = |lines: &mut PendingLines| lines.busy || !lines.waiting.is_empty();
        let _in_time = self.shared.written.wait_while_for(&mut lines, unwritten, LAST_WORDS);
    }
}

impl LogShared {
    /// All of it or nothing.
    fn add(&self, record: &[u8]) {
        let mut lines = self.lines.lock();
        let fits = lines.waiting.len() + record.len() <= self.bytes_max;
        if fits {
            lines.waiting.extend_from_slice(record);
        }
        drop(lines);
        if fits {
            self.added.notify_one();
        } else {
            lost(record);
        }
    }

    fn write_for_ever(&self, mut out: impl Write) {
        let mut taken = Vec::new();
        loop {
            let mut lines = self.lines.lock();
            self.added.wait_while(&mut lines, |lines| lines.waiting.is_empty());
            // The two buffers change places, so that none is allocated anew.
            std::mem::swap(&mut taken, &mut lines.waiting);
            lines.busy = true;
            drop(lines);
            write(&mut out, &taken);
            taken.clear();
            self.lines.lock().busy = false;
            self.written.notify_all();
        }
    }
}

/// What cannot be written, as on a full disk, is lost, and what comes later is tried again.
fn write(out: &mut impl Write, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return lost(bytes),
            Ok(n) => bytes = &bytes[n..],
        }
    }
}

fn lost(bytes: &[u8]) {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    ::metrics::counter!(metrics::LOG_LOST).increment(lines as u64);
}

fn tell_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let trace = std::backtrace::Backtrace::capture();
    let trace = (trace.status() == std::backtrace::BacktraceStatus::Captured).then(|| trace.to_string());
    tracing::error!(thread = thread.name(), trace, "{panic}");
}

impl MakeWriter<'_> for ProcessLog {
    type Writer = LogRecord;

    fn make_writer(&self) -> LogRecord {
        LogRecord(self.shared.clone())
    }
}

/// Takes one record, which its formatter hands over whole.
pub(super) struct LogRecord(Arc<LogShared>);

impl Write for LogRecord {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        self.0.add(record);
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Waits for leave before each write, as a pipe does that is full.
    struct Slow {
        leave: mpsc::Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.leave.recv().map_err(io::Error::other)?;
            self.written.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn dropped() -> u64 {
        let text = metrics::install().render();
        let line = text.lines().find_map(|line| line.strip_prefix("chimere_log_lost_total "));
        line.unwrap().parse().unwrap()
    }

    #[test]
    fn nobody_waits_for_a_reader_that_is_slow_and_what_is_dropped_is_counted() {
        let before = dropped();
        let (leave, turns) = mpsc::channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let log = ProcessLog::to(Slow { leave: turns, written: written.clone() }, 64).unwrap();
        log.say("first");
        // The thread has taken it, and hangs.
        while !log.shared.lines.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        for n in 0..20 {
            log.say(&format!("record {n:02}"));
        }
        assert_eq!(dropped() - before, 14, "six records of ten bytes fit into 64");
        log.finish();
        assert!(written.lock().is_empty(), "the end does not wait for ever");
        leave.send(()).unwrap();
        leave.send(()).unwrap();
        log.finish();
        let text = String::from_utf8(written.lock().clone()).unwrap();
        assert_eq!(text, "first\nrecord 00\nrecord 01\nrecord 02\nrecord 03\nrecord 04\nrecord 05\n");
        drop(leave);
        log.say("to a reader that is gone");
        log.finish();
        assert_eq!(dropped() - before, 15);
    }
}
