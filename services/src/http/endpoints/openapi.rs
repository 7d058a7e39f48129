//! `GET /openapi.json`: what the endpoints take and within which limits, for programs that make clients and tests of
//! it. Its tests hold it to the parsers: a field is in here if it is taken, and a bound if what lies beyond it is
//! refused.

use super::embeddings::with_encoder;
use crate::http::app::App;
use crate::http::body::generation::OF_OTHER_SERVERS;
use crate::http::body::model::ModelLimits;
use crate::http::endpoints::{documents, learning};
use crate::http::wire::routing::{only, read};
use crate::limits;
use actix_web::http::header::ContentType;
use actix_web::{HttpResponse, web};
use serde_json::{Map, Value, json};

/// The description of all that is here.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.service(only("/openapi.json", "GET", read().to(document)));
}

/// The document, which stays the same while the service runs.
async fn document(app: web::Data<App>) -> HttpResponse {
    let made = || {
        let mut document = described(&app.limits, app.turns.handles.context, app.bodies.bytes_max);
        let embedding = &mut document["components"]["schemas"]["Embedding"];
        *embedding = with_encoder(embedding.take(), app.turns.embedder.encoder());
        document.to_string().into()
    };
    HttpResponse::Ok().content_type(ContentType::json()).body(app.openapi.get_or_init(made).clone())
}

