//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's words for a conversation, made into a chat request.

use super::turns;
use crate::http::body::documents::FILE_SEARCH;
use crate::http::body::fields::{Fields, missing, wrong_type};
use crate::http::body::model::{ModelLimits, OURS, take_model};
use crate::http::body::tools::MCP;
use crate::http::body::tools::web::is_offered_of_anthropic;
use crate::http::body::turns::go_on;
use crate::http::wire::error::ApiError;
use crate::metrics::count_ignored;
use crate::turn::options::ChatRequest;
use crate::web::WebOffer;
use serde_json::{Map, Value as Json, json};

/// A request for a message, checked.
#[derive(Clone, Debug)]
pub struct MessagesRequest {
    /// What it asks for.
    pub chat: ChatRequest,
    /// Thoughts are shown; otherwise only that there were some.
    pub shows_thoughts: bool,
}

/// Fields that chat calls the same.
const SAME: [&str; 5] = ["max_tokens", "temperature", "top_p", "stream", "metadata"];
/// What the fields of chat are called here, for errors.
const NAMES: [(&str, &str); 8] = [
    ("continue_final_message", "messages"),
    ("function.parameters", "input_schema"),
    ("function.", ""),
    ("`stop`", "`stop_sequences`"),
    ("`stop[", "`stop_sequences["),
    ("reasoning_effort", "output_config.effort"),
    ("response_format", "output_config.format"),
    ("tool_choice\" \"required", "tool_choice\" \"any"),
];
/// Tools that other services run themselves. The model is not told of them, as if there were none.
const SERVERS_TOOLS: [&str; 5] = ["web_search_", "web_fetch_", "code_execution_", "tool_search_", "advisor_"];

impl MessagesRequest {
    /// Reads and checks a body. What nobody knows is taken without effect: programs send what other models need.
    pub fn parse(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let addressee = take_model(&mut fields, limits)?;
        let system = fields.any("system");
        let list = fields.list("messages")?.ok_or_else(|| missing("messages", "an array of messages"))?;
        let (messages, sources) = turns::checked(system, list)?;
        let mut chat = fields.same(&SAME);
        go_on(&messages, &mut chat);
        chat.extend(fields.same(&OURS));
        let shows_thoughts = thinking(&mut fields, limits, &mut chat)?;
        if let Some(stop) = fields.list("stop_sequences")? {
            chat.insert("stop".into(), stop.into());
        }
        if let Some(tools) = fields.list("tools")? {
            chat.insert("tools".into(), tools_in_chat_words(tools, limits.web)?.into());
        }
        if let Some(mut choice) = fields.fields("tool_choice")? {
            let once = choice.bool("disable_parallel_tool_use")?.unwrap_or(false);
            chat.insert("parallel_tool_calls".into(), (!once).into());
            chat.insert("tool_choice".into(), tool_choice(choice)?);
        }
        // Which kind of service is wanted: there is one.
        fields.string("service_tier")?;
        fields.ignore_rest();
        let chat = ChatRequest::about(messages, Fields::in_chat_words(chat), limits);
        let chat = chat.and_then(|chat| chat.through(addressee)).map_err(|e| e.renamed(&NAMES))?;
        let chat = ChatRequest { sources, ..chat };
        Ok(Self { chat, shows_thoughts })
    }
}

