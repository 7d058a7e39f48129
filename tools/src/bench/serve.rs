//! `chimere bench serve`: load over HTTP as users make it. Requests arrive when their time has come, whether or not
//! earlier ones are done (an open loop), and all latencies count from that time, also where the client itself had to
//! wait for a free place.

use crate::CliError;
use crate::client::{Credentials, Failure, ServiceClient};
use crate::stats::OrderStatistics;
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Measures a running service under load: time to the first token (TTFT), between tokens (ITL), of a whole request
/// (E2E).
#[derive(clap::Args, Debug, Clone)]
pub struct BenchServeArgs {
    /// Address of the service; plain HTTP.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Mean arrivals, in requests per second, as a Poisson process; `inf` sends all at once.
    #[arg(long, value_name = "PER_SECOND", default_value = "4", value_parser = parse_rate)]
    pub rate: f64,
    /// Most requests in flight; later ones wait here, and that time counts.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub concurrency: u32,
    /// How many requests to send.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub requests: u32,
    /// Tokens of each prompt: random words of the model's own vocabulary.
    #[arg(long, value_name = "TOKENS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt_tokens: u32,
    /// Tokens to generate a request; end-of-sequence is ignored, so that each has exactly this many.
    #[arg(long, value_name = "TOKENS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: u32,
    /// Seed of arrivals and prompts.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// File whose first line is the API key to send.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Write the figures here as JSON too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if rate > 0.0 { Ok(rate) } else { Err(format!("a rate is above 0 requests per second, not {text}")) }
}

/// Runs the load and prints the figures. Fails if no request was answered.
pub fn run(args: &BenchServeArgs) -> Result<(), CliError> {
    let report = actix_rt::System::new().block_on(measure(args))?;
    print!("{}", report.table());
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&report).expect("numbers and strings");
        std::fs::write(file, text + "\n")
            .map_err(|e| CliError::Failed(format!("cannot write {}: {e}", file.display())))?;
    }
    match report.completed {
        0 => Err(CliError::Failed(format!("no request was answered: {}", report.errors_text()))),
        _ => Ok(()),
    }
}

async fn measure(args: &BenchServeArgs) -> Result<LoadReport, CliError> {
    let access = Credentials { key_file: args.api_key_file.as_deref(), ..Credentials::default() };
    let server = Rc::new(ServiceClient::new(&args.url, access)?);
    let asked = |e: Failure| CliError::Failed(format!("{}: {e}", args.url));
    let model = server.get("/v1/models").await.map_err(asked)?["data"][0]["id"].as_str().unwrap_or_default().to_owned();
    let vocabulary = words(&server, &model).await.map_err(asked)?;
    let mut rng = StdRng::seed_from_u64(args.seed);
    let arrivals = arrivals(args.rate, args.requests, &mut rng);
    let bodies: Vec<Value> = arrivals.iter().map(|_| body(args, &model, &vocabulary, &mut rng)).collect();
    eprintln!("{} requests to {} ({model})", args.requests, server.base());
    let places = Rc::new(Semaphore::new(args.concurrency as usize));
    let start = Instant::now();
    let runs = arrivals.into_iter().zip(bodies).map(|(at, body)| {
        let (server, places) = (server.clone(), places.clone());
        actix_rt::spawn(async move { one(&server, &places, start, at, &body).await })
    });
    let results = join_all(runs.collect::<Vec<_>>()).await;
    let wall = start.elapsed();
    let results =
        results.into_iter().map(|r| r.map_err(|e| CliError::Failed(format!("a client task ended early: {e}"))));
    Ok(LoadReport::new(args, model, wall, results.collect::<Result<_, _>>()?))
}

/// When each request arrives, from the start on.
fn arrivals(rate: f64, count: u32, rng: &mut impl Rng) -> Vec<Duration> {
    let mut at = 0.0;
    let mut times = Vec::with_capacity(count as usize);
    for _ in 0..count {
        times.push(Duration::from_secs_f64(at));
        at += -(1.0 - rng.random::<f64>()).ln() / rate;
    }
    times
}

