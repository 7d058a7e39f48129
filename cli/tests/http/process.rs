//! The program itself, started as a user starts it, with the CPU backend and a tiny model.

use crate::support::program::command;
use crate::support::*;
use serde_json::json;
use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn it_tells_its_memory_plan_and_address_answers_and_ends_with_0_on_a_signal() {
    let program = Program::start(&["--model-name", "golden"]);
    for part in ["model ", "computing on the CPU: ", "memory plan", "  kv ", "this machine only"] {
        assert!(program.said.contains(part), "{part:?} in {}", program.said);
    }
    assert_eq!(get(program.addr, "/ready").status, 200);
    let body = json!({"model": "golden", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "logprobs": 2, "ignore_eos": true});
    let alone = post(program.addr, "/v1/completions", &body).json();
    assert_eq!(alone["usage"]["completion_tokens"], 8, "{alone}");
    let addr = program.addr;
    let together: Vec<_> = (0..6)
        .map(|_| (body.clone(), addr))
        .map(|(b, a)| std::thread::spawn(move || post(a, "/v1/completions", &b).json()))
        .collect();
    for other in together {
        assert_eq!(other.join().unwrap()["choices"], alone["choices"], "the same bytes alone and together");
    }
    let metrics = get(program.addr, "/metrics").text().to_owned();
    assert!(metrics.contains("chimere_memory_bytes{use=\"kv\"}"), "{metrics}");
    program.signal("TERM");
    let (code, said) = program.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("ERROR"), "{said}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let program = Program::start(&["--drain-seconds", "3600"]);
    let body = json!({"prompt": "Once", "max_tokens": 100_000, "temperature": 0, "ignore_eos": true, "stream": true});
    let mut stream = Stream::open(program.addr, "/v1/completions", &body);
    stream.chunk();
    program.signal("INT");
    eventually("it drains", || get(program.addr, "/ready").status == 503);
    program.signal("INT");
    let (code, said) = program.end();
    // One that drains to its end ends with another code.
    assert_eq!(code, Some(130), "{said}");
}

#[test]
fn a_log_that_nobody_reads_holds_nobody_up_not_even_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("chimere.toml");
    std::fs::write(&config, "[log]\nprompts = true\n").unwrap();
    let program = Program::start(&["--config", config.to_str().unwrap()]);
    let lost = || {
        let metrics = get(program.addr, "/metrics");
        let line = metrics.text().lines().find_map(|line| line.strip_prefix("chimere_log_lost_total "));
        line.unwrap().parse::<u64>().unwrap()
    };
    // Too long to be computed, and logged all the same.
    let long = json!({"prompt": vec![100; 9_000], "max_tokens": 1});
    let fits = |_| {
        let reply = post(program.addr, "/v1/completions", &long);
        assert_eq!(reply.json()["error"]["code"], "context_length_exceeded", "{}", reply.text());
        lost() == 0
    };
    assert!(!(0..1_000).all(fits), "a pipe and the service's own bytes are full by then");
    let body = json!({"prompt": "Once", "max_tokens": 8, "ignore_eos": true});
    let reply = post(program.addr, "/v1/completions", &body);
    assert_eq!(reply.json()["usage"]["completion_tokens"], 8, "{}", reply.text());
    program.signal("TERM");
    assert_eq!(program.end().0, Some(0));
}

#[test]
fn without_metrics_it_serves_and_says_that_none_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("chimere.toml");
    std::fs::write(&config, "[server]\nmetrics = false\n").unwrap();
    let program = Program::start(&["--config", config.to_str().unwrap()]);
    let reply = post(program.addr, "/v1/completions", &json!({"prompt": "Once", "max_tokens": 4, "ignore_eos": true}));
    assert_eq!(reply.json()["usage"]["completion_tokens"], 4, "{}", reply.text());
    let metrics = get(program.addr, "/metrics");
    assert_eq!(metrics.status, 404);
    assert!(metrics.text().contains("server.metrics is false"), "{}", metrics.text());
}

#[test]
fn wrong_usage_is_exit_code_2_and_what_cannot_start_is_1() {
    for (args, code, part) in [
        (&["--device", "cuda"][..], 1, "device cuda: "),
        (&["--device", "cuda", "--exact"], 2, "--exact is there on the CPU only"),
        (
            &["--device", "cpu", "--kv-type", "q8_0"],
            2,
            "kv-type q8_0:q8_0: the CPU keeps keys and values as f32 or f16",
        ),
        (&["--host", "0.0.0.0"], 2, "--allow-open"),
        (&["--no-such-flag"], 2, "--no-such-flag"),
        (&["--config", "/nowhere.toml"], 2, "/nowhere.toml"),
        (&["--api-key-file", "/nowhere.keys"], 2, "/nowhere.keys"),
        (&["--max-context", "999999999"], 2, "max-context 999999999"),
        (&["--device", "cpu", "--vram-budget", "1KiB"], 1, "the memory budget of 1.0 KiB does not hold"),
    ] {
        let output = command(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_chimere")).args(["--model", "/nowhere.gguf"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--model names /nowhere.gguf"));
}

#[test]
fn a_question_whose_answer_is_stopped_ends_with_1_and_says_so() {
    let server = Server::start(Options { context: 1 << 16, pages: 1 << 14, ..Options::default() });
    let url = format!("http://{}", server.addr);
    let mut chat = Command::new(env!("CARGO_BIN_EXE_chimere"))
        .args(["chat", "--url", &url, "LOOP[on and on ]"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Nothing ends its thought, which stands on standard error.
    let (mut thought, mut why) = ([0; 9], String::new());
    let mut errors = chat.stderr.take().unwrap();
    errors.read_exact(&mut thought).unwrap();
    assert!(Command::new("kill").arg("-INT").arg(chat.id().to_string()).status().unwrap().success());
    errors.read_to_string(&mut why).unwrap();
    assert_eq!((chat.wait().unwrap().code(), &thought), (Some(1), b"on and on"), "{why}");
    assert!(why.ends_with("stopped before the answer's end\n"), "{why}");
}
