//! Where an answer goes: to a terminal drawn, coloured and broken between words, to anything else as it is, thoughts
//! beside it.

use super::counted;
use super::glyphs::Style;
use super::markdown::Painter;
use super::prose::{self, Prose};
use chimere::printable::printable;
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;

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
        f.write_str(&counted(self.tokens, "token"))?;
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
    /// Thoughts, and without colours the answer as well.
    prose: Prose,
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
        let (painter, prose, part) = (Painter::default(), Prose::default(), LastWritten::Nothing);
        Self { terminal, color: terminal && wished, painter, prose, part }
    }

    fn dim(&self) -> Style {
        if self.color { Style::DIM } else { Style::PLAIN }
    }

    /// Beside the answer: dimmed before it at a terminal, on standard error where the answer goes through a pipe.
    pub(super) fn thought(&mut self, text: &str) {
        if std::mem::replace(&mut self.part, LastWritten::Thought) == LastWritten::Nothing {
            self.prose = Prose::new(self.dim());
        }
        let text = printable(text);
        if self.terminal {
            write(&self.prose.push(&text, width(&std::io::stdout())));
        } else {
            eprint(&text);
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        match std::mem::replace(&mut self.part, LastWritten::Text) {
            LastWritten::Thought if self.terminal => write(&(self.prose.end() + "\n\n")),
            LastWritten::Thought => eprint("\n"),
            LastWritten::Nothing | LastWritten::Text => {}
        }
        let columns = width(&std::io::stdout());
        match (self.terminal, self.color) {
            (true, true) => {
                self.painter.set_width(columns);
                write(&self.painter.push(&printable(text)));
            }
            (true, false) => write(&self.prose.push(&printable(text), columns)),
            // Who takes it through a pipe takes it as it is.
            (false, _) => write(text),
        }
    }

    /// The answer is over, or has failed: one that failed before its first word leaves nothing on standard output.
    pub(super) fn end(&mut self, failed: bool) {
        let rest = std::mem::take(&mut self.painter).end() + &std::mem::take(&mut self.prose).end();
        write(&rest);
        match std::mem::replace(&mut self.part, LastWritten::Nothing) {
            LastWritten::Thought if !self.terminal => eprint("\n"),
            LastWritten::Nothing if failed => {}
            _ => write("\n"),
        }
    }

    /// Writes tokens and times below an answer.
    pub(super) fn figures(&self, figures: Option<&AnswerFigures>, stopped: bool) {
        match figures {
            _ if !self.terminal => {}
            Some(figures) => self.note(&figures.to_string()),
            None if stopped => self.note("stopped"),
            // A service that does not count.
            None => {}
        }
    }

    /// Of the program itself: on standard error where answers go through a pipe.
    pub(super) fn note(&self, text: &str) {
        let text = printable(text);
        if self.terminal {
            write(&prose::lines(&text, self.dim(), width(&std::io::stdout())));
        } else {
            eprint(&format!("{text}\n"));
        }
    }

    pub(super) fn trouble(&self, text: &str) {
        eprint(&prose::lines(&printable(text), Style::PLAIN, width(&std::io::stderr())));
    }
}

/// Columns of the terminal that this is, if it is one and says how many it has.
fn width(of: &impl AsFd) -> Option<usize> {
    terminal_size::terminal_size_of(of).map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0)
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
        let one = json!({"usage": {"completion_tokens": 1, "prompt_tokens": 9}});
        assert_eq!(AnswerFigures::of(&one).unwrap().to_string(), "1 token");
    }
}
