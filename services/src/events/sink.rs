//! The way of changes from the scheduler's actor to the thread that publishes them.

use super::payload::EventBatch;
use crate::clock::unix_seconds_f64;
use crate::metrics;
use chimere_engine::scheduler::PrefixChange;
use tokio::sync::mpsc;

/// Takes changes and never waits. What finds no room is lost, and the next batch says that nothing told before counts.
#[derive(Debug)]
pub struct EventSink {
    batches: mpsc::Sender<EventBatch>,
    /// The next batch has to say so: at the start, and after a loss.
    cleared: bool,
}

impl EventSink {
    pub(super) fn new(batches: mpsc::Sender<EventBatch>) -> Self {
        Self { batches, cleared: true }
    }

    /// Hands some changes on.
    pub fn tell(&mut self, changes: Vec<PrefixChange>) {
        let batch = EventBatch { at: unix_seconds_f64(), cleared: self.cleared, changes };
        self.cleared = self.batches.try_send(batch).is_err();
        let outcome = if self.cleared { "lost" } else { "sent" };
        ::metrics::counter!(metrics::KV_EVENTS, "outcome" => outcome).increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_loss_nothing_that_was_told_before_counts() {
        let (batches, mut told) = mpsc::channel(1);
        let mut sink = EventSink::new(batches);
        sink.tell(Vec::new());
        sink.tell(Vec::new());
        assert!(told.try_recv().unwrap().cleared, "a start");
        sink.tell(Vec::new());
        assert!(told.try_recv().unwrap().cleared, "a loss");
        sink.tell(Vec::new());
        assert!(!told.try_recv().unwrap().cleared);
    }
}
