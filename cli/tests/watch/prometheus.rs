//! A real Prometheus: Debian's package `prometheus`, which brings `promtool`. It scrapes a service, or replays a
//! recording, and answers as it answers Grafana.

use crate::dashboards::read;
use crate::support::{eventually, get};
use chimere::metrics::panels::Panel;
use serde_json::Value;
use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// How often it scrapes here, in seconds.
pub(crate) const SCRAPE: u32 = 1;
/// Panels of what is taken when the service starts, which may stand still.
const FIXED: [&str; 11] = [
    "Memory of the device",
    "Margin",
    // No tables lie in a directory, and no edits come late on this model.
    "Tables",
    "Bytes of tables",
    "Edits that came late",
    "Waiting for late edits",
    // A CPU has none.
    "Graphs replayed",
    // What this service says goes into a pipe that holds all of it.
    "Log and traces that were lost",
    // This model has no chat template, so that nobody can ask it to think; .ci/smoke.py asks one that has.
    "Thinking",
    "Why thinking ended",
    // Whom this small service refuses it could take in a moment.
    "Predicted waits",
];

/// Metrics that show something and may stand still: there is room for one state, which the first prompt takes; and what
/// takes microseconds may all fall into one bucket.
const STEADY: [&str; 5] = [
    "chimere_prefix_entries",
    "chimere_grammar_mask_seconds_bucket",
    "chimere_engram_lookup_seconds_bucket",
    "chimere_engram_late_seconds_bucket",
    "chimere_semantic_search_seconds_bucket",
];

/// Whether a program can be run. Where it cannot, says so, or fails if that was ruled out.
pub(crate) fn have(program: &str, what: &str) -> bool {
    let error = match Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => return true,
        Ok(status) => format!("{program} --version: {status}"),
        Err(e) => format!("{program}: {e}"),
    };
    let required = std::env::var("CHIMERE_REQUIRE").unwrap_or_default().split(',').any(|r| r == what);
    assert!(!required, "{error}");
    eprintln!("skipped: {error}");
    false
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// Most rounds of load before a query that has not moved is a failure. Two are usual; only a test that fails needs all.
const ROUNDS_MAX: usize = 20;

/// Tries again, with the number of tries before, until there are no complaints. No clock decides: on a slow machine a
/// try takes longer.
#[track_caller]
pub(crate) fn until_no_complaint(mut complaints: impl FnMut(usize) -> Vec<String>) {
    let mut last = Vec::new();
    for round in 0..ROUNDS_MAX {
        last = complaints(round);
        if last.is_empty() {
            return;
        }
        eprintln!("round {round}: {} queries have not moved", last.len());
    }
    panic!("after {ROUNDS_MAX} rounds of load: {}", last.join("\n"));
}

/// A running Prometheus, with its files.
pub(crate) struct Prometheus {
    child: Child,
    pub(crate) addr: SocketAddr,
    /// Holds its files; the directory is removed when this is dropped.
    _dir: tempfile::TempDir,
}