/// Path, method, what it does, and the schema of its body.
const ENDPOINTS: &[(&str, &str, &str, Option<&str>)] = &[
    ("/v1/chat/completions", "post", "Answer a conversation", Some("Chat")),
    ("/v1/chat/completions/input_tokens", "post", "Count the tokens of a conversation", Some("Chat")),
    ("/v1/completions", "post", "Continue texts", Some("Completion")),
    ("/v1/completions/render", "post", "Show the token ids of texts", Some("Completion")),
    ("/v1/chat/completions/render", "post", "Show the token ids of a conversation's prompt", Some("Chat")),
    ("/inference/v1/generate", "post", "Continue token ids with token ids", Some("TokenIds")),
    ("/v1/loads", "get", "How much there is to do", None),
    ("/server_info", "get", "What a router has to know of a worker", None),
    ("/get_server_info", "get", "The same", None),
    ("/is_sleeping", "get", "Whether the engine sleeps, which it never does", None),
    ("/flush_cache", "post", "Give up what is kept of prompts (for administrators)", None),
    ("/v1/responses", "post", "Answer a conversation, and keep the answer", Some("Response")),
    ("/v1/responses/compact", "post", "Make a summary that stands for a conversation", Some("Response")),
    ("/v1/responses/input_tokens", "post", "Count the tokens of a conversation", Some("Response")),
    ("/v1/responses/{id}", "get", "Show a response that was kept", None),
    ("/v1/responses/{id}/input_items", "get", "List what was said before a response", None),
    ("/v1/responses/{id}", "delete", "Remove a response that was kept", None),
    ("/v1/messages", "post", "Answer a conversation in Anthropic's words", Some("Message")),
    ("/v1/messages/count_tokens", "post", "Count the tokens of a conversation", Some("Message")),
    ("/v1/embeddings", "post", "Make vectors of texts", Some("Embedding")),
    ("/v1/decisions", "post", "Decide among given options", Some("Decisions")),
    ("/v1/load_lora_adapter", "post", "Serve an adapter of the operator's directory (for administrators)", None),
    ("/v1/unload_lora_adapter", "post", "Serve an adapter no longer (for administrators)", None),
    ("/lora-adapters", "get", "List the adapters by llama.cpp's numbers", None),
    ("/lora-adapters", "post", "Give requests of /completion that name no adapter one (for administrators)", None),
    ("/v1/rerank", "post", "Rank documents by a query", Some("Rerank")),
    ("/v2/rerank", "post", "The same", Some("Rerank")),
    ("/rerank", "post", "The same", Some("Rerank")),
    ("/v1/models", "get", "List the models", None),
    ("/v1/models/{id}", "get", "Show a model", None),
    ("/v1/pipelines", "get", "List the pipelines and what is wrong with their files", None),
    ("/v1/tools", "get", "List the tools that the service runs", None),
    ("/v1/engram/tables", "get", "List the tables", None),
    ("/v1/engram/tables/{name}", "get", "Show a table", None),
    ("/v1/engram/tables/{name}", "put", "Make a table of texts", Some("Any")),
    ("/v1/engram/tables/{name}", "delete", "Remove a table", None),
    ("/v1/engram/tables/{name}/learn", "post", "Teach a table", Some("Any")),
    ("/v1/engram/tables/{name}/rollback", "post", "Take the last change back", Some("Any")),
    ("/v1/engram/collections", "get", "List the collections", None),
    ("/v1/engram/collections/{name}", "get", "Show a collection", None),
    ("/v1/engram/collections/{name}", "put", "Make a collection", Some("Nothing")),
    ("/v1/engram/collections/{name}", "delete", "Remove a collection", None),
    ("/v1/engram/collections/{name}/add", "post", "Add items to a collection", Some("Items")),
    ("/v1/engram/collections/{name}/search", "post", "Find the nearest items", Some("Search")),
    ("/api/chat", "post", "Answer a conversation in Ollama's words", Some("OllamaChat")),
    ("/api/generate", "post", "Answer a prompt in Ollama's words", Some("OllamaPrompt")),
    ("/api/embed", "post", "Make vectors of texts", Some("OllamaEmbedding")),
    ("/api/embeddings", "post", "Make a vector of a text", Some("OllamaEmbedding")),
    ("/api/show", "post", "Show a model", Some("OllamaName")),
    ("/api/pull", "post", "Ask for a model, which is there or is not", Some("OllamaName")),
    ("/api/tags", "get", "List the models", None),
    ("/api/ps", "get", "List the loaded models", None),
    ("/api/version", "get", "The version of Ollama's API", None),
    ("/completion", "post", "Continue texts in llama.cpp's words", Some("LlamaCompletion")),
    ("/completions", "post", "The same", Some("LlamaCompletion")),
    ("/embedding", "post", "Make vectors of texts in llama.cpp's words", Some("LlamaEmbedding")),
    ("/embeddings", "post", "The same", Some("LlamaEmbedding")),
    ("/infill", "post", "Fill in, which is not supported", Some("Any")),
    ("/props", "get", "What a program of llama.cpp's has to know of the server", None),
    ("/slots", "get", "How many places are taken", None),
    ("/tokenizer_info", "get", "Show the end of a text, the context and the template", None),
    ("/mcp", "post", "One message of the Model Context Protocol, where it is served", Some("Any")),
    ("/tokenize", "post", "Show the tokens of a text or of a conversation", Some("Tokenize")),
    ("/apply-template", "post", "Show the prompt of a conversation", Some("Chat")),
    ("/detokenize", "post", "Show the text of tokens", Some("Detokenize")),
    ("/version", "get", "The version", None),
    ("/health", "get", "Whether the engine lives", None),
    ("/ready", "get", "Whether a request would be answered", None),
    ("/metrics", "get", "Metrics in Prometheus' format", None),
    ("/openapi.json", "get", "This document", None),
];

/// What tables and collections may be called.
const NAME: &str = "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$";

fn described(model: &ModelLimits, context: u32, body_bytes_max: usize) -> Value {
    let name = &model.name;
    let about = format!("{name} with a context of {context} tokens; bodies of at most {body_bytes_max} bytes.");
    let mut paths = Map::new();
    for (path, method, summary, body) in ENDPOINTS.iter().chain(documents::ENDPOINTS).chain(learning::ENDPOINTS) {
        let item = paths.entry(*path).or_insert_with(|| json!({}));
        item[*method] = operation(path, summary, *body);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Chimère",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0"},
            "description": about,
        },
        "security": [{"bearer": []}, {"key": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": schemas(model),
        },
    })
}

