//! How far a collection's vectors may be believed, measured on the collection itself without labels. A sentence is
//! taken out of a text and searched for: the search is right where it finds the rest of that text. The weight of the
//! vectors beside the words is the one that such searches do best with.

use crate::text::sentences::sentences;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// Weights of the vectors that are tried; the words have the rest.
pub(super) const WEIGHTS: [f64; 7] = [0.0, 0.15, 0.3, 0.5, 0.7, 0.8, 0.9];
/// The first of these words alone count with.
const WORDS_ALONE: usize = 0;
/// A search is right where the text is among this many.
pub(super) const FIRST: usize = 5;
/// Sentences that are searched for at most.
pub(crate) const SENTENCES_MAX: usize = 200;
/// Of fewer sentences a test says nothing, and words alone count.
const SENTENCES_MIN: usize = 20;
/// Bytes of a sentence that is long enough to be found by and short enough to leave most of its text.
const SENTENCE_BYTES: std::ops::RangeInclusive<usize> = 40..=250;
/// Sentences of a text that one can be taken from.
const OF_TEXT_MIN: usize = 4;
/// A collection is tested again when more than one in so many of its items has changed.
const CHANGED_SHARE: u64 = 10;
/// Points of recall that a test may lose on the test before without a warning.
const FALL_POINTS: f64 = 3.0;
/// How many standard errors the 95 % interval of a mean has to each side.
const INTERVAL: f64 = 1.96;

/// The result of a test, kept with its collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    /// When it ended, in seconds since 1970.
    pub at: u64,
    /// How many items the collection had.
    pub items: usize,
    /// How many items had ever been put into the collection when the test began.
    pub changes: u64,
    /// How many sentences were searched for.
    pub sentences: usize,
    /// How many texts were found with each weight of the vectors.
    pub found: Vec<FoundAt>,
    /// The weight that searches by both have from then on.
    pub weight: f64,
    /// How many points of recall it is below the test before, where that is worth a warning.
    pub fell: Option<f64>,
}

/// How many sentences found their text with one weight of the vectors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundAt {
    /// The weight of the vectors; the words have the rest.
    pub weight: f64,
    /// Searches with the text among the first five.
    pub texts: usize,
}

/// Which weights one sentence found its text with, in the order of [`WEIGHTS`].
pub type Hits = [bool; WEIGHTS.len()];

impl SelfTest {
    /// The result of these searches; `before` is the collection's test before.
    pub(crate) fn of(hits: &[Hits], (at, items, changes): (u64, usize, u64), before: Option<&Self>) -> Self {
        let texts = |weight: usize| hits.iter().filter(|hit| hit[weight]).count();
        let found =
            WEIGHTS.iter().enumerate().map(|(i, weight)| FoundAt { weight: *weight, texts: texts(i) }).collect();
        let weight = WEIGHTS[choose(hits)];
        let mut test = Self { at, items, changes, sentences: hits.len(), found, weight, fell: None };
        let lost = before.and_then(Self::recall).zip(test.recall()).map(|(before, now)| before - now);
        test.fell = lost.filter(|points| *points >= FALL_POINTS);
        test
    }

    /// Percent of the sentences that found their text with the weight that was chosen.
    pub fn recall(&self) -> Option<f64> {
        let chosen = self.found.iter().find(|found| found.weight == self.weight)?;
        (self.sentences >= SENTENCES_MIN).then(|| self.percent(chosen.texts))
    }

    /// So many texts of those that could have been found.
    pub fn percent(&self, texts: usize) -> f64 {
        if self.sentences == 0 { 0.0 } else { 100.0 * texts as f64 / self.sentences as f64 }
    }
}

/// Whether a collection that was changed so often is to be tested.
pub(crate) fn is_due(items: usize, changes: u64, test: Option<&SelfTest>) -> bool {
    match test {
        Some(test) => changes.abs_diff(test.changes) * CHANGED_SHARE > items as u64,
        None => items >= SENTENCES_MIN,
    }
}

/// The place in [`WEIGHTS`] of the weight to search with: the largest that finds more than words alone and not less
/// than the best weight, beyond what chance would explain. The largest, because a sentence has the words of its own
/// text, as real questions have not. Words alone where no weight is better than they are.
fn choose(hits: &[Hits]) -> usize {
    if hits.len() < SENTENCES_MIN {
        return WORDS_ALONE;
    }
    let found = |weight: usize| hits.iter().filter(|hit| hit[weight]).count();
    let best = (0..WEIGHTS.len()).fold(WORDS_ALONE, |best, i| if found(i) > found(best) { i } else { best });
    let fits = |weight: &usize| is_better(hits, *weight, WORDS_ALONE) && !is_better(hits, best, *weight);
    (0..WEIGHTS.len()).rev().find(fits).unwrap_or(WORDS_ALONE)
}

/// Whether one weight finds more than another: the 95 % interval of the gain lies above 0. Each sentence is searched
/// for with both weights, so the interval is that of paired shares by Agresti and Min (2005): half a gain and half a
/// loss more than were seen, or a few sentences that differ by chance would be certainty.
fn is_better(hits: &[Hits], weight: usize, than: usize) -> bool {
    let count = |won: usize, lost: usize| hits.iter().filter(|hit| hit[won] && !hit[lost]).count() as f64 + 0.5;
    let (gains, losses, all) = (count(weight, than), count(than, weight), hits.len() as f64 + 2.0);
    let gain = (gains - losses) / all;
    let variance = ((gains + losses) / all - gain * gain) / all;
    gain > INTERVAL * variance.sqrt()
}

