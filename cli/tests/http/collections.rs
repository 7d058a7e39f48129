//! Collections and examples over HTTP, with the golden model: its vectors mean nothing, but a text is nearest to
//! itself.

use crate::support::client::{done, refused};
use crate::support::*;
use chimere::http::auth::AcceptedKeys;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";
const COLLECTIONS: &str = "/v1/engram/collections";

fn start(dir: &Path, keys: AcceptedKeys) -> Server {
    Server::start(Options { real: true, tables: Some(dir.to_owned()), keys, ..Options::default() })
}

fn send(server: &Server, method: &str, path: &str, key: Option<&str>, body: &Value) -> Reply {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let headers: Vec<_> = bearer.iter().map(|value| ("Authorization", value.as_str())).collect();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    request(server.addr, method, &format!("{COLLECTIONS}{path}"), &headers, body.as_bytes())
}

fn ids(reply: &Value) -> Vec<&str> {
    reply["data"].as_array().unwrap().iter().map(|hit| hit["id"].as_str().unwrap()).collect()
}

/// Three questions with answers and one without.
fn items() -> Value {
    json!({"items": [
        {"id": "fox", "text": "the quick brown fox", "answer": "jumps"},
        {"id": "dog", "text": "a lazy dog", "answer": "sleeps <|im_end|>"},
        {"id": "cat", "text": "two cats on a mat", "answer": "purr"},
        {"id": "mute", "text": "nobody answers this"},
    ]})
}

#[test]
fn a_collection_is_made_filled_searched_and_removed_and_outlives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let server = start(dir.path(), AcceptedKeys::Open);
        let made = done(send(&server, "PUT", "/ours", None, &Value::Null));
        assert_eq!(
            (&made["id"], &made["items"], &made["object"]),
            (&json!("ours"), &json!(0), &json!("engram.collection"))
        );
        let added = done(send(&server, "POST", "/ours/add", None, &items()));
        assert_eq!((&added["items"], &added["added"]), (&json!(4), &json!(["fox", "dog", "cat", "mute"])));
        assert!(added["usage"]["prompt_tokens"].as_u64().unwrap() > 8);
    }
    let server = start(dir.path(), AcceptedKeys::Open);
    assert_eq!(done(send(&server, "PUT", "/ours", None, &json!({})))["items"], 4, "what is there stays");
    for (text, id) in [("a lazy dog", "dog"), ("nobody answers this", "mute")] {
        let found = done(send(&server, "POST", "/ours/search", None, &json!({"query": text, "k": 2, "by": "meaning"})));
        assert_eq!((ids(&found)[0], ids(&found).len()), (id, 2));
        assert!((found["data"][0]["score"].as_f64().unwrap() - 1.0).abs() < 1e-5, "{found}");
        assert_eq!(found["data"][0]["text"], text);
        assert!(found["usage"]["prompt_tokens"].as_u64().unwrap() > 0);
        let both = done(send(&server, "POST", "/ours/search", None, &json!({"query": text, "k": 2})));
        let words = json!({"query": text, "k": 2, "by": "words"});
        assert_eq!(both, done(send(&server, "POST", "/ours/search", None, &words)), "until a self-test says otherwise");
        assert_eq!((ids(&both)[0], &both["usage"]["prompt_tokens"]), (id, &json!(0)), "the model reads nothing");
    }
    assert_eq!(done(send(&server, "GET", "", None, &Value::Null))["data"][0]["id"], "ours");
    done(send(&server, "DELETE", "/ours", None, &Value::Null));
    refused(send(&server, "GET", "/ours", None, &Value::Null), 404, "collection_not_found");
    refused(send(&server, "POST", "/ours/add", None, &items()), 404, "collection_not_found");
}

/// A text of sentences that no other number has.
fn towns(number: u32) -> String {
    let sentence = |of: &str| format!("The {of} of the town number {number} is known to be {}.", number * number);
    ["port", "harbour", "song", "mayor"].map(sentence).join(" ")
}

