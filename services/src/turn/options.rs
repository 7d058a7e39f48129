//! The options of a request that its turn acts on, checked by whoever read them.

use crate::actors::request::spec::RequestSpec;
use crate::citations::NumberedSource;
use crate::documents::AttributeFilter;
use crate::engram::Overrides;
use crate::hosted::RequestedServer;
use crate::pipelines::NamedPipeline;
use crate::text::Conversation;
use crate::text::grammar::{AnswerForm, Calls};
use crate::text::thinking::Reasoning;
use crate::text::tools::Tools;
use crate::turn::Hosted;
use crate::web::WebHosts;
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// A chat request, checked; only the template may still object to the conversation.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// Options of the generation.
    pub generation: Generation,
    /// The conversation to render. Without tools when `tool_choice` is `none`, so that the model does not know of any.
    pub conversation: Conversation,
    /// The tools whose calls are to be found in the output, if any.
    pub tools: Option<Tools>,
    /// Rules that its calls have to keep to, if there are some.
    pub calls: Option<Calls>,
    /// Options of its thinking, if it has some.
    pub reasoning: Option<Reasoning>,
    /// Texts in the conversation that the answer may cite, under their numbers.
    pub sources: Vec<NumberedSource>,
    /// Stores of files that are searched, before the answer or within it.
    pub file_search: Option<FileSearchRequest>,
    /// The pipeline that answers in the place of one generation.
    pub pipeline: Option<Arc<NamedPipeline>>,
    /// The web, which is searched and read within the answer.
    pub web: Option<WebRequest>,
    /// Functions that the server runs within the answer.
    pub hosted: Vec<Hosted>,
    /// MCP servers whose tools become such functions before the turn begins.
    pub mcp: Vec<McpRequest>,
    /// Whether its answer may be remembered, for somebody's feedback: the request does not say `store: false`.
    pub remembered: bool,
}

/// An MCP server whose tools the model may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpRequest {
    /// Path of the tool that names it, for errors.
    pub field: String,
    /// The server's name in the operator's file.
    pub server: String,
    /// Names of its tools that may be called; all, if none are given.
    pub allowed: Option<Vec<String>>,
    /// Only those that the operator agrees to be read-only.
    pub read_only: bool,
    /// Calls that wait for an approval beside those that the operator wants to.
    pub asks: AskedCalls,
    /// Calls of a server that the request itself names, of which it says that they need not wait.
    pub waived: AskedCalls,
    /// Where the server is, if the request says so and no file.
    pub requested: Option<RequestedServer>,
}

/// Calls of a server of which a request says that they wait for an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskedCalls {
    /// None beyond those that the operator wants to.
    None,
    /// All of its calls.
    All,
    /// Those of these tools.
    Of(Vec<String>),
}

impl AskedCalls {
    /// Whether calls of a tool are among them.
    pub fn have(&self, tool: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Of(names) => names.iter().any(|name| name == tool),
        }
    }
}

/// What a request says of the web.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebRequest {
    /// The tool's place in the request, for errors.
    pub field: String,
    /// Passages of one search or page, at most.
    pub k: usize,
    /// Queries that are searched for.
    pub search: WebBounds,
    /// Pages that are opened by their address.
    pub fetch: WebBounds,
}

/// How often an answer may do something on the web, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebBounds {
    /// The most; 0 if the request does not ask for it.
    pub most: usize,
    /// The hosts whose pages it wants.
    pub hosts: WebHosts,
}

impl WebRequest {
    /// With what a second tool asks for; none if this one asks for it too.
    pub fn and(self, other: Self) -> Option<Self> {
        let [one, two] = [&self, &other].map(|web| [web.search.most > 0, web.fetch.most > 0]);
        match (one, two) {
            ([true, false], [false, true]) => Some(Self { fetch: other.fetch, ..self }),
            ([false, true], [true, false]) => Some(Self { search: other.search, ..self }),
            _ => None,
        }
    }
}

