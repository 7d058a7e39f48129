//! How the service ends: asked to, or because its engine is lost.

use crate::support::*;
use chimere::actors::phase::Phase;
use chimere::actors::watchdog::StepLimits;
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";

fn stream(server: &Server, text: &str) -> Stream {
    Stream::open(server.addr, CHAT, &with(ask(text), json!({"stream": true})))
}

/// The last event of a stream that broke: an error with its code, and no `[DONE]` after it.
#[track_caller]
fn ends_with_error(stream: &mut Stream, message: &str, code: &str) {
    let events = stream.events();
    let last = events.last().unwrap();
    assert!(last.starts_with("event: error\ndata: {\"error\":{"), "{events:?}");
    assert!(last.contains(message) && last.contains(&format!("\"code\":\"{code}\"")), "{last}");
    assert!(!events.iter().any(|e| e.contains("[DONE]")));
}

#[test]
fn a_drain_lets_running_streams_finish_and_takes_nothing_new() {
    let server = Server::start(Options::default());
    server.fake.allow(4);
    let mut running = stream(&server, "SAY[these are all my words]");
    running.chunk();
    let over = server.drain(PATIENCE);
    eventually("it drains", || server.phase() == Phase::Draining);
    let ready = get(server.addr, "/ready");
    assert_eq!((ready.status, ready.json()["status"].as_str()), (503, Some("draining")));
    assert_eq!(get(server.addr, "/health").status, 200);
    let refused = post(server.addr, CHAT, &ask("SAY[too late]"));
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (503, Some("shutting_down")));
    server.fake.allow_all();
    let chunks = running.chunks();
    assert_eq!(client::joined(&chunks, 0, "content"), "these are all my words");
    over.blocking_recv().unwrap();
    assert_eq!(server.phase(), Phase::Drained);
}

#[test]
fn what_still_runs_when_the_time_is_over_ends_with_an_event() {
    let server = Server::start(Options::default());
    server.fake.allow(5);
    let mut endless = stream(&server, "LOOP[more ]");
    endless.chunk();
    server.wait_for_standstill();
    let over = server.drain(Duration::from_millis(200));
    eventually("it drains", || server.phase() != Phase::Ready);
    ends_with_error(&mut endless, "the service is shutting down", "shutting_down");
    over.blocking_recv().unwrap();
    assert_eq!(server.phase(), Phase::Drained);
}

#[test]
fn a_step_that_never_ends_cannot_hold_up_the_end() {
    let server = Server::start(Options::default());
    server.fake.trouble(Trouble::StepNeverEnds);
    let mut stuck = stream(&server, "SAY[never]");
    server.drain(Duration::from_millis(100)).blocking_recv().unwrap();
    ends_with_error(&mut stuck, "the service is shutting down", "shutting_down");
}

#[test]
fn a_request_whose_numbers_are_none_ends_with_an_error_that_says_so_and_nobody_else_does() {
    let server = Server::start(Options { slots: 2, ..Options::default() });
    server.fake.allow(2);
    let mut beside = stream(&server, "LOOP[fine ]");
    let mut broken = stream(&server, "OVERFLOW LOOP[never ]");
    server.fake.allow_all();
    let why = "the model's numbers for this request are not finite; its weights or its activations overflow";
    ends_with_error(&mut broken, why, "not_finite");
    beside.chunk();
    drop(beside);
    let whole = post(server.addr, CHAT, &ask("OVERFLOW SAY[never]"));
    assert_eq!((whole.status, whole.json()["error"]["code"].as_str()), (500, Some("not_finite")));
    let embedding = post(server.addr, "/v1/embeddings", &serde_json::json!({"model": "tiny", "input": "OVERFLOW"}));
    assert_eq!((embedding.status, embedding.json()["error"]["code"].as_str()), (500, Some("not_finite")));
    assert_eq!(post(server.addr, CHAT, &ask("SAY[hello]")).status, 200);
    server.wait_for_live(0);
    let metrics = get(server.addr, "/metrics");
    let counted = metrics.text().lines().find_map(|line| line.strip_prefix("chimere_not_finite_total ")).unwrap();
    assert!(counted.parse::<u64>().unwrap() >= 3, "{counted}");
}

