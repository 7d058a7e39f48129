//! What is refused, and how that reads.

use crate::support::client::{bytes, connect, read_reply};
use crate::support::*;
use serde_json::{Value, json};
use std::io::Write;

const CHAT: &str = "/v1/chat/completions";

#[track_caller]
fn check(reply: &Reply, status: u16, param: Value, parts: &[&str]) {
    assert_eq!(reply.status, status, "{}", reply.text());
    let error = &reply.json()["error"];
    let keys: Vec<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["message", "type", "param", "code"]);
    assert_eq!(error["param"], param, "{error}");
    for part in parts {
        assert!(error["message"].as_str().unwrap().contains(part), "{part:?} in {error}");
    }
    assert!(reply.header("x-request-id").is_some(), "{:?}", reply.headers);
}

#[test]
fn a_full_queue_is_429_with_the_time_to_come_back_streamed_or_not() {
    let server = Server::start(Options { slots: 1, queue_requests: 1, ..Options::default() });
    server.fake.allow(5);
    let _running = Stream::open(server.addr, CHAT, &with(ask("LOOP[a ]"), json!({"stream": true})));
    server.wait_for_standstill();
    let _waiting = Stream::open(server.addr, CHAT, &with(ask("LOOP[a ]"), json!({"stream": true})));
    for stream in [false, true] {
        let reply = post(server.addr, CHAT, &with(ask("LOOP[a ]"), json!({"stream": stream})));
        check(&reply, 429, Value::Null, &["1 requests are waiting, at most 1 may"]);
        assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
        let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        let millis: u64 = reply.header("retry-after-ms").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds) && (1_000..=60_000).contains(&millis), "{seconds} s, {millis} ms");
        assert_eq!(seconds, millis.div_ceil(1000));
    }
    server.wait_for_live(2);
}

#[test]
fn a_list_of_prompts_that_does_not_fit_the_queue_is_refused_whole() {
    let server = Server::start(Options { slots: 1, queue_requests: 2, ..Options::default() });
    server.fake.allow(0);
    let body = json!({"prompt": ["LOOP[a]", "LOOP[b]", "LOOP[c]", "LOOP[d]", "LOOP[e]"]});
    let reply = post(server.addr, "/v1/completions", &body);
    check(&reply, 429, Value::Null, &["requests are waiting"]);
    server.wait_for_live(0);
    server.fake.allow_all();
    assert_eq!(post(server.addr, CHAT, &ask("SAY[room again]")).content(), "room again");
}

#[test]
fn a_prompt_longer_than_the_context_is_400_with_both_numbers() {
    let server = Server::start(Options { context: 64, ..Options::default() });
    let reply = post(server.addr, CHAT, &ask(&"word ".repeat(200)));
    check(&reply, 400, json!("messages"), &["prompt has ", "the context has room for 63"]);
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
    let reply = post(server.addr, "/v1/completions", &json!({"prompt": "word ".repeat(200), "stream": true}));
    check(&reply, 400, json!("prompt"), &["the context has room for 63"]);
}

#[test]
fn a_text_whose_length_alone_is_too_much_is_refused_before_it_is_tokenized() {
    let server = Server::start(Options { context: 64, ..Options::default() });
    let huge = "word ".repeat(150_000);
    let reply = post(server.addr, CHAT, &ask(&huge));
    check(&reply, 400, json!("messages"), &["prompt has at least ", " bytes), the context has room for 63"]);
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
    let reply = post(server.addr, "/v1/completions", &json!({"prompt": huge, "max_tokens": 0, "echo": true}));
    check(&reply, 400, json!("prompt"), &["(750000 bytes), the context has room for 64"]);
    // Whoever only counts may count more than fits.
    let counted = post(server.addr, "/tokenize", &json!({"prompt": "word ".repeat(20_000)}));
    assert!(counted.json()["count"].as_u64().unwrap() > 64, "{}", counted.status);
}

