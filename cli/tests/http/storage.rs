//! What is kept on a disk: by services that are killed, whose disk is full, that meet another service or a damaged
//! file.

use crate::support::client::done;
use crate::support::*;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const RESPONSES: &str = "/v1/responses";

/// The program with the shipped model, which has a template; it may not make files larger than the shell's `limit` says, beside
/// the flags of `config`.
fn program(limit: &str, config: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit}\nexec \"$@\""), "sh", env!("CARGO_BIN_EXE_chimere"), "serve", "--model"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-q8_0.gguf"));
    command.arg("--config").arg(config).args(["--port", "0", "--threads", "2", "--max-seqs", "4"]);
    command.env_remove("CHIMERE_MODEL").env("CUDA_VISIBLE_DEVICES", "");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A directory, and a configuration with which it is one of `section`.
fn directory(section: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (files, config) = (dir.path().join("files"), dir.path().join("chimere.toml"));
    std::fs::create_dir(&files).unwrap();
    std::fs::write(&config, format!("[{section}]\ndirectory = {files:?}\n")).unwrap();
    (dir, files, config)
}

/// A start that fails: its code, and what it says.
fn refused(config: &Path) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = program("", config).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_second_service_on_an_empty_directory_of_tables_is_refused_with_its_name() {
    let (_dir, files, config) = directory("engram");
    let first = Program::run(program("", &config));
    let (code, said) = refused(&config);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("engram.directory: ") && said.contains("another service's"), "{said}");
    assert!(said.contains(files.to_str().unwrap()), "{said}");
    drop(first);
    let _next = Program::run(program("", &config));
}

/// The variables of the trial that the page for operators describes.
fn trial_variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    let page = include_str!("../../../docs/operating/operations.md");
    let line = page.lines().find(|line| line.starts_with("CHIMERE_ENGRAM__DIRECTORY=")).unwrap();
    line.trim_end_matches('\\').split_whitespace().map(|pair| pair.split_once('=').unwrap())
}

#[test]
fn a_trial_starts_beside_a_service_as_the_page_for_operators_says() {
    let (dir, files, config) = directory("engram");
    let (audit, responses) = (dir.path().join("audit.log"), dir.path().join("responses"));
    std::fs::create_dir(&responses).unwrap();
    let more = format!(
        "[engram]\ndirectory = {files:?}\n[responses]\ndirectory = {responses:?}\n\
        [server]\nadmin_port = {}\n[log]\naudit = {audit:?}\n",
        free_port()
    );
    std::fs::write(&config, more).unwrap();
    let service = Program::run(program("", &config));
    let mut trial = program("", &config);
    trial.envs(trial_variables());
    let trial = Program::run(trial);
    let say = json!({"input": "hello", "max_output_tokens": 4});
    for addr in [service.addr, trial.addr] {
        assert_eq!(post(addr, RESPONSES, &say).status, 200);
    }
}

/// A port that nobody listens on now.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_damaged_store_of_tables_ends_the_start_by_its_name_and_is_left_as_it_is() {
    let (_dir, files, config) = directory("engram");
    let store = files.join("store.redb");
    for damaged in [vec![0x5a; 1 << 16], b"somebody's letter".to_vec()] {
        std::fs::write(&store, &damaged).unwrap();
        let (code, said) = refused(&config);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("engram.directory: ") && said.contains(store.to_str().unwrap()), "{said}");
        assert!(std::fs::read(&store).unwrap() == damaged, "the file was changed");
    }
}

/// Asks for a response that is to be kept: its id, and whether it says that it is.
fn keep(addr: SocketAddr) -> (String, bool) {
    let reply = post(addr, RESPONSES, &json!({"input": "hi", "max_output_tokens": 16}));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let response: Value = reply.json();
    (response["id"].as_str().unwrap().to_owned(), response["store"].as_bool().unwrap())
}

fn status(addr: SocketAddr, id: &str) -> u16 {
    get(addr, &format!("{RESPONSES}/{id}")).status
}

fn delete(addr: SocketAddr, id: &str) -> client::Reply {
    request(addr, "DELETE", &format!("{RESPONSES}/{id}"), &[], b"")
}

