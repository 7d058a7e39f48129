//! `chimere bench engram`: what tables cost beside a step, with texts made up for it. No model and no service is
//! needed.

use crate::CliError;
use crate::figures::{bytes_text, count_text};
use crate::stats::OrderStatistics;
use chimere_engine::constraint::Awaiting;
use chimere_engine::engram::{
    Auto, BuildOptions, Context, Filter, JointPrior, Member, Mode, ORDER_MAX, Orders, PredictionRules, Query,
    RequestTables, Strengths, Table, TableSequence, TableTracker, Tally, TokenizerHash, WordStarts, build, lookup,
};
use chimere_engine::ids::{SeqId, StepId, TokenId};
use serde::Serialize;
use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Tokens of the family's vocabulary.
const VOCAB: u32 = 248_320;
/// Tokens of the tables that requests bring.
const OWN_TOKENS: [usize; 2] = [10_000, 65_536];
/// Tokens of context that each sequence begins with.
const PROMPT_TOKENS: usize = 8;

/// Measures the filter, the lookups of a step and the making of a request's own table. Use idle cores: percentiles of
/// busy ones tell of their other work, and differ from round to round.
#[derive(clap::Args, Debug, Clone)]
pub struct BenchEngramArgs {
    /// N-grams of each table, all orders together; 10 M take about 500 MB on the disk, twice that in memory while they
    /// are made.
    #[arg(long, value_name = "N", default_value_t = 10_000_000,
        value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    pub ngrams: u64,
    /// Tables that each sequence uses.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub tables: u32,
    /// Sequences that share a step.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub sequences: u32,
    /// Context lengths of the tables.
    #[arg(long, value_name = "LOW-HIGH", default_value = "2-5")]
    pub orders: Orders,
    /// Steps to measure in a round, after a tenth as many to warm up.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Rounds of steps to measure.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Threads that share the lookups of a step, a list of numbers that are measured one after the other; 1 leaves them
    /// to one.
    #[arg(long, value_name = "N,..", default_value = "1", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Vec<u32>,
    /// The strength is computed at each position, as it is by default, and not given.
    #[arg(long)]
    pub auto: bool,
    /// Seed of the texts.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where the tables' files are for as long as this takes; they are mapped as a service maps them [default: the
    /// system's folder for temporary files].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Write the figures here as JSON too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The figures of one run, as they are printed.
#[derive(Serialize)]
struct LookupReport {
    tables: u32,
    ngrams: u64,
    table_bytes: u64,
    filter_bytes: u64,
    sequences: u32,
    /// Of the contexts that tables were asked for, the ones that a table knew.
    hit_rate: f64,
    /// Of the positions, the ones where a table knew some context.
    positions_hit_rate: f64,
    /// Seconds to count, write, map and check the tables, and to make the filter.
    tables_s: f64,
    filter_s: f64,
    /// Nanoseconds of a probe, round by round.
    probe_ns: Vec<OrderStatistics>,
    step_us: Vec<StepTimes>,
    own_table_ms: Vec<(usize, OrderStatistics)>,
}

/// A step's edits, made by so many threads.
#[derive(Serialize)]
struct StepTimes {
    threads: u32,
    rounds: Vec<OrderStatistics>,
}

/// Makes tables, measures, prints.
pub fn run(args: &BenchEngramArgs) -> Result<(), CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::Failed(e.to_string());
    let mut words = Words(args.seed);
    let orders = args.orders.iter().count() as u64;
    // Nearly every token of a made-up text makes a new n-gram of each order.
    let tokens = args.ngrams.div_ceil(orders) as usize;
    let texts: Vec<Vec<TokenId>> = (0..args.tables).map(|_| words.text(tokens)).collect();
    let folder = Folder::new(args.dir.clone().unwrap_or_else(std::env::temp_dir)).map_err(|e| failed(&e))?;
    let begin = Instant::now();
    let tables = tables(&texts, args.orders, &folder.0).map_err(|e| failed(&e))?;
    let tables_s = begin.elapsed().as_secs_f64();
    let filter = Filter::of_tables(tables.iter());
    let filter_s = begin.elapsed().as_secs_f64() - tables_s;
    let ngrams = tables.iter().flat_map(Table::stats).map(|s| s.ngrams).sum();
    let (table_bytes, filter_bytes) = (tables.iter().map(|t| t.bytes() as u64).sum(), filter.bytes() as u64);
    let mut walks = Walks::new(&texts, args.sequences as usize, words);
    let probe_ns = probes(&filter, &mut walks, args);
    let tables = Member::all(tables.into_iter().map(Arc::new));
    let hit_rate = hit_rate(&filter, &tables, &mut walks, args);
    let filter = Arc::new(filter);
    let (mut step_us, mut positions_hit_rate) = (Vec::new(), 0.0);
    for &threads in &args.threads {
        let measured = steps(filter.clone(), tables.clone(), &mut walks, args, threads).map_err(|e| failed(&e))?;
        step_us.push(StepTimes { threads, rounds: measured.0 });
        positions_hit_rate = measured.1;
    }
    let own_table_ms = OWN_TOKENS.iter().map(|&n| (n, own_table(&mut walks.words, n, args.orders))).collect();
    let (tables, sequences) = (args.tables, args.sequences);
    let report = LookupReport {
        tables,
        ngrams,
        table_bytes,
        filter_bytes,
        sequences,
        hit_rate,
        positions_hit_rate,
        tables_s,
        filter_s,
        probe_ns,
        step_us,
        own_table_ms,
    };
    print!("{}", report.text());
    let json = serde_json::to_string_pretty(&report).map_err(|e| failed(&e))?;
    args.json
        .iter()
        .try_for_each(|path| std::fs::write(path, &json).map_err(|e| failed(&format!("{}: {e}", path.display()))))
}

