//! What tests at the HTTP edge share: a backend that says what it is told, a service around it, and a client that
//! speaks bytes.
#![allow(unreachable_pub, reason = "a module of a test crate, which nobody outside can reach")]

pub mod client;
pub mod fake;
pub mod program;
pub mod server;
pub mod socket;

pub use client::{Reply, Stream, get, post, request};
pub use fake::{Fake, Trouble};
pub use program::Program;
pub use server::{Options, Server, test_devices};
pub use socket::Socket;

use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long a test waits for what must come. Only a test that fails ever waits that long, so it is no bound on how fast
/// a machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for something that another thread brings about and that stays so.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never came: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A chat request whose user message is `text`, with thinking off.
pub fn ask(text: &str) -> Value {
    json!({
        "messages": [{"role": "user", "content": text}],
        "chat_template_kwargs": {"enable_thinking": false},
    })
}

/// The body with the fields of `more` laid over it.
pub fn with(mut body: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// The keys of a file with these lines. Keys may be short here: the file has their hashes.
pub fn keys(lines: &str) -> chimere::http::auth::AcceptedKeys {
    use chimere::http::auth::{AcceptedKeys, hashed};
    let line = |line: &str| match line.split_once(' ') {
        _ if line.starts_with('#') || line.is_empty() => line.to_owned(),
        Some((key, options)) => format!("{} {options}", hashed(key)),
        None => hashed(line),
    };
    // A file of its owner's alone.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines.lines().map(|l| line(l) + "\n").collect::<String>()).unwrap();
    AcceptedKeys::read(file.path()).unwrap()
}
