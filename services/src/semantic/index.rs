//! Items and their vectors in memory, and the nearest of them by an exact scan. A graph would spare most of the scan
//! and sometimes the right answer; `docs/decisions/0016-exact-search.md` has what a scan takes. What an item says
//! counts beside what it means: names and numbers are alike to a vector.

use super::legs::{Centred, Nearest, best, blend, dot, found_with, share};
use super::self_test::Hits;
use super::words::WordIndex;
use std::collections::HashMap;
use std::sync::Arc;

/// A text, and what is said to it where there is an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Unique within its collection.
    pub id: String,
    /// The text whose meaning is looked for.
    pub text: String,
    /// With one it can be an example.
    pub answer: Option<String>,
}

impl Item {
    /// Bytes of its text and its answer.
    pub fn text_bytes(&self) -> usize {
        self.text.len() + self.answer.as_ref().map_or(0, String::len)
    }
}

/// How items are put in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ranking {
    /// Only the cosine between the vectors counts.
    Meaning,
    /// BM25. Items without a word of the query are not found.
    Words,
    /// Words and vectors, with this weight of the vectors.
    Blend(f32),
    /// The blend of words and vectors for questions of one kind: those are alike in meaning and differ in words.
    Examples,
}

impl Ranking {
    /// Whether a query needs a vector.
    pub fn reads_vector(self) -> bool {
        self != Self::Words
    }
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct CollectionQuery<'a> {
    /// Of the index's width, and of length 1; empty where the order needs none.
    pub vector: &'a [f32],
    /// What the vector was made of.
    pub text: &'a str,
    /// Whether meaning, words or both decide the order.
    pub ranking: Ranking,
}

/// A sentence that was taken out of an item's text and is searched for.
#[derive(Clone, Copy, Debug)]
pub struct ProbeQuery<'a> {
    /// The item that is to be found.
    pub item: &'a Arc<Item>,
    /// The sentence and its vector.
    pub sentence: (&'a str, &'a [f32]),
    /// The text without the sentence, in whose place it stands, and its vector.
    pub rest: (&'a str, &'a [f32]),
}

/// Of words in a score of examples, the rest is meaning's. Less misses names, more takes a name in common for the same
/// kind of question (`docs/measurements/collections.md`).
const WORDS_SHARE: f32 = 0.3;

/// An item that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundItem {
    /// By meaning the cosine of the angle between the item's vector and the query's, from -1 to 1; by words from 0 to
    /// 1, where 1 is the best item's; by both at most 1.
    pub score: f32,
    /// The item that was found.
    pub item: Arc<Item>,
}

/// Vectors of one width, each of length 1, one after the other.
#[derive(Debug)]
pub struct Index {
    width: usize,
    vectors: Vec<f32>,
    /// Sum of all vectors, from which the middle is computed.
    sum: Vec<f64>,
    items: Vec<Arc<Item>>,
    places: HashMap<String, usize>,
    words: WordIndex,
    bytes: u64,
}

impl Index {
    /// Empty, for vectors of this many numbers, at least 1.
    pub fn new(width: usize) -> Self {
        assert!(width > 0, "a vector has a number");
        Self {
            width,
            vectors: Vec::new(),
            sum: vec![0.0; width],
            items: Vec::new(),
            places: HashMap::new(),
            words: WordIndex::default(),
            bytes: 0,
        }
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True when the index has no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of vectors, texts and words, about.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.words.bytes()
    }

    /// Bytes that an item takes at most, about: its vector, its texts, its places in lists, and its words.
    pub fn bytes_of(item: &Item, width: usize) -> u64 {
        Self::bytes_beside_words(item, width) + WordIndex::bytes_max(&item.text)
    }

    fn bytes_beside_words(item: &Item, width: usize) -> u64 {
        const PLACES: usize = 128;
        (4 * width + 2 * item.id.len() + item.text_bytes() + PLACES) as u64
    }

    /// Whether there is an item of this id.
    pub fn has(&self, id: &str) -> bool {
        self.places.contains_key(id)
    }

    /// Adds an item, or puts it in the place of the one with its id. `vector` is of this index's width.
    pub fn put(&mut self, item: Item, vector: &[f32]) {
        assert_eq!(vector.len(), self.width, "all vectors of an index are of one width");
        self.bytes += Self::bytes_beside_words(&item, self.width);
        self.sum.iter_mut().zip(vector).for_each(|(sum, x)| *sum += f64::from(*x));
        match self.places.get(&item.id) {
            Some(&at) => {
                let kept = &mut self.vectors[at * self.width..(at + 1) * self.width];
                self.sum.iter_mut().zip(&*kept).for_each(|(sum, x)| *sum -= f64::from(*x));
                kept.copy_from_slice(vector);
                let before = std::mem::replace(&mut self.items[at], Arc::new(item));
                self.words.replace(at, &before.text, &self.items[at].text);
                self.bytes -= Self::bytes_beside_words(&before, self.width);
            }
            None => {
                self.places.insert(item.id.clone(), self.items.len());
                self.vectors.extend_from_slice(vector);
                self.words.push(&item.text);
                self.items.push(Arc::new(item));
            }
        }
    }