fn operation(path: &str, summary: &str, body: Option<&str>) -> Value {
    let mut operation = json!({"summary": summary, "responses": {
        "200": {"description": "As it was asked for; a stream, where one was"},
        "4XX": {"description": "What was wanted and what came, in the shape of its dialect"},
        "5XX": {"description": "The service ends, or its engine is lost"},
    }});
    let names: Vec<Value> = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| {
            // Ids are anything; what callers name themselves is not.
            let kind =
                if name == "name" { json!({"type": "string", "pattern": NAME}) } else { json!({"type": "string"}) };
            json!({"name": name, "in": "path", "required": true, "schema": kind})
        })
        .collect();
    if !names.is_empty() {
        operation["parameters"] = names.into();
    }
    if let Some(schema) = body {
        let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
        let kind = if path == "/v1/files" { "multipart/form-data" } else { "application/json" };
        operation["requestBody"] = json!({"required": true, "content": {kind: {"schema": schema}}});
    }
    operation
}

fn schemas(model: &ModelLimits) -> Value {
    let strict = |properties: Value, required: &[&str]| {
        json!({"type": "object", "properties": properties,
        "required": required, "additionalProperties": false})
    };
    let tolerant = |properties: Value, required: &[&str]| {
        json!({"type": "object", "properties": properties,
        "required": required})
    };
    let own = json!({
        "Any": {"type": "object"},
        "Nothing": strict(json!({}), &[]),
        "Items": strict(json!({"items": items()}), &["items"]),
        "Search": strict(search(), &["query"]),
        "Chat": strict(merged([generating(model), about_tools(), chat()]), &["messages"]),
        "Completion": strict(merged([generating(model), completion(model)]), &["prompt"]),
        "TokenIds": strict(token_ids(model), &["token_ids"]),
        "Embedding": strict(embedding(model), &["input"]),
        "Decisions": strict(decisions(model), &["input", "questions"]),
        "Rerank": strict(rerank(model), &["query", "documents"]),
        "Tokenize": strict(tokenize(model), &[]),
        "Detokenize": strict(
            json!({"model": named(model), "tokens": {"type": "array", "items": id(model)}}),
            &["tokens"],
        ),
        "Message": tolerant(merged([ours(model), message(model)]), &["messages"]),
        "Response": tolerant(merged([ours(model), response(model)]), &["input"]),
        "OllamaChat": tolerant(merged([ollama(model), json!({"messages": list(None, object())})]), &["model"]),
        "OllamaPrompt": tolerant(merged([ollama(model), ollama_prompt()]), &["model"]),
        "OllamaEmbedding": either(
            "oneOf",
            json!({"model": ollama_name(model), "input": prompts(model, limits::EMBEDDING_INPUTS_MAX),
                "prompt": written(), "dimensions": {"enum": [model.width, null]}}),
            &[&["model", "input"], &["model", "prompt"]],
        ),
        "LlamaCompletion": tolerant(without(merged([ours(model), llama(model)]), "repetition_penalty"), &["prompt"]),
        "LlamaEmbedding": either(
            "oneOf",
            json!({"model": named(model), "content": prompts(model, limits::EMBEDDING_INPUTS_MAX),
                "input": prompts(model, limits::EMBEDDING_INPUTS_MAX), "embd_normalize": {"enum": [2, null]}}),
            &[&["content"], &["input"]],
        ),
        "OllamaName": either("anyOf",
            json!({"model": ollama_name(model), "name": ollama_name(model)}),
            &[&["model"], &["name"]],
        ),
    });
    let more = documents::schemas().into_iter().chain(learning::schemas());
    merged([own, more.map(|(name, schema)| (name.to_owned(), schema)).collect()])
}

