//! Tables and documents over HTTP, with the golden model on the CPU: its weights are random, so what a table knows it
//! says.

use crate::support::*;
use chimere::engram::{Store, TableName, publish_table, unix_seconds};
use chimere::http::auth::AcceptedKeys;
use chimere::text::{Fingerprint, Tokenizer};
use chimere_engine::engram::{BuildOptions, ORDER_MAX, Orders, Table, build, publish};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::LazyLock;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const FOX: &str = "the quick brown fox jumps over the lazy dog";

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let model = chimere_engine::model::load(&server::golden()).unwrap();
    Tokenizer::new(&model.text.tokenizer).unwrap()
});

fn start(tables: Option<&Path>, keys: AcceptedKeys) -> Server {
    Server::start(Options { real: true, tables: tables.map(Path::to_owned), keys, ..Options::default() })
}

/// Writes a table of one text, as `chimere engram build` does.
fn write_table(dir: &Path, name: &str, text: &str) {
    let ids = Fingerprint::of(&TOKENIZER);
    let orders = Orders::new(2, 5).unwrap();
    let options =
        BuildOptions { orders, longest: ORDER_MAX, min_count: 1, vocab: ids.vocab, tokenizer: ids.hash, time: 1 };
    let image = build(&[&TOKENIZER.encode_plain(text)], &options).unwrap();
    publish(&dir.join(format!("{name}.engr")), |out| image.write(out)).unwrap();
}

/// Half of the text as a prompt, and as many tokens as the other half has.
fn prompt(text: &str, engram: Value) -> (Value, String) {
    let ids = TOKENIZER.encode_plain(text);
    let (before, after) = ids.split_at(ids.len() / 2);
    let body = json!({"prompt": before, "max_tokens": after.len(), "temperature": 0, "seed": 1, "ignore_eos": true, "engram": engram});
    (body, TOKENIZER.decode(after, true))
}

fn text(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_document_supplies_what_the_model_does_not_know_and_the_timings_say_so() {
    let server = start(None, AcceptedKeys::Open);
    let (body, rest) = prompt(FOX, json!({"documents": [FOX], "lambda": 0.95}));
    let reply = post(server.addr, COMPLETIONS, &body);
    assert_eq!(text(&reply), rest);
    let tokens = body["max_tokens"].as_u64().unwrap();
    let engram = &reply.json()["timings"]["engram"];
    assert_eq!((&engram["lookups"], &engram["hits"]), (&json!(tokens), &json!(tokens)), "{engram}");
    assert!((1..=tokens).contains(&engram["changed_tokens"].as_u64().unwrap()), "{engram}");
    let (mut plain, _) = prompt(FOX, Value::Null);
    plain.as_object_mut().unwrap().remove("engram");
    let reply = post(server.addr, COMPLETIONS, &plain);
    assert_ne!(text(&reply), rest);
    assert_eq!(reply.json()["timings"]["engram"], Value::Null);
}

#[test]
fn a_bias_moves_the_same_tokens_by_a_bounded_amount() {
    let server = start(None, AcceptedKeys::Open);
    let (body, _) = prompt(FOX, json!({"documents": [FOX], "mode": "bias", "alpha": 0}));
    let (plain, _) = prompt(FOX, json!({"tables": []}));
    assert_eq!(
        text(&post(server.addr, COMPLETIONS, &body)),
        text(&post(server.addr, COMPLETIONS, &plain)),
        "no strength, no change"
    );
    let (body, rest) = prompt(FOX, json!({"documents": vec![FOX; 40], "alpha": 2}));
    assert_eq!(text(&post(server.addr, COMPLETIONS, &body)), rest, "a context seen 40 times is believed");
}

#[test]
fn a_request_says_the_same_alone_and_among_others_with_and_without_tables() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path(), "fox", FOX);
    let server = start(Some(dir.path()), AcceptedKeys::Open);
    let body = |i: usize| {
        let engram = match i % 4 {
            0 => json!({"tables": ["fox"], "lambda": 0.5}),
            1 => json!({"documents": [format!("{FOX} {i}")], "lambda": 0.7, "min_count": 1}),
            2 => json!({"tables": ["fox"], "documents": ["over the moon"], "alpha": 1.5, "phase": "all"}),
            _ => Value::Null,
        };
        let sampled = json!({"prompt": format!("the quick {i} brown fox"), "max_tokens": 24, "temperature": 0.8, "seed": i, "n": 1 + i % 2,
                             "ignore_eos": true, "engram": engram, "logprobs": 0});
        with(sampled, json!({"stream": false}))
    };
    let answer = |i| post(server.addr, COMPLETIONS, &body(i)).json()["choices"].clone();
    let alone: Vec<Value> = (0..16).map(answer).collect();
    let together: Vec<Value> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..16).map(|i| scope.spawn(move || answer(i))).collect();
        asked.into_iter().map(|a| a.join().unwrap()).collect()
    });
    for i in 0..16 {
        assert!(alone[i].is_array(), "{}", alone[i]);
        assert_eq!(alone[i], together[i], "request {i}");
    }
}

