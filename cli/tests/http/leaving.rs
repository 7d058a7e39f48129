//! Clients that go away. In each test the engine holds its steps back while the client leaves: whatever happens then
//! happens before the next step is planned.

use crate::support::client::{bytes, connect};
use crate::support::*;
use serde_json::json;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";

/// Sends a request and gives the open socket, with nothing read from it.
fn send(server: &Server, body: &serde_json::Value) -> std::net::TcpStream {
    let mut socket = connect(server.addr);
    socket.write_all(&bytes("POST", CHAT, &[], body.to_string().as_bytes())).unwrap();
    socket
}

/// Lets the engine go on from its standstill and checks that it does nothing more for those who are gone: all that it
/// launches is for who comes next, whose sequence is the youngest.
fn nothing_more_is_planned(server: &Server) {
    let launched = server.fake.launched();
    server.fake.allow_all();
    assert_eq!(post(server.addr, CHAT, &ask("SAY[next]")).content(), "next");
    let later: Vec<_> = server.fake.plans().into_iter().skip(launched).flat_map(|p| p.pieces).map(|p| p.seq).collect();
    let next = later.iter().max().unwrap();
    assert!(later.iter().all(|seq| seq == next), "a step was planned for a client that is gone: {later:?}");
}

#[test]
fn a_stream_whose_client_leaves_is_cancelled_before_the_next_step() {
    let server = Server::start(Options::default());
    server.fake.allow(5);
    let mut stream = Stream::open(server.addr, CHAT, &with(ask("LOOP[words ]"), json!({"stream": true})));
    stream.chunk();
    stream.chunk();
    server.wait_for_standstill();
    drop(stream);
    server.wait_for_live(0);
    nothing_more_is_planned(&server);
}

#[test]
fn a_client_that_waits_for_a_whole_answer_and_leaves_is_cancelled_before_the_next_step() {
    let server = Server::start(Options::default());
    server.fake.allow(5);
    let socket = send(&server, &ask("LOOP[words ]"));
    server.wait_for_standstill();
    drop(socket);
    server.wait_for_live(0);
    nothing_more_is_planned(&server);
}

#[test]
fn a_client_that_leaves_the_queue_never_runs() {
    let server = Server::start(Options { slots: 1, ..Options::default() });
    server.fake.allow(5);
    let first = send(&server, &ask("LOOP[words ]"));
    server.wait_for_standstill();
    let streaming = send(&server, &with(ask("LOOP[more ]"), json!({"stream": true})));
    let whole = send(&server, &ask("LOOP[yet more ]"));
    server.wait_for_live(3);
    drop((streaming, whole));
    server.wait_for_live(1);
    let seqs: std::collections::HashSet<_> =
        server.fake.plans().iter().skip(2).flat_map(|p| p.pieces.clone()).map(|p| p.seq).collect();
    drop(first);
    server.wait_for_live(0);
    assert_eq!(seqs.len(), 1, "only the first one ever ran");
    nothing_more_is_planned(&server);
}

#[test]
fn a_client_that_closes_only_its_sending_side_has_left_too() {
    let server = Server::start(Options::default());
    server.fake.allow(5);
    let socket = send(&server, &ask("LOOP[words ]"));
    server.wait_for_standstill();
    socket.shutdown(Shutdown::Write).unwrap();
    server.wait_for_live(0);
    nothing_more_is_planned(&server);
}

#[test]
fn a_client_that_leaves_before_its_body_is_whole_is_no_request() {
    let server = Server::start(Options::default());
    let all = bytes("POST", CHAT, &[], ask("SAY[x]").to_string().as_bytes());
    let mut socket = connect(server.addr);
    socket.write_all(&all[..all.len() - 10]).unwrap();
    drop(socket);
    assert_eq!(post(server.addr, CHAT, &ask("SAY[fine]")).content(), "fine");
    server.wait_for_live(0);
}

#[test]
fn a_silent_stream_gets_comments_that_clients_ignore() {
    let server = Server::start(Options { keep_alive: Duration::from_millis(30), ..Options::default() });
    server.fake.allow(0);
    let mut stream = Stream::open(server.addr, CHAT, &with(ask("SAY[late]"), json!({"stream": true})));
    assert_eq!(stream.event().as_deref(), Some(": still here"));
    assert_eq!(stream.event().as_deref(), Some(": still here"));
    server.fake.allow_all();
    let mut rest = stream.events();
    rest.retain(|event| !event.starts_with(':'));
    assert_eq!(rest.pop().as_deref(), Some("data: [DONE]"));
    let chunks: Vec<_> =
        rest.iter().map(|e| serde_json::from_str(e.strip_prefix("data: ").unwrap()).unwrap()).collect();
    assert_eq!(client::joined(&chunks, 0, "content"), "late");
}

#[test]
fn one_choice_ends_at_its_stop_string_while_another_request_goes_on() {
    let server = Server::start(Options::default());
    let mut other =
        Stream::open(server.addr, CHAT, &with(ask("LOOP[on and on ]"), json!({"stream": true, "max_tokens": 1000})));
    let stopped = post(server.addr, CHAT, &with(ask("LOOP[a b c ]"), json!({"stop": ["c a"], "n": 2})));
    assert_eq!(stopped.content(), "a b ");
    assert_eq!(stopped.json()["choices"][1]["message"]["content"], "a b ");
    let chunks = other.chunks();
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 1000);
}

