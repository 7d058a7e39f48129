//! The functions that a model may call and the server runs itself. A new one is a variant of both enums here, and an
//! arm in the driver that runs it.

use crate::actors::request::output::WebAction;
use crate::citations::NumberedSource;
use crate::hosted::ServerTool;
use crate::limits::{
    FILE_SEARCHES_MAX, STORE_QUERY_BYTES_MAX, TURN_CALLS_MAX, WEB_FETCHES_MAX, WEB_QUERIES_MAX, WEB_QUERY_BYTES_MAX,
};
use crate::text::tools::Tool;
use crate::web::WebPage;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;

/// A function that the server runs itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosted {
    /// Searches the vector stores that the request names.
    FileSearch,
    /// Searches the web for passages.
    WebSearch,
    /// Reads a page of the web.
    WebFetch,
    /// Asks an MCP server of the operator's.
    Mcp {
        /// What the server runs.
        tool: Arc<ServerTool>,
        /// Each of its calls waits for an approval: the operator wants it so, or the request does.
        asks: bool,
    },
}

/// A server that a request names, and what of it the model may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolList {
    /// The server's name in the operator's file.
    pub server: String,
    /// Its tools that the model may call, in the order of their names.
    pub tools: Vec<Arc<ServerTool>>,
    /// Why there are none.
    pub error: Option<String>,
}

/// A call of such a function, whose arguments were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::turn) enum HostedCall {
    /// Searches the stores for passages.
    FileSearch {
        /// What the model wrote; it has a word at least.
        query: String,
    },
    /// Has a tool of an MCP server run.
    Mcp {
        /// What the server runs.
        tool: Arc<ServerTool>,
        /// What the model wrote.
        arguments: Map<String, Json>,
    },
    /// Searches the web or reads a page.
    Web(WebCall),
}

/// A call that reads the web.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::turn) enum WebCall {
    /// Searches for all of these together.
    Search {
        /// What the model wrote; there is one at least, and each has a word.
        queries: Vec<String>,
    },
    /// Reads a page that was named.
    Open {
        /// Address of the page.
        url: String,
        /// What is looked for in it; empty for its beginning.
        query: String,
    },
}

impl Hosted {
    /// The name that the model calls it by.
    pub fn name(&self) -> &str {
        match self {
            Self::FileSearch => "file_search",
            Self::WebSearch => "web_search",
            Self::WebFetch => "web_fetch",
            Self::Mcp { tool, .. } => &tool.shown,
        }
    }

    /// The names of its server and of itself there, for metrics: the operator's file has the one, and accepted the
    /// other.
    pub(in crate::turn) fn labels(&self) -> [&str; 2] {
        match self {
            Self::FileSearch | Self::WebSearch | Self::WebFetch => ["none", self.name()],
            // What a request names is no label.
            Self::Mcp { tool, .. } if tool.server.requested_at().is_some() => [tool.server.label(); 2],
            Self::Mcp { tool, .. } => [tool.server.name(), &tool.name],
        }
    }

    /// Its calls change nothing and send nothing out of the LAN.
    pub(in crate::turn) fn reads_only(&self) -> bool {
        match self {
            // Once something foreign was read the machine refuses queries, and pages are opened by address alone.
            Self::FileSearch | Self::WebSearch | Self::WebFetch => true,
            Self::Mcp { tool, .. } => tool.reads_only(),
        }
    }

    /// Its calls carry words of the model's out of the LAN.
    pub(in crate::turn) fn carries_words_out(&self) -> bool {
        matches!(self, Self::WebSearch)
    }

    /// Its calls wait for an approval whatever has been read.
    pub(in crate::turn) fn asks(&self) -> bool {
        match self {
            Self::FileSearch | Self::WebSearch | Self::WebFetch => false,
            Self::Mcp { asks, .. } => *asks,
        }
    }

    /// The most calls of it in one turn.
    pub(in crate::turn) fn calls_max(&self) -> u32 {
        match self {
            Self::FileSearch => FILE_SEARCHES_MAX,
            Self::Mcp { .. } => TURN_CALLS_MAX,
            Self::WebSearch => WEB_QUERIES_MAX as u32,
            Self::WebFetch => WEB_FETCHES_MAX,
        }
    }

