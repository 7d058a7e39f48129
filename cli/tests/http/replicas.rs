//! Several replicas behind one door: who gets a request, and what becomes of the requests of one that is lost.

use crate::support::client::{done, joined};
use crate::support::*;
use chimere::actors::phase::Phase;
use chimere::actors::watchdog::StepLimits;
use serde_json::{Value, json};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn stream(server: &Server, text: &str) -> Stream {
    Stream::open(server.addr, CHAT, &with(ask(text), json!({"stream": true})))
}

fn two() -> Options {
    Options { replicas: 2, slots: 2, ..Options::default() }
}

/// The statuses of both probes, and the word of `/health`.
fn probes(server: &Server) -> (u16, String, u16) {
    let health = get(server.addr, "/health");
    let word = health.json()["status"].as_str().unwrap().to_owned();
    (health.status, word, get(server.addr, "/ready").status)
}

#[test]
fn requests_go_to_the_replica_that_has_fewer_and_what_one_refuses_another_takes() {
    let server = Server::start(Options { queue_requests: 1, ..two() });
    server.fake.step_time(Duration::from_millis(2));
    let mut running: Vec<_> = (0..4).map(|i| stream(&server, &format!("LOOP[{i} ]"))).collect();
    running.iter_mut().for_each(|one| drop(one.chunk()));
    server.fake.allow(0);
    // All slots are taken. One request may wait at each.
    let addr = server.addr;
    let waiting = [(); 2].map(|()| std::thread::spawn(move || post(addr, CHAT, &ask("SAY[later]"))));
    server.wait_for_live(6);
    let loads = get(addr, "/v1/loads").json();
    assert_eq!(loads["loads"][0]["max_running_requests"], 4, "{loads}");
    let refused = post(addr, CHAT, &ask("SAY[too much]"));
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (429, Some("queue_full")));
    drop(running);
    server.fake.allow_all();
    for one in waiting {
        assert_eq!(done(one.join().unwrap())["choices"][0]["message"]["content"], "later");
    }
}

#[test]
fn a_key_has_no_more_requests_at_once_than_it_may_on_all_replicas_together() {
    let server = Server::start(Options { keys: keys("a requests=3\nb"), slots: 4, ..two() });
    let key = |name: &'static str| [("authorization", format!("Bearer {name}"))];
    let post = |name: &'static str, text: &str| {
        let [(header, value)] = key(name);
        request(server.addr, "POST", CHAT, &[(header, value.as_str())], ask(text).to_string().as_bytes())
    };
    std::thread::scope(|scope| {
        server.fake.allow(0);
        let running: Vec<_> = (0..3).map(|_| scope.spawn(|| post("a", "SAY[a word]"))).collect();
        server.wait_for_live(3);
        let refused = post("a", "SAY[one more]");
        server.fake.allow_all();
        assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (429, Some("key_busy")));
        running.into_iter().for_each(|one| drop(done(one.join().unwrap())));
    });
    assert_eq!(post("a", "SAY[room again]").content(), "room again");
}

