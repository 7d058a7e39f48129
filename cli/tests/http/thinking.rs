//! Bounded thoughts, at the edge: what a budget leaves of a thought, when the effort `auto` needs none, and what a
//! reply says of it.

use crate::support::client::joined;
use crate::support::*;
use chimere_engine::constraint::Source;
use chimere_engine::step::StepPlan;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
/// What the model says, over and over; no part of it looks like markup.
const SAID: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
/// Tokens that close a thought in this vocabulary: a line break, `</think>`, two line breaks.
const CLOSING: usize = 4;

fn server() -> Server {
    Server::start(Options::default())
}

fn chat(fields: Value) -> Value {
    with(json!({"messages": [{"role": "user", "content": format!("SAY[{SAID}]")}], "max_tokens": 30}), fields)
}

/// Thought and answer of a reply's choice.
fn parts(reply: &Value, choice: usize) -> (&str, &str) {
    let message = &reply["choices"][choice]["message"];
    (message["reasoning_content"].as_str().unwrap_or(""), message["content"].as_str().unwrap())
}

/// The text of some tokens of what the model says.
fn said(server: &Server, range: std::ops::Range<usize>) -> String {
    let tokens = post(server.addr, "/tokenize", &json!({"prompt": SAID})).json()["tokens"].as_array().unwrap().clone();
    let end = range.end.min(tokens.len());
    let text = post(server.addr, "/detokenize", &json!({"tokens": tokens[range.start.min(end)..end]}));
    text.json()["prompt"].as_str().unwrap().to_owned()
}

#[test]
fn a_thought_is_closed_at_its_budget_and_the_answer_goes_on_as_the_model_would() {
    let server = server();
    for budget in [1, 2, 5] {
        let reply = post(server.addr, CHAT, &chat(json!({"reasoning": {"max_tokens": budget}}))).json();
        let (thought, answer) = parts(&reply, 0);
        assert_eq!(thought, said(&server, 0..budget), "{reply}");
        assert_eq!(answer, said(&server, budget + CLOSING..30), "{reply}");
        assert_eq!(reply["timings"]["thinking"], json!({"tokens": budget, "ended": ["budget"]}));
        assert_eq!(
            reply["usage"]["completion_tokens_details"]["reasoning_tokens"],
            budget + 2,
            "the end belongs to it"
        );
    }
}

#[test]
fn streams_and_several_choices_are_bounded_alike() {
    let server = server();
    let alone = post(server.addr, CHAT, &chat(json!({"thinking": {"type": "enabled", "budget_tokens": 4}}))).json();
    let both = chat(json!({"thinking": {"type": "enabled", "budget_tokens": 4}, "n": 2}));
    let whole = post(server.addr, CHAT, &both).json();
    let chunks = Stream::open(server.addr, CHAT, &with(both, json!({"stream": true}))).chunks();
    for choice in [0, 1] {
        assert_eq!(parts(&whole, choice), parts(&alone, 0));
        assert_eq!(joined(&chunks, choice as u64, "reasoning_content"), parts(&alone, 0).0);
        assert_eq!(joined(&chunks, choice as u64, "content"), parts(&alone, 0).1);
    }
    assert_eq!(chunks.last().unwrap()["timings"]["thinking"], json!({"tokens": 8, "ended": ["budget", "budget"]}));
}

#[test]
fn a_request_that_says_nothing_about_thinking_is_left_alone() {
    let server = server();
    let plain = post(server.addr, CHAT, &chat(json!({}))).json();
    assert_eq!(parts(&plain, 0), (said(&server, 0..30).as_str(), ""));
    assert!(plain["timings"].get("thinking").is_none(), "{plain}");
    assert!(server.fake.plans().iter().flat_map(StepPlan::sample_rows).all(|row| row.rules.is_empty()));
}