/// Fields of chat and completions.
fn generating(model: &ModelLimits) -> Value {
    let shared = json!({
        "model": named(model),
        "stream": flag(),
        "stream_options": object(),
        "n": integer(1, model.choices_max.into()),
        "best_of": integer(1, u32::MAX.into()),
        "temperature": number(0.0, 2.0),
        "top_p": number(0.0, 1.0),
        "max_tokens": integer(-1, u32::MAX.into()),
        "stop": {"anyOf": [{"type": "null"}, text(), list(Some(limits::STOP_STRINGS_MAX), text())]},
        "user": text(),
        "safety_identifier": text(),
        "prompt_cache_key": text(),
        "prompt_cache_retention": text(),
        "prediction": object(),
        "metadata": object(),
        "store": flag(),
        "service_tier": {"enum": ["auto", "default"]},
        "skip_special_tokens": {"const": true},
        "spaces_between_special_tokens": flag(),
        "include_reasoning": {"const": true},
        "separate_reasoning": {"const": true},
        "stream_reasoning": {"const": true},
        "no_stop_trim": {"const": false},
        "return_hidden_states": {"const": false},
        "use_beam_search": {"const": false},
        "modalities": list(None, json!({"const": "text"})),
        "verbosity": {"const": "medium"},
        "response_format": object(),
        "structured_outputs": object(),
        "guided_json": {},
        "guided_regex": text(),
        "guided_choice": list(None, text()),
        "guided_grammar": text(),
        "json_schema": {},
        "grammar": text(),
        "add_generation_prompt": flag(),
        "continue_final_message": flag(),
        "logprobs": {},
    });
    let of_others = OF_OTHER_SERVERS.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    merged([ours(model), shared, Value::Object(of_others)])
}

fn about_cache() -> Value {
    let salt = json!({"type": ["string", "null"], "minLength": 1, "maxLength": limits::CACHE_SALT_BYTES_MAX});
    json!({"cache": flag(), "cache_prompt": flag(), "cache_salt": salt})
}

/// Fields of ours, which every dialect of conversations takes.
fn ours(model: &ModelLimits) -> Value {
    let modes = [Some("raw"), Some("raw_logprobs"), Some("processed"), Some("processed_logprobs"), None];
    let others = json!({
        "drafts": flag(),
        "engram": object(),
        "frequency_penalty": number(-2.0, 2.0),
        "ignore_eos": flag(),
        "logit_bias": object(),
        "logprobs_mode": {"enum": modes},
        "min_p": number(0.0, 1.0),
        "scale": number(0.0, limits::ADAPTER_SCALE_MAX),
        "min_tokens": integer(0, u32::MAX.into()),
        "moe": object(),
        "presence_penalty": number(-2.0, 2.0),
        "priority": integer(i32::MIN.into(), i32::MAX.into()),
        "repetition_penalty": number(0.01, 100.0),
        "seed": {"type": ["integer", "null"]},
        "stop_token_ids": list(Some(limits::STOP_TOKEN_IDS_MAX), id(model)),
        "top_k": integer(-1, u32::MAX.into()),
    });
    merged([about_cache(), others])
}

/// Ids that are continued.
fn token_ids(model: &ModelLimits) -> Value {
    let request_id = json!({"type": ["string", "null"], "minLength": 1, "maxLength": limits::REQUEST_NAME_BYTES_MAX});
    json!({
        "model": named(model),
        "token_ids": {"type": "array", "items": id(model), "minItems": 1},
        "sampling_params": object(),
        "request_id": request_id,
        "stream": flag(),
        "stream_options": object(),
        "priority": integer(i32::MIN.into(), i32::MAX.into()),
        "cache": flag(),
        "cache_salt": {"type": ["string", "null"], "minLength": 1, "maxLength": limits::CACHE_SALT_BYTES_MAX},
        "drafts": flag(),
        "logprobs_mode": {"enum": ["raw", "raw_logprobs", "processed", "processed_logprobs", null]},
        "kv_transfer_params": {},
    })
}

fn about_tools() -> Value {
    json!({
        "tools": list(Some(limits::TOOLS_MAX), object()),
        "tool_choice": {},
        "parallel_tool_calls": flag(),
        "web_search_options": object(),
    })
}

fn chat() -> Value {
    let role = json!({"enum": ["system", "developer", "user", "assistant", "tool"]});
    let message = json!({"type": "object", "properties": {"role": role}, "required": ["role"]});
    json!({
        "messages": {"type": "array", "items": message, "minItems": 1},
        "max_completion_tokens": integer(-1, u32::MAX.into()),
        "logprobs": flag(),
        "top_logprobs": integer(0, limits::TOP_LOGPROBS_MAX.into()),
        "report": flag(),
        "chat_template_kwargs": object(),
        "reasoning_effort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max", "auto", null]},
        "reasoning": object(),
        "thinking": object(),
    })
}