/// A search of stores for an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSearchRequest {
    /// Path of the tool that asks for it, for errors.
    pub field: String,
    /// Ids of the stores, at least one.
    pub stores: Vec<String>,
    /// Whether the best passages are read, or all there is.
    pub reading: StoreReading,
    /// The most passages, at least 1.
    pub k: u32,
    /// Which files may be found, if not all.
    pub filter: Option<AttributeFilter>,
    /// Passages of a lower score are left out; the best passage has 1.
    pub score_min: f32,
    /// Between quotation marks the answer may say nothing but words of the passages.
    pub verbatim: bool,
    /// The answer is told to say what is missing where the passages are less likely than this to suffice; 0 asks
    /// nothing.
    pub sufficiency_min: f64,
    /// Who writes the queries.
    pub queries: QueryWriter,
}

impl FileSearchRequest {
    /// The tool and its field that want a turn of several generations, if they do.
    pub fn rounds(&self) -> Option<(&str, &str)> {
        (self.queries == QueryWriter::Model).then_some((self.field.as_str(), "queries"))
    }
}

/// Who writes the queries of a search of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryWriter {
    /// The user: the last text of the user is the only query, searched for before the answer.
    User,
    /// The model, by calls of a function that the server runs between two generations.
    Model,
}

/// How much of its stores a search of files reads into the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreReading {
    /// The passages that fit the question best.
    Passages,
    /// All texts, or an error if the context has no room for them.
    Whole,
}

/// How to generate, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// All that is asked for, but for what depends on the prompt: see [`RequestSpec::complete`]. `end_ids` are the
    /// model's unless `ignore_eos`, and `stop_token_ids`; `sampling` has the request's values over the model's defaults
    /// over neutral ones.
    pub spec: RequestSpec,
    /// The caller's seed. Without one the server draws it and reports it.
    pub seed: Option<u64>,
    /// Options of Engram's tables.
    pub engram: EngramRequest,
    /// Whether its prompt is looked up and kept.
    pub cache: CacheRequest,
    /// The form that the answer has to have.
    pub form: Option<AskedForm>,
    /// A text that the answer may be, to compute it sooner: it would be the same without.
    pub prediction: Option<String>,
    /// How strongly its adapter acts, if it says so and has one.
    pub adapter_scale: Option<f32>,
}

/// Engram's options in a request; the rest comes from the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngramRequest {
    /// Settings that were given. A strength without a mode means its mode.
    pub settings: Overrides,
    /// Texts; none is empty.
    pub documents: Vec<DocumentRequest>,
    /// The reply is to say where each changed token comes from.
    pub sources: bool,
    /// Where examples come from, in a chat.
    pub semantic: Option<SemanticRequest>,
}

/// A text that a request brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentRequest {
    /// Its name in the reply; without one it has its number.
    pub id: Option<String>,
    /// Its subject, which counts as said in each of its sentences.
    pub title: Option<String>,
    /// Its text, which is not empty.
    pub text: String,
}

/// Where a chat's examples come from.
#[derive(Clone, Debug, PartialEq)]
pub struct SemanticRequest {
    /// A collection of the caller's own.
    pub collection: String,
    /// The most examples, at least 1.
    pub k: u32,
}

/// Whether a request goes on from what others left, and leaves something.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheRequest {
    /// It does both, or neither.
    pub on: bool,
    /// Only with those of the same caller that say the same.
    pub salt: Option<String>,
}

/// A form that was asked for, and the field that asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedForm {
    /// Its path, for errors.
    pub field: &'static str,
    /// The form that the answer is to have.
    pub form: AnswerForm,
}

/// A prompt that no template is laid around.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// Text, in which added tokens are written out. Never empty.
    Text(String),
    /// Ids of the vocabulary. Never empty.
    Tokens(Vec<TokenId>),
    /// Texts and ids in a row, none of them such a row itself, with an id at least.
    Mixed(Vec<Prompt>),
}

impl Prompt {
    /// All texts in it.
    pub fn texts(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => vec![text],
            Self::Tokens(_) => Vec::new(),
            Self::Mixed(parts) => parts.iter().flat_map(Self::texts).collect(),
        }
    }

    /// Its ids, where texts become what `encode` makes of them.
    pub fn into_ids(self, encode: &impl Fn(&str) -> Vec<TokenId>) -> Vec<TokenId> {
        match self {
            Self::Text(text) => encode(&text),
            Self::Tokens(ids) => ids,
            Self::Mixed(parts) => parts.into_iter().flat_map(|part| part.into_ids(encode)).collect(),
        }
    }
}