#[test]
fn bodies_that_are_too_much_together_are_429_until_there_is_room() {
    let server = Server::start(Options { body_bytes: 3000, bodies_bytes: 4000, ..Options::default() });
    let body = ask(&format!("SAY[x]{}", " ".repeat(1800))).to_string();
    let mut slow = connect(server.addr);
    slow.write_all(format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000\r\n\r\n").as_bytes())
        .unwrap();
    slow.write_all(&[b' '; 2500]).unwrap();
    let send = || request(server.addr, "POST", CHAT, &[], body.as_bytes());
    let mut reply = send();
    eventually("the first body's bytes count", || {
        reply = send();
        reply.status == 429
    });
    check(&reply, 429, Value::Null, &["share 4000 bytes"]);
    assert_eq!(reply.json()["error"]["code"], "bodies_full");
    assert_eq!((reply.header("retry-after"), reply.header("connection")), (Some("1"), Some("close")));
    assert_eq!(post(server.addr, CHAT, &ask("SAY[small ones pass]")).content(), "small ones pass");
    drop(slow);
    eventually("there is room again", || send().status == 200);
}

#[test]
fn what_is_wrong_with_a_body_is_400_and_names_the_field() {
    let server = Server::start(Options::default());
    for (more, param, part) in [
        (json!({"temperature": "hot"}), "temperature", "temperature"),
        (json!({"top_p": 7}), "top_p", "7"),
        (json!({"n": 99}), "n", "99"),
        (json!({"no_such_field": 1}), "no_such_field", "no_such_field"),
        (json!({"response_format": {"type": "yaml"}}), "response_format.type", "yaml"),
        (json!({"top_logprobs": 21, "logprobs": true}), "top_logprobs", "21"),
        (json!({"messages": []}), "messages", "messages"),
        (json!({"messages": [{"role": "user", "content": 5}]}), "messages[0].content", "content"),
    ] {
        check(&post(server.addr, CHAT, &with(ask("SAY[x]"), more)), 400, json!(param), &[part]);
    }
    for body in [
        &b"{\"messages\": ["[..],
        b"[]",
        b"",
        b"\xff\xfe",
        b"null",
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xc3\"}]}",
    ] {
        let reply = request(server.addr, "POST", CHAT, &[], body);
        check(&reply, 400, Value::Null, &[]);
        assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
    }
    assert_eq!(server.fake.launched(), 2, "nothing but the warm-up ran");
}

#[test]
fn an_unknown_model_path_or_method_is_told_so() {
    let server = Server::start(Options::default());
    let reply = post(server.addr, CHAT, &with(ask("SAY[x]"), json!({"model": "gpt-9"})));
    check(&reply, 404, json!("model"), &["gpt-9", "tiny"]);
    assert_eq!(reply.json()["error"]["code"], "model_not_found");
    check(&get(server.addr, "/v1/nothing"), 404, Value::Null, &["/v1/nothing"]);
    let reply = get(server.addr, CHAT);
    check(&reply, 405, Value::Null, &["takes POST, not GET"]);
    assert_eq!(reply.header("allow"), Some("POST"));
}

#[test]
fn a_body_over_the_limit_is_413_announced_or_not() {
    let server = Server::start(Options { body_bytes: 1000, ..Options::default() });
    let body = ask(&"x".repeat(2000)).to_string();
    let reply = request(server.addr, "POST", CHAT, &[], body.as_bytes());
    check(&reply, 413, Value::Null, &["larger than 1000 bytes"]);

    let mut socket = connect(server.addr);
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    socket.write_all(head.as_bytes()).unwrap();
    for piece in body.as_bytes().chunks(100) {
        // The server may refuse and close before the last piece.
        socket.write_all(&[format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()).ok();
    }
    socket.write_all(b"0\r\n\r\n").ok();
    check(&read_reply(socket), 413, Value::Null, &["larger than 1000 bytes"]);
    assert_eq!(post(server.addr, CHAT, &ask("SAY[short]")).content(), "short");
}

#[test]
fn bytes_that_are_no_http_do_no_harm() {
    let server = Server::start(Options::default());
    for junk in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ] {
        let mut socket = connect(server.addr);
        socket.write_all(junk).unwrap();
        drop(socket);
    }
    let two = [bytes("POST", CHAT, &[("Content-Length", "3")], b"{}"), Vec::new()].concat();
    let mut socket = connect(server.addr);
    socket.write_all(&two).unwrap();
    assert_eq!(read_reply(socket).status, 400, "two lengths for one body");
    assert_eq!(post(server.addr, CHAT, &ask("SAY[still here]")).content(), "still here");
}

#[test]
fn with_keys_everything_but_probes_needs_one() {
    let server = Server::start(Options { keys: keys("# for the test\nsk-test-1\n"), ..Options::default() });
    for path in ["/v1/models", "/nowhere"] {
        let reply = get(server.addr, path);
        check(&reply, 401, Value::Null, &["API key"]);
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    check(&post(server.addr, CHAT, &ask("SAY[x]")), 401, Value::Null, &[]);
    assert_eq!(request(server.addr, "GET", "/v1/models", &[("Authorization", "Bearer sk-test-2")], b"").status, 401);
    assert_eq!(request(server.addr, "GET", "/v1/models", &[("Authorization", "Bearer sk-test-1")], b"").status, 200);
    for path in ["/health", "/ready", "/metrics"] {
        assert_eq!(get(server.addr, path).status, 200, "{path}");
    }
}
