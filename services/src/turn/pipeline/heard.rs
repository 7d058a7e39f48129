//! What is heard of a generation: its choices, each with what a client would be told of it, and which one is the most
//! certain.

use crate::actors::request::Outputs;
use crate::actors::request::output::{Delta, Finish, Output, RequestUsage};
use crate::pipelines::Said;
use crate::text::parser::TextPart;
pub(super) use crate::turn::error::EarlyEnd;
use tokio::sync::mpsc;

/// A generation that runs.
pub(super) struct Hearing {
    outputs: Outputs,
    choices: Vec<HeardChoice>,
    /// What it took, once it has ended.
    usage: Option<RequestUsage>,
    /// The client reads its tokens' log-probabilities.
    logprobs: bool,
}

/// A choice so far.
#[derive(Clone, Debug, Default)]
pub(super) struct HeardChoice {
    text: String,
    /// What a client would be told, in pieces.
    deltas: Vec<Delta>,
    finish: Option<Finish>,
    /// Places whose citation was verified.
    pub(super) cited: usize,
    /// Log-probabilities of the answer's tokens, summed, and how many these are.
    logprob: (f64, u32),
    tokens: u32,
}

impl HeardChoice {
    fn take(&mut self, delta: &Delta) {
        self.text.push_str(&delta.content);
        self.cited += delta.citations.len();
        self.tokens += delta.tokens.len() as u32;
        for token in delta.tokens.iter().filter(|token| token.part == TextPart::Content) {
            self.logprob = (self.logprob.0 + f64::from(token.token.logprob), self.logprob.1 + 1);
        }
    }

    /// The mean log-probability of its answer's tokens; a choice without any is the least certain.
    fn certainty(&self) -> f64 {
        if self.logprob.1 == 0 { f64::NEG_INFINITY } else { self.logprob.0 / f64::from(self.logprob.1) }
    }

    /// What the client is told of it.
    pub(super) fn into_deltas(self) -> Vec<Delta> {
        self.deltas
    }
}

impl Hearing {
    /// Of a generation with so many choices.
    pub(super) fn of(outputs: Outputs, choices: u32, logprobs: bool) -> Self {
        Self { outputs, choices: vec![HeardChoice::default(); choices as usize], usage: None, logprobs }
    }

    /// Listens to the end. `told` hears every piece as it comes; without, pieces are kept.
    pub(super) async fn listen(&mut self, told: Option<&mpsc::Sender<Output>>) -> Result<(), EarlyEnd> {
        loop {
            match self.outputs.next().await {
                Some(Output::Delta { choice, mut delta }) => {
                    let Some(heard) = self.choices.get_mut(choice as usize) else { continue };
                    heard.take(&delta);
                    if !self.logprobs {
                        delta.tokens.clear();
                    }
                    match told {
                        _ if delta.is_empty() => {}
                        None => heard.deltas.push(delta),
                        Some(told) => {
                            let sent = told.send(Output::Delta { choice: 0, delta }).await;
                            sent.map_err(|_| EarlyEnd::Unheard)?;
                        }
                    }
                }
                Some(Output::Finished { choice, reason }) => {
                    if let Some(heard) = self.choices.get_mut(choice as usize) {
                        heard.finish = Some(reason);
                    }
                }
                Some(Output::End(usage)) => {
                    self.usage = Some(usage);
                    return Ok(());
                }
                Some(end @ (Output::Failed(_) | Output::Refused(_))) => return Err(EarlyEnd::Told(end)),
                Some(_) => {}
                None => return Err(EarlyEnd::failed("the stream broke off")),
            }
        }
    }

    /// Tokens that came: what it took once it has ended, and before that those that were told.
    pub(super) fn tokens(&self) -> u32 {
        let so_far = || self.choices.iter().map(|choice| choice.tokens).sum();
        self.usage.as_ref().map_or_else(so_far, |usage| usage.completion_tokens)
    }

    /// The most certain choice, the first of equals; what was said; and what all of them took.
    pub(super) fn best(self) -> (Option<HeardChoice>, Said, Option<RequestUsage>) {
        let tokens = self.tokens();
        let mut best: Option<HeardChoice> = None;
        for choice in self.choices {
            if best.as_ref().is_none_or(|best| choice.certainty() > best.certainty()) {
                best = Some(choice);
            }
        }
        let text = best.as_ref().map_or_else(String::new, |best| best.text.clone());
        let finish = best.as_ref().and_then(|best| best.finish).unwrap_or(Finish::Length);
        (best, Said { text, tokens, finish }, self.usage)
    }
}