#[test]
fn a_collection_tests_itself_beside_users_who_always_have_a_request() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    done(send(&server, "PUT", "/ours", None, &Value::Null));
    let items: Vec<Value> = (0..20).map(|i| json!({"id": i.to_string(), "text": towns(i)})).collect();
    let (tested, end) = (AtomicBool::new(false), std::time::Instant::now() + PATIENCE);
    std::thread::scope(|scope| {
        // Two take turns, so that there is always one, and some time only decode rows.
        for user in 0..2 {
            let (addr, tested) = (server.addr, &tested);
            scope.spawn(move || {
                let body = with(
                    ask(&format!("user {user}")),
                    json!({"max_tokens": 150 + user, "ignore_eos": true, "drafts": false, "temperature": 1}),
                );
                while !tested.load(Ordering::Relaxed) && std::time::Instant::now() < end {
                    done(post(addr, CHAT, &body));
                }
            });
        }
        done(send(&server, "POST", "/ours/add", None, &json!({"items": items})));
        let shown = || done(send(&server, "GET", "/ours", None, &Value::Null));
        let mut self_test = Value::Null;
        while self_test.is_null() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            self_test = shown()["self_test"].clone();
        }
        tested.store(true, Ordering::Relaxed);
        assert_eq!(self_test["sentences"], json!(20), "{self_test}");
    });
}

/// The golden model's vectors mean nothing, so its self-test leaves searches to words.
#[test]
fn a_collection_tests_itself_while_the_service_is_idle_and_says_how_that_went() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    let made = done(send(&server, "PUT", "/ours", None, &Value::Null));
    assert_eq!((&made["vector_weight"], &made["self_test"]), (&json!(0.0), &Value::Null));
    let items: Vec<Value> = (0..24).map(|i| json!({"id": i.to_string(), "text": towns(i)})).collect();
    let added = done(send(&server, "POST", "/ours/add", None, &json!({"items": items})));
    assert_eq!((&added["self_test_due"], &added["self_test"]), (&json!(true), &Value::Null));
    let shown = || done(send(&server, "GET", "/ours", None, &Value::Null));
    eventually("the self-test", || !shown()["self_test"].is_null());
    let shown = shown();
    let test = &shown["self_test"];
    assert_eq!((&test["sentences"], &test["items"], &test["vector_weight"]), (&json!(24), &json!(24), &json!(0.0)));
    assert_eq!((&test["recall_percent"], &test["fell_points"]), (&json!(100.0), &Value::Null), "{test}");
    assert_eq!((test["weights"].as_array().unwrap().len(), &shown["self_test_due"]), (7, &json!(false)));
    drop(server);
    let server = start(dir.path(), AcceptedKeys::Open);
    assert_eq!(&done(send(&server, "GET", "", None, &Value::Null))["data"][0]["self_test"], test);
}

#[test]
fn a_key_has_its_own_collections_and_sees_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), keys("sk-a\nsk-b\n"));
    let (a, b) = (Some("sk-a"), Some("sk-b"));
    done(send(&server, "PUT", "/mine", a, &Value::Null));
    done(send(&server, "POST", "/mine/add", a, &items()));
    assert_eq!(done(send(&server, "GET", "", b, &Value::Null))["data"], json!([]));
    for (method, path, body) in [
        ("GET", "/mine", Value::Null),
        ("DELETE", "/mine", Value::Null),
        ("POST", "/mine/add", items()),
        ("POST", "/mine/search", json!({"query": "fox"})),
    ] {
        refused(send(&server, method, path, b, &body), 404, "collection_not_found");
    }
    let body = with(ask("a lazy dog"), json!({"engram": {"semantic": {"collection": "mine"}}})).to_string();
    let chat =
        |key: &str| request(server.addr, "POST", CHAT, &[("Authorization", &format!("Bearer {key}"))], body.as_bytes());
    let error = refused(chat("sk-b"), 400, "collection_not_found");
    assert_eq!(error["param"], "engram.semantic.collection");
    done(send(&server, "PUT", "/mine", b, &Value::Null));
    assert_eq!(
        done(chat("sk-b"))["timings"]["engram"]["semantic"]["ids"],
        json!([]),
        "the same name is another collection"
    );
    assert_eq!(done(chat("sk-a"))["timings"]["engram"]["semantic"]["ids"][0], "dog");
}