    /// What the model is told of it, as clients declare theirs.
    pub fn declaration(&self) -> Json {
        let (Tool { name, parameters }, description) = (self.tool(), self.description());
        json!({"type": "function",
            "function": {"name": name, "description": description, "parameters": parameters}})
    }

    /// Its name and the schema of its arguments.
    pub fn tool(&self) -> Tool {
        let parameters = match self {
            Self::FileSearch => json!({
                "type": "object",
                "properties": {"query": {"type": "string", "description": "the words to search for"}},
                "required": ["query"],
            }),
            Self::Mcp { tool, .. } => tool.schema.clone(),
            Self::WebSearch => json!({
                "type": "object",
                "properties": {"queries": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "maxItems": WEB_QUERIES_MAX,
                    "description": "the words to search for, in one query or several that put it differently",
                }},
                "required": ["queries"],
            }),
            Self::WebFetch => json!({
                "type": "object",
                "properties": {
                    "url": {"type": "string", "description": "the page's address"},
                    "query": {"type": "string", "description": "the words to look for in it"},
                },
                "required": ["url"],
            }),
        };
        Tool { name: self.name().to_owned(), parameters }
    }

    fn description(&self) -> &str {
        match self {
            Self::FileSearch => "Searches the user's files and returns the passages that fit the query best.",
            Self::Mcp { tool, .. } => &tool.description,
            Self::WebSearch => {
                "Searches the web and returns the best passages. It can be called once, with up to four queries."
            }
            Self::WebFetch => {
                "Reads a page whose address the user wrote or web_search returned, and returns passages of it."
            }
        }
    }

    /// Reads the arguments of a call, or says in words for the model what is wrong with them.
    pub(in crate::turn) fn read(&self, arguments: &str) -> Result<HostedCall, String> {
        match self {
            Self::FileSearch => query(arguments).map(|query| HostedCall::FileSearch { query }),
            Self::Mcp { tool, .. } => {
                let object = serde_json::from_str(arguments).map_err(|_| {
                    format!("{} takes an object of arguments, got {:?}", tool.shown, shortened(arguments))
                });
                object.map(|arguments| HostedCall::Mcp { tool: tool.clone(), arguments })
            }
            Self::WebSearch => web_search(arguments).map(HostedCall::Web),
            Self::WebFetch => web_fetch(arguments).map(HostedCall::Web),
        }
    }
}

impl WebCall {
    /// What the client is told of it as it begins.
    pub(in crate::turn) fn begun(&self) -> WebAction {
        match self {
            Self::Search { queries } => {
                WebAction::Search { queries: queries.clone(), pages: Vec::new(), failed: false }
            }
            Self::Open { url, .. } => WebAction::Open { url: url.clone(), read: None, failed: false },
        }
    }

    /// What the client is told of it at its end: the pages that were found, and the passages that the model read.
    pub(in crate::turn) fn ended(&self, pages: Vec<WebPage>, passages: &[NumberedSource], failed: bool) -> WebAction {
        match self {
            Self::Search { queries } => WebAction::Search { queries: queries.clone(), pages, failed },
            Self::Open { url, .. } => {
                let read = pages.into_iter().next().map(|page| (page.title, passages.to_vec()));
                WebAction::Open { url: url.clone(), read, failed }
            }
        }
    }
}

fn query(arguments: &str) -> Result<String, String> {
    let wanted = "file_search takes one argument, `query`, which is a string";
    let Ok(Json::Object(fields)) = serde_json::from_str(arguments) else {
        return Err(format!("{wanted}, got {:?}", shortened(arguments)));
    };
    if let Some(other) = fields.keys().find(|name| *name != "query") {
        return Err(format!("{wanted}, got {:?}", shortened(other)));
    }
    match fields.get("query") {
        Some(Json::String(query)) if query.trim().is_empty() => Err("`query` of file_search is empty".into()),
        Some(Json::String(query)) if query.len() > STORE_QUERY_BYTES_MAX => {
            let got = query.len();
            Err(format!("`query` of file_search may have {STORE_QUERY_BYTES_MAX} bytes, got {got}"))
        }
        Some(Json::String(query)) => Ok(query.clone()),
        _ => Err(format!("{wanted}, got {:?}", shortened(arguments))),
    }
}

