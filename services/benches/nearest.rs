//! What an exact search takes: the ten nearest of a full collection, for the shipped model's width and for the
//! family's.
//!
//! `cargo bench -p chimere --bench nearest`; each line has the least and the middle time of a search.

use chimere::limits::COLLECTION_ITEMS_MAX;
use chimere::semantic::{Index, Item};
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
            index.put(Item { id: i.to_string(), text: "a text".into(), answer: None }, &numbers(&mut word, width));
        }
        let mut times: Vec<Duration> = (0..SEARCHES)
            .map(|_| {
                let query = numbers(&mut word, width);
                let begin = Instant::now();
                black_box(index.nearest(&query, 10, |_| true));
                begin.elapsed()
            })
            .collect();
        times.sort_unstable();
        println!(
            "{COLLECTION_ITEMS_MAX} x {width}: {:?} at the least, {:?} in the middle",
            times[0],
            times[SEARCHES / 2]
        );
    }
}