/// A folder of this run's own, removed with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn new(within: PathBuf) -> std::io::Result<Self> {
        let path = within.join(format!("chimere-bench-engram-{}", std::process::id()));
        std::fs::create_dir_all(&path).map(|()| Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left where temporary files are looked for.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A table of each text, made side by side, written and mapped.
fn tables(texts: &[Vec<TokenId>], orders: Orders, folder: &Path) -> Result<Vec<Table>, Box<dyn Error + Send + Sync>> {
    let table = |i: usize, text: &[TokenId]| {
        let path = folder.join(format!("{i}.engr"));
        let mut file = BufWriter::new(File::create(&path)?);
        build(&[text], &options(orders))?.write(&mut file)?;
        file.into_inner()?;
        Ok::<_, Box<dyn Error + Send + Sync>>(Table::open(&path)?)
    };
    std::thread::scope(|scope| {
        let making: Vec<_> = texts.iter().enumerate().map(|(i, text)| scope.spawn(move || table(i, text))).collect();
        making.into_iter().map(|made| made.join().map_err(|_| "a thread that made a table panicked")?).collect()
    })
}

fn options(orders: Orders) -> BuildOptions {
    BuildOptions { orders, longest: ORDER_MAX, min_count: 1, vocab: VOCAB, tokenizer: TokenizerHash([0; 32]), time: 0 }
}

/// Nanoseconds a probe: a step's probes are asked for first and then made, as lookups do it.
fn probes(filter: &Filter, walks: &mut Walks<'_>, args: &BenchEngramArgs) -> Vec<OrderStatistics> {
    let all = |contexts: &[Context]| contexts.len() * args.orders.iter().count();
    let mut one = || {
        let contexts = walks.contexts();
        let begin = Instant::now();
        let probes = || contexts.iter().flat_map(|context| args.orders.iter().map(move |order| (context, order)));
        probes().for_each(|(context, order)| filter.prefetch(context, order));
        black_box(probes().filter(|(context, order)| !filter.may_know(context, *order).is_empty()).count());
        begin.elapsed().as_nanos() as f64 / all(&contexts) as f64
    };
    (0..args.rounds).map(|_| measured(args.steps, &mut one)).collect()
}

/// The share of the looked-up contexts that a table knows.
fn hit_rate(filter: &Filter, tables: &[Member], walks: &mut Walks<'_>, args: &BenchEngramArgs) -> f64 {
    let (mut asked, mut hits) = (0, 0);
    for _ in 0..args.steps.min(500) {
        let contexts = walks.contexts();
        let queries: Vec<_> = contexts.iter().map(|context| Query { context, tables, prior: None, own: &[] }).collect();
        let found = lookup(filter, &queries);
        (asked, hits) = (asked + found.asked, hits + found.hits());
    }
    hits as f64 / asked as f64
}

/// Microseconds that a step's rules take from its tokens on, as in the service: lookups, predictions, the mixture's
/// weights.
fn steps(
    filter: Arc<Filter>,
    tables: Vec<Member>,
    walks: &mut Walks<'_>,
    args: &BenchEngramArgs,
    threads: u32,
) -> Result<(Vec<OrderStatistics>, f64), Box<dyn Error>> {
    let request = Arc::new(RequestTables {
        filter,
        prior: Some(Arc::new(JointPrior::of(tables.iter().map(Member::table)))),
        tables,
        own: Vec::new(),
        mode: Mode::mixture(0.3)?,
        auto: args.auto.then(auto),
        rules: PredictionRules { min_count: 1 },
        silent_in: None,
        end_ids: Vec::new(),
        tally: Tally::default(),
    });
    let mut tracker = TableTracker::new(threads as usize)?;
    for (seq, walk) in walks.last.iter().enumerate() {
        tracker.track(SeqId(seq as u64), TableSequence::new(walk, seq as u32, request.clone()));
    }
    let (mut step, mut lookups, mut hits) = (0, 0, 0);
    let mut one = || {
        let tokens = walks.step();
        step += 1;
        let rows = tokens.iter().map(|(seq, _)| (*seq, step)).collect();
        let begin = Instant::now();
        tracker.launched(Awaiting { step: StepId(u64::from(step)), rows, drafts: Default::default() });
        tracker.sampled(&tokens);
        let answered = tracker.answer().expect("all its tokens are here");
        let took = begin.elapsed().as_nanos() as f64 / 1e3;
        (lookups, hits) = (lookups + answered.lookups, hits + answered.hits);
        black_box(answered.rules);
        took
    };
    let stats = (0..args.rounds).map(|_| measured(args.steps, &mut one)).collect();
    Ok((stats, hits as f64 / lookups as f64))
}

/// The strengths that ship, over made-up words of which every third token goes on with one.
fn auto() -> Auto {
    let words = Arc::new(WordStarts::new(VOCAB, |id| !id.is_multiple_of(3)));
    Auto { strengths: Strengths::shipped(), words, documents: None, recollections: Vec::new(), opening: None }
}

/// Milliseconds to make a request's own table of so many tokens.
fn own_table(words: &mut Words, tokens: usize, orders: Orders) -> OrderStatistics {
    let text = words.text(tokens);
    let mut one = || {
        let begin = Instant::now();
        black_box(build(&[&text], &options(orders)).map(|image| Table::in_memory(&image)).is_ok());
        begin.elapsed().as_nanos() as f64 / 1e6
    };
    measured(20, &mut one)
}

fn measured(times: u32, one: &mut dyn FnMut() -> f64) -> OrderStatistics {
    (0..times.div_ceil(10)).for_each(|_| _ = black_box(one()));
    let samples: Vec<f64> = (0..times).map(|_| one()).collect();
    OrderStatistics::of(&samples).expect("at least one was measured")
}

/// Ids with the frequencies of words: the nth most frequent one 1/n as often. Splitmix64 underneath.
struct Words(u64);

impl Words {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn word(&mut self) -> TokenId {
        let uniform = (self.bits() >> 11) as f64 / (1u64 << 53) as f64;
        (f64::from(VOCAB).powf(uniform) as u32 - 1).min(VOCAB - 1)
    }

    fn text(&mut self, tokens: usize) -> Vec<TokenId> {
        (0..tokens).map(|_| self.word()).collect()
    }
}

/// Sequences of which every other one goes along a table's text, and the others along words of their own: every step
/// begins anywhere, so that the processor's caches never hold the answers.
struct Walks<'a> {
    texts: &'a [Vec<TokenId>],
    words: Words,
    /// Text and place of each sequence that goes along one.
    places: Vec<Option<(usize, usize)>>,
    /// Last ids of each sequence.
    last: Vec<Vec<TokenId>>,
}

