//! What was said, and how to go on.

use super::screen::AnswerFigures;
use super::{ChatArgs, counted};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// A conversation file larger than this is none of ours.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Messages, and what goes with each request.
pub(super) struct ChatHistory {
    pub(super) model: String,
    messages: Vec<Value>,
    /// Documents that answers may rely on.
    documents: Vec<Value>,
    /// The tool that searches stores of files before each answer.
    search: Option<Value>,
    pub(super) think: Option<bool>,
    max_tokens: Option<u32>,
    temperature: Option<f32>,
    totals: AnswerTotals,
}

/// Of all answers so far.
#[derive(Default)]
struct AnswerTotals {
    answers: u32,
    tokens: u64,
    seconds: f64,
    prompt_tokens: u64,
    cached_tokens: u64,
}

impl ChatHistory {
    pub(super) fn new(model: String, args: &ChatArgs, (documents, search): (Vec<Value>, Option<Value>)) -> Self {
        let messages = args.system.iter().map(|text| message("system", text)).collect();
        let (max_tokens, temperature) = (args.max_tokens, args.temperature);
        let (think, totals) = (None, AnswerTotals::default());
        Self { model, messages, documents, search, think, max_tokens, temperature, totals }
    }

    /// The body of the next request.
    pub(super) fn body(&self) -> Value {
        let mut body = json!({
            "model": self.model,
            "messages": self.messages,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        if let Some(think) = self.think {
            body["chat_template_kwargs"] = json!({ "enable_thinking": think });
        }
        if !self.documents.is_empty() {
            body["engram"] = json!({ "documents": self.documents });
        }
        if let Some(search) = &self.search {
            body["tools"] = json!([search]);
        }
        if let Some(n) = self.max_tokens {
            body["max_tokens"] = json!(n);
        }
        if let Some(t) = self.temperature {
            body["temperature"] = json!(t);
        }
        body
    }

    pub(super) fn ask(&mut self, text: String) {
        self.messages.push(message("user", &text));
    }

    pub(super) fn answered(&mut self, text: String, figures: Option<&AnswerFigures>) {
        self.messages.push(message("assistant", &text));
        self.totals.answers += 1;
        if let Some(figures) = figures {
            self.totals.tokens += figures.tokens;
            self.totals.seconds += figures.seconds;
            self.totals.prompt_tokens += figures.prompt_tokens;
            self.totals.cached_tokens += figures.cached_tokens;
        }
    }

    /// The question had no answer: it was never asked.
    pub(super) fn failed(&mut self) {
        self.messages.pop();
    }

    /// Forgets all but the instruction.
    pub(super) fn reset(&mut self) {
        self.messages.retain(|message| message["role"] == "system");
    }

    /// Sets the instruction, or takes it away.
    pub(super) fn set_system(&mut self, text: &str) {
        self.messages.retain(|message| message["role"] != "system");
        if !text.is_empty() {
            self.messages.insert(0, message("system", text));
        }
    }

    /// Takes the last question and all that followed back; the question.
    pub(super) fn undo(&mut self) -> Option<String> {
        let at = self.messages.iter().rposition(|message| message["role"] == "user")?;
        let question = self.messages[at]["content"].as_str().map(str::to_owned);
        self.messages.truncate(at);
        question
    }

    /// Forgets the last answer, so that its question can be asked again. What was said until now, for
    /// [`put_back`](Self::put_back).
    pub(super) fn retry(&mut self) -> Result<Vec<Value>, String> {
        let before = self.messages.clone();
        let question = self.undo().ok_or("nothing was asked yet")?;
        self.ask(question);
        Ok(before)
    }

    /// No other answer came: that of before stays.
    pub(super) fn put_back(&mut self, before: Vec<Value>) {
        self.messages = before;
    }

    pub(super) fn stats(&self) -> String {
        let AnswerTotals { answers, tokens, seconds, prompt_tokens, cached_tokens } = self.totals;
        let rate = if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
        format!(
            "{} of {}, {rate:.1} a second; {} of prompts, of which {cached_tokens} were cached; {}",
            counted(answers.into(), "answer"),
            counted(tokens, "token"),
            counted(prompt_tokens, "token"),
            counted(self.messages.len() as u64, "message")
        )
    }

    /// Writes the conversation to a file that does not exist yet. How many messages it has.
    pub(super) fn save(&self, file: &Path) -> Result<usize, String> {
        let said = |e: std::io::Error| format!("cannot write {}: {e}", file.display());
        let document = json!({ "model": self.model, "messages": self.messages });
        let mut out = std::fs::File::create_new(file).map_err(said)?;
        writeln!(out, "{document:#}").map_err(said)?;
        Ok(self.messages.len())
    }

    /// Goes on from such a file. How many messages it has.
    pub(super) fn load(&mut self, file: &Path) -> Result<usize, String> {
        let name = file.display();
        let meta = std::fs::metadata(file).map_err(|e| format!("cannot read {name}: {e}"))?;
        if !meta.is_file() || meta.len() > FILE_BYTES_MAX {
            return Err(format!("{name} is no file of at most {} MiB", FILE_BYTES_MAX >> 20));
        }
        let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {name}: {e}"))?;
        let document: Value = serde_json::from_str(&text).map_err(|e| format!("{name} is no JSON: {e}"))?;
        let messages = document["messages"].as_array().ok_or_else(|| format!("{name} has no messages"))?;
        if let Some(at) = messages.iter().position(|m| !m["role"].is_string() || !m["content"].is_string()) {
            return Err(format!("{name}: messages[{at}] has not both a role and a text"));
        }
        self.messages = messages.clone();
        Ok(self.messages.len())
    }
}

fn message(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat() -> ChatHistory {
        ChatHistory {
            model: "nano".into(),
            messages: vec![message("system", "be brief")],
            documents: Vec::new(),
            search: None,
            think: None,
            max_tokens: None,
            temperature: None,
            totals: AnswerTotals::default(),
        }
    }

    fn texts(chat: &ChatHistory) -> Vec<&str> {
        chat.messages.iter().map(|m| m["content"].as_str().unwrap()).collect()
    }

    #[test]
    fn questions_are_taken_back_asked_again_and_forgotten() {
        let mut chat = chat();
        assert_eq!((chat.undo(), chat.retry().is_err()), (None, true));
        chat.ask("one".into());
        chat.answered("1".into(), None);
        chat.ask("two".into());
        chat.answered("3".into(), None);
        let before = chat.retry().unwrap();
        assert_eq!(texts(&chat), ["be brief", "one", "1", "two"]);
        chat.failed();
        chat.put_back(before);
        assert_eq!(texts(&chat), ["be brief", "one", "1", "two", "3"]);
        assert_eq!(chat.undo().as_deref(), Some("two"));
        assert_eq!(chat.undo().as_deref(), Some("one"));
        assert_eq!(texts(&chat), ["be brief"]);
        chat.ask("again".into());
        chat.set_system("be long");
        assert_eq!(texts(&chat), ["be long", "again"]);
        chat.reset();
        chat.set_system("");
        assert!(chat.messages.is_empty());
    }

    #[test]
    fn one_answer_is_one_and_several_are_several() {
        let mut chat = chat();
        chat.ask("one".into());
        let figures = AnswerFigures { tokens: 1, seconds: 0.0, first_ms: 0.0, prompt_tokens: 9, cached_tokens: 0 };
        chat.answered("1".into(), Some(&figures));
        assert!(chat.stats().starts_with("1 answer of 1 token, "), "{}", chat.stats());
        chat.answered("1".into(), Some(&figures));
        assert!(chat.stats().starts_with("2 answers of 2 tokens, "), "{}", chat.stats());
    }

    #[test]
    fn a_conversation_is_saved_once_and_loaded_by_whoever_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("talk.json");
        let mut first = chat();
        first.ask("é \u{1b}[2J".into());
        assert_eq!(first.save(&file), Ok(2));
        assert!(first.save(&file).unwrap_err().contains("exists"), "nothing is written over");
        let mut other = chat();
        assert_eq!(other.load(&file), Ok(2));
        assert_eq!(texts(&other), texts(&first));
        for (text, why) in [
            ("[", "no JSON"),
            ("{}", "has no messages"),
            (r#"{"messages": [{"role": "user", "content": "a"}, {"role": 3}]}"#, "messages[1]"),
        ] {
            std::fs::write(&file, text).unwrap();
            assert!(other.load(&file).unwrap_err().contains(why), "{text}");
        }
        assert!(other.load(folder.path()).is_err() && texts(&other) == texts(&first), "a bad file changes nothing");
    }
}