#[test]
fn streams_of_a_lost_replica_go_on_with_the_next_token_and_health_says_that_it_is_degraded() {
    for trouble in [Trouble::LaunchFails, Trouble::LaunchPanics, Trouble::StepFails, Trouble::StepPanics] {
        let server = Server::start(Options { slots: 4, ..two() });
        assert_eq!(probes(&server), (200, "ok".into(), 200));
        server.fake.step_time(Duration::from_millis(2));
        let words = |i: usize| (0..100).map(|n| format!("w{i}x{n} ")).collect::<String>();
        let mut all: Vec<_> = (0..6).map(|i| stream(&server, &format!("SAY[{}]", words(i)))).collect();
        let first: Vec<_> = all.iter_mut().map(Stream::chunk).collect();
        server.fake.trouble(trouble);
        for (i, (one, first)) in all.iter_mut().zip(first).enumerate() {
            let chunks: Vec<_> = std::iter::once(first).chain(one.chunks()).collect();
            assert_eq!(joined(&chunks, 0, "content"), words(i), "{trouble:?}");
        }
        // Where all had ended before it, the trouble comes with this one.
        assert_eq!(post(server.addr, CHAT, &ask("SAY[one more]")).content(), "one more", "{trouble:?}");
        eventually("health says so", || probes(&server) == (200, "degraded".into(), 200));
        let health = get(server.addr, "/health").json();
        assert_eq!((&health["replicas"], health["lost"].as_array().unwrap().len()), (&json!(2), 1));
        assert_eq!(
            done(post(server.addr, CHAT, &ask("SAY[still here]")))["choices"][0]["message"]["content"],
            "still here"
        );
        // The last one takes the service with it.
        server.fake.trouble(trouble);
        let last = post(server.addr, CHAT, &ask("LOOP[on ]"));
        assert_eq!((last.status, last.json()["error"]["code"].as_str()), (503, Some("engine_unavailable")));
        assert!(matches!(server.phase(), Phase::Lost(_)));
        assert_eq!(probes(&server), (503, "engine lost".into(), 503));
        server.wait_for_live(0);
    }
}

#[test]
fn a_replica_whose_step_never_ends_loses_its_streams_to_another_one_and_the_process_goes_on() {
    let (least, unpredicted, exit) = (Duration::from_secs(1), Duration::from_secs(1), Duration::from_millis(100));
    let step_limits = StepLimits { least, unpredicted, exit, ..StepLimits::default() };
    for trouble in [Trouble::StepNeverEnds, Trouble::LaunchNeverReturns] {
        let end_process = || panic!("the process is not to end");
        let server = Server::start(Options { step_limits, end_process, ready_replicas: 2, ..two() });
        server.fake.trouble(trouble);
        let mut stuck = stream(&server, "SAY[in the end]");
        assert_eq!(joined(&stuck.chunks(), 0, "content"), "in the end", "{trouble:?}");
        assert_eq!(probes(&server), (200, "degraded".into(), 503), "two have to live");
        std::thread::sleep(4 * exit);
        assert_eq!(done(post(server.addr, CHAT, &ask("SAY[on]")))["choices"][0]["message"]["content"], "on");
        std::mem::forget(server);
    }
}

#[test]
fn a_drain_lets_the_streams_of_all_replicas_finish() {
    let server = Server::start(two());
    server.fake.allow(4);
    let mut running: Vec<_> = (0..4).map(|i| stream(&server, &format!("SAY[words of {i}]"))).collect();
    server.wait_for_live(4);
    let over = server.drain(PATIENCE);
    eventually("it drains", || server.phase() == Phase::Draining);
    server.fake.allow_all();
    for (i, one) in running.iter_mut().enumerate() {
        assert_eq!(joined(&one.chunks(), 0, "content"), format!("words of {i}"));
    }
    over.blocking_recv().unwrap();
    assert_eq!(server.phase(), Phase::Drained);
}

