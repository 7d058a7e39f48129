//! What an exact search takes: the ten nearest of a full collection, for the shipped model's width and for the
//! family's.
//!
//! `cargo bench -p chimere --bench nearest`; each line has the least and the middle time of a search.

use chimere::limits::COLLECTION_ITEMS_MAX;
use chimere::semantic::{CollectionQuery, Index, Item, Ranking};
use std::hint::black_box;
use std::time::{Duration, Instant};

const SEARCHES: usize = 50;

/// Numbers between -1 and 1 that are the same every time.
fn numbers(word: &mut u32, count: usize) -> Vec<f32> {
    let mut next = || {
        *word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*word >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn main() {
    for width in [256, 2048] {
        let (mut index, mut word) = (Index::new(width), 1);
        for i in 0..COLLECTION_ITEMS_MAX {
            // Some words that all have, some that a few have.
            let text = format!("the {} of the {} number {i}", i % 100, i % 1000);
            index.put(Item { id: i.to_string(), text, answer: None }, &numbers(&mut word, width));
        }
        for ranking in [Ranking::Meaning, Ranking::Words, Ranking::Examples] {
            let mut times: Vec<Duration> = (0..SEARCHES)
                .map(|i| {
                    let (vector, text) = (numbers(&mut word, width), format!("what is the {i} of number {}?", 7 * i));
                    let begin = Instant::now();
                    black_box(index.find(&CollectionQuery { vector: &vector, text: &text, ranking }, 10, |_| true));
                    begin.elapsed()
                })
                .collect();
            times.sort_unstable();
            println!(
                "{COLLECTION_ITEMS_MAX} x {width}, by {ranking:?}: {:?} at the least, {:?} in the middle",
                times[0],
                times[SEARCHES / 2]
            );
        }
    }
}
