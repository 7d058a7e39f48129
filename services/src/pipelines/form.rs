//! Steps of a pipeline that were checked, as its file has them.

use super::template::Template;
use super::tool::ToolUse;
use crate::text::grammar::AnswerForm;
use regex::Regex;
use serde_json::Value as Json;
use std::sync::Arc;
use std::time::Duration;

/// What all steps of a pipeline may take together; `None` for no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipelineBudget {
    /// Tokens that are generated.
    pub tokens: Option<u32>,
    /// Time from its beginning to its end.
    pub time: Option<Duration>,
}

/// A step and its name.
#[derive(Clone, Debug)]
pub struct PipelineStep {
    /// The name that the file gives it, or its kind.
    pub name: Arc<str>,
    /// What is done in it.
    pub kind: StepKind,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum StepKind {
    /// Chooses between two rows of steps.
    When {
        /// The question about the conversation.
        test: Test,
        /// Steps where it holds.
        then: Vec<PipelineStep>,
        /// Steps where it does not.
        otherwise: Vec<PipelineStep>,
    },
    /// Searches a store or the web for passages, which later generations read.
    Retrieve(RetrieveStep),
    /// Asks whether the passages suffice; where that is less likely than this, generations are told to say so.
    Enough(f64),
    /// Runs a tool of an MCP server, whose result later steps read.
    Call(Arc<CallStep>),
    /// Has the model write.
    Generate(Arc<GenerateStep>),
    /// Has the model write several texts at once.
    Parallel(Vec<Arc<GenerateStep>>),
    /// Looks at what was generated last.
    Check(Arc<CheckStep>),
}

/// A question about a conversation.
#[derive(Clone, Debug)]
pub enum Test {
    /// Whether the last text of the user has a place that fits.
    Regex(Regex),
    /// Whether the last text of the user, or the title of a document that came with it, names a file with one of
    /// these endings.
    FileType(Vec<String>),
    /// Whether the model holds a statement about the conversation for at least so likely.
    Decision {
        /// The statement that may hold.
        statement: String,
        /// The least probability of it.
        min: f64,
    },
}

/// A search for passages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrieveStep {
    /// The place that is searched.
    pub from: RetrieveFrom,
    /// The most passages of it.
    pub k: u32,
    /// Passages that are found by the search, of which the model ranks the best to the front; `None` takes the
    /// search's order.
    pub rerank: Option<u32>,
}

/// The place that a search for passages goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetrieveFrom {
    /// A store, by id or by name among those that the caller may read.
    Store(String),
    /// The web: the user's last text is the query.
    Web,
}

/// A tool that is run.
#[derive(Clone, Debug, PartialEq)]
pub struct CallStep {
    /// The tool, and its arguments.
    pub tool: ToolUse,
    /// The text in the place of the result where the call fails; without it, the reason.
    pub otherwise: Option<Template>,
}

/// A generation of the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateStep {
    /// The name by which later steps read its text.
    pub name: Arc<str>,
    /// What stands before the client's system message.
    pub system: Option<Template>,
    /// What stands behind the user's last text.
    pub suffix: Option<Template>,
    /// Whether it thinks; `None` as the request says.
    pub thinking: Option<bool>,
    /// The temperature, if not the request's.
    pub temperature: Option<f32>,
    /// The most tokens of it.
    pub tokens: Option<u32>,
    /// The form of the text.
    pub form: Option<AnswerForm>,
    /// Choices of which the most certain one is taken.
    pub best_of: u32,
}

/// A look at the text that was generated last.
#[derive(Clone, Debug)]
pub struct CheckStep {
    /// What has to hold.
    pub rule: CheckRule,
    /// Whether a text that fails is generated once more, with the failure's words.
    pub retry: bool,
    /// The operator's words about a failure, in the place of the rule's own.
    pub why: Option<String>,
    /// What is answered in the place of a text that fails at last.
    pub otherwise: Option<Template>,
}

/// What has to hold of a text.
#[derive(Clone, Debug)]
pub enum CheckRule {
    /// It is JSON that a schema allows.
    Schema(Json),
    /// It has a place that fits.
    Regex(Regex),
    /// It cites passages in at least so many places, each of which was verified.
    Cited(u32),
    /// A tool does not fail.
    Tool(ToolUse),
    /// The model holds a statement about the conversation with it for at least so likely.
    Decision {
        /// What has to hold.
        statement: String,
        /// The least probability of it.
        min: f64,
    },
}

impl StepKind {
    /// The word for it in files and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::When { .. } => "when",
            Self::Retrieve(_) => "retrieve",
            Self::Enough(_) => "enough",
            Self::Call(_) => "call",
            Self::Generate(_) => "generate",
            Self::Parallel(_) => "parallel",
            Self::Check(_) => "check",
        }
    }
}
