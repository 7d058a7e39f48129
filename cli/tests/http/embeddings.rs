//! `/v1/embeddings`: with the golden model, whose vectors mean nothing and are the same every time, and with the fake
//! for who waits for whom.

use crate::support::client::{bytes, connect};
use crate::support::*;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::io::Write;

const EMBEDDINGS: &str = "/v1/embeddings";

fn real() -> Server {
    Server::start(Options { real: true, ..Options::default() })
}

fn embed(server: &Server, body: &Value) -> Reply {
    let reply = post(server.addr, EMBEDDINGS, body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

/// Vectors as bits, so that equal means equal.
fn vectors(reply: &Reply) -> Vec<Vec<u32>> {
    let data = reply.json()["data"].as_array().unwrap().clone();
    let number = |x: &Value| (x.as_f64().unwrap() as f32).to_bits();
    data.iter().map(|d| d["embedding"].as_array().unwrap().iter().map(number).collect()).collect()
}

fn length(vector: &[u32]) -> f32 {
    vector.iter().map(|x| f32::from_bits(*x).powi(2)).sum::<f32>().sqrt()
}

/// More than a step's 256 positions.
fn long() -> String {
    "the quick brown fox jumps over the lazy dog ".repeat(20)
}

#[test]
fn every_spelling_of_an_input_gives_the_same_vectors_of_length_1() {
    let server = real();
    let ids = |text: &str| post(server.addr, "/tokenize", &json!({"prompt": text})).json()["tokens"].clone();
    let (a, b) = ("the quick brown fox", "<|im_end|>");
    let reply = embed(&server, &json!({"input": [a, b], "user": "somebody", "model": "tiny"}));
    let want = vectors(&reply);
    let said = reply.json();
    assert_eq!(
        (&said["object"], &said["model"], &said["data"][1]["index"]),
        (&json!("list"), &json!("tiny"), &json!(1))
    );
    assert_eq!(want[0].len(), server::WIDTH as usize);
    assert!(want.iter().all(|v| (length(v) - 1.0).abs() < 1e-5));
    assert_ne!(want[0], want[1]);
    let text_ids =
        post(server.addr, "/tokenize", &json!({"prompt": b, "parse_special": false})).json()["tokens"].clone();
    let tokens = ids(a).as_array().unwrap().len() + text_ids.as_array().unwrap().len();
    assert_eq!(said["usage"], json!({"prompt_tokens": tokens, "total_tokens": tokens}));
    for (input, want) in [
        (json!(a), &want[..1]),
        (ids(a), &want[..1]),
        (json!([ids(a), b]), &want[..]),
        (json!([ids(a), text_ids]), &want[..]),
    ] {
        assert_eq!(vectors(&embed(&server, &json!({"input": input, "dimensions": server::WIDTH}))), want, "{input}");
    }
    assert_ne!(vectors(&embed(&server, &json!({"input": a, "pooling": "last"})))[0], want[0]);
}

#[test]
fn base64_has_the_bytes_of_the_numbers() {
    let server = real();
    let numbers = vectors(&embed(&server, &json!({"input": "fox", "encoding_format": "float"})));
    let reply = embed(&server, &json!({"input": "fox", "encoding_format": "base64"})).json();
    let bytes = BASE64_STANDARD.decode(reply["data"][0]["embedding"].as_str().unwrap()).unwrap();
    let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
    assert_eq!(words, numbers[0]);
}

#[test]
fn a_text_of_several_pieces_has_the_same_vector_alone_and_among_others() {
    let server = real();
    let alone = vectors(&embed(&server, &json!({"input": long()})));
    let talk = with(ask("hello"), json!({"max_tokens": 30, "stream": true, "ignore_eos": true}));
    let mut stream = Stream::open(server.addr, "/v1/chat/completions", &talk);
    let among = vectors(&embed(&server, &json!({"input": ["a", long(), "b c d", long()]})));
    stream.chunks();
    assert_eq!((&among[1], &among[3]), (&alone[0], &alone[0]));
    assert_ne!(among[0], among[2]);
}

#[test]
fn more_texts_than_the_queue_holds_wait_for_each_other() {
    let server = Server::start(Options { real: true, slots: 2, queue_requests: 3, ..Options::default() });
    let texts: Vec<String> = (0..150).map(|i| format!("text {i}")).collect();
    let got = vectors(&embed(&server, &json!({"input": texts})));
    assert_eq!(got.len(), 150);
    let last = vectors(&embed(&server, &json!({"input": texts[149]})));
    assert_eq!(got[149], last[0], "each vector stands at its text's place");
}

#[test]
fn a_full_queue_is_429_for_who_has_nothing_in_it() {
    let server = Server::start(Options { slots: 1, queue_requests: 1, ..Options::default() });
    server.fake.allow(2);
    let body = with(ask("LOOP[words ]"), json!({"stream": true}));
    let _running = Stream::open(server.addr, "/v1/chat/completions", &body);
    let mut waiting = connect(server.addr);
    waiting.write_all(&bytes("POST", EMBEDDINGS, &[], json!({"input": "a"}).to_string().as_bytes())).unwrap();
    server.wait_for_live(2);
    let reply = post(server.addr, EMBEDDINGS, &json!({"input": ["b", "c"]}));
    assert_eq!(reply.status, 429, "{}", reply.text());
    assert!(reply.header("retry-after").is_some());
    assert_eq!(reply.json()["error"]["code"], "queue_full");
}

#[test]
fn a_client_that_leaves_takes_all_its_texts_along() {
    let server = Server::start(Options { slots: 2, ..Options::default() });
    server.fake.allow(2);
    let texts: Vec<String> = (0..300).map(|i| format!("text {i}")).collect();
    let mut socket = connect(server.addr);
    socket.write_all(&bytes("POST", EMBEDDINGS, &[], json!({"input": texts}).to_string().as_bytes())).unwrap();
    // One text at first, and one more for each that ended.
    eventually("several texts are live", || server.live() > 1);
    drop(socket);
    server.wait_for_live(0);
    server.fake.allow_all();
    assert_eq!(post(server.addr, "/v1/chat/completions", &ask("SAY[next]")).content(), "next");
}

#[test]
fn what_cannot_be_embedded_is_refused_by_its_name() {
    let server = real();
    let many = vec!["a"; chimere::limits::EMBEDDING_INPUTS_MAX + 1];
    let much = vec!["a ".repeat(2000); 160];
    for (body, status, param, part) in [
        (json!({}), 400, "input", "missing"),
        (json!({"input": ""}), 400, "input", "must not be empty"),
        (json!({"input": []}), 400, "input", "must not be empty"),
        (json!({"input": ["a", ""]}), 400, "input[1]", "must not be empty"),
        (json!({"input": [["a"]]}), 400, "input[0][0]", "must be an integer"),
        (json!({"input": [1, 1_000_000]}), 400, "input[1]", "1000000"),
        (json!({"input": 7}), 400, "input", "a string, an array"),
        (json!({"input": many}), 400, "input", "2049 entries, at most 2048"),
        (json!({"input": much}), 400, "input", "at most 300000"),
        (json!({"input": "word ".repeat(4000)}), 400, "input", "the context has room for 2048"),
        (json!({"input": "a", "dimensions": 16}), 400, "dimensions", "must be 32"),
        (
            json!({"input": "a", "encoding_format": "int8"}),
            400,
            "encoding_format",
            "\"float\" or \"base64\", got \"int8\"",
        ),
        (json!({"input": "a", "pooling": "max"}), 400, "pooling", "\"mean\" or \"last\""),
        (json!({"input": "a", "model": "other"}), 404, "model", "does not exist"),
        (json!({"input": "a", "inputs": "b"}), 400, "inputs", "did you mean `input`"),
    ] {
        let reply = post(server.addr, EMBEDDINGS, &body);
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, error["param"].as_str()), (status, Some(param)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    }
    assert_eq!(get(server.addr, EMBEDDINGS).status, 405);
}
