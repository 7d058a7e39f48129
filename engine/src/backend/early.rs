//! Rules on their way to a backend. A thread that computes hears no messages; here it finds what came meanwhile.

use crate::constraint::{Sources, StepRules};
use crate::ids::StepId;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Looks at an empty shelf before a thread offers its core to others.
const LOOKS_MAX: u32 = 200;

/// The rules of deferred sources for steps that have not been sampled, each answer taken once. Few steps are in flight
/// at a time, so it holds few answers.
#[derive(Debug, Default)]
pub struct EarlyRules {
    shelf: Mutex<Shelf>,
    /// How many there are, for those who look often.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shelf {
    rules: VecDeque<StepRules>,
    /// Somebody looks by itself, for each step.
    looked_for: bool,
    /// The step for which it looks no more.
    given_up: Option<StepId>,
}

impl EarlyRules {
    /// Puts a source's rules for a step there. Whether somebody must be told: not who looks by itself.
    pub fn put(&self, rules: StepRules) -> bool {
        let (mut shelf, step) = (self.lock(), rules.step);
        shelf.rules.push_back(rules);
        self.count.store(shelf.rules.len(), Ordering::Release);
        !shelf.looked_for || shelf.given_up == Some(step)
    }

    /// From now on somebody looks for each step's rules with [`EarlyRules::take_within`].
    pub fn look(&self) {
        self.lock().looked_for = true;
    }

    /// What one source says of a step, the first to have answered, if it is there and nobody has taken it.
    pub fn take(&self, step: StepId) -> Option<StepRules> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.take_from(&mut self.lock(), step)
    }

    /// What the sources in `missing` say of a step. It looks again for so long as one of them has not answered; then it
    /// gives up, returns what is there, and whoever puts the rest there is to tell.
    pub fn take_within(&self, step: StepId, mut missing: Sources, wait: Duration) -> Vec<StepRules> {
        let (begin, mut looks, mut found) = (Instant::now(), 0, Vec::new());
        while !missing.is_empty() {
            let late = begin.elapsed() >= wait;
            if let Some(rules) = if late { self.take_or_give_up(step) } else { self.take(step) } {
                missing = missing.without(Sources::only(rules.source));
                found.push(rules);
            } else if late {
                break;
            }
            looks += 1;
            if looks < LOOKS_MAX { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        found
    }

    fn take_or_give_up(&self, step: StepId) -> Option<StepRules> {
        let mut shelf = self.lock();
        let taken = self.take_from(&mut shelf, step);
        if taken.is_none() {
            shelf.given_up = Some(step);
        }
        taken
    }

    fn take_from(&self, shelf: &mut Shelf, step: StepId) -> Option<StepRules> {
        let at = shelf.rules.iter().position(|rules| rules.step == step)?;
        let taken = shelf.rules.remove(at);
        self.count.store(shelf.rules.len(), Ordering::Release);
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        // The list is whole whatever thread panicked while it held the lock.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::Source;
    use std::sync::Arc;

    const TABLES: Sources = Sources::only(Source::Tables);

    fn rules(step: u64) -> StepRules {
        StepRules::silent(StepId(step), Source::Tables)
    }

    #[test]
    fn each_step_s_rules_are_taken_once_and_in_any_order() {
        let early = EarlyRules::default();
        assert!(early.take(StepId(1)).is_none());
        early.put(rules(1));
        early.put(rules(2));
        assert!(early.take(StepId(3)).is_none());
        assert_eq!(early.take(StepId(2)), Some(rules(2)));
        assert_eq!(early.take_within(StepId(1), TABLES, Duration::ZERO), [rules(1)]);
        assert!(early.take(StepId(1)).is_none() && early.take(StepId(2)).is_none());
    }

    #[test]
    fn who_looks_is_told_only_of_what_it_gave_up() {
        let early = EarlyRules::default();
        assert!(early.put(rules(1)), "nobody looks yet");
        early.look();
        assert!(!early.put(rules(2)));
        let look = |step| early.take_within(StepId(step), TABLES, Duration::ZERO);
        assert!(look(2).len() == 1 && look(3).is_empty());
        assert!(!early.put(rules(4)) && early.put(rules(3)));
        assert_eq!(early.take(StepId(3)), Some(rules(3)));
    }

    #[test]
    fn who_waits_for_two_sources_takes_what_one_said_and_is_told_of_the_other() {
        let early = EarlyRules::default();
        early.look();
        let both = TABLES.with(Sources::only(Source::Grammar));
        let grammar = StepRules::silent(StepId(5), Source::Grammar);
        assert!(!early.put(rules(5)));
        assert_eq!(early.take_within(StepId(5), both, Duration::ZERO), [rules(5)]);
        assert!(early.put(grammar.clone()));
        assert_eq!(early.take(StepId(5)), Some(grammar));
        let other = StepRules::silent(StepId(6), Source::Grammar);
        assert!(!early.put(other.clone()) && !early.put(rules(6)));
        assert_eq!(early.take_within(StepId(6), both, Duration::ZERO), [other, rules(6)]);
    }

    #[test]
    fn rules_that_come_while_somebody_looks_are_found() {
        let early = Arc::new(EarlyRules::default());
        let looking = std::thread::spawn({
            let early = early.clone();
            move || early.take_within(StepId(7), TABLES, Duration::from_secs(600))
        });
        early.put(rules(7));
        assert_eq!(looking.join().unwrap(), [rules(7)]);
        assert!(early.take_within(StepId(7), TABLES, Duration::from_micros(50)).is_empty());
    }
}
