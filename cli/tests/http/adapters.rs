//! Adapters beside the model, over a socket: names, equal answers in company, adapters that come and go.

use crate::support::client::refused;
use crate::support::{Options, Server, get, keys, post, request};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A directory with two adapters of the golden model: `poet`, and `clerk`, whose factor is another.
fn directory() -> tempfile::TempDir {
    let (dir, golden) = (tempfile::tempdir().unwrap(), golden_adapter());
    for (name, alpha) in [("poet", 8.0), ("clerk", -8.0)] {
        let own = dir.path().join(name);
        std::fs::create_dir(&own).unwrap();
        std::fs::copy(golden.join("adapter_model.safetensors"), own.join("adapter_model.safetensors")).unwrap();
        let text = std::fs::read(golden.join("adapter_config.json")).unwrap();
        let mut config: Value = serde_json::from_slice(&text).unwrap();
        config["lora_alpha"] = json!(alpha);
        std::fs::write(own.join("adapter_config.json"), config.to_string()).unwrap();
    }
    dir
}

fn golden_adapter() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/adapters/moe")
}

fn server(dir: &Path) -> Server {
    Server::start(Options { real: true, adapters: Some(dir.into()), ..Options::default() })
}

/// The tokens that a model says behind a prompt longer than a chunk of the prefix cache.
fn said(server: &Server, model: &str) -> (String, Value) {
    let prompt = "a b c d e f g h ".repeat(12);
    let body = json!({"model": model, "prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": true});
    let reply = post(server.addr, "/v1/completions", &body).json();
    (reply["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned(), reply["model"].clone())
}

#[test]
fn each_name_answers_for_itself_one_after_the_other_and_at_once() {
    let dir = directory();
    let server = server(dir.path());
    let alone: Vec<_> = ["tiny", "poet", "clerk"].map(|name| said(&server, name)).to_vec();
    assert_eq!(alone.iter().map(|(_, model)| model.as_str().unwrap()).collect::<Vec<_>>(), ["tiny", "poet", "clerk"]);
    assert!(alone[0].0 != alone[1].0 && alone[1].0 != alone[2].0 && alone[0].0 != alone[2].0, "{alone:?}");
    // What one has left in the prefix cache is of no other.
    for (at, name) in [(1, "poet"), (0, "tiny"), (1, "tiny:poet"), (2, "clerk"), (0, "gpt-tiny")] {
        assert_eq!(said(&server, name).0, alone[at].0, "{name}");
    }
    std::thread::scope(|scope| {
        let (alone, server) = (&alone, &server);
        for round in 0..12 {
            let name = ["tiny", "poet", "clerk"][round % 3];
            scope.spawn(move || assert_eq!(said(server, name).0, alone[round % 3].0, "{name} in company"));
        }
    });
}

#[test]
fn models_name_the_parent_and_every_dialect_of_text_takes_an_adapter() {
    let dir = directory();
    let server = server(dir.path());
    let list = get(server.addr, "/v1/models").json();
    let entries = list["data"].as_array().unwrap();
    let names: Vec<_> = entries.iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["tiny", "gpt-tiny", "clerk", "poet"]);
    assert_eq!((&entries[2]["parent"], &entries[0]["parent"]), (&json!("tiny"), &Value::Null));
    assert_eq!(get(server.addr, "/v1/models/poet").json()["parent"], "tiny");
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": 4})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 4})),
        ("/v1/responses", json!({"input": "hi", "max_output_tokens": 16})),
        ("/completion", json!({"prompt": "hi", "n_predict": 4})),
        ("/api/chat", json!({"messages": messages, "stream": false, "options": {"num_predict": 4}})),
        ("/api/generate", json!({"prompt": "hi", "raw": true, "stream": false, "options": {"num_predict": 4}})),
        ("/tokenize", json!({"prompt": "hi"})),
    ] {
        let mut body = body;
        body["model"] = json!("poet");
        let reply = post(server.addr, path, &body);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    }
    let error = refused(
        post(server.addr, "/v1/embeddings", &json!({"model": "poet", "input": "a"})),
        400,
        "unsupported_parameter",
    );
    assert!(error["message"].as_str().unwrap().contains("`poet` is an adapter"), "{error}");
    refused(
        post(server.addr, "/v1/completions", &json!({"model": "tiny:nobody", "prompt": "a"})),
        404,
        "model_not_found",
    );
}

#[test]
fn an_administrator_loads_and_unloads_adapters_while_the_service_runs() {
    let dir = directory();
    std::fs::rename(dir.path().join("clerk"), dir.path().join(".clerk")).unwrap();
    let server = server(dir.path());
    std::fs::rename(dir.path().join(".clerk"), dir.path().join("clerk")).unwrap();
    let call = |what: &str, body: Value| post(server.addr, &format!("/v1/{what}_lora_adapter"), &body);
    refused(call("load", json!({"lora_name": "nobody"})), 404, "adapter_not_found");
    assert_eq!(call("load", json!({"lora_name": "../clerk"})).status, 400);
    assert_eq!(call("load", json!({"lora_name": "tiny", "lora_path": "clerk"})).status, 400);
    assert_eq!(call("load", json!({"lora_path": "clerk"})).status, 400);
    let before = said(&server, "poet").0;
    let path = dir.path().join("clerk");
    let loaded = call("load", json!({"lora_name": "scribe", "lora_path": path.to_str().unwrap()}));
    assert_eq!((loaded.status, loaded.text()), (200, "Success: LoRA adapter 'scribe' added successfully."));
    assert_eq!(call("load", json!({"lora_name": "scribe", "lora_path": "clerk"})).status, 400);
    assert_ne!(said(&server, "scribe").0, before);
    assert_eq!(call("unload", json!({"lora_name": "scribe"})).status, 200);
    refused(call("unload", json!({"lora_name": "scribe"})), 404, "adapter_not_found");
    let gone = json!({"model": "scribe", "prompt": "a"});
    refused(post(server.addr, "/v1/completions", &gone), 404, "model_not_found");
    assert_eq!(said(&server, "poet").0, before);
}

#[test]
fn others_than_administrators_load_nothing() {
    let dir = directory();
    let options = Options { adapters: Some(dir.path().into()), keys: keys("one"), ..Options::default() };
    let server = Server::start(options);
    let body = json!({"lora_name": "again", "lora_path": "poet"}).to_string();
    let auth = [("authorization", "Bearer one"), ("content-type", "application/json")];
    for path in ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"] {
        assert_eq!(request(server.addr, "POST", path, &auth, body.as_bytes()).status, 403, "{path}");
    }
}
