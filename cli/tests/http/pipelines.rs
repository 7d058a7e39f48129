//! Pipelines over HTTP: a file is a model's name that any client can ask, a mistake in a file changes nothing, and what
//! a pipeline takes ends with its client and with its budget.

use crate::documents::Client;
use crate::support::client::{bytes, connect, steps_of};
use crate::support::*;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

const CHAT: &str = "/v1/chat/completions";

/// A service whose directory has this pipeline, `p`.
fn service(dir: &Path, file: &str) -> Server {
    std::fs::write(dir.join("p.toml"), file).unwrap();
    Server::start(Options { pipelines: Some(dir.to_owned()), documents: Some(dir.join("d")), ..Options::default() })
}

/// A chat with the pipeline `p`.
pub(crate) fn asked(text: &str) -> Value {
    let messages = json!([{"role": "user", "content": text}]);
    json!({"model": "p", "max_tokens": 400, "messages": messages, "reasoning_effort": "none"})
}

/// Name and outcome of each step of a reply.
pub(crate) fn steps(reply: &Value) -> String {
    let steps = reply["timings"]["turn"]["pipeline"]["steps"].as_array().unwrap_or_else(|| panic!("{reply}"));
    let one = |step: &Value| format!("{} {}", step["step"].as_str().unwrap(), step["outcome"].as_str().unwrap());
    steps.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn refusal(reply: Reply, status: u16) -> Value {
    let error = reply.json()["error"].clone();
    assert_eq!(reply.status, status, "{error}");
    error
}

fn content(reply: &Value) -> &str {
    reply["choices"][0]["message"]["content"].as_str().unwrap()
}

const TWO: &str = r#"
description = "Plans, then writes."
steps = [
    { name = "plan", generate = { suffix = "SAY[first]", system = "You plan." } },
    { generate = { suffix = "Plan: {plan}. SAY[second]" } },
]"#;

#[test]
fn a_pipeline_is_listed_as_a_model_in_each_dialect_and_described() {
    let dir = tempfile::tempdir().unwrap();
    let server = service(dir.path(), TWO);
    let client = Client(server.addr, None);
    let models = client.get("/v1/models")["data"].as_array().unwrap().clone();
    let found = models.iter().find(|model| model["id"] == "p").unwrap();
    assert_eq!((&found["owned_by"], &found["parent"]), (&json!("chimere"), &json!("tiny")));
    assert_eq!(&client.get("/v1/models/P"), found, "names go without capitals");
    let tags = client.get("/api/tags");
    assert!(tags["models"].as_array().unwrap().iter().any(|model| model["name"].as_str().unwrap().starts_with('p')));
    let described = &client.get("/v1/pipelines")["data"][0];
    assert_eq!(
        (&described["id"], &described["served"], &described["error"]),
        (&json!("p"), &json!(true), &Value::Null)
    );
    let want = json!([{"step": "generate", "name": "plan"}, {"step": "generate", "name": "generate"}]);
    assert_eq!((&described["steps"], &described["description"]), (&want, &json!("Plans, then writes.")));
}

#[test]
fn each_dialect_of_conversations_asks_it_by_its_name_and_gets_the_last_text_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = service(dir.path(), TWO);
    let client = Client(server.addr, None);
    let chat = client.post(CHAT, &asked("hi"));
    assert_eq!((content(&chat), &chat["model"]), ("second", &json!("p")), "{chat}");
    assert_eq!((steps(&chat), &chat["timings"]["turn"]["rounds"]), ("plan stop, generate stop".into(), &json!(2)));
    let told = server.fake.was_told();
    assert!(told.contains("You plan.") && told.contains("hi\n\nPlan: first. SAY[second]"), "{told}");
    let response = client.post("/v1/responses", &json!({"model": "p", "input": "hi", "reasoning": {"effort": "none"}}));
    assert_eq!(response["output"].as_array().unwrap().last().unwrap()["content"][0]["text"], "second", "{response}");
    let message =
        client.post("/v1/messages", &json!({"model": "p", "max_tokens": 400, "messages": asked("hi")["messages"]}));
    assert_eq!(message["content"].as_array().unwrap().last().unwrap()["text"], "second", "{message}");
    let ollama =
        client.post("/api/chat", &with(asked("hi"), json!({"stream": false, "model": "p:latest", "think": false})));
    assert_eq!(ollama["message"]["content"], "second", "{ollama}");
    for (path, body) in [
        ("/v1/completions", json!({"model": "p", "prompt": "hi"})),
        ("/v1/embeddings", json!({"model": "p", "input": "hi"})),
        ("/v1/decisions", json!({"model": "p", "input": "hi", "questions": []})),
    ] {
        let error = refusal(client.json("POST", path, &body), 400);
        assert!(error["message"].as_str().unwrap().contains("`p` is a pipeline"), "{path}: {error}");
    }
}

