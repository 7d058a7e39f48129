//! Items and their vectors in memory, and the nearest of them by an exact scan. A graph would spare most of the scan
//! and sometimes the right answer; `docs/decisions/0016-exact-search.md` has what a scan takes.

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

/// An item that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Cosine of the angle between the item's vector and the query's.
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
    bytes: u64,
}

impl Index {
    /// Empty, for vectors of this many numbers, at least 1.
    pub fn new(width: usize) -> Self {
        assert!(width > 0, "a vector has a number");
        Self { width, vectors: Vec::new(), items: Vec::new(), places: HashMap::new(), bytes: 0 }
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True when the index has no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of vectors and texts, about.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that an item takes, about: its vector, its texts, and its places in lists.
    pub fn bytes_of(item: &Item, width: usize) -> u64 {
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
        self.bytes += Self::bytes_of(&item, self.width);
        match self.places.get(&item.id) {
            Some(&at) => {
                self.vectors[at * self.width..(at + 1) * self.width].copy_from_slice(vector);
                let before = std::mem::replace(&mut self.items[at], Arc::new(item));
                self.bytes -= Self::bytes_of(&before, self.width);
            }
            None => {
                self.places.insert(item.id.clone(), self.items.len());
                self.vectors.extend_from_slice(vector);
                self.items.push(Arc::new(item));
            }
        }
    }

    /// The `k` items with the greatest cosine to `query` among those that are `wanted`, best first; ties in the order
    /// in which they came.
    pub fn nearest(&self, query: &[f32], k: usize, wanted: impl Fn(&Item) -> bool) -> Vec<Hit> {
        assert_eq!(query.len(), self.width, "a query is as wide as the index");
        let mut best: BinaryHeap<Nearest> = BinaryHeap::with_capacity(k + 1);
        for (at, vector) in self.vectors.chunks_exact(self.width).enumerate() {
            let found = Nearest { score: dot(query, vector), at };
            if best.len() < k || best.peek().is_some_and(|worst| found < *worst) {
                if !wanted(&self.items[at]) {
                    continue;
                }
                best.push(found);
                if best.len() > k {
                    best.pop();
                }
            }
        }
        best.into_sorted_vec().into_iter().map(|f| Hit { score: f.score, item: self.items[f.at].clone() }).collect()
    }
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
        let bytes = index.bytes();
        index.put(Item { text: "other 0".into(), ..item(0, false) }, &[0.0, -1.0]);
        assert_eq!((index.len(), index.bytes()), (2, bytes + 1));
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
