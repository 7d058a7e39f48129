//! What a request actor makes of a request's tokens: text, in pieces, and what it took. No JSON here.

use super::report::{PipelineStepReport, Report};
use super::token_report::TokenReport;
use crate::actors::messages::Refusal;
use crate::citations::{Citation, NumberedSource};
use crate::metrics::gateway::CompletedRequest;
use crate::text::parser::TextPart;
use crate::traces::Moments;
use crate::web::WebPage;
use chimere_engine::ids::TokenId;
use chimere_engine::step::TokenLogprobs;
use std::time::Duration;

/// One thing to tell the client, in order. Ends with one [`Output::End`], [`Output::Failed`] or [`Output::Refused`].
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Log-probabilities of prompt tokens, in order of position. Comes before any text of that prompt's choices.
    Scored {
        /// Which prompt of the request.
        prompt: u32,
        /// From the prompt's second token on.
        tokens: Vec<Scored>,
    },
    /// More of a choice.
    Delta {
        /// Number of the choice among all of the request.
        choice: u32,
        /// The text and tokens that are new.
        delta: Delta,
    },
    /// No more of this choice.
    Finished {
        /// Number of the choice among all of the request.
        choice: u32,
        /// Why the choice ended.
        reason: Finish,
    },
    /// A search of files begins within the answer.
    Searching {
        /// The query that the model wrote.
        query: String,
    },
    /// The search that began last has found this.
    Searched(FileSearch),
    /// A call of an MCP server's tool begins within the answer.
    Calling(ToolRun),
    /// The call that began last has ended.
    Called(ToolRun),
    /// The web is searched or read within the answer; what comes of it is not there yet.
    Browsing(WebAction),
    /// What began last on the web has ended.
    Browsed(WebAction),
    /// A step of the pipeline that gives the answer is done.
    PipelineStep(PipelineStepReport),
    /// No more of anything.
    End(RequestUsage),
    /// Something broke; nothing more comes.
    Failed(String),
    /// A later generation of the turn was not taken; nothing more comes.
    Refused(Refusal),
}

impl Output {
    /// It tells of something that the server did itself, for which most dialects have no word.
    pub fn is_of_server(&self) -> bool {
        matches!(
            self,
            Self::Searching { .. }
                | Self::Searched(_)
                | Self::Calling(_)
                | Self::Called(_)
                | Self::Browsing(_)
                | Self::Browsed(_)
                | Self::PipelineStep(_)
        )
    }
}

/// Something that was done on the web for an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum WebAction {
    /// Pages were looked for.
    Search {
        /// The queries that the model wrote.
        queries: Vec<String>,
        /// The pages that were found.
        pages: Vec<WebPage>,
        /// Nothing could be searched.
        failed: bool,
    },
    /// A page was read.
    Open {
        /// Address of the page.
        url: String,
        /// Its title, and the passages of it that the model read.
        read: Option<(String, Vec<NumberedSource>)>,
        /// It could not be read.
        failed: bool,
    },
}

/// A search of files that was made for an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSearch {
    /// The queries that were searched for.
    pub queries: Vec<String>,
    /// The sources that it found, best first.
    pub results: Vec<NumberedSource>,
    /// How probable it is that they have the answer, if that was asked.
    pub sufficiency: Option<f64>,
}

/// A call of an MCP server's tool that the server ran for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRun {
    /// The server's name in the operator's file.
    pub server: String,
    /// The tool's name there.
    pub tool: String,
    /// The arguments in JSON, as the model wrote them.
    pub arguments: String,
    /// Id under which it was approved, if somebody was asked.
    pub approval: Option<String>,
    /// What the tool said, or why it could not do it; nothing before the call has ended.
    pub result: Option<Result<String, String>>,
}

/// New text of a choice; any part may be empty, not all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// More of the answer's text.
    pub content: String,
    /// What came before it between `<think>` and `</think>`.
    pub reasoning: String,
    /// Calls, begun or continued.
    pub tool_calls: Vec<ToolCallDelta>,
    /// The tokens whose text is in here, if log-probabilities were asked for.
    pub tokens: Vec<Scored>,
    /// Places in the content so far, this one's included, that a source supports, as has become certain now.
    pub citations: Vec<Citation>,
    /// The tokens that came, whether or not their text is in here, for a request that wants ids.
    pub ids: Vec<RawToken>,
}