#[test]
fn the_last_generation_streams_and_earlier_ones_are_not_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = service(dir.path(), TWO);
    let chunks = Stream::open(server.addr, CHAT, &with(asked("hi"), json!({"stream": true}))).chunks();
    let said: Vec<&str> = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(said.concat(), "second");
    assert!(said.len() > 1, "it comes in pieces: {said:?}");
    assert_eq!(steps(chunks.last().unwrap()), "plan stop, generate stop");
}

#[test]
fn a_stream_that_asks_for_steps_tells_of_each_when_it_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let file = r#"steps = [
        { retrieve = { store = "ours", k = 2 } },
        { name = "plan", generate = { suffix = "SAY[first]" } },
        { generate = { suffix = "SAY[second]" } },
    ]"#;
    let server = service(dir.path(), file);
    Client(server.addr, None).store_of("ports.txt", b"The port of Kelm lies in the north.");
    let body = with(asked("Kelm?"), json!({"stream": true, "stream_options": {"include_steps": true}}));
    let chunks = Stream::open(server.addr, CHAT, &body).chunks();
    let want = [
        "file_search_call completed",
        "pipeline_step completed retrieve",
        "pipeline_step completed plan",
        "pipeline_step completed generate",
    ];
    assert_eq!(steps_of(&chunks), want, "{chunks:?}");
    let at = |wanted: &str| chunks.iter().position(|chunk| chunk["step"]["step"] == wanted).unwrap();
    let first = chunks.iter().position(|chunk| chunk["choices"][0]["delta"]["content"].is_string()).unwrap();
    assert!(at("plan") < first && first < at("generate"), "{chunks:?}");
    let plan = &chunks[at("plan")]["step"];
    assert_eq!((&plan["outcome"], plan["ms"].is_number()), (&json!("stop"), true));
    // The last chunk has the same again, with the times that were told.
    let ended = &chunks.last().unwrap()["timings"]["turn"]["pipeline"]["steps"];
    assert_eq!((&ended[1]["ms"], &ended[1]["tokens"]), (&plan["ms"], &plan["tokens"]));
    assert_eq!(chunks[0]["step"]["passages"], 1);
}

#[test]
fn an_answer_that_fails_its_check_is_made_once_more_and_only_the_second_one_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = r#"steps = [
        { generate = {} },
        { check = { regex = "good", retry = 1, why = "It is not good. SAY[a good one]" } },
    ]"#;
    let server = service(dir.path(), file);
    let client = Client(server.addr, None);
    let reply = client.post(CHAT, &asked("SAY[bad]"));
    assert_eq!(
        (content(&reply), steps(&reply).as_str()),
        ("a good one", "generate stop, check failed, generate stop, check passed")
    );
    let told = server.fake.was_told();
    assert!(told.contains("It is not good. SAY[a good one]\n\nAnswer the request once more"), "{told}");
    let reply = client.post(CHAT, &asked("SAY[good]"));
    assert_eq!((content(&reply), steps(&reply).as_str()), ("good", "generate stop, check passed"));
    let chunks = Stream::open(server.addr, CHAT, &with(asked("SAY[bad]"), json!({"stream": true}))).chunks();
    let said: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(said, "a good one");
}