    /// The `k` best items for a query among those that are `wanted`, best first; ties in the order in which they came.
    pub fn find(&self, query: &CollectionQuery<'_>, k: usize, wanted: impl Fn(&Item) -> bool) -> Vec<FoundItem> {
        match query.ranking {
            Ranking::Meaning => self.nearest(query.vector, k, wanted),
            Ranking::Words => self.by_words(query, k, wanted),
            Ranking::Blend(weight) => self.blended(query, weight, k, wanted),
            Ranking::Examples => self.examples(query, k, wanted),
        }
    }

    fn by_words(&self, query: &CollectionQuery<'_>, k: usize, wanted: impl Fn(&Item) -> bool) -> Vec<FoundItem> {
        let words = self.words.scores(query.text).of_items;
        let places: Vec<usize> = (0..self.len()).filter(|at| words[*at] > 0.0 && wanted(&self.items[*at])).collect();
        let top = places.iter().map(|at| words[*at]).fold(0.0, f32::max);
        self.hits(best(k, places.into_iter().map(|at| Nearest { score: words[at] / top, at })))
    }

    /// Words as a share of the best item's, and cosines from the middle.
    fn blended(
        &self,
        query: &CollectionQuery<'_>,
        weight: f32,
        k: usize,
        wanted: impl Fn(&Item) -> bool,
    ) -> Vec<FoundItem> {
        let (words, meant) = (self.words.scores(query.text).of_items, self.centred(query.vector));
        let places: Vec<usize> = (0..self.len()).filter(|at| wanted(&self.items[*at])).collect();
        let top = places.iter().map(|at| words[*at]).fold(0.0, f32::max);
        self.hits(best(
            k,
            places.into_iter().map(|at| {
                let score = blend(weight, share(words[at], top), meant.cosine(self.vector(at)));
                Nearest { score, at }
            }),
        ))
    }

    fn examples(&self, query: &CollectionQuery<'_>, k: usize, wanted: impl Fn(&Item) -> bool) -> Vec<FoundItem> {
        let (words, meant) = (self.words.scores(query.text), self.centred(query.vector));
        let places = (0..self.len()).filter(|at| wanted(&self.items[*at]));
        self.hits(best(
            k,
            places.map(|at| {
                let (said, meant) = (words.share(at), meant.cosine(self.vector(at)));
                // Cubed: what means about the same is told apart by words, and no words make up for another meaning.
                Nearest { score: WORDS_SHARE * said + (1.0 - WORDS_SHARE) * meant.powi(3), at }
            }),
        ))
    }

    fn centred(&self, vector: &[f32]) -> Centred {
        Centred::new(vector, &self.sum, self.len())
    }

    /// The item at this place.
    pub fn item(&self, at: usize) -> &Arc<Item> {
        &self.items[at]
    }

    /// With which weights of the vectors a sentence finds the text that it was taken out of. None where the item is not
    /// there any more as it was.
    pub fn probe(&self, probe: &ProbeQuery<'_>) -> Option<Hits> {
        let gold = *self.places.get(&probe.item.id).filter(|at| Arc::ptr_eq(&self.items[**at], probe.item))?;
        let mut words = self.words.scores(probe.sentence.0).of_items;
        words[gold] = self.words.score_of(probe.sentence.0, probe.rest.0);
        let (top, meant) = (words.iter().copied().fold(0.0, f32::max), self.centred(probe.sentence.1));
        let mut legs: Vec<(f32, f32)> =
            (0..self.len()).map(|at| (share(words[at], top), meant.cosine(self.vector(at)))).collect();
        legs[gold].1 = meant.cosine(probe.rest.1);
        Some(found_with(&legs, gold))
    }

    /// The `k` items with the greatest cosine to `query` among those that are `wanted`, best first; ties in the order
    /// in which they came.
    fn nearest(&self, query: &[f32], k: usize, wanted: impl Fn(&Item) -> bool) -> Vec<FoundItem> {
        assert_eq!(query.len(), self.width, "a query is as wide as the index");
        let all = self.vectors.chunks_exact(self.width).enumerate();
        let wanted = all.filter(|(at, _)| wanted(&self.items[*at]));
        self.hits(best(k, wanted.map(|(at, vector)| Nearest { score: dot(query, vector), at })))
    }

    fn vector(&self, at: usize) -> &[f32] {
        &self.vectors[at * self.width..(at + 1) * self.width]
    }

