//! The last messages, for those who missed some.

use crate::limits::{EVENT_REPLAY_BYTES_MAX, EVENT_REPLAY_MESSAGES_MAX};
use bytes::Bytes;
use std::collections::VecDeque;

/// Payloads by their numbers, the last ones that fit.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    kept: VecDeque<(u64, Bytes)>,
    bytes: usize,
}

impl Backlog {
    pub(super) fn push(&mut self, number: u64, payload: Bytes) {
        self.bytes += payload.len();
        self.kept.push_back((number, payload));
        while self.bytes > EVENT_REPLAY_BYTES_MAX || self.kept.len() > EVENT_REPLAY_MESSAGES_MAX {
            let Some((_, oldest)) = self.kept.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }

    /// Those from this number on, as far as they are kept.
    pub(super) fn from(&self, number: u64) -> Vec<(u64, Bytes)> {
        self.kept.iter().filter(|(own, _)| *own >= number).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_too_many_bytes() {
        let mut backlog = Backlog::default();
        (0..EVENT_REPLAY_MESSAGES_MAX as u64 + 5).for_each(|number| backlog.push(number, Bytes::from_static(b"x")));
        assert_eq!(backlog.from(0).len(), EVENT_REPLAY_MESSAGES_MAX);
        assert_eq!(backlog.from(0)[0].0, 5);
        assert_eq!(backlog.from(EVENT_REPLAY_MESSAGES_MAX as u64 + 3).len(), 2);
        backlog.push(1 << 40, Bytes::from(vec![0; EVENT_REPLAY_BYTES_MAX]));
        assert_eq!(backlog.from(0).len(), 1);
    }
}
