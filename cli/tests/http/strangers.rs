//! What one address may take of others without a key: memory by what it sends, time by what it does not send, tries of
//! keys, lines of the log. And that clients which are merely in a hurry are served as before.

use crate::edge::encrypted;
use crate::support::client::{bytes, connect, connect_from, opened, read_reply};
use crate::support::*;
use chimere::http::auth::AcceptedKeys;
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";
const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Reads what there is. True if that was all there will ever be.
fn ended(socket: &mut TcpStream) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    loop {
        match socket.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

/// A series of `/metrics`, which all tests of this process share: it may grow by itself, and never falls.
fn series(addr: SocketAddr, name: &str) -> f64 {
    let text = get(addr, "/metrics").text().to_owned();
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no series {name}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

fn fault(addr: SocketAddr, name: &str) -> f64 {
    series(addr, &format!("chimere_client_faults_total{{fault=\"{name}\"}}"))
}

#[test]
#[cfg(target_os = "linux")]
fn long_heads_share_a_room_whatever_comes_before_them() {
    let server = Server::start(Options { keys: AcceptedKeys::one("k"), ..Options::default() });
    let chunked = "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    for before in [HEALTH.to_owned(), HEALTH.repeat(40), chunked.to_owned()] {
        let full = fault(server.addr, "no_room");
        let long = format!("{before}GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}", "a".repeat(120 << 10));
        // Half of the room is some 150 of these.
        let mut held = opened(200, [127, 0, 0, 2], server.addr, &long);
        eventually("those beyond its share are ended", || {
            held.retain_mut(|socket| !ended(socket));
            held.len() <= 160
        });
        assert!(held.len() >= 100, "{} of 200 are within 16 MiB", held.len());
        assert!(fault(server.addr, "no_room") > full);
        let mut other = connect_from([127, 0, 0, 3], server.addr);
        other.write_all(&bytes("GET", "/health", &[("X", &"a".repeat(120 << 10))], b"")).unwrap();
        assert_eq!(read_reply(other).status, 200, "another's long head is served");
        held.retain_mut(|socket| !ended(socket));
        assert!(!held.is_empty());
    }
}

/// Sends `opening`, then `drop` again and again, until the server ends the connection. All that the server said.
fn drip(addr: SocketAddr, opening: &str, drop: &'static [u8]) -> String {
    let mut socket = connect(addr);
    socket.write_all(opening.as_bytes()).unwrap();
    let mut dripping = socket.try_clone().unwrap();
    let drips = std::thread::spawn(move || {
        let pause = Duration::from_millis(20);
        // It ends with the connection, or when the test has failed.
        (0..2 * PATIENCE.as_millis() / pause.as_millis()).any(|_| {
            std::thread::sleep(pause);
            dripping.write_all(drop).is_err()
        })
    });
    let mut said = Vec::new();
    let end = socket.read_to_end(&mut said);
    let said = String::from_utf8(said).unwrap();
    let is_over = !end.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    assert!(is_over, "the connection lives: {opening:?}, then {drop:?} after {said:?}");
    socket.shutdown(std::net::Shutdown::Both).ok();
    drips.join().unwrap();
    said
}

#[test]
fn each_phase_of_each_request_of_a_connection_has_its_time() {
    let time = Duration::from_secs(1);
    let keys = AcceptedKeys::one("k");
    let server = Server::start(Options { keys, head_time: time, body_time: time, ..Options::default() });
    let chunked = "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n";
    let (stranger, known) = (format!("{chunked}\r\n"), format!("{chunked}Authorization: Bearer k\r\n\r\n"));
    let slow = fault(server.addr, "slow_head");
    for (opening, drop) in [
        ("GET /health HTTP/1.1\r\nX: ".to_owned(), b"a"),
        (format!("{HEALTH}GET /health HTTP/1.1\r\nX: "), b"a"),
        // Empty lines may come before a request.
        (HEALTH.to_owned(), b"\n"),
        (format!("{stranger}0\r\n\r\nGET /health HTTP/1.1\r\n"), b"a"),
    ] {
        drip(server.addr, &opening, drop);
    }
    assert!(fault(server.addr, "slow_head") >= slow + 4.0);
    for (opening, drop) in [
        (stranger.clone(), b"0"),
        (format!("{stranger}1;"), b"a"),
        (format!("{stranger}0\r\nX: "), b"a"),
        (format!("{HEALTH}{stranger}0\r\n"), b"a"),
        (format!("{known}1\r\n \r\n"), b"0"),
        (format!("{known}0\r\nX: "), b"a"),
    ] {
        let said = drip(server.addr, &opening, drop);
        assert!(said.contains("HTTP/1.1 40"), "{said}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn silent_handshakes_of_one_address_are_bounded_as_they_come_and_hold_up_nobody() {
    let server = Server::start(Options { tls: true, connections: 900, ..Options::default() });
    let ask = |from: [u8; 4]| {
        let mut client = encrypted(connect_from(from, server.addr), "localhost");
        client.write_all(&bytes("GET", "/metrics", &[], b"")).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).ok();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix("chimere_connections_refused_total "));
        line.unwrap().parse::<f64>().unwrap()
    };
    let before = ask([127, 0, 0, 3]);
    // More than the library makes at once on a thread, and as many as the address may have.
    let mut held: Vec<TcpStream> = (0..400).map(|_| connect_from([127, 0, 0, 2], server.addr)).collect();
    ask([127, 0, 0, 3]);
    assert!(held.iter_mut().all(|socket| !ended(socket)), "nobody waited until these were given up");
    held.extend((0..200).map(|_| connect_from([127, 0, 0, 2], server.addr)));
    eventually("those beyond its share are ended", || ended(held.last_mut().unwrap()));
    assert!(ask([127, 0, 0, 3]) >= before + 150.0, "as they came, before any handshake");
    let long = [&[0x16, 3, 1, 0x40, 0][..], &[1, 0, 0xff, 0xff], &vec![0; 40_000]].concat();
    let mut endless = connect_from([127, 0, 0, 4], server.addr);
    endless.write_all(&long).ok();
    eventually("a handshake that is too long is ended", || ended(&mut endless));
}

#[test]
#[cfg(target_os = "linux")]
fn silent_connections_of_one_address_leave_room_for_probes() {
    let server = Server::start(Options { probes: true, ..Options::default() });
    let probes = server.probes.unwrap();
    let mut held: Vec<TcpStream> = (0..70).map(|_| connect_from([127, 0, 0, 2], probes)).collect();
    for _ in 0..5 {
        let mut probe = connect_from([127, 0, 0, 3], probes);
        probe.write_all(&bytes("GET", "/health", &[], b"")).unwrap();
        assert_eq!(read_reply(probe).status, 200);
    }
    assert!(!ended(&mut held[0]), "no probe waited until these were given up");
    eventually("those beyond its share are ended", || ended(held.last_mut().unwrap()));
}

#[test]
#[cfg(target_os = "linux")]
fn whoever_tries_keys_and_hangs_up_waits_as_one_that_listens() {
    let keys = keys("known\nother\n");
    let server = Server::start(Options { keys, proxies: vec!["127.0.0.9".parse().unwrap()], ..Options::default() });
    let send = |host: u8, key: &str| {
        let mut socket = connect_from([127, 0, 0, host], server.addr);
        socket.write_all(&bytes("GET", "/v1/models", &[("Authorization", &format!("Bearer {key}"))], b"")).unwrap();
        socket
    };
    assert_eq!(read_reply(send(2, "known")).status, 200);
    for i in 0..60 {
        drop(send(2, &format!("wrong-{i}")));
    }
    let mut refused = read_reply(send(2, "wrong"));
    eventually("the address has a long line", || {
        refused = read_reply(send(2, "wrong"));
        refused.status == 429
    });
    assert_eq!(refused.json()["error"]["code"], "too_many_wrong_keys");
    assert!(refused.header("retry-after").is_some());
    let guessed = read_reply(send(2, "other"));
    assert_eq!((guessed.status, guessed.text()), (429, refused.text()), "a right guess is not told from a wrong one");
    assert_eq!(read_reply(send(2, "known")).status, 200, "one that was let in before is no guess");
    assert_eq!(read_reply(send(3, "other")).status, 200, "another address has its own line");
    (0..60).for_each(|i| drop(send(9, &format!("wrong-{i}"))));
    assert_eq!(read_reply(send(9, "other")).status, 200, "an address of many is no one's");
}

#[test]
fn a_client_is_asked_for_its_body_only_when_its_head_is_no_reason_to_refuse_it() {
    let server = Server::start(Options { keys: AcceptedKeys::one("k"), body_bytes: 1000, ..Options::default() });
    let body = ask("SAY[asked]").to_string();
    let send = |key: &str, length: usize, more: &str| {
        let mut socket = connect(server.addr);
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nExpect: 100-continue\r\n\
             Content-Length: {length}\r\nConnection: close\r\n{more}\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket
    };
    let first = |mut socket: TcpStream| {
        let mut said = [0; 13];
        socket.read_exact(&mut said).unwrap();
        (String::from_utf8(said[9..12].to_vec()).unwrap(), socket)
    };
    assert_eq!(first(send("wrong", body.len(), "")).0, "401");
    assert_eq!(first(send("k", 2000, "")).0, "413");
    assert_eq!(first(send("k", body.len(), "Origin: https://evil.example\r\n")).0, "403");
    let (asked, mut socket) = first(send("k", body.len(), ""));
    assert_eq!(asked, "100");
    socket.read_exact(&mut [0; "Continue\r\n\r\n".len()]).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    assert_eq!(read_reply(socket).content(), "asked");
}

#[test]
fn bytes_that_are_no_http_are_counted_and_make_few_lines() {
    let program = Program::start(&["--api-key-file", key_file().path().to_str().unwrap()]);
    for _ in 0..1000 {
        let mut socket = connect(program.addr);
        socket.write_all(b"\0\0\0\0\r\n\r\n").unwrap();
        socket.read_to_end(&mut Vec::new()).ok();
    }
    assert!(fault(program.addr, "malformed") >= 1000.0);
    program.signal("TERM");
    let (_, said) = program.end();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
    let about: Vec<&&str> = lines.iter().filter(|line| line.contains("malformed")).collect();
    assert!(!about.is_empty() && lines.len() < 100, "{} lines: {:?}", lines.len(), lines.first());
}

fn key_file() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), chimere::http::auth::hashed("k")).unwrap();
    file
}

