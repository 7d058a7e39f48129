//! Who comes in, whose turn it is, and by when: keys, limits, deadlines, predicted waits.

use crate::support::client::bytes;
use crate::support::*;
use chimere::clock::Clock;
use chimere_engine::scheduler::Pace;
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

fn send(server: &Server, headers: &[(&str, &str)], body: &Value) -> Reply {
    request(server.addr, "POST", CHAT, headers, body.to_string().as_bytes())
}

fn as_key(server: &Server, key: &str, body: &Value) -> Reply {
    send(server, &[("Authorization", &bearer(key))], body)
}

/// A stream of a key, opened and left to run.
fn open(server: &Server, key: &str, text: &str, more: Value) -> BufReader<std::net::TcpStream> {
    let mut socket = client::connect(server.addr);
    let body = with(with(ask(text), json!({"stream": true})), more).to_string();
    socket.write_all(&bytes("POST", CHAT, &[("Authorization", &bearer(key))], body.as_bytes())).unwrap();
    BufReader::new(socket)
}

#[track_caller]
fn refused(reply: &Reply, code: &str) {
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (429, Some(code)), "{}", reply.text());
    let millis: u64 = reply.header("retry-after-ms").unwrap().parse().unwrap();
    assert!((1_000..=60_000).contains(&millis), "{millis}");
    assert_eq!(reply.header("retry-after").unwrap(), millis.div_ceil(1000).to_string());
    assert_eq!(reply.header("x-llm-d-request-dropped-reason"), Some(code), "a router reads it too");
}

#[test]
fn a_key_has_no_more_requests_at_once_than_its_line_says_and_others_are_not_touched() {
    let server = Server::start(Options { keys: keys("a requests=1\nb"), ..Options::default() });
    server.fake.allow(6);
    let running = open(&server, "a", "LOOP[x ]", json!({}));
    server.wait_for_standstill();
    refused(&as_key(&server, "a", &ask("SAY[no]")), "key_busy");
    let other = open(&server, "b", "SAY[yes]", json!({}));
    server.wait_for_live(2);
    drop((running, other));
    server.wait_for_live(0);
    server.fake.allow_all();
    assert_eq!(as_key(&server, "a", &ask("SAY[room again]")).content(), "room again");
}

#[test]
fn a_key_takes_no_more_tokens_a_minute_than_its_line_says() {
    let server = Server::start(Options { keys: keys("a tokens_per_minute=100\nb"), ..Options::default() });
    let more = with(ask("LOOP[x ]"), json!({"max_tokens": 100}));
    assert_eq!(as_key(&server, "a", &more).status, 200);
    refused(&as_key(&server, "a", &ask("SAY[no]")), "key_rate");
    assert_eq!(as_key(&server, "b", &ask("SAY[yes]")).content(), "yes");
}

#[test]
fn a_key_that_asks_for_little_starts_before_the_rest_of_one_that_asks_for_much() {
    let names = ["x-gateway-inference-fairness-id", "x-llm-d-inference-fairness-id"];
    for gateway in [None, Some(names[0]), Some(names[1])] {
        let server = Server::start(Options { slots: 1, keys: keys("a\nb"), trust_gateway: true, ..Options::default() });
        server.fake.allow(5);
        let first = open(&server, "a", "LOOP[x ]", json!({"max_tokens": 20}));
        server.wait_for_standstill();
        let waiting: Vec<_> = (0..3).map(|_| open(&server, "a", "SAY[a]", json!({}))).collect();
        server.wait_for_live(4);
        // Another key, or another user behind the same gateway.
        let body = ask("SAY[modest]").to_string();
        let (key, name) = gateway.map_or(("b", ""), |name| ("a", name));
        let mut socket = client::connect(server.addr);
        let headers = [("Authorization", &*bearer(key)), (name, "somebody")];
        socket
            .write_all(&bytes("POST", CHAT, &headers[..1 + usize::from(gateway.is_some())], body.as_bytes()))
            .unwrap();
        server.wait_for_live(5);
        let before = server.fake.launched();
        server.fake.allow_all();
        server.wait_for_live(0);
        // Sequences are numbered as they came: 0 was the warm-up, 1 runs, 2 to 4 wait, 5 is the modest one.
        let firsts = server.fake.plans().into_iter().skip(before).flat_map(|p| p.pieces).filter(|p| p.start == 0);
        assert_eq!(firsts.map(|p| p.seq.0).next(), Some(5));
        drop((first, waiting, socket));
    }
}

#[test]
fn within_a_key_a_lower_priority_value_goes_first() {
    let server = Server::start(Options { slots: 1, ..Options::default() });
    server.fake.allow(5);
    let _running = Stream::open(server.addr, CHAT, &with(ask("LOOP[x ]"), json!({"stream": true, "max_tokens": 20})));
    server.wait_for_standstill();
    let open = |priority: i64| {
        Stream::open(server.addr, CHAT, &with(ask("SAY[x]"), json!({"stream": true, "priority": priority})))
    };
    let _waiting = [open(0), open(5), open(-5)];
    server.wait_for_live(4);
    let before = server.fake.launched();
    server.fake.allow_all();
    server.wait_for_live(0);
    let firsts = server.fake.plans().into_iter().skip(before).flat_map(|p| p.pieces).filter(|p| p.start == 0);
    assert_eq!(firsts.map(|p| p.seq.0).collect::<Vec<_>>(), [4, 2, 3]);
    let reply = post(server.addr, CHAT, &with(ask("SAY[x]"), json!({"priority": 1u64 << 40})));
    assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some("priority")));
}