fn completion(model: &ModelLimits) -> Value {
    json!({"prompt": prompts(model, limits::PROMPTS_MAX), "echo": flag(),
        "logprobs": integer(0, limits::TOP_LOGPROBS_MAX.into())})
}

/// A text, or ids with or without texts between them, or several of these.
fn prompts(model: &ModelLimits, most: usize) -> Value {
    let row = |parts: Value| json!({"type": "array", "items": parts, "minItems": 1});
    let one = json!({"anyOf": [written(), row(id(model))]});
    let mut mixed = row(json!({"anyOf": [id(model), written()]}));
    mixed["contains"] = id(model);
    let mut several = row(one.clone());
    several["maxItems"] = json!(most);
    json!({"anyOf": [one, mixed, several]})
}

/// What is looked for in a collection.
fn search() -> Value {
    json!({"query": written(), "k": integer(1, limits::SEMANTIC_K_MAX.into()),
        "by": {"enum": ["both", "meaning", "words", null]}})
}

/// What is put into a collection.
fn items() -> Value {
    let told = json!({"type": ["string", "null"], "minLength": 1});
    let item = json!({"type": "object", "properties": {"id": told, "text": written(), "answer": told},
        "required": ["text"], "additionalProperties": false});
    json!({"type": "array", "items": item, "minItems": 1, "maxItems": limits::EMBEDDING_INPUTS_MAX})
}

fn embedding(model: &ModelLimits) -> Value {
    json!({
        "model": named(model),
        "input": prompts(model, limits::EMBEDDING_INPUTS_MAX),
        "encoding_format": {"enum": ["float", "base64", null]},
        "pooling": {"enum": ["mean", "last", null]},
        "priority": integer(i32::MIN.into(), i32::MAX.into()),
        "dimensions": {"enum": [model.width, null]},
        "user": text(),
    })
}

fn decisions(model: &ModelLimits) -> Value {
    merged([
        about_cache(),
        json!({
            "model": named(model),
            "input": {"type": ["string", "array"]},
            "questions": list(Some(limits::DECISION_QUESTIONS_MAX), object()),
            "orders": integer(1, limits::DECISION_ORDERS_MAX.into()),
            "raw": flag(),
        }),
        json!({"prompt_cache_key": {}, "prompt_cache_options": {}, "safety_identifier": {}, "user": {}}),
    ])
}

fn rerank(model: &ModelLimits) -> Value {
    merged([
        about_cache(),
        json!({
            "model": named(model),
            "query": text(),
            "documents": list(Some(limits::RERANK_DOCUMENTS_MAX), json!({"type": ["string", "object"]})),
            "top_n": {"type": ["integer", "null"], "minimum": 1},
            "return_documents": flag(),
            "user": text(),
        }),
    ])
}

fn tokenize(model: &ModelLimits) -> Value {
    merged([
        about_tools(),
        json!({"content": text(), "with_pieces": flag(), "add_special": flag()}),
        json!({"model": named(model), "prompt": text(), "messages": list(None, object()), "add_special_tokens": flag(),
            "parse_special": flag(), "return_token_strs": flag(), "chat_template_kwargs": object()}),
    ])
}

fn message(model: &ModelLimits) -> Value {
    json!({
        "model": named(model),
        "messages": {"type": "array", "items": {"type": "object"}, "minItems": 1},
        "system": {},
        "max_tokens": integer(-1, u32::MAX.into()),
        "temperature": number(0.0, 2.0),
        "top_p": number(0.0, 1.0),
        "stream": flag(),
        "stop_sequences": list(Some(limits::STOP_STRINGS_MAX), text()),
        "tools": list(Some(limits::TOOLS_MAX), object()),
        "tool_choice": object(),
        "thinking": object(),
        "output_config": object(),
        "metadata": object(),
        "service_tier": text(),
        "chat_template_kwargs": object(),
    })
}

