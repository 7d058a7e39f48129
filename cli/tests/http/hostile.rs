//! What a neighbour may try who has a key, or only the address: none of it ends the process, and none of it harms
//! others.

use crate::support::client::{bytes, connect, connect_from, opened, read_reply};
use crate::support::program::command;
use crate::support::*;
use chimere::audit::Audit;
use chimere::http::auth::{AcceptedKeys, hashed};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";

#[test]
fn a_prompt_of_no_tokens_is_a_400_and_the_service_goes_on() {
    let template = Some("{{ messages[0].content }}");
    let server = Server::start(Options { template, ..Options::default() });
    let empty = json!({"messages": [{"role": "user", "content": ""}]});
    for body in [
        empty.clone(),
        json!({"messages": empty["messages"], "stream": true}),
        json!({"messages": empty["messages"], "n": 3}),
    ] {
        let reply = post(server.addr, CHAT, &body);
        assert_eq!(reply.status, 400, "{}", reply.text());
        let error = &reply.json()["error"];
        assert_eq!((&error["code"], &error["param"]), (&json!("empty_prompt"), &json!("messages")));
        assert_eq!(error["message"], "the prompt has no tokens");
    }
    let said = json!({"messages": [{"role": "user", "content": "SAY[still here]"}]});
    assert_eq!(post(server.addr, CHAT, &said).status, 200);
    server.wait_for_live(0);
}

/// Two keys, of which the second is an administrator's.
fn two_keys() -> AcceptedKeys {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{}\n{} scope=admin\n", hashed("a"), hashed("b"))).unwrap();
    AcceptedKeys::read(file.path()).unwrap()
}

fn as_key(addr: SocketAddr, key: &str, method: &str, path: &str, body: &[u8]) -> Reply {
    request(
        addr,
        method,
        path,
        &[("Authorization", &format!("Bearer {key}")), ("Content-Type", "application/json")],
        body,
    )
}

#[test]
fn a_body_of_very_many_values_is_refused_and_large_ones_share_a_room() {
    let server = Server::start(Options { body_bytes: 8 << 20, bodies_bytes: 64 << 20, ..Options::default() });
    let shape = vec!["[0]"; 1 << 20].join(",");
    let tool = format!(
        "{{\"messages\": [{{\"role\": \"user\", \"content\": \"SAY[x]\"}}], \"tools\": [{{\"type\": \"function\", \"function\": \
         {{\"name\": \"f\", \"parameters\": {{\"a\": [{shape}]}}}}}}]}}"
    );
    for path in [CHAT, "/tokenize", "/v1/embeddings", "/v1/completions"] {
        let reply = request(server.addr, "POST", path, &[], tool.as_bytes());
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        assert_eq!(reply.json()["error"]["code"], "json_too_large", "{path}");
    }
    let twice = r#"{"messages": [{"role": "user", "content": "SAY[x]", "content": "SAY[y]"}]}"#;
    let reply = request(server.addr, "POST", CHAT, &[], twice.as_bytes());
    assert!(reply.status == 400 && reply.text().contains("stands twice"), "{}", reply.text());
    // As many plain values as the largest prompts have are taken.
    let ids = format!("{{\"tokens\": [{}]}}", vec!["7"; 300_000].join(","));
    assert_eq!(request(server.addr, "POST", "/detokenize", &[], ids.as_bytes()).status, 200);
    assert_eq!(post(server.addr, CHAT, &ask("SAY[still here]")).content(), "still here");
}

#[test]
fn what_a_body_said_takes_no_room_while_its_request_waits() {
    let server = Server::start(Options { body_bytes: 8 << 20, bodies_bytes: 64 << 20, ..Options::default() });
    server.fake.allow(0);
    // Nearly as much as one body may take, of which nothing is needed when the prompt is made.
    let much: Value = serde_json::from_str(&format!("[{}]", vec!["0"; 600_000].join(","))).unwrap();
    let body = with(ask("SAY[served]"), json!({"metadata": {"a": much}})).to_string();
    let waiting: Vec<TcpStream> = (1..=3)
        .map(|live| {
            let mut socket = connect(server.addr);
            socket.write_all(&bytes("POST", CHAT, &[], body.as_bytes())).unwrap();
            server.wait_for_live(live);
            socket
        })
        .collect();
    server.fake.allow_all();
    for socket in waiting {
        assert_eq!(read_reply(socket).content(), "served");
    }
}