impl<'a> Walks<'a> {
    fn new(texts: &'a [Vec<TokenId>], sequences: usize, mut words: Words) -> Self {
        let mut place =
            |seq: usize| seq.is_multiple_of(2).then(|| (seq / 2 % texts.len(), words.bits() as usize % texts[0].len()));
        let places = (0..sequences).map(&mut place).collect();
        let mut walks = Self { texts, words, places, last: vec![Vec::new(); sequences] };
        (0..PROMPT_TOKENS).for_each(|_| drop(walks.step()));
        walks
    }

    /// The next token of each sequence.
    fn step(&mut self) -> Vec<(SeqId, TokenId)> {
        let mut tokens = Vec::with_capacity(self.places.len());
        for (seq, place) in self.places.iter_mut().enumerate() {
            let token = match place {
                Some((text, at)) => {
                    *at = (*at + 1) % self.texts[*text].len();
                    self.texts[*text][*at]
                }
                None => self.words.word(),
            };
            let last = &mut self.last[seq];
            last.push(token);
            if last.len() > PROMPT_TOKENS {
                last.remove(0);
            }
            tokens.push((SeqId(seq as u64), token));
        }
        tokens
    }

    /// Where each sequence stands after its next token.
    fn contexts(&mut self) -> Vec<Context> {
        self.step();
        self.last.iter().map(|ids| Context::new(ids)).collect()
    }
}

