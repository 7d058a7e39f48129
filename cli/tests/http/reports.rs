//! What stands behind each token, for who asks: budgets and rules with the fake, documents with the golden model,
//! drafts and experts with the one that ships.

use crate::support::*;
use chimere::http::auth::AcceptedKeys;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const FOX: &str = "the quick brown fox jumps over the lazy dog";
/// A text that the model goes on copying, so that there is something to draft.
const TEXT: &str = "The box is on the shelf. The key is in the box. The lamp is by the door. ";

fn asking(body: Value, more: Value) -> Value {
    with(with(body, json!({"logprobs": true, "report": true, "temperature": 0})), more)
}

/// Text and report of a choice's tokens, the thought's first.
fn told(logprobs: &Value) -> Vec<(String, Value)> {
    let all = ["reasoning_logprobs", "content"].map(|name| logprobs[name].as_array().cloned().unwrap_or_default());
    let told = |t: &Value| (t["token"].as_str().unwrap().to_owned(), t["report"].clone());
    all.iter().flatten().map(told).collect()
}

#[track_caller]
fn reply(addr: std::net::SocketAddr, body: &Value) -> Value {
    let reply = post(addr, CHAT, body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[test]
fn a_thoughts_budget_runs_down_and_what_closes_it_was_forced() {
    let server = Server::start(Options::default());
    let asked = json!({"messages": [{"role": "user", "content": "SAY[abcdefghijklmnopqrstuvwxyz]"}]});
    let body = asking(asked, json!({"max_tokens": 12, "reasoning": {"max_tokens": 3}}));
    let whole = told(&reply(server.addr, &body)["choices"][0]["logprobs"]);
    let left: Vec<_> = whole.iter().map(|(_, report)| report["thought_left"].as_u64()).collect();
    assert_eq!(left[..4], [Some(2), Some(1), Some(0), Some(0)], "{left:?}");
    assert_eq!(left.last(), Some(&None), "the answer has no budget");
    let (forced, free): (Vec<_>, Vec<_>) = whole.iter().map(|(_, report)| report).partition(|r| !r["rules"].is_null());
    assert!(!forced.is_empty() && forced.iter().all(|r| r["rules"] == json!(["forced"]) && r["allowed"] == 1));
    assert!(free.iter().all(|r| r["allowed"].is_null() && r["entropy"] == 0.0 && r["top_prob"] == 1.0), "{free:?}");
    assert!(whole.iter().all(|(_, r)| r["engram"].is_null() && r["draft"].is_null() && r["experts"].is_null()));
    let chunks = Stream::open(server.addr, CHAT, &with(body, json!({"stream": true}))).chunks();
    let streamed: Vec<_> = chunks.iter().flat_map(|chunk| told(&chunk["choices"][0]["logprobs"])).collect();
    assert_eq!(streamed, whole);
}

#[test]
fn each_token_of_a_stream_says_which_document_it_is_from() {
    let server = Server::start(Options { real: true, keys: AcceptedKeys::Open, ..Options::default() });
    let begun = json!([{"role": "user", "content": "go on"}, {"role": "assistant", "content": "the quick brown fox"}]);
    let document = json!({"id": "fox", "title": "Of foxes", "text": FOX});
    let body = asking(
        json!({"messages": begun, "continue_final_message": true, "ignore_eos": true, "max_tokens": 8, "stream": true}),
        json!({"engram": {"documents": [document], "sources": true}}),
    );
    let chunks = Stream::open(server.addr, CHAT, &body).chunks();
    let tokens: Vec<_> = chunks.iter().flat_map(|chunk| told(&chunk["choices"][0]["logprobs"])).collect();
    let changed = tokens.iter().filter(|(_, r)| r["engram"]["changed"] == true);
    let from: Vec<_> = changed.filter(|(_, r)| r["engram"]["document"] == "fox").collect();
    assert!(from.iter().all(|(_, r)| r["engram"]["title"] == "Of foxes" && r["engram"]["at_token"].is_u64()));
    let engram = &chunks.last().unwrap()["timings"]["engram"];
    let sources: Vec<_> = engram["sources"].as_array().unwrap().iter().map(|s| s["text"].as_str().unwrap()).collect();
    assert!(!sources.is_empty(), "{engram}");
    assert_eq!(from.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(), sources);
    assert!(tokens.iter().all(|(_, r)| r["entropy"].as_f64().unwrap() > 0.0), "random weights are never sure");
}

#[test]
fn drafts_and_experts_are_told_and_asking_changes_no_token() {
    let program = Program::shipped(&["--drafts", "5", "--draft-sources", "ngram"]);
    let begun = json!([{"role": "user", "content": "go on"}, {"role": "assistant", "content": TEXT}]);
    // One token again and again: what comes next is right whatever the model's weights are.
    let (bias, plain) = (json!({"300": 100}), json!({"messages": begun, "continue_final_message": true}));
    let plain = with(plain, json!({"ignore_eos": true, "max_tokens": 40, "logit_bias": bias}));
    let answer = reply(program.addr, &asking(plain.clone(), json!({})));
    let unasked = reply(program.addr, &with(plain, json!({"temperature": 0})));
    assert_eq!(answer["choices"][0]["message"], unasked["choices"][0]["message"]);
    let tokens = told(&answer["choices"][0]["logprobs"]);
    let accepted = tokens.iter().filter(|(_, r)| r["draft"] == json!({"source": "ngram", "accepted": true})).count();
    let drafts = &answer["timings"]["drafts"];
    assert!(accepted > 0 && accepted as u64 == drafts["accepted"].as_u64().unwrap(), "{accepted} of {drafts}");
    let experts: Vec<Vec<Vec<u32>>> =
        tokens.iter().map(|(_, r)| serde_json::from_value(r["experts"].clone()).unwrap()).collect();
    assert!(!experts[0].is_empty() && experts.iter().all(|layers| layers.len() == experts[0].len()));
    for layer in experts.iter().flatten() {
        let distinct: std::collections::BTreeSet<_> = layer.iter().collect();
        assert!(layer.len() == experts[0][0].len() && distinct.len() == layer.len(), "{layer:?}");
    }
    assert!(experts.iter().any(|layers| *layers != experts[0]), "rows choose for themselves");
}

#[test]
fn a_report_goes_with_log_probabilities_and_belongs_to_conversations() {
    let server = Server::start(Options::default());
    let error = post(server.addr, CHAT, &with(ask("hi"), json!({"report": true})));
    assert_eq!((error.status, &error.json()["error"]["param"]), (400, &json!("report")));
    assert!(error.text().contains("only allowed with `logprobs: true`"), "{}", error.text());
    let error = post(server.addr, "/v1/completions", &json!({"prompt": "hi", "logprobs": 1, "report": true}));
    assert_eq!((error.status, &error.json()["error"]["param"]), (400, &json!("report")));
    let reply = reply(server.addr, &with(ask("hi"), json!({"logprobs": true})));
    assert!(told(&reply["choices"][0]["logprobs"]).iter().all(|(_, report)| report.is_null()));
}
