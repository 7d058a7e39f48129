//! What a search of a vector store takes: the ten best passages of 100,000, each of some 270 words whose frequencies
//! follow Zipf's law, for queries of eight words that are as frequent.
//!
//! `cargo bench -p chimere --bench documents`; the line has the middle of the times and the 95th percentile of one
//! thread, as time of a processor, which other programs do not lengthen. The bytes are those of the index in memory.

use chimere::documents::{FileSegment, StoreIndex};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

const FILES: usize = 200;
const PASSAGES_OF_FILE: usize = 500;
const WORDS_OF_PASSAGE: usize = 270;
const WORDS_OF_QUERY: usize = 8;
const VOCABULARY: f64 = 200_000.0;
const SEARCHES: usize = 400;

/// Words that are drawn the same every time: the one of rank r comes about 1/r as often as the first.
struct Words(u64);

impl Words {
    fn text(&mut self, words: usize) -> String {
        let mut text = String::new();
        for _ in 0..words {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let uniform = (self.0 >> 11) as f64 / (1u64 << 53) as f64;
            let rank = VOCABULARY.powf(uniform) as u64;
            text += &format!("w{rank} ");
        }
        text
    }
}

/// What this thread has had of a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() {
    let (mut words, mut index) = (Words(1), StoreIndex::default());
    for file in 0..FILES {
        let texts: Vec<String> = (0..PASSAGES_OF_FILE).map(|_| words.text(WORDS_OF_PASSAGE)).collect();
        index.append(FileSegment::of_texts(&format!("file-{file}"), &format!("report_{file}.pdf"), &texts));
    }
    let mut times: Vec<Duration> = (0..SEARCHES)
        .map(|_| {
            let query = words.text(WORDS_OF_QUERY);
            let begin = processor_time();
            black_box(index.find(&query, 10, |_| true));
            processor_time() - begin
        })
        .collect();
    times.sort_unstable();
    let (middle, late) = (times[SEARCHES / 2], times[SEARCHES * 95 / 100]);
    println!("{} passages, {} MiB: {middle:?} in the middle, p95 {late:?}", index.len(), index.bytes() >> 20);
    let begin = processor_time();
    index.remove(&format!("file-{}", FILES / 2));
    println!("a file of {PASSAGES_OF_FILE} passages is removed in {:?}", processor_time() - begin);
}