fn web_search(arguments: &str) -> Result<WebCall, String> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        queries: Vec<String>,
    }
    let wanted = format!("web_search takes one argument, `queries`, which is a list of 1 to {WEB_QUERIES_MAX} strings");
    let Ok(Arguments { queries }) = serde_json::from_str(arguments) else {
        return Err(format!("{wanted}, got {:?}", shortened(arguments)));
    };
    if queries.is_empty() || queries.len() > WEB_QUERIES_MAX {
        return Err(format!("{wanted}, got {}", queries.len()));
    }
    match queries.iter().find(|query| query.trim().is_empty() || query.len() > WEB_QUERY_BYTES_MAX) {
        Some(wrong) => {
            let got = wrong.len();
            Err(format!("a query of web_search has words, and at most {WEB_QUERY_BYTES_MAX} bytes, got {got}"))
        }
        None => Ok(WebCall::Search { queries }),
    }
}

fn web_fetch(arguments: &str) -> Result<WebCall, String> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        url: String,
        #[serde(default)]
        query: String,
    }
    let wanted = "web_fetch takes `url` and, if you like, `query`, which are strings";
    match serde_json::from_str(arguments) {
        Ok(Arguments { url, query }) if query.len() <= WEB_QUERY_BYTES_MAX => Ok(WebCall::Open { url, query }),
        Ok(Arguments { query, .. }) => {
            Err(format!("`query` of web_fetch may have {WEB_QUERY_BYTES_MAX} bytes, got {}", query.len()))
        }
        Err(_) => Err(format!("{wanted}, got {:?}", shortened(arguments))),
    }
}

/// As much of a text as a message shows.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_and_wrong_arguments_are_told_in_words() {
        let read = |arguments: &str| Hosted::FileSearch.read(arguments);
        assert_eq!(read(r#"{"query":" a b"}"#), Ok(HostedCall::FileSearch { query: " a b".into() }));
        for (arguments, said) in [
            ("{}", "which is a string, got \"{}\""),
            ("[1]", "which is a string"),
            ("{\"query\":", "which is a string"),
            (r#"{"query":7}"#, "which is a string"),
            (r#"{"query":" \n"}"#, "is empty"),
            (r#"{"query":"a","store":"b"}"#, "got \"store\""),
            (&format!(r#"{{"query":"{}"}}"#, "x".repeat(STORE_QUERY_BYTES_MAX + 1)), "16384 bytes, got 16385"),
        ] {
            assert!(read(arguments).is_err_and(|error| error.contains(said)), "{arguments}");
        }
    }

    #[test]
    fn what_goes_to_the_web_is_read_strictly() {
        let search = |arguments: &str| Hosted::WebSearch.read(arguments);
        let queries = vec!["a".to_owned(), "b".into()];
        assert_eq!(search(r#"{"queries":["a","b"]}"#), Ok(HostedCall::Web(WebCall::Search { queries })));
        for wrong in [
            "{}",
            r#"{"queries":[]}"#,
            r#"{"queries":["a","a","a","a","a"]}"#,
            r#"{"queries":[" "]}"#,
            r#"{"queries":"a"}"#,
            r#"{"queries":["a"],"site":"b"}"#,
            r#"{"queries":[7]}"#,
        ] {
            assert!(search(wrong).is_err(), "{wrong}");
        }
        let fetch = |arguments: &str| Hosted::WebFetch.read(arguments);
        let open = WebCall::Open { url: "http://a".into(), query: String::new() };
        assert_eq!(fetch(r#"{"url":"http://a"}"#), Ok(HostedCall::Web(open)));
        for wrong in ["{}", r#"{"url":7}"#, r#"{"url":"a","method":"POST"}"#] {
            assert!(fetch(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_model_is_told_of_a_function_as_of_a_client_s() {
        let told = Hosted::FileSearch.declaration();
        assert_eq!(told["function"]["name"], "file_search");
        assert_eq!(told["function"]["parameters"], Hosted::FileSearch.tool().parameters);
    }
}
