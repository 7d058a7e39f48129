//! llama.cpp's own endpoints: what its programs send, and what they read.

use crate::support::*;
use serde_json::{Value, json};

const COMPLETION: &str = "/completion";

fn server() -> Server {
    Server::start(Options::default())
}

#[track_caller]
fn whole(server: &Server, body: &Value) -> Value {
    let reply = post(server.addr, COMPLETION, body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// The objects of a stream.
#[track_caller]
fn events(server: &Server, body: &Value) -> Vec<Value> {
    let reply = post(server.addr, COMPLETION, &with(body.clone(), json!({"stream": true})));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let text = reply.text();
    assert!(!text.contains("[DONE]"), "its clients stop at `stop`: {text}");
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[test]
fn a_prompt_is_continued_whole_and_as_a_stream_with_the_same_words_at_the_end() {
    let server = server();
    let body = json!({"prompt": "SAY[one\ntwo]", "n_predict": 50, "seed": 7, "temperature": 0, "return_tokens": true});
    let whole = whole(&server, &body);
    let events = events(&server, &body);
    let (last, before) = events.split_last().unwrap();
    let said: String = before.iter().filter_map(|event| event["content"].as_str()).collect();
    let ids: Vec<&Value> = before.iter().flat_map(|event| event["tokens"].as_array().unwrap()).collect();
    assert_eq!((said.as_str(), &whole["content"], &last["content"]), ("one\ntwo", &json!("one\ntwo"), &json!("")));
    assert_eq!(whole["tokens"], json!(ids));
    assert!(!ids.is_empty() && before.iter().all(|event| event["stop"] == false && event["tokens"] != json!([])));
    for end in [&whole, last] {
        assert_eq!((&end["stop"], &end["stop_type"], &end["stopping_word"]), (&json!(true), &json!("eos"), &json!("")));
        assert_eq!((&end["prompt"], &end["truncated"]), (&json!("SAY[one\ntwo]"), &json!(false)));
        assert_eq!((&end["has_new_line"], &end["model"]), (&json!(true), &json!("tiny")));
        let settings = &end["generation_settings"];
        assert_eq!(
            (&settings["n_predict"], &settings["seed"], &settings["temperature"]),
            (&json!(50), &json!(7), &json!(0.0))
        );
        assert_eq!(end["timings"]["predicted_n"], end["tokens_predicted"]);
        assert_eq!(
            end["timings"]["prompt_n"].as_u64().unwrap() + end["tokens_cached"].as_u64().unwrap(),
            end["tokens_evaluated"]
        );
        for name in ["prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second", "predicted_per_token_ms"]
        {
            assert!(end["timings"][name].is_number(), "{name}: {end}");
        }
    }
}

#[test]
fn why_an_answer_ended_is_told_by_type_and_word() {
    let server = server();
    let by = |more: Value| whole(&server, &with(json!({"prompt": "LOOP[ab ]", "n_predict": 6}), more));
    let limit = by(json!({}));
    assert_eq!(
        (&limit["stop_type"], &limit["tokens_predicted"], &limit["truncated"]),
        (&json!("limit"), &json!(6), &json!(false))
    );
    let word = by(json!({"stop": ["x", "b "], "n_predict": 50}));
    assert_eq!(
        (&word["stop_type"], &word["stopping_word"], &word["content"]),
        (&json!("word"), &json!("b "), &json!("a"))
    );
    let small = Server::start(Options { context: 64, ..Options::default() });
    for n_predict in [json!(-1), json!(-2), json!(5000)] {
        let full = whole(&small, &json!({"prompt": "LOOP[ab ]", "n_predict": n_predict}));
        assert_eq!((&full["stop_type"], &full["truncated"]), (&json!("limit"), &json!(true)), "{n_predict}: {full}");
    }
}

#[test]
fn prompts_may_be_texts_ids_both_in_a_row_or_several() {
    let server = server();
    let ids = post(server.addr, "/tokenize", &json!({"content": "SAY[hi]"})).json()["tokens"].clone();
    assert_eq!(whole(&server, &json!({"prompt": ids}))["content"], "hi");
    let mut row = ids.as_array().unwrap().clone();
    row.push(json!("SAY[no]"));
    let answer = whole(&server, &json!({"prompt": row}));
    assert_eq!((&answer["content"], &answer["prompt"]), (&json!("no"), &json!("SAY[hi]SAY[no]")));
    assert_eq!(whole(&server, &json!({"prompt": ["SAY[hi]"]}))["content"], "hi", "an array of one is one");
    let several = whole(&server, &json!({"prompt": ["SAY[a]", ids, "SAY[long answer]"]}));
    let told: Vec<_> =
        several.as_array().unwrap().iter().map(|answer| (&answer["index"], &answer["content"])).collect();
    assert_eq!(told, [(&json!(0), &json!("a")), (&json!(1), &json!("hi")), (&json!(2), &json!("long answer"))]);
    assert!(several[2]["tokens_predicted"].as_u64() > several[0]["tokens_predicted"].as_u64(), "{several}");
    let events = events(&server, &json!({"prompt": ["SAY[a]", "SAY[b]"]}));
    let ends: Vec<_> = events.iter().filter(|event| event["stop"] == true).map(|event| &event["index"]).collect();
    assert_eq!(ends, [&json!(0), &json!(1)]);
}

#[test]
fn probabilities_name_each_token_and_chosen_fields_are_all_there_is() {
    let server = server();
    let body = json!({"prompt": "SAY[hello]", "n_probs": 3, "n_predict": 2});
    let answer = whole(&server, &body);
    let probs = answer["completion_probabilities"].as_array().unwrap();
    assert_eq!(probs.len(), 2, "{answer}");
    for entry in probs {
        assert!(
            entry["id"].is_u64()
                && entry["token"].is_string()
                && entry["bytes"].is_array()
                && entry["logprob"].is_f64()
        );
        assert!(entry["top_logprobs"].as_array().unwrap().iter().all(|top| top["id"].is_u64()), "{entry}");
    }
    assert_eq!(answer["tokens"], json!([]), "ids are told where they are asked for");
    let told = events(&server, &body);
    assert!(
        told.iter().filter(|event| event["stop"] == false).all(|event| event["completion_probabilities"].is_array())
    );
    let fields = json!({"response_fields": ["content", "generation_settings/n_predict", "nothing"]});
    assert_eq!(whole(&server, &with(body, fields)), json!({"content": "he", "generation_settings/n_predict": 2}));
}

#[test]
fn what_its_programs_always_send_is_taken_and_what_would_change_an_answer_is_refused_by_name() {
    let server = server();
    let always = json!({"prompt": "SAY[hi]", "mirostat": 0, "mirostat_tau": 5.0, "typical_p": 1.0, "dry_multiplier": 0.0, "xtc_probability": 0,
        "dynatemp_range": 0, "repeat_last_n": 64, "repeat_penalty": 1.1, "min_keep": 0, "samplers": ["top_k"], "id_slot": -1, "n_keep": 0,
        "cache_prompt": true, "seed": -1, "grammar": "", "lora": [], "image_data": [], "logit_bias": [[5, -1.5], [6, false]], "top_k": 40,
        "top_p": 0.95, "min_p": 0.05, "n_probs": 0, "t_max_predict_ms": 0, "timings_per_token": false, "post_sampling_probs": false});
    let answer = whole(&server, &always);
    assert_eq!(answer["content"], "hi");
    let settings = &answer["generation_settings"];
    assert_eq!(settings["logit_bias"], json!([{"token": 5, "bias": -1.5}, {"token": 6, "bias": -100.0}]));
    assert!(settings["seed"].as_i64().is_some_and(|seed| seed > 0), "-1 draws one: {settings}");
    for (field, value) in [
        ("mirostat", json!(2)),
        ("typical_p", json!(0.5)),
        ("dry_multiplier", json!(0.8)),
        ("xtc_probability", json!(0.1)),
        ("dynatemp_range", json!(0.5)),
        ("n_cmpl", json!(2)),
        ("lora", json!([{"id": 0, "scale": 1.0}])),
        ("post_sampling_probs", json!(true)),
        ("n_probs", json!(21)),
        ("n_predict", json!(-3)),
        ("repeat_penalty", json!(0)),
        ("logit_bias", json!([["word", 1]])),
        ("response_fields", json!([1])),
        ("grammar", json!("root ::= nothing")),
        ("json_schema", json!(5)),
        ("prompt", json!({"prompt_string": "x"})),
    ] {
        let reply = post(server.addr, COMPLETION, &with(always.clone(), json!({field: value})));
        let error = reply.json()["error"].clone();
        assert_eq!(
            (reply.status, &error["code"], &error["type"]),
            (400, &json!(400), &json!("invalid_request_error")),
            "{field}"
        );
        assert!(error["message"].as_str().unwrap().contains(field), "{field}: {error}");
    }
}

#[test]
fn a_prompt_that_does_not_fit_is_told_in_the_words_its_programs_look_for() {
    let server = Server::start(Options { context: 64, ..Options::default() });
    let reply = post(server.addr, COMPLETION, &json!({"prompt": "word ".repeat(200)}));
    let error = &reply.json()["error"];
    assert_eq!((reply.status, &error["type"]), (400, &json!("exceed_context_size_error")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("exceeds the available context size"), "{error}");
    assert!(error["n_prompt_tokens"].as_u64() > error["n_ctx"].as_u64(), "{error}");
}

#[test]
fn answers_keep_to_a_schema_or_a_grammar_of_llama_cpp_s() {
    let server = Server::start(Options { real: true, ..Options::default() });
    let body = json!({"prompt": "x", "n_predict": 60, "temperature": 1, "seed": 3});
    let schema = json!({"json_schema": {"const": "fixed"}});
    assert_eq!(whole(&server, &with(body.clone(), schema))["content"].as_str().map(str::trim), Some("\"fixed\""));
    let grammar = json!({"grammar": "root ::= (\"ab\" | \"cd\"){2} [0-9]"});
    let answer = whole(&server, &with(body, grammar.clone()));
    let text = answer["content"].as_str().unwrap();
    assert!(text.len() == 5 && text.ends_with(|c: char| c.is_ascii_digit()), "{answer}");
    let reply = post(server.addr, "/v1/chat/completions", &with(ask("hi"), grammar));
    assert_eq!(reply.content().len(), 5, "{}", reply.text());
    let format = json!({"response_format": {"type": "json_object", "schema": {"const": 42}}});
    assert_eq!(post(server.addr, "/v1/chat/completions", &with(ask("hi"), format)).content().trim(), "42");
}

#[test]
fn what_there_is_is_told_and_what_there_is_not_is_refused_by_name() {
    let server = Server::start(Options { slots: 3, ..Options::default() });
    let props = get(server.addr, "/props").json();
    assert_eq!((&props["total_slots"], &props["default_generation_settings"]["n_ctx"]), (&json!(3), &json!(2048)));
    assert!(props["chat_template"].as_str().unwrap().contains("messages"), "{props}");
    server.fake.allow(3);
    let _running = Stream::open(server.addr, COMPLETION, &json!({"prompt": "LOOP[a ]", "stream": true}));
    server.wait_for_live(1);
    let slots = get(server.addr, "/slots").json();
    let busy: Vec<bool> = slots.as_array().unwrap().iter().map(|slot| slot["is_processing"] == true).collect();
    assert_eq!(busy, [true, false, false], "{slots}");
    server.fake.allow_all();
    let reply = post(server.addr, "/infill", &json!({"input_prefix": "a", "input_suffix": "b"}));
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!(400)));
    assert!(reply.text().contains("`/infill` is not supported"), "{}", reply.text());
}

#[test]
fn tokens_and_vectors_come_in_its_shapes() {
    let server = server();
    let tokens = post(server.addr, "/tokenize", &json!({"content": "h\u{e9}llo", "with_pieces": true})).json();
    let pieces = tokens["tokens"].as_array().unwrap();
    assert!(
        pieces.iter().all(|piece| piece["id"].is_u64() && (piece["piece"].is_string() || piece["piece"].is_array()))
    );
    let ids: Vec<&Value> = pieces.iter().map(|piece| &piece["id"]).collect();
    assert_eq!(
        post(server.addr, "/tokenize", &json!({"content": "h\u{e9}llo", "add_special": true})).json(),
        json!({"tokens": ids})
    );
    assert_eq!(post(server.addr, "/detokenize", &json!({"tokens": ids})).json()["content"], "h\u{e9}llo");
    let known = post(server.addr, "/v1/embeddings", &json!({"input": ["a", "b"]})).json();
    for path in ["/embedding", "/embeddings"] {
        let vectors = post(server.addr, path, &json!({"content": ["a", "b"], "embd_normalize": 2})).json();
        assert_eq!(vectors[1], json!({"index": 1, "embedding": [known["data"][1]["embedding"]]}));
    }
    for wrong in [json!({"content": "a", "embd_normalize": 0}), json!({"content": "a", "input": "b"}), json!({})] {
        assert_eq!(post(server.addr, "/embedding", &wrong).status, 400, "{wrong}");
    }
}
