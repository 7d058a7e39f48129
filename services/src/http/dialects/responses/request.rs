//! `POST /v1/responses`: OpenAI's second words for a conversation, made into a chat request.

use super::echo;
use super::items;
use crate::hosted::{SEPARATOR, shown_name};
use crate::http::body::documents::FILE_SEARCH;
use crate::http::body::fields::{Fields, missing};
use crate::http::body::model::{ModelLimits, OURS, take_model};
use crate::http::body::tools::MCP;
use crate::http::body::tools::web::{WEB_SEARCH, is_web_search};
use crate::http::wire::error::ApiError;
use crate::limits::TOP_LOGPROBS_MAX;
use crate::metrics::count_ignored;
use crate::text::template::written;
use crate::turn::options::ChatRequest;
use crate::web::WebOffer;
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;

/// A body before it is known what was said before it.
pub struct ResponsesBody {
    pub(super) fields: Fields,
    /// The response that this one goes on from.
    pub previous: Option<String>,
    /// The conversation is to be read, and nothing to be answered.
    pub(super) warms: bool,
}

/// A request for a response, checked.
#[derive(Clone, Debug)]
pub struct ResponsesRequest {
    /// What it asks for.
    pub chat: ChatRequest,
    /// The conversation without the answer to come, as it came: all items from the first response on.
    pub items: Vec<Json>,
    /// Keep the response, to show it and to go on from it.
    pub store: bool,
    /// How thoughts are given.
    pub thoughts: ThoughtsShown,
    /// The passages that a search found are shown.
    pub shows_results: bool,
    /// The addresses that a search of the web found are in its item.
    pub shows_urls: bool,
    /// Tools in a namespace: what the model calls them, and the namespace and name that the client does.
    pub namespaces: HashMap<String, (String, String)>,
    /// Read the conversation, and answer nothing.
    pub warms: bool,
    /// What the response says of its request.
    pub echo: Map<String, Json>,
}

/// How a response gives thoughts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThoughtsShown {
    /// As summaries, which the client asked for, and not as what they are.
    pub as_summary: bool,
    /// Also as a blob that the client sends back.
    pub sealed: bool,
}

/// Fields that chat calls the same.
const SAME: [&str; 10] = [
    "temperature",
    "top_p",
    "stream",
    "metadata",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
    "tool_choice",
];
/// What the fields of chat are called here, for errors.
const NAMES: [(&str, &str); 5] = [
    ("max_tokens", "max_output_tokens"),
    ("function.", ""),
    ("reasoning_effort", "reasoning.effort"),
    ("response_format", "text.format"),
    ("messages", "input"),
];
/// Tools that other services run themselves. The model is not told of them, as if there were none.
const SERVERS_TOOLS: [&str; 3] = ["web_search", "image_generation", "tool_search"];
/// What a message of a socket asks for.
const CREATE: &str = "response.create";
/// The log-probabilities of an answer's text.
const LOGPROBS: &str = "message.output_text.logprobs";
/// The passages that a search of files found.
const RESULTS: &str = "file_search_call.results";
/// The addresses that a search of the web found.
const URLS: &str = "web_search_call.action.sources";
/// Blobs with thoughts that a client that keeps everything itself asks for.
const SEALED_THOUGHTS: &str = "reasoning.encrypted_content";

