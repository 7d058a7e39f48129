use crate::actors::request::spec::{RequestSpec, StreamOptions};
use crate::engram::{ModeName, Overrides, PhaseName};
use crate::http::request::{
    CacheRequest, ChatRequest, CompletionRequest, DetokenizeRequest, DocumentRequest, EngramRequest, Generation,
    MessagesRequest, ModelLimits, OllamaRequest, Prompt, SemanticRequest, TokenizeInput, TokenizeRequest, TokensShape,
};
use crate::http::wire::error::ApiError;
use crate::text::grammar::{AnswerForm, Calls};
use crate::text::thinking::{Reasoning, ThinkingMode};
use crate::text::tools::Tool;
use crate::text::{Message, Role, Thoughts, Tokenizer};
use chimere_engine::engram::LAMBDA_MAX;
use chimere_engine::format::GenerationDefaults;
use chimere_engine::format::TokenizerSource;
use chimere_engine::sampling::SamplingParams;
use chimere_engine::scheduler::Spec;
use chimere_engine::step::ExpertCut;
use serde_json::{Value as Json, json};
use std::sync::Arc;

mod messages;
mod prompts;
mod reasoning;
mod tools;

fn limits() -> ModelLimits {
    ModelLimits {
        name: "nano".into(),
        aliases: vec!["gpt-4o-mini".into()],
        vocab: 500,
        width: 64,
        choices_max: 16,
        end_ids: vec![470, 468],
        defaults: GenerationDefaults::default(),
        template_options: vec!["enable_thinking".into()],
        experts: Some(4),
        thinking: Some(thoughts(&Default::default())),
        pipelines: Default::default(),
        adapters: Default::default(),
        web: Default::default(),
    }
}

fn thoughts(config: &crate::config::Thinking) -> Thoughts {
    let file = include_bytes!("../../../../engine/tests/golden/moe/tokenizer.json");
    let tokenizer = Tokenizer::new(&TokenizerSource::Json(file.to_vec())).unwrap();
    Thoughts::new(&tokenizer, 500, config).unwrap().unwrap()
}

/// A chat body: one message, and these fields over it.
fn chat_body(fields: Json) -> Vec<u8> {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::to_vec(&body).unwrap()
}

fn chat(fields: Json) -> Result<ChatRequest, ApiError> {
    ChatRequest::parse(&chat_body(fields), &limits())
}

fn completion(fields: Json) -> Result<CompletionRequest, ApiError> {
    CompletionRequest::parse(&serde_json::to_vec(&fields).unwrap(), &limits())
}

/// A field that is refused: the path at fault, and a part of the message.
#[track_caller]
fn refused(result: Result<impl std::fmt::Debug, ApiError>, param: &str, message: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.status.as_u16(), 400, "{error}");
    assert_eq!(error.param.as_deref(), Some(param), "{error}");
    assert!(error.message.contains(message), "{error}");
}

#[test]
fn the_least_request_has_neutral_values() {
    let request = chat(json!({})).unwrap();
    let g = request.generation;
    assert_eq!((g.spec.stream, g.spec.stream_options, g.seed), (false, StreamOptions::default(), None));
    assert_eq!(*g.spec.engine, Spec { end_ids: [470, 468].into(), ..Spec::default() });
    assert_eq!(request.conversation.messages, [Message::new(Role::User, "hi")]);
    assert!(request.tools.is_none());
}

