//! Where an answer goes: to a terminal drawn and coloured, to anything else as it is, thoughts beside it.

use super::markdown::Painter;
use chimere::printable::printable;
use serde_json::Value;
use std::io::{IsTerminal, Write};

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Tokens and times of an answer, as the service reports them at its end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AnswerFigures {
    pub(super) tokens: u64,
    /// Seconds that generating the tokens took.
    pub(super) seconds: f64,
    pub(super) first_ms: f64,
    pub(super) prompt_tokens: u64,
    pub(super) cached_tokens: u64,
}

impl AnswerFigures {
    /// From the event that has them: `usage`, and this service's `timings` where there are any.
    pub(super) fn of(event: &Value) -> Option<Self> {
        let usage = Some(&event["usage"]).filter(|usage| usage.is_object())?;
        let count = |name: &str| usage[name].as_u64().unwrap_or(0);
        let ms = |name: &str| event["timings"][name].as_f64().unwrap_or(0.0);
        Some(Self {
            tokens: count("completion_tokens"),
            seconds: ms("decode_ms") / 1e3,
            first_ms: ms("ttft_ms"),
            prompt_tokens: count("prompt_tokens"),
            cached_tokens: usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0),
        })
    }
}

impl std::fmt::Display for AnswerFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens", self.tokens)?;
        if self.seconds > 0.0 {
            write!(f, ", {:.1} a second", self.tokens as f64 / self.seconds)?;
        }
        if self.first_ms > 0.0 {
            write!(f, ", the first after {:.0} ms", self.first_ms)?;
        }
        if self.cached_tokens > 0 {
            write!(f, ", {} of {} read before", self.cached_tokens, self.prompt_tokens)?;
        }
        Ok(())
    }
}

/// Standard output and standard error, with the state of the answer that is written to them.
pub(super) struct Screen {
    /// Standard output is a terminal.
    terminal: bool,
    /// And may be coloured.
    color: bool,
    painter: Painter,
    /// The kind of text that was written last.
    part: LastWritten,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum LastWritten {
    Nothing,
    Thought,
    Text,
}

impl Screen {
    pub(super) fn new(no_color: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let wished = !no_color && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { terminal, color: terminal && wished, painter: Painter::default(), part: LastWritten::Nothing }
    }

    /// Beside the answer: dimmed before it at a terminal, on standard error where the answer goes through a pipe.
    pub(super) fn thought(&mut self, text: &str) {
        self.part = LastWritten::Thought;
        let text = printable(text);
        match (self.terminal, self.color) {
            (true, true) => write(&format!("{DIM}{text}{PLAIN}")),
            (true, false) => write(&text),
            (false, _) => eprint(&text),
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        if std::mem::replace(&mut self.part, LastWritten::Text) == LastWritten::Thought {
            if self.terminal { write("\n\n") } else { eprint("\n") }
        }
        match (self.terminal, self.color) {
            (true, true) => write(&self.painter.push(&printable(text))),
            (true, false) => write(&printable(text)),
            // Who takes it through a pipe takes it as it is.
            (false, _) => write(text),
        }
    }

    /// The answer is over.
    pub(super) fn end(&mut self) {
        let rest = std::mem::take(&mut self.painter).end();
        if self.color {
            write(&rest);
        }
        match std::mem::replace(&mut self.part, LastWritten::Nothing) {
            LastWritten::Thought if !self.terminal => eprint("\n"),
            _ => write("\n"),
        }
    }

    /// Writes tokens and times below an answer.
    pub(super) fn figures(&self, figures: Option<&AnswerFigures>) {
        if self.terminal {
            self.note(&figures.map_or_else(|| "stopped".to_owned(), AnswerFigures::to_string));
        }
    }

    /// Of the program itself.
    pub(super) fn note(&self, text: &str) {
        let text = printable(text);
        let line = if self.color { format!("{DIM}{text}{PLAIN}\n") } else { format!("{text}\n") };
        write(&line);
    }

    pub(super) fn trouble(&self, text: &str) {
        eprint(&format!("{}\n", printable(text)));
    }
}

/// A closed standard output shows at the next line of input; an answer is not worth a panic.
fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn eprint(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_are_those_of_the_last_event_and_say_only_what_is_known() {
        assert_eq!(AnswerFigures::of(&json!({"choices": [], "usage": null})), None);
        let all = json!({
            "usage": {"completion_tokens": 50, "prompt_tokens": 90, "prompt_tokens_details": {"cached_tokens": 64}},
            "timings": {"decode_ms": 100.0, "ttft_ms": 12.3}
        });
        let said = AnswerFigures::of(&all).unwrap().to_string();
        assert_eq!(said, "50 tokens, 500.0 a second, the first after 12 ms, 64 of 90 read before");
        let other = json!({"usage": {"completion_tokens": 3, "prompt_tokens": 9}});
        assert_eq!(AnswerFigures::of(&other).unwrap().to_string(), "3 tokens");
    }
}