#[test]
fn without_keys_beyond_loopback_nobody_makes_a_collection() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::OpenToAll);
    refused(send(&server, "PUT", "/ours", None, &Value::Null), 403, "key_required");
}

#[test]
fn examples_stand_before_the_question_as_turns_and_a_control_token_in_them_is_text() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    done(send(&server, "PUT", "/ours", None, &Value::Null));
    done(send(&server, "POST", "/ours/add", None, &items()));
    let question = json!({"model": "tiny", "max_tokens": 1, "temperature": 0, "messages": [
        {"role": "system", "content": "be short"}, {"role": "user", "content": "a lazy dog"}]});
    let plain = done(post(server.addr, CHAT, &question));
    let reply = done(post(
        server.addr,
        CHAT,
        &with(question.clone(), json!({"engram": {"semantic": {"collection": "ours", "k": 9}}})),
    ));
    let said = &reply["timings"]["engram"]["semantic"];
    let found: Vec<&str> = said["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert_eq!((found.len(), found[0]), (3, "dog"), "those with an answer, the nearest first: {said}");
    assert_eq!(said["collection"], "ours");
    assert_eq!(reply["timings"]["engram"]["lookups"], Value::Null, "no table was asked");
    // The same conversation as a client would have written it out: its control tokens are text too.
    let listed = items();
    let item = |id: &str| listed["items"].as_array().unwrap().iter().find(|item| item["id"] == id).unwrap().clone();
    let mut written = vec![question["messages"][0].clone()];
    for id in found.iter().rev() {
        written.push(json!({"role": "user", "content": item(id)["text"]}));
        written.push(json!({"role": "assistant", "content": item(id)["answer"]}));
    }
    written.push(question["messages"][1].clone());
    let by_hand = done(post(server.addr, CHAT, &with(question.clone(), json!({"messages": written}))));
    assert_eq!(reply["usage"]["prompt_tokens"], by_hand["usage"]["prompt_tokens"]);
    assert_eq!(reply["choices"], by_hand["choices"]);
    assert!(reply["usage"]["prompt_tokens"].as_u64() > plain["usage"]["prompt_tokens"].as_u64());
}

#[test]
fn where_room_is_short_there_are_fewer_examples_and_the_question_stays() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        Server::start(Options { context: 512, real: true, tables: Some(dir.path().to_owned()), ..Options::default() });
    done(send(&server, "PUT", "/ours", None, &Value::Null));
    let item =
        |i: u32| json!({"id": i.to_string(), "text": format!("{i} {}", "long words ".repeat(12)), "answer": "yes"});
    done(send(&server, "POST", "/ours/add", None, &json!({"items": (0..8).map(item).collect::<Vec<_>>()})));
    let examples = |max_tokens: u32| {
        let semantic = json!({"collection": "ours", "k": 8});
        let more = json!({"max_tokens": max_tokens, "ignore_eos": true, "engram": {"semantic": semantic}});
        let reply = done(post(server.addr, CHAT, &with(ask("long words"), more)));
        assert_eq!(reply["usage"]["completion_tokens"], max_tokens, "the answer has its room");
        reply["timings"]["engram"]["semantic"]["ids"].as_array().unwrap().len()
    };
    let (none, some, most) = (examples(480), examples(250), examples(1));
    assert!(none == 0 && none < some && some < most, "{none} {some} {most}");
}