#[test]
fn every_honoured_field_arrives() {
    let fields = json!({
        "model": "nano", "temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "seed": -1, "stop": ["a", "b"],
        "stop_token_ids": [7, 470], "max_completion_tokens": 9, "max_tokens": 9, "min_tokens": 2, "presence_penalty": 1.5,
        "frequency_penalty": -2, "repetition_penalty": 1.1, "logit_bias": {"9": -100, "3": 2.5}, "logprobs": true, "top_logprobs": 20,
        "n": 16, "stream": true, "stream_options": {"include_usage": true, "include_steps": true},
        "chat_template_kwargs": {"enable_thinking": false},
        "engram": {"tables": ["docs", "facts"], "lambda": 0.95, "min_count": 2, "phase": "all", "documents": ["a text"],
                   "semantic": {"collection": "ours", "k": 3}},
        "cache": true, "cache_salt": "pepper", "drafts": false, "prediction": {"type": "content", "content": "as it was"},
    });
    let request = chat(fields).unwrap();
    assert_eq!(request.conversation.options["enable_thinking"], json!(false));
    let expected = SamplingParams {
        temperature: 0.5,
        top_p: 0.9,
        top_k: 20,
        min_p: 0.05,
        seed: 0,
        repetition_penalty: 1.1,
        presence_penalty: 1.5,
        frequency_penalty: -2.0,
        logit_bias: vec![(3, 2.5), (9, -100.0)],
        logprobs: Some(20),
        processed: false,
        certainty: false,
        report: false,
    };
    let engine = Spec {
        choices: 16,
        max_tokens: Some(9),
        min_tokens: 2,
        end_ids: [470, 468, 7].into(),
        sampling: Arc::new(expected),
        drafts: false,
        ..Spec::default()
    };
    let stop = vec!["a".into(), "b".into()];
    let stream_options = StreamOptions { include_usage: true, include_steps: true };
    let generation = Generation {
        spec: RequestSpec { engine: Arc::new(engine), stop, stream: true, stream_options, token_ids: false },
        seed: Some(u64::MAX),
        engram: EngramRequest {
            settings: Overrides {
                tables: Some(vec!["docs".into(), "facts".into()]),
                mode: Some(ModeName::Mixture),
                lambda: Some(LAMBDA_MAX),
                min_count: Some(2),
                phase: Some(PhaseName::All),
                ..Overrides::default()
            },
            documents: vec![DocumentRequest { text: "a text".into(), ..DocumentRequest::default() }],
            sources: false,
            semantic: Some(SemanticRequest { collection: "ours".into(), k: 3 }),
        },
        cache: CacheRequest { on: true, salt: Some("pepper".into()) },
        form: None,
        prediction: Some("as it was".into()),
        adapter_scale: None,
    };
    assert_eq!(request.generation, generation);
}

#[test]
fn null_is_absent_for_every_field() {
    let names = [
        "model",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "stop",
        "stop_token_ids",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "ignore_eos",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "n",
        "stream",
        "stream_options",
        "chat_template_kwargs",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "cache",
        "cache_prompt",
        "cache_salt",
        "drafts",
        "prediction",
        "best_of",
        "engram",
        "reasoning_effort",
        "reasoning",
        "thinking",
        "functions",
        "audio",
        "a_field_of_tomorrow",
    ];
    for name in names {
        let request = chat(json!({name: null})).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(request.generation, chat(json!({})).unwrap().generation, "{name}");
    }
}

#[test]
fn what_has_no_effect_here_is_accepted_with_its_neutral_value_only() {
    let fields = json!({
        "user": "u", "metadata": {"a": "b"}, "store": false, "service_tier": "auto", "safety_identifier": "s", "prompt_cache_key": "k",
        "parallel_tool_calls": true, "tools": [], "response_format": {"type": "text"}, "best_of": 1,
    });
    assert_eq!(chat(fields).unwrap().generation, chat(json!({})).unwrap().generation);
    let of_others = json!({"store": true, "timings_per_token": true, "samplers": ["top_k"], "id_slot": 1,
        "return_progress": true, "truncate_prompt_tokens": 10});
    assert_eq!(chat(of_others).unwrap().generation, chat(json!({})).unwrap().generation);
    refused(chat(json!({"service_tier": "flex"})), "service_tier", "\"flex\"");
    refused(chat(json!({"best_of": 3})), "best_of", "must equal `n`, which is 1, got 3");
    refused(chat(json!({"user": 5})), "user", "must be a string, got 5");
}