/// Ends it, and waits until it has ended well.
fn ended(program: Program) {
    program.signal("TERM");
    assert_eq!(program.end().0, Some(0));
}

#[test]
fn a_response_whose_removal_was_acknowledged_does_not_come_back_after_a_kill() {
    let (_dir, _, config) = directory("responses");
    let mut gone: Vec<String> = Vec::new();
    for _ in 0..3 {
        let mut program = Program::run(program("", &config));
        for id in &gone {
            assert_eq!(status(program.addr, id), 404, "{id} is back");
        }
        let ids: Vec<String> = (0..4).map(|_| keep(program.addr).0).collect();
        for id in &ids {
            let reply = delete(program.addr, id);
            assert_eq!((reply.status, &reply.json()["deleted"]), (200, &json!(true)), "{}", reply.text());
        }
        program.kill();
        gone.extend(ids);
    }
}

#[test]
fn while_a_disk_is_full_responses_are_not_said_to_be_kept_or_removed_and_with_room_again_they_are() {
    let (_dir, _, config) = directory("responses");
    let first = Program::run(program("", &config));
    let (old, kept) = keep(first.addr);
    assert!(kept);
    ended(first);
    // In blocks of 512 bytes: nothing behind the file's first pages can be written. The limit may be lifted.
    let full = Program::run(program("ulimit -S -f 12", &config));
    let mut promised = Vec::new();
    eventually("a reply says that it was not kept", || {
        let (id, kept) = keep(full.addr);
        if kept {
            promised.push(id);
        }
        !kept
    });
    promised.iter().for_each(|id| assert_eq!(status(full.addr, id), 200, "it was said to be kept"));
    let reply = delete(full.addr, &old);
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (507, &json!("disk_full")), "{}", reply.text());
    assert_eq!(status(full.addr, &old), 200, "what could not be removed is there");
    full.may_write_files_of_any_size();
    let mut last = String::new();
    eventually("responses are kept again without a restart", || {
        let (id, kept) = keep(full.addr);
        last = id;
        kept
    });
    assert_eq!(delete(full.addr, &old).status, 200);
    ended(full);
    let again = Program::run(program("", &config));
    assert_eq!((status(again.addr, &old), status(again.addr, &last)), (404, 200));
    promised.iter().for_each(|id| assert_eq!(status(again.addr, id), 200, "it was said to be kept"));
}

/// What becomes of a thumb for a new answer.
fn rated(addr: SocketAddr) -> client::Reply {
    let answer = done(post(addr, "/v1/chat/completions", &with(ask("hi"), json!({"max_tokens": 4}))));
    post(addr, "/v1/feedback", &json!({"completion_id": answer["id"], "rating": 1}))
}

#[test]
fn while_a_disk_is_full_answers_go_on_and_feedback_is_told_that_it_is_not_kept() {
    let (_dir, files, config) = directory("learning");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text + "learn = \"feedback\"\n").unwrap();
    let first = Program::run(program("", &config));
    assert_eq!(done(rated(first.addr))["kept"], true);
    ended(first);
    let full = Program::run(program("ulimit -S -f 12", &config));
    eventually("feedback is not kept", || {
        let reply = rated(full.addr);
        let refused = reply.status == 507;
        assert!(refused || reply.status == 200, "{}", reply.text());
        refused
    });
    let there = |addr| done(get(addr, "/v1/learning/mine"))["total"].as_u64().unwrap();
    assert!(there(full.addr) >= 1, "what was kept is there");
    full.may_write_files_of_any_size();
    assert_eq!(done(rated(full.addr))["kept"], true, "and with room again it goes on");
    ended(full);
    // A start with a damaged file says so, answers, and leaves it as it is.
    let damaged = vec![0x5a; 1 << 16];
    std::fs::write(files.join("learning.redb"), &damaged).unwrap();
    let last = Program::run(program("", &config));
    assert_eq!(rated(last.addr).json()["error"]["code"], "learning_failed");
    ended(last);
    assert!(std::fs::read(files.join("learning.redb")).unwrap() == damaged, "the file was changed");
}
