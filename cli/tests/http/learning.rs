//! Feedback on answers: who consents, what is kept of it, how it is seen, taken back, exported and brought in.

use crate::support::client::{done, refused};
use crate::support::*;
use chimere::learning::Consent;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;

const CHAT: &str = "/v1/chat/completions";
const FEEDBACK: &str = "/v1/feedback";
const MINE: &str = "/v1/learning/mine";
const EXAMPLES: &str = "/v1/learning/examples";
/// Keys of the lines, in the order of their consent.
const OFF: &str = "nothing-0123456789";
const RATES: &str = "rates-0123456789ab";
const ALL: &str = "all-0123456789abcd";
const ADMIN: &str = "admin-0123456789ab";

fn lines() -> String {
    format!("{OFF}\n{RATES} learn=feedback\n{ALL} learn=all\n{ADMIN} scope=admin learn=feedback\n")
}

fn serve(dir: &Path) -> Server {
    let learning = Some((dir.to_owned(), Consent::Off));
    Server::start(Options { learning, keys: keys(&lines()), ..Options::default() })
}

/// A caller with a key, and headers of its own.
struct Caller<'a>(SocketAddr, &'a str, &'a [(&'a str, &'a str)]);

impl Caller<'_> {
    fn send(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        let bearer = format!("Bearer {}", self.1);
        let mut headers = vec![("authorization", bearer.as_str()), ("content-type", "application/json")];
        headers.extend(self.2);
        request(self.0, method, path, &headers, body)
    }

    fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, body.to_string().as_bytes())
    }

    fn get(&self, path: &str) -> Value {
        done(self.send("GET", path, b""))
    }

    /// The id of an answer.
    fn asked(&self, text: &str) -> String {
        done(self.post(CHAT, &ask(text)))["id"].as_str().unwrap().to_owned()
    }
}

/// All bytes of the database.
fn bytes(dir: &Path) -> Vec<u8> {
    std::fs::read(dir.join("learning.redb")).unwrap()
}

fn has(dir: &Path, text: &str) -> bool {
    bytes(dir).windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn of_a_key_that_does_not_consent_no_byte_is_kept_nor_of_a_request_that_forbids_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let before = bytes(dir.path());
    let (off, rates) = (Caller(server.addr, OFF, &[]), Caller(server.addr, RATES, &[]));
    let id = off.asked("SAY[kept nowhere]");
    refused(
        off.post(FEEDBACK, &json!({"completion_id": id, "rating": 1, "correction": "kept nowhere"})),
        403,
        "learn_off",
    );
    let forbidding = Caller(server.addr, RATES, &[("x-chimere-learn", "off")]);
    let (by_header, elsewhere) = (forbidding.asked("SAY[kept nowhere]"), rates.asked("SAY[kept]"));
    let unstored = done(rates.post(CHAT, &with(ask("SAY[kept nowhere]"), json!({"store": false}))));
    let response = json!({"input": "SAY[kept nowhere]", "store": false, "reasoning": {"effort": "none"}});
    let response = done(rates.post("/v1/responses", &response));
    for id in [&json!(by_header), &unstored["id"], &response["id"]] {
        refused(rates.post(FEEDBACK, &json!({"response_id": id, "rating": 1})), 404, "answer_not_found");
    }
    refused(forbidding.post(FEEDBACK, &json!({"completion_id": elsewhere, "rating": 1})), 403, "learn_off");
    let other = Caller(server.addr, ALL, &[]);
    refused(other.post(FEEDBACK, &json!({"completion_id": elsewhere, "rating": 1})), 404, "answer_not_found");
    let wrong = Caller(server.addr, RATES, &[("x-chimere-learn", "never")]);
    assert_eq!(refused_field(&wrong.post(CHAT, &ask("SAY[x]"))), "x-chimere-learn");
    assert_eq!(bytes(dir.path()), before, "an answer alone leaves nothing on the disk, whoever asked");
    let kept = done(rates.post(FEEDBACK, &json!({"completion_id": elsewhere, "rating": 1})));
    assert_eq!(kept["kept"], true);
    assert!(bytes(dir.path()) != before && !has(dir.path(), "kept nowhere"));
}

fn refused_field(reply: &Reply) -> String {
    assert_eq!(reply.status, 400, "{}", reply.text());
    reply.json()["error"]["param"].as_str().unwrap().to_owned()
}