#[test]
fn one_key_s_bodies_leave_room_for_another_s() {
    let server =
        Server::start(Options { keys: two_keys(), body_bytes: 1000, bodies_bytes: 10_000, ..Options::default() });
    let head = |key: &str| {
        format!(
            "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Length: 1000\r\n\r\n"
        )
    };
    // Sixteen bodies that never end.
    let held: Vec<TcpStream> = (0..16)
        .map(|_| {
            let mut socket = connect(server.addr);
            socket.write_all(head("a").as_bytes()).unwrap();
            socket.write_all(&[b' '; 900]).unwrap();
            socket
        })
        .collect();
    let mut body = ask("SAY[served]").to_string();
    body += &" ".repeat(900 - body.len());
    let mut reply = as_key(server.addr, "a", "POST", CHAT, body.as_bytes());
    eventually("they are in flight", || {
        reply = as_key(server.addr, "a", "POST", CHAT, body.as_bytes());
        reply.status == 429
    });
    assert_eq!(reply.json()["error"]["code"], "bodies_full");
    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message, "there is no room for this body now: the bodies of all requests share 10000 bytes",
        "nothing of who has it"
    );
    assert_eq!(as_key(server.addr, "b", "POST", CHAT, body.as_bytes()).content(), "served");
    drop(held);
    eventually("there is room again", || as_key(server.addr, "a", "POST", CHAT, body.as_bytes()).status == 200);
}

#[test]
#[cfg(target_os = "linux")]
fn silent_connections_of_one_address_leave_room_for_others() {
    let server = Server::start(Options { connections: 40, ..Options::default() });
    let mut held: Vec<TcpStream> = (0..60).map(|_| connect_from([127, 0, 0, 2], server.addr)).collect();
    for _ in 0..5 {
        let mut other = connect_from([127, 0, 0, 3], server.addr);
        other.write_all(&bytes("GET", "/health", &[], b"")).unwrap();
        assert_eq!(read_reply(other).status, 200);
    }
    // Those beyond its share were ended as they came; what was within it is as good as ever.
    let last = held.last_mut().unwrap();
    assert_eq!(last.read(&mut [0; 16]).unwrap_or(0), 0, "it was ended");
    let mut first = held.swap_remove(0);
    first.write_all(&bytes("GET", "/health", &[], b"")).unwrap();
    assert_eq!(read_reply(first).status, 200);
    let refused = get(server.addr, "/metrics")
        .text()
        .lines()
        .any(|l| l.starts_with("chimere_connections_refused_total ") && !l.ends_with(" 0"));
    assert!(refused);
}