#[test]
fn a_deadline_that_passes_is_504_or_the_last_event_of_a_stream() {
    // By the service's clock nothing takes any time, so that a second seems enough however busy the machine is.
    let server = Server::start(Options { clock: Clock::stopped(), ..Options::default() });
    let (deadline, few) = ([("x-chimere-deadline-ms", "1000")], with(ask("LOOP[x ]"), json!({"max_tokens": 10})));
    server.fake.allow(6);
    let reply = send(&server, &deadline, &few);
    assert_eq!(
        (reply.status, reply.json()["error"]["code"].as_str()),
        (504, Some("deadline_passed")),
        "{}",
        reply.text()
    );
    server.wait_for_live(0);
    server.fake.allow(6);
    let reply =
        request(server.addr, "POST", CHAT, &deadline, with(few, json!({"stream": true})).to_string().as_bytes());
    let last = reply.text().trim_end().rsplit("\n\n").next().unwrap();
    assert!(
        last.starts_with("event: error\ndata: ") && last.contains("\"code\":\"deadline_passed\""),
        "{}",
        reply.text()
    );
    server.wait_for_live(0);
    server.fake.allow_all();
    assert_eq!(send(&server, &[("x-chimere-deadline-ms", "60000")], &ask("SAY[in time]")).content(), "in time");
    let reply = send(&server, &[("x-chimere-deadline-ms", "soon")], &ask("SAY[x]"));
    assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some("x-chimere-deadline-ms")));
}

/// A few tokens, 20 ms each on a slow service.
fn few() -> Value {
    with(ask("LOOP[x ]"), json!({"max_tokens": 14}))
}

/// A service with one slot that has learned what requests wait for: its steps take 20 ms, an answer 14 of them.
fn slow(pace: Pace) -> Server {
    let server = Server::start(Options { slots: 1, pace, ..Options::default() });
    server.fake.step_time(Duration::from_millis(20));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12).map(|_| scope.spawn(|| post(server.addr, CHAT, &few()).status)).collect();
        clients.into_iter().for_each(|client| assert_eq!(client.join().unwrap(), 200));
    });
    server
}

/// So many requests on a service that stands still, each with 280 ms of work.
fn crowd(server: &Server, n: usize) -> Vec<Stream> {
    server.fake.allow(2);
    let all = (0..n).map(|_| Stream::open(server.addr, CHAT, &with(few(), json!({"stream": true})))).collect();
    server.wait_for_live(n);
    server.wait_for_standstill();
    all
}

#[test]
fn a_deadline_that_cannot_be_met_is_refused_at_once() {
    let server = slow(Pace::default());
    // They take some 11 s, so that the deadline leaves seconds to a machine that is busy.
    let before = crowd(&server, 40);
    let reply = send(&server, &[("x-chimere-deadline-ms", "5000")], &few());
    refused(&reply, "deadline_unreachable");
    let said = reply.text();
    let left = said.split("its deadline is in ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    assert!(left.is_some_and(|seconds| (0.0..=5.0).contains(&seconds)), "{said}");
    drop(before);
    server.fake.allow_all();
    server.wait_for_live(0);
    let reply = send(&server, &[("x-chimere-deadline-ms", "60000")], &few());
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[test]
fn who_would_wait_too_long_behind_others_is_told_when_to_come_back() {
    let server = slow(Pace { wait_us_max: 1_000_000, ..Pace::default() });
    server.fake.allow(2);
    let mut before: Vec<Stream> = Vec::new();
    while before.len() < 40 && before.last().is_none_or(|last| last.status == 200) {
        before.push(Stream::open(server.addr, CHAT, &with(few(), json!({"stream": true}))));
    }
    assert!((2..40).contains(&before.len()), "{} were let in", before.len());
    let reply = post(server.addr, CHAT, &ask("SAY[x]"));
    refused(&reply, "wait_too_long");
    assert!(reply.text().contains("the most is 1.0 s"), "{}", reply.text());
    let metrics = get(server.addr, "/metrics").text().to_owned();
    assert!(metrics.contains("chimere_waiting_by_key{key=\"none\"}"), "{metrics}");
}

#[test]
fn before_waits_were_measured_nobody_is_refused_for_one() {
    let pace = Pace { wait_us_max: 1_000, ..Pace::default() };
    let server = Server::start(Options { slots: 1, pace, ..Options::default() });
    server.fake.step_time(Duration::from_millis(20));
    assert_eq!(post(server.addr, CHAT, &with(ask("LOOP[x ]"), json!({"max_tokens": 20}))).status, 200);
    let before = crowd(&server, 40);
    server.fake.step_time(Duration::ZERO);
    server.fake.allow_all();
    for mut stream in before {
        assert_eq!(stream.status, 200);
        while stream.event().is_some() {}
    }
    server.wait_for_live(0);
}