#[test]
fn texts_of_generations_at_once_feed_the_next_and_the_best_of_several_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = r#"steps = [
        { parallel = [{ name = "a", suffix = "SAY[one]" }, { name = "b", suffix = "SAY[two]" }] },
        { generate = { suffix = "{a} and {b}: SAY[both]", best_of = { n = 3 } } },
    ]"#;
    let server = service(dir.path(), file);
    let reply = Client(server.addr, None).post(CHAT, &asked("hi"));
    assert_eq!((content(&reply), steps(&reply).as_str()), ("both", "a stop, b stop, generate stop"));
    assert!(server.fake.was_told().contains("one and two: SAY[both]"));
    assert_eq!(reply["choices"].as_array().unwrap().len(), 1);
    assert!(reply["choices"][0]["logprobs"].is_null(), "nobody asked for them");
}

#[test]
fn passages_of_the_caller_s_store_stand_before_the_question_and_are_cited() {
    let dir = tempfile::tempdir().unwrap();
    let file = r#"steps = [{ retrieve = { store = "ours", k = 2 } }, { generate = {} }]"#;
    let server = service(dir.path(), file);
    let client = Client(server.addr, None);
    let error = refusal(client.json("POST", CHAT, &asked("When was the port built?")), 400);
    let want = "the pipeline `p` searches the vector store `ours`, and this key may read none of this name";
    assert_eq!((&error["message"], &error["code"]), (&json!(want), &json!("vector_store_not_found")));
    client.store_of("ports.txt", b"The port of Kelm lies in the north. It was built in 1871.");
    let reply = client.post(CHAT, &asked("When was the port of Kelm built? SAY{It was built in 1871 [1].}"));
    let note = &reply["choices"][0]["message"]["annotations"][0]["file_citation"];
    assert_eq!((&note["filename"], steps(&reply).as_str()), (&json!("ports.txt"), "retrieve found, generate stop"));
    let response =
        client.post("/v1/responses", &json!({"model": "p", "input": "Kelm? SAY[so]", "reasoning": {"effort": "none"}}));
    assert_eq!(response["output"][0]["type"], "file_search_call", "{response}");
}

