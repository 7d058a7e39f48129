//! What a search of a vector store takes: the ten best passages of 100,000, each of some 270 words whose frequencies
//! follow Zipf's law, for queries of eight words that are as frequent; by words alone, and by words and vectors of 384
//! numbers.
//!
//! `cargo bench -p chimere --bench documents`; a line has the middle of the times and the 95th percentile of one
//! thread, as time of a processor, which other programs do not lengthen. The bytes are those of the index in memory.

use chimere::documents::{FileSegment, PassageQuery, StoreIndex, coded};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

const FILES: usize = 200;
const PASSAGES_OF_FILE: usize = 500;
const WORDS_OF_PASSAGE: usize = 270;
const WORDS_OF_QUERY: usize = 8;
const VOCABULARY: f64 = 200_000.0;
const SEARCHES: usize = 400;
const WIDTH: usize = 384;
const WEIGHT: f32 = 0.7;

/// Words that are drawn the same every time: the one of rank r comes about 1/r as often as the first.
struct Words(u64);

impl Words {
    /// From 0 to 1.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn text(&mut self, words: usize) -> String {
        (0..words).map(|_| format!("w{} ", VOCABULARY.powf(self.uniform()) as u64)).collect()
    }

    /// A vector of length 1.
    fn vector(&mut self) -> Vec<f32> {
        let vector: Vec<f64> = (0..WIDTH).map(|_| self.uniform() - 0.5).collect();
        let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        vector.iter().map(|x| (x / length) as f32).collect()
    }
}

/// What this thread has had of a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The middle of the times of searches, and the 95th percentile.
fn times(words: &mut Words, index: &StoreIndex, weight: f32) -> (Duration, Duration) {
    let mut times: Vec<Duration> = (0..SEARCHES)
        .map(|_| {
            let (query, vector) = (words.text(WORDS_OF_QUERY), words.vector());
            let begin = processor_time();
            black_box(index.find(&PassageQuery { text: &query, vector: Some(&vector) }, weight, 10, |_| true));
            processor_time() - begin
        })
        .collect();
    times.sort_unstable();
    (times[SEARCHES / 2], times[SEARCHES * 95 / 100])
}

fn main() {
    let (mut words, mut index) = (Words(1), StoreIndex::of_width(Some(WIDTH)));
    for file in 0..FILES {
        let (id, texts) = (format!("file-{file}"), (0..PASSAGES_OF_FILE).map(|_| words.text(WORDS_OF_PASSAGE)));
        index.append(FileSegment::of_texts(&id, &format!("report_{file}.pdf"), &texts.collect::<Vec<_>>()));
        let codes: Vec<u8> = (0..PASSAGES_OF_FILE).flat_map(|_| coded(&words.vector()).collect::<Vec<_>>()).collect();
        index.set_vectors(&id, &codes);
    }
    println!("{} passages, {} MiB", index.len(), index.bytes() >> 20);
    for (by, weight) in [("words", 0.0), ("words and vectors", WEIGHT)] {
        let (middle, late) = times(&mut words, &index, weight);
        println!("by {by}: {middle:?} in the middle, p95 {late:?}");
    }
    let begin = processor_time();
    index.remove(&format!("file-{}", FILES / 2));
    println!("a file of {PASSAGES_OF_FILE} passages is removed in {:?}", processor_time() - begin);
}
