//! Responses over WebSockets: the same answers as over HTTP, requests in a row, and the ways in which a socket ends.

use crate::edge::encrypted;
use crate::support::client::{connect, read_reply, refused};
use crate::support::socket::{BINARY, CLOSE, PING, PONG, TEXT, frame, handshake, part};
use crate::support::*;
use chimere::actors::phase::Phase;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

const RESPONSES: &str = "/v1/responses";

fn server() -> Server {
    Server::start(Options::default())
}

/// A request whose user says `text`, with thinking off.
fn say(text: &str) -> Value {
    json!({"model": "tiny", "input": text, "reasoning": {"effort": "none"}, "seed": 7})
}

fn not_kept(text: &str) -> Value {
    with(say(text), json!({"store": false}))
}

/// What an answer ends with: the response, or the error.
fn last(events: &[Value]) -> &Value {
    let last = events.last().unwrap();
    if last["type"] == "error" { last } else { &last["response"] }
}

fn text(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}"))
}

/// A socket whose first answer has begun, to a request that says `text`.
fn begun(server: &Server, text: &str) -> Socket {
    let mut socket = Socket::open(server.addr);
    socket.ask(&say(text));
    assert_eq!(socket.message()["type"], "response.created");
    socket
}

/// The refusal of a handshake.
fn no_socket(server: &Server, headers: &[(&str, &str)]) -> Reply {
    let mut stream = connect(server.addr);
    stream.write_all(handshake(RESPONSES, headers).as_bytes()).unwrap();
    read_reply(stream)
}

/// Events without the ids and the times that each response draws anew.
fn comparable(events: &[Value]) -> String {
    let text = json!(events).to_string();
    let ids = regex::Regex::new(r#"(resp|msg|rs|fc|call)_[0-9a-f]{8,}|"(created|completed)_at":\d+"#).unwrap();
    ids.replace_all(&text, "").into_owned()
}

#[test]
fn a_socket_gives_the_events_of_a_stream() {
    let server = server();
    let tools = json!([{"type": "function", "name": "add", "strict": false,
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}]);
    let call = "<tool_call>\n<function=add>\n<parameter=a>\n17\n</parameter>\n</function>\n</tool_call>";
    let mut socket = Socket::open(server.addr);
    for body in [
        say("SAY[hello, you]"),
        with(
            say(&format!("SAY[let me see</think>\n\nhere{call}]")),
            json!({"tools": tools, "reasoning": {"effort": "high"}}),
        ),
        with(say("LOOP[a ]"), json!({"max_output_tokens": 5, "store": false, "stream": true})),
        with(say("SAY[ok]"), json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2})),
    ] {
        let streamed =
            Stream::open(server.addr, RESPONSES, &with(body.clone(), json!({"stream": true}))).named_events();
        socket.ask(&body);
        let told = socket.answer();
        assert_eq!(comparable(&told), comparable(&streamed), "{body}");
        assert!(told.len() > 4, "{told:?}");
    }
}

#[test]
fn a_request_goes_on_from_the_one_before_it_also_where_nothing_is_kept() {
    let server = server();
    let mut socket = Socket::open(server.addr);
    socket.ask(&not_kept("the word is cobalt SAY[noted]"));
    let first = socket.answer();
    let id = last(&first)["id"].clone();
    assert_eq!((last(&first)["store"].as_bool(), text(last(&first))), (Some(false), "noted"));
    let second = with(not_kept("SAY[cobalt]"), json!({"previous_response_id": id}));
    let launched = server.fake.launched();
    socket.ask(&second);
    let answer = socket.answer();
    assert_eq!((text(last(&answer)), &last(&answer)["previous_response_id"]), ("cobalt", &id));
    let told = server.fake.was_told();
    assert!(
        server.fake.launched() > launched && told.rsplit("SAY[cobalt]").nth(1).unwrap().contains("noted"),
        "{told}"
    );
    // Nobody else finds it, and neither does the socket once another response came after it.
    let elsewhere = post(server.addr, RESPONSES, &second);
    refused(elsewhere, 404, "previous_response_not_found");
    for stranger in [&mut Socket::open(server.addr), &mut socket] {
        stranger.ask(&second);
        let told = stranger.answer();
        let error = last(&told);
        assert_eq!(
            (&error["status"], &error["error"]["code"], &error["error"]["param"]),
            (&json!(404), &json!("previous_response_not_found"), &json!("previous_response_id"))
        );
        stranger.ask(&not_kept("SAY[anew]"));
        assert_eq!(text(last(&stranger.answer())), "anew");
    }
    socket.ask(&say("SAY[for all]"));
    let kept = last(&socket.answer())["id"].clone();
    let after = post(server.addr, RESPONSES, &with(say("SAY[on]"), json!({"previous_response_id": kept})));
    assert_eq!(after.status, 200, "what is kept is there for every request of its account");
}