/// Requests of all kinds whose bytes a request's seed decides.
fn mixed(n: usize) -> Value {
    let prompt = format!("{} once upon a time", "and then ".repeat(n % 17));
    let body = json!({"prompt": prompt, "max_tokens": 12 + n % 20, "seed": n, "ignore_eos": true});
    let more = match n % 8 {
        0 => json!({"temperature": 0}),
        1 => json!({"temperature": 1, "logprobs": 3}),
        2 => json!({"temperature": 0.8, "top_p": 0.9, "n": 2}),
        3 => json!({"temperature": 1, "repetition_penalty": 1.3, "frequency_penalty": 0.5}),
        4 => json!({"temperature": 1, "ignore_eos": false, "response_format": {"type": "json_schema", "json_schema": {
            "name": "form", "schema": {"type": "object", "required": ["a", "b"], "additionalProperties": false,
                "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}}}}}),
        5 => json!({"temperature": 1, "echo": true, "logprobs": 1}),
        6 => json!({"prompt": [prompt, "another one"], "temperature": 1}),
        _ => json!({"temperature": 1.2, "min_p": 0.05, "logit_bias": {"5": 3}}),
    };
    with(body, more)
}

/// What a reply says, without what names or times it.
fn told(reply: &Value) -> Value {
    json!({"choices": reply["choices"], "completion_tokens": reply["usage"]["completion_tokens"],
           "prompt_tokens": reply["usage"]["prompt_tokens"]})
}

/// The answers to so many requests of all kinds, sent together; `meanwhile` runs beside them.
fn answers(server: &Server, requests: usize, meanwhile: impl FnOnce()) -> Vec<Value> {
    let addr = server.addr;
    let all: Vec<_> =
        (0..requests).map(|n| std::thread::spawn(move || done(post(addr, COMPLETIONS, &mixed(n))))).collect();
    meanwhile();
    all.into_iter().map(|one| told(&one.join().unwrap())).collect()
}

/// Streams that run on to their full length, with the moments at which their tokens come.
fn open_streams(server: &Server, count: usize) -> Vec<JoinHandle<Vec<Instant>>> {
    let body = |n: usize| {
        json!({"prompt": format!("{n} once upon a time"), "max_tokens": 200, "seed": n, "temperature": 1,
               "ignore_eos": true, "stream": true})
    };
    let mut all: Vec<_> = (0..count).map(|n| Stream::open(server.addr, COMPLETIONS, &body(n))).collect();
    all.iter_mut().for_each(|one| drop(one.chunk()));
    let listen = |mut one: Stream| {
        std::thread::spawn(move || std::iter::from_fn(|| one.event().map(|_| Instant::now())).collect())
    };
    all.into_iter().map(listen).collect()
}

/// The longest time from a loss to the next token, of all streams that had one before it and have one behind it.
fn pause(loss: Instant, streams: &[Vec<Instant>]) -> Duration {
    let running = streams.iter().filter(|times| times.first().is_some_and(|first| *first < loss));
    let next = running.filter_map(|times| times.iter().find(|time| **time > loss));
    next.map(|time| *time - loss).max().unwrap_or_default()
}

/// With `CHIMERE_TEST_DEVICES=0,1` two replicas compute on these GPUs, and one is lost by a trap.
#[test]
fn answers_have_the_same_bytes_whatever_replica_is_lost_in_the_middle_of_200_of_them() {
    let devices = test_devices();
    let losses = match &devices {
        Some(_) => vec![(40, Trouble::Traps)],
        None => vec![(40, Trouble::StepFails), (120, Trouble::LaunchFails)],
    };
    let options = || Options {
        real: true,
        replicas: devices.as_ref().map_or(3, Vec::len),
        slots: 8,
        queue_requests: 256,
        queue_tokens: 1 << 20,
        connections: 512,
        ..Options::default()
    };
    let undisturbed = answers(&Server::start(options()), 200, || {});
    let server = Server::start(options());
    let launched = || server.fake.launched();
    let (streams, mut moments) = (open_streams(&server, 12), Vec::new());
    let disturbed = answers(&server, 200, || {
        for (steps, trouble) in &losses {
            let from = launched();
            eventually("steps are launched", || launched() >= from + steps || server.live() == 0);
            server.fake.trouble(*trouble);
            moments.push(Instant::now());
        }
    });
    for (n, (disturbed, undisturbed)) in disturbed.iter().zip(&undisturbed).enumerate() {
        assert_eq!(disturbed, undisturbed, "request {n}: {}", mixed(n));
    }
    assert_eq!(get(server.addr, "/health").json()["lost"].as_array().map(Vec::len), Some(losses.len()));
    let streams: Vec<_> = streams.into_iter().map(|one| one.join().unwrap()).collect();
    for (moment, (_, trouble)) in moments.into_iter().zip(losses) {
        println!("{trouble:?}: the last of 12 streams went on {:.1?} after it", pause(moment, &streams));
    }
}
