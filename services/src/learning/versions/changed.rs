//! Answers that a candidate gives otherwise than the version that is served: those that differ most, for people to
//! read.

use crate::limits::{LEARNING_CHANGED_CHARS_MAX, LEARNING_CHANGED_MAX};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A question, and what either version says to it. Texts are cut to [`LEARNING_CHANGED_CHARS_MAX`] characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedAnswer {
    /// The family that the question is of.
    pub family: String,
    /// The last thing that was said to the model.
    pub question: String,
    /// The answer of the version that is served.
    pub before: String,
    /// The answer of the candidate.
    pub after: String,
    /// Whether the served version's answer is right.
    pub was_right: bool,
    /// Whether the candidate's answer is right.
    pub is_right: bool,
}

/// The answers of a run that differ most: first what was right and is wrong, then by how few words they share. At most
/// [`LEARNING_CHANGED_MAX`] are kept.
#[derive(Debug, Default)]
pub struct ChangedAnswers {
    kept: Vec<(ChangeRank, ChangedAnswer)>,
}

/// Whether a right answer became a wrong one, and the share of words that only one of both has, in thousandths.
type ChangeRank = (bool, u32);

impl ChangedAnswers {
    /// Notes both answers to a question, if they differ.
    pub fn note(&mut self, mut answer: ChangedAnswer) {
        if answer.before.trim() == answer.after.trim() {
            return;
        }
        let rank = (answer.was_right && !answer.is_right, unshared(&answer.before, &answer.after));
        for text in [&mut answer.question, &mut answer.before, &mut answer.after] {
            cut(text);
        }
        let at = self.kept.partition_point(|(other, _)| *other >= rank);
        self.kept.insert(at, (rank, answer));
        self.kept.truncate(LEARNING_CHANGED_MAX);
    }

    /// Those that differ most, the most different first.
    pub fn into_answers(mut self) -> Vec<ChangedAnswer> {
        self.kept.sort_by_key(|(rank, _)| Reverse(*rank));
        self.kept.into_iter().map(|(_, answer)| answer).collect()
    }
}

/// Words that only one of two texts has, of all their words, in thousandths.
fn unshared(one: &str, other: &str) -> u32 {
    let words = |text: &str| text.to_lowercase().split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
    let (one, other) = (words(one), words(other));
    let (all, both) = (one.union(&other).count(), one.intersection(&other).count());
    ((all - both) * 1_000 / all.max(1)) as u32
}

fn cut(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(LEARNING_CHANGED_CHARS_MAX) {
        text.truncate(at);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(before: &str, after: &str, (was_right, is_right): (bool, bool)) -> ChangedAnswer {
        let (family, question) = ("sums".to_owned(), "x".to_owned());
        ChangedAnswer { family, question, before: before.to_owned(), after: after.to_owned(), was_right, is_right }
    }

    #[test]
    fn what_became_wrong_is_first_then_what_shares_the_fewest_words_and_equal_answers_are_left_out() {
        let mut changed = ChangedAnswers::default();
        changed.note(answer("a b c", "a b d", (false, true)));
        changed.note(answer("a b c ", "a b c", (true, true)));
        changed.note(answer("a b c", "x y z", (false, false)));
        changed.note(answer("a b c", "a b", (true, false)));
        let after: Vec<String> = changed.into_answers().into_iter().map(|answer| answer.after).collect();
        assert_eq!(after, ["a b", "x y z", "a b d"]);
    }

    #[test]
    fn only_so_many_are_kept_and_only_so_much_of_each() {
        let mut changed = ChangedAnswers::default();
        for n in 0..3 * LEARNING_CHANGED_MAX {
            let shared = "w ".repeat(n % 7) + &format!("q{n}");
            changed.note(answer(&shared, &format!("{shared}x"), (false, false)));
        }
        changed.note(answer("b", &"é".repeat(2 * LEARNING_CHANGED_CHARS_MAX), (true, false)));
        let kept = changed.into_answers();
        assert_eq!((kept.len(), kept[0].before.as_str()), (LEARNING_CHANGED_MAX, "b"));
        assert_eq!(kept[0].after.chars().count(), LEARNING_CHANGED_CHARS_MAX + 1);
    }
}