fn response(model: &ModelLimits) -> Value {
    json!({
        "model": named(model),
        "input": {"anyOf": [written(), {"type": "array", "items": {"type": "object"}, "minItems": 1}]},
        "instructions": text(),
        "previous_response_id": text(),
        "store": flag(),
        "stream": flag(),
        "max_output_tokens": integer(-1, u32::MAX.into()),
        "temperature": number(0.0, 2.0),
        "top_p": number(0.0, 1.0),
        "tools": list(None, object()),
        "tool_choice": {},
        "parallel_tool_calls": flag(),
        "reasoning": object(),
        "text": object(),
        "include": list(None, json!({})),
        "top_logprobs": integer(0, limits::TOP_LOGPROBS_MAX.into()),
        "truncation": {"enum": ["disabled", "auto", null]},
        "background": {"const": false},
        "metadata": object(),
        "user": text(),
        "safety_identifier": text(),
        "prompt_cache_key": text(),
        "prompt_cache_retention": text(),
        "service_tier": text(),
        "chat_template_kwargs": object(),
    })
}

fn ollama(model: &ModelLimits) -> Value {
    json!({"model": ollama_name(model), "stream": flag(), "think": {"type": ["boolean", "string", "null"]},
        "format": {}, "options": object(), "keep_alive": {}, "tools": list(Some(limits::TOOLS_MAX), object()), "engram": object()})
}

fn ollama_prompt() -> Value {
    json!({"prompt": text(), "system": text(), "raw": flag(), "images": list(Some(0), json!({}))})
}

fn llama(model: &ModelLimits) -> Value {
    let off = |value: f64| json!({"enum": [value, null]});
    json!({
        "model": named(model),
        "prompt": prompts(model, limits::PROMPTS_MAX),
        "n_predict": integer(-2, u32::MAX.into()),
        "stream": flag(),
        "stop": {"anyOf": [{"type": "null"}, text(), list(Some(limits::STOP_STRINGS_MAX), text())]},
        "temperature": number(0.0, 2.0),
        "top_p": number(0.0, 1.0),
        "repeat_penalty": number(0.01, 100.0),
        "logit_bias": {"type": ["object", "array", "null"]},
        "n_probs": integer(0, limits::TOP_LOGPROBS_MAX.into()),
        "post_sampling_probs": {"enum": [false, null]},
        "return_tokens": flag(),
        "response_fields": list(Some(limits::RESPONSE_FIELDS_MAX), text()),
        "json_schema": {},
        "grammar": text(),
        "response_format": object(),
        "structured_outputs": object(),
        "mirostat": off(0.0),
        "typical_p": off(1.0),
        "dynatemp_range": off(0.0),
        "xtc_probability": off(0.0),
        "dry_multiplier": off(0.0),
        "top_n_sigma": {"type": ["number", "null"], "maximum": 0},
        "n_indent": off(0.0),
        "t_max_predict_ms": {"type": ["number", "null"], "maximum": 0},
        "n_cmpl": off(1.0),
        "lora": list(Some(0), json!({})),
        "image_data": list(Some(0), json!({})),
    })
}

fn merged<const N: usize>(parts: [Value; N]) -> Value {
    let parts = parts.into_iter().filter_map(|part| if let Value::Object(map) = part { Some(map) } else { None });
    Value::Object(parts.flatten().collect())
}

/// Properties without one field, which is called otherwise in this dialect.
fn without(mut properties: Value, name: &str) -> Value {
    if let Value::Object(map) = &mut properties {
        map.shift_remove(name);
    }
    properties
}

// Null is absent everywhere.

/// A model that is served, whose name may be written in capitals or not; an empty name says nothing.
fn named(model: &ModelLimits) -> Value {
    json!({"enum": model.names().map(Value::from).chain(["".into(), Value::Null]).collect::<Vec<_>>()})
}

/// Names of the model as Ollama's programs write them, where a name has to be given.
fn ollama_name(model: &ModelLimits) -> Value {
    json!({"enum": model.names().flat_map(|name| [name.to_owned(), format!("{name}:latest")]).collect::<Vec<_>>()})
}