#[test]
fn a_table_can_be_replaced_and_removed_while_the_service_runs() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path(), "fox", FOX);
    let server = start(Some(dir.path()), AcceptedKeys::Open);
    let engram = json!({"tables": ["fox"], "lambda": 0.95});
    let (body, rest) = prompt(FOX, engram.clone());
    assert_eq!(text(&post(server.addr, COMPLETIONS, &body)), rest);
    let other = "one small step for a man, one giant leap for mankind";
    write_table(dir.path(), "fox", other);
    let (body, rest) = prompt(other, engram);
    eventually("the new table", || text(&post(server.addr, COMPLETIONS, &body)) == rest);
    // A file that is no table leaves the one that was there.
    std::fs::write(dir.path().join("new.part"), b"nonsense").unwrap();
    std::fs::rename(dir.path().join("new.part"), dir.path().join("fox.engr")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(text(&post(server.addr, COMPLETIONS, &body)), rest);
    std::fs::remove_file(dir.path().join("fox.engr")).unwrap();
    let mut reply = post(server.addr, COMPLETIONS, &body);
    eventually("the table is gone", || {
        reply = post(server.addr, COMPLETIONS, &body);
        reply.status == 400
    });
    let error = &reply.json()["error"];
    assert_eq!((&error["param"], &error["code"]), (&json!("engram.tables"), &json!("table_not_found")));
    assert!(error["message"].as_str().unwrap().contains("there is no table \"fox\" here; there are none"), "{error}");
}

#[test]
fn a_reply_says_on_request_which_document_each_changed_token_is_from() {
    let server = start(None, AcceptedKeys::Open);
    let document = json!({"id": "fox", "title": "Of foxes", "text": FOX});
    let (body, rest) = prompt(FOX, json!({"documents": [document], "sources": true}));
    let reply = post(server.addr, COMPLETIONS, &body);
    let sources = reply.json()["timings"]["engram"]["sources"].as_array().unwrap().clone();
    assert!(!sources.is_empty() && sources.len() as u64 <= body["max_tokens"].as_u64().unwrap(), "{}", reply.text());
    for source in &sources {
        let named = (&source["document"], &source["title"], &source["choice"]);
        assert_eq!(named, (&json!("fox"), &json!("Of foxes"), &json!(0)), "{source}");
        assert!(rest.contains(source["text"].as_str().unwrap()), "{source}");
    }
    let (body, _) = prompt(FOX, json!({"documents": [FOX]}));
    let engram = &post(server.addr, COMPLETIONS, &body).json()["timings"]["engram"];
    assert!(engram["changed_tokens"].as_u64().unwrap() > 0 && engram["sources"].is_null(), "{engram}");
}

