//! Choices of `/v1/completions`.

use super::{Shape, logprob};
use crate::actors::output::{Delta, Finish, Scored};
use serde_json::{Map, Value, json};

/// Replies whose choices are plain texts.
#[derive(Debug)]
pub struct Completion {
    logprobs: bool,
    /// One entry a prompt.
    prompts: Vec<Prompt>,
    choices_per_prompt: u32,
    /// Characters that a choice has so far.
    offsets: Vec<usize>,
}

/// A prompt that comes back before its completions.
#[derive(Clone, Debug)]
pub struct Echo {
    /// The text of the whole prompt.
    pub text: String,
    /// The text of its first token, which has no log-probability.
    pub first: String,
}

#[derive(Debug)]
struct Prompt {
    echo: Option<Echo>,
    scored: Vec<Scored>,
}

impl Completion {
    /// For some prompts, each with or without an echo, with this many choices each.
    pub fn new(logprobs: bool, echoes: Vec<Option<Echo>>, choices_per_prompt: u32) -> Self {
        let offsets = vec![0; echoes.len() * choices_per_prompt as usize];
        let prompts = echoes.into_iter().map(|echo| Prompt { echo, scored: Vec::new() }).collect();
        Self { logprobs, prompts, choices_per_prompt, offsets }
    }

    /// The echoed prompt with its scores, if it is wanted.
    fn echoed(&mut self, choice: u32) -> Option<(String, Logprobs)> {
        let prompt = &self.prompts[(choice / self.choices_per_prompt) as usize];
        let echo = prompt.echo.clone()?;
        let mut logprobs = Logprobs::default();
        let offset = &mut self.offsets[choice as usize];
        if self.logprobs {
            logprobs.unscored(&echo.first, offset);
            prompt.scored.iter().for_each(|t| logprobs.push(t, offset));
        }
        *offset = echo.text.chars().count();
        Some((echo.text, logprobs))
    }

    fn logprobs_of(&mut self, choice: u32, tokens: &[Scored]) -> Logprobs {
        let mut logprobs = Logprobs::default();
        tokens.iter().for_each(|t| logprobs.push(t, &mut self.offsets[choice as usize]));
        logprobs
    }

    fn choice(&self, choice: u32, text: &str, logprobs: Logprobs, reason: Option<Finish>, whole: bool) -> Value {
        let shown = self.logprobs && (whole || !logprobs.tokens.is_empty());
        let logprobs = if shown { logprobs.json() } else { Value::Null };
        json!({"index": choice, "text": text, "logprobs": logprobs, "finish_reason": reason.map(Finish::name)})
    }
}

impl Shape for Completion {
    fn objects(&self) -> (&'static str, &'static str) {
        ("text_completion", "text_completion")
    }

    fn opening(&mut self, choice: u32) -> Vec<Value> {
        let echoed = self.echoed(choice);
        echoed.into_iter().map(|(text, logprobs)| self.choice(choice, &text, logprobs, None, false)).collect()
    }

    fn scored(&mut self, prompt: u32, tokens: Vec<Scored>) {
        self.prompts[prompt as usize].scored.extend(tokens);
    }

    fn delta(&mut self, choice: u32, delta: Delta) -> Value {
        let logprobs = self.logprobs_of(choice, &delta.tokens);
        self.choice(choice, &delta.content, logprobs, None, false)
    }

    fn ending(&mut self, choice: u32, reason: Finish) -> Value {
        self.choice(choice, "", Logprobs::default(), Some(reason), false)
    }

    fn whole(&mut self, choice: u32, all: Delta, reason: Finish) -> Value {
        let (mut text, mut logprobs) = self.echoed(choice).unwrap_or_default();
        text.push_str(&all.content);
        logprobs.extend(self.logprobs_of(choice, &all.tokens));
        self.choice(choice, &text, logprobs, Some(reason), true)
    }
}

/// The four columns of log-probabilities.
#[derive(Debug, Default)]
struct Logprobs {
    tokens: Vec<Value>,
    logprobs: Vec<Value>,
    top: Vec<Value>,
    offsets: Vec<Value>,
}

impl Logprobs {
    /// Adds a token at `offset`, in characters, and moves that on. The token itself is among the top ones even where it is not one of the
    /// most probable, as clients of this endpoint expect.
    fn push(&mut self, scored: &Scored, offset: &mut usize) {
        let mut top = scored.top.iter().map(|p| (p.text.clone(), logprob(p.logprob))).collect::<Map<_, _>>();
        top.entry(scored.token.text.clone()).or_insert_with(|| logprob(scored.token.logprob));
        self.row(&scored.token.text, logprob(scored.token.logprob), Value::Object(top), offset);
    }

    fn unscored(&mut self, text: &str, offset: &mut usize) {
        self.row(text, Value::Null, Value::Null, offset);
    }

    fn row(&mut self, text: &str, logprob: Value, top: Value, offset: &mut usize) {
        self.tokens.push(json!(text));
        self.logprobs.push(logprob);
        self.top.push(top);
        self.offsets.push(json!(*offset));
        *offset += text.chars().count();
    }

    fn extend(&mut self, more: Logprobs) {
        self.tokens.extend(more.tokens);
        self.logprobs.extend(more.logprobs);
        self.top.extend(more.top);
        self.offsets.extend(more.offsets);
    }

    fn json(self) -> Value {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.logprobs,
            "top_logprobs": self.top,
            "text_offset": self.offsets,
        })
    }
}
