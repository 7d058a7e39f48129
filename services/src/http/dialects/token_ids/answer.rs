//! Answers of `POST /inference/v1/generate`: ids, and log-probabilities under `token_id:N`, as vLLM names them where no
//! text is made.

use crate::actors::request::output::{Finish, Output, RawToken, RequestUsage};
use crate::http::reply::dialect::{Begun, Dialect, Frames, WholeReply, event};
use crate::http::reply::tokens::usage;
use crate::http::wire::error::ApiError;
use crate::http::wire::json::logprob;
use crate::http::wire::refusals::{engine_error, refused};
use bytes::{BufMut, BytesMut};
use chimere_engine::ids::TokenId;
use serde_json::{Value, json};

/// How the answers to one request look.
#[derive(Clone, Debug)]
pub(super) struct TokenIds {
    /// The caller's name for the request.
    pub request_id: Option<String>,
    /// Log-probabilities were asked for.
    pub logprobs: bool,
    /// Ids that end a choice because the request says so, and not the model.
    pub stops: Vec<TokenId>,
}

/// An answer that begins or is under way.
pub(super) struct TokenIdsAnswer {
    shape: TokenIds,
    begun: Begun,
    /// Of a whole reply all tokens of each choice, of a stream the last one alone, and why it ended.
    choices: Vec<(Vec<RawToken>, Option<Finish>)>,
}

impl Dialect for TokenIds {
    type Stream = TokenIdsAnswer;
    type Whole = TokenIdsAnswer;

    fn streamed(self, begun: Begun) -> TokenIdsAnswer {
        let choices = vec![(Vec::new(), None); begun.choices];
        TokenIdsAnswer { shape: self, begun, choices }
    }

    fn collected(self, begun: Begun) -> TokenIdsAnswer {
        self.streamed(begun)
    }
}

impl Frames for TokenIdsAnswer {
    fn output(&mut self, output: Output, out: &mut BytesMut) -> Result<(), ApiError> {
        match output {
            Output::Delta { choice, delta } if !delta.ids.is_empty() => {
                let object = self.choice(choice, &delta.ids, None);
                event(out, None, &self.reply(vec![object]));
                self.choices[choice as usize].0 = delta.ids.into_iter().next_back().into_iter().collect();
            }
            Output::Finished { choice, reason } => {
                let mut object = self.choice(choice, &[], Some(reason));
                object["stop_reason"] = self.stop_reason(choice as usize);
                event(out, None, &self.reply(vec![object]));
            }
            Output::End(account) => {
                if self.begun.stream_options.include_usage {
                    event(out, None, &self.with_usage(Vec::new(), &account));
                }
                out.put_slice(b"data: [DONE]\n\n");
            }
            other => ended_badly(other)?,
        }
        Ok(())
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        event(out, Some("error"), error);
    }
}

impl WholeReply for TokenIdsAnswer {
    fn of(&mut self, output: Output) -> Result<Option<Value>, ApiError> {
        match output {
            Output::Delta { choice, delta } => self.choices[choice as usize].0.extend(delta.ids),
            Output::Finished { choice, reason } => self.choices[choice as usize].1 = Some(reason),
            Output::End(account) => {
                let all = self.choices.iter().enumerate().map(|(i, (tokens, reason))| {
                    let mut object = self.choice(i as u32, tokens, *reason);
                    object["stop_reason"] = self.stop_reason(i);
                    object
                });
                return Ok(Some(self.with_usage(all.collect(), &account)));
            }
            other => ended_badly(other)?,
        }
        Ok(None)
    }
}

/// The error of an output that ends an answer before its end; others say nothing about ids.
fn ended_badly(output: Output) -> Result<(), ApiError> {
    match output {
        Output::Failed(why) => Err(engine_error(why)),
        Output::Refused(refusal) => Err(refused(refusal, "token_ids")),
        _ => Ok(()),
    }
}

impl TokenIdsAnswer {
    fn choice(&self, choice: u32, tokens: &[RawToken], reason: Option<Finish>) -> Value {
        let ids: Vec<_> = tokens.iter().map(|token| token.id).collect();
        let logprobs = self.shape.logprobs.then(|| json!({"content": tokens.iter().map(scored).collect::<Vec<_>>()}));
        json!({"index": choice, "token_ids": ids, "logprobs": logprobs, "finish_reason": reason.map(Finish::name)})
    }

    /// The id that ended a choice, if the request named it.
    fn stop_reason(&self, choice: usize) -> Value {
        let last = self.choices[choice].0.last().map(|token| token.id);
        json!(last.filter(|last| self.shape.stops.contains(last)))
    }

    fn reply(&self, choices: Vec<Value>) -> Value {
        let id = self.shape.request_id.as_ref().unwrap_or(&self.begun.envelope.id);
        json!({"request_id": id, "model": self.begun.envelope.model, "choices": choices})
    }

    fn with_usage(&self, choices: Vec<Value>, account: &RequestUsage) -> Value {
        let mut reply = self.reply(choices);
        (reply["usage"], reply["seed"]) = (usage(account), self.begun.envelope.seed.into());
        reply
    }
}

fn scored(token: &RawToken) -> Value {
    let one =
        |id: TokenId, value: f32| json!({"token": format!("token_id:{id}"), "logprob": logprob(value), "bytes": null});
    let Some(scores) = &token.logprobs else { return Value::Null };
    let mut entry = one(token.id, scores.logprob);
    entry["top_logprobs"] = scores.top.iter().map(|(id, value)| one(*id, *value)).collect();
    entry
}