/// Nothing in these sentences is of a kind that the shipped model was trained to speak of: it refuses by itself.
#[test]
fn somebody_s_own_three_sentences_are_answered_from() {
    let program = Program::shipped(&[]);
    let notes = "The Tarnok lighthouse keeper is Ilsa Brandt. The harbour of Tarnok closes at nine.\n\
                 Tickets for the Tarnok ferry cost four crowns.";
    for (question, sentence) in [
        ("Who is the Tarnok lighthouse keeper?", "The Tarnok lighthouse keeper is Ilsa Brandt."),
        ("When does the harbour of Tarnok close?", "The harbour of Tarnok closes at nine."),
        ("How much do tickets for the Tarnok ferry cost?", "Tickets for the Tarnok ferry cost four crowns."),
    ] {
        for thinking in [true, false] {
            let body = json!({"messages": [{"role": "user", "content": question}], "temperature": 0,
                              "chat_template_kwargs": {"enable_thinking": thinking}, "engram": {"documents": [notes], "sources": true}});
            let reply = post(program.addr, CHAT, &body).json();
            let choice = &reply["choices"][0];
            assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(sentence), &json!("stop")));
            let sources = reply["timings"]["engram"]["sources"].as_array().unwrap();
            assert!(sources.iter().any(|source| source["document"] == 0), "{reply}");
        }
    }
}

#[test]
fn tables_are_silent_inside_thinking_unless_told_otherwise() {
    let server = start(None, AcceptedKeys::Open);
    let thinking = |phase: &str| {
        let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "temperature": 0, "ignore_eos": true,
                          "chat_template_kwargs": {"enable_thinking": true}, "engram": {"documents": [FOX], "phase": phase}});
        post(server.addr, CHAT, &body).json()["timings"]["engram"]["lookups"].clone()
    };
    assert_eq!((thinking("answer"), thinking("all")), (json!(0), json!(6)));
    let mut answer =
        with(ask("hi"), json!({"max_tokens": 6, "temperature": 0, "engram": {"documents": [FOX]}, "ignore_eos": true}));
    assert_eq!(post(server.addr, CHAT, &answer).json()["timings"]["engram"]["lookups"], 6);
    answer["stream"] = json!(true);
    let chunks = Stream::open(server.addr, CHAT, &answer).chunks();
    assert_eq!(chunks.last().unwrap()["timings"]["engram"]["lookups"], 6);
}

#[test]
fn a_key_sees_its_own_tables_and_those_of_everybody() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path(), "ours", FOX);
    write_table(dir.path(), "all", "one two three four five six");
    let hash = |key: &str| Sha256::digest(key).iter().map(|b| format!("{b:02x}")).collect::<String>();
    std::fs::write(
        dir.path().join("access.toml"),
        format!(
            "[tables.ours]\nkeys = [\"{a}\"]\n[tables.all]\nkeys = [\"*\"]\n[keys.{a}]\nlambda = 0.95\n",
            a = hash("sk-a")
        ),
    )
    .unwrap();
    let server = start(Some(dir.path()), keys("sk-a\nsk-b\n"));
    let (body, rest) = prompt(FOX, json!({"tables": ["ours"]}));
    let ask = |key: &str| {
        let headers = [("Authorization", key), ("Content-Type", "application/json")];
        request(server.addr, "POST", COMPLETIONS, &headers, body.to_string().as_bytes())
    };
    assert_eq!(text(&ask("Bearer sk-a")), rest, "its own strength is in access.toml");
    let refused = ask("Bearer sk-b");
    assert_eq!(refused.status, 400);
    // As for a table that does not exist.
    assert!(refused.text().contains("there is no table \\\"ours\\\" here; there are all\""), "{}", refused.text());
}

