//! `tools`, `tool_choice` and `parallel_tool_calls`.

mod mcp;
pub(in crate::http) mod web;

pub(in crate::http) use mcp::MCP;
pub(in crate::http::body) use mcp::check_approvals;

use self::web::{WEB_SEARCH, functions, is_web, is_web_search, the_web};
use crate::http::body::documents::{FILE_SEARCH, is_file_search, the_file_search};
use crate::http::body::fields::{Fields, at_most, missing, wrong_type};
use crate::http::wire::error::ApiError;
use crate::limits;
use crate::text::grammar::Calls;
use crate::text::tools::{Tool, Tools};
use crate::turn::Hosted;
use crate::turn::options::{FileSearchRequest, McpRequest, QueryWriter, WebRequest};
use crate::web::WebOffer;
use mcp::{is_mcp, servers};
use serde_json::Value as Json;

/// Tools that the model may call.
pub(in crate::http) struct TakenTools {
    /// As the caller wrote them, for the template.
    pub(in crate::http) declared: Vec<Json>,
    /// For the parser of the output.
    pub(in crate::http) tools: Tools,
    /// What calls have to keep to, if anything.
    pub(in crate::http) calls: Option<Calls>,
    /// Those that the service runs itself.
    pub(in crate::http) hosted: Vec<Hosted>,
    /// What the request says of the web.
    pub(in crate::http) web: Option<WebRequest>,
}

/// Which tools may or must be called.
enum CallChoice {
    None,
    /// By these names, or by any.
    Tools {
        names: Option<Vec<String>>,
        must: bool,
        /// One call, whatever `parallel_tool_calls` says.
        once: bool,
    },
}

/// What a request says of tools.
#[derive(Default)]
pub(in crate::http) struct AskedTools {
    /// Functions, unless there are none or the model is to call none.
    pub(in crate::http) functions: Option<TakenTools>,
    /// The search that the service makes itself.
    pub(in crate::http) file_search: Option<FileSearchRequest>,
    /// Servers whose tools the service runs itself.
    pub(in crate::http) mcp: Vec<McpRequest>,
}

/// The tools of a request.
pub(in crate::http) fn take(fields: &mut Fields, offer: WebOffer) -> Result<AskedTools, ApiError> {
    let several = fields.bool("parallel_tool_calls")?.unwrap_or(true);
    let all = fields.list("tools")?.unwrap_or_default();
    at_most("tools", all.len(), limits::TOOLS_MAX)?;
    let (asked, all): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(_, tool)| is_mcp(tool));
    let mut mcp = servers(asked)?;
    let (searches, declared): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, tool)| is_file_search(tool));
    let search = the_file_search(searches)?;
    let of_web = |tool: &Json| tool["type"].as_str().is_some_and(is_web);
    let (webs, declared): (Vec<_>, Vec<_>) = declared.into_iter().partition(|(_, tool)| of_web(tool));
    let web = the_web(fields, webs, offer)?;
    let read: Result<Vec<(Tool, bool)>, _> =
        declared.iter().map(|(i, t)| tool(format!("tools[{i}]"), t.clone())).collect();
    let (mut tools, strict): (Vec<Tool>, Vec<bool>) = read?.into_iter().unzip();
    let mut declared: Vec<Json> = declared.into_iter().map(|(_, tool)| tool).collect();
    for (i, tool) in tools.iter().enumerate() {
        if tools[..i].iter().any(|earlier| earlier.name == tool.name) {
            let path = format!("tools[{i}].function.name");
            return Err(ApiError::invalid(&path, format!("`{path}` is {:?}, which an earlier tool has", tool.name)));
        }
    }
    let mut hosted = Vec::new();
    // Behind the client's own, so that these keep their places.
    if search.as_ref().is_some_and(|search| search.queries == QueryWriter::Model) {
        hosted.push(Hosted::FileSearch);
    }
    hosted.extend(web.iter().flat_map(|web| functions(offer, web)));
    hosted.iter().try_for_each(|hosted| host(hosted, &mut tools, &mut declared))?;
    let CallChoice::Tools { names, must, once } = choice(fields, &tools, search.is_some(), !mcp.is_empty())? else {
        return Ok(AskedTools::default());
    };
    if names.is_some() {
        // None of their tools is among these.
        mcp.clear();
    }
    if tools.is_empty() && (!must || mcp.is_empty()) {
        return Ok(AskedTools { functions: None, file_search: search, mcp });
    }
    let bound = must || names.is_some() || strict.contains(&true);
    let callable: Vec<Tool> =
        tools.into_iter().filter(|tool| names.as_ref().is_none_or(|names| names.contains(&tool.name))).collect();
    let calls = bound.then(|| Calls { tools: callable.clone(), must, several: several && !once });
    hosted.retain(|hosted| callable.iter().any(|tool| tool.name == hosted.name()));
    let functions = Some(TakenTools { declared, tools: Tools::new(callable), calls, hosted, web });
    Ok(AskedTools { functions, file_search: search, mcp })
}