/// Items in the order in which they are asked for a sentence: at random, and equal for equal collections.
pub(crate) fn order(items: usize, changes: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items).collect();
    order.shuffle(&mut StdRng::seed_from_u64(changes));
    order
}

/// A sentence of a text, and the text without it. None where the text has few sentences or none that fits.
pub(crate) fn taken_out(text: &str, seed: u64) -> Option<(String, String)> {
    let sentences = sentences(text);
    let fitting: Vec<&str> =
        sentences.iter().map(|range| &text[range.clone()]).filter(|s| SENTENCE_BYTES.contains(&s.len())).collect();
    if sentences.len() < OF_TEXT_MIN || fitting.is_empty() {
        return None;
    }
    let sentence = fitting[StdRng::seed_from_u64(seed).random_range(0..fitting.len())];
    let rest = text.replace(sentence, " ");
    (!rest.trim().is_empty()).then(|| (sentence.to_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many sentences that are found with the weights from `from` to before `to`, of those at these places.
    fn found(count: usize, from: usize, to: usize) -> Vec<Hits> {
        vec![std::array::from_fn(|weight| (from..to).contains(&weight)); count]
    }

    fn chosen(parts: &[Vec<Hits>]) -> f64 {
        WEIGHTS[choose(&parts.concat())]
    }

    #[test]
    fn words_alone_count_until_vectors_are_better_beyond_chance() {
        let (always, never) = (|n| found(n, 0, 7), |n| found(n, 0, 0));
        assert_eq!(chosen(&[]), 0.0);
        assert_eq!(chosen(&[always(100), never(100)]), 0.0, "no weight changes anything");
        assert_eq!(chosen(&[always(100), never(96), found(4, 1, 7)]), 0.0, "4 of 200 may be chance");
        assert_eq!(chosen(&[always(100), never(94), found(6, 1, 7)]), 0.9);
        assert_eq!(chosen(&[always(100), never(60), found(20, 0, 1), found(20, 1, 7)]), 0.0, "as many lost as won");
        assert_eq!(chosen(&[found(19, 1, 7)]), 0.0, "too few sentences to say");
    }

    #[test]
    fn the_largest_weight_counts_that_does_not_lose_to_the_best() {
        // 34 more with up to 0.7, of which 0.8 and 0.9 lose 30 again.
        assert_eq!(chosen(&[found(128, 0, 7), found(34, 1, 5), found(38, 0, 0)]), 0.7);
        // 0.9 loses 3 to the best, which may be chance.
        assert_eq!(chosen(&[found(128, 0, 7), found(31, 1, 7), found(3, 1, 6), found(38, 0, 0)]), 0.9);
        // 0.9 loses nothing to the best that is sure, and gains nothing on words that is.
        assert_eq!(chosen(&[found(150, 0, 7), found(6, 1, 5), found(44, 0, 0)]), 0.7);
        // With most of the weight on words that gain is there, and lost beyond.
        assert_eq!(chosen(&[found(50, 0, 7), found(80, 0, 2), found(20, 1, 2), found(50, 0, 0)]), 0.15);
    }

    #[test]
    fn a_result_that_falls_by_three_points_warns() {
        let test = |found_of_100: usize, before: Option<&SelfTest>| {
            let hits = [found(found_of_100, 0, 7), found(100 - found_of_100, 0, 0)].concat();
            SelfTest::of(&hits, (1, 100, 100), before)
        };
        let before = test(80, None);
        assert_eq!((before.recall(), before.fell), (Some(80.0), None));
        assert_eq!(test(78, Some(&before)).fell, None);
        assert_eq!(test(77, Some(&before)).fell, Some(3.0));
        assert_eq!(test(99, Some(&before)).fell, None);
        assert_eq!(SelfTest::of(&[], (1, 100, 100), Some(&before)).fell, None, "too few sentences to say");
    }

    #[test]
    fn a_test_is_due_when_a_tenth_has_changed() {
        assert!(!is_due(19, 19, None) && is_due(20, 20, None));
        let test = SelfTest::of(&[], (1, 100, 100), None);
        assert!(!is_due(100, 110, Some(&test)) && is_due(100, 111, Some(&test)), "ten of a hundred, and one more");
        assert!(!is_due(110, 111, Some(&test)) && is_due(110, 112, Some(&test)));
    }

    #[test]
    fn a_sentence_is_taken_out_of_texts_that_have_more() {
        let text = "The port of Kelm lies in the north of the land.\nIt is old. Is it large? It has\nmany ships!";
        let (sentence, rest) = taken_out(text, 7).unwrap();
        assert_eq!(sentence, "The port of Kelm lies in the north of the land.");
        assert_eq!(rest, " \nIt is old. Is it large? It has\nmany ships!");
        assert_eq!(taken_out("It is old. Is it large? It has many ships! It has 3.5 masts.", 7), None, "none fits");
        assert_eq!(taken_out("The port of Kelm lies in the north of the land. It is old.", 7), None, "too few");
        let (first, second) = (order(50, 3), order(50, 3));
        assert!(first == second && first != order(50, 4) && first != (0..50).collect::<Vec<_>>());
    }
}
