//! `chimere chat` as scripts and users start it, and the sentences of a start that fails.

use crate::support::program::command;
use crate::support::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Certificates by the line of `docs/operating/access.md`, which say that they are a certificate authority's.
fn authority(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/tests/data").join(file)
}

/// Runs a chat to its end, with this on its standard input.
fn chat(url: &str, args: &[&str], input: &str) -> Output {
    let mut chat = Command::new(env!("CARGO_BIN_EXE_chimere"))
        .args(["chat", "--url", url])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    chat.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    chat.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_chat_that_fails_says_why_and_leaves_standard_output_empty() {
    let server = Server::start(Options::default());
    let url = format!("http://{}", server.addr);
    let cases: [(&[&str], &str, &str); 4] = [
        (&[], "/model nope", "no model \"nope\"; there are tiny"),
        (&[], "/sing", "no command \"/sing\""),
        (&["--model", "nope", "Hello"], "", "the server answered 404"),
        (&["--api-key", "wrong", "--url", "http://127.0.0.1:1", "Hello"], "", "cannot be used multiple times"),
    ];
    for (args, input, part) in cases {
        let out = chat(&url, args, input);
        let said = text(&out.stderr);
        assert!(!out.status.success() && out.status.code().is_some(), "{args:?} {input}: {said}");
        assert!(said.contains(part), "{args:?} {input}: {said}");
        assert_eq!(text(&out.stdout), "", "{args:?} {input}");
    }
    let nobody = chat("http://127.0.0.1:1", &["Hello"], "");
    assert_eq!((nobody.status.code(), text(&nobody.stdout).as_str()), (Some(1), ""));
    assert!(text(&nobody.stderr).contains("no server at http://127.0.0.1:1"), "{}", text(&nobody.stderr));
}

#[test]
fn in_a_pipe_answers_alone_stand_on_standard_output() {
    let server = Server::start(Options::default());
    let out = chat(&format!("http://{}", server.addr), &[], "SAY[</think>One.]\n/stats\n/model tiny\n");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout).trim(), "One.");
    let said = text(&out.stderr);
    assert!(said.contains("1 answer of ") && said.contains("talking to tiny"), "{said}");
}

/// A server of another make: HTTP/1.1 without lengths, and the connection's end is the reply's.
#[test]
fn replies_that_end_by_closing_the_connection_are_read() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let event = r#"data: {"choices":[{"delta":{"content":"Hello."},"finish_reason":"stop"}]}"#;
    let replies = [r#"{"data": [{"id": "other"}]}"#.to_owned(), format!("{event}\n\n")];
    let served = std::thread::spawn(move || {
        for reply in replies {
            let (mut socket, mut asked) = (listener.accept().unwrap().0, [0; 4096]);
            assert!(socket.read(&mut asked).unwrap() > 0);
            socket.write_all(format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{reply}").as_bytes()).unwrap();
        }
    });
    let out = chat(&url, &["Hello"], "");
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(0), "Hello.\n"), "{}", text(&out.stderr));
    served.join().unwrap();
}

#[test]
fn a_certificate_that_says_it_is_an_authority_s_is_trusted_by_its_file() {
    let mut serve = command(&[]);
    serve
        .env("CHIMERE_SERVER__TLS_CERTIFICATE", authority("authority_of_itself.pem"))
        .env("CHIMERE_SERVER__TLS_KEY", authority("authority_of_itself_key.pem"));
    let program = Program::run(serve);
    let ask = |host: &str, file: &str| {
        let url = format!("https://{host}:{}", program.addr.port());
        chat(&url, &["--ca-file", authority(file).to_str().unwrap()], "/model")
    };
    for host in ["localhost", "127.0.0.1"] {
        let out = ask(host, "authority_of_itself.pem");
        assert_eq!(out.status.code(), Some(0), "{host}: {}", text(&out.stderr));
    }
    let other = ask("localhost", "authority_of_itself_again.pem");
    assert!(!other.status.success() && text(&other.stderr).contains("certificate"), "{}", text(&other.stderr));
}

#[test]
fn a_plan_that_cannot_be_allocated_is_an_error_and_no_abort() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-q8_0.gguf");
    let mut limited = Command::new("bash");
    limited
        .args(["-c", "ulimit -v 3000000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_chimere"), "serve", "--port", "0"])
        .args(["--device", "cpu", "--max-seqs", "512", "--vram-budget", "64GiB", "--model"])
        .arg(model);
    let out = limited.stdin(Stdio::null()).output().unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    for part in ["GiB (", "bytes)", "--max-seqs", "ulimit -v"] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
}

#[test]
fn the_first_screen_says_how_long_the_start_took() {
    let program = Program::start(&[]);
    let line = program.said.lines().find_map(|line| line.strip_prefix("ready in ")).unwrap();
    let seconds: f32 = line.split_once(" s on http://").unwrap().0.parse().unwrap();
    assert!(seconds > 0.0 && seconds < 600.0, "{line}");
}

#[test]
fn a_directory_is_added_again_without_second_entries_and_names_what_is_refused() {
    let (dir, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = crate::documents::start(dir.path(), chimere::http::auth::AcceptedKeys::Open);
    let large = "a".repeat(5 << 20);
    for (name, content) in [("a_large.txt", &*large), ("b_\x1b[31m.txt", "Kelm is old."), ("c_empty.txt", "")] {
        std::fs::write(files.path().join(name), content).unwrap();
    }
    let url = format!("http://{}", server.addr);
    for sent in ["2 of 3 files sent", "1 of 3 files sent"] {
        let mut add = Command::new(env!("CARGO_BIN_EXE_chimere"));
        add.args(["documents", "add", "--store", "ours", "--url", &url]).arg(files.path());
        let added = add.output().unwrap();
        let said = text(&added.stderr);
        assert!(!added.status.success() && said.contains(sent) && !said.contains('\x1b'), "{said}");
        for want in ["a_large.txt: the file has more than 4194304 bytes", "c_empty.txt: ", "2 of 3 files cannot be"] {
            assert!(said.contains(want), "{said}");
        }
        let store = crate::documents::Client(server.addr, None).get("/v1/vector_stores");
        assert_eq!(store["data"][0]["file_counts"]["total"], 2, "{store}");
    }
}
