//! `chimere chat`: a conversation in the terminal, streamed. What the model thinks is dimmed; Ctrl-C ends the running answer.

use crate::tools::CliError;
use crate::tools::client::{Failure, Server};
use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use tokio::sync::mpsc;

/// Talks to a running service.
#[derive(clap::Args, Debug, Clone)]
pub struct ChatArgs {
    /// Address of the service; plain HTTP.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Instruction that stands before the conversation.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Tokens an answer may have, its thoughts included [default: what the context leaves].
    #[arg(long, value_name = "TOKENS")]
    pub max_tokens: Option<u32>,
    /// 0 takes the most probable token each time [default: the model's own].
    #[arg(long, value_name = "T")]
    pub temperature: Option<f32>,
    /// File whose first line is the API key to send.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
}

const HELP: &str = "\
/help            this list
/reset           forget the conversation
/think on|off    let the model think before it answers, or not
/exit            leave (so does Ctrl-D; Ctrl-C ends a running answer)
";

/// Runs the conversation until the input ends.
pub fn run(args: &ChatArgs) -> Result<(), CliError> {
    actix_rt::System::new().block_on(talk(args))
}

async fn talk(args: &ChatArgs) -> Result<(), CliError> {
    let server = Server::new(&args.url, args.api_key_file.as_deref())?;
    let model = find_model(&server).await?;
    let screen = Screen { color: std::io::stdout().is_terminal(), prompt: std::io::stdin().is_terminal() };
    if screen.prompt {
        println!("{model} at {}; /help lists the commands", server.base());
    }
    let mut chat = Conversation::new(model, args);
    let mut lines = Lines::start();
    let mut failed = None;
    loop {
        screen.ask();
        let Some(line) = lines.next().await else { break };
        match Command::parse(&line) {
            Command::Exit => break,
            Command::Nothing => {}
            Command::Show(text) => print!("{text}"),
            Command::Reset => chat.messages.truncate(chat.kept),
            Command::Think(on) => chat.think = Some(on),
            Command::Say(text) => failed = say(&server, &mut chat, text, &screen).await.err(),
        }
    }
    // In a pipe the last line's failure is the command's; at a terminal it was shown when it happened.
    match failed {
        Some(failure) if !screen.prompt => Err(CliError::Failed(failure.to_string())),
        _ => Ok(()),
    }
}

async fn find_model(server: &Server) -> Result<String, CliError> {
    let start = "start one with `chimere serve`, or name another with --url";
    let models = server.get("/v1/models").await.map_err(|e| match e {
        Failure::Connect(_) => CliError::Failed(format!("no server at {} ({e}); {start}", server.base())),
        e => CliError::Failed(format!("{}: {e}", server.base())),
    })?;
    Ok(models["data"][0]["id"].as_str().unwrap_or_default().to_owned())
}

/// Asks and shows the answer. What a cancelled answer had said so far stays in the conversation; a failed one leaves no trace.
async fn say(server: &Server, chat: &mut Conversation, text: String, screen: &Screen) -> Result<(), Failure> {
    chat.messages.push(json!({ "role": "user", "content": text }));
    let (body, mut answer) = (chat.body(), String::new());
    let ended = tokio::select! {
        ended = stream(server, &body, screen, &mut answer) => ended,
        _ = tokio::signal::ctrl_c() => { screen.end(); println!("(stopped)"); Ok(()) }
    };
    match &ended {
        Ok(()) => chat.messages.push(json!({ "role": "assistant", "content": answer })),
        Err(failure) => {
            chat.messages.pop();
            screen.end();
            eprintln!("{failure}");
        }
    }
    ended
}

async fn stream(server: &Server, body: &Value, screen: &Screen, answer: &mut String) -> Result<(), Failure> {
    let mut events = server.stream("/v1/chat/completions", body).await?;
    let mut thinking = false;
    while let Some(event) = events.next().await? {
        let delta = &event["choices"][0]["delta"];
        if let Some(thought) = delta["reasoning_content"].as_str().filter(|t| !t.is_empty()) {
            screen.thought(thought);
            thinking = true;
        }
        if let Some(text) = delta["content"].as_str().filter(|t| !t.is_empty()) {
            if std::mem::take(&mut thinking) {
                screen.end_thought();
            }
            screen.text(text);
            answer.push_str(text);
        }
    }
    screen.end();
    Ok(())
}

