//! Answers of llama.cpp's `/completion`: one object a prompt, which a stream sends in pieces.

use super::error;
use super::request::LlamaReply;
use crate::actors::request::output::{Delta, Finish, Output, RequestUsage, Scored, ShownToken, Timings};
use crate::http::reply::dialect::{Begun, Dialect, Frames, WholeReply, event};
use crate::http::wire::error::ApiError;
use crate::http::wire::json::logprob;
use crate::http::wire::refusals::{engine_error, refused};
use crate::turn::options::Generation;
use bytes::BytesMut;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// What the replies of `/completion` are made from.
#[derive(Clone, Debug)]
pub(super) struct Llama {
    prompts: Vec<LlamaPrompt>,
    /// What was asked for, all but the seed.
    settings: Value,
    stops: Vec<String>,
    /// The answer may go on to the end of the context.
    unbounded: bool,
    reply: LlamaReply,
}

/// A prompt as a reply repeats it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LlamaPrompt {
    /// Its text, control tokens written out.
    pub text: String,
    /// How many tokens it has.
    pub tokens: usize,
}

/// The answers as they come: the stream, and the whole reply too.
pub(super) struct LlamaAnswer {
    shape: Llama,
    begun: Begun,
    answers: Vec<LlamaText>,
}

/// The answer to one prompt so far.
#[derive(Clone, Debug, Default)]
struct LlamaText {
    /// All of it, where it is told at the end.
    content: String,
    tokens: Vec<Value>,
    probs: Vec<Value>,
    /// Tokens that its text is made of, where they are known.
    count: usize,
    new_line: bool,
    finish: Option<Finish>,
}

impl Llama {
    /// Replies to these prompts, as `reply` asks for them.
    pub(super) fn new(prompts: Vec<LlamaPrompt>, generation: &Generation, reply: LlamaReply) -> Self {
        let spec = &generation.spec.engine;
        Self {
            prompts,
            settings: settings(generation, &reply),
            stops: generation.spec.stop.clone(),
            unbounded: spec.max_tokens.is_none(),
            reply,
        }
    }

    fn answer(self, begun: Begun) -> LlamaAnswer {
        let answers = vec![LlamaText::default(); self.prompts.len()];
        LlamaAnswer { shape: self, begun, answers }
    }
}

impl Dialect for Llama {
    type Stream = LlamaAnswer;
    type Whole = LlamaAnswer;

    fn streamed(self, begun: Begun) -> LlamaAnswer {
        self.answer(begun)
    }

    fn collected(self, begun: Begun) -> LlamaAnswer {
        self.answer(begun)
    }
}

impl Frames for LlamaAnswer {
    fn output(&mut self, output: Output, out: &mut BytesMut) -> Result<(), ApiError> {
        match output {
            Output::Scored { .. } => {}
            Output::Searching { .. } | Output::Searched(_) => {}
            Output::Calling(_) | Output::Called(_) => {}
            Output::Browsing(_) | Output::Browsed(_) | Output::PipelineStep(_) => {}
            Output::Delta { choice, delta } => {
                let piece = self.piece(choice, &delta);
                self.answers[choice as usize].see(&delta);
                event(out, None, &piece);
            }
            Output::Finished { choice, reason } => self.answers[choice as usize].finish = Some(reason),
            Output::End(account) => {
                (0..self.answers.len()).for_each(|i| event(out, None, &self.ended(i, &account)));
            }
            Output::Failed(why) => return Err(engine_error(why)),
            Output::Refused(refusal) => return Err(refused(refusal, "messages")),
        }
        Ok(())
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        event(out, Some("error"), &error::written(error));
    }
}

impl WholeReply for LlamaAnswer {
    fn of(&mut self, output: Output) -> Result<Option<Value>, ApiError> {
        match output {
            Output::Scored { .. } => {}
            Output::Delta { choice, delta } => {
                let (ids, probs) = (self.shape.reply.tokens, self.shape.reply.probs.is_some());
                let answer = &mut self.answers[choice as usize];
                answer.see(&delta);
                answer.content.push_str(&delta.content);
                answer.tokens.extend(delta.tokens.iter().filter(|_| ids).map(|t| json!(t.token.id)));
                answer.probs.extend(delta.tokens.iter().filter(|_| probs).map(entry));
            }
            Output::Finished { choice, reason } => self.answers[choice as usize].finish = Some(reason),
            Output::End(account) => return Ok(Some(self.whole(&account))),
            Output::Searching { .. } | Output::Searched(_) => {}
            Output::Calling(_) | Output::Called(_) => {}
            Output::Browsing(_) | Output::Browsed(_) | Output::PipelineStep(_) => {}
            Output::Failed(why) => return Err(engine_error(why)),
            Output::Refused(refusal) => return Err(refused(refusal, "messages")),
        }
        Ok(None)
    }
}

impl LlamaText {
    fn see(&mut self, delta: &Delta) {
        self.count += delta.tokens.len();
        self.new_line |= delta.content.contains('\n');
    }
}

impl LlamaAnswer {
    /// One prompt gives an object, several an array of them.
    fn whole(&self, account: &RequestUsage) -> Value {
        match self.answers.len() {
            1 => self.ended(0, account),
            n => (0..n).map(|i| self.ended(i, account)).collect(),
        }
    }

