//! Choices of `/v1/completions`.

use super::choices::ChoiceFormat;
use crate::actors::request::output::{Delta, Finish, Scored, ShownToken};
use crate::http::wire::json::logprob;
use crate::text::detokenizer::whole;
use serde_json::{Map, Value, json};

/// Replies whose choices are plain texts.
#[derive(Debug)]
pub(super) struct Completion {
    logprobs: bool,
    /// One entry a prompt.
    prompts: Vec<CompletionPrompt>,
    choices_per_prompt: u32,
    /// How far each choice's text has come.
    places: Vec<TextOffset>,
}

/// How far a text has come.
#[derive(Clone, Debug, Default)]
struct TextOffset {
    /// Characters that are whole.
    characters: usize,
    /// Bytes of one that is not.
    held: Vec<u8>,
}

impl TextOffset {
    /// Goes on by some bytes of the text. What is no text counts as it is shown, by replacement characters.
    fn advance(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        let end = whole(&self.held);
        self.characters += String::from_utf8_lossy(&self.held[..end]).chars().count();
        self.held.drain(..end);
    }
}

/// A prompt that comes back before its completions.
#[derive(Clone, Debug)]
pub(super) struct Echo {
    /// The text of the whole prompt.
    pub text: String,
    /// The bytes of its first token, which has no log-probability.
    pub first: Vec<u8>,
}

#[derive(Debug)]
struct CompletionPrompt {
    echo: Option<Echo>,
    scored: Vec<Scored>,
}

impl Completion {
    /// For some prompts, each with or without an echo, with this many choices each.
    pub(super) fn new(logprobs: bool, echoes: Vec<Option<Echo>>, choices_per_prompt: u32) -> Self {
        let places = vec![TextOffset::default(); echoes.len() * choices_per_prompt as usize];
        let prompts = echoes.into_iter().map(|echo| CompletionPrompt { echo, scored: Vec::new() }).collect();
        Self { logprobs, prompts, choices_per_prompt, places }
    }

    /// The echoed prompt with its scores, if it is wanted.
    fn echoed(&mut self, choice: u32) -> Option<(String, Logprobs)> {
        let prompt = &self.prompts[(choice / self.choices_per_prompt) as usize];
        let echo = prompt.echo.clone()?;
        let mut logprobs = Logprobs::default();
        let place = &mut self.places[choice as usize];
        if self.logprobs {
            logprobs.unscored(&echo.first, place);
            prompt.scored.iter().for_each(|t| logprobs.push(t, place));
        }
        *place = TextOffset { characters: echo.text.chars().count(), held: Vec::new() };
        Some((echo.text, logprobs))
    }

    fn logprobs_of(&mut self, choice: u32, tokens: &[Scored]) -> Logprobs {
        let mut logprobs = Logprobs::default();
        tokens.iter().for_each(|t| logprobs.push(t, &mut self.places[choice as usize]));
        logprobs
    }

    fn choice(&self, choice: u32, text: &str, logprobs: Logprobs, reason: Option<Finish>, whole: bool) -> Value {
        let shown = self.logprobs && (whole || !logprobs.tokens.is_empty());
        let logprobs = if shown { logprobs.json() } else { Value::Null };
        json!({"index": choice, "text": text, "logprobs": logprobs, "finish_reason": reason.map(Finish::name)})
    }
}

impl ChoiceFormat for Completion {
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
    /// Adds a token where the text has come to. The token itself is among the top ones even where it is not one of the
    /// most probable, as clients of this endpoint expect.
    fn push(&mut self, scored: &Scored, place: &mut TextOffset) {
        let mut top = Map::new();
        for piece in scored.top.iter().chain([&scored.token]) {
            top.entry(name(&piece.bytes)).or_insert_with(|| logprob(piece.logprob));
        }
        let ShownToken { bytes, logprob: own, .. } = &scored.token;
        self.row(bytes, logprob(*own), Value::Object(top), place);
        if scored.shown {
            place.advance(bytes);
        }
    }

    fn unscored(&mut self, bytes: &[u8], place: &mut TextOffset) {
        self.row(bytes, Value::Null, Value::Null, place);
        place.advance(bytes);
    }

    fn row(&mut self, bytes: &[u8], logprob: Value, top: Value, place: &TextOffset) {
        self.tokens.push(json!(name(bytes)));
        self.logprobs.push(logprob);
        self.top.push(top);
        self.offsets.push(json!(place.characters));
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

/// A token by its text. One that is a part of a character has none of its own, and many such look alike, so it is
/// written byte by byte, as OpenAI does: `bytes:\xe6\x97`.
fn name(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |name, byte| name + &format!("\\x{byte:02x}")),
    }
}