#[test]
fn not_to_think_is_the_template_s_business_and_told() {
    let server = server();
    for fields in [
        json!({"reasoning_effort": "none"}),
        json!({"reasoning": {"max_tokens": 0}}),
        json!({"thinking": {"type": "disabled"}}),
    ] {
        let reply = post(server.addr, CHAT, &chat(fields)).json();
        assert_eq!(parts(&reply, 0), ("", said(&server, 0..30).as_str()));
        assert_eq!(reply["timings"]["thinking"], json!({"tokens": 0, "ended": ["off"]}));
    }
}

#[test]
fn a_thought_that_is_cut_off_says_so() {
    let server = server();
    let reply =
        post(server.addr, CHAT, &with(chat(json!({"reasoning_effort": "low"})), json!({"max_tokens": 4}))).json();
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["timings"]["thinking"], json!({"tokens": 4, "ended": ["cut off"]}));
}

#[test]
fn auto_thinks_only_about_what_it_would_be_unsure_of() {
    let server = server();
    let ask = |word: &str| {
        let messages = json!([{"role": "user", "content": format!("{word} SAY[{SAID}]")}]);
        post(
            server.addr,
            CHAT,
            &json!({"messages": messages, "max_tokens": 30, "reasoning": {"effort": "auto", "max_tokens": 4}}),
        )
        .json()
    };
    let sure = ask("plain");
    assert_eq!(parts(&sure, 0), ("", said(&server, 0..30).as_str()));
    let told = &sure["timings"]["thinking"];
    assert_eq!(
        (&told["tokens"], &told["ended"], &told["probe_entropy"]),
        (&json!(0), &json!(["sure"]), &json!(0.0)),
        "{told}"
    );
    assert!(told["probe_tokens"].as_u64().unwrap() > 1, "{told}");
    let unsure = ask("UNSURE");
    let (thought, _) = parts(&unsure, 0);
    assert_eq!(thought, said(&server, 0..4));
    let told = &unsure["timings"]["thinking"];
    assert_eq!((&told["tokens"], &told["ended"]), (&json!(4), &json!(["budget"])), "{told}");
    assert!(told["probe_entropy"].as_f64().unwrap() > 0.1, "{told}");
}

#[test]
fn a_client_that_leaves_while_its_answer_is_tried_frees_its_place() {
    let server = server();
    server.fake.allow(1);
    let messages = json!([{"role": "user", "content": "LOOP[ab]"}]);
    let mut socket = client::connect(server.addr);
    let body = json!({"messages": messages, "reasoning_effort": "auto"}).to_string();
    std::io::Write::write_all(&mut socket, &client::bytes("POST", CHAT, &[], body.as_bytes())).unwrap();
    server.wait_for_live(1);
    drop(socket);
    server.wait_for_live(0);
    server.fake.allow_all();
    assert_eq!(post(server.addr, CHAT, &ask("SAY[hi]")).content(), "hi");
}

#[test]
fn words_of_doubt_are_held_back_from_who_asks_for_it_and_certainty_can_close_a_thought() {
    let thinking = chimere::config::Thinking {
        window_tokens: 2,
        hold_words: vec!["e".into()],
        stop_tokens_min: 6,
        ..Default::default()
    };
    let server = Server::start(Options { thinking, ..Options::default() });
    let reply = post(server.addr, CHAT, &chat(json!({"reasoning": {"adaptive": true}}))).json();
    assert_eq!(reply["timings"]["thinking"], json!({"tokens": 7, "ended": ["certain"]}));
    let held = |server: &Server| {
        let plans = server.fake.plans();
        let rows = plans.iter().flat_map(StepPlan::sample_rows);
        rows.filter(|row| row.rules.iter().any(|rule| rule.source == Source::HeldWords))
            .map(|row| row.output_index)
            .collect()
    };
    let rows: Vec<u32> = held(&server);
    assert_eq!(rows, [3, 4, 5, 6], "from two tokens after the window is full to the end of the thought");
    post(server.addr, CHAT, &chat(json!({"reasoning_effort": "high"})));
    assert_eq!(held(&server), rows, "nobody else's rows");
}
