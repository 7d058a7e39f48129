//! Vectors of stores over HTTP, made by a server elsewhere that knows what texts are about: from words alone to the
//! self-test and back.

use crate::documents::Client;
use crate::support::client::{done, refused};
use crate::support::*;
use chimere::embedder::EmbedderSettings;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const STORES: &str = "/v1/vector_stores";
/// Passages of the file, and numbers of a vector.
const TOWNS: usize = 24;

/// The longest text that the server elsewhere reads: shorter than a passage is.
const TEXT_BYTES_MAX: usize = 150;

/// A server of embeddings: the vector of a text lies along the axis of the first number that the text has.
struct Elsewhere {
    addr: SocketAddr,
    texts: Arc<AtomicUsize>,
    open: Arc<()>,
}

impl Elsewhere {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, texts, open) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let (counted, alive) = (texts.clone(), Arc::downgrade(&open));
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if alive.strong_count() == 0 {
                    return;
                }
                counted.fetch_add(answer(socket), Ordering::SeqCst);
            }
        });
        Self { addr, texts, open }
    }

    fn settings(&self) -> EmbedderSettings {
        let (url, dimensions) = (format!("http://{}/v1", self.addr), TOWNS as u32);
        EmbedderSettings { url, name: "towns".into(), dimensions, ..Default::default() }
    }

    fn texts(&self) -> usize {
        self.texts.load(Ordering::SeqCst)
    }

    /// From now on nobody answers.
    fn end(self) {
        let Self { addr, open, .. } = self;
        drop(open);
        TcpStream::connect(addr).ok();
        eventually("the server elsewhere is gone", || TcpStream::connect(addr).is_err());
    }
}

/// Answers one request -> its texts.
fn answer(mut socket: TcpStream) -> usize {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let body = loop {
        let Ok(count @ 1..) = socket.read(&mut buffer) else { return 0 };
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
        if length.is_some_and(|length| body.len() >= length) {
            break serde_json::from_str::<Value>(body).unwrap();
        }
    };
    let texts = body["input"].as_array().unwrap();
    let row = |(index, text): (usize, &Value)| {
        let number = text.as_str().unwrap().split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty());
        let axis = number.map_or(0, |number| number.parse::<usize>().unwrap() % TOWNS);
        let vector: Vec<u8> = (0..TOWNS).map(|at| u8::from(at == axis)).collect();
        json!({"index": index, "embedding": vector})
    };
    let rows: Vec<Value> = texts.iter().enumerate().map(row).collect();
    let fits = texts.iter().all(|text| text.as_str().unwrap().len() <= TEXT_BYTES_MAX);
    let status = if fits { "200 OK" } else { "400 Bad Request" };
    let answer = json!({"data": rows, "usage": {"prompt_tokens": 1}}).to_string();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
    socket.write_all((head + &answer).as_bytes()).ok();
    texts.len()
}

fn start(dir: &Path, embedder: EmbedderSettings) -> Server {
    Server::start(Options { documents: Some(dir.to_owned()), embedder, ..Options::default() })
}

/// Sections whose sentences have no word in common but those that all have.
fn towns() -> String {
    let sentence = |of: &str, i: usize| format!("Of the old {of}{i} in the land much is known today.");
    let section =
        |i: usize| format!("# Town\n\n{}", ["port", "ferry", "song", "mayor"].map(|of| sentence(of, i)).join(" "));
    (0..TOWNS).map(section).collect::<Vec<_>>().join("\n\n")
}

fn search(client: Client<'_>, store: &str, body: Value) -> Vec<Value> {
    client.post(&format!("{STORES}/{store}/search"), &body)["data"].as_array().unwrap().clone()
}

fn by(vectors: u32, words: u32) -> Value {
    let weights = json!({"embedding_weight": vectors, "text_weight": words});
    json!({"query": "unheard 17", "ranking_options": {"hybrid_search": weights}})
}