/// Token ids to make prompts of: ordinary text through the service's own tokenizer, so none of them is special.
async fn words(server: &ServiceClient, model: &str) -> Result<Vec<u64>, Failure> {
    let text = "the quick brown fox counts seven small boats on a wide river while rain falls over old stone walls and \
                warm light moves along every narrow street past open doors with bread salt tea iron glass paper wool \
                and a clock";
    let reply = server.post("/tokenize", &json!({ "model": model, "prompt": text })).await?;
    let ids: Vec<u64> = reply["tokens"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    if ids.is_empty() { Err(Failure::Broken("/tokenize gave no tokens".into())) } else { Ok(ids) }
}

fn body(args: &BenchServeArgs, model: &str, vocabulary: &[u64], rng: &mut impl Rng) -> Value {
    let prompt: Vec<u64> = (0..args.prompt_tokens).map(|_| vocabulary[rng.random_range(0..vocabulary.len())]).collect();
    json!({
        "model": model, "prompt": prompt, "max_tokens": args.max_tokens, "ignore_eos": true, "temperature": 1.0,
        "seed": rng.random::<u32>(), "stream": true, "stream_options": { "include_usage": true },
    })
}

/// Times of one request, in seconds from its arrival, and its tokens.
struct MeasuredRequest {
    /// When the first text came; `None` if none did. Random weights mostly sample ids that stand for no text, and a
    /// service sends nothing for these, so such a stream is whole and its tokens are not seen from here.
    first: Option<f64>,
    gaps: Vec<f64>,
    end: f64,
    prompt_tokens: u64,
    output_tokens: u64,
    /// The reply's own `timings`, if it has some: milliseconds to the first token, and that 95 of 100 gaps between
    /// tokens are at most.
    timings: Option<(f64, f64)>,
}

async fn one(
    server: &ServiceClient,
    places: &Semaphore,
    start: Instant,
    at: Duration,
    body: &Value,
) -> Result<MeasuredRequest, Failure> {
    actix_rt::time::sleep_until((start + at).into()).await;
    let _place = places.acquire().await.expect("the semaphore is never closed");
    let arrived = start + at;
    let mut events = server.stream("/v1/completions", body).await?;
    let mut times = Vec::new();
    let mut usage = Value::Null;
    let mut timings = None;
    let mut finished = false;
    while let Some(event) = events.next().await? {
        if event["choices"]
            .as_array()
            .is_some_and(|c| c.iter().any(|c| c["text"].as_str().is_some_and(|t| !t.is_empty())))
        {
            times.push(arrived.elapsed().as_secs_f64());
        }
        finished |= event["choices"].as_array().is_some_and(|c| c.iter().any(|c| c["finish_reason"].is_string()));
        if event["usage"].is_object() {
            usage = event["usage"].clone();
            timings = event["timings"]["ttft_ms"].as_f64().zip(event["timings"]["itl_ms_p95"].as_f64());
        }
    }
    let end = arrived.elapsed().as_secs_f64();
    if !finished || usage.is_null() {
        return Err(Failure::Broken("the stream ended without a finish reason and its usage".into()));
    }
    let first = times.first().copied();
    let gaps = times.windows(2).map(|w| w[1] - w[0]).collect();
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    Ok(MeasuredRequest {
        first,
        gaps,
        end,
        prompt_tokens: count("prompt_tokens"),
        output_tokens: count("completion_tokens"),
        timings,
    })
}

/// The figures of one run.
#[derive(Debug, Serialize)]
struct LoadReport {
    url: String,
    model: String,
    /// `null` for all at once.
    rate_per_s: Option<f64>,
    concurrency: u32,
    prompt_tokens: u32,
    max_tokens: u32,
    wall_s: f64,
    completed: usize,
    /// Of these, the ones that wrote no text: they are in no time between pieces as they arrive.
    silent: usize,
    /// Failed requests by kind.
    errors: BTreeMap<String, usize>,
    requests_per_s: f64,
    prompt_tokens_per_s: f64,
    output_tokens_per_s: f64,
    ttft_ms: Option<OrderStatistics>,
    itl_ms: Option<OrderStatistics>,
    e2e_ms: Option<OrderStatistics>,
    /// Times by the replies' own `timings`: from admission to the first token, and each request's 95th percentile
    /// between tokens.
    service_ttft_ms: Option<OrderStatistics>,
    service_itl_p95_ms: Option<OrderStatistics>,
}

impl LoadReport {
    fn new(
        args: &BenchServeArgs,
        model: String,
        wall: Duration,
        results: Vec<Result<MeasuredRequest, Failure>>,
    ) -> Self {
        let mut errors = BTreeMap::new();
        let mut done = Vec::new();
        for result in results {
            match result {
                Ok(measured) => done.push(measured),
                Err(failure) => *errors.entry(failure.kind()).or_default() += 1,
            }
        }
        let ms = |seconds: Vec<f64>| OrderStatistics::of(&seconds.into_iter().map(|s| s * 1e3).collect::<Vec<_>>());
        let per_s = |n: u64| n as f64 / wall.as_secs_f64();
        Self {
            url: args.url.clone(),
            model,
            rate_per_s: args.rate.is_finite().then_some(args.rate),
            concurrency: args.concurrency,
            prompt_tokens: args.prompt_tokens,
            max_tokens: args.max_tokens,
            wall_s: wall.as_secs_f64(),
            completed: done.len(),
            silent: done.iter().filter(|m| m.first.is_none()).count(),
            errors,
            requests_per_s: per_s(done.len() as u64),
            prompt_tokens_per_s: per_s(done.iter().map(|m| m.prompt_tokens).sum()),
            output_tokens_per_s: per_s(done.iter().map(|m| m.output_tokens).sum()),
            ttft_ms: ms(done.iter().filter_map(|m| m.first).collect()),
            itl_ms: ms(done.iter().flat_map(|m| m.gaps.clone()).collect()),
            e2e_ms: ms(done.iter().map(|m| m.end).collect()),
            service_ttft_ms: OrderStatistics::of(&done.iter().filter_map(|m| Some(m.timings?.0)).collect::<Vec<_>>()),
            service_itl_p95_ms: OrderStatistics::of(
                &done.iter().filter_map(|m| Some(m.timings?.1)).collect::<Vec<_>>(),
            ),
        }
    }

    fn errors_text(&self) -> String {
        match self.errors.is_empty() {
            true => "none".into(),
            false => self.errors.iter().map(|(kind, n)| format!("{kind} {n}")).collect::<Vec<_>>().join(", "),
        }
    }

    fn table(&self) -> String {
        let mut out = format!(
            "{} requests done in {:.1} s, {} of them without text, failed: {}\n{:.2} requests/s, \
             {:.0} prompt tokens/s, {:.1} output tokens/s\n\n",
            self.completed,
            self.wall_s,
            self.silent,
            self.errors_text(),
            self.requests_per_s,
            self.prompt_tokens_per_s,
            self.output_tokens_per_s
        );
        out +=
            &format!("{:<18}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "ms", "mean", "p50", "p90", "p95", "p99", "max");
        let rows = [
            ("TTFT", self.ttft_ms),
            ("ITL", self.itl_ms),
            ("E2E", self.e2e_ms),
            ("TTFT, service", self.service_ttft_ms),
            ("ITL p95, service", self.service_itl_p95_ms),
        ];
        for (name, stats) in rows {
            out += &match stats {
                Some(s) => format!(
                    "{name:<18}{:>10.1}{:>10.1}{:>10.1}{:>10.1}{:>10.1}{:>10.1}\n",
                    s.mean, s.p50, s.p90, s.p95, s.p99, s.max
                ),
                None => format!("{name:<18}{:>10}\n", "-"),
            };
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: BenchServeArgs,
    }

    #[test]
    fn arrivals_keep_the_mean_rate_and_inf_sends_all_at_once() {
        let mut rng = StdRng::seed_from_u64(1);
        let times = arrivals(10.0, 10_001, &mut rng);
        let mean = times[10_000].as_secs_f64() / 10_000.0;
        assert!((mean - 0.1).abs() < 0.005, "mean gap {mean} s");
        assert!(times.is_sorted());
        assert!(arrivals(f64::INFINITY, 50, &mut rng).iter().all(|t| t.is_zero()));
    }

    #[test]
    fn failures_are_counted_by_kind_and_only_answers_are_measured() {
        let args = Cli::parse_from(["x"]).args;
        let timings = Some((400.0, 20.0));
        let answer = MeasuredRequest {
            first: Some(0.5),
            gaps: vec![0.01, 0.03],
            end: 1.0,
            prompt_tokens: 128,
            output_tokens: 32,
            timings,
        };
        let silent =
            MeasuredRequest { first: None, gaps: Vec::new(), end: 3.0, prompt_tokens: 128, output_tokens: 32, timings };
        let refused = || Failure::Status { code: 429, message: "full".into() };
        let results = vec![Ok(answer), Ok(silent), Err(refused()), Err(refused()), Err(Failure::Broken("x".into()))];
        let report = LoadReport::new(&args, "nano".into(), Duration::from_secs(2), results);
        assert_eq!(report.errors_text(), "broken 1, http_429 2");
        assert_eq!((report.completed, report.output_tokens_per_s, report.prompt_tokens_per_s), (2, 32.0, 128.0));
        assert_eq!((report.silent, report.ttft_ms.unwrap().count, report.e2e_ms.unwrap().max), (1, 1, 3000.0));
        assert_eq!((report.service_ttft_ms.unwrap().count, report.service_itl_p95_ms.unwrap().p95), (2, 20.0));
        assert_eq!(report.ttft_ms.unwrap().p50, 500.0);
        assert_eq!(report.itl_ms.unwrap().max, 30.0);
        assert!(report.table().contains("TTFT"), "{}", report.table());
    }

    #[test]
    fn a_rate_of_nothing_is_a_usage_error() {
        assert!(Cli::try_parse_from(["x", "--rate", "0"]).is_err());
        assert!(Cli::try_parse_from(["x", "--rate", "NaN"]).is_err());
        assert!(Cli::try_parse_from(["x", "--rate", "inf"]).is_ok());
    }
}