#[test]
fn a_request_may_keep_out_of_the_prefix_cache_or_share_it_by_a_salt() {
    let cache = |fields| chat(fields).unwrap().generation.cache;
    assert_eq!(cache(json!({"cache": true, "cache_prompt": true})), CacheRequest { on: true, salt: None });
    for field in ["cache", "cache_prompt"] {
        assert!(!cache(json!({field: false})).on, "{field}");
        refused(chat(json!({field: "no"})), field, "must be a boolean, got the string \"no\"");
    }
    assert_eq!(cache(json!({"cache_salt": "s"})).salt.as_deref(), Some("s"));
    refused(chat(json!({"cache_salt": ""})), "cache_salt", "1 to 256 bytes, got 0");
    refused(chat(json!({"cache_salt": "s".repeat(257)})), "cache_salt", "got 257");
}

#[test]
fn what_the_answer_may_be_is_a_text_or_parts_of_one() {
    let prediction = |content: Json| chat(json!({"prediction": {"type": "content", "content": content}})).unwrap();
    assert_eq!(prediction(json!("one two")).generation.prediction.as_deref(), Some("one two"));
    let parts = json!([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]);
    assert_eq!(prediction(parts).generation.prediction.as_deref(), Some("one two"));
    assert_eq!(prediction(json!(null)).generation.prediction, None);
}

#[test]
fn what_is_not_supported_yet_is_named() {
    refused(completion(json!({"prompt": "a", "reasoning_effort": "low"})), "reasoning_effort", "is for chat");
    refused(chat(json!({"enable_thinking": false})), "enable_thinking", "belongs into `chat_template_kwargs`");
    refused(chat(json!({"functions": []})), "functions", "`tools`");
    refused(chat(json!({"modalities": ["text", "audio"]})), "modalities", "must be [\"text\"]");
    refused(completion(json!({"prompt": "a", "suffix": "b"})), "suffix", "not supported");
}

#[test]
fn values_that_ask_for_what_happens_anyway_are_taken() {
    let least = chat(json!({})).unwrap();
    for fields in [
        json!({"modalities": ["text"]}),
        json!({"max_tokens": -1, "max_completion_tokens": -1}),
        json!({"stop": ""}),
        json!({"stop": [""]}),
        json!({"skip_special_tokens": true, "spaces_between_special_tokens": true, "include_reasoning": true}),
        json!({"cache_prompt": true, "add_generation_prompt": true, "continue_final_message": false}),
        json!({"verbosity": "medium", "service_tier": "default", "prompt_cache_retention": "24h", "use_beam_search": false}),
        json!({"model": "", "stream_options": null}),
    ] {
        let request = chat(fields.clone()).unwrap_or_else(|e| panic!("{fields}: {e}"));
        assert_eq!((request.generation, request.reasoning), (least.generation.clone(), None), "{fields}");
    }
    assert_eq!(chat(json!({"stop": ["", "a"]})).unwrap().generation.spec.stop, ["a"]);
    assert_eq!(completion(json!({"prompt": "a", "max_tokens": -1})).unwrap().generation.spec.engine.max_tokens, None);
}

#[test]
fn values_that_ask_for_something_else_are_not() {
    refused(
        chat(json!({"skip_special_tokens": false})),
        "skip_special_tokens",
        "must be true: control tokens are never shown",
    );
    refused(chat(json!({"include_reasoning": false})), "include_reasoning", "part of the reply");
    refused(chat(json!({"add_generation_prompt": false})), "add_generation_prompt", "the assistant's turn");
    let on = json!({"continue_final_message": true});
    refused(chat(on.clone()), "continue_final_message", "the last message to be the assistant's");
    refused(
        chat(json!({"continue_final_message": true, "add_generation_prompt": true})),
        "continue_final_message",
        "contradicts",
    );
    refused(chat(json!({"use_beam_search": true})), "use_beam_search", "must be false");
    refused(chat(json!({"verbosity": "low"})), "verbosity", "got \"low\"");
    refused(chat(json!({"prediction": "text"})), "prediction", "must be an object");
    refused(chat(json!({"prediction": {"type": "image", "content": "a"}})), "prediction", "got \"image\"");
    refused(
        chat(json!({"prediction": {"type": "content", "content": 5}})),
        "prediction.content",
        "a string or an array",
    );
    refused(chat(json!({"prediction": {"content": ["a"]}})), "prediction.content[0]", "a part with a text");
    refused(chat(json!({"drafts": "no"})), "drafts", "must be a boolean");
}