    fn piece(&self, choice: u32, delta: &Delta) -> Value {
        let (i, tokens) = (choice as usize, delta.tokens.iter().map(|t| json!(t.token.id)).collect::<Vec<_>>());
        let mut piece = json!({"index": choice, "content": delta.content, "tokens": tokens, "stop": false,
            "id_slot": -1, "tokens_predicted": self.answers[i].count + tokens.len(),
            "tokens_evaluated": self.shape.prompts[i].tokens});
        if self.shape.reply.probs.is_some() {
            piece["completion_probabilities"] = delta.tokens.iter().map(entry).collect();
        }
        piece
    }

    /// All that is told at the end of an answer; its text only where none was told before.
    fn ended(&self, i: usize, account: &RequestUsage) -> Value {
        let (shape, prompt, answer) = (&self.shape, &self.shape.prompts[i], &self.answers[i]);
        // Of several prompts together nobody knows which had how many, but each token was seen.
        let (predicted, cached) = match self.answers.len() {
            1 => (account.completion_tokens as usize, account.cached_tokens),
            _ => (answer.count, 0),
        };
        let (kind, word) = stop_type(answer.finish, &shape.stops);
        let full = shape.unbounded || account.room.is_some();
        let mut settings = shape.settings.clone();
        settings["seed"] = json!(self.begun.envelope.seed);
        let mut object = json!({
            "index": i,
            "content": answer.content,
            "tokens": answer.tokens,
            "id_slot": -1,
            "stop": true,
            "model": self.begun.envelope.model,
            "tokens_predicted": predicted,
            "tokens_evaluated": prompt.tokens,
            "generation_settings": settings,
            "prompt": prompt.text,
            "has_new_line": answer.new_line,
            "truncated": kind == "limit" && full,
            "stop_type": kind,
            "stopping_word": word,
            "tokens_cached": cached,
            "timings": timings(&account.timings, prompt.tokens - cached as usize, cached, predicted),
        });
        if !answer.probs.is_empty() {
            object["completion_probabilities"] = json!(answer.probs);
        }
        chosen(object, &shape.reply.fields)
    }
}

/// Why an answer ended, and the stop string if it was one.
fn stop_type(finish: Option<Finish>, stops: &[String]) -> (&'static str, &str) {
    match finish {
        Some(Finish::Length) => ("limit", ""),
        Some(Finish::StopString(n)) => ("word", stops.get(n).map_or("", String::as_str)),
        Some(Finish::Stop | Finish::ToolCalls) => ("eos", ""),
        None => ("none", ""),
    }
}

/// The fields with these paths, each under its path; all where none is named.
fn chosen(object: Value, fields: &[String]) -> Value {
    if fields.is_empty() {
        return object;
    }
    let value = |path: &String| path.split('/').try_fold(&object, |value, part| value.get(part)).cloned();
    Value::Object(fields.iter().filter_map(|path| Some((path.clone(), value(path)?))).collect::<Map<_, _>>())
}

fn settings(generation: &Generation, reply: &LlamaReply) -> Value {
    let (spec, sampling) = (&generation.spec.engine, &generation.spec.engine.sampling);
    let limit = spec.max_tokens.map_or(-1, i64::from);
    let bias = sampling.logit_bias.iter().map(|(token, bias)| json!({"token": token, "bias": bias}));
    json!({
        "n_predict": limit,
        "max_tokens": limit,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": bias.collect::<Vec<_>>(),
        "stop": generation.spec.stop,
        "stream": generation.spec.stream,
        "n_probs": reply.probs.unwrap_or(0),
    })
}

/// Times in milliseconds, and tokens a second. Those of several prompts are of all of them.
fn timings(t: &Timings, prompt: usize, cached: u32, predicted: usize) -> Value {
    let ms = |time: Duration| time.as_micros() as f64 / 1e3;
    let each = |time: Duration, n: usize| ms(time) / n.max(1) as f64;
    let rate = |time: Duration, n: usize| if time.is_zero() { 0.0 } else { n as f64 / time.as_secs_f64() };
    json!({
        "cache_n": cached,
        "prompt_n": prompt,
        "prompt_ms": ms(t.prefill),
        "prompt_per_token_ms": each(t.prefill, prompt),
        "prompt_per_second": rate(t.prefill, prompt),
        "predicted_n": predicted,
        "predicted_ms": ms(t.decode),
        "predicted_per_token_ms": each(t.decode, predicted),
        "predicted_per_second": rate(t.decode, predicted),
    })
}

fn entry(scored: &Scored) -> Value {
    let mut entry = piece(&scored.token);
    entry["top_logprobs"] = scored.top.iter().map(piece).collect();
    entry
}

fn piece(token: &ShownToken) -> Value {
    json!({"id": token.id, "token": token.text, "bytes": token.bytes, "logprob": logprob(token.logprob)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_chosen_by_their_paths_and_what_is_not_there_is_left_out() {
        let object = json!({"a": {"b": 1}, "c": "x"});
        assert_eq!(chosen(object.clone(), &[]), object);
        let paths: Vec<String> = ["a/b", "c", "a/x", "d"].map(str::to_owned).to_vec();
        assert_eq!(chosen(object, &paths), json!({"a/b": 1, "c": "x"}));
    }

    #[test]
    fn times_give_rates_and_no_tokens_give_none() {
        let t = Timings { prefill: Duration::from_millis(50), ..Timings::default() };
        let told = timings(&t, 10, 3, 0);
        assert_eq!((&told["prompt_per_second"], &told["prompt_per_token_ms"]), (&json!(200.0), &json!(5.0)));
        assert_eq!((&told["predicted_per_second"], &told["predicted_per_token_ms"]), (&json!(0.0), &json!(0.0)));
    }
}
