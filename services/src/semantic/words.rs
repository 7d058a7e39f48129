//! Which items have which words, and how much a word says: BM25 (Robertson and Zaragoza, The Probabilistic Relevance
//! Framework, 2009), with the logarithm that is never negative.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use unicode_segmentation::UnicodeSegmentation;

/// How soon a word that comes again says no more, k1.
const SATURATION: f32 = 1.2;
/// How much longer texts must say a word oftener, b.
const LENGTH: f32 = 0.75;
/// Bytes of a place of a word, and of a word beside its letters, about.
const PLACE_BYTES: usize = 8;
const WORD_BYTES: usize = 64;

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct WordIndex {
    places: HashMap<Box<str>, Vec<Place>>,
    /// Words of each item.
    lengths: Vec<u32>,
    total: u64,
    bytes: u64,
}

/// How often an item has a word.
#[derive(Clone, Copy, Debug)]
struct Place {
    item: u32,
    count: u32,
}

/// What items have in common with a text.
#[derive(Debug, PartialEq)]
pub(crate) struct Scores {
    /// BM25 of each item; 0 where it has none of the words.
    pub(crate) of_items: Vec<f32>,
    /// That of an item of the mean length with every word once.
    whole: f32,
}

impl Scores {
    /// How much of what the text says an item says: 0 to 1.
    pub(super) fn share(&self, item: usize) -> f32 {
        if self.whole > 0.0 { (self.of_items[item] / self.whole).min(1.0) } else { 0.0 }
    }
}

impl WordIndex {
    /// Bytes of words and places, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that a text takes at most, about: none of its words is known yet.
    pub(super) fn bytes_max(text: &str) -> u64 {
        counted(text).keys().map(|word| (PLACE_BYTES + WORD_BYTES + word.len()) as u64).sum()
    }

    /// The text of the item behind all others.
    pub(crate) fn push(&mut self, text: &str) {
        self.lengths.push(0);
        self.add(self.lengths.len() - 1, text);
    }

    /// Another text of an item.
    pub(super) fn replace(&mut self, item: usize, before: &str, text: &str) {
        for word in counted(before).into_keys() {
            let Some(places) = self.places.get_mut(word.as_str()) else { continue };
            places.retain(|place| place.item as usize != item);
            self.bytes -= PLACE_BYTES as u64;
            if places.is_empty() {
                self.places.remove(word.as_str());
                self.bytes -= (WORD_BYTES + word.len()) as u64;
            }
        }
        self.total -= u64::from(self.lengths[item]);
        self.add(item, text);
    }

    fn add(&mut self, item: usize, text: &str) {
        let words = counted(text);
        self.lengths[item] = words.values().sum();
        self.total += u64::from(self.lengths[item]);
        for (word, count) in words {
            let place = Place { item: item as u32, count };
            self.bytes += PLACE_BYTES as u64;
            match self.places.get_mut(word.as_str()) {
                Some(places) => places.push(place),
                None => {
                    self.bytes += (WORD_BYTES + word.len()) as u64;
                    self.places.insert(word.into(), vec![place]);
                }
            }
        }
    }

    /// Items of another index, behind those of this one.
    pub(crate) fn append(&mut self, other: Self) {
        let first = self.lengths.len() as u32;
        self.lengths.extend(other.lengths);
        self.total += other.total;
        for (word, mut places) in other.places {
            places.iter_mut().for_each(|place| place.item += first);
            self.bytes += (PLACE_BYTES * places.len()) as u64;
            match self.places.get_mut(&word) {
                Some(own) => own.extend(places),
                None => {
                    self.bytes += (WORD_BYTES + word.len()) as u64;
                    self.places.insert(word, places);
                }
            }
        }
    }

    /// Takes out items that stand next to each other; those behind them move up.
    pub(crate) fn remove(&mut self, gone: Range<usize>) {
        let (first, end) = (gone.start as u32, gone.end as u32);
        self.total -= self.lengths.drain(gone).map(u64::from).sum::<u64>();
        let mut bytes = self.bytes;
        self.places.retain(|word, places| {
            let before = places.len();
            places.retain_mut(|place| {
                let stays = !(first..end).contains(&place.item);
                if place.item >= end {
                    place.item -= end - first;
                }
                stays
            });
            bytes -= (PLACE_BYTES * (before - places.len())) as u64;
            if places.is_empty() {
                bytes -= (WORD_BYTES + word.len()) as u64;
            }
            !places.is_empty()
        });
        self.bytes = bytes;
    }

    /// What each item has in common with a text.
    pub(crate) fn scores(&self, text: &str) -> Scores {
        let mut scores = Scores { of_items: vec![0.0; self.lengths.len()], whole: 0.0 };
        let mean = self.mean_length();
        for word in in_order(text) {
            let places = self.places.get(word.as_str()).map_or(&[][..], Vec::as_slice);
            let rare = self.rareness(places.len());
            scores.whole += rare;
            for Place { item, count } in places {
                scores.of_items[*item as usize] += rare * often(*count, self.lengths[*item as usize] as f32 / mean);
            }
        }
        scores
    }