#[test]
fn fields_of_other_services_inside_messages_parts_tools_and_stream_options_change_nothing() {
    let foreign = json!({
        "stream": true,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true},
        "tools": [{"type": "function", "strict": true, "cache_control": {"type": "ephemeral"}, "function": {
            "name": "f", "strict": true, "parameters": {"type": "object", "properties": {}}, "returns": {},
        }}],
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}], "id": "m0"},
            {"role": "user", "content": "q", "provider_specific_fields": {"a": [1]}, "weight": 1},
            {"role": "assistant", "content": null, "annotations": [{}], "thinking_blocks": [], "tool_calls": [{
                "id": "c", "type": "function", "provider_specific_fields": {}, "function": {"name": "f", "arguments": "{}", "parsed_arguments": {}},
            }]},
            {"role": "tool", "tool_call_id": "c", "content": null, "is_error": false},
        ],
    });
    let plain = json!({
        "stream": true,
        "stream_options": {"include_usage": true},
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": ""},
        ],
    });
    let (foreign, plain) = (chat(foreign).unwrap(), chat(plain).unwrap());
    assert_eq!((foreign.conversation.messages, foreign.generation), (plain.conversation.messages, plain.generation));
    assert!(foreign.tools.is_some());
}

#[test]
fn a_model_answers_to_its_names_in_capitals_or_not() {
    for name in ["nano", "Nano", "NANO", "gpt-4o-mini", "GPT-4o-mini"] {
        assert!(chat(json!({"model": name})).is_ok(), "{name}");
    }
    assert!(chat(json!({"model": "gpt-4o"})).unwrap_err().message.contains("this server has `nano`, `gpt-4o-mini`"));
}

#[test]
fn a_byte_order_mark_before_a_body_is_no_part_of_it() {
    let body = [b"\xef\xbb\xbf".as_slice(), &chat_body(json!({}))].concat();
    assert!(ChatRequest::parse(&body, &limits()).is_ok());
    assert!(ChatRequest::parse(&body[1..], &limits()).is_err());
}

#[test]
fn unknown_fields_are_named_with_the_nearest_known_one() {
    let error = chat(json!({"temprature": 1})).unwrap_err();
    assert_eq!(error.message, "unknown field `temprature`; did you mean `temperature`?");
    assert_eq!(error.code, Some("unknown_parameter"));
    refused(chat(json!({"zzz": 1})), "zzz", "unknown field `zzz`");
    refused(chat(json!({"response_format": {"type": "text", "schema": {}}})), "response_format.schema", "unknown");
    refused(chat(json!({"echo": true})), "echo", "unknown");
    refused(completion(json!({"prompt": "a", "messages": []})), "messages", "unknown");
}

#[test]
fn wrong_types_name_the_field_and_what_came() {
    refused(
        chat(json!({"temperature": "hot"})),
        "temperature",
        "`temperature` must be a number, got the string \"hot\"",
    );
    refused(chat(json!({"n": 1.5})), "n", "must be an integer, got 1.5");
    refused(chat(json!({"stream": 1})), "stream", "must be a boolean, got 1");
    refused(chat(json!({"stop": 1})), "stop", "a string or an array of strings, got 1");
    refused(chat(json!({"stop": ["a", 1]})), "stop[1]", "must be a string, got 1");
    refused(chat(json!({"messages": "hi"})), "messages", "must be an array, got the string \"hi\"");
    refused(chat(json!({"messages": ["hi"]})), "messages[0]", "must be an object");
    refused(chat(json!({"logit_bias": []})), "logit_bias", "must be an object, got an array");
    refused(
        chat(json!({"chat_template_kwargs": {"enable_thinking": "no"}})),
        "chat_template_kwargs.enable_thinking",
        "a boolean",
    );
    refused(chat(json!({"temperature": "x".repeat(500)})), "temperature", "a string of 500 characters");
}

#[test]
fn a_top_p_of_zero_keeps_the_best_token_alone() {
    let top_p = chat(json!({"top_p": 0})).unwrap().generation.spec.engine.sampling.top_p;
    assert!(top_p > 0.0 && top_p < 1e-30, "{top_p}");
}

