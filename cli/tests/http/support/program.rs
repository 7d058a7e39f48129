//! The program itself, started as a user starts it, with the CPU backend and a tiny model.

use super::server::golden;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// A running program; dropping it ends it.
pub struct Program {
    child: Child,
    pub addr: SocketAddr,
    stderr: BufReader<ChildStderr>,
    /// Lines until it was ready.
    pub said: String,
}

pub fn command(args: &[&str]) -> Command {
    serving(&golden(), args)
}

fn serving(model: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chimere"));
    command
        .arg("serve")
        .arg("--model")
        .arg(model)
        .args(["--port", "0", "--max-seqs", "4", "--threads", "2"])
        .args(args);
    // No device is shown, so that these are tests of the CPU on every machine.
    command
        .env_remove("CHIMERE_MODEL")
        .env("CUDA_VISIBLE_DEVICES", "")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

pub fn shipped_command(args: &[&str]) -> Command {
    serving(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-q8_0.gguf"), args)
}

impl Program {
    /// Starts it and reads what it says until it is ready.
    pub fn start(args: &[&str]) -> Self {
        Self::run(command(args))
    }

    /// Starts the program with another model.
    pub fn of(model: &Path, args: &[&str]) -> Self {
        Self::run(serving(model, args))
    }

    /// Starts the program with the model that ships.
    pub fn shipped(args: &[&str]) -> Self {
        Self::run(shipped_command(args))
    }

    /// Starts this and reads what it says until it is ready. Its standard error is a pipe.
    pub fn run(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let addr = loop {
            let before = said.len();
            assert!(stderr.read_line(&mut said).unwrap() > 0, "it ended early: {said}");
            if let Some((_, rest)) = said[before..].strip_prefix("ready in ").and_then(|rest| rest.split_once("://")) {
                break rest.split(' ').next().unwrap().parse().unwrap();
            }
        };
        Self { child, addr, stderr, said }
    }

    /// Kills it, as a crash does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lifts a limit that its shell set, as an operator makes room on a disk.
    pub fn may_write_files_of_any_size(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:"]).status().unwrap().success());
    }

    pub fn signal(&self, name: &str) {
        assert!(
            Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap().success()
        );
    }

    /// Its exit code and all it said.
    pub fn end(mut self) -> (Option<i32>, String) {
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
