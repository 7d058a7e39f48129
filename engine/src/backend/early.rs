//! Edits on their way to a backend. A thread that computes hears no messages; here it finds what came meanwhile.

use crate::ids::StepId;
use crate::step::LogitEdits;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Looks at an empty shelf before a thread offers its core to others.
const LOOKS_MAX: u32 = 200;

/// The edits of steps that have not been sampled, each taken once. As long as the steps in flight are few, so is this.
#[derive(Debug, Default)]
pub struct EarlyEdits {
    shelf: Mutex<Shelf>,
    /// How many there are, for those who look often.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shelf {
    steps: VecDeque<(StepId, LogitEdits)>,
    /// Somebody looks by itself, for each step.
    looked_for: bool,
    /// The step for which it looks no more.
    given_up: Option<StepId>,
}

impl EarlyEdits {
    /// Puts a step's edits there. Whether somebody must be told: not who looks by itself.
    pub fn put(&self, step: StepId, edits: LogitEdits) -> bool {
        let mut shelf = self.lock();
        shelf.steps.push_back((step, edits));
        self.count.store(shelf.steps.len(), Ordering::Release);
        !shelf.looked_for || shelf.given_up == Some(step)
    }

    /// From now on somebody looks for each step's edits with [`EarlyEdits::take_within`].
    pub fn look(&self) {
        self.lock().looked_for = true;
    }

    /// The edits of a step, if they are there and nobody has taken them.
    pub fn take(&self, step: StepId) -> Option<LogitEdits> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.take_from(&mut self.lock(), step)
    }

    /// As [`EarlyEdits::take`], and looks again for so long; then it gives up, and whoever puts them there is to tell.
    pub fn take_within(&self, step: StepId, wait: Duration) -> Option<LogitEdits> {
        let (begin, mut looks) = (Instant::now(), 0);
        loop {
            match self.take(step) {
                None if begin.elapsed() < wait => {}
                None => return self.take_or_give_up(step),
                found => return found,
            }
            looks += 1;
            if looks < LOOKS_MAX { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }

    fn take_or_give_up(&self, step: StepId) -> Option<LogitEdits> {
        let mut shelf = self.lock();
        let taken = self.take_from(&mut shelf, step);
        if taken.is_none() {
            shelf.given_up = Some(step);
        }
        taken
    }

    fn take_from(&self, shelf: &mut Shelf, step: StepId) -> Option<LogitEdits> {
        let at = shelf.steps.iter().position(|(of, _)| *of == step)?;
        let taken = shelf.steps.remove(at);
        self.count.store(shelf.steps.len(), Ordering::Release);
        taken.map(|(_, edits)| edits)
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        // The list is whole whatever thread panicked while it held the lock.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SeqId;
    use crate::step::RowEdits;
    use std::sync::Arc;

    fn edits(seq: u64) -> LogitEdits {
        LogitEdits { rows: vec![RowEdits { seq: SeqId(seq), bias: Vec::new(), mix: Vec::new(), mask: None }] }
    }

    #[test]
    fn each_step_s_edits_are_taken_once_and_in_any_order() {
        let early = EarlyEdits::default();
        assert!(early.take(StepId(1)).is_none());
        early.put(StepId(1), edits(10));
        early.put(StepId(2), edits(20));
        assert!(early.take(StepId(3)).is_none());
        assert_eq!(early.take(StepId(2)).unwrap().rows[0].seq, SeqId(20));
        assert_eq!(early.take_within(StepId(1), Duration::ZERO).unwrap().rows[0].seq, SeqId(10));
        assert!(early.take(StepId(1)).is_none() && early.take(StepId(2)).is_none());
    }

    #[test]
    fn who_looks_is_told_only_of_what_it_gave_up() {
        let early = EarlyEdits::default();
        assert!(early.put(StepId(1), edits(10)), "nobody looks yet");
        early.look();
        assert!(!early.put(StepId(2), edits(20)));
        let look = |step| early.take_within(StepId(step), Duration::ZERO);
        assert!(look(2).is_some() && look(3).is_none());
        assert!(!early.put(StepId(4), edits(40)) && early.put(StepId(3), edits(30)));
        assert_eq!(early.take(StepId(3)).unwrap().rows[0].seq, SeqId(30));
    }

    #[test]
    fn edits_that_come_while_somebody_looks_are_found() {
        let early = Arc::new(EarlyEdits::default());
        let looking = std::thread::spawn({
            let early = early.clone();
            move || early.take_within(StepId(7), Duration::from_secs(600))
        });
        early.put(StepId(7), edits(1));
        assert_eq!(looking.join().unwrap().unwrap().rows[0].seq, SeqId(1));
        assert!(early.take_within(StepId(7), Duration::from_micros(50)).is_none());
    }
}