impl Prometheus {
    /// With the repository's configuration, pointed at `target`, and at others that answer over TLS.
    pub(crate) fn scraping(target: SocketAddr, encrypted: &[SocketAddr]) -> Self {
        let config = read("prometheus.yml")
            .replace("127.0.0.1:8080", &target.to_string())
            .replace("scrape_interval: 5s", &format!("scrape_interval: {SCRAPE}s"));
        assert!(config.contains(&target.to_string()) && config.contains(&format!("{SCRAPE}s")), "{config}");
        let another = |addr: &SocketAddr| {
            format!(
                "  - job_name: encrypted\n    scheme: https\n    tls_config: {{insecure_skip_verify: true}}\n    static_configs: \
                 [{{targets: [\"{addr}\"]}}]\n"
            )
        };
        let config = encrypted.iter().map(another).fold(config, |config, another| config + &another);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("alerts.yml"), read("alerts.yml")).unwrap();
        Self::start(dir, &config)
    }

    /// Scraping nothing, with the samples of a recording.
    pub(crate) fn replaying(recording: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        run(Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "openmetrics", "--quiet"])
            .arg(recording)
            .arg(dir.path().join("data")));
        Self::start(dir, "global: {}\n")
    }

    fn start(dir: tempfile::TempDir, config: &str) -> Self {
        std::fs::write(dir.path().join("prometheus.yml"), config).unwrap();
        let (mut child, mut addr) = spawned(dir.path());
        eventually("Prometheus answers", || {
            // Another program may have taken its port; then it ends, and another one is tried.
            if child.try_wait().unwrap().is_some() {
                (child, addr) = spawned(dir.path());
            }
            std::net::TcpStream::connect(addr).is_ok() && get(addr, "/-/ready").status == 200
        });
        Self { child, addr, _dir: dir }
    }

    pub(crate) fn ask(&self, path: &str) -> Value {
        let reply = get(self.addr, path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()["data"].clone()
    }

    /// Waits until it has finished a scrape of the service that began after this call.
    fn scrapes_again(&self) {
        let called = now();
        let query = escaped("timestamp(chimere_requests_running{job=\"chimere\"})");
        eventually("Prometheus scrapes the service", || {
            let answer = self.ask(&format!("/api/v1/query?query={query}"));
            answer["result"][0]["value"][1].as_str().is_some_and(|time| time.parse::<f64>().unwrap() > called)
        });
    }

    /// Drives a load, whose rounds are counted from 0, until every query of these panels has moved, and gives the time
    /// that this took. A counter that rises before the first scrape, or between two that are too far apart, is not seen
    /// to move: then it rises again in the next round.
    #[track_caller]
    pub(crate) fn sees_move(&self, panels: &[Panel], drive: impl Fn(usize)) -> (f64, f64) {
        let begin = now();
        // The next point in time is after the last scrape.
        let within = || (begin, now() + f64::from(SCRAPE));
        self.scrapes_again();
        until_no_complaint(|round| {
            drive(round);
            self.scrapes_again();
            self.all_complaints(panels, within(), SCRAPE.into())
        });
        within()
    }

    /// The values of each series that a panel's query returns within a time, as Grafana would ask for them.
    fn series(&self, query: &str, within: (f64, f64), step: f64) -> Vec<Vec<f64>> {
        let window = format!("{}s", (4.0 * step).ceil());
        let query = query.replace("$__rate_interval", &window).replace("$job", ".*").replace("$test", ".*");
        let (begin, end) = within;
        let data =
            self.ask(&format!("/api/v1/query_range?query={}&start={begin}&end={end}&step={step}", escaped(&query)));
        let list = |value: &Value| value.as_array().cloned().unwrap();
        let number = |sample: &Value| sample[1].as_str().unwrap().parse::<f64>().unwrap();
        list(&data["result"])
            .iter()
            .map(|s| list(&s["values"]).iter().map(number).filter(|v| v.is_finite()).collect())
            .collect()
    }

    /// What is wrong with a panel: a query without a value, or without a series that moves.
    pub(crate) fn complaints(&self, panel: &Panel, within: (f64, f64), step: f64) -> Vec<String> {
        let still = |values: &[f64]| values.windows(2).all(|w| w[0] == w[1]);
        let may_stay = |query: &str, series: &[Vec<f64>]| {
            STEADY.iter().any(|name| query.contains(name)) && series.iter().flatten().any(|value| *value > 0.0)
        };
        let wrong = |query: &&String| {
            let series = self.series(query, within, step);
            series.iter().all(Vec::is_empty)
                || !FIXED.contains(&panel.title.as_str())
                    && series.iter().all(|v| still(v))
                    && !may_stay(query, &series)
        };
        let bad = panel.queries.iter().filter(wrong);
        bad.map(|q| format!("{}: {q} gives {:?}", panel.title, self.series(q, within, step))).collect()
    }

    pub(crate) fn all_complaints(&self, panels: &[Panel], within: (f64, f64), step: f64) -> Vec<String> {
        panels.iter().flat_map(|panel| self.complaints(panel, within, step)).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The program on a port that is free now, with the configuration and the data in a folder.
fn spawned(dir: &Path) -> (Child, SocketAddr) {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address={addr}"))
        // Recordings grow old.
        .args(["--storage.tsdb.retention.time=100y", "--web.enable-remote-write-receiver", "--log.level=error"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    (child, addr)
}

/// A query as part of an address.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, b| {
        if b.is_ascii_alphanumeric() {
            out.push(b.into())
        } else {
            write!(out, "%{b:02X}").unwrap()
        }
        out
    })
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}
