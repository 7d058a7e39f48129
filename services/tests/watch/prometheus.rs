//! A real Prometheus: Debian's package `prometheus`, which brings `promtool`. It scrapes a service, or replays a
//! recording, and answers as it answers Grafana.

use crate::dashboards::read;
use crate::support::get;
use chimere::metrics::panels::Panel;
use serde_json::Value;
use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

/// A running Prometheus, with its files.
pub(crate) struct Prometheus {
    child: Child,
    pub(crate) addr: SocketAddr,
    /// Goes with it.
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
        // Free now; nobody else on loopback asks for a port by number.
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={addr}"))
            // Recordings grow old.
            .args(["--storage.tsdb.retention.time=100y", "--web.enable-remote-write-receiver", "--log.level=error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let this = Self { child, addr, _dir: dir };
        let end = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(addr).is_err() || get(addr, "/-/ready").status != 200 {
            assert!(Instant::now() < end, "prometheus does not answer on {addr}");
            std::thread::sleep(Duration::from_millis(50));
        }
        this
    }

    pub(crate) fn ask(&self, path: &str) -> Value {
        let reply = get(self.addr, path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()["data"].clone()
    }

    /// Waits until it has scraped this metric.
    pub(crate) fn has_seen(&self, name: &str) {
        let end = Instant::now() + Duration::from_secs(30);
        while self.ask(&format!("/api/v1/query?query={name}"))["result"].as_array().is_none_or(Vec::is_empty) {
            assert!(Instant::now() < end, "prometheus does not scrape {name}");
            std::thread::sleep(Duration::from_millis(50));
        }
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

    #[track_caller]
    pub(crate) fn shows(&self, panels: &[Panel], within: (f64, f64), step: f64) {
        assert!(!panels.is_empty());
        let complaints: Vec<_> = panels.iter().flat_map(|p| self.complaints(p, within, step)).collect();
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
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

pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}