impl LookupReport {
    fn text(&self) -> String {
        let line = |what: String, unit: &str, s: &OrderStatistics| {
            format!(
                "{what:<52} {unit}: least {:.1}, median {:.1}, p90 {:.1}, p99 {:.1}, most {:.1}\n",
                s.min, s.p50, s.p90, s.p99, s.max
            )
        };
        let mut text = format!(
            "{} tables, {} n-grams, {}, made in {:.1} s; filter {}, {:.1} s\n",
            self.tables,
            count_text(self.ngrams),
            bytes_text(self.table_bytes),
            self.tables_s,
            bytes_text(self.filter_bytes),
            self.filter_s
        );
        text += &format!(
            "hit: {:.1} % of contexts, {:.1} % of positions\n",
            100.0 * self.hit_rate,
            100.0 * self.positions_hit_rate
        );
        for stats in &self.probe_ns {
            text += &line("a probe of the filter".into(), "ns", stats);
        }
        for StepTimes { threads, rounds } in &self.step_us {
            for stats in rounds {
                text +=
                    &line(format!("edits of a step of {} sequences, threads: {threads}", self.sequences), "us", stats);
            }
        }
        for (tokens, stats) in &self.own_table_ms {
            text += &line(format!("a request's own table of {tokens} tokens"), "ms", stats);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_measures_every_part_and_hits_where_sequences_go_along_a_table_s_text() {
        let dir = tempfile::tempdir().unwrap();
        let json = dir.path().join("out.json");
        let orders = Orders::new(2, 5).unwrap();
        let args = BenchEngramArgs {
            ngrams: 4_000,
            tables: 2,
            sequences: 8,
            orders,
            steps: 20,
            rounds: 2,
            threads: vec![1, 2],
            auto: false,
            seed: 1,
            dir: Some(dir.path().to_owned()),
            json: Some(json.clone()),
        };
        run(&args).unwrap();
        let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        // Each text is known to its own table at all four orders, and to the other one nearly never.
        let rate = figures["hit_rate"].as_f64().unwrap();
        assert!((0.24..0.45).contains(&rate), "{figures:#}");
        assert!(figures["positions_hit_rate"].as_f64().unwrap() >= 0.5, "{figures:#}");
        assert!(
            figures["probe_ns"][1]["p50"].as_f64().unwrap() > 0.0
                && figures["step_us"][1]["rounds"][1]["p99"].as_f64().unwrap() > 0.0
        );
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "the tables are gone again");
        assert_eq!(figures["own_table_ms"].as_array().unwrap().len(), 2);
    }
}