#[test]
fn a_store_is_found_by_words_at_once_and_by_vectors_once_it_has_found_that_they_help() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), Elsewhere::start());
    let server = start(dir.path(), elsewhere.settings());
    let client = Client(server.addr, None);
    let (store, file) = client.store_of("towns.md", towns().as_bytes());
    assert!(file["chunks"] == TOWNS && towns().len() / TOWNS > TEXT_BYTES_MAX);
    let found = search(client, &store, json!({"query": "ferry17"}));
    assert_eq!((found.len(), &found[0]["scores"]), (1, &json!({"words": 1.0, "vectors": null})));
    let shown = |client: Client<'_>| done(client.json("GET", &format!("{STORES}/{store}"), &Value::Null));
    eventually("the vectors are there", || shown(client)["vectors"]["waiting"] == 0);
    assert_eq!(shown(client)["vectors"]["passages"], TOWNS);
    let tested = client.post(&format!("{STORES}/{store}/selftest"), &json!({}));
    assert!(tested["vectors"]["weight"].as_f64().unwrap() > 0.5, "{tested}");
    assert_eq!(
        (&tested["self_test"]["sentences"], &tested["vectors"]["self_test_due"]),
        (&json!(TOWNS), &json!(false))
    );
    let found = search(client, &store, json!({"query": "unheard 17"}));
    assert!(found[0]["content"][0]["text"].as_str().unwrap().contains("ferry17"), "{found:?}");
    assert_eq!(found[0]["scores"]["words"], 0.0);
    assert!(found[0]["scores"]["vectors"].as_f64().unwrap() > 0.99);
    assert_eq!(search(client, &store, by(0, 1)), [] as [Value; 0], "no passage has the words");
    assert_eq!(search(client, &store, by(1, 0))[0]["start"], found[0]["start"]);
    let several = search(client, &store, json!({"query": ["unheard 17", "ferry4"]}));
    assert_eq!(several.iter().filter(|found| found["score"].as_f64().unwrap() > 0.4).count(), 2, "{several:?}");
    drop(server);
    let (server, read) = (start(dir.path(), elsewhere.settings()), elsewhere.texts());
    let client = Client(server.addr, None);
    eventually("the vectors are read from the disk", || shown(client)["vectors"]["waiting"] == 0);
    assert_eq!((shown(client)["self_test"].clone(), elsewhere.texts()), (tested["self_test"].clone(), read));
    elsewhere.end();
    let alone = search(client, &store, json!({"query": "the song3 of 17"}));
    assert!(alone[0]["content"][0]["text"].as_str().unwrap().contains("song3"), "words alone: {alone:?}");
    assert_eq!(alone[0]["scores"]["vectors"], Value::Null);
    let metrics = get(server.addr, "/metrics").text().to_owned();
    assert!(metrics.contains("chimere_store_words_alone_total 1"), "{metrics}");
    refused(client.json("POST", &format!("{STORES}/{store}/search"), &by(1, 1)), 502, "embedder_failed");
    drop(server);
    let other = Elsewhere::start();
    let server = start(dir.path(), other.settings());
    let client = Client(server.addr, None);
    eventually("another encoder makes its own", || other.texts() >= TOWNS && shown(client)["vectors"]["waiting"] == 0);
    assert_eq!((&shown(client)["self_test"], &shown(client)["vectors"]["weight"]), (&Value::Null, &json!(0.0)));
    done(client.json("DELETE", &format!("/v1/files/{}", file["id"].as_str().unwrap()), &Value::Null));
    assert_eq!(shown(client)["vectors"]["passages"], 0);
}

#[test]
fn without_an_encoder_a_store_goes_by_words_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), EmbedderSettings::default());
    let client = Client(server.addr, None);
    let (store, _) = client.store_of("towns.md", towns().as_bytes());
    let shown = done(client.json("GET", &format!("{STORES}/{store}"), &Value::Null));
    assert_eq!((&shown["vectors"], &shown["self_test"]), (&Value::Null, &Value::Null));
    refused(client.json("POST", &format!("{STORES}/{store}/selftest"), &Value::Null), 409, "no_embedder");
    let error = refused(client.json("POST", &format!("{STORES}/{store}/search"), &by(1, 1)), 400, "no_embedder");
    assert_eq!(error["param"], "ranking_options.hybrid_search.embedding_weight");
    assert_eq!(search(client, &store, by(0, 1)), [] as [Value; 0]);
}