    fn hits(&self, found: Vec<Nearest>) -> Vec<FoundItem> {
        found.into_iter().map(|found| FoundItem { score: found.score, item: self.items[found.at].clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(id: usize, answer: bool) -> Item {
        Item { id: id.to_string(), text: format!("text {id}"), answer: answer.then(|| "yes".into()) }
    }

    fn ids(hits: &[FoundItem]) -> Vec<usize> {
        hits.iter().map(|hit| hit.item.id.parse().unwrap()).collect()
    }

    #[test]
    fn an_item_put_again_takes_its_old_place() {
        let mut index = Index::new(2);
        index.put(item(0, false), &[1.0, 0.0]);
        index.put(item(1, false), &[0.0, 1.0]);
        index.put(Item { text: "other 0".into(), ..item(0, false) }, &[0.0, -1.0]);
        let mut anew = Index::new(2);
        anew.put(Item { text: "other 0".into(), ..item(0, false) }, &[0.0, -1.0]);
        anew.put(item(1, false), &[0.0, 1.0]);
        assert_eq!((index.len(), index.bytes()), (2, anew.bytes()));
        let hits = index.nearest(&[0.0, -1.0], 9, |_| true);
        assert_eq!((ids(&hits), hits[0].item.text.as_str(), hits[1].score), (vec![0, 1], "other 0", -1.0));
    }

    #[test]
    fn of_equals_the_first_comes_first_and_what_is_not_wanted_not_at_all() {
        let mut index = Index::new(1);
        (0..6).for_each(|i| index.put(item(i, i % 2 == 1), &[1.0]));
        assert_eq!(ids(&index.nearest(&[1.0], 4, |_| true)), [0, 1, 2, 3]);
        assert_eq!(ids(&index.nearest(&[1.0], 2, |item| item.answer.is_some())), [1, 3]);
        assert_eq!(index.nearest(&[1.0], 0, |_| true), []);
    }

    #[test]
    fn words_and_meaning_count_together_and_each_alone_where_the_other_says_nothing() {
        let mut index = Index::new(2);
        for (id, text, vector) in
            [(0, "the port of Kelm", [1.0, 0.0]), (1, "the port of Dosh", [0.8, 0.6]), (2, "a song", [-1.0, 0.0])]
        {
            index.put(Item { text: text.into(), ..item(id, id != 1) }, &vector);
        }
        let find = |text, vector: [f32; 2], ranking| {
            let hits = index.find(&CollectionQuery { vector: &vector, text, ranking }, 2, |_| true);
            (ids(&hits), hits.first().map(|hit| hit.score))
        };
        // The vector says Kelm's, the name says Dosh's.
        assert_eq!(find("Dosh?", [0.951, 0.309], Ranking::Meaning).0, [0, 1]);
        assert_eq!(find("Which port has Dosh?", [1.0, 0.0], Ranking::Meaning), (vec![0, 1], Some(1.0)));
        assert_eq!(find("Dosh?", [0.951, 0.309], Ranking::Examples).0, [1, 0]);
        assert_eq!(find("Dosh", [1.0, 0.0], Ranking::Words), (vec![1], Some(1.0)));
        let (found, score) = find("nothing known", [-1.0, 0.0], Ranking::Examples);
        assert_eq!(found, [2, 1], "without a word, meaning alone");
        assert!((score.unwrap() - (1.0 - WORDS_SHARE)).abs() < 1e-6, "{score:?}");
        assert_eq!(find("nothing known", [-1.0, 0.0], Ranking::Words), (vec![], None));
        let query = CollectionQuery { vector: &[0.8, 0.6], text: "the port of Dosh", ranking: Ranking::Examples };
        let same = index.find(&query, 1, |_| true)[0].score;
        assert!((0.95..=1.0).contains(&same), "the same text: {same}");
        assert_eq!(ids(&index.find(&query, 9, |item| item.answer.is_some())), [0, 2]);
        assert_eq!(Index::new(2).find(&query, 9, |_| true), []);
    }

    /// 40 texts of five sentences, of which a searched one shares no word with the rest of its text. `vector` gives the
    /// vector of the text of a number, and that of a sentence of it.
    fn tested(vector: impl Fn(usize, bool) -> Vec<f32>) -> Vec<Hits> {
        let mut index = Index::new(41);
        let text = |i: usize| format!("Of a{i} and of b{i} much is known.");
        (0..40).for_each(|i| index.put(Item { text: text(i), ..item(i, false) }, &vector(i, false)));
        let probe = |i: usize| {
            let (sentence, mine, rest) = (format!("Of c{i} nothing is known."), vector(i, true), vector(i, false));
            let gold = index.item(i).clone();
            let rest = (gold.text.as_str(), rest.as_slice());
            index.probe(&ProbeQuery { item: &gold, sentence: (&sentence, &mine), rest }).unwrap()
        };
        (0..40).map(probe).collect()
    }

    /// Of length 1: along one axis, as far as `share` says, and along the axis that all have.
    fn along(axis: usize, share: f32) -> Vec<f32> {
        (0..41)
            .map(|i| {
                if i == axis {
                    share
                } else if i == 40 {
                    (1.0 - share * share).sqrt()
                } else {
                    0.0
                }
            })
            .collect()
    }

    #[test]
    fn a_probe_says_which_weights_find_the_text() {
        use super::super::self_test::{FIRST, SelfTest};
        let weight = |hits: &[Hits]| SelfTest::of(hits, (0, 40, 40), None).weight;
        // All texts have the searched words in common alike, and only the first five in order can be found by them.
        let help = tested(|i, _| along(i, 0.5));
        assert_eq!(help.iter().filter(|hit| hit[0]).count(), FIRST);
        assert!(help.iter().all(|hit| hit[1..] == [true; 6]), "{help:?}");
        assert_eq!(weight(&help), 0.9);
        // Every sentence lies where another text does.
        let hurt = tested(|i, sentence| along(if sentence { (i + 7) % 40 } else { i }, 0.5));
        assert!(hurt.iter().filter(|hit| hit[6]).count() <= FIRST, "{hurt:?}");
        assert_eq!(weight(&hurt), 0.0);
    }

    #[test]
    fn a_probe_counts_no_word_of_the_sentence_that_was_taken_out() {
        let mut index = Index::new(1);
        let text = "The ferry to Kelm leaves at noon. It is red.";
        index.put(Item { text: text.into(), ..item(0, false) }, &[1.0]);
        (1..9).for_each(|i| index.put(Item { text: "Kelm leaves".into(), ..item(i, false) }, &[1.0]));
        let gold = index.item(0).clone();
        let probe = |rest| {
            let query = ProbeQuery { item: &gold, sentence: ("The ferry to Kelm", &[1.0]), rest: (rest, &[1.0]) };
            index.probe(&query)
        };
        assert!(probe(text).unwrap()[0], "the sentence is there");
        assert!(!probe("It is red.").unwrap()[0], "no word is left, and others have one");
        index.put(Item { text: "other".into(), ..item(0, false) }, &[1.0]);
        let query = ProbeQuery { item: &gold, sentence: ("Kelm", &[1.0]), rest: ("red", &[1.0]) };
        assert_eq!(index.probe(&query), None, "the text is another by now");
    }

    #[test]
    fn a_blend_goes_from_words_to_meaning_with_its_weight() {
        let mut index = Index::new(2);
        index.put(Item { text: "the port of Kelm".into(), ..item(0, false) }, &[1.0, 0.0]);
        index.put(Item { text: "a song of Dosh".into(), ..item(1, true) }, &[0.0, 1.0]);
        index.put(Item { text: "nothing".into(), ..item(2, true) }, &[0.0, -1.0]);
        let find = |weight, wanted: fn(&Item) -> bool| {
            let query = CollectionQuery { vector: &[0.0, 1.0], text: "Kelm", ranking: Ranking::Blend(weight) };
            index.find(&query, 2, wanted)
        };
        assert_eq!((ids(&find(0.15, |_| true)), ids(&find(0.9, |_| true))), (vec![0, 1], vec![1, 0]));
        assert_eq!(ids(&find(0.15, |item| item.answer.is_some())), [1, 2]);
        assert!(find(0.9, |_| true)[0].score <= 1.0);
        assert!(!Ranking::Words.reads_vector() && Ranking::Blend(0.15).reads_vector());
    }

    proptest! {
        #[test]
        fn the_nearest_are_those_that_sorting_everything_finds(
            vectors in prop::collection::vec(prop::array::uniform11(-1.0f32..1.0), 0..60),
            query in prop::array::uniform11(-1.0f32..1.0),
            k in 0..20usize
        ) {
            let mut index = Index::new(11);
            vectors.iter().enumerate().for_each(|(i, v)| index.put(item(i, i % 3 > 0), v));
            let exact = |v: &[f32; 11]| v.iter().zip(&query).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            let hits = index.nearest(&query, k, |item| item.answer.is_some());
            let with_answer = vectors.iter().enumerate().filter(|(i, _)| i % 3 > 0);
            let mut all: Vec<f64> = with_answer.map(|(_, v)| exact(v)).collect();
            all.sort_by(|a, b| b.total_cmp(a));
            prop_assert_eq!(hits.len(), k.min(all.len()));
            for (hit, want) in hits.iter().zip(&all) {
                let own = exact(&vectors[hit.item.id.parse::<usize>().unwrap()]);
                prop_assert!((f64::from(hit.score) - want).abs() < 1e-5 && (own - want).abs() < 1e-5);
            }
        }
    }
}