#[test]
fn a_connection_serves_several_requests_one_after_the_other() {
    let server = Server::start(Options::default());
    let mut socket = connect(server.addr);
    for _ in 0..3 {
        socket.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut reply = [0; 512];
        let n = socket.read(&mut reply).unwrap();
        assert!(reply[..n].starts_with(b"HTTP/1.1 200 OK"));
    }
}

/// A client asks for a stream and never reads it, until the server has given it up; what the client's kernel has of it
/// by then.
fn never_read(server: &Server) -> String {
    // More than the socket's buffers take, so that the stream comes to a halt.
    let long = json!({"stream": true, "max_tokens": 1900, "logprobs": true, "top_logprobs": 20, "n": 4});
    let before = server.fake.launched();
    let mut socket = send(server, &with(ask("LOOP[abc def ghi ]"), long));
    eventually("it was taken", || server.fake.launched() > before);
    server.wait_for_live(0);
    // It may be read, or the connection is reset.
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).ok();
    String::from_utf8_lossy(&rest).into_owned()
}

#[test]
fn a_client_that_never_reads_its_stream_is_given_up_after_a_while() {
    let server = Server::start(Options { unread: Duration::from_millis(300), ..Options::default() });
    let rest = never_read(&server);
    assert!(!rest.contains("[DONE]"), "the proper end never comes");
    let metrics = get(server.addr, "/metrics").text().to_owned();
    let slow = metrics.lines().find_map(|l| l.strip_prefix("chimere_requests_total{outcome=\"slow_client\"} "));
    assert!(slow.unwrap().parse::<u64>().unwrap() >= 1, "{metrics}");
    assert_eq!(post(server.addr, CHAT, &ask("SAY[next]")).content(), "next");
}

#[test]
fn a_client_that_never_reads_a_large_whole_reply_loses_its_end() {
    let server =
        Server::start(Options { unread: Duration::from_millis(300), body_bytes: 8 << 20, ..Options::default() });
    // Some 20 MiB of ids: more than the socket's buffers take.
    let body = json!({"prompt": "a b c d e f ".repeat(400_000)}).to_string();
    // Who reads while the reply is still being written has all of it, as on a machine that is busy.
    eventually("it is cut", || {
        let mut socket = connect(server.addr);
        socket.write_all(&bytes("POST", "/tokenize", &[], body.as_bytes())).unwrap();
        socket.peek(&mut [0]).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        let mut reply = Vec::new();
        socket.read_to_end(&mut reply).ok();
        assert!(reply.starts_with(b"HTTP/1.1 200 OK"));
        !reply.ends_with(b"}")
    });
    assert_eq!(post(server.addr, CHAT, &ask("SAY[next]")).content(), "next");
}

#[test]
fn a_client_that_never_reads_loses_its_connection_too() {
    let server = Server::start(Options { silence: Duration::from_secs(1), ..Options::default() });
    assert!(!never_read(&server).contains("[DONE]"), "the proper end never comes");
}

/// From now on the socket's host hears nothing and says nothing, as one whose cable is cut: whatever comes is thrown
/// away before anything is done about it, and that includes saying that it came.
#[cfg(target_os = "linux")]
fn vanish(socket: &std::net::TcpStream) {
    // A program of the kernel's packet filter: return, with a constant number of bytes to keep.
    const RETURN: u16 = 0x06;
    let drop_all = socket2::SockFilter::new(RETURN, 0, 0, 0);
    socket2::SockRef::from(socket).attach_filter(&[drop_all]).unwrap();
}

/// The server's end of this connection is, as the kernel has it.
#[cfg(target_os = "linux")]
fn is_open(server: std::net::SocketAddr, client: &std::net::TcpStream) -> bool {
    let hex = |port: u16| format!("0100007F:{port:04X}");
    let ends = format!(" {} {} 01 ", hex(server.port()), hex(client.local_addr().unwrap().port()));
    std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&ends)
}

#[test]
#[cfg(target_os = "linux")]
fn a_machine_that_vanishes_without_a_word_is_noticed_streamed_or_not_and_idle_too() {
    let server = Server::start(Options { silence: Duration::from_secs(1), slots: 1, ..Options::default() });
    server.fake.allow(5);
    let stream = send(&server, &with(ask("LOOP[words ]"), json!({"stream": true})));
    server.wait_for_standstill();
    let whole = send(&server, &ask("LOOP[more ]"));
    server.wait_for_live(2);
    let idle = connect(server.addr);
    let all = [&stream, &whole, &idle];
    all.into_iter().for_each(|socket| assert!(is_open(server.addr, socket)));
    all.into_iter().for_each(vanish);
    server.wait_for_live(0);
    eventually("their connections are closed", || all.into_iter().all(|socket| !is_open(server.addr, socket)));
    nothing_more_is_planned(&server);
}
