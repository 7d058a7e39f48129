//! An encoder beside the served model: under its own name at `/v1/embeddings`, behind collections, and asked by another
//! service.

use crate::support::*;
use chimere::embedder::EmbedderSettings;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const EMBEDDINGS: &str = "/v1/embeddings";
const SHIPS: &str = "/v1/engram/collections/ships";

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/encoder")
}

fn here() -> EmbedderSettings {
    EmbedderSettings { directory: directory().display().to_string(), threads: 1, ..Default::default() }
}

fn elsewhere(server: &Server) -> EmbedderSettings {
    let url = format!("http://{}/v1", server.addr);
    EmbedderSettings { url, name: "encoder".into(), dimensions: 32, ..Default::default() }
}

fn start(embedder: EmbedderSettings, tables: Option<&Path>) -> Server {
    Server::start(Options { embedder, tables: tables.map(Path::to_owned), ..Options::default() })
}

fn put(server: &Server, path: &str) -> Value {
    let reply = request(server.addr, "PUT", path, &[], b"");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[track_caller]
fn done(server: &Server, path: &str, body: Value) -> Value {
    let reply = post(server.addr, path, &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[track_caller]
fn refused(reply: Reply, status: u16, part: &str) -> Value {
    let error = reply.json()["error"].clone();
    assert!(reply.status == status && error["message"].as_str().unwrap().contains(part), "{} {error}", reply.status);
    error
}

fn items() -> Value {
    json!({"items": [
        {"id": "a", "text": "The ships of the port."},
        {"id": "b", "text": "Hello, World!"},
        {"id": "long", "text": "world of ships ".repeat(40)},
    ]})
}

#[test]
fn an_encoder_answers_under_its_own_name_and_the_model_under_its_own() {
    let server = start(here(), None);
    let models = get(server.addr, "/v1/models").json();
    let listed: Vec<&Value> = models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(listed, [&json!("tiny"), &json!("gpt-tiny"), &json!("encoder")]);
    let described = get(server.addr, "/openapi.json").json()["components"]["schemas"]["Embedding"].clone();
    assert_eq!(described["anyOf"][1]["properties"]["model"], json!({"enum": ["encoder"]}));
    let encoder = get(server.addr, "/v1/models/Encoder").json();
    assert_eq!((&encoder["max_model_len"], &encoder["type"]), (&json!(24), &json!("embeddings")));
    assert!(models["data"][0].get("type").is_none(), "{models}");
    let golden: Value = serde_json::from_slice(&std::fs::read(directory().join("golden.json")).unwrap()).unwrap();
    let said =
        done(&server, EMBEDDINGS, json!({"model": "encoder", "input": [golden["texts"][0], golden["texts"][1]]}));
    assert_eq!((&said["model"], &said["usage"]["prompt_tokens"]), (&json!("encoder"), &json!(6 + 19)));
    for (row, want) in said["data"].as_array().unwrap().iter().zip(golden["ways"]["unit"].as_array().unwrap()) {
        let numbers = |value: &Value| -> Vec<f64> { serde_json::from_value(value.clone()).unwrap() };
        let (got, want) = (numbers(&row["embedding"]), numbers(want));
        assert!(got.len() == 32 && got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 2e-6), "{row}");
    }
    let base64 = done(&server, EMBEDDINGS, json!({"model": "encoder", "input": "hello", "encoding_format": "base64"}));
    assert_eq!(base64["data"][0]["embedding"].as_str().unwrap().len(), (32_usize * 4).div_ceil(3) * 4);
    assert_eq!(done(&server, EMBEDDINGS, json!({"model": "tiny", "input": "hello"}))["model"], "tiny");
}

#[test]
fn what_the_encoder_cannot_read_is_refused_by_its_field() {
    let server = start(here(), None);
    let ask = |body: Value| post(server.addr, EMBEDDINGS, &body);
    let long = ask(json!({"model": "encoder", "input": ["a", "port ".repeat(30)]}));
    let error = refused(long, 400, "`input`: text 1 has 32 tokens, this encoder reads at most 24");
    assert_eq!((&error["code"], &error["param"]), (&json!("context_length_exceeded"), &json!("input")));
    refused(ask(json!({"model": "encoder", "input": [1, 2]})), 400, "the encoder has a tokenizer of its own");
    refused(ask(json!({"model": "encoder", "input": ""})), 400, "`input` must not be empty");
    refused(ask(json!({"model": "encoder", "input": "a", "dimensions": 16})), 400, "`dimensions` must be 32");
    refused(ask(json!({"model": "encoder", "input": "a", "pooling": "last"})), 400, "pooling");
    let chat = json!({"model": "encoder", "messages": [{"role": "user", "content": "a"}]});
    refused(post(server.addr, "/v1/chat/completions", &chat), 404, "`encoder` does not exist here");
}

#[test]
fn a_collection_has_the_encoder_s_vectors_and_takes_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(here(), Some(dir.path()));
    let made = put(&server, SHIPS);
    assert!(made["model"].as_str().unwrap().starts_with("encoder 32 "), "{made}");
    let added = done(&server, &format!("{SHIPS}/add"), items());
    assert_eq!(added["usage"]["prompt_tokens"], 9 + 6 + 24, "a long text is cut at what the encoder reads");
    let found = done(&server, &format!("{SHIPS}/search"), json!({"query": "hello, world!", "by": "meaning", "k": 1}));
    assert_eq!((&found["data"][0]["id"], &found["usage"]["prompt_tokens"]), (&json!("b"), &json!(6)));
    assert!(found["data"][0]["score"].as_f64().unwrap() > 0.999, "capitals are nothing to this encoder: {found}");
    drop(server);
    let other = EmbedderSettings { query_prefix: "query: ".into(), ..here() };
    for embedder in [EmbedderSettings::default(), other] {
        let server = start(embedder, Some(dir.path()));
        let reply = post(server.addr, &format!("{SHIPS}/add"), &items());
        assert_eq!(refused(reply, 409, made["model"].as_str().unwrap())["code"], "other_model");
    }
    let server = start(here(), Some(dir.path()));
    assert_eq!(done(&server, &format!("{SHIPS}/add"), items())["items"], 3);
}

#[test]
fn a_server_elsewhere_makes_the_vectors_of_collections_and_its_end_is_told() {
    let (maker, dir) = (start(here(), None), tempfile::tempdir().unwrap());
    let server = start(elsewhere(&maker), Some(dir.path()));
    put(&server, SHIPS);
    let short = json!({"items": [{"id": "a", "text": "The ships of the port."}, {"id": "b", "text": "Hello, World!"}]});
    assert_eq!(done(&server, &format!("{SHIPS}/add"), short)["usage"]["prompt_tokens"], 9 + 6);
    let by_meaning = json!({"query": "hello, world!", "by": "meaning", "k": 1});
    assert_eq!(done(&server, &format!("{SHIPS}/search"), by_meaning.clone())["data"][0]["id"], "b");
    assert_eq!(get(server.addr, "/v1/models").json()["data"].as_array().unwrap().len(), 2, "it is not served here");
    let long = post(server.addr, &format!("{SHIPS}/add"), &items());
    assert_eq!(refused(long, 502, "gave no vectors: 400")["code"], "embedder_failed");
    let narrow = EmbedderSettings { dimensions: 31, ..elsewhere(&maker) };
    let other = tempfile::tempdir().unwrap();
    let narrow = start(narrow, Some(other.path()));
    put(&narrow, SHIPS);
    let reply = post(narrow.addr, &format!("{SHIPS}/add"), &json!({"items": [{"text": "a"}]}));
    refused(reply, 502, "wanted 31 numbers (documents.embedder.dimensions), got 32");
    drop(maker);
    refused(post(server.addr, &format!("{SHIPS}/search"), &by_meaning), 502, "gave no vectors");
    done(&server, &format!("{SHIPS}/search"), json!({"query": "hello", "by": "words"}));
}