/// One of these sets of fields is there and not null: at least one by `anyOf`, exactly one by `oneOf`.
fn either(kind: &str, mut properties: Value, sets: &[&[&str]]) -> Value {
    let there = |field: &&str| ((*field).to_owned(), json!({"not": {"type": "null"}}));
    let set = |fields: &&[&str]| json!({"required": fields, "properties": Map::from_iter(fields.iter().map(there))});
    for value in properties.as_object_mut().into_iter().flat_map(Map::values_mut) {
        *value = json!({"anyOf": [value.take(), {"type": "null"}]});
    }
    json!({"type": "object", "properties": properties, kind: sets.iter().map(set).collect::<Vec<_>>()})
}

fn written() -> Value {
    json!({"type": "string", "minLength": 1})
}

fn text() -> Value {
    json!({"type": ["string", "null"]})
}

fn flag() -> Value {
    json!({"type": ["boolean", "null"]})
}

fn object() -> Value {
    json!({"type": ["object", "null"]})
}

fn integer(least: i64, most: i64) -> Value {
    json!({"type": ["integer", "null"], "minimum": least, "maximum": most})
}

fn number(least: f64, most: f64) -> Value {
    json!({"type": ["number", "null"], "minimum": least, "maximum": most})
}

fn list(most: Option<usize>, items: Value) -> Value {
    let mut list = json!({"type": ["array", "null"], "items": items});
    if let Some(most) = most {
        list["maxItems"] = json!(most);
    }
    list
}