#[test]
fn a_file_with_a_mistake_changes_nothing_and_one_that_is_mended_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let server = service(dir.path(), r#"steps = [{ generate = { suffix = "SAY[old]" } }]"#);
    let client = Client(server.addr, None);
    assert_eq!(content(&client.post(CHAT, &asked("hi"))), "old");
    let file = dir.path().join("p.toml");
    std::fs::write(&file, "steps = [{ generate = { sufix = \"SAY[new]\" } }]").unwrap();
    let described = || client.get("/v1/pipelines")["data"][0].clone();
    eventually("the mistake is seen", || described()["error"].is_string());
    let error = described()["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("p.toml: line 1: unknown field `sufix`"), "{error}");
    assert_eq!(content(&client.post(CHAT, &asked("hi"))), "old");
    std::fs::write(&file, "steps = [{ generate = { suffix = \"SAY[newer]\" } }]").unwrap();
    eventually("the file is mended", || described()["error"].is_null());
    assert_eq!(content(&client.post(CHAT, &asked("hi"))), "newer");
    std::fs::write(dir.path().join("tiny.toml"), "steps = [{ generate = {} }]").unwrap();
    eventually("another file is seen", || client.get("/v1/pipelines")["data"].as_array().unwrap().len() == 2);
    let other = client.get("/v1/pipelines")["data"][1].clone();
    assert_eq!(other["error"], "tiny.toml: the served model has this name, choose another one");
    std::fs::remove_file(&file).unwrap();
    eventually("the file is gone", || client.get("/v1/models")["data"].as_array().unwrap().len() == 2);
    refusal(client.json("POST", CHAT, &asked("hi")), 404);
}

#[test]
fn what_no_pipeline_can_do_is_refused_by_its_field() {
    let dir = tempfile::tempdir().unwrap();
    let server = service(dir.path(), r#"steps = [{ generate = { form = { choice = ["yes", "no"] } } }]"#);
    let client = Client(server.addr, None);
    let search = json!([{"type": "file_search", "vector_store_ids": ["vs_1"]}]);
    for (fields, want) in [
        (json!({"n": 2}), "`n` must be 1 for the pipeline `p`, got 2"),
        (json!({"tools": search}), "`tools[0]` is not taken by the pipeline `p`: its file says what it searches"),
        (
            json!({"response_format": {"type": "json_object"}}),
            "`response_format` is not taken by the pipeline `p`: its answer has a form already",
        ),
    ] {
        let error = refusal(client.json("POST", CHAT, &with(asked("hi"), fields)), 400);
        assert_eq!(error["message"], want);
    }
}

#[test]
fn a_client_that_leaves_within_a_pipeline_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let file = r#"steps = [{ name = "plan", generate = { suffix = "LOOP[words ]" } }, { generate = {} }]"#;
    let server = service(dir.path(), file);
    server.fake.allow(5);
    let mut socket = connect(server.addr);
    socket.write_all(&bytes("POST", CHAT, &[], asked("hi").to_string().as_bytes())).unwrap();
    server.wait_for_standstill();
    drop(socket);
    server.wait_for_live(0);
    server.fake.allow_all();
    assert_eq!(
        content(&Client(server.addr, None).post(CHAT, &with(asked("SAY[next]"), json!({"model": "tiny"})))),
        "next"
    );
}

#[test]
fn a_budget_ends_a_pipeline_with_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = r#"
        budget = { tokens = 12 }
        steps = [
            { name = "plan", generate = { suffix = "LOOP[ab]", tokens = 8 } },
            { generate = { suffix = "LOOP[cd]" } },
        ]"#;
    let server = service(dir.path(), file);
    let client = Client(server.addr, None);
    let reply = client.post(CHAT, &asked("hi"));
    assert_eq!(
        (&reply["choices"][0]["finish_reason"], &reply["usage"]["completion_tokens"]),
        (&json!("length"), &json!(12))
    );
    std::fs::write(dir.path().join("q.toml"), "budget = { milliseconds = 400 }\nsteps = [{ generate = {} }]").unwrap();
    eventually("the file is read", || client.get("/v1/models")["data"].as_array().unwrap().len() == 4);
    server.fake.allow(8);
    let reply = client.post(CHAT, &with(asked("LOOP[ab]"), json!({"model": "q"})));
    server.fake.allow_all();
    let pipeline = &reply["timings"]["turn"]["pipeline"];
    assert_eq!(
        (&reply["choices"][0]["finish_reason"], &pipeline["out_of"]),
        (&json!("length"), &json!("milliseconds"))
    );
    assert!("ab".repeat(8).starts_with(content(&reply)), "{reply}");
    assert_eq!(steps(&reply), "generate expired");
    server.wait_for_live(0);
}

#[test]
fn equal_requests_have_equal_bytes_and_each_generation_draws_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let server = service(dir.path(), TWO);
    let seeds = || {
        let before = server.fake.launched();
        let body = with(asked("hi"), json!({"seed": 7, "temperature": 1}));
        let reply = Client(server.addr, None).post(CHAT, &body);
        let plans = server.fake.plans().split_off(before);
        let samples = plans.iter().flat_map(|plan| &plan.pieces).flat_map(|piece| &piece.samples);
        let seeds: std::collections::BTreeSet<u64> = samples.map(|row| row.params.seed).collect();
        (content(&reply).to_owned(), seeds)
    };
    let (first, second) = (seeds(), seeds());
    assert_eq!(first, second);
    assert!(first.1.len() == 2 && first.1.contains(&7), "{first:?}");
}
