//! One choice of a request: its tokens become text, its text is watched for stop strings and read.

use super::output::{Delta, Finish, Scored, ShownToken};
use super::reader::Reader;
use super::token_report::{DraftFollower, TokenReport};
use crate::text::parser::{Span, TextPart};
use crate::text::tokenizer::TokenKind;
use crate::text::{Detokenizer, StopScanner, Tokenizer};
use chimere_engine::constraint::thinking::Thought;
use chimere_engine::ids::TokenId;
use chimere_engine::scheduler::FinishReason;
use chimere_engine::step::TokenLogprobs;
use std::collections::VecDeque;
use std::sync::Arc;

/// The text state of one choice.
pub struct Choice {
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer,
    stops: StopScanner,
    reader: Box<dyn Reader>,
    /// Bytes of text that the tokens so far stand for.
    seen: usize,
    /// Of these, bytes that were passed on to the reader.
    passed: usize,
    /// Tokens whose text is still held back, with the place where it begins.
    scored: VecDeque<(usize, Scored)>,
    /// What the text from the first of them on stands for, as far as that is decided.
    spans: VecDeque<Span>,
    /// Tokens that the client was told of, the end id included.
    pub tokens: u32,
    /// Of these, inside reasoning.
    pub reasoning_tokens: u32,
    /// How its thinking went, once that is known, for a request that bounds it.
    pub thought: Option<Thought>,
    /// Which of its tokens were drafted.
    pub drafts: DraftFollower,
    /// The stop string that ended it.
    stop: Option<usize>,
    /// No more of it.
    pub ended: bool,
}

impl Choice {
    /// A choice before its first token.
    pub fn new(tokenizer: Arc<Tokenizer>, stops: &[String], reader: Box<dyn Reader>) -> Self {
        Self {
            detokenizer: Detokenizer::new(tokenizer.clone()),
            tokenizer,
            stops: StopScanner::new(stops),
            reader,
            seen: 0,
            passed: 0,
            scored: VecDeque::new(),
            spans: VecDeque::new(),
            tokens: 0,
            reasoning_tokens: 0,
            thought: None,
            drafts: DraftFollower::default(),
            stop: None,
            ended: false,
        }
    }

    /// Takes a token. True if its text completed a stop string: then the choice has ended, and `delta` has its last
    /// text.
    ///
    /// `is_end` says that it is one of the request's end ids, which stand for no text.
    pub fn push(
        &mut self,
        token: TokenId,
        told: (Option<&TokenLogprobs>, Option<Box<TokenReport>>),
        is_end: bool,
        delta: &mut Delta,
    ) -> bool {
        let (logprobs, report) = told;
        self.tokens += 1;
        self.reasoning_tokens += u32::from(self.is_reasoning());
        if is_end {
            return false;
        }
        let shown = self.tokenizer.kind(token) != TokenKind::Special;
        self.scored
            .extend(logprobs.map(|l| (self.seen, Scored { shown, report, ..scored(&self.tokenizer, token, l) })));
        let text = self.detokenizer.push(token);
        self.take(&text, delta)
    }

    /// The next token belongs to its reasoning.
    pub fn is_reasoning(&self) -> bool {
        self.reader.is_reasoning()
    }

    /// The engine has no more tokens for it. `delta` gets what was held back; a stop string may come to light even now.
    pub fn finish(&mut self, reason: FinishReason, delta: &mut Delta) -> Finish {
        let text = self.detokenizer.finish();
        if !self.take(&text, delta) {
            let held = self.stops.finish();
            self.pass(&held, delta);
            self.reader.finish(reason == FinishReason::Length, delta);
            self.release(delta);
            // These stand for no text.
            delta.tokens.extend(self.scored.drain(..).map(|(_, s)| s));
            self.ended = true;
        }
        match reason {
            FinishReason::Length if self.stop.is_none() => Finish::Length,
            _ => self.stopped(),
        }
    }

    /// Why it ended, when it was not for its length.
    pub fn stopped(&self) -> Finish {
        if self.reader.called_tools() {
            return Finish::ToolCalls;
        }
        self.stop.map_or(Finish::Stop, Finish::StopString)
    }

    fn take(&mut self, text: &str, delta: &mut Delta) -> bool {
        self.seen += text.len();
        let scanned = self.stops.push(text);
        self.pass(&scanned.text, delta);
        self.stop = scanned.stop;
        if self.stop.is_some() {
            self.end(delta);
        }
        self.stop.is_some()
    }

    fn pass(&mut self, text: &str, delta: &mut Delta) {
        if text.is_empty() {
            return;
        }
        self.passed += text.len();
        self.reader.push(text, delta);
        self.release(delta);
    }

    /// Passes on the tokens of which it is known what their text is part of: where a token's first byte belongs, there
    /// it does.
    fn release(&mut self, delta: &mut Delta) {
        match self.reader.spans() {
            Some(spans) => self.spans.extend(spans),
            None => self.spans.push_back(Span { end: self.passed, part: TextPart::Content }),
        }
        while let Some(span) = self.spans.front().copied() {
            while let Some((_, scored)) = self.scored.pop_front_if(|(start, _)| *start < span.end) {
                delta.tokens.push(Scored { part: span.part, ..scored });
            }
            self.spans.pop_front();
        }
    }

    fn end(&mut self, delta: &mut Delta) {
        // Inside of a call it leaves half a value as the limit of tokens does.
        self.reader.finish(true, delta);
        self.release(delta);
        self.scored.clear();
        self.ended = true;
    }
}

/// A token and its alternatives as people see them.
pub fn scored(tokenizer: &Tokenizer, token: TokenId, logprobs: &TokenLogprobs) -> Scored {
    let piece = |id: TokenId, logprob: f32| ShownToken {
        id,
        text: tokenizer.text(id).into_owned(),
        bytes: tokenizer.bytes(id).to_vec(),
        logprob,
    };
    let top = logprobs.top.iter().map(|&(id, l)| piece(id, l)).collect();
    Scored { token: piece(token, logprobs.logprob), top, part: TextPart::Content, shown: true, report: None }
}