/// Adds a function that the service runs itself.
fn host(hosted: &Hosted, tools: &mut Vec<Tool>, declared: &mut Vec<Json>) -> Result<(), ApiError> {
    let name = hosted.name();
    if tools.iter().any(|tool| tool.name == name) {
        let message = format!("`tools` has a function {name:?}, which is the name of the one that the service runs");
        return Err(ApiError::invalid("tools", message));
    }
    tools.push(hosted.tool());
    declared.push(hosted.declaration());
    Ok(())
}

/// A tool, and whether its calls have to keep to its schema.
fn tool(path: String, value: Json) -> Result<(Tool, bool), ApiError> {
    let mut fields = Fields::nested(path, value)?;
    let path = fields.path("type");
    match fields.string("type")?.as_deref() {
        Some("function") => {}
        Some(other) => {
            return Err(ApiError::unsupported(&path, format!("`{path}` must be \"function\", got {other:?}")));
        }
        None => return Err(missing(&path, "\"function\"")),
    }
    let path = fields.path("function");
    let mut function = fields.fields("function")?.ok_or_else(|| missing(&path, "an object"))?;
    fields.ignore_rest();
    let name = name(&mut function)?;
    function.string("description")?;
    let path = function.path("parameters");
    let parameters = function.any("parameters").unwrap_or_else(|| Json::Object(Default::default()));
    if !parameters.is_object() {
        return Err(wrong_type(&path, "a JSON schema, which is an object", &parameters));
    }
    let strict = function.bool("strict")?.unwrap_or(false);
    function.ignore_rest();
    Ok((Tool { name, parameters }, strict))
}

/// A name that the call format can carry.
fn name(function: &mut Fields) -> Result<String, ApiError> {
    let path = function.path("name");
    let name = function.string("name")?.ok_or_else(|| missing(&path, "a string"))?;
    let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if fits && (1..=limits::TOOL_NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(name);
    }
    let wanted = format!("1 to {} letters, digits, `_`, `-` or `.`", limits::TOOL_NAME_BYTES_MAX);
    Err(ApiError::invalid(
        &path,
        format!("`{path}` must be {wanted}, got {:?}", name.chars().take(80).collect::<String>()),
    ))
}