#[test]
fn an_idle_service_is_drained_at_once() {
    let server = Server::start(Options::default());
    server.drain(Duration::from_secs(60)).blocking_recv().unwrap();
    assert_eq!(server.phase(), Phase::Drained);
}

#[test]
fn a_lost_engine_ends_every_stream_with_an_error_and_turns_health() {
    for trouble in [Trouble::LaunchFails, Trouble::LaunchPanics, Trouble::StepFails, Trouble::StepPanics] {
        let server = Server::start(Options { slots: 2, ..Options::default() });
        server.fake.allow(0);
        let mut streams = [stream(&server, "LOOP[one ]"), stream(&server, "LOOP[two ]")];
        server.fake.allow(6);
        streams.iter_mut().for_each(|s| drop(s.chunk()));
        let addr = server.addr;
        let mut waiting = stream(&server, "LOOP[three ]");
        let whole = std::thread::spawn(move || post(addr, CHAT, &ask("LOOP[four ]")));
        server.wait_for_live(4);
        server.wait_for_standstill();
        server.fake.trouble(trouble);
        server.fake.allow_all();
        for stream in streams.iter_mut().chain([&mut waiting]) {
            ends_with_error(stream, "the engine is lost", "engine_unavailable");
        }
        let whole = whole.join().unwrap();
        assert_eq!((whole.status, whole.json()["error"]["type"].as_str()), (503, Some("server_error")), "{trouble:?}");
        assert!(matches!(server.phase(), Phase::Lost(_)), "{trouble:?}");
        assert_eq!((get(addr, "/health").status, get(addr, "/ready").status), (503, 503), "{trouble:?}");
        let late = post(addr, CHAT, &ask("SAY[late]"));
        assert_eq!(
            (late.status, late.json()["error"]["code"].as_str()),
            (503, Some("engine_unavailable")),
            "{trouble:?}"
        );
        server.wait_for_live(0);
    }
}

/// A watchdog that a test need not wait long for.
fn impatient() -> StepLimits {
    let (least, unpredicted, exit) = (Duration::from_secs(1), Duration::from_secs(1), Duration::from_millis(100));
    StepLimits { least, unpredicted, exit, ..StepLimits::default() }
}

#[test]
fn a_step_that_never_ends_is_noticed_and_loses_the_engine() {
    for trouble in [Trouble::StepNeverEnds, Trouble::LaunchNeverReturns] {
        let server = Server::start(Options { step_limits: impatient(), ..Options::default() });
        assert_eq!(get(server.addr, "/health").json(), json!({"status": "ok"}));
        server.fake.trouble(trouble);
        let mut stuck = stream(&server, "SAY[never]");
        ends_with_error(&mut stuck, "the engine is lost", "engine_unavailable");
        let health = get(server.addr, "/health");
        assert_eq!((health.status, health.json()["status"].as_str()), (503, Some("engine lost")), "{trouble:?}");
        let reason = health.json()["reason"].as_str().unwrap().to_owned();
        assert!(reason.starts_with("step ") && reason.contains("made no progress for"), "{reason}");
        assert_eq!(get(server.addr, "/ready").status, 503);
        let metrics = get(server.addr, "/metrics");
        assert!(metrics.text().contains("\nchimere_engine_lost 1"), "{}", metrics.text());
        server.wait_for_live(0);
    }
}

/// Not a test of its own: the process that the next one watches.
#[test]
#[ignore = "the other process of a_process_whose_engine_is_lost_ends_whatever_holds_it_up"]
fn serve_with_a_step_that_never_ends() {
    if std::env::var_os("CHIMERE_TEST_LOSES_ITS_ENGINE").is_none() {
        return;
    }
    let end_process = chimere::serve::end_process_now;
    let server = Server::start(Options { step_limits: impatient(), end_process, ..Options::default() });
    server.fake.trouble(Trouble::StepNeverEnds);
    let _stuck = stream(&server, "SAY[never]");
    // As a thread does that is inside a driver which does not answer.
    loop {
        std::thread::park();
    }
}

#[test]
fn a_process_whose_engine_is_lost_ends_whatever_holds_it_up() {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ending::serve_with_a_step_that_never_ends", "--ignored"])
        .env("CHIMERE_TEST_LOSES_ITS_ENGINE", "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut status = None;
    eventually("the process ends", || {
        status = process.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(3));
}
