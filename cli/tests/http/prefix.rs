//! What the prefix cache spares and what nobody may see of it: the program with the model that ships.

use crate::support::client::joined;
use crate::support::program::shipped_command;
use crate::support::*;
use chimere::http::auth::hashed;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

const CHAT: &str = "/v1/chat/completions";
/// So long that turns behind it begin some units of 64 tokens after the prompt's start.
const RULES: &str = "\
     You are the clerk of a small harbour. You answer in one sentence, you never guess, and you say so when a ship is \
     not in your book. The book has the name of each ship, the day on which it came, what it carried, and which of \
     the four piers had room for it. Wool and salt go to the first pier, timber to the second, grain to the third, \
     and everything else to the fourth. Ships that come after the evening bell wait outside until the morning. The \
     harbour is closed when the wind is strong.";

fn said(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// A request about these messages whose answer is the same each time, and its log-probabilities too.
fn about(messages: &[Value]) -> Value {
    let asked = json!({"messages": messages, "max_tokens": 20, "temperature": 0, "logprobs": true, "top_logprobs": 3});
    with(asked, json!({"chat_template_kwargs": {"enable_thinking": false}}))
}

fn cached(reply: &Value) -> u64 {
    reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_else(|| panic!("{reply}"))
}

#[track_caller]
fn reply(program: &Program, body: &Value) -> Value {
    let reply = post(program.addr, CHAT, body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// The first turn, its answer, and the second turn's messages.
fn two_turns(program: &Program) -> (Value, Vec<Value>) {
    let mut messages = vec![said("system", RULES), said("user", "Which pier has room for timber?")];
    let first = reply(program, &about(&messages));
    messages.push(first["choices"][0]["message"].clone());
    messages.push(said("user", "And for grain?"));
    (first, messages)
}

fn without(body: &Value) -> Value {
    with(body.clone(), json!({"cache": false}))
}

#[test]
fn a_second_turn_is_spared_what_the_first_one_read_and_gets_the_same_bytes() {
    let (program, off) = (Program::shipped(&["--prefix-cache", "on"]), Program::shipped(&["--prefix-cache", "off"]));
    assert!(program.said.contains("states of the prefix cache"), "{}", program.said);
    assert!(!off.said.contains("prefix cache"), "{}", off.said);
    let (first, messages) = two_turns(&program);
    assert_eq!(cached(&first), 0, "nobody was here before");
    let body = about(&messages);
    let second = reply(&program, &body);
    let (spared, all) = (cached(&second), second["usage"]["prompt_tokens"].as_u64().unwrap());
    // Up to the unit in which the first answer's turn began.
    assert!(
        spared >= 128 && spared % 64 == 0 && spared < first["usage"]["prompt_tokens"].as_u64().unwrap(),
        "{second}"
    );
    assert_eq!(
        (second["timings"]["cache_n"].as_u64(), second["timings"]["prompt_n"].as_u64()),
        (Some(spared), Some(all - spared))
    );
    let alone = reply(&program, &without(&body));
    let llama = reply(&program, &with(body.clone(), json!({"cache_prompt": false})));
    assert_eq!((cached(&alone), cached(&llama)), (0, 0), "who wants nothing of it finds nothing");
    let (_, messages_off) = two_turns(&off);
    assert_eq!(messages_off, messages);
    let off = reply(&off, &body);
    assert_eq!(cached(&off), 0);
    for other in [&alone, &llama, &off] {
        assert_eq!(other["choices"], second["choices"]);
    }
    let chunks = Stream::open(program.addr, CHAT, &with(body.clone(), json!({"stream": true}))).chunks();
    assert!(cached(chunks.last().unwrap()) >= spared, "a stream says it in its last chunk: {chunks:?}");
    assert_eq!(joined(&chunks, 0, "content"), alone["choices"][0]["message"]["content"].as_str().unwrap());
    let usage = json!({"stream": true, "stream_options": {"include_usage": true}});
    let chunks = Stream::open(program.addr, CHAT, &with(body, usage)).chunks();
    assert!(cached(chunks.last().unwrap()) >= spared, "{chunks:?}");
}

#[test]
fn choices_of_a_request_count_what_they_share_once_however_they_end() {
    let program = Program::shipped(&[]);
    let (_, messages) = two_turns(&program);
    let spared = cached(&reply(&program, &about(&messages)));
    let four = with(about(&messages), json!({"n": 4, "temperature": 1, "seed": 3}));
    let on = reply(&program, &four);
    assert!(cached(&on) >= spared && cached(&on) < on["usage"]["prompt_tokens"].as_u64().unwrap(), "{on}");
    assert_eq!(on["choices"], reply(&program, &without(&four))["choices"], "each draws as it would without a cache");
    // The service ends a choice at a stop string; the engine has no last word for it then.
    let stopped = reply(&program, &with(about(&messages), json!({"stop": " "})));
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    assert!(cached(&stopped) >= spared, "{stopped}");
    let prompts = json!({"prompt": [RULES, RULES], "max_tokens": 1, "temperature": 0});
    let before = post(program.addr, "/v1/completions", &prompts).json();
    let after = post(program.addr, "/v1/completions", &prompts).json();
    assert_eq!(after["choices"], before["choices"]);
    assert!(
        cached(&after) >= 128 && cached(&after).is_multiple_of(128),
        "both prompts go on from the same entry: {after}"
    );
}

/// A conversation with a tool whose name and numbers are its own.
fn tool_turns(number: usize) -> Value {
    let name = format!("weigh_{number}");
    let properties =
        json!({"ship": {"type": "string", "description": "Name of the ship."}, "pier": {"type": "integer"}});
    let parameters = json!({"type": "object", "properties": properties});
    let function = json!({"name": name, "description": "Weighs what a ship carries.", "parameters": parameters});
    let tool = json!({"type": "function", "function": function});
    let arguments = json!({"ship": format!("Ida {number}"), "pier": number}).to_string();
    let function = json!({"name": name, "arguments": arguments});
    let call = json!({"id": "call_1", "type": "function", "function": function});
    let messages = [
        said("system", RULES),
        said("user", &format!("What does the Ida {number} weigh?")),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "call_1", "content": format!("{} tons", 7 * number + 3)}),
    ];
    with(about(&messages), json!({"tools": [tool], "max_tokens": 12}))
}

#[test]
fn a_tool_conversation_that_others_interrupt_goes_on_with_the_same_bytes_20_of_20() {
    let program = Program::shipped(&[]);
    let choices = |body: &Value| reply(&program, body)["choices"].clone();
    for number in 0..20 {
        // Few enough for all that they leave to have room.
        let (a, b) = (tool_turns(number % 3), tool_turns(100));
        let alone = choices(&without(&a));
        assert_eq!(choices(&a), alone, "first, {number}");
        choices(&b);
        let again = reply(&program, &a);
        assert!(cached(&again) >= 128, "{again}");
        assert_eq!(again["choices"], alone, "after another conversation, {number}");
    }
}

/// With a file of these keys.
fn with_keys(lines: &[(&str, &str)]) -> (Program, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text: String = lines.iter().map(|(key, options)| format!("{} {options}\n", hashed(key))).collect();
    std::fs::write(file.path(), text).unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    (Program::shipped(&["--api-key-file", file.path().to_str().unwrap()]), file)
}

#[test]
fn keys_see_nothing_of_each_other_unless_a_group_or_a_salt_says_so() {
    let (program, _file) = with_keys(&[
        ("a", ""),
        ("b", ""),
        ("c", "cache_group=desk"),
        ("d", "cache_group=desk"),
        ("e", "cache_group=quay"),
    ]);
    let ask = |key: &str, more: Value| {
        let body = with(about(&[said("system", RULES), said("user", "Is the harbour open?")]), more).to_string();
        let headers = [("Content-Type", "application/json"), ("Authorization", &*format!("Bearer {key}"))];
        let reply = request(program.addr, "POST", CHAT, &headers, body.as_bytes());
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    };
    let first = ask("a", json!({}));
    assert_eq!(cached(&first), 0);
    let mine = ask("a", json!({"prompt_cache_key": "a hint"}));
    assert!(cached(&mine) > 0, "its own");
    for key in ["b", "c", "e"] {
        let theirs = ask(key, json!({}));
        assert_eq!(cached(&theirs), 0, "{key}");
        assert_eq!(theirs["choices"], first["choices"], "{key}");
    }
    assert!(cached(&ask("d", json!({}))) > 0, "of the same group as c");
    assert_eq!(cached(&ask("a", json!({"cache_salt": "x"}))), 0, "a salt is a scope of its own");
    assert!(cached(&ask("a", json!({"cache_salt": "x"}))) > 0, "in which the same salt finds it");
    assert_eq!(cached(&ask("a", json!({"cache_salt": "y"}))), 0);
    assert_eq!(cached(&ask("b", json!({"cache_salt": "x"}))), 0, "and only the same key");
    assert!(cached(&ask("b", json!({}))) > 0);
}

#[test]
fn the_metrics_say_what_was_looked_up_found_and_kept() {
    let program = Program::shipped(&["--model-name", "nano"]);
    let metric = |name: &str| {
        let text = get(program.addr, "/metrics").text().to_owned();
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<f64>().unwrap()
    };
    let device = "chimere_prefix_hit_tokens_total{tier=\"device\"}";
    let (first, messages) = two_turns(&program);
    assert_eq!(
        (metric("chimere_prefix_queries_total"), metric("chimere_prefix_hits_total"), metric(device)),
        (1.0, 0.0, 0.0)
    );
    assert!(metric("chimere_prefix_entries{tier=\"device\"}") >= 1.0 && metric("chimere_prefix_pages") >= 2.0);
    let second = reply(&program, &about(&messages));
    reply(&program, &without(&about(&messages)));
    let prompts = [&first, &second].map(|reply| reply["usage"]["prompt_tokens"].as_f64().unwrap()).iter().sum::<f64>();
    let spared = cached(&second) as f64;
    eventually("the scheduler has told", || metric(device) == spared);
    assert_eq!(metric("chimere_prefix_queries_total"), 2.0, "who keeps out of it is not counted");
    assert_eq!((metric("chimere_prefix_hits_total"), metric("chimere_prefix_query_tokens_total")), (1.0, prompts));
    assert!(metric("chimere_prefix_known_tokens_total") >= spared);
    let labels = "{model_name=\"nano\",engine=\"0\"}";
    assert_eq!(metric(&format!("vllm:prefix_cache_queries_total{labels}")), prompts);
    assert_eq!(metric(&format!("vllm:prefix_cache_hits_total{labels}")), spared);
    let (entries, pages) = (metric("chimere_prefix_entries{tier=\"device\"}"), metric("chimere_prefix_pages"));
    assert_eq!(
        metric("chimere_prefix_taken_total") - metric("chimere_prefix_evictions_total{tier=\"device\"}"),
        entries
    );
    let places = metric("chimere_memory_bytes{use=\"checkpoints\"}");
    let kv = metric("chimere_memory_bytes{use=\"kv\"}") / metric("chimere_kv_pages{state=\"free\"}");
    let states = metric("chimere_prefix_bytes{tier=\"device\"}") - pages * kv;
    assert!(states > 0.0 && states <= places && (states / entries).fract() == 0.0, "{states} of {places}");
}

#[test]
fn a_budget_without_room_for_a_state_is_refused_where_the_cache_was_asked_for_and_else_does_without() {
    let args = ["--max-context", "64"];
    let least = {
        let output = shipped_command(&[&args[..], &["--vram-budget", "1KiB"]].concat()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        // What is named as missing holds everything but the cache.
        let mib: f64 = said.rsplit_once("together ").unwrap().1.split_once(" MiB").unwrap().0.parse().unwrap();
        format!("{}KiB", (mib * 1024.0) as u64 + 100)
    };
    let tight = [&args[..], &["--vram-budget", &least]].concat();
    let output = shipped_command(&[&tight[..], &["--prefix-cache", "on"]].concat()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("prefix-cache on: a state of ") && said.contains("--vram-budget"), "{said}");
    let program = Program::shipped(&tight);
    assert!(program.said.contains("no prefix cache: a state of "), "{}", program.said);
    assert_eq!(post(program.addr, "/v1/completions", &json!({"prompt": "Once", "max_tokens": 2})).status, 200);
}