/// What was said, and how to go on.
struct Conversation {
    model: String,
    messages: Vec<Value>,
    /// Messages that /reset keeps: the system prompt.
    kept: usize,
    think: Option<bool>,
    max_tokens: Option<u32>,
    temperature: Option<f32>,
}

impl Conversation {
    fn new(model: String, args: &ChatArgs) -> Self {
        let messages: Vec<Value> = args.system.iter().map(|text| json!({ "role": "system", "content": text })).collect();
        let kept = messages.len();
        Self { model, messages, kept, think: None, max_tokens: args.max_tokens, temperature: args.temperature }
    }

    fn body(&self) -> Value {
        let mut body = json!({ "model": self.model, "messages": self.messages, "stream": true });
        if let Some(think) = self.think {
            body["chat_template_kwargs"] = json!({ "enable_thinking": think });
        }
        if let Some(n) = self.max_tokens {
            body["max_tokens"] = json!(n);
        }
        if let Some(t) = self.temperature {
            body["temperature"] = json!(t);
        }
        body
    }
}

/// A line of input, understood.
#[derive(Debug, PartialEq)]
enum Command {
    Nothing,
    Exit,
    Reset,
    Think(bool),
    Show(String),
    Say(String),
}

impl Command {
    fn parse(line: &str) -> Self {
        let line = line.trim();
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [] => Command::Nothing,
            ["/help"] => Command::Show(HELP.into()),
            ["/exit" | "/quit"] => Command::Exit,
            ["/reset"] => Command::Reset,
            ["/think", "on"] => Command::Think(true),
            ["/think", "off"] => Command::Think(false),
            [word, ..] if word.starts_with('/') => Command::Show(format!("no command {line:?}\n{HELP}")),
            _ => Command::Say(line.into()),
        }
    }
}

/// Where the answer goes. Escape codes only to a terminal.
struct Screen {
    color: bool,
    prompt: bool,
}

impl Screen {
    fn ask(&self) {
        if self.prompt {
            self.write("> ");
        }
    }

    fn thought(&self, text: &str) {
        match self.color {
            true => self.write(&format!("\x1b[2m{text}\x1b[22m")),
            false => self.write(text),
        }
    }

    fn end_thought(&self) {
        self.write("\n\n");
    }

    fn text(&self, text: &str) {
        self.write(text);
    }

    fn end(&self) {
        self.write("\n");
    }

    /// A closed standard output shows at the next line of input; an answer is not worth a panic.
    fn write(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// Lines of standard input, read on a thread of their own: reading blocks, and Ctrl-C must work meanwhile.
struct Lines(mpsc::Receiver<String>);

impl Lines {
    fn start() -> Self {
        let (sender, receiver) = mpsc::channel(1);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    break;
                }
            }
        });
        Self(receiver)
    }

    /// `None` at the end of the input, or on Ctrl-C while nothing runs.
    async fn next(&mut self) -> Option<String> {
        tokio::select! {
            line = self.0.recv() => line,
            _ = tokio::signal::ctrl_c() => { println!(); None }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ChatArgs,
    }

    #[test]
    fn a_slash_is_a_command_and_everything_else_is_said() {
        assert_eq!(Command::parse("  /think  off "), Command::Think(false));
        assert_eq!(Command::parse("/exit"), Command::Exit);
        assert_eq!(Command::parse(" what is 2/3? "), Command::Say("what is 2/3?".into()));
        assert_eq!(Command::parse(""), Command::Nothing);
        assert!(matches!(Command::parse("/think maybe"), Command::Show(text) if text.contains("/think maybe")));
    }

    #[test]
    fn only_what_the_user_set_is_sent() {
        let mut chat = Conversation::new("nano".into(), &Cli::parse_from(["x", "--system", "be brief"]).args);
        chat.messages.push(json!({ "role": "user", "content": "hi" }));
        let keys = |chat: &Conversation| chat.body().as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&chat), ["model", "messages", "stream"]);
        chat.think = Some(false);
        assert_eq!(chat.body()["chat_template_kwargs"], json!({ "enable_thinking": false }));
        chat.messages.truncate(chat.kept);
        assert_eq!(chat.messages, [json!({ "role": "system", "content": "be brief" })]);
    }
}