#[test]
#[cfg(target_os = "linux")]
fn long_heads_of_one_address_share_a_room_and_leave_as_much_to_others() {
    let server = Server::start(Options::default());
    let long = format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}", "a".repeat(120 << 10));
    // Half of the room is some 150 of these.
    let mut held = opened(200, [127, 0, 0, 2], server.addr, &long);
    let ended = |socket: &mut TcpStream| {
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let got = socket.read(&mut [0; 256]);
        matches!(got, Ok(0)) || got.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset)
    };
    eventually("those beyond its share are ended", || ended(held.last_mut().unwrap()));
    let kept = held.iter_mut().filter_map(|socket| (!ended(socket)).then_some(())).count();
    assert!((100..=160).contains(&kept), "{kept} of 200 are within 16 MiB");
    let mut other = connect_from([127, 0, 0, 3], server.addr);
    other.write_all(format!("{long}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    assert_eq!(read_reply(other).status, 200, "another's long head is served");
    drop(held);
    eventually("there is room again", || {
        let mut again = connect_from([127, 0, 0, 2], server.addr);
        again.write_all(format!("{long}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        read_reply(again).status == 200
    });
}

#[test]
fn a_page_of_elsewhere_reaches_nothing_and_programs_are_served() {
    let server = Server::start(Options::default());
    let body = ask("SAY[done]").to_string();
    let send = |headers: &[(&str, &str)]| request(server.addr, "POST", CHAT, headers, body.as_bytes());
    for (headers, code) in [
        (&[("Origin", "https://evil.example"), ("Content-Type", "text/plain")][..], "origin_not_allowed"),
        (&[("Origin", "https://evil.example"), ("Content-Type", "application/json")], "origin_not_allowed"),
        (&[("Origin", "null"), ("Content-Type", "text/plain")], "origin_not_allowed"),
        (&[("Sec-Fetch-Site", "cross-site"), ("Content-Type", "text/plain")], "origin_not_allowed"),
        (&[("Sec-Fetch-Site", "same-origin"), ("Content-Type", "text/plain")], "content_type"),
    ] {
        let reply = send(headers);
        assert_eq!(
            (&reply.json()["error"]["code"], reply.header("vary")),
            (&json!(code), Some("origin")),
            "{headers:?}"
        );
    }
    let strange = bytes("GET", "/v1/models", &[], b"");
    let strange = String::from_utf8(strange).unwrap().replace("Host: localhost", "Host: evil.example");
    let mut socket = connect(server.addr);
    socket.write_all(strange.as_bytes()).unwrap();
    let reply = read_reply(socket);
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (403, &json!("host_not_allowed")));
    // As curl sends it when nobody says of what type it is.
    assert_eq!(send(&[("Content-Type", "application/x-www-form-urlencoded")]).content(), "done");
    assert_eq!(send(&[]).content(), "done");
    let own = format!("http://{}", server.addr);
    assert_eq!(get(server.addr, "/health").status, 200);
    let asked = bytes("POST", CHAT, &[("Origin", &own), ("Content-Type", "application/json")], body.as_bytes());
    let asked = String::from_utf8(asked).unwrap().replace("Host: localhost", &format!("Host: {}", server.addr));
    let mut socket = connect(server.addr);
    socket.write_all(asked.as_bytes()).unwrap();
    assert_eq!(read_reply(socket).content(), "done", "its own pages may call");
}

#[test]
fn what_changes_something_is_in_the_audit_log_and_what_was_said_is_not() {
    let (lines, dir) = (Arc::new(Mutex::new(Vec::<String>::new())), tempfile::tempdir().unwrap());
    let sink = lines.clone();
    let audit = Audit::to(move |line| sink.lock().unwrap().push(line.to_owned()));
    let server =
        Server::start(Options { keys: two_keys(), audit, tables: Some(dir.path().to_owned()), ..Options::default() });
    let texts = json!({"texts": ["a secret of ours"]}).to_string();
    assert_eq!(as_key(server.addr, "b", "PUT", "/v1/engram/tables/facts", texts.as_bytes()).status, 200);
    assert_eq!(as_key(server.addr, "a", "DELETE", "/v1/engram/tables/facts", b"").status, 403);
    assert_eq!(as_key(server.addr, "b", "POST", "/v1/engram/tables/facts/rollback", b"").status, 200);
    assert_eq!(as_key(server.addr, "unknown", "GET", "/v1/models", b"").status, 401);
    assert_eq!(as_key(server.addr, "a", "GET", "/v1/models", b"").status, 200);
    let lines = lines.lock().unwrap();
    let records: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<_> =
        records.iter().map(|r| (r["action"].as_str().unwrap(), r["outcome"].as_str().unwrap())).collect();
    assert_eq!(
        said,
        [("table.put", "200"), ("table.delete", "403"), ("table.rollback", "200"), ("key.unknown", "401")]
    );
    assert!(records.iter().all(|r| r["address"] == "127.0.0.1" && r["time_ms"].is_u64() && r["request"].is_string()));
    assert!(records[0]["account"].is_string() && records[0]["account"] != records[1]["account"]);
    assert!(
        lines.iter().all(|line| !line.contains("secret") && !line.contains("unknown\",\"key")),
        "no content, no key"
    );
}

#[test]
fn whoever_tries_keys_waits_longer_each_time_and_a_right_key_does_not() {
    let server = Server::start(Options { keys: two_keys(), ..Options::default() });
    let status = |key: &str| as_key(server.addr, key, "GET", "/v1/models", b"").status;
    let begin = Instant::now();
    (0..7).for_each(|i| assert_eq!(status(&format!("wrong-{i}")), 401));
    // 125, 250, 500 and 1000 ms, after three that cost nothing.
    assert!(begin.elapsed() >= Duration::from_millis(1875), "{:?}", begin.elapsed());
    let mut guess = connect(server.addr);
    guess
        .write_all(&bytes("GET", "/v1/models", &[("Authorization", "Bearer wrong-7"), ("Content-Length", "0")], b""))
        .unwrap();
    assert_eq!(status("a"), 200, "also while a wrong one waits");
    drop(guess);
}

#[test]
fn a_name_in_a_model_s_file_moves_no_cursor_and_has_no_second_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let (name, forged) = (b"tiny reference", b"\x1b[2J\nready in!");
    let mut model = std::fs::read(server::golden()).unwrap();
    let at = model.windows(name.len()).position(|bytes| bytes == name).unwrap();
    model[at..at + name.len()].copy_from_slice(forged);
    std::fs::write(&path, model).unwrap();
    let info = std::process::Command::new(env!("CARGO_BIN_EXE_chimere")).args(["info", "--model"]).arg(&path).output();
    let told = String::from_utf8(info.unwrap().stdout).unwrap();
    let program = Program::of(&path, &[]);
    for said in [&told, &program.said] {
        assert!(said.contains("\\u{1b}[2J\\nready in!") && !said.contains('\u{1b}'), "{said}");
        assert!(said.lines().all(|line| !line.starts_with("ready in!")), "{said}");
    }
}

#[test]
#[cfg(unix)]
fn a_table_that_was_deleted_is_gone_whatever_else_lies_in_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let server = Server::start(Options { tables: Some(dir.path().to_owned()), ..Options::default() });
    let send = |method: &str, path: &str, body: &str| {
        let path = format!("/v1/engram/tables/{path}");
        request(server.addr, method, &path, &[("Content-Type", "application/json")], body.as_bytes()).status
    };
    assert_eq!(send("PUT", "facts", r#"{"texts": ["the cat sat on the mat"]}"#), 200);
    eventually("it is there", || send("GET", "facts", "") == 200);
    std::fs::write(at("a b.engr"), "x").unwrap();
    std::fs::write(at("access.toml"), "[tables").unwrap();
    std::os::unix::fs::symlink(at("loop.engr"), at("loop.engr")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(at("fifo.engr")).status().unwrap().success());
    // What cannot be published stands in nobody else's way either.
    std::fs::create_dir(at("blocked.engr")).unwrap();
    assert_eq!(send("DELETE", "facts", ""), 200);
    eventually("it is gone", || send("GET", "facts", "") == 404);
}

/// A free port of loopback, until somebody takes it.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
#[cfg(target_os = "linux")]
fn a_start_with_a_closed_or_full_stderr_is_a_start() {
    let (reader, full) = std::io::pipe().unwrap();
    let fill = full.try_clone().unwrap();
    // Until the pipe takes no more; whoever writes then waits for a reader that never comes.
    let filled = std::thread::spawn(move || (&fill).write_all(&[b'x'; 1 << 16]));
    eventually("the pipe is full", || filled.is_finished());
    let (gone, closed) = std::io::pipe().unwrap();
    drop(gone);
    for stderr in [Stdio::from(full), Stdio::from(closed)] {
        let port = free_port();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_chimere"));
        command.arg("serve").arg("--model").arg(server::golden()).args(["--port", &port.to_string(), "--threads", "2"]);
        command.env_remove("CHIMERE_MODEL").env("CUDA_VISIBLE_DEVICES", "").stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(stderr).spawn().unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        eventually("it is ready", || TcpStream::connect(addr).is_ok() && get(addr, "/ready").status == 200);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    drop(reader);
}

#[test]
#[cfg(unix)]
fn keys_are_read_again_when_their_file_changes_and_on_sighup_and_probes_have_a_port_of_their_own() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (keys, audit) = (dir.path().join("keys"), dir.path().join("audit"));
    let write = |text: String| {
        let part = dir.path().join("part");
        std::fs::write(&part, text).unwrap();
        std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(part, &keys).unwrap();
    };
    let config = dir.path().join("chimere.toml");
    std::fs::write(&config, format!("[log]\naudit = {:?}\n", audit.to_str().unwrap())).unwrap();
    write(format!("{}\n", hashed("one")));
    let probes = free_port();
    let program = Program::start(&[
        "--api-key-file",
        keys.to_str().unwrap(),
        "--admin-port",
        &probes.to_string(),
        "--config",
        config.to_str().unwrap(),
    ]);
    let status = |key: &str| as_key(program.addr, key, "GET", "/v1/models", b"").status;
    assert_eq!((status("one"), status("two")), (200, 401));
    write(format!("{}\n", hashed("two")));
    eventually("the new file is read", || status("two") == 200);
    assert_eq!(status("one"), 401, "a key that is gone is revoked");
    let reads = || std::fs::read_to_string(&audit).unwrap().matches("\"keys.reload\",\"outcome\":\"read\"").count();
    let before = reads();
    program.signal("HUP");
    eventually("it is read because somebody asks", || reads() > before);
    write("x\n".into());
    let refused = || std::fs::read_to_string(&audit).unwrap().contains("\"keys.reload\",\"outcome\":\"refused\"");
    eventually("the mistake is told", refused);
    assert_eq!(status("two"), 200, "a file with a mistake changes nothing");
    assert_eq!(std::fs::metadata(&audit).unwrap().permissions().mode() & 0o777, 0o600);
    let at = SocketAddr::from(([127, 0, 0, 1], probes));
    assert_eq!((get(at, "/health").status, get(at, "/ready").status, get(at, "/metrics").status), (200, 200, 200));
    assert_eq!((get(at, "/v1/models").status, get(program.addr, "/health").status), (404, 200));
    program.signal("TERM");
    assert_eq!(program.end().0, Some(0));
}

#[test]
fn a_model_or_a_key_file_that_is_no_regular_file_ends_the_start_and_does_not_hang_it() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let fifo: &Path = &fifo;
    for flag in ["--api-key-file", "--config"] {
        let output = command(&[flag, fifo.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("fifo"), "{flag}: {said}");
    }
    for (variable, field) in [("CHIMERE_ENGRAM__STRENGTHS", ""), ("CHIMERE_LOG__AUDIT", "log.audit ")] {
        let output = command(&[]).env(variable, fifo).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("wanted a regular file, got a FIFO"), "{said}");
        assert!(said.contains(field), "{said}");
    }
}