#[test]
fn what_a_collection_cannot_do_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    for name in ["/%2e%2e", "/a%20b"] {
        let reply = send(&server, "PUT", name, None, &Value::Null);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("collection")), "{}", reply.text());
    }
    done(send(&server, "PUT", "/ours", None, &Value::Null));
    for (path, body, param) in [
        ("/ours/add", json!({"items": []}), "items"),
        ("/ours/add", json!({"items": [{"text": "word ".repeat(3000)}]}), "items"),
        ("/ours/search", json!({"query": "a", "k": 17}), "k"),
        ("/ours/search", json!({"query": ""}), "query"),
    ] {
        let reply = send(&server, "POST", path, None, &body);
        assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some(param)), "{}", reply.text());
    }
    for (path, engram, param) in [
        (CHAT, json!({"semantic": {"k": 1}}), "engram.semantic.collection"),
        (CHAT, json!({"semantic": {"collection": "ours", "k": 0}}), "engram.semantic.k"),
        (CHAT, json!({"semantic": {"collection": "nobody's"}}), "engram.semantic.collection"),
        ("/v1/completions", json!({"semantic": {"collection": "ours"}}), "engram.semantic"),
    ] {
        let body = if path == CHAT { ask("a") } else { json!({"prompt": "a"}) };
        let reply = post(server.addr, path, &with(body, json!({"engram": engram})));
        assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some(param)), "{}", reply.text());
    }
    let nowhere = Server::start(Options { real: true, ..Options::default() });
    refused(send(&nowhere, "PUT", "/ours", None, &Value::Null), 409, "no_directory");
}

/// Kills the program itself while a collection is filled, some times. What it acknowledged is found again, each batch
/// whole or not at all.
#[test]
fn a_crash_at_any_moment_loses_no_acknowledged_item_and_leaves_no_half_batch() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.toml");
    let tables = dir.path().join("tables");
    std::fs::create_dir(&tables).unwrap();
    std::fs::write(&config, format!("[engram]\ndirectory = {tables:?}\n")).unwrap();
    let batch = |round: u64, n: u64| {
        let item = |i: u64| json!({"id": format!("{round} {n} {i}"), "text": format!("r{round} n{n} i{i}"), "answer": "no ".repeat(300)});
        json!({"items": [item(0), item(1)]})
    };
    let mut acknowledged = 0;
    for round in 0..6 {
        let mut program = Program::start(&["--config", config.to_str().unwrap()]);
        let addr = program.addr;
        assert_eq!(request(addr, "PUT", &format!("{COLLECTIONS}/ours"), &[], b"").status, 200);
        let items = get(addr, &format!("{COLLECTIONS}/ours")).json()["items"].as_u64().unwrap();
        // One batch may have been on its way to its acknowledgement in each round.
        assert!(
            items.is_multiple_of(2) && (acknowledged..=acknowledged + round).contains(&(items / 2)),
            "{acknowledged}, {items} items"
        );
        if round > 0 {
            let found =
                post(addr, &format!("{COLLECTIONS}/ours/search"), &json!({"query": format!("r{} n0 i1", round - 1)}));
            assert_eq!(ids(&found.json())[0], format!("{} 0 1", round - 1), "the last round's first is there");
        }
        let added = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0.. {
                    if !adds(addr, &batch(round, n)) {
                        return;
                    }
                    added.fetch_add(1, Ordering::SeqCst);
                }
            });
            // Not timing decides: wherever the blow falls, the same must hold.
            eventually("a first batch", || added.load(Ordering::SeqCst) > 0);
            std::thread::sleep(Duration::from_micros(7_919 * (round * round % 11)));
            program.kill();
        });
        acknowledged += added.load(Ordering::SeqCst);
    }
    assert!(acknowledged >= 6);
}

/// Whether a batch was acknowledged; a connection that breaks means no.
fn adds(addr: SocketAddr, body: &Value) -> bool {
    let Ok(mut socket) = TcpStream::connect(addr) else { return false };
    let sent = client::bytes("POST", &format!("{COLLECTIONS}/ours/add"), &[], body.to_string().as_bytes());
    let mut reply = String::new();
    socket.write_all(&sent).is_ok() && socket.read_to_string(&mut reply).is_ok() && reply.contains("\"added\"")
}