#[test]
fn a_request_that_fails_takes_the_response_that_it_went_on_from_with_it() {
    let server = server();
    let mut socket = Socket::open(server.addr);
    socket.ask(&not_kept("SAY[noted]"));
    let id = last(&socket.answer())["id"].clone();
    let lost = json!([{"type": "function_call_output", "call_id": "call_of_nobody", "output": "x"}]);
    socket.ask(&with(not_kept(""), json!({"previous_response_id": id, "input": lost})));
    assert_eq!(last(&socket.answer())["status"], 400);
    socket.ask(&with(not_kept("SAY[stale]"), json!({"previous_response_id": id})));
    assert_eq!(last(&socket.answer())["error"]["code"], "previous_response_not_found");
}

#[test]
fn what_is_wrong_with_a_message_is_said_and_the_next_one_is_answered() {
    let server = server();
    let mut socket = Socket::open(server.addr);
    for (message, status, code, param) in [
        ("no json", 400, "invalid_json", Value::Null),
        ("[]", 400, "invalid_request_error", Value::Null),
        (r#"{"input": "x"}"#, 400, "missing_field", json!("type")),
        (r#"{"type": "response.cancel"}"#, 400, "unsupported_parameter", json!("type")),
        (r#"{"type": "response.create"}"#, 400, "missing_field", json!("input")),
        (
            r#"{"type": "response.create", "input": "x", "stream": false}"#,
            400,
            "unsupported_parameter",
            json!("stream"),
        ),
        (
            r#"{"type": "response.create", "input": "x", "stream_id": "a"}"#,
            400,
            "unsupported_parameter",
            json!("stream_id"),
        ),
        (
            r#"{"type": "response.create", "input": "x", "background": true}"#,
            400,
            "unsupported_parameter",
            json!("background"),
        ),
        (r#"{"type": "response.create", "input": "x", "temperature": 9}"#, 400, "out_of_range", json!("temperature")),
        (r#"{"type": "response.create", "input": "x", "model": "none"}"#, 404, "model_not_found", json!("model")),
    ] {
        socket.write(&frame(TEXT, message.as_bytes()));
        let told = socket.message();
        let error = &told["error"];
        assert_eq!(
            (&told["type"], &told["status"], &error["code"], &error["param"]),
            (&json!("error"), &json!(status), &json!(code), &param),
            "{message}"
        );
        assert!(!error["message"].as_str().unwrap().is_empty() && error["type"] == "invalid_request_error", "{told}");
    }
    socket.ask(&say("SAY[still here]"));
    assert_eq!(text(last(&socket.answer())), "still here");
}

#[test]
fn a_conversation_is_read_ahead_without_an_answer() {
    let server = server();
    let mut socket = Socket::open(server.addr);
    socket.ask(&with(not_kept("the word is cobalt"), json!({"generate": false})));
    let events = socket.answer();
    let names: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(names, ["response.created", "response.in_progress", "response.completed"]);
    assert_eq!(last(&events)["output"], json!([]));
    assert!(server.fake.was_told().contains("cobalt"));
    socket.ask(&with(not_kept("SAY[cobalt]"), json!({"previous_response_id": last(&events)["id"]})));
    assert_eq!(text(last(&socket.answer())), "cobalt");
}

#[test]
fn requests_of_one_socket_run_one_after_the_other_and_pings_are_answered_meanwhile() {
    let server = server();
    server.fake.allow(2);
    let mut socket = begun(&server, "SAY[one two three four]");
    server.wait_for_standstill();
    socket.ask(&say("SAY[next]"));
    socket.write(&frame(PING, b"are you there"));
    loop {
        match socket.frame() {
            (TEXT, _) => {}
            pong => break assert_eq!(pong, (PONG, b"are you there".to_vec())),
        }
    }
    assert_eq!(server.live(), 1, "the second one waits");
    server.fake.allow_all();
    assert_eq!(text(last(&socket.answer())), "one two three four");
    assert_eq!(text(last(&socket.answer())), "next");
    // A message in pieces, a ping between them.
    let body = with(say("SAY[pieces]"), json!({"type": "response.create"})).to_string();
    let (begin, end) = body.as_bytes().split_at(20);
    let all = [part(TEXT, begin), frame(PING, b""), part(0, b""), part(0x80, end)].concat();
    for byte in all.chunks(7) {
        socket.write(byte);
    }
    assert_eq!(socket.frame(), (PONG, Vec::new()));
    assert_eq!(text(last(&socket.answer())), "pieces");
}

#[test]
fn messages_that_wait_are_few() {
    let server = server();
    server.fake.allow(2);
    let mut socket = begun(&server, "LOOP[on ]");
    for _ in 0..=chimere::limits::SOCKET_MESSAGES_WAITING_MAX {
        socket.ask(&say("SAY[more]"));
    }
    let mut next = socket.frame();
    while next.0 != CLOSE {
        next = socket.frame();
    }
    let code = u16::from_be_bytes([next.1[0], next.1[1]]);
    assert_eq!(code, 1008);
    server.wait_for_live(0);
}

#[test]
fn what_is_no_message_of_text_ends_the_socket_with_its_code() {
    let server = Server::start(Options { body_bytes: 4096, ..Options::default() });
    let long = "x".repeat(5000);
    for (bytes, error, code) in [
        (frame(BINARY, b"{}"), Some("binary_message"), 1003),
        (frame(TEXT, long.as_bytes()), Some("body_too_large"), 1009),
        (
            [part(TEXT, &long.as_bytes()[..3000]), part(0x80, &long.as_bytes()[..3000])].concat(),
            Some("body_too_large"),
            1009,
        ),
        (frame(TEXT, b"\xff\xfe"), None, 1007),
        (b"\x81\x02{}".to_vec(), None, 1002),
        (part(0xf1, b"{}"), None, 1002),
        (frame(5, b"{}"), None, 1002),
        (part(0x80, b"{}"), None, 1002),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), None, 1002),
    ] {
        let mut socket = Socket::open(server.addr);
        socket.write(&bytes);
        if let Some(wanted) = error {
            assert_eq!(socket.message()["error"]["code"], wanted);
        }
        assert_eq!(socket.closed(), code, "{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(20)]));
    }
    let mut socket = Socket::open(server.addr);
    socket.ask(&say("SAY[fine]"));
    assert_eq!(text(last(&socket.answer())), "fine");
    socket.write(&frame(CLOSE, &[&1000u16.to_be_bytes()[..], b"done"].concat()));
    assert_eq!(socket.closed(), 1000, "a client's end is answered in kind");
}

#[test]
fn a_client_that_leaves_in_the_middle_of_an_answer_ends_it() {
    for leaves in [
        (|socket: Socket| drop(socket)) as fn(Socket),
        |socket| socket.0.get_ref().shutdown(Shutdown::Write).unwrap(),
        |mut socket| {
            socket.write(&frame(CLOSE, &1000u16.to_be_bytes()));
            while socket.frame().0 != CLOSE {}
        },
    ] {
        let server = Server::start(Options { slots: 1, ..Options::default() });
        server.fake.allow(5);
        let socket = begun(&server, "LOOP[words ]");
        server.wait_for_standstill();
        leaves(socket);
        server.wait_for_live(0);
        server.fake.allow_all();
        assert_eq!(text(&post(server.addr, RESPONSES, &say("SAY[next]")).json()), "next", "the slot is free");
    }
}

#[test]
fn a_client_that_reads_nothing_is_given_up() {
    let (unread, silence) = (Duration::from_millis(200), Duration::from_secs(2));
    let server = Server::start(Options { unread, silence, ..Options::default() });
    let mut socket = Socket::open(server.addr);
    eventually("the socket is open", || gauge(&server) > 0);
    let long = json!({"max_output_tokens": 1900, "top_logprobs": 20, "include": ["message.output_text.logprobs"]});
    for _ in 0..8 {
        socket.ask(&with(say("LOOP[many words ]"), long.clone()));
    }
    eventually("the socket is over", || gauge(&server) == 0);
    server.wait_for_live(0);
}

/// Sockets that are open as the metrics say, those of other tests among them.
fn gauge(server: &Server) -> u32 {
    let metrics = get(server.addr, "/metrics");
    let line = metrics.text().lines().find_map(|line| line.strip_prefix("chimere_sockets ").map(str::to_owned));
    line.unwrap().parse().unwrap()
}

#[test]
fn whoever_may_not_post_may_open_no_socket() {
    let keyed = Server::start(Options { keys: keys("sk-one"), ..Options::default() });
    assert_eq!(no_socket(&keyed, &[]).status, 401);
    assert_eq!(no_socket(&keyed, &[("Authorization", "Bearer sk-two")]).status, 401);
    let mut socket = Socket::on(connect(keyed.addr), &[("Authorization", "Bearer sk-one")]);
    socket.ask(&say("SAY[yours]"));
    assert_eq!(text(last(&socket.answer())), "yours");

    let open = Server::start(Options { origins: &["https://app.example"], ..Options::default() });
    for (headers, code) in [
        (&[("Origin", "https://evil.example")][..], "origin_not_allowed"),
        (&[("Origin", "null")], "origin_not_allowed"),
        (&[("Sec-Fetch-Site", "cross-site")], "origin_not_allowed"),
    ] {
        refused(no_socket(&open, headers), 403, code);
    }
    Socket::on(connect(open.addr), &[("Origin", "https://app.example")]);
    Socket::on(connect(open.addr), &[("Origin", "http://localhost")]);
}

#[test]
fn over_tls_too_a_socket_answers() {
    let server = Server::start(Options { tls: true, ..Options::default() });
    let mut socket = Socket::on(encrypted(connect(server.addr), "localhost"), &[]);
    socket.ask(&say("SAY[sealed]"));
    assert_eq!(text(last(&socket.answer())), "sealed");
    socket.write(&frame(CLOSE, &1000u16.to_be_bytes()));
    assert_eq!(socket.closed(), 1000);
}

#[test]
fn a_handshake_that_is_none_is_refused_and_its_connection_ends() {
    let server = server();
    let whole = handshake(RESPONSES, &[]);
    for (from, to, status) in [
        ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8", 400),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Key: short", 400),
        ("Connection: Upgrade", "Connection: keep-alive", 400),
        ("Upgrade: websocket", "Upgrade: h2c\r\nConnection: close", 400),
        (" HTTP/1.1", " HTTP/1.0", 400),
        ("/v1/responses", "/v1/models", 200),
    ] {
        let mut stream = connect(server.addr);
        stream.write_all(whole.replacen(from, to, 1).as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(
            reply.starts_with(&format!("HTTP/1.1 {status} ")) || reply.starts_with(&format!("HTTP/1.0 {status} ")),
            "{to}: {reply}"
        );
    }
}

#[test]
fn a_socket_ends_when_it_is_silent_or_old_and_is_counted_while_it_is_open() {
    let short = Duration::from_millis(100);
    let long = Duration::from_secs(600);
    let server = Server::start(Options { socket_times: (short, long), ..Options::default() });
    assert_eq!(Socket::open(server.addr).closed(), 1000);
    let server = Server::start(Options { socket_times: (long, short), ..Options::default() });
    let mut old = Socket::open(server.addr);
    assert_eq!(old.message()["error"]["code"], "websocket_connection_limit_reached");
    assert_eq!(old.closed(), 1000);
    let server = Server::start(Options { keep_alive: short, ..Options::default() });
    let mut open = Socket::open(server.addr);
    assert_eq!(open.frame(), (PING, Vec::new()), "a silent one hears that the service is there");
    assert_eq!(open.frame(), (PING, Vec::new()));
}

#[test]
fn a_drain_ends_idle_sockets_at_once_and_others_after_their_answer() {
    let server = server();
    let idle = Socket::open(server.addr);
    server.fake.allow(4);
    let mut busy = begun(&server, "SAY[these are all my words]");
    busy.ask(&say("SAY[too late]"));
    let over = server.drain(PATIENCE);
    assert_eq!(idle.closed(), 1001);
    assert_eq!(server.phase(), Phase::Draining);
    server.fake.allow_all();
    assert_eq!(text(last(&busy.answer())), "these are all my words");
    assert_eq!(busy.closed(), 1001);
    over.blocking_recv().unwrap();
}