#[test]
fn a_correction_is_kept_seen_and_taken_back_by_its_account_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let (rates, other) = (Caller(server.addr, RATES, &[]), Caller(server.addr, ALL, &[]));
    assert_eq!(rates.get("/v1/learning")["learn"], "feedback");
    let id = rates.asked("SAY[in 1870]");
    let more = json!({"correction": "in 1871", "reason": "the stone says so", "labels": ["years"]});
    let body = with(json!({"completion_id": id, "rating": -1}), more);
    let kept = done(rates.post(FEEDBACK, &body));
    assert_eq!((&kept["kept"], &kept["merged"]), (&json!(true), &json!(false)));
    let mine = rates.get(MINE);
    let example = &mine["data"][0];
    assert_eq!((&mine["total"], &mine["learn"], &mine["days"]), (&json!(1), &json!("feedback"), &json!(90)));
    assert_eq!((&example["answer"], &example["rejected"]), (&json!("in 1871"), &json!("in 1870")));
    assert_eq!((&example["truth"], &example["labels"]), (&json!(["correction"]), &json!(["years"])));
    assert_eq!((&example["model"], &example["artefacts"]), (&json!("tiny"), &json!([])));
    assert!(example["messages"].to_string().contains("SAY[in 1870]"));
    assert_eq!(other.get(MINE)["total"], 0);
    let path = format!("{MINE}/{}", example["id"].as_str().unwrap());
    refused(other.send("DELETE", &path, b""), 404, "example_not_found");
    let thumb = rates.asked("SAY[fine]");
    done(rates.post(FEEDBACK, &json!({"response_id": thumb, "rating": 1})));
    assert_eq!(done(rates.send("DELETE", &path, b""))["deleted"], 1);
    let left = rates.get(MINE);
    assert_eq!(
        (&left["total"], &left["data"][0]["learned_from"]),
        (&json!(1), &json!(false)),
        "a thumb teaches nothing"
    );
    assert_eq!(done(rates.send("DELETE", MINE, b""))["deleted"], 1);
    assert_eq!(rates.get(MINE)["total"], 0);
    refused(rates.post(FEEDBACK, &json!({"completion_id": thumb, "rating": 1})), 404, "answer_not_found");
    let metrics = get(server.addr, "/metrics");
    assert!(metrics.text().contains("chimere_feedback_total{rating=\"-1\"}"));
}

#[test]
fn answers_of_every_dialect_are_known_by_their_ids_streamed_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let rates = Caller(server.addr, RATES, &[]);
    let response = json!({"input": "SAY[a]", "reasoning": {"effort": "none"}});
    let message = json!({"max_tokens": 50, "messages": [{"role": "user", "content": "SAY[b]"}]});
    let mut ids: Vec<String> = [("/v1/responses", response), ("/v1/messages", message)]
        .iter()
        .map(|(path, body)| done(rates.post(path, body))["id"].as_str().unwrap().to_owned())
        .collect();
    let streamed = rates.post(CHAT, &with(ask("SAY[c]"), json!({"stream": true})));
    let first = streamed.text().lines().find_map(|line| line.strip_prefix("data: ")).unwrap().to_owned();
    ids.push(serde_json::from_str::<Value>(&first).unwrap()["id"].as_str().unwrap().to_owned());
    for id in &ids {
        assert_eq!(done(rates.post(FEEDBACK, &json!({"response_id": id, "rating": 0})))["kept"], true, "{id}");
    }
    let answers: Vec<Value> = rates.get(&format!("{MINE}?order=asc"))["data"].as_array().unwrap().clone();
    let answers: Vec<&str> = answers.iter().map(|example| example["answer"].as_str().unwrap()).collect();
    assert_eq!(answers.len(), 3);
    assert!(["a", "b", "c"].iter().all(|answer| answers.contains(answer)), "{answers:?}");
}

#[test]
fn what_a_check_has_proved_is_kept_without_a_word_only_of_keys_that_let_it() {
    let dir = tempfile::tempdir().unwrap();
    let learning = Some((dir.path().to_owned(), Consent::Off));
    let server = Server::start(Options { learning, keys: keys(&lines()), real: true, ..Options::default() });
    let whole = json!({"a": {"const": 5}});
    let schema = json!({"type": "object", "properties": whole, "required": ["a"], "additionalProperties": false});
    let named = json!({"name": "x", "schema": schema, "strict": true});
    let form = json!({"response_format": {"type": "json_schema", "json_schema": named}});
    let (rates, all) = (Caller(server.addr, RATES, &[]), Caller(server.addr, ALL, &[]));
    for caller in [&rates, &all] {
        done(caller.post(CHAT, &with(ask("five"), json!({"max_tokens": 3}))));
        done(caller.post(CHAT, &with(ask("five"), form.clone())));
    }
    eventually("the answer is kept", || all.get(MINE)["total"] == 1);
    let mine = all.get(MINE);
    assert_eq!(mine["data"][0]["truth"], json!(["schema"]));
    assert_eq!(rates.get(MINE)["total"], 0);
}