/// What a request says about thinking and effort. Without a word about it the model answers at once, as programs for
/// this API expect: the first block that they read is the answer. An effort says how long a model that thinks does so.
fn thinking(fields: &mut Fields, limits: &ModelLimits, chat: &mut Map<String, Json>) -> Result<bool, ApiError> {
    let effort = output_config(fields, chat)?;
    let Some(mut thinking) = fields.fields("thinking")? else {
        let told = chat.get("chat_template_kwargs").is_some_and(|options| options.get("enable_thinking").is_some());
        if limits.thinking.is_some() && !told {
            chat.insert("reasoning_effort".into(), "none".into());
        }
        return Ok(true);
    };
    let path = thinking.path("type");
    let kind = thinking.string("type")?.ok_or_else(|| missing(&path, "\"enabled\", \"disabled\" or \"adaptive\""))?;
    let (budget, path) = (thinking.any("budget_tokens"), thinking.path("display"));
    let shows = match thinking.string("display")?.as_deref() {
        None | Some("summarized") => true,
        Some("omitted") => false,
        Some(other) => {
            let message = format!("`{path}` must be \"summarized\" or \"omitted\", got {other:?}");
            return Err(ApiError::invalid(&path, message));
        }
    };
    thinking.ignore_rest();
    if kind != "disabled" && limits.thinking.is_none() {
        // A model that does not think needs no budget for it.
        count_ignored("thinking", "type");
    } else if let Some(effort) = effort.filter(|_| kind == "adaptive") {
        chat.insert("reasoning_effort".into(), effort.into());
    } else if let Some(budget) = budget {
        chat.insert("thinking".into(), json!({"type": kind, "budget_tokens": budget}));
    } else {
        chat.insert("thinking".into(), json!({"type": kind}));
    }
    Ok(shows)
}

/// The effort, if one is given; a format goes to chat.
fn output_config(fields: &mut Fields, chat: &mut Map<String, Json>) -> Result<Option<String>, ApiError> {
    let Some(mut config) = fields.fields("output_config")? else { return Ok(None) };
    let effort = config.string("effort")?;
    let path = config.path("format");
    if let Some(mut format) = config.fields("format")? {
        let kind = format.string("type")?.ok_or_else(|| missing(&path, "an object with `type` and `schema`"))?;
        let schema = json!({"name": "output", "schema": format.any("schema"), "strict": true});
        chat.insert("response_format".into(), json!({"type": kind, "json_schema": schema}));
        format.ignore_rest();
    }
    config.ignore_rest();
    Ok(effort)
}

fn tools_in_chat_words(tools: Vec<Json>, offer: WebOffer) -> Result<Vec<Json>, ApiError> {
    let all = tools.into_iter().enumerate().map(|(i, tool)| tool_in_chat_words(format!("tools[{i}]"), tool, offer));
    all.filter_map(Result::transpose).collect()
}

/// `None` for a tool that is not for the model that runs here.
fn tool_in_chat_words(path: String, tool: Json, offer: WebOffer) -> Result<Option<Json>, ApiError> {
    let of_web = tool["type"].as_str().is_some_and(|kind| is_offered_of_anthropic(kind, offer));
    if of_web || tool["type"] == FILE_SEARCH || tool["type"] == MCP {
        return Ok(Some(tool));
    }
    let mut fields = Fields::nested(path, tool)?;
    let path = fields.path("type");
    match fields.string("type")?.as_deref() {
        None | Some("custom") => {}
        Some(kind) if SERVERS_TOOLS.iter().any(|known| kind.starts_with(known)) => {
            count_ignored("tools", "type");
            return Ok(None);
        }
        Some(other) => {
            let message = format!("`{path}` {other:?} is not supported; describe the tool by an `input_schema`");
            return Err(ApiError::unsupported(&path, message));
        }
    }
    let mut function = fields.same(&["name", "description", "strict"]);
    let path = fields.path("input_schema");
    let schema = fields.any("input_schema").ok_or_else(|| missing(&path, "a JSON schema"))?;
    function.insert("parameters".into(), schema);
    fields.ignore_rest();
    Ok(Some(json!({"type": "function", "function": function})))
}

fn tool_choice(mut choice: Fields) -> Result<Json, ApiError> {
    let path = choice.path("type");
    let kind = choice.string("type")?;
    let name = choice.string("name")?;
    choice.ignore_rest();
    match kind.as_deref() {
        Some("auto") => Ok("auto".into()),
        Some("none") => Ok("none".into()),
        Some("any") => Ok("required".into()),
        Some("tool") => Ok(json!({"type": "function", "function": {"name": name}})),
        other => {
            let wanted = "\"auto\", \"any\", \"tool\" or \"none\"";
            Err(wrong_type(&path, wanted, &other.map_or(Json::Null, Json::from)))
        }
    }
}
