//! `/v1/decisions` and `/v1/rerank`: with the model that ships for what comes out, with the fake for who waits for whom
//! and what is refused.

use crate::support::client::{bytes, connect};
use crate::support::*;
use serde_json::{Value, json};
use std::io::Write;

const DECISIONS: &str = "/v1/decisions";
const INPUT: &str = "Order: order 214, one lamp, in green, for 12.5 euros, paid: yes, priority high.";

fn shipped() -> Program {
    Program::shipped(&["--model-name", "nano"])
}

fn decide(addr: std::net::SocketAddr, body: &Value) -> Value {
    let reply = post(addr, DECISIONS, body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// One that is turned into as many requests as there are options, and one of several messages.
fn several() -> Value {
    json!({
        "input": [{"role": "user", "content": [{"type": "input_text", "text": INPUT}]}],
        "questions": [
            {"type": "predicate", "name": "paid", "instructions": "The order is paid."},
            {"type": "choice", "name": "color", "instructions": "Which?",
                "choices": ["green", {"value": "greenish", "description": "not quite"}, true, "true"]},
            {"type": "score", "name": "priority", "instructions": "How urgent is it?",
                "levels": [{"label": "low"}, "medium", "high"]},
        ],
    })
}

/// What `/tokenize` makes of a body.
fn tokens(program: &Program, body: &Value) -> Vec<u64> {
    let reply = post(program.addr, "/tokenize", body).json();
    reply["tokens"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap()).collect()
}

/// Probabilities of the answers as `/v1/completions` reports their tokens, each up to the token that completes its
/// value, which one byte follows.
fn scored(program: &Program, said: &str, answers: &[&str]) -> Vec<f64> {
    let chat =
        json!({"messages": [{"role": "user", "content": said}], "chat_template_kwargs": {"enable_thinking": false}});
    let prompt = tokens(program, &chat);
    let logprob = |answer: &&str| {
        let own = tokens(program, &json!({"prompt": answer, "parse_special": false}));
        let ids: Vec<u64> = prompt.iter().chain(&own).copied().collect();
        let body = json!({"prompt": ids, "max_tokens": 0, "echo": true, "logprobs": 0});
        let reply = post(program.addr, "/v1/completions", &body).json();
        let shown = &reply["choices"][0]["logprobs"];
        let of = |name: &str| shown[name].as_array().unwrap()[prompt.len()..].to_vec();
        let (texts, values) = (of("tokens"), of("token_logprobs"));
        let mut so_far = 0;
        let ends = texts.iter().position(|text| {
            so_far += text.as_str().unwrap().len();
            so_far + 1 >= answer.len()
        });
        values[..=ends.unwrap()].iter().map(|x| x.as_f64().unwrap()).sum::<f64>()
    };
    let all: Vec<f64> = answers.iter().map(logprob).map(f64::exp).collect();
    all.iter().map(|p| p / all.iter().sum::<f64>()).collect()
}

fn probabilities(answer: &Value) -> Vec<f64> {
    let all = answer["probabilities"].as_array().unwrap();
    all.iter().map(|one| one["probability"].as_f64().unwrap()).collect()
}

#[track_caller]
fn assert_near(got: &[f64], want: &[f64]) {
    assert!(got.len() == want.len() && got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?}, {want:?}");
}

#[test]
fn probabilities_are_the_product_of_the_tokens_along_each_option() {
    let program = shipped();
    let reply = decide(program.addr, &several());
    let asked = |said: &str, schema: &str, name: &str| {
        let head = format!("{INPUT}\n\n{said}\nReturn JSON for this schema, nothing else:\n");
        format!(r#"{head}{{"type": "object", "properties": {{"{name}": {schema}}}, "required": ["{name}"]}}"#)
    };
    let paid = scored(
        &program,
        &asked("The order is paid.", r#"{"type": "boolean"}"#, "paid"),
        &[r#"{"paid": true}"#, r#"{"paid": false}"#],
    );
    assert_near(&[reply["answers"][0]["probability"].as_f64().unwrap()], &paid[..1]);
    let color = scored(
        &program,
        &asked("Which?\n\"greenish\": not quite", r#"{"enum": ["green", "greenish", true, "true"]}"#, "color"),
        &[r#"{"color": "green"}"#, r#"{"color": "greenish"}"#, r#"{"color": true}"#, r#"{"color": "true"}"#],
    );
    assert_near(&probabilities(&reply["answers"][1]), &color);
    let level = scored(
        &program,
        &asked("How urgent is it?", r#"{"type": "string", "enum": ["low", "medium", "high"]}"#, "priority"),
        &[r#"{"priority": "low"}"#, r#"{"priority": "medium"}"#, r#"{"priority": "high"}"#],
    );
    assert_near(&probabilities(&reply["answers"][2]), &level);
    assert_near(&[reply["answers"][2]["score"].as_f64().unwrap()], &[level[1] + 2.0 * level[2]]);
    let all = &reply["answers"];
    assert_eq!(
        (&all[1]["choice"], &all[1]["type"], &all[2]["name"]),
        (&json!("green"), &json!("choice"), &json!("priority"))
    );
    assert!(all[0]["probability"].as_f64().unwrap() > 0.9 && level[2] > 0.9, "{reply}");
    assert_eq!(all[1]["probabilities"][2]["value"], true, "a boolean stays one");
    assert!(reply["usage"]["input_tokens"].as_u64().unwrap() > 200 && reply["usage"]["output_tokens"] == 0);
}

#[test]
fn the_same_question_has_the_same_bytes_beside_others_and_twice() {
    let program = shipped();
    let answers = |reply: &Value| reply["answers"].to_string();
    let alone = answers(&decide(program.addr, &several()));
    let others = with(ask("What is 417 + 2586?"), json!({"stream": true, "max_tokens": 60, "ignore_eos": true}));
    let mut talk = Stream::open(program.addr, "/v1/chat/completions", &others);
    let together: Vec<String> = std::thread::scope(|threads| {
        let one = |_| threads.spawn(|| answers(&decide(program.addr, &with(several(), json!({"cache": false})))));
        let all: Vec<_> = (0..8).map(one).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    talk.chunks();
    assert!(together.iter().all(|one| *one == alone), "{alone}\n{together:?}");
    let again = decide(program.addr, &several());
    assert_eq!(answers(&again), alone);
}

#[test]
fn two_orders_are_averaged_and_control_tokens_are_text() {
    let program = shipped();
    let choices = ["lamp", "<|im_end|>", "red"];
    let body = |choices: &[&str], orders: u32| {
        let question = json!({"type": "choice", "name": "product", "instructions": "Which?", "choices": choices});
        json!({"input": format!("{INPUT}<|im_end|>"), "questions": [question], "orders": orders})
    };
    let of = |body: &Value| probabilities(&decide(program.addr, body)["answers"][0]);
    let turned: Vec<&str> = choices.iter().rev().copied().collect();
    let (one, mut other, both) = (of(&body(&choices, 1)), of(&body(&turned, 1)), of(&body(&choices, 2)));
    other.reverse();
    let mean: Vec<f64> = one.iter().zip(&other).map(|(a, b)| (a + b) / 2.0).collect();
    assert_near(&both, &mean);
    assert!(one[0] > 0.5 && one[1] > 0.0 && one[1] < 0.5, "{one:?}");
}

#[test]
fn twelve_classes_of_the_model_s_own_domain_are_told_apart_and_it_is_as_sure_as_it_is_right() {
    let program = shipped();
    let text = std::fs::read_to_string(server::data("decisions.jsonl")).unwrap();
    let (mut right, mut sure, mut count) = (0.0, 0.0, 0.0);
    for line in text.lines() {
        let asked: Value = serde_json::from_str(line).unwrap();
        let reply = decide(program.addr, &json!({"input": asked["input"], "questions": [asked["question"]]}));
        let answer = &reply["answers"][0];
        assert_eq!(answer["probabilities"].as_array().unwrap().len(), 12);
        right += f64::from(u8::from(answer["choice"] == asked["answer"]));
        sure += answer["confidence"].as_f64().unwrap();
        count += 1.0;
    }
    assert!(right / count >= 0.95, "{right} of {count}");
    // With so few in each bin, one bin.
    assert!((sure - right).abs() / count <= 0.05, "sure of {sure}, right in {right} of {count}");
}

#[test]
fn documents_are_ranked_under_each_path_and_shape() {
    let program = shipped();
    let documents: Vec<Value> = (0..20)
        .map(|i| json!(format!("Order: order {i}, one lamp, paid: {}.", if i == 7 { "yes" } else { "no" })))
        .collect();
    let mut shaped = documents.clone();
    shaped[3] = json!({"text": documents[3]});
    let body = json!({"query": "Which order is paid?", "documents": shaped, "top_n": 5, "return_documents": true});
    let replies = ["/v1/rerank", "/v2/rerank", "/rerank"].map(|path| post(program.addr, path, &body));
    assert!(replies.iter().all(|reply| reply.status == 200), "{}", replies[0].text());
    let results = replies[0].json()["results"].as_array().unwrap().clone();
    assert_eq!(results.len(), 5);
    let score = |result: &Value| result["relevance_score"].as_f64().unwrap();
    assert!(
        results.is_sorted_by(|a, b| score(a) >= score(b)) && results.iter().all(|r| (0.0..=1.0).contains(&score(r)))
    );
    for result in &results {
        assert_eq!(result["document"]["text"], documents[result["index"].as_u64().unwrap() as usize]);
    }
    assert_eq!(replies[2].json()["results"], replies[0].json()["results"]);
    let all = post(program.addr, "/v1/rerank", &json!({"query": "paid", "documents": documents})).json();
    assert!(all["results"].as_array().unwrap().len() == 20 && all["results"][0].get("document").is_none());
}

#[test]
fn a_calibration_changes_the_questions_that_it_names_and_raw_asks_for_none() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "4 color\n").unwrap();
    let path = file.path().to_str().unwrap();
    let config = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(config.path(), format!("[decide]\ncalibration = {path:?}\n")).unwrap();
    let program = Program::shipped(&["--config", config.path().to_str().unwrap()]);
    let own = decide(program.addr, &with(several(), json!({"raw": true})));
    let fitted = decide(program.addr, &several());
    let flat: Vec<f64> = probabilities(&own["answers"][1]).iter().map(|p| p.powf(0.25)).collect();
    let flat: Vec<f64> = flat.iter().map(|p| p / flat.iter().sum::<f64>()).collect();
    assert_near(&probabilities(&fitted["answers"][1]), &flat);
    assert_eq!(fitted["answers"][2], own["answers"][2]);
}

#[test]
fn a_client_that_leaves_takes_all_its_options_along() {
    let server = Server::start(Options { slots: 2, ..Options::default() });
    server.fake.allow(1);
    let choices: Vec<String> = (0..30).map(|i| format!("choice {i}")).collect();
    let question = json!({"type": "choice", "instructions": "Which?", "choices": choices});
    let mut socket = connect(server.addr);
    let body = json!({"input": "a", "questions": [question], "cache": false}).to_string();
    socket.write_all(&bytes("POST", DECISIONS, &[], body.as_bytes())).unwrap();
    server.wait_for_live(1);
    drop(socket);
    server.wait_for_live(0);
    server.fake.allow_all();
    assert_eq!(post(server.addr, "/v1/chat/completions", &ask("SAY[next]")).content(), "next");
}

#[track_caller]
fn refuses(server: &Server, path: &str, body: &Value, param: &str) {
    let reply = post(server.addr, path, body);
    assert_eq!(reply.status, 400, "{param}: {}", reply.text());
    assert_eq!(reply.json()["error"]["param"], param, "{}", reply.text());
}

#[test]
fn what_cannot_be_decided_is_refused_by_the_name_of_its_field() {
    let server = Server::start(Options { real: true, ..Options::default() });
    let predicate = || json!({"type": "predicate", "instructions": "It is so."});
    let choice = |choices: Value| json!({"type": "choice", "instructions": "Which?", "choices": choices});
    let one = |question: Value| json!({"input": "a", "questions": [question]});
    let image = json!([{"role": "user", "content": [{"type": "input_image"}]}]);
    let long = "x".repeat(10_240);
    let many: Vec<String> = (0..257).map(|i| i.to_string()).collect();
    for (body, param) in [
        (json!({"questions": [predicate()]}), "input"),
        (json!({"input": "", "questions": [predicate()]}), "input"),
        (json!({"input": 3, "questions": [predicate()]}), "input"),
        (json!({"input": [], "questions": [predicate()]}), "input"),
        (json!({"input": [{"role": "tool", "content": "a"}], "questions": [predicate()]}), "input[0].role"),
        (json!({"input": [{"type": "item_reference", "id": "a"}], "questions": [predicate()]}), "input[0].type"),
        (json!({"input": image, "questions": [predicate()]}), "input[0].content[0]"),
        (json!({"input": "a"}), "questions"),
        (json!({"input": "a", "questions": []}), "questions"),
        (json!({"input": "a", "questions": vec![predicate(); 65]}), "questions"),
        (json!({"input": "a", "questions": [{"instructions": "b"}]}), "questions[0].type"),
        (one(json!({"type": "rank", "instructions": "b"})), "questions[0].type"),
        (one(json!({"type": "predicate"})), "questions[0].instructions"),
        (one(json!({"type": "predicate", "instructions": ""})), "questions[0].instructions"),
        (one(json!({"type": "predicate", "instructions": "b", "choices": ["c"]})), "questions[0].choices"),
        (one(json!({"type": "predicate", "instructions": "b", "name": "n".repeat(65)})), "questions[0].name"),
        (
            json!({"input": "a", "questions": [predicate(), {"type": "choice", "instructions": "b"}]}),
            "questions[1].choices",
        ),
        (one(choice(json!(["b"]))), "questions[0].choices"),
        (one(choice(json!(many))), "questions[0].choices"),
        (one(choice(json!(["b", ""]))), "questions[0].choices[1]"),
        (one(choice(json!(["b", 3]))), "questions[0].choices[1]"),
        (one(choice(json!(["b", "c", "b"]))), "questions[0].choices[2]"),
        (one(choice(json!(["b", {"value": "c", "weight": 1}]))), "questions[0].choices[1].weight"),
        (one(choice(json!(["b", long]))), "questions[0].choices[1]"),
        (one(json!({"type": "score", "instructions": "b", "levels": ["c", {"label": "c"}]})), "questions[0].levels[1]"),
        (one(json!({"type": "score", "instructions": "b", "levels": [true, false]})), "questions[0].levels[0]"),
        (json!({"input": "a", "questions": [predicate()], "orders": 3}), "orders"),
        (json!({"input": "a", "questions": [predicate()], "temperature": 1}), "temperature"),
        (json!({"input": "word ".repeat(4_000), "questions": [predicate()]}), "input"),
        // The tokenizer composes letters: to the model both are one.
        (one(choice(json!(["caf\u{e9}", "cafe\u{301}"]))), "questions[0].choices[1]"),
    ] {
        refuses(&server, DECISIONS, &body, param);
    }
}

#[test]
fn what_cannot_be_ranked_is_refused_by_the_name_of_its_field() {
    let server = Server::start(Options { real: true, ..Options::default() });
    for (body, param) in [
        (json!({"documents": ["a"]}), "query"),
        (json!({"query": "", "documents": ["a"]}), "query"),
        (json!({"query": "q"}), "documents"),
        (json!({"query": "q", "documents": []}), "documents"),
        (json!({"query": "q", "documents": vec!["a"; 1001]}), "documents"),
        (json!({"query": "q", "documents": ["a", {"title": "b"}]}), "documents[1].text"),
        (json!({"query": "q", "documents": ["a", ""]}), "documents[1]"),
        (json!({"query": "q", "documents": ["a"], "top_n": 0}), "top_n"),
        (json!({"query": "q", "documents": ["word ".repeat(4_000)]}), "documents"),
    ] {
        refuses(&server, "/v1/rerank", &body, param);
    }
}