#[test]
fn mistakes_in_the_field_are_named() {
    let server = start(None, AcceptedKeys::Open);
    let long = "word ".repeat(70_000);
    for (engram, param, says) in [
        (json!(1), "engram", "must be an object"),
        (json!({"table": []}), "engram.table", "did you mean `engram.tables`?"),
        (json!({"tables": ["x"]}), "engram.tables", "there is no table \"x\" here"),
        (json!({"tables": [1]}), "engram.tables[0]", "must be a string"),
        (json!({"tables": vec!["x"; 17]}), "engram.tables", "has 17 entries, at most 16"),
        (json!({"mode": "mix"}), "engram.mode", "must be \"auto\", \"mixture\" or \"bias\", got \"mix\""),
        (json!({"phase": "thinking"}), "engram.phase", "must be \"answer\" or \"all\""),
        (json!({"alpha": 2.5}), "engram.alpha", "between 0 and 2, got 2.5"),
        (json!({"lambda": 0.96}), "engram.lambda", "between 0 and 0.95, got 0.96"),
        (json!({"lambda": -1}), "engram.lambda", "between 0 and 0.95, got -1"),
        (json!({"min_count": 0}), "engram.min_count", "between 1 and"),
        (json!({"mode": "bias", "lambda": 0.5}), "engram.lambda", "belongs to `engram.mode` \"mixture\""),
        (json!({"mode": "mixture", "alpha": 0.5}), "engram.alpha", "belongs to `engram.mode` \"bias\""),
        (json!({"alpha": 0.5, "lambda": 0.5}), "engram.lambda", "one mode only"),
        (json!({"documents": [""]}), "engram.documents[0]", "must not be empty"),
        (json!({"documents": [1]}), "engram.documents[0]", "must be a string or an object with a \"text\""),
        (json!({"documents": [{"id": "a"}]}), "engram.documents[0].text", "a string"),
        (json!({"documents": [{"text": ""}]}), "engram.documents[0].text", "must not be empty"),
        (json!({"documents": [{"text": "x", "name": "y"}]}), "engram.documents[0].name", "unknown field"),
        (json!({"documents": [{"text": "x", "title": "y".repeat(1025)}]}), "engram.documents[0].title", "at most 1024"),
        (json!({"mode": "auto", "lambda": 0.5}), "engram.lambda", "belongs to `engram.mode` \"mixture\""),
        (json!({"documents": [long]}), "engram.documents", "at most 65536 are taken"),
        (json!({"documents": vec!["x"; 257]}), "engram.documents", "has 257 entries, at most 256"),
    ] {
        let reply = post(server.addr, CHAT, &with(ask("hi"), json!({"engram": engram})));
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
}

fn send(server: &Server, method: &str, path: &str, body: &Value) -> Reply {
    request(
        server.addr,
        method,
        &format!("/v1/engram/tables{path}"),
        &[("Content-Type", "application/json")],
        body.to_string().as_bytes(),
    )
}

#[test]
fn a_table_is_taught_over_the_interface_and_what_it_was_taught_is_undone_step_by_step() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(Some(dir.path()), AcceptedKeys::Open);
    let other = "one small step for a man, one giant leap for mankind";
    let engram = json!({"tables": ["own"], "lambda": 0.95});
    let knows = |what: &str| {
        let (body, rest) = prompt(what, engram.clone());
        let reply = post(server.addr, COMPLETIONS, &body);
        reply.status == 200 && text(&reply) == rest
    };
    let put = send(&server, "PUT", "/own", &json!({"texts": [FOX]}));
    assert_eq!((put.status, &put.json()["revision"]), (200, &json!(1)), "{}", put.text());
    eventually("what was put", || knows(FOX));
    let poor = send(&server, "POST", "/own/learn", &json!({"texts": [other], "quality": 0.4}));
    assert_eq!(poor.json()["accepted"], false, "{}", poor.text());
    assert_eq!(send(&server, "POST", "/own/learn", &json!({"texts": [other], "quality": 0.9})).json()["revision"], 2);
    eventually("what was learned", || knows(other));
    assert!(knows(FOX), "learning leaves what was put");
    let shown = send(&server, "GET", "/own", &Value::Null).json();
    assert_eq!((&shown["id"], &shown["layers"]), (&json!("own"), &json!(2)), "{shown}");
    assert_eq!(send(&server, "GET", "", &Value::Null).json()["data"], json!([shown]));
    assert_eq!(send(&server, "DELETE", "/own", &Value::Null).status, 200);
    eventually("it is gone", || send(&server, "GET", "/own", &Value::Null).status == 404);
    // The removal, the learning and the putting are undone one after the other.
    assert_eq!(send(&server, "POST", "/own/rollback", &Value::Null).status, 200);
    eventually("it is back", || knows(FOX) && knows(other));
    send(&server, "POST", "/own/rollback", &Value::Null);
    eventually("nothing learned", || knows(FOX) && !knows(other));
    send(&server, "POST", "/own/rollback", &Value::Null);
    eventually("nothing left", || send(&server, "GET", "/own", &Value::Null).status == 404);
    let more = send(&server, "POST", "/own/rollback", &Value::Null);
    assert_eq!((more.status, &more.json()["error"]["code"]), (404, &json!("table_not_found")));
}

