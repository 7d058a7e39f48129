//! What is said of examples and of feedback.

use super::{
    FEEDBACK, GATE_DIFFERENCE, GATE_LOWER, LEARNING_CHANGES, LEARNING_DROPPED, LEARNING_EXAMPLES, LEARNING_RUNS,
    LEARNING_WITHHELD,
};

/// Values of [`FEEDBACK`]'s label.
const RATINGS: [&str; 3] = ["-1", "0", "1"];
/// Values of [`LEARNING_DROPPED`]'s label: it has a secret, too much waits for the disk, the disk takes nothing.
const DROPS: [&str; 3] = ["secret", "queue", "write"];

/// The learner that there is, in the labels of [`LEARNING_RUNS`] and [`LEARNING_WITHHELD`].
const FACTS: &str = "facts";
/// Values of [`LEARNING_RUNS`]' other label.
const OUTCOMES: [&str; 6] = ["nothing", "passed", "needs_more", "people", "refused", "failed"];
/// Values of [`LEARNING_CHANGES`]' label.
const CHANGES: [&str; 3] = ["promoted", "rolled_back", "withdrawn"];
/// Values of [`GATE_LOWER`]'s label.
pub const GATE_ROLES: [&str; 2] = ["target", "other"];

/// What changed of what is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnedChange {
    /// A version took the place of the one before.
    Promoted,
    /// An administrator took it back.
    RolledBack,
    /// Somebody took back what it was made from.
    Withdrawn,
}

/// Counts a change of what is served.
pub fn count_learned(change: LearnedChange) {
    ::metrics::counter!(LEARNING_CHANGES, "change" => CHANGES[change as usize]).increment(1);
}

/// Counts a run, by one of the outcomes that runs have.
pub fn count_run(outcome: &str) {
    if let Some(outcome) = OUTCOMES.into_iter().find(|known| *known == outcome) {
        ::metrics::counter!(LEARNING_RUNS, "learner" => FACTS, "outcome" => outcome).increment(1);
    }
}

/// Says what the least lower bound of the families of a role was, a share of questions.
pub fn tell_lower_bound(role: &'static str, lower: f64) {
    ::metrics::gauge!(GATE_LOWER, "role" => role).set(100.0 * lower);
}

/// Says what difference a candidate made in a family, a share of questions.
pub fn tell_difference(family: &str, difference: f64) {
    ::metrics::gauge!(GATE_DIFFERENCE, "family" => family.to_owned()).set(100.0 * difference);
}

/// Says whether the current version answers nobody, because it was made for another model.
pub fn tell_withheld(withheld: bool) {
    ::metrics::gauge!(LEARNING_WITHHELD, "learner" => FACTS).set(f64::from(u8::from(withheld)));
}

/// Why an example was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExampleDrop {
    /// It has something that looks like a secret.
    Secret,
    /// Too many wait for the disk.
    Queue,
    /// The disk takes nothing.
    Write,
}

/// Counts what somebody thinks of an answer.
pub fn count_feedback(rating: i8) {
    ::metrics::counter!(FEEDBACK, "rating" => RATINGS[(rating.signum() + 1) as usize]).increment(1);
}

/// Counts examples that were dropped.
pub fn count_dropped(why: ExampleDrop, examples: u64) {
    ::metrics::counter!(LEARNING_DROPPED, "reason" => DROPS[why as usize]).increment(examples);
}

/// Says how many examples there are, by set.
pub fn tell_examples(counts: &[(&'static str, usize)]) {
    for (set, count) in counts {
        ::metrics::gauge!(LEARNING_EXAMPLES, "set" => *set).set(*count as f64);
    }
}

/// The series are there from the start, also where nothing is kept.
pub(super) fn start() {
    for rating in RATINGS {
        ::metrics::counter!(FEEDBACK, "rating" => rating).absolute(0);
    }
    for reason in DROPS {
        ::metrics::counter!(LEARNING_DROPPED, "reason" => reason).absolute(0);
    }
    for outcome in OUTCOMES {
        ::metrics::counter!(LEARNING_RUNS, "learner" => FACTS, "outcome" => outcome).absolute(0);
    }
    for change in CHANGES {
        ::metrics::counter!(LEARNING_CHANGES, "change" => change).absolute(0);
    }
    for role in GATE_ROLES {
        tell_lower_bound(role, 0.0);
    }
    // The families' names are the operator's, but for that of the facts themselves.
    tell_difference(FACTS, 0.0);
    tell_withheld(false);
    tell_examples(&[("train", 0), ("gate", 0), ("vault", 0)]);
}
