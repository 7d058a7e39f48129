//! Ollama's endpoints under `/api/`: its words for conversations, prompts and embeddings, made into requests of ours.

use crate::http::body::embedding::{EmbeddingRequest, one_text};
use crate::http::body::fields::{Fields, missing, whole, wrong_type};
use crate::http::body::messages;
use crate::http::body::model::Addressee;
use crate::http::body::model::{ModelLimits, check_name};
use crate::http::body::turns::go_on;
use crate::http::wire::error::ApiError;
use crate::text::{Message, Role};
use crate::turn::options::ChatRequest;
use crate::turn::options::Generation;
use serde_json::{Map, Value as Json, json};

/// What `/api/chat` or `/api/generate` asks for.
#[derive(Clone, Debug)]
pub enum OllamaRequest {
    /// An answer to a conversation, or to a prompt that the template is laid around.
    Chat(Box<ChatRequest>),
    /// A text that goes on from a prompt as it stands.
    Raw {
        /// The text to continue, which is never empty.
        prompt: String,
        /// What the body says about generating.
        generation: Box<Generation>,
    },
    /// Nothing but that the model is there, which it is.
    Load,
}

/// Fields that chat calls the same.
const SAME: [&str; 4] = ["tools", "logprobs", "top_logprobs", "engram"];
/// Options that chat calls the same.
const OPTIONS: [&str; 8] =
    ["temperature", "top_k", "top_p", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty"];
/// What the fields of chat are called here, for errors.
const NAMES: [(&str, &str); 7] = [
    ("continue_final_message", "messages"),
    ("reasoning_effort", "think"),
    ("response_format", "format"),
    ("repetition_penalty", "repeat_penalty"),
    ("max_tokens", "num_predict"),
    ("`reasoning`", "`think`"),
    ("reasoning.enabled", "think"),
];
/// The tag of a model that has none.
const LATEST: &str = ":latest";

impl OllamaRequest {
    /// A body of `/api/chat`.
    pub fn parse_chat(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let (mut fields, addressee) = named(body, limits)?;
        let list = fields.list("messages")?.unwrap_or_default();
        if list.is_empty() {
            return Ok(Self::Load);
        }
        let list = list.into_iter().enumerate().map(|(i, value)| message(format!("messages[{i}]"), value));
        let messages = messages::checked(list.collect::<Result<_, _>>()?)?;
        let mut chat = common(&mut fields)?;
        go_on(&messages, &mut chat);
        let chat = ChatRequest::about(messages, Fields::in_chat_words(chat), limits);
        fields.ignore_rest();
        Ok(Self::Chat(Box::new(chat.and_then(|chat| chat.through(addressee)).map_err(|e| e.renamed(&NAMES))?)))
    }

    /// A body of `/api/generate`.
    pub fn parse_generate(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let (mut fields, addressee) = named(body, limits)?;
        let (prompt, system) = (fields.string("prompt")?.unwrap_or_default(), fields.string("system")?);
        no_images(&mut fields)?;
        if fields.string("suffix")?.is_some_and(|text| !text.is_empty()) {
            return Err(ApiError::unsupported("suffix", "`suffix` is not supported: the model does not fill in"));
        }
        if fields.string("template")?.is_some_and(|text| !text.is_empty()) {
            return Err(ApiError::unsupported("template", "`template` is not supported: the template is the model's"));
        }
        let raw = fields.bool("raw")?.unwrap_or(false);
        if prompt.is_empty() {
            return Ok(Self::Load);
        }
        let mut chat = Fields::in_chat_words(common(&mut fields)?);
        fields.ignore_rest();
        if raw {
            let adapter = addressee.adapter()?;
            chat.any("reasoning_effort");
            let max_tokens = crate::http::body::generation::output_limit(&mut chat, "max_tokens", 1);
            let generation = max_tokens.and_then(|max| Generation::take(&mut chat, limits, max, None));
            if chat.has("response_format") {
                return Err(ApiError::unsupported("format", "`format` is not supported with `raw`"));
            }
            let generation = generation.and_then(|generation| generation.by(adapter));
            let generation = Box::new(generation.map_err(|e| e.renamed(&NAMES))?);
            return Ok(Self::Raw { prompt, generation });
        }
        let system = system.filter(|text| !text.is_empty()).map(|text| Message::new(Role::System, text));
        let messages = system.into_iter().chain([Message::new(Role::User, prompt)]).collect();
        let chat = ChatRequest::about(messages, chat, limits);
        Ok(Self::Chat(Box::new(chat.and_then(|chat| chat.through(addressee)).map_err(|e| e.renamed(&NAMES))?)))
    }
}

/// A body of `/api/embed`, or of the older `/api/embeddings`, which has one `prompt`.
pub fn parse_embed(body: &[u8], limits: &ModelLimits) -> Result<EmbeddingRequest, ApiError> {
    let (mut fields, addressee) = named(body, limits)?;
    check_name(addressee.name(), limits)?;
    let mut words = fields.same(&["input", "dimensions"]);
    if let Some(prompt) = fields.any("prompt") {
        one_text("prompt", words.insert("input".into(), prompt).is_some())?;
    }
    // What is too long is an error, and never cut.
    fields.same(&["truncate", "options", "keep_alive"]);
    fields.ignore_rest();
    EmbeddingRequest::about(Fields::in_chat_words(words), limits)
}

/// A body that says of which model it is, under either name, and nothing else that matters.
pub fn parse_name(body: &[u8], limits: &ModelLimits) -> Result<(), ApiError> {
    let (mut fields, _) = named(body, limits)?;
    fields.same(&["verbose", "stream", "insecure"]);
    fields.ignore_rest();
    Ok(())
}

/// A body whose model is ours, and who answers. A model without a tag is its latest one.
fn named(body: &[u8], limits: &ModelLimits) -> Result<(Fields, Addressee), ApiError> {
    let mut fields = Fields::of_body(body)?;
    let (model, name) = (fields.string("model")?, fields.string("name")?);
    let model = model.or(name).ok_or_else(|| missing("model", "the model's name"))?;
    let bare = model.strip_suffix(LATEST).unwrap_or(&model);
    let addressee = Addressee::named(bare, limits)?;
    Ok((fields, addressee))
}

/// What both ask for beside what was said, in the words of chat.
fn common(fields: &mut Fields) -> Result<Map<String, Json>, ApiError> {
    let mut chat = fields.same(&SAME);
    // Streams unless it is told not to.
    chat.insert("stream".into(), fields.bool("stream")?.unwrap_or(true).into());
    options(fields, &mut chat)?;
    think(fields, &mut chat)?;
    match fields.any("format") {
        None => {}
        Some(Json::String(text)) if text.is_empty() => {}
        Some(Json::String(text)) if text == "json" => {
            chat.insert("response_format".into(), json!({"type": "json_object"}));
        }
        Some(Json::Object(schema)) => {
            // Programs that speak this dialect are used to closed objects.
            let schema = json!({"name": "format", "strict": true, "schema": schema});
            chat.insert("response_format".into(), json!({"type": "json_schema", "json_schema": schema}));
        }
        Some(other) => return Err(wrong_type("format", "\"json\" or a JSON schema", &other)),
    }
    // The model stays where it is; nothing is loaded or cut.
    fields.same(&["keep_alive", "truncate", "shift"]);
    Ok(chat)
}

fn options(fields: &mut Fields, chat: &mut Map<String, Json>) -> Result<(), ApiError> {
    let Some(mut options) = fields.fields("options")? else { return Ok(()) };
    chat.extend(options.same(&OPTIONS));
    if let Some(penalty) = options.any("repeat_penalty") {
        chat.insert("repetition_penalty".into(), penalty);
    }
    // Below 0 there is no limit but the context's.
    if let Some(limit) = options.any("num_predict").filter(|limit| whole(limit).is_none_or(|limit| limit >= 0)) {
        chat.insert("max_tokens".into(), limit);
    }
    // How another engine computes.
    options.ignore_rest();
    Ok(())
}

fn think(fields: &mut Fields, chat: &mut Map<String, Json>) -> Result<(), ApiError> {
    match fields.any("think") {
        None => {}
        Some(Json::Bool(false)) => drop(chat.insert("reasoning_effort".into(), "none".into())),
        Some(Json::Bool(true)) => drop(chat.insert("reasoning".into(), json!({"enabled": true}))),
        Some(Json::String(effort)) => drop(chat.insert("reasoning_effort".into(), effort.into())),
        Some(other) => return Err(wrong_type("think", "a boolean or an effort", &other)),
    }
    Ok(())
}

fn no_images(fields: &mut Fields) -> Result<(), ApiError> {
    let path = fields.path("images");
    match fields.list("images")? {
        Some(images) if !images.is_empty() => {
            Err(ApiError::unsupported(&path, format!("`{path}` is not supported: this model reads text")))
        }
        _ => Ok(()),
    }
}

/// A message in the words of chat.
fn message(path: String, value: Json) -> Result<Json, ApiError> {
    let mut fields = Fields::nested(path, value)?;
    no_images(&mut fields)?;
    let mut message = fields.same(&["role", "content", "tool_calls", "tool_call_id"]);
    if let Some(thinking) = fields.any("thinking") {
        message.insert("reasoning_content".into(), thinking);
    }
    if let Some(name) = fields.any("tool_name") {
        message.insert("name".into(), name);
    }
    if message.get("role").is_some_and(|role| role == "assistant") {
        message.entry("content").or_insert_with(|| "".into());
    }
    fields.ignore_rest();
    Ok(message.into())
}
