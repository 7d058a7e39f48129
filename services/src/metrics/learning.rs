//! What is said of examples and of feedback.

use super::{FEEDBACK, LEARNING_DROPPED, LEARNING_EXAMPLES};

/// Values of [`FEEDBACK`]'s label.
const RATINGS: [&str; 3] = ["-1", "0", "1"];
/// Values of [`LEARNING_DROPPED`]'s label: it has a secret, too much waits for the disk, the disk takes nothing.
const DROPS: [&str; 3] = ["secret", "queue", "write"];

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
    tell_examples(&[("train", 0), ("gate", 0), ("vault", 0)]);
}