/// A token by its id.
#[derive(Clone, Debug, PartialEq)]
pub struct RawToken {
    /// Its number in the vocabulary.
    pub id: TokenId,
    /// Its log-probability and those of the most probable ones, if they were asked for.
    pub logprobs: Option<TokenLogprobs>,
}

impl Delta {
    /// True when there is nothing to tell the client.
    pub fn is_empty(&self) -> bool {
        let texts = self.content.is_empty() && self.reasoning.is_empty();
        let tokens = self.tokens.is_empty() && self.ids.is_empty();
        texts && tokens && self.tool_calls.is_empty() && self.citations.is_empty()
    }

    /// Begins a tool call, or goes on with the one of the same number.
    pub fn call(&mut self, more: ToolCallDelta) {
        match self.tool_calls.iter_mut().find(|call| call.index == more.index) {
            Some(begun) => {
                begun.arguments.push_str(&more.arguments);
                begun.incomplete |= more.incomplete;
            }
            None => self.tool_calls.push(more),
        }
    }
}

/// A tool call, begun (with id and name) or continued.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCallDelta {
    /// Number of the call within the choice.
    pub index: u32,
    /// Id and name, with the first piece.
    pub start: Option<(String, String)>,
    /// More of the arguments' JSON.
    pub arguments: String,
    /// The output was cut off inside of it.
    pub incomplete: bool,
}

impl ToolCallDelta {
    /// More of the arguments of a call that has begun.
    pub fn more(index: u32, arguments: String) -> Self {
        Self { index, start: None, arguments, incomplete: false }
    }
}

/// A token with its log-probability and the most probable ones in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The token that was chosen.
    pub token: ShownToken,
    /// The most probable, best first.
    pub top: Vec<ShownToken>,
    /// What its text belongs to.
    pub part: TextPart,
    /// Its text is shown; that of control tokens is not.
    pub shown: bool,
    /// What else stood behind it, if that was asked for.
    pub report: Option<Box<TokenReport>>,
}

/// A token as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownToken {
    /// Its number in the vocabulary.
    pub id: TokenId,
    /// Its text; parts of a character become U+FFFD.
    pub text: String,
    /// The token's bytes, which may be a part of a character.
    pub bytes: Vec<u8>,
    /// Its log-probability, in nats.
    pub logprob: f32,
}

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model chose an end id.
    Stop,
    /// This one of the request's stop strings.
    StopString(usize),
    /// As long as it may be.
    Length,
    /// With at least one call of a tool.
    ToolCalls,
}

impl Finish {
    /// OpenAI's word, which is the metric's label too.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop | Finish::StopString(_) => "stop",
            Finish::Length => "length",
            Finish::ToolCalls => "tool_calls",
        }
    }
}

/// What a request took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestUsage {
    /// Tokens of all prompts.
    pub prompt_tokens: u32,
    /// Of these, spared by a cache.
    pub cached_tokens: u32,
    /// Tokens of all choices that the client was told of, end ids included.
    pub completion_tokens: u32,
    /// Of these, inside reasoning.
    pub reasoning_tokens: u32,
    /// Where the time went.
    pub timings: Timings,
    /// When that was; of a turn's rounds, the last one's.
    pub moments: Box<Moments>,
    /// The most tokens that a choice could have, where more were asked for than the context has room for.
    pub room: Option<u32>,
    /// What else the reply tells, in the order in which it does.
    pub reports: Vec<Report>,
    /// Ids of the tokens of the first choice, for a request that keeps them.
    pub kept: Vec<TokenId>,
}

impl RequestUsage {
    /// What the series under other engines' names are told of it.
    pub fn completion(&self) -> CompletedRequest {
        let Timings { prefill, itl_mean, decode, total, .. } = self.timings;
        let (prompt_tokens, completion_tokens) = (self.prompt_tokens, self.completion_tokens);
        CompletedRequest { total, prefill, decode, itl_mean, prompt_tokens, completion_tokens }
    }
}

/// Where the time of a request went; 0 where it never came to that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// From admission to the first step.
    pub queue: Duration,
    /// From there to the first token.
    pub prefill: Duration,
    /// From admission to the first token.
    pub ttft: Duration,
    /// Between two tokens of a choice, on average.
    pub itl_mean: Duration,
    /// 95 of 100 gaps are at most this long.
    pub itl_p95: Duration,
    /// From the first token to the last.
    pub decode: Duration,
    /// From admission to the end.
    pub total: Duration,
}