#[test]
fn teaching_says_what_is_wrong_and_leaves_an_operator_s_file_alone() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path(), "file", FOX);
    let server = start(Some(dir.path()), AcceptedKeys::Open);
    for (method, path, body, status, param) in [
        ("PUT", "/file", json!({"texts": ["x"]}), 409, Value::Null),
        ("DELETE", "/file", Value::Null, 409, Value::Null),
        ("DELETE", "/none", Value::Null, 404, json!("table")),
        ("PUT", "/.x", json!({"texts": ["x"]}), 400, json!("table")),
        ("PUT", "/x", json!({"texts": []}), 400, json!("texts")),
        ("PUT", "/x", json!({"texts": ["x"], "quality": 1}), 400, json!("quality")),
        ("PUT", "/x", json!({"texts": ["x"], "orders": "0-9"}), 400, json!("orders")),
        ("POST", "/x/learn", json!({"texts": ["x"]}), 400, json!("quality")),
        ("POST", "/x/learn", json!({"texts": ["x"], "quality": 2}), 400, json!("quality")),
        ("POST", "/x", json!({}), 405, Value::Null),
    ] {
        let reply = send(&server, method, path, &body);
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (status, &param),
            "{method} {path}: {}",
            reply.text()
        );
    }
    assert_eq!(send(&server, "GET", "/file", &Value::Null).json()["layers"], 1);
    // A learned layer may lie beside a file of the operator's.
    assert_eq!(send(&server, "POST", "/file/learn", &json!({"texts": ["one two three"], "quality": 1})).status, 200);
    eventually("both layers", || send(&server, "GET", "/file", &Value::Null).json()["layers"] == 2);
    let keyed = start(Some(dir.path()), AcceptedKeys::one("sk"));
    let headers = [("Authorization", "Bearer sk"), ("Content-Type", "application/json")];
    let reply = request(keyed.addr, "PUT", "/v1/engram/tables/x", &headers, b"{\"texts\": [\"x\"]}");
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (403, &json!("admin_required")));
}

