//! What a request actor makes of a request's tokens: text, in pieces, and what it took. No JSON here.

use super::draft_account::DraftAccount;
use super::token_report::TokenReport;
use crate::metrics::gateway::Completion;
use crate::text::parser::TextPart;
use chimere_engine::constraint::Sources;
use chimere_engine::engram::Origin;
use chimere_engine::ids::TokenId;
use std::time::Duration;

/// One thing to tell the client, in order. Ends with one [`Output::End`] or one [`Output::Failed`].
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
    /// No more of anything.
    End(RequestUsage),
    /// Something broke; nothing more comes.
    Failed(String),
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
}

impl Delta {
    /// True when there is nothing to tell the client.
    pub fn is_empty(&self) -> bool {
        self.content.is_empty() && self.reasoning.is_empty() && self.tool_calls.is_empty() && self.tokens.is_empty()
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
    /// An end id.
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
    /// The most tokens that a choice could have, where more were asked for than the context has room for.
    pub room: Option<u32>,
    /// How thinking went, if the request said anything about it.
    pub thinking: Option<ThinkingAccount>,
    /// What tables did, for a request that uses some.
    pub engram: Option<Box<EngramAccount>>,
    /// Which examples were put before the question, if that was asked for.
    pub examples: Option<ExamplesAccount>,
    /// Sources of rules that yielded for at least one token, because with their rule none would have been left.
    pub yielded: Sources,
    /// What was drafted for its choices.
    pub drafts: DraftAccount,
    /// It said what its answer may be.
    pub predicted: bool,
}

impl RequestUsage {
    /// What the series under other engines' names are told of it.
    pub fn completion(&self) -> Completion {
        let Timings { prefill, itl_mean, decode, total, .. } = self.timings;
        let (prompt_tokens, completion_tokens) = (self.prompt_tokens, self.completion_tokens);
        Completion { total, prefill, decode, itl_mean, prompt_tokens, completion_tokens }
    }
}

/// Which examples a conversation got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExamplesAccount {
    /// Name of the collection that the examples are from.
    pub collection: String,
    /// Ids of its items, the one most like the question first.
    pub ids: Vec<String>,
    /// Tokens of the question, which were read once more to find them.
    pub query_tokens: u32,
}

/// How long the choices thought, and why each thought ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThinkingAccount {
    /// Thinking tokens of all choices: those that the model chose, not those that closed it.
    pub tokens: u32,
    /// Why it ended, by choice: `model`, `budget`, `certain`, `off` (not to think was asked for), `sure` (the answer
    /// was sure without),
    /// `cut off` (the choice ended first), `none` (the model did not think).
    pub ended: Vec<&'static str>,
    /// The answer that was tried, for the effort `auto`.
    pub probe: Option<ProbeAccount>,
}

/// What trying an answer without a thought gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProbeAccount {
    /// Tokens of the answer that were generated for it.
    pub tokens: u32,
    /// The most entropy that one of them had up to the first that had too much, as a share of the greatest that the
    /// vocabulary allows.
    pub entropy: f32,
    /// That was little enough.
    pub sure: bool,
}

/// What tables and documents did for a request, over all its choices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngramAccount {
    /// Positions that the tables were asked about.
    pub lookups: u32,
    /// Of these, the ones where a table knew what might follow.
    pub hits: u32,
    /// Tokens that became others than they would have been; `None` where the device cannot tell.
    pub changed_tokens: Option<u32>,
    /// Where changed tokens come from, if that was asked for.
    pub sources: Option<Vec<SourceAccount>>,
    /// Documents that said otherwise, each with the later one that was followed.
    pub contradicted: Vec<(u32, u32)>,
    /// Ids and titles of the documents, as far as they have some.
    pub names: Vec<(Option<String>, Option<String>)>,
}

/// Where one token comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceAccount {
    /// Whose token it is.
    pub choice: u32,
    /// Its number among the choice's tokens.
    pub index: u32,
    /// The token by itself.
    pub text: String,
    /// Which document, and where in it; or the tables.
    pub origin: Origin,
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
