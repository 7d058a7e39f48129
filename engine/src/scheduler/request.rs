//! What goes into the scheduler and what comes out of it.

use super::spec::Spec;
use crate::constraint::Sources;
use crate::constraint::thinking::Thought;
use crate::drafts::DraftReport;
use crate::ids::{Micros, RequestId, TokenId};
use crate::step::{Certainty, RowReport, Score, TokenLogprobs};
use std::sync::Arc;

/// A prompt, and what is asked for it. Clones share both.
#[derive(Clone, Debug)]
pub struct Request {
    /// Unique among live requests.
    pub id: RequestId,
    /// All of the model's vocabulary. Without a token it is refused.
    pub prompt: Arc<[TokenId]>,
    /// Where turns of a conversation begin in it, ascending, the one that is to be generated last. A prompt that is no
    /// conversation has none.
    pub turns: Arc<[u32]>,
    /// What is asked for.
    pub spec: Arc<Spec>,
}

impl Request {
    /// `spec` may be shared with other requests, as those of one call with several prompts.
    pub fn new(id: RequestId, prompt: impl Into<Arc<[TokenId]>>, spec: impl Into<Arc<Spec>>) -> Self {
        Self { id, prompt: prompt.into(), turns: Arc::new([]), spec: spec.into() }
    }

    /// This request with the positions at which its turns begin.
    pub fn with_turns(self, turns: impl Into<Arc<[u32]>>) -> Self {
        Self { turns: turns.into(), ..self }
    }
}

/// Something that happened to a request. Every choice ends with exactly one [`Event::Finished`], or the request with
/// one [`Event::Failed`]; a cancelled request gets nothing more.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Prompt scores, in order of position, in as many events as the prompt had pieces.
    Scored(Vec<Score>),
    /// One generated token of a choice.
    Token {
        /// Number of the choice, from 0.
        choice: u32,
        /// Its number among the choice's outputs, from 0.
        index: u32,
        /// The token; an end id comes too, as the last one.
        token: TokenId,
        /// Log-probabilities, if the request asks for them.
        logprobs: Option<TokenLogprobs>,
        /// How certain the model was, if the request asks for it.
        certainty: Option<Certainty>,
        /// Whether a rule made it another token: [`crate::step::Sample::changed`].
        changed: Option<bool>,
        /// Sources whose rule was left out: [`crate::step::Sample::yielded`].
        yielded: Sources,
        /// What was drafted behind it, with the first token of a step that had drafts.
        drafts: Option<DraftReport>,
        /// Rules and experts behind the token, if the request asks for them.
        report: Option<Box<RowReport>>,
    },
    /// The prompt's hidden state after the final norm, averaged over the rows that count; as wide as the model. Comes
    /// once, before the end of a request that asked for it.
    Pooled(Vec<f32>),
    /// The end of a choice's thinking is known, at the latest before the choice is finished. Comes once, for a request
    /// that bounds its thinking, and not if the choice ended while it thought or never did.
    Thought {
        /// Number of the choice, from 0.
        choice: u32,
        /// How the choice's thinking ended.
        thought: Thought,
    },
    /// No more tokens for this choice.
    Finished {
        /// Number of the choice, from 0.
        choice: u32,
        /// The reason why the choice ended.
        reason: FinishReason,
        /// Token counts of the choice.
        usage: Usage,
        /// Times of the request so far.
        times: RequestTimes,
    },
    /// The engine failed, the service is going down, or the request's numbers are none ([`NOT_FINITE`]); nothing more
    /// comes.
    Failed(String),
}

/// What a request fails with whose logits, or whose hidden states, are no finite numbers.
pub const NOT_FINITE: &str =
    "the model's numbers for this request are not finite; its weights or its activations overflow";

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// One of the request's end ids.
    Stop,
    /// `max_tokens`, or the end of the context.
    Length,
}

/// Token counts of one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Of these, tokens that a cache spared.
    pub cached_tokens: u32,
    /// Tokens generated, the end id included.
    pub output_tokens: u32,
    /// How often the sequence was preempted.
    pub preemptions: u32,
}

/// When things happened to a request; `None` where they have not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// When `Scheduler::admit` accepted the request.
    pub admitted: Micros,
    /// The first step with a row of it was planned.
    pub started: Option<Micros>,
    /// The first token was committed.
    pub first_token: Option<Micros>,
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The queue has no room; the caller may come back.
    #[error("{waiting} requests are waiting, at most {max} may")]
    QueueFull {
        /// Requests that are waiting now.
        waiting: u32,
        /// Most requests that may wait.
        max: u32,
    },
    /// The queue has no room for this prompt; the caller may come back.
    #[error("{waiting} prompt tokens are waiting, {got} more would exceed {max}")]
    QueueTokensFull {
        /// Prompt tokens waiting now.
        waiting: u64,
        /// Prompt tokens of this request.
        got: u64,
        /// Most prompt tokens that may wait.
        max: u64,
    },
    /// Can never run: there is nothing to read, as where a template leaves out all that was said.
    #[error("the prompt has no tokens")]
    EmptyPrompt,
    /// Can never run: the prompt and one token do not fit the context.
    #[error("prompt has {got} tokens, the context has room for {max}")]
    PromptTooLong {
        /// Tokens of the prompt.
        got: u32,
        /// The most that leave room for one token of output.
        max: u32,
    },
    /// Can never run: more choices than slots.
    #[error("{got} choices asked for, at most {max} run at once")]
    TooManyChoices {
        /// Choices that the request asks for.
        got: u32,
        /// State slots that there are, so the most choices that can run at once.
        max: u32,
    },
    /// Can never run: prompt and output need more KV pages than there are, even alone.
    #[error("prompt and output need {got} pages of KV cache, there are {max}")]
    TooManyPages {
        /// Pages needed in the worst case.
        got: u32,
        /// KV pages that there are.
        max: u32,
    },
    /// The key has as many live requests as it may have; the caller may come back.
    #[error("{live} requests of this key are running or waiting, at most {max} may")]
    KeyBusy {
        /// Live requests of the key.
        live: u32,
        /// Most live requests that the key may have.
        max: u32,
    },
    /// The key has used up its tokens for now; the caller may come back.
    #[error("this key may take {max} tokens a minute, and there is room for this prompt in {:.1} s", *wait_us as f64 / 1e6)]
    KeyRate {
        /// Tokens that the key may take in a minute.
        max: u32,
        /// Until there is room, microseconds.
        wait_us: u64,
    },
    /// It would wait too long; the caller may come back.
    #[error("this request would wait {:.1} s, the most is {:.1} s", *wait_us as f64 / 1e6, *max_us as f64 / 1e6)]
    WaitTooLong {
        /// The predicted wait, microseconds.
        wait_us: u64,
        /// Longest wait that is accepted, microseconds.
        max_us: u64,
    },
    /// It would not be done by its deadline; the caller may come back.
    #[error("this request would take {:.1} s, its deadline is in {:.1} s", *needs_us as f64 / 1e6, *left_us as f64 / 1e6)]
    DeadlineUnreachable {
        /// Predicted time to the end, microseconds.
        needs_us: u64,
        /// Time to the deadline.
        left_us: u64,
    },
    /// The service is draining.
    #[error("the service is shutting down")]
    Draining,
}