fn id(model: &ModelLimits) -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": model.vocab.saturating_sub(1)})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::body::embedding::AskedEmbedding;
    use crate::http::body::fields::known_names;
    use crate::http::dialects::anthropic::request::MessagesRequest;
    use crate::http::dialects::llama::request::LlamaRequest;
    use crate::http::dialects::ollama::request::OllamaRequest;
    use crate::http::dialects::openai::request::CompletionRequest;
    use crate::http::dialects::responses::request::ResponsesBody;
    use crate::http::dialects::token_ids::request::TokenIdsRequest;
    use crate::http::endpoints::collections::request::SearchRequest;
    use crate::http::endpoints::decisions::request::DecisionBody;
    use crate::http::endpoints::decisions::rerank::RerankBody;
    use crate::http::endpoints::hints::PATHS;
    use crate::http::endpoints::learning::request::FeedbackRequest;
    use crate::http::endpoints::tokenize::request::{DetokenizeRequest, TokenizeRequest};
    use crate::http::wire::error::ApiError;
    use crate::turn::options::ChatRequest;
    use std::collections::BTreeSet;

    fn limits() -> ModelLimits {
        ModelLimits {
            name: "nano".into(),
            aliases: Vec::new(),
            vocab: 500,
            width: 64,
            choices_max: 4,
            end_ids: vec![470],
            defaults: Default::default(),
            template_options: Vec::new(),
            experts: Some(8),
            thinking: None,
            pipelines: Default::default(),
            adapters: Default::default(),
            web: Default::default(),
        }
    }

    /// What a parser makes of a body: the error, if it is one.
    type Parse = fn(&[u8]) -> Option<ApiError>;

    /// Schema, parser, the least body that it takes, and whether it takes nothing else than what is described.
    fn parsers() -> [(&'static str, Parse, Value, bool); 15] {
        let turn = json!([{"role": "user", "content": "hi"}]);
        [
            ("Chat", |b| ChatRequest::parse(b, &limits()).err(), json!({"messages": turn}), true),
            ("Completion", |b| CompletionRequest::parse(b, &limits()).err(), json!({"prompt": "p"}), true),
            ("TokenIds", |b| TokenIdsRequest::parse(b, &limits()).err(), json!({"token_ids": [1]}), true),
            ("Embedding", |b| AskedEmbedding::parse(b, &limits(), None).err(), json!({"input": "p"}), true),
            (
                "Decisions",
                |b| DecisionBody::parse(b, &limits()).err(),
                json!({"input": "p", "questions": [{"type": "predicate", "instructions": "It is so."}]}),
                true,
            ),
            ("Rerank", |b| RerankBody::parse(b, &limits()).err(), json!({"query": "q", "documents": ["d"]}), true),
            ("Detokenize", |b| DetokenizeRequest::parse(b, &limits()).err(), json!({"tokens": [1]}), true),
            ("Tokenize", |b| TokenizeRequest::parse(b, &limits()).err(), json!({"messages": turn}), false),
            ("Message", |b| MessagesRequest::parse(b, &limits()).err(), json!({"messages": turn}), false),
            (
                "Response",
                |b| ResponsesBody::read(b).and_then(|body| body.checked(Vec::new(), &limits())).err(),
                json!({"input": "p"}),
                false,
            ),
            ("Search", |b| SearchRequest::parse(b).err(), json!({"query": "q"}), true),
            ("Feedback", |b| FeedbackRequest::parse(b).err(), json!({"response_id": "r", "rating": 1}), true),
            ("LlamaCompletion", |b| LlamaRequest::parse(b, &limits()).err(), json!({"prompt": "p"}), false),
            (
                "OllamaChat",
                |b| OllamaRequest::parse_chat(b, &limits()).err(),
                json!({"model": "nano", "messages": turn}),
                false,
            ),
            (
                "OllamaPrompt",
                |b| OllamaRequest::parse_generate(b, &limits()).err(),
                json!({"model": "nano", "prompt": "p"}),
                false,
            ),
        ]
    }

    fn schema(name: &str) -> Value {
        schemas(&limits())[name].clone()
    }

    fn with(body: &Value, name: &str, value: Value) -> Vec<u8> {
        let mut body = body.clone();
        body[name] = value;
        body.to_string().into_bytes()
    }

    #[test]
    fn a_field_is_described_if_and_only_if_it_is_taken() {
        for (name, parse, least, all) in parsers() {
            known_names();
            assert_eq!(parse(least.to_string().as_bytes()), None, "{name}");
            let known: BTreeSet<&str> = known_names().into_iter().collect();
            let schema = schema(name);
            let described: BTreeSet<&str> =
                schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            // A body is a text or a conversation, and is not asked for the other's fields.
            let other = if name == "Tokenize" { &["prompt", "parse_special", "content"][..] } else { &[] };
            let unknown: Vec<_> = described.difference(&known).filter(|field| !other.contains(*field)).collect();
            assert!(unknown.is_empty(), "{name} describes what nobody asks for: {unknown:?}");
            for field in known.difference(&described).filter(|_| all) {
                let refused = parse(&with(&least, field, json!({})));
                let code = refused.as_ref().and_then(|error| error.code);
                assert_eq!(code, Some("unsupported_parameter"), "{name} does not describe {field}: {refused:?}");
            }
        }
    }

    #[test]
    fn what_lies_beyond_a_bound_is_refused_by_its_name() {
        let mut bounds = 0;
        for (name, parse, least, _) in parsers() {
            for (field, described) in schema(name)["properties"].as_object().unwrap() {
                let beyond = |bound: &str, by: i64| {
                    let bound = described.get(bound)?;
                    Some(bound.as_i64().map_or_else(|| json!(bound.as_f64().unwrap() + by as f64), |n| json!(n + by)))
                };
                let items = described.get("maxItems").and_then(Value::as_u64);
                let items = items.map(|most| Value::from(vec![json!({}); most as usize + 1]));
                for value in [beyond("maximum", 1), beyond("minimum", -1), items].into_iter().flatten() {
                    let error = parse(&with(&least, field, value.clone()));
                    let error = error.unwrap_or_else(|| panic!("{name}: {field} may be {value}"));
                    let param = error.param.as_deref().unwrap_or_default();
                    assert!(param.starts_with(field.as_str()), "{name}: {field} {value}: {error:?}");
                    bounds += 1;
                }
            }
        }
        assert!(bounds > 60, "{bounds} bounds were tried");
    }

    #[test]
    fn every_path_that_is_hinted_at_is_described_and_every_reference_leads_somewhere() {
        let document = described(&limits(), 4096, 1 << 20);
        let described = |path: &&&str| document["paths"].get(**path).is_none();
        assert_eq!(PATHS.iter().filter(described).collect::<Vec<_>>(), Vec::<&&str>::new());
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }
}