    /// What another text has in common with a text, where words are as rare as they are here.
    pub(crate) fn score_of(&self, text: &str, other: &str) -> f32 {
        let counts = counted(other);
        let length = counts.values().sum::<u32>() as f32 / self.mean_length();
        let said = in_order(text).into_iter().filter_map(|word| Some((*counts.get(&word)?, word)));
        said.map(|(count, word)| {
            self.rareness(self.places.get(word.as_str()).map_or(0, Vec::len)) * often(count, length)
        })
        .sum()
    }

    fn mean_length(&self) -> f32 {
        (self.total as f32 / self.lengths.len() as f32).max(1.0)
    }

    /// How much a word says that so many items have.
    fn rareness(&self, having: usize) -> f32 {
        let (items, having) = (self.lengths.len() as f32, having as f32);
        (1.0 + (items - having + 0.5) / (having + 0.5)).ln()
    }
}

/// How much a word that comes so often says of a text of this length, as a multiple of the mean length.
fn often(count: u32, length: f32) -> f32 {
    let count = count as f32;
    count * (SATURATION + 1.0) / (count + SATURATION * (1.0 - LENGTH + LENGTH * length))
}

/// A text's words in the order of the alphabet, so that equal collections give equal sums.
fn in_order(text: &str) -> BTreeSet<String> {
    counted(text).into_keys().collect()
}

/// Words as Unicode's rules part them, in small letters, with how often they come.
fn counted(text: &str) -> HashMap<String, u32> {
    let mut counts = HashMap::new();
    for word in text.unicode_words() {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn index(texts: &[&str]) -> WordIndex {
        let mut index = WordIndex::default();
        texts.iter().for_each(|text| index.push(text));
        index
    }

    fn best(index: &WordIndex, text: &str) -> Option<usize> {
        let scores = index.scores(text).of_items;
        let best = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]))?;
        (scores[best] > 0.0).then_some(best)
    }

    #[test]
    fn rare_words_say_more_and_case_and_marks_say_nothing() {
        let index = index(&["the port of Kelm", "the harbour of Dosh", "the the the of of of", "城市的首都"]);
        assert_eq!(best(&index, "Which port? KELM's?"), Some(0));
        assert_eq!(best(&index, "of the harbour"), Some(1));
        assert_eq!(best(&index, "首都"), Some(3), "characters of scripts without blanks are words");
        assert_eq!(best(&index, "nothing known"), None);
        assert_eq!(best(&index, ""), None);
    }

    #[test]
    fn a_share_counts_words_that_no_item_has() {
        let index = index(&["the port of Kelm", "the song of Dosh", "a b c d"]);
        let share = |text| index.scores(text).share(0);
        assert!(share("Kelm") > 0.99 && share("Kelm Unheard") < 0.5, "{} {}", share("Kelm"), share("Kelm Unheard"));
        assert!(share("song of Dosh") < share("song of Kelm"));
        assert_eq!((share("nothing"), share("")), (0.0, 0.0));
    }

    #[test]
    fn another_text_is_scored_as_an_item_of_its_words_is() {
        let index = index(&["the port of Kelm", "a song of Dosh"]);
        let score = |other| index.score_of("Kelm of old", other);
        assert_eq!(score("the port of Kelm"), index.scores("Kelm of old").of_items[0]);
        assert!(score("the port of") < score("the port of Kelm") && score("the port") == 0.0);
    }

    #[test]
    fn of_two_texts_with_a_word_the_shorter_one_comes_first() {
        assert_eq!(best(&index(&["kelm and many other words that it stands among", "kelm and dosh"]), "kelm"), Some(1));
    }

    proptest! {
        #[test]
        fn what_is_put_together_and_taken_apart_is_as_what_was_made_at_once(
            texts in prop::collection::vec("[abc ]{0,12}", 3..9),
            a in any::<prop::sample::Index>(),
            b in any::<prop::sample::Index>(),
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let (a, b) = (a.index(texts.len()), b.index(texts.len()));
            let (begin, end) = (a.min(b), a.max(b));
            let mut whole = index(&texts[..begin]);
            whole.append(index(&texts[begin..end]));
            whole.append(index(&texts[end..]));
            prop_assert_eq!(whole.scores("a b c"), index(&texts).scores("a b c"));
            prop_assert_eq!(whole.bytes(), index(&texts).bytes());
            whole.remove(begin..end);
            let rest = index(&[&texts[..begin], &texts[end..]].concat());
            prop_assert_eq!(whole.scores("a b c"), rest.scores("a b c"));
            prop_assert_eq!(whole.bytes(), rest.bytes());
        }

        #[test]
        fn a_replaced_text_leaves_nothing_and_bytes_are_bounded(
            texts in prop::collection::vec("[abc ]{0,12}", 1..6),
            at in any::<prop::sample::Index>(),
            other in "[bcd ]{0,12}"
        ) {
            let at = at.index(texts.len());
            let mut changed = index(&texts.iter().map(String::as_str).collect::<Vec<_>>());
            changed.replace(at, &texts[at], &other);
            let mut anew = texts.clone();
            anew[at] = other;
            let anew_index = index(&anew.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert_eq!(changed.scores("a b c d"), anew_index.scores("a b c d"));
            prop_assert_eq!(changed.bytes(), anew_index.bytes());
            prop_assert!(changed.bytes() <= anew.iter().map(|text| WordIndex::bytes_max(text)).sum());
        }
    }
}