/// Which calls `tool_choice` asks for. A search that is made before the answer in any case is no call of the model's.
fn choice(fields: &mut Fields, tools: &[Tool], searches: bool, servers: bool) -> Result<CallChoice, ApiError> {
    let any = |must| CallChoice::Tools { names: None, must, once: false };
    let wanted = "\"auto\", \"none\", \"required\", a function or `allowed_tools`";
    let chosen = match fields.any("tool_choice") {
        None => any(false),
        Some(Json::String(choice)) => match choice.as_str() {
            "auto" => any(false),
            "none" => CallChoice::None,
            "required" => any(true),
            other => {
                return Err(ApiError::invalid("tool_choice", format!("`tool_choice` must be {wanted}, got {other:?}")));
            }
        },
        Some(object @ Json::Object(_)) => {
            object_choice(Fields::nested("tool_choice".into(), object)?, tools, searches)?
        }
        Some(other) => return Err(wrong_type("tool_choice", wanted, &other)),
    };
    if tools.is_empty() && !servers && matches!(chosen, CallChoice::Tools { must: true, .. }) {
        if searches {
            return Ok(any(false));
        }
        return Err(ApiError::invalid("tool_choice", "`tool_choice` asks for a call, but there are no `tools`"));
    }
    Ok(chosen)
}

/// A named tool, or those that are allowed.
fn object_choice(mut choice: Fields, tools: &[Tool], searches: bool) -> Result<CallChoice, ApiError> {
    let path = choice.path("type");
    match choice.string("type")?.as_deref() {
        Some("function") => {
            let names = Some(vec![named(choice, tools)?]);
            Ok(CallChoice::Tools { names, must: true, once: true })
        }
        // The service's own function, as OpenAI's clients choose it.
        Some(FILE_SEARCH) if tools.iter().any(|tool| tool.name == FILE_SEARCH) => {
            choice.finish()?;
            Ok(CallChoice::Tools { names: Some(vec![FILE_SEARCH.to_owned()]), must: true, once: true })
        }
        Some(kind) if is_web_search(kind) && tools.iter().any(|tool| tool.name == WEB_SEARCH) => {
            choice.finish()?;
            Ok(CallChoice::Tools { names: Some(vec![WEB_SEARCH.to_owned()]), must: true, once: true })
        }
        Some(FILE_SEARCH) if searches => {
            choice.finish()?;
            Ok(CallChoice::Tools { names: None, must: false, once: false })
        }
        Some("allowed_tools") => {
            let path = choice.path("allowed_tools");
            let mut allowed = choice.fields("allowed_tools")?.ok_or_else(|| missing(&path, "an object"))?;
            choice.finish()?;
            let must = allowed.choice("mode", [("auto", false), ("required", true)])?.unwrap_or(false);
            let path = allowed.path("tools");
            let list = allowed.list("tools")?.ok_or_else(|| missing(&path, "an array of tools"))?;
            allowed.finish()?;
            at_most(&path, list.len(), limits::TOOLS_MAX)?;
            if list.is_empty() {
                return Err(ApiError::invalid(&path, format!("`{path}` must not be empty")));
            }
            let one = |(i, tool)| named(Fields::nested(format!("{path}[{i}]"), tool)?, tools);
            let names: Result<Vec<_>, _> = list.into_iter().enumerate().map(one).collect();
            Ok(CallChoice::Tools { names: Some(names?), must, once: false })
        }
        Some(other) => {
            Err(ApiError::invalid(&path, format!("`{path}` must be \"function\" or \"allowed_tools\", got {other:?}")))
        }
        None => Err(missing(&path, "\"function\" or \"allowed_tools\"")),
    }
}

/// The name of a declared tool, in `function` as everywhere, or beside `type`.
fn named(mut chosen: Fields, tools: &[Tool]) -> Result<String, ApiError> {
    chosen.string("type")?;
    let mut function = match chosen.fields("function")? {
        Some(function) => {
            chosen.finish()?;
            function
        }
        None => chosen,
    };
    let path = function.path("name");
    let name = function.string("name")?.ok_or_else(|| missing(&path, "the name of a tool"))?;
    function.finish()?;
    if tools.iter().any(|tool| tool.name == name) {
        return Ok(name);
    }
    let shown: String = name.chars().take(limits::TOOL_NAME_BYTES_MAX).collect();
    Err(ApiError::invalid(&path, format!("`{path}` is {shown:?}, which no tool of the request has")))
}
