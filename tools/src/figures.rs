//! How figures look in a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Bytes with a binary unit, such as `21.8 MiB`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// A count with a decimal unit, such as `35.1 B`.
pub fn count_text(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{:.1} k", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} M", count as f64 / 1e6),
        _ => format!("{:.1} B", count as f64 / 1e9),
    }
}

/// A line on standard error that says how far a long write or read is; nothing when that is no terminal.
pub(crate) struct ByteProgress {
    what: &'static str,
    shown: Option<Instant>,
}

impl ByteProgress {
    const EVERY: Duration = Duration::from_millis(200);

    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, shown: None }
    }

    pub(crate) fn show(&mut self, done: u64, all: u64) {
        let due = self.shown.is_none_or(|at| at.elapsed() >= Self::EVERY);
        if due && std::io::stderr().is_terminal() {
            eprint!("\r{} {} of {}   ", self.what, bytes_text(done), bytes_text(all));
            // A progress line that cannot be written is not worth an error.
            let _ = std::io::stderr().flush();
            self.shown = Some(Instant::now());
        }
    }

    pub(crate) fn end(&mut self) {
        if self.shown.take().is_some() {
            eprintln!();
        }
    }
}

/// A line on standard error that says how many steps of a long piece of work are done, and how long the rest will take
/// at this pace; a line at the end where that is no terminal.
pub(crate) struct StepProgress {
    what: String,
    begin: Instant,
    shown: Option<Instant>,
}

impl StepProgress {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), begin: Instant::now(), shown: None }
    }

    pub(crate) fn show(&mut self, done: usize, all: usize) {
        let due = self.shown.is_none_or(|at| at.elapsed() >= ByteProgress::EVERY);
        if due && done > 0 && std::io::stderr().is_terminal() {
            let left = self.begin.elapsed().mul_f64((all - done.min(all)) as f64 / done as f64);
            eprint!("\r{}: {done} of {all}, {} left   ", self.what, time_text(left));
            // As above.
            let _ = std::io::stderr().flush();
            self.shown = Some(Instant::now());
        }
    }

    pub(crate) fn end(self) {
        let start = if self.shown.is_some() { "\r" } else { "" };
        eprintln!("{start}{}: {}                    ", self.what, time_text(self.begin.elapsed()));
    }
}

/// Minutes and seconds, such as `3 min 20 s`.
pub(crate) fn time_text(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {} s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_carry_their_unit() {
        assert_eq!([0, 1023, 1024, 23_184_064].map(bytes_text), ["0 B", "1023 B", "1.0 KiB", "22.1 MiB"]);
        assert_eq!([999, 1_500, 21_300_000, 35_100_000_000].map(count_text), ["999", "1.5 k", "21.3 M", "35.1 B"]);
    }
}