impl ResponsesBody {
    /// Reads a body as far as it can be read alone.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let previous = fields.string("previous_response_id")?;
        Ok(Self { fields, previous, warms: false })
    }

    /// Reads a message of a socket: a body with its `type`, whose answer comes as events in any case.
    pub(super) fn of_message(message: &[u8]) -> Result<Self, ApiError> {
        let mut body = Self::read(message)?;
        let fields = &mut body.fields;
        match fields.string("type")?.as_deref() {
            Some(CREATE) => {}
            Some(other) => {
                let shown: String = other.chars().take(64).collect();
                return Err(ApiError::unsupported("type", format!("`type` must be \"{CREATE}\", got {shown:?}")));
            }
            None => return Err(missing("type", &format!("\"{CREATE}\""))),
        }
        fields.fixed("stream", true, "answers on a WebSocket come as events")?;
        fields.refuse("stream_id", "is not supported: the requests of a WebSocket run one after the other")?;
        body.warms = fields.bool("generate")? == Some(false);
        fields.set("stream", true.into());
        Ok(body)
    }

    /// Checks the rest. `before` are the items of the conversation up to here.
    pub fn checked(self, before: Vec<Json>, limits: &ModelLimits) -> Result<ResponsesRequest, ApiError> {
        let Self { mut fields, previous, warms } = self;
        let addressee = take_model(&mut fields, limits)?;
        let mut echo = echo::as_it_came(&fields);
        echo.insert("previous_response_id".into(), previous.into());
        refuse(&mut fields)?;
        let input = fields.any("input").ok_or_else(|| missing("input", "a string or an array of items"))?;
        let new = items::of_input(input)?;
        let messages = items::checked(fields.string("instructions")?, &before, &new)?;
        let store = fields.bool("store")?.unwrap_or(true);
        let mut chat = fields.same(&SAME);
        chat.extend(fields.same(&OURS));
        if let Some(max) = fields.any("max_output_tokens") {
            chat.insert("max_tokens".into(), max);
        }
        if warms {
            // The fewest that a generation has. It is not shown.
            chat.insert("max_tokens".into(), 1.into());
        }
        let included = included(&mut fields)?;
        let top_logprobs = fields.integer("top_logprobs", 0..=i64::from(TOP_LOGPROBS_MAX))?;
        if included.logprobs {
            chat.insert("logprobs".into(), true.into());
            chat.extend(top_logprobs.map(|top| ("top_logprobs".into(), top.into())));
        }
        let thoughts = thoughts(&mut fields, included.sealed, &mut chat)?;
        text(&mut fields, &mut chat, &mut echo)?;
        let namespaces = tools(&mut fields, (&mut chat, &mut echo), limits.web)?;
        if let Some(choice) = chat.remove("tool_choice") {
            chat.insert("tool_choice".into(), tool_choice(choice)?);
        }
        fields.ignore_rest();
        let chat = ChatRequest::about(messages, Fields::in_chat_words(chat), limits);
        let chat = chat.and_then(|chat| chat.through(addressee)).map_err(|e| e.renamed(&NAMES))?;
        if warms && let Some(pipeline) = &chat.pipeline {
            let message =
                format!("`generate` must be true for the pipeline `{}`: it has no prompt of its own", pipeline.name);
            return Err(ApiError::unsupported("generate", message));
        }
        let chat = ChatRequest { remembered: store, ..chat };
        echo::complete(&mut echo, &chat.generation.spec.engine.sampling);
        let items = before.into_iter().chain(new).collect();
        let Included { results: shows_results, urls: shows_urls, .. } = included;
        Ok(ResponsesRequest { chat, items, store, thoughts, shows_results, shows_urls, namespaces, warms, echo })
    }
}

/// What would make another request of it, and what changes nothing.
fn refuse(fields: &mut Fields) -> Result<(), ApiError> {
    fields.fixed("background", false, "a response is answered while its client waits")?;
    fields.refuse("conversation", "is not supported; use `previous_response_id`")?;
    fields.refuse("prompt", "is not supported: no prompts are kept here")?;
    fields.any("stream_options");
    // One kind of service is there.
    fields.string("service_tier")?;
    // What does not fit is an error, and never cut.
    fields.choice("truncation", [("disabled", ()), ("auto", ())])?;
    Ok(())
}

/// What a client wants beside the answer.
#[derive(Clone, Copy, Debug, Default)]
struct Included {
    /// Thoughts, as blobs that come back.
    sealed: bool,
    /// The log-probabilities of the answer's text.
    logprobs: bool,
    /// The passages that a search of files found.
    results: bool,
    /// The addresses that a search of the web found.
    urls: bool,
}

/// Reads what `include` asks for.
fn included(fields: &mut Fields) -> Result<Included, ApiError> {
    let mut included = Included::default();
    for name in fields.list("include")?.unwrap_or_default() {
        match name.as_str() {
            Some(SEALED_THOUGHTS) => included.sealed = true,
            Some(LOGPROBS) => included.logprobs = true,
            Some(RESULTS) => included.results = true,
            Some(URLS) => included.urls = true,
            // Results of tools that are not there.
            _ => count_ignored("", "include"),
        }
    }
    Ok(included)
}

/// Reads `reasoning`: how thoughts are given.
fn thoughts(fields: &mut Fields, sealed: bool, chat: &mut Map<String, Json>) -> Result<ThoughtsShown, ApiError> {
    let mut shown = ThoughtsShown { sealed, ..ThoughtsShown::default() };
    let Some(mut reasoning) = fields.fields("reasoning")? else { return Ok(shown) };
    if let Some(effort) = reasoning.string("effort")? {
        chat.insert("reasoning_effort".into(), effort.into());
    }
    let (summary, old) = (reasoning.string("summary")?, reasoning.string("generate_summary")?);
    shown.as_summary = summary.or(old).is_some_and(|kind| kind != "none");
    reasoning.ignore_rest();
    Ok(shown)
}

