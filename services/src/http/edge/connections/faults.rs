//! Connections that ended through a fault of their clients: counted by kind, and told in the log now and then. Anybody
//! with the address can make any number of them, so no line belongs to one of them.

use crate::limits::FAULT_TOLD_SECONDS;
use crate::metrics;
use actix_http::error::{DispatchError, ParseError};
use actix_tls::accept::TlsError;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::fmt::Display;
use std::time::{Duration, Instant};

/// What a client did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http::edge) enum ClientFault {
    /// Its bytes are no HTTP.
    Malformed,
    /// Its head is too long.
    LongHead,
    /// There was no room for its head.
    NoRoom,
    /// Its head took too long.
    SlowHead,
    /// Its body took too long.
    SlowBody,
    /// It left its answer unread.
    Unread,
    /// No encrypted connection came about.
    Handshake,
    /// Its connection broke, as when a client is killed: counted, and nothing to tell.
    Broken,
}

impl ClientFault {
    const ALL: [Self; 8] = [
        Self::Malformed,
        Self::LongHead,
        Self::NoRoom,
        Self::SlowHead,
        Self::SlowBody,
        Self::Unread,
        Self::Handshake,
        Self::Broken,
    ];

    /// Its value of the metric's label: one of [`metrics::FAULTS`].
    fn name(self) -> &'static str {
        metrics::FAULTS[self as usize]
    }
}

/// When each kind was told last, and how many came since.
static TOLD: Mutex<[FaultCount; ClientFault::ALL.len()]> =
    Mutex::new([FaultCount { at: None, since: 0 }; ClientFault::ALL.len()]);

#[derive(Clone, Copy, Debug)]
struct FaultCount {
    at: Option<Instant>,
    since: u64,
}

impl FaultCount {
    /// One more. How many there were, if they are to be told now.
    fn another(&mut self, now: Instant) -> Option<u64> {
        self.since += 1;
        let rest = Duration::from_secs(FAULT_TOLD_SECONDS);
        if self.at.is_some_and(|at| now.saturating_duration_since(at) < rest) {
            return None;
        }
        self.at = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}

/// Counts one, with the words of the library that found it.
pub(in crate::http::edge) fn count(fault: ClientFault, words: Option<&dyn Display>) {
    ::metrics::counter!(metrics::CLIENT_FAULTS, "fault" => fault.name()).increment(1);
    let told = TOLD.lock()[fault as usize].another(Instant::now());
    if let Some(connections) = told.filter(|_| fault != ClientFault::Broken) {
        let last = words.map(|words| words.to_string()).unwrap_or_default();
        tracing::warn!(fault = fault.name(), connections, last, "connections ended through faults of their clients");
    }
}

/// Counts what ended a connection. Ends that this service made itself were counted where they were made.
pub(super) fn ended(error: &DispatchError) {
    let fault = match error {
        DispatchError::Parse(ParseError::TooLarge) => ClientFault::LongHead,
        DispatchError::Parse(_) => ClientFault::Malformed,
        DispatchError::Io(error) => match error.kind() {
            std::io::ErrorKind::QuotaExceeded | std::io::ErrorKind::TimedOut => return,
            _ => ClientFault::Broken,
        },
        // The body of an answer ends with an error where the client did not read it.
        DispatchError::Body(_) => ClientFault::Unread,
        _ => ClientFault::Broken,
    };
    count(fault, Some(error));
}

/// Counts a connection that was to be encrypted and was not.
pub(super) fn handshake(error: &TlsError<std::io::Error, Infallible>) {
    match error {
        TlsError::Tls(error) if error.kind() == std::io::ErrorKind::QuotaExceeded => {}
        TlsError::Tls(error) => count(ClientFault::Handshake, Some(error)),
        error => count(ClientFault::Handshake, Some(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_faults_makes_few_lines_and_each_is_in_one_of_them() {
        let (mut told, begin) = (FaultCount { at: None, since: 0 }, Instant::now());
        let lines: Vec<u64> =
            (0..50_000).filter_map(|i| told.another(begin + Duration::from_micros(100 * i))).collect();
        assert_eq!(lines, [1], "five seconds of them");
        let later = begin + Duration::from_secs(FAULT_TOLD_SECONDS);
        assert_eq!((told.another(later), told.another(later)), (Some(50_000), None));
    }

    #[test]
    fn each_has_a_series() {
        assert_eq!(ClientFault::ALL.len(), metrics::FAULTS.len());
        assert!(ClientFault::ALL.iter().enumerate().all(|(place, fault)| *fault as usize == place));
    }
}