#[test]
fn an_administrator_exports_what_trainers_read_and_brings_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let admin = Caller(server.addr, ADMIN, &[]);
    refused(Caller(server.addr, RATES, &[]).send("GET", EXAMPLES, b""), 403, "admin_required");
    let line = |n: usize| {
        let question = format!("question {n} of the {n} harbours and {n} boats");
        json!({"prompt": question, "chosen": format!("right {n}"), "rejected": format!("wrong {n}")}).to_string()
    };
    let body: String = (0..60).map(|n| line(n) + "\n").collect();
    let brought = done(admin.send("POST", EXAMPLES, body.as_bytes()));
    assert_eq!((&brought["new"], &brought["left_out"]), (&json!(60), &json!(0)), "{brought}");
    let export = |query: &str| {
        let reply = admin.send("GET", &format!("{EXAMPLES}?{query}"), b"");
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let (train, gate, archive) =
        (export("format=preference"), export("format=messages&set=gate"), export("format=archive"));
    assert_eq!(archive.len(), 60);
    let vault = archive.iter().filter(|line| line["example"]["set"] == "vault").count();
    assert!(vault > 0 && !gate.is_empty() && train.len() + gate.len() + vault == 60, "{} {}", train.len(), gate.len());
    assert!(train.iter().all(|line| line["set"] == "train" && line["chosen"][0]["role"] == "assistant"));
    assert_eq!(export("format=label").len(), 2 * train.len());
    assert_eq!(refused_field(&admin.send("GET", &format!("{EXAMPLES}?set=vault"), b"")), "set");
    let bad = admin.send("POST", EXAMPLES, b"{\"prompt\": \"a\", \"completion\": \"b\"}\n{}\n");
    assert!(refused_field(&bad) == "lines" && bad.text().contains("line 2"), "{}", bad.text());
    let again: String = archive.iter().map(|line| format!("{line}\n")).collect();
    assert_eq!(done(admin.send("POST", EXAMPLES, again.as_bytes()))["merged"], 60);
    let secret = json!({"prompt": "my password: hunter2hunter2", "completion": "b"}).to_string();
    assert_eq!(done(admin.send("POST", EXAMPLES, secret.as_bytes()))["secrets"], 1);
    assert!(!has(dir.path(), "hunter2hunter2"));
    assert!(get(server.addr, "/metrics").text().contains("chimere_learning_dropped_total{reason=\"secret\"}"));
}

#[test]
fn without_a_directory_and_with_a_damaged_file_feedback_says_why_it_is_not_taken() {
    let server = Server::start(Options::default());
    let rating = json!({"completion_id": "chatcmpl-x", "rating": 1});
    let why = refused(post(server.addr, FEEDBACK, &rating), 409, "learning_off");
    assert!(why["message"].as_str().unwrap().contains("learning.directory"));
    assert_eq!(done(get(server.addr, "/v1/learning"))["state"], "off");
    drop(server);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("learning.redb"), [7; 9000]).unwrap();
    let learning = Some((dir.path().to_owned(), Consent::Feedback));
    let server = Server::start(Options { learning, ..Options::default() });
    assert_eq!(post(server.addr, CHAT, &ask("SAY[hello]")).content(), "hello");
    refused(post(server.addr, FEEDBACK, &rating), 503, "learning_failed");
    assert_eq!(bytes(dir.path()), [7; 9000]);
}

#[test]
fn without_keys_the_configuration_says_what_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let learning = Some((dir.path().to_owned(), Consent::Feedback));
    let server = Server::start(Options { learning, ..Options::default() });
    let id = done(post(server.addr, CHAT, &ask("SAY[one]")))["id"].clone();
    assert_eq!(done(post(server.addr, FEEDBACK, &json!({"completion_id": id, "rating": 1})))["kept"], true);
    assert_eq!(done(get(server.addr, MINE))["total"], 1);
}
