//! Drafts as a client meets them: the program with the model that ships says the same with and without them, and tells
//! what it drafted.

use crate::support::*;
use serde_json::{Value, json};

/// A text that the model goes on copying, so that there is something to draft.
const TEXT: &str =
    "The box is on the shelf. The key is in the box. The lamp is by the door. The rug is under the lamp. ";

/// Goes on with the text, which stands there twice and a half.
fn copying(more: Value) -> Value {
    let prompt = format!("{TEXT}{TEXT}The box is on the");
    with(json!({"prompt": prompt, "max_tokens": 60, "temperature": 0, "logprobs": 3, "ignore_eos": true}), more)
}

#[track_caller]
fn reply(program: &Program, body: &Value) -> Value {
    let reply = post(program.addr, "/v1/completions", body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn an_answer_is_the_same_with_drafts_and_without_and_says_what_was_drafted() {
    let on = Program::shipped(&["--drafts", "5", "--draft-sources", "ngram,prediction,grammar"]);
    let off = Program::shipped(&["--drafts", "off"]);
    for more in [
        json!({}),
        json!({"temperature": 0.8, "seed": 3, "top_p": 0.9, "logprobs_mode": "processed"}),
        json!({"temperature": 0.7, "seed": 4, "presence_penalty": 0.6, "frequency_penalty": 0.3, "n": 2}),
        json!({"repetition_penalty": 1.1, "logit_bias": {"7": 3}, "stop": ["rug"]}),
    ] {
        let body = copying(more);
        let (with_drafts, without) = (reply(&on, &body), reply(&off, &body));
        assert_eq!(with_drafts["choices"], without["choices"], "{body}");
        let tokens = |reply: &Value| reply["usage"]["completion_tokens"].clone();
        assert_eq!(tokens(&with_drafts), tokens(&without), "{body}");
        assert!(without["timings"].get("drafts").is_none(), "{without}");
        let asked = reply(&on, &with(body, json!({"drafts": false})));
        assert_eq!((&asked["choices"], asked["timings"].get("drafts")), (&without["choices"], None));
    }
    let drafts = reply(&on, &copying(json!({})))["timings"]["drafts"].clone();
    assert_eq!(drafts["source"], "ngram");
    let [drafted, accepted, steps] = ["drafted", "accepted", "steps"].map(|name| number(&drafts[name]));
    assert!(accepted > 0 && accepted <= drafted && drafted <= 5 * steps && steps < 60, "{drafts}");
    let metrics = get(on.addr, "/metrics").text().to_owned();
    let value = |series: &str| {
        let line = metrics.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("no {series}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert!(value("chimere_drafted_tokens_total{source=\"ngram\"}") >= drafted as f64);
    assert!(value("chimere_accepted_tokens_total{source=\"ngram\",position=\"1\"}") > 0.0);
    assert!(value("chimere_draft_choices_total{drafts=\"5\"}") > 0.0);
    assert!(value("vllm:spec_decode_num_accepted_tokens_total") >= accepted as f64);
    assert_eq!(value("chimere_draft_sources_lost_total"), 0.0);
}

#[test]
fn what_the_models_own_draft_head_guesses_changes_nothing() {
    let on = Program::shipped(&["--drafts", "2", "--draft-sources", "mtp"]);
    let off = Program::shipped(&["--drafts", "off"]);
    let drawn = json!({"temperature": 0.8, "seed": 3, "top_p": 0.9, "presence_penalty": 0.4, "n": 2});
    for (more, percent) in [(json!({}), 60), (drawn, 25)] {
        let body = copying(more);
        let (with_drafts, without) = (reply(&on, &body), reply(&off, &body));
        assert_eq!(with_drafts["choices"], without["choices"], "{body}");
        let drafts = &with_drafts["timings"]["drafts"];
        assert_eq!(drafts["source"], "mtp");
        let [drafted, accepted] = ["drafted", "accepted"].map(|name| number(&drafts[name]));
        assert!(accepted * 100 > drafted * percent, "{drafts}: the model that ships guesses well");
    }
}

#[test]
fn what_a_form_leaves_no_choice_of_comes_in_runs_and_changes_nothing() {
    let (on, off) = (Program::shipped(&["--drafts", "7"]), Program::shipped(&["--drafts", "off"]));
    let text = json!({"type": "string", "maxLength": 12});
    let schema = json!({
        "type": "object", "required": ["invoice_number", "delivery_address", "currency"], "additionalProperties": false,
        "properties": {"invoice_number": text, "delivery_address": text, "currency": {"enum": ["EUR", "USD"]}},
    });
    for more in [
        json!({}),
        json!({"temperature": 1, "seed": 5, "n": 2}),
        json!({"temperature": 0.7, "seed": 6, "repetition_penalty": 1.2, "frequency_penalty": 0.4}),
        json!({"max_tokens": 9}),
    ] {
        let form = json!({"structured_outputs": {"json": schema, "disable_any_whitespace": true}, "ignore_eos": false});
        let body = copying(with(form, more));
        let (runs, without) = (reply(&on, &body), reply(&off, &body));
        assert_eq!(runs["choices"], without["choices"], "{body}");
        assert_eq!(runs["usage"]["completion_tokens"], without["usage"]["completion_tokens"]);
        let drafts = &runs["timings"]["drafts"];
        assert!(drafts["source"] == "grammar" && without["timings"].get("drafts").is_none(), "{runs}");
        assert!(drafts["accepted"].as_u64() > Some(3), "{drafts}");
    }
}

#[test]
fn a_call_is_the_same_with_runs_and_without_though_the_model_writes_names_in_tokens_of_its_own() {
    let (on, off) = (Program::shipped(&["--drafts", "7"]), Program::shipped(&["--drafts", "off"]));
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tools = json!([{"type": "function", "function": {"name": "get_weather", "parameters": parameters}}]);
    for more in [json!({"temperature": 0}), json!({"temperature": 1, "seed": 3, "n": 2})] {
        let hello = json!({
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}],
            "tools": tools, "tool_choice": "required", "logprobs": true, "max_tokens": 200,
        });
        let body = with(hello, more);
        let [runs, without] = [&on, &off].map(|program| post(program.addr, "/v1/chat/completions", &body).json());
        let call = |reply: &Value| reply["choices"][0]["message"]["tool_calls"][0]["function"].clone();
        assert_eq!(call(&runs), call(&without), "{body}");
        let drafts = &runs["timings"]["drafts"];
        assert!(drafts["accepted"].as_u64() > Some(3), "{drafts}");
        if body["temperature"] == 0 {
            assert_eq!(call(&runs)["arguments"], r#"{"city": "Hello"}"#);
        }
    }
}

#[test]
fn what_a_request_says_its_answer_may_be_is_drafted_and_counted() {
    let program = Program::shipped(&["--drafts", "7", "--draft-sources", "prediction"]);
    let body = copying(json!({"prompt": "A vector is"}));
    let plain = reply(&program, &body);
    let details = &plain["usage"]["completion_tokens_details"];
    assert!(details.get("accepted_prediction_tokens").is_none() && plain["timings"].get("drafts").is_none(), "{plain}");
    let said = plain["choices"][0]["text"].as_str().unwrap();
    for (text, right) in [(said.to_owned(), true), ("nothing of this kind comes, ever".to_owned(), false)] {
        let prediction = json!({"prediction": {"type": "content", "content": text}});
        let predicted = reply(&program, &with(body.clone(), prediction));
        assert_eq!(predicted["choices"], plain["choices"]);
        let details = &predicted["usage"]["completion_tokens_details"];
        let [accepted, rejected] =
            ["accepted_prediction_tokens", "rejected_prediction_tokens"].map(|name| number(&details[name]));
        assert_eq!(accepted > 30, right, "{details}");
        let drafts = &predicted["timings"]["drafts"];
        if accepted + rejected > 0 {
            assert_eq!((number(&drafts["drafted"]), number(&drafts["accepted"])), (accepted + rejected, accepted));
            assert_eq!(drafts["source"], "prediction");
        }
    }
}