#[test]
fn values_out_of_range_name_the_bounds() {
    for (name, bad) in [
        ("temperature", json!(2.1)),
        ("temperature", json!(-0.1)),
        ("top_p", json!(-0.01)),
        ("top_p", json!(1.01)),
        ("min_p", json!(-0.1)),
        ("min_p", json!(1.1)),
        ("top_k", json!(-2)),
        ("presence_penalty", json!(2.1)),
        ("frequency_penalty", json!(-2.1)),
        ("repetition_penalty", json!(0)),
        ("n", json!(0)),
        ("n", json!(17)),
        ("max_tokens", json!(0)),
        ("max_completion_tokens", json!(-2)),
        ("max_tokens", json!(4_294_967_296i64)),
        ("min_tokens", json!(-1)),
        ("seed", json!(u64::MAX)),
    ] {
        refused(chat(json!({name: bad})), name, "must lie between");
    }
    for (name, bad) in [("n", json!(17.0)), ("max_tokens", json!(1e300)), ("seed", json!(-1e19))] {
        refused(chat(json!({name: bad})), name, "must lie between");
    }
    refused(chat(json!({"n": 1.5})), "n", "must be an integer, got 1.5");
    let whole = chat(json!({"n": 2.0, "max_tokens": 3e2, "seed": -7.0, "stop_token_ids": [1.0]})).unwrap().generation;
    assert_eq!(
        (whole.spec.engine.choices, whole.spec.engine.max_tokens, whole.seed),
        (2, Some(300), Some(-7i64 as u64))
    );
    assert_eq!(whole.spec.engine.end_ids.last(), Some(&1), "to JSON Schema 1.0 is an integer");
    assert_eq!(chat(json!({"max_tokens": -1.0})).unwrap().generation.spec.engine.max_tokens, None);
    let tokens = completion(json!({"prompt": [3.0, 4]})).unwrap().prompts;
    assert_eq!(tokens, [Prompt::Tokens(vec![3, 4])]);
    refused(chat(json!({"logprobs": true, "top_logprobs": 21})), "top_logprobs", "between 0 and 20, got 21");
    refused(chat(json!({"logit_bias": {"3": 101}})), "logit_bias.3", "between -100 and 100");
    refused(chat(json!({"stop_token_ids": [1, 500]})), "stop_token_ids[1]", "between 0 and 499, got 500");
    refused(completion(json!({"prompt": "a", "logprobs": 21})), "logprobs", "between 0 and 20");
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    refused(
        chat(json!({"max_tokens": 1, "max_completion_tokens": 2})),
        "max_tokens",
        "is 1 and `max_completion_tokens` is 2",
    );
    refused(chat(json!({"max_tokens": 1, "min_tokens": 2})), "min_tokens", "the limit of 1 tokens, got 2");
    refused(chat(json!({"top_logprobs": 2})), "top_logprobs", "with `logprobs: true`");
    let mode = |mode: &str| chat(json!({"logprobs": true, "logprobs_mode": mode}));
    for (name, processed) in
        [("raw", false), ("raw_logprobs", false), ("processed", true), ("processed_logprobs", true)]
    {
        assert_eq!(mode(name).unwrap().generation.spec.engine.sampling.processed, processed);
    }
    refused(chat(json!({"logprobs_mode": "processed"})), "logprobs_mode", "only allowed with `logprobs`");
    refused(mode("processed_logits"), "logprobs_mode", "logits are not reported");
    refused(mode("cooked"), "logprobs_mode", "must be \"raw\" or \"processed\", got \"cooked\"");
    refused(chat(json!({"stream_options": {"include_usage": true}})), "stream_options", "with `stream: true`");
    assert_eq!(chat(json!({"top_logprobs": 0})).unwrap().generation.spec.engine.sampling.logprobs, None);
    assert_eq!(chat(json!({"logprobs": true})).unwrap().generation.spec.engine.sampling.logprobs, Some(0));
}

