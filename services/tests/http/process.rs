//! The program itself, started as a user starts it, with the CPU backend and a tiny model.

use crate::support::server::golden;
use crate::support::*;
use serde_json::json;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) struct Program {
    child: Child,
    pub(crate) addr: SocketAddr,
    stderr: BufReader<ChildStderr>,
    said: String,
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chimere"));
    command.arg("serve").arg("--model").arg(golden()).args(["--port", "0", "--max-seqs", "4", "--threads", "2"]).args(args);
    // No device is shown, so that these are tests of the CPU on every machine.
    command
        .env_remove("CHIMERE_MODEL")
        .env("CUDA_VISIBLE_DEVICES", "")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

impl Program {
    /// Starts it and reads what it says until it is ready.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = command(args).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let addr = loop {
            let before = said.len();
            assert!(stderr.read_line(&mut said).unwrap() > 0, "it ended early: {said}");
            if let Some(rest) = said[before..].strip_prefix("ready on http://") {
                break rest.split(' ').next().unwrap().parse().unwrap();
            }
        };
        Self { child, addr, stderr, said }
    }

    /// Kills it, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap().success());
    }

    /// Its exit code and all it said.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        self.stderr.read_to_string(&mut self.said).unwrap();
        (code, std::mem::take(&mut self.said))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

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
    let program = Program::start(&["--drain-seconds", "60"]);
    let body = json!({"prompt": "Once", "max_tokens": 100_000, "temperature": 0, "ignore_eos": true, "stream": true});
    let mut stream = Stream::open(program.addr, "/v1/completions", &body);
    stream.chunk();
    let begun = Instant::now();
    program.signal("INT");
    eventually("it drains", || get(program.addr, "/ready").status == 503);
    program.signal("INT");
    let (code, said) = program.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn wrong_usage_is_exit_code_2_and_what_cannot_start_is_1() {
    for (args, code, part) in [
        (&["--device", "cuda"][..], 1, "device cuda: "),
        (&["--device", "cuda", "--exact"], 2, "--exact is there on the CPU only"),
        (&["--device", "cpu", "--kv-type", "q8_0"], 2, "kv-type q8_0:q8_0: the CPU keeps keys and values as f32 or f16"),
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
