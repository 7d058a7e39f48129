//! What a line of input asks for.

/// All commands with their arguments and what they do, as `/help` shows them.
pub(super) const COMMANDS: &[(&str, &str)] = &[
    ("/help", "this list"),
    ("/think on|off", "let the model think before it answers, or not"),
    ("/system TEXT", "the instruction before the conversation; without TEXT there is none"),
    ("/retry", "ask the last question again"),
    ("/undo", "take the last question and its answer back"),
    ("/reset", "forget the conversation, but not the instruction"),
    ("/save FILE", "write the conversation to a new file, as JSON"),
    ("/load FILE", "go on from such a file"),
    ("/model [NAME]", "which models there are, or talk to another"),
    ("/stats", "tokens and rates so far"),
    ("/exit", "leave (so does Ctrl-D; Ctrl-C stops an answer or clears the line)"),
];

/// A line of input, understood.
#[derive(Debug, PartialEq)]
pub(super) enum ChatCommand {
    Nothing,
    Exit,
    Reset,
    Think(bool),
    System(String),
    Retry,
    Undo,
    Save(String),
    Load(String),
    Model(Option<String>),
    Stats,
    Show(String),
    /// There is no such command; the text says which there are.
    Wrong(String),
    Say(String),
}

impl ChatCommand {
    pub(super) fn parse(line: &str) -> Self {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (word, rest.trim()) {
            ("", _) => Self::Nothing,
            ("/help", "") => Self::Show(help()),
            ("/exit" | "/quit", "") => Self::Exit,
            ("/reset", "") => Self::Reset,
            ("/think", "on") => Self::Think(true),
            ("/think", "off") => Self::Think(false),
            ("/system", text) => Self::System(text.into()),
            ("/retry", "") => Self::Retry,
            ("/undo", "") => Self::Undo,
            ("/save", file) if !file.is_empty() => Self::Save(file.into()),
            ("/load", file) if !file.is_empty() => Self::Load(file.into()),
            ("/model", name) => Self::Model(Some(name).filter(|name| !name.is_empty()).map(str::to_owned)),
            ("/stats", "") => Self::Stats,
            // A path or a comment is text all the same.
            (word, _) if is_command_like(word) => Self::Wrong(format!("no command {line:?}; there are\n{}", help())),
            _ => Self::Say(line.into()),
        }
    }
}

fn is_command_like(word: &str) -> bool {
    word.strip_prefix('/').is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic()))
}

fn help() -> String {
    COMMANDS.iter().map(|(name, what)| format!("{name:<16} {what}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_is_a_command_and_everything_else_is_said() {
        assert_eq!(ChatCommand::parse("  /think  off "), ChatCommand::Think(false));
        assert_eq!(ChatCommand::parse("/exit"), ChatCommand::Exit);
        assert_eq!(ChatCommand::parse("/save a b.json"), ChatCommand::Save("a b.json".into()));
        assert_eq!(ChatCommand::parse("/system"), ChatCommand::System(String::new()));
        assert_eq!(ChatCommand::parse("/model nano"), ChatCommand::Model(Some("nano".into())));
        assert_eq!(ChatCommand::parse(" what is 2/3? "), ChatCommand::Say("what is 2/3?".into()));
        assert_eq!(ChatCommand::parse("/etc/passwd holds what?"), ChatCommand::Say("/etc/passwd holds what?".into()));
        assert_eq!(ChatCommand::parse("two\nlines"), ChatCommand::Say("two\nlines".into()));
        assert_eq!(ChatCommand::parse(""), ChatCommand::Nothing);
        for wrong in ["/think maybe", "/save", "/undo twice", "/sing"] {
            assert!(matches!(ChatCommand::parse(wrong), ChatCommand::Wrong(text) if text.contains(wrong)), "{wrong}");
        }
    }

    #[test]
    fn help_names_every_command() {
        let ChatCommand::Show(help) = ChatCommand::parse("/help") else { panic!("help is shown") };
        for (name, _) in COMMANDS {
            let first = name.split(' ').next().unwrap();
            assert!(
                help.contains(name)
                    && ChatCommand::parse(&format!("{first} x")) != ChatCommand::Say(format!("{first} x"))
            );
        }
    }
}