/// `text`: the format goes to chat, the verbosity nowhere.
fn text(fields: &mut Fields, chat: &mut Map<String, Json>, echo: &mut Map<String, Json>) -> Result<(), ApiError> {
    let Some(mut text) = fields.fields("text")? else { return Ok(()) };
    if let Some(mut format) = text.object("format")? {
        echo.insert("text".into(), json!({"format": written::plain(&Json::Object(format.clone()))}));
        let kind = format.shift_remove("type").unwrap_or_default();
        let chats =
            if kind == "json_schema" { json!({"type": kind, "json_schema": format}) } else { json!({"type": kind}) };
        chat.insert("response_format".into(), chats);
    }
    text.ignore_rest();
    Ok(())
}

/// `tools`, those in namespaces under a name of their own each.
fn tools(
    fields: &mut Fields,
    (chat, echo): (&mut Map<String, Json>, &mut Map<String, Json>),
    web: WebOffer,
) -> Result<HashMap<String, (String, String)>, ApiError> {
    let (mut functions, mut kept, mut namespaces) = (Vec::new(), Vec::new(), HashMap::new());
    for (i, tool) in fields.list("tools")?.unwrap_or_default().into_iter().enumerate() {
        let whole = tool.clone();
        let path = format!("tools[{i}]");
        let mut tool = Fields::nested(path.clone(), tool)?;
        let kind_path = tool.path("type");
        match tool.string("type")?.as_deref() {
            Some("function") => functions.push(function(tool, None)?),
            Some(FILE_SEARCH | MCP) => functions.push(whole.clone()),
            Some(kind) if web != WebOffer::default() && is_web_search(kind) => functions.push(whole.clone()),
            Some("namespace") => namespace(tool, &mut functions, &mut namespaces)?,
            Some(kind) if SERVERS_TOOLS.iter().any(|known| kind.starts_with(known)) => {
                count_ignored("tools", "type");
                continue;
            }
            Some(other) => {
                let message = format!(
                    "`{kind_path}` {other:?} is not supported; there are function, file_search, mcp and namespace"
                );
                return Err(ApiError::unsupported(&kind_path, message));
            }
            None => return Err(missing(&kind_path, "\"function\" or \"namespace\"")),
        }
        kept.push(echo::tool(&whole));
    }
    echo.insert("tools".into(), kept.into());
    chat.insert("tools".into(), functions.into());
    Ok(namespaces)
}

/// The tools of a namespace. The model sees `NAMESPACE__NAME`.
fn namespace(
    mut space: Fields,
    functions: &mut Vec<Json>,
    names: &mut HashMap<String, (String, String)>,
) -> Result<(), ApiError> {
    let (path, list) = (space.path("name"), space.path("tools"));
    let own = space.string("name")?.ok_or_else(|| missing(&path, "a string"))?;
    space.string("description")?;
    for (i, tool) in space.list("tools")?.unwrap_or_default().into_iter().enumerate() {
        let mut tool = Fields::nested(format!("{list}[{i}]"), tool)?;
        let kind_path = tool.path("type");
        if let Some(other) = tool.string("type")?.filter(|kind| kind != "function") {
            let message = format!("`{kind_path}` must be \"function\", got {other:?}");
            return Err(ApiError::unsupported(&kind_path, message));
        }
        let function = function(tool, Some(&own))?;
        if let Some(flat) = function["function"]["name"].as_str() {
            let name = flat[own.len() + SEPARATOR.len()..].to_owned();
            names.insert(flat.to_owned(), (own.clone(), name));
        }
        functions.push(function);
    }
    space.ignore_rest();
    Ok(())
}

fn function(mut tool: Fields, namespace: Option<&str>) -> Result<Json, ApiError> {
    let mut function = tool.same(&["name", "description", "strict", "parameters"]);
    if let (Some(space), Some(name)) = (namespace, function.get("name").and_then(Json::as_str)) {
        let name = shown_name(space, name);
        function.insert("name".into(), name.into());
    }
    tool.ignore_rest();
    Ok(json!({"type": "function", "function": function}))
}

fn tool_choice(choice: Json) -> Result<Json, ApiError> {
    let Json::Object(map) = choice else { return Ok(choice) };
    let mut choice = Fields::nested("tool_choice".into(), map.into())?;
    let path = choice.path("type");
    match choice.string("type")?.as_deref() {
        Some("function") => {
            let name = choice.string("name")?;
            Ok(json!({"type": "function", "function": {"name": name}}))
        }
        Some(FILE_SEARCH) => Ok(json!({"type": FILE_SEARCH})),
        Some(kind) if is_web_search(kind) => Ok(json!({"type": WEB_SEARCH})),
        Some("allowed_tools") => {
            let allowed = choice.same(&["mode", "tools"]);
            Ok(json!({"type": "allowed_tools", "allowed_tools": allowed}))
        }
        other => {
            let got = other.unwrap_or("nothing");
            let message = format!("`{path}` must be \"function\", \"file_search\" or \"allowed_tools\", got {got:?}");
            Err(ApiError::unsupported(&path, message))
        }
    }
}