#[test]
fn lists_are_bounded_and_their_entries_checked() {
    refused(chat(json!({"stop": vec!["a"; 17]})), "stop", "17 entries, at most 16");
    refused(chat(json!({"stop": "a".repeat(1025)})), "stop[0]", "1025 bytes, at most 1024");
    refused(chat(json!({"stop_token_ids": vec![1; 65]})), "stop_token_ids", "65 entries");
    refused(chat(json!({"logit_bias": {"500": 1}})), "logit_bias.500", "a token id below 500");
    refused(chat(json!({"logit_bias": {"x": 1}})), "logit_bias.x", "the key \"x\"");
    refused(chat(json!({"logit_bias": {"3": 1, "03": 2}})), "logit_bias", "names token 3 twice");
    assert_eq!(chat(json!({"stop": "x"})).unwrap().generation.spec.stop, ["x"]);
}

#[test]
fn ends_of_text_are_the_model_s_unless_they_are_ignored() {
    let ids = |fields| chat(fields).unwrap().generation.spec.engine.end_ids.to_vec();
    assert_eq!(ids(json!({"stop_token_ids": [3]})), [470, 468, 3]);
    assert_eq!(ids(json!({"ignore_eos": true})), [] as [u32; 0]);
    assert_eq!(ids(json!({"ignore_eos": true, "stop_token_ids": [3]})), [3]);
}

#[test]
fn the_model_s_recommendations_stand_where_the_request_is_silent() {
    let defaults = GenerationDefaults {
        temperature: Some(0.7),
        top_p: Some(0.8),
        top_k: Some(20),
        min_p: Some(0.1),
        repetition_penalty: Some(1.05),
        presence_penalty: Some(1.5),
    };
    let parse = |fields, defaults| {
        ChatRequest::parse(&chat_body(fields), &ModelLimits { defaults, ..limits() })
            .unwrap()
            .generation
            .spec
            .engine
            .sampling
            .clone()
    };
    let silent = parse(json!({}), defaults.clone());
    assert_eq!((silent.temperature, silent.top_p, silent.top_k, silent.min_p), (0.7, 0.8, 20, 0.1));
    assert_eq!((silent.repetition_penalty, silent.presence_penalty), (1.05, 1.5));
    let spoken = parse(json!({"temperature": 0, "top_p": 1, "top_k": -1, "min_p": 0}), defaults);
    assert_eq!((spoken.temperature, spoken.top_p, spoken.top_k, spoken.min_p), (0.0, 1.0, 0, 0.0));
    let broken = GenerationDefaults {
        temperature: Some(f32::NAN),
        top_p: Some(0.0),
        repetition_penalty: Some(0.0),
        ..Default::default()
    };
    let sampling = parse(json!({}), broken);
    assert_eq!((sampling.temperature, sampling.top_p, sampling.repetition_penalty), (1.0, 1.0, 1.0));
}

#[test]
fn a_temperature_next_to_nothing_is_greedy() {
    for (sent, meant) in [(1e-300, 0.0), (1e-6, 0.0), (1e-3, 1e-3)] {
        assert_eq!(chat(json!({"temperature": sent})).unwrap().generation.spec.engine.sampling.temperature, meant);
    }
}

#[test]
fn a_body_that_is_no_json_object_is_told_where_it_breaks() {
    let parse = |body: &[u8]| ChatRequest::parse(body, &limits()).unwrap_err();
    let error = parse(b"{\"messages\": [\n  {\"role\": }]}");
    assert_eq!(error.code, Some("invalid_json"));
    assert!(error.message.contains("line 2 column 12"), "{error}");
    assert_eq!(parse(b"[1]").message, "the body must be a JSON object, got an array");
    assert!(parse(b"").message.contains("EOF"));
    assert!(parse(b"{\"a\": \"\xff\"}").message.contains("line 1"));
    assert!(parse("[".repeat(100_000).as_bytes()).message.contains("recursion limit"));
}

#[test]
fn another_model_s_name_is_not_found() {
    let error = chat(json!({"model": "gpt-4"})).unwrap_err();
    assert_eq!(
        (error.status.as_u16(), error.code, error.param.as_deref()),
        (404, Some("model_not_found"), Some("model"))
    );
    assert!(error.message.contains("`gpt-4`") && error.message.contains("`nano`"));
}
