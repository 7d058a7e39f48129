//! What Engram costs beside a step: filter probes, a batch of 64 sequences over 4 tables, a request's own table.
//!
//! `cargo bench -p chimere-engine --bench engram`. Tables have 200,000 n-grams each unless `ENGRAM_NGRAMS` says otherwise; the
//! target is stated for 10,000,000 (about 500 MB a table, minutes to build). A line's time is that of the whole batch, and the
//! batch's hit rate is printed before it.

#![allow(missing_docs, reason = "criterion's macros make public items without documentation")]

use chimere_engine::engram::{
    BuildOptions, Context, Filter, Mixing, Mode, Ngrams, Orders, Prediction, PredictionRules, Query, Table, TokenizerHash, build,
    lookup,
};
use chimere_engine::ids::TokenId;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

const VOCAB: u32 = 248_320;
const SEQUENCES: usize = 64;
const TABLES: usize = 4;
/// Batches that are asked in turn, so that the caches never hold the answers.
const BATCHES: usize = 256;

/// Ids with the frequencies of words: the nth most frequent one 1/n as often. Splitmix64 underneath.
struct Words(u64);

impl Words {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn text(&mut self, tokens: usize) -> Vec<TokenId> {
        let uniform = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64;
        (0..tokens).map(|_| (f64::from(VOCAB).powf(uniform(self.bits())) as u32 - 1).min(VOCAB - 1)).collect()
    }
}

fn options() -> BuildOptions {
    let orders = Orders::new(2, 5).expect("within range");
    BuildOptions { orders, min_count: 1, vocab: VOCAB, tokenizer: TokenizerHash([0; 32]), time: 0 }
}

fn ngrams() -> usize {
    std::env::var("ENGRAM_NGRAMS").map_or(200_000, |n| n.parse().expect("ENGRAM_NGRAMS is a number"))
}

/// Contexts of which about half end in a piece of some table's text, and half in words of their own.
fn contexts(texts: &[Vec<TokenId>], words: &mut Words) -> Vec<Vec<Context>> {
    let mut one = || {
        let text = &texts[words.bits() as usize % TABLES];
        let at = words.bits() as usize % (text.len() - 8);
        if words.bits().is_multiple_of(2) { Context::new(&text[at..at + 8]) } else { Context::new(&words.text(8)) }
    };
    (0..BATCHES).map(|_| (0..SEQUENCES).map(|_| one()).collect()).collect()
}

fn tables_of_a_service(c: &mut Criterion) {
    let mut words = Words(1);
    // Nearly every token of a random text makes a new n-gram of each order.
    let texts: Vec<_> = (0..TABLES).map(|_| words.text(ngrams() / 4)).collect();
    let tables: Vec<_> = texts.iter().map(|t| Table::in_memory(&build(&[t], &options()).expect("ids are in range"))).collect();
    let filter = Filter::of_tables(tables.iter());
    let batches = contexts(&texts, &mut words);
    for table in &tables {
        let counts: Vec<_> = table.stats().iter().map(|s| format!("{} n-grams of order {}", s.ngrams, s.order)).collect();
        println!("table: {} bytes, {}; filter of all: {} bytes", table.bytes(), counts.join(", "), filter.bytes());
    }
    bench_filter(c, &filter, &batches);
    bench_batch(c, &filter, &tables, &batches);
}

fn bench_filter(c: &mut Criterion, filter: &Filter, batches: &[Vec<Context>]) {
    let mut turn = batches.iter().cycle();
    c.bench_function("filter, 256 probes (64 sequences, orders 2-5), prefetched", |b| {
        b.iter(|| {
            let batch = turn.next().expect("a cycle has no end");
            let probes = || batch.iter().flat_map(|context| (2..=5).map(move |order| (context, order)));
            probes().for_each(|(context, order)| filter.prefetch(context, order));
            probes().filter(|(context, order)| filter.may_know(context, *order)).count()
        });
    });
}

fn bench_batch(c: &mut Criterion, filter: &Filter, tables: &[Table], batches: &[Vec<Context>]) {
    let tables: Vec<&dyn Ngrams> = tables.iter().map(|t| t as &dyn Ngrams).collect();
    let queries = |batch: &[Context]| -> Vec<Query<'_>> {
        batch.iter().map(|context| Query { context: *context, tables: &tables, own: &[] }).collect()
    };
    let (mut asked, mut hits) = (0, 0);
    for batch in batches {
        let found = lookup(filter, &queries(batch));
        (asked, hits) = (asked + found.asked, hits + found.hits());
    }
    println!("lookups a batch: {}, of which {:.1} % hit", asked / BATCHES as u64, 100.0 * hits as f64 / asked as f64);
    let mut turn = batches.iter().cycle();
    c.bench_function("lookup, 64 sequences x 4 tables x orders 2-5", |b| {
        b.iter(|| black_box(lookup(filter, &queries(turn.next().expect("a cycle has no end")))).hits());
    });
    let mode = Mode::bias(1.0).expect("within range");
    c.bench_function("lookup, prediction and bias, 64 sequences x 4 tables x orders 2-5", |b| {
        b.iter(|| {
            let queries = queries(turn.next().expect("a cycle has no end"));
            let found = lookup(filter, &queries);
            let rules = PredictionRules { min_count: 1 };
            let edits = |(i, query)| Mixing::new(&Prediction::new(query, found.of(i), rules), mode);
            queries.iter().enumerate().map(edits).for_each(|edits| drop(black_box(edits)));
        });
    });
}

fn table_of_a_request(c: &mut Criterion) {
    for tokens in [10_000, 65_536] {
        let text = Words(2).text(tokens);
        c.bench_function(&format!("a request's own table, {tokens} tokens, orders 2-5"), |b| {
            b.iter_batched(
                || &text,
                |text| Table::in_memory(&build(&[text], &options()).expect("ids are in range")),
                BatchSize::PerIteration,
            );
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(4));
    targets = tables_of_a_service, table_of_a_request
}
criterion_main!(benches);
