//! Items and their vectors in memory, and the nearest of them by an exact scan. A graph would spare most of the scan
//! and sometimes the right answer; `docs/decisions/0016-exact-search.md` has what a scan takes. What an item says
//! counts beside what it means: names and numbers are alike to a vector.

use super::words::WordIndex;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
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

/// By what items are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Meaning and words together.
    #[default]
    Both,
    /// Cosines of vectors.
    Meaning,
    /// BM25. Items without a word of the query are not found.
    Words,
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Of the index's width, and of length 1.
    pub vector: &'a [f32],
    /// What the vector was made of.
    pub text: &'a str,
    /// What counts.
    pub by: By,
}

/// Of words in a score by both, the rest is meaning's. It finds all facts that are asked in other words, where 0.5
/// misses 7 of 1,000 (`docs/measurements/2026-11-23-collections.md`).
const WORDS_SHARE: f32 = 0.65;

/// An item that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// By meaning the cosine of the angle between the item's vector and the query's, from -1 to 1; else from 0 to 1,
    /// where 1 is what no item exceeds.
    pub score: f32,
    /// The item that was found.
    pub item: Arc<Item>,
}

/// Vectors of one width, each of length 1, one after the other.
#[derive(Debug)]
pub struct Index {
    width: usize,
    vectors: Vec<f32>,
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
        match self.places.get(&item.id) {
            Some(&at) => {
                self.vectors[at * self.width..(at + 1) * self.width].copy_from_slice(vector);
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
    pub fn find(&self, query: &Query<'_>, k: usize, wanted: impl Fn(&Item) -> bool) -> Vec<Hit> {
        if query.by == By::Meaning {
            return self.nearest(query.vector, k, wanted);
        }
        let words = self.words.scores(query.text);
        let places: Vec<usize> = (0..self.len()).filter(|at| wanted(&self.items[*at])).collect();
        let top = places.iter().map(|at| words[*at]).fold(0.0, f32::max);
        let said = |at: usize| if top > 0.0 { words[at] / top } else { 0.0 };
        if query.by == By::Words {
            let found = places.into_iter().filter(|at| words[*at] > 0.0);
            return self.hits(best(k, found.map(|at| Nearest { score: said(at), at })));
        }
        let cosines: Vec<f32> = places.iter().map(|at| dot(query.vector, self.vector(*at))).collect();
        let least = cosines.iter().copied().fold(f32::INFINITY, f32::min);
        let most = cosines.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        // Between the least and the most like it: how far apart vectors lie is each model's own.
        let meant = |cosine: f32| if most > least { (cosine - least) / (most - least) } else { 1.0 };
        let share = if top > 0.0 { WORDS_SHARE } else { 0.0 };
        let both = places.into_iter().zip(&cosines);
        self.hits(best(
            k,
            both.map(|(at, cosine)| Nearest { score: share * said(at) + (1.0 - share) * meant(*cosine), at }),
        ))
    }

    /// The `k` items with the greatest cosine to `query` among those that are `wanted`, best first; ties in the order
    /// in which they came.
    fn nearest(&self, query: &[f32], k: usize, wanted: impl Fn(&Item) -> bool) -> Vec<Hit> {
        assert_eq!(query.len(), self.width, "a query is as wide as the index");
        let all = self.vectors.chunks_exact(self.width).enumerate();
        let wanted = all.filter(|(at, _)| wanted(&self.items[*at]));
        self.hits(best(k, wanted.map(|(at, vector)| Nearest { score: dot(query, vector), at })))
    }

    fn vector(&self, at: usize) -> &[f32] {
        &self.vectors[at * self.width..(at + 1) * self.width]
    }

    fn hits(&self, found: Vec<Nearest>) -> Vec<Hit> {
        found.into_iter().map(|found| Hit { score: found.score, item: self.items[found.at].clone() }).collect()
    }
}

/// The `k` best, best first.
fn best(k: usize, all: impl Iterator<Item = Nearest>) -> Vec<Nearest> {
    let mut best: BinaryHeap<Nearest> = BinaryHeap::with_capacity(k + 1);
    for found in all {
        if best.len() < k || best.peek().is_some_and(|worst| found < *worst) {
            best.push(found);
            if best.len() > k {
                best.pop();
            }
        }
    }
    best.into_sorted_vec()
}

/// Better is less, so that a heap has the worst on top.
#[derive(Clone, Copy, PartialEq)]
struct Nearest {
    score: f32,
    at: usize,
}

impl Eq for Nearest {}

impl Ord for Nearest {
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.at.cmp(&other.at))
    }
}

impl PartialOrd for Nearest {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Eight sums at a time, which compilers make vectors of; always in the same order.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 8;
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(id: usize, answer: bool) -> Item {
        Item { id: id.to_string(), text: format!("text {id}"), answer: answer.then(|| "yes".into()) }
    }

    fn ids(hits: &[Hit]) -> Vec<usize> {
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
            [(0, "the port of Kelm", [1.0, 0.0]), (1, "the port of Dosh", [0.8, 0.6]), (2, "a song", [0.0, 1.0])]
        {
            index.put(Item { text: text.into(), ..item(id, id != 1) }, &vector);
        }
        let find = |text, vector: [f32; 2], by| {
            let hits = index.find(&Query { vector: &vector, text, by }, 2, |_| true);
            (ids(&hits), hits.first().map(|hit| hit.score))
        };
        // The vector says Kelm's, the name says Dosh's.
        assert_eq!(find("Which port has Dosh?", [1.0, 0.0], By::Meaning), (vec![0, 1], Some(1.0)));
        assert_eq!(find("Which port has Dosh?", [1.0, 0.0], By::Both).0, [1, 0]);
        assert_eq!(find("Dosh", [1.0, 0.0], By::Words), (vec![1], Some(1.0)));
        assert_eq!(
            find("nothing known", [0.0, 1.0], By::Both),
            (vec![2, 1], Some(1.0)),
            "without a word, meaning alone"
        );
        assert_eq!(find("nothing known", [0.0, 1.0], By::Words), (vec![], None));
        let query = Query { vector: &[0.8, 0.6], text: "the port of Dosh", by: By::Both };
        assert_eq!(index.find(&query, 1, |_| true)[0].score, 1.0, "the same text");
        assert_eq!(ids(&index.find(&query, 9, |item| item.answer.is_some())), [0, 2]);
        assert_eq!(Index::new(2).find(&query, 9, |_| true), []);
    }

    proptest! {
        #[test]
        fn the_nearest_are_those_that_sorting_everything_finds(
            vectors in prop::collection::vec(prop::array::uniform11(-1.0f32..1.0), 0..60), query in prop::array::uniform11(-1.0f32..1.0), k in 0..20usize
        ) {
            let mut index = Index::new(11);
            vectors.iter().enumerate().for_each(|(i, v)| index.put(item(i, i % 3 > 0), v));
            let exact = |v: &[f32; 11]| v.iter().zip(&query).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            let hits = index.nearest(&query, k, |item| item.answer.is_some());
            let mut all: Vec<f64> = vectors.iter().enumerate().filter(|(i, _)| i % 3 > 0).map(|(_, v)| exact(v)).collect();
            all.sort_by(|a, b| b.total_cmp(a));
            prop_assert_eq!(hits.len(), k.min(all.len()));
            for (hit, want) in hits.iter().zip(&all) {
                let own = exact(&vectors[hit.item.id.parse::<usize>().unwrap()]);
                prop_assert!((f64::from(hit.score) - want).abs() < 1e-5 && (own - want).abs() < 1e-5);
            }
        }
    }
}