#[test]
fn a_long_path_that_leads_nowhere_is_answered_in_short() {
    let server = Server::start(Options::default());
    let slashes = "/".repeat(60_000);
    for (path, code) in [
        (format!("/chat/completions{slashes}"), "unknown_path"),
        ("/v1/chat/completion".repeat(3000), "unknown_path"),
        (format!("/v1/models/{}", "a".repeat(60_000)), "model_not_found"),
    ] {
        let reply = get(server.addr, &path);
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (404, &json!(code)));
        assert!(reply.body.len() < 1000 && !reply.text().contains("did you mean"), "{}", reply.text());
    }
    let reply = request(server.addr, "PUT", &format!("/v1/responses/{}", "a".repeat(60_000)), &[], b"");
    assert!(reply.status == 405 && reply.body.len() < 1000, "{}", reply.text());
}

#[test]
fn requests_that_are_sent_ahead_are_answered_one_after_the_other() {
    let server = Server::start(Options::default());
    let chat = |text: &str| {
        let body = ask(&format!("SAY[{text}]{}", " ".repeat(20_000))).to_string();
        format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let all = [chat("first"), HEALTH.repeat(500), chat("second"), HEALTH.to_owned(), chat("third")].concat();
    let last = String::from_utf8(bytes("GET", "/version", &[], b"")).unwrap();
    let mut socket = connect(server.addr);
    let mut writing = socket.try_clone().unwrap();
    let writer = std::thread::spawn(move || writing.write_all((all + &last).as_bytes()).unwrap());
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    writer.join().unwrap();
    assert_eq!(said.matches("HTTP/1.1 200 OK").count(), 505);
    let places: Vec<usize> =
        ["first", "second", "third", "\"version\""].iter().map(|text| said.find(text).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn a_client_that_sent_more_and_leaves_is_cancelled_before_the_next_step() {
    let server = Server::start(Options::default());
    server.fake.allow(5);
    let body = ask("LOOP[words ]").to_string();
    let mut socket = connect(server.addr);
    let head = format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    socket.write_all(format!("{head}{body}{HEALTH}GET /hea").as_bytes()).unwrap();
    server.wait_for_standstill();
    drop(socket);
    server.wait_for_live(0);
}

#[test]
fn a_connection_with_a_long_head_serves_that_request_and_says_that_it_ends() {
    let server = Server::start(Options::default());
    let mut socket = connect(server.addr);
    let long = format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(20_000));
    socket.write_all(format!("{HEALTH}{long}").as_bytes()).unwrap();
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    assert_eq!((said.matches("HTTP/1.1 200 OK").count(), said.matches("connection: close").count()), (2, 1), "{said}");
}
