//! Lines that somebody types, or that come through a pipe.
//!
//! At a terminal there is an editor: history that is kept from one conversation to the next, paste as one, more than
//! one line after a backslash or within a fence of code. Reading blocks, so a thread of its own does it, and only while
//! a line is wanted: in between, Ctrl-C belongs to the answer that runs.

use super::command::COMMANDS;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use tokio::sync::mpsc;

const PROMPT: &str = "> ";
/// Lines of history that are kept.
const HISTORY_LINES: usize = 1000;

/// One input of the user: a line, or a key that stands for something.
#[derive(Debug, PartialEq)]
pub(super) enum Typed {
    Line(String),
    /// Ctrl-C: what was typed so far is not meant.
    Cleared,
    /// Ctrl-D, or the end of a pipe.
    End,
}

/// Where lines come from.
pub(super) struct Input {
    asks: mpsc::Sender<()>,
    typed: mpsc::Receiver<Typed>,
    is_terminal: bool,
}

impl Input {
    pub(super) fn start() -> Self {
        let is_terminal = std::io::stdin().is_terminal();
        let (asks, asked) = mpsc::channel(1);
        let (sender, typed) = mpsc::channel(1);
        std::thread::spawn(move || if is_terminal { edit(asked, &sender) } else { read(asked, &sender) });
        Self { asks, typed, is_terminal }
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    pub(super) async fn next(&mut self) -> Typed {
        if self.asks.send(()).await.is_err() {
            return Typed::End;
        }
        tokio::select! {
            typed = self.typed.recv() => typed.unwrap_or(Typed::End),
            // The editor hears Ctrl-C itself; a pipe's reader does not.
            _ = tokio::signal::ctrl_c() => Typed::End,
        }
    }
}

fn read(mut asked: mpsc::Receiver<()>, typed: &mpsc::Sender<Typed>) {
    let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
    while asked.blocking_recv().is_some() {
        let line = lines.next().map_or(Typed::End, Typed::Line);
        if typed.blocking_send(line).is_err() {
            return;
        }
    }
}

fn edit(mut asked: mpsc::Receiver<()>, typed: &mpsc::Sender<Typed>) {
    let config = Config::builder().history_ignore_space(true).max_history_size(HISTORY_LINES);
    let config = config.map(|config| config.auto_add_history(true).build()).unwrap_or_default();
    let Ok(mut editor) = Editor::<LineHelper, FileHistory>::with_config(config) else {
        return read(asked, typed);
    };
    editor.set_helper(Some(LineHelper));
    let history = history_file();
    if let Some(file) = &history {
        // The first conversation has none.
        let _ = editor.load_history(file);
    }
    while asked.blocking_recv().is_some() {
        let line = match editor.readline(PROMPT) {
            Ok(line) => Typed::Line(line.replace("\\\n", "\n")),
            Err(ReadlineError::Interrupted) => Typed::Cleared,
            Err(_) => Typed::End,
        };
        if let (Some(file), Typed::Line(_)) = (&history, &line) {
            // A history that cannot be written is not worth a word in every conversation.
            let _ = editor.append_history(file);
        }
        if typed.blocking_send(line).is_err() {
            return;
        }
    }
}

/// Where shells keep such things: readable by its owner alone, which the editor sees to.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    let folder = state.join("chimere");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("chat_history"))
}

/// Answers the editor's questions about a line: whether it goes on, and which commands begin so.
struct LineHelper;

impl Helper for LineHelper {}
impl Highlighter for LineHelper {}

impl Hinter for LineHelper {
    type Hint = String;
}

impl Completer for LineHelper {
    type Candidate = String;

    /// Offers the commands that begin as the line does.
    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((0, commands_like(&line[..at])))
    }
}

fn commands_like(typed: &str) -> Vec<String> {
    let names = COMMANDS.iter().filter_map(|(name, _)| name.split(' ').next());
    names.filter(|name| typed.starts_with('/') && name.starts_with(typed)).map(str::to_owned).collect()
}

impl Validator for LineHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = goes_on(context.input());
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

/// A backslash at the end, or an open fence of code: the line is not all.
fn goes_on(input: &str) -> bool {
    input.ends_with('\\') || input.lines().filter(|line| line.trim_start().starts_with("```")).count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_on_after_a_backslash_and_within_code() {
        assert!(goes_on("one \\") && goes_on("look:\n```rust\nfn main() {}"));
        assert!(!goes_on("one") && !goes_on("look:\n```rust\nfn main() {}\n```") && !goes_on(""));
    }

    #[test]
    fn commands_are_completed_and_words_are_not() {
        assert_eq!(commands_like("/re"), ["/retry", "/reset"]);
        assert!(commands_like("re").is_empty() && commands_like("/save x").is_empty());
    }
}