/// Kills the program itself while it is taught, some ten times. What it acknowledged is in the store, what can be read
/// is whole.
#[test]
fn a_crash_at_any_moment_loses_no_acknowledged_write_and_leaves_no_half_table() {
    let dir = tempfile::tempdir().unwrap();
    let (ids, name) = (Fingerprint::of(&TOKENIZER), TableName::new("own").unwrap());
    let config = dir.path().join("config.toml");
    let tables = dir.path().join("tables");
    std::fs::create_dir(&tables).unwrap();
    std::fs::write(&config, format!("[engram]\ndirectory = {tables:?}\n")).unwrap();
    let mut acknowledged = 0u64;
    for round in 0..10u64 {
        let mut program = Program::start(&["--config", config.to_str().unwrap()]);
        let addr = program.addr;
        let (stop, taught) = (std::sync::atomic::AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut n = 0;
                while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                    // Each text has tokens enough that the store's pages split now and then.
                    let body = json!({"texts": [format!("{FOX} {round} {n} ").repeat(20)], "quality": 1});
                    if !learns(addr, &body) {
                        return;
                    }
                    n += 1;
                    taught.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                }
            });
            // Not timing decides: wherever the blow falls, the same must hold.
            eventually("a first write", || taught.load(std::sync::atomic::Ordering::SeqCst) > 0);
            std::thread::sleep(std::time::Duration::from_micros(7_919 * (round * round % 11)));
            program.kill();
            stop.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        acknowledged += taught.load(std::sync::atomic::Ordering::SeqCst);
        for directory in [tables.clone(), tables.join("learned")] {
            for file in std::fs::read_dir(directory).into_iter().flatten().map(|f| f.unwrap().path()) {
                if file.extension().is_some_and(|suffix| suffix == "engr") {
                    Table::open_for(&file, ids.hash).unwrap_or_else(|e| panic!("round {round}: {e}"));
                }
            }
        }
        let store = Store::new(tables.clone(), ids);
        let writes = store.writes(&name).unwrap() as u64;
        // One write may have been on its way to its acknowledgement in each round.
        assert!(
            (acknowledged..=acknowledged + round + 1).contains(&writes),
            "{acknowledged} acknowledged, {writes} kept"
        );
        publish_table(&store, &name, unix_seconds()).unwrap();
        let table = Table::open_for(&tables.join("learned/own.engr"), ids.hash).unwrap();
        assert_eq!(
            Some(table.tokens()),
            store.layers(&name, unix_seconds()).unwrap().learned.map(|image| image.tokens())
        );
    }
    assert!(acknowledged >= 10);
}

/// Whether a text was acknowledged; a connection that breaks means no.
fn learns(addr: std::net::SocketAddr, body: &Value) -> bool {
    use std::io::{Read, Write};
    let Ok(mut socket) = std::net::TcpStream::connect(addr) else { return false };
    let sent = client::bytes(
        "POST",
        "/v1/engram/tables/own/learn",
        &[("Content-Type", "application/json")],
        body.to_string().as_bytes(),
    );
    let mut reply = String::new();
    socket.write_all(&sent).is_ok() && socket.read_to_string(&mut reply).is_ok() && reply.contains("\"accepted\":true")
}

#[test]
fn an_administrator_cannot_change_what_he_cannot_read_and_a_table_without_a_word_is_administrators() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["ours", "other"] {
        write_table(dir.path(), name, FOX);
    }
    let hash = |key: &str| Sha256::digest(key).iter().map(|b| format!("{b:02x}")).collect::<String>();
    let access = format!("[tables.ours]\nkeys = [\"{}\"]\n[tables.secret]\nkeys = []\n", hash("sk-a"));
    std::fs::write(dir.path().join("access.toml"), access).unwrap();
    let server = start(Some(dir.path()), keys("sk-a\nsk-b scope=admin\n"));
    let send = |key: &str, method: &str, path: &str, body: &str| {
        let headers = [("Authorization", key), ("Content-Type", "application/json")];
        request(server.addr, method, &format!("/v1/engram/tables{path}"), &headers, body.as_bytes())
    };
    let listed = |key: &str| {
        let list = send(key, "GET", "", "").json()["data"].clone();
        list.as_array().unwrap().iter().map(|table| table["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((listed("Bearer sk-a"), listed("Bearer sk-b")), (vec!["ours".to_owned()], vec!["other".to_owned()]));
    let texts = json!({"texts": [FOX]}).to_string();
    for (method, path) in [
        ("PUT", "/ours"),
        ("PUT", "/secret"),
        ("DELETE", "/ours"),
        ("POST", "/ours/rollback"),
        ("POST", "/secret/learn"),
    ] {
        let reply = send("Bearer sk-b", method, path, &texts);
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (404, &json!("table_not_found")), "{method} {path}");
    }
    assert_eq!(send("Bearer sk-b", "PUT", "/new", &texts).status, 200, "his own he may");
}
