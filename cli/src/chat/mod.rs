//! `chimere chat`: a conversation in the terminal, streamed; or one question, for scripts.

mod command;
mod conversation;
mod glyphs;
mod inline;
mod input;
mod markdown;
mod prose;
mod screen;
mod stores;
mod table;
mod wrap;

use chimere_tools::CliError;
use chimere_tools::client::{Credentials, Failure, ServiceClient};
use command::ChatCommand;
use conversation::ChatHistory;
use input::{Input, Typed};
use screen::{AnswerFigures, Screen};
use serde_json::{Value, json};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use stores::Footnotes;

/// Bytes of standard input that go with a question.
const INPUT_BYTES_MAX: u64 = 8 << 20;

/// Talks to a running service.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ChatArgs {
    /// Ask this, print the answer and leave; what comes through a pipe stands below the question
    #[arg(value_name = "QUESTION")]
    pub(crate) question: Option<String>,
    /// Address of the service
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) url: String,
    /// Model to talk to [default: the first that the service names]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Instruction that stands before the conversation
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Text file whose sentences the answers may rely on; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) document: Vec<PathBuf>,
    /// Vector store, by its name or id, whose files the answers come from and cite; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) store: Vec<String>,
    /// Tokens an answer may have, its thoughts included [default: what the context leaves]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_tokens: Option<u32>,
    /// 0 takes the most probable token each time [default: the model's own]
    #[arg(long, value_name = "T")]
    pub(crate) temperature: Option<f32>,
    /// File whose first line is the API key to send
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// API key to send; better from a file or the environment, which others cannot see
    #[arg(long, value_name = "KEY", env = "CHIMERE_API_KEY", hide_env_values = true, conflicts_with = "api_key_file")]
    pub(crate) api_key: Option<String>,
    /// Certificates in PEM that vouch for an https address, instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Neither colours nor drawn Markdown; NO_COLOR in the environment says the same
    #[arg(long)]
    pub(crate) no_color: bool,
}

/// Runs the conversation until the input ends.
pub(crate) fn run(args: &ChatArgs) -> Result<(), CliError> {
    actix_rt::System::new().block_on(start(args))
}

async fn start(args: &ChatArgs) -> Result<(), CliError> {
    let access = Credentials {
        key: args.api_key.as_deref(),
        key_file: args.api_key_file.as_deref(),
        ca_file: args.ca_file.as_deref(),
    };
    let server = ServiceClient::new(&args.url, access)?;
    let model = match &args.model {
        Some(model) => model.clone(),
        None => first_model(&server).await?,
    };
    let mut screen = Screen::new(args.no_color);
    let search = stores::file_search(&server, &args.store).await?;
    let chat = ChatHistory::new(model, args, (documents(&args.document)?, search));
    match &args.question {
        Some(question) => ask_once(&server, chat, question, &mut screen).await,
        None => talk(&server, chat, &mut screen).await,
    }
}

/// The documents that a request brings: the texts of the files, under the files' names.
fn documents(files: &[PathBuf]) -> Result<Vec<Value>, CliError> {
    files.iter().map(|file| document(file).map_err(|e| CliError::Failed(format!("{}: {e}", file.display())))).collect()
}

fn document(file: &Path) -> Result<Value, String> {
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(|e| e.to_string())?;
    opened.take(INPUT_BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| format!("cannot be read as text: {e}"))?;
    if text.len() as u64 > INPUT_BYTES_MAX {
        return Err(format!("wanted at most {} MiB, got more", INPUT_BYTES_MAX >> 20));
    }
    if text.trim().is_empty() {
        return Err("wanted a text, got nothing".into());
    }
    Ok(json!({ "id": file.file_name().map(|name| name.to_string_lossy()), "text": text }))
}

async fn first_model(server: &ServiceClient) -> Result<String, CliError> {
    Ok(models(server).await?.into_iter().next().unwrap_or_default())
}

async fn models(server: &ServiceClient) -> Result<Vec<String>, CliError> {
    let list = server.get("/v1/models").await.map_err(|e| CliError::Failed(first_failure(server.base(), &e)))?;
    let names = list["data"].as_array().into_iter().flatten();
    Ok(names.filter_map(|model| model["id"].as_str().map(str::to_owned)).collect())
}

/// Why the first request had no answer, and what to do about it.
fn first_failure(base: &str, failure: &Failure) -> String {
    match failure {
        Failure::Connect(_) => {
            format!("no server at {base} ({failure}); start one with `chimere serve`, or name another with --url")
        }
        Failure::Tls(why) if why.contains("certificate") => {
            format!("{base}: {failure}; if the certificate is its own, name its file with --ca-file")
        }
        Failure::Tls(_) => format!("{base}: {failure}; a server without a certificate is reached by http://"),
        Failure::Status { code: 401, .. } => {
            format!("{base}: {failure}; a key comes from --api-key-file or CHIMERE_API_KEY")
        }
        Failure::Broken(_) if base.starts_with("http:") => {
            format!("{base}: {failure}; a server with a certificate is reached by https://")
        }
        _ => format!("{base}: {failure}"),
    }
}

/// That the service has a model of this name, which may be one of its other names.
async fn check_model(server: &ServiceClient, name: &str) -> Result<(), String> {
    let names = models(server).await.map_err(|e| e.to_string())?;
    if names.iter().any(|known| known == name) || server.get(&format!("/v1/models/{name}")).await.is_ok() {
        return Ok(());
    }
    Err(format!("no model {name:?}; there are {}", names.join(", ")))
}

/// A number and what it counts: "1 answer", "2 answers".
fn counted(n: u64, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

/// One question with what comes through a pipe below it; the answer alone goes to standard output.
async fn ask_once(
    server: &ServiceClient,
    mut chat: ChatHistory,
    question: &str,
    screen: &mut Screen,
) -> Result<(), CliError> {
    let mut text = question.to_owned();
    if !std::io::stdin().is_terminal() {
        let mut piped = String::new();
        let read = std::io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_string(&mut piped);
        read.map_err(|e| CliError::Failed(format!("cannot read standard input as text: {e}")))?;
        if piped.len() as u64 > INPUT_BYTES_MAX {
            let most = INPUT_BYTES_MAX >> 20;
            return Err(CliError::Failed(format!(
                "standard input has more than the {most} MiB that go with a question"
            )));
        }
        if !piped.trim().is_empty() {
            text = format!("{text}\n\n{piped}");
        }
    }
    chat.ask(text);
    match answer(server, &mut chat, screen).await {
        Ok(AnswerEnd::Whole) => Ok(()),
        // A script that goes on with half an answer would take it for one.
        Ok(AnswerEnd::Stopped) => Err(CliError::Failed("stopped before the answer's end".into())),
        Err(failure) => Err(CliError::Failed(failure.to_string())),
    }
}

async fn talk(server: &ServiceClient, mut chat: ChatHistory, screen: &mut Screen) -> Result<(), CliError> {
    let mut input = Input::start();
    if input.is_terminal() {
        screen.note(&format!("{} at {}; /help lists the commands", chat.model, server.base()));
    }
    let mut failed = None;
    loop {
        let line = match input.next().await {
            Typed::Line(line) => line,
            Typed::Cleared => continue,
            Typed::End => break,
        };
        let command = ChatCommand::parse(&line);
        if command == ChatCommand::Exit {
            break;
        }
        failed = obey(command, server, &mut chat, screen).await.err();
        if let Some(failure) = &failed {
            screen.trouble(failure);
        }
    }
    // In a pipe the last line's failure is the command's; at a terminal it was shown when it happened.
    match failed {
        Some(failure) if !input.is_terminal() => Err(CliError::Failed(failure)),
        _ => Ok(()),
    }
}

/// Does what a line of input says. An error is for the user to read, and the conversation goes on.
async fn obey(
    command: ChatCommand,
    server: &ServiceClient,
    chat: &mut ChatHistory,
    screen: &mut Screen,
) -> Result<(), String> {
    match command {
        ChatCommand::Exit | ChatCommand::Nothing => {}
        ChatCommand::Show(text) => screen.note(text.trim_end()),
        ChatCommand::Wrong(text) => return Err(text.trim_end().to_owned()),
        ChatCommand::Reset => {
            chat.reset();
            screen.note("the conversation is forgotten");
        }
        ChatCommand::Think(on) => {
            chat.think = Some(on);
            screen.note(if on { "thinking is on" } else { "thinking is off" });
        }
        ChatCommand::System(text) => {
            chat.set_system(&text);
            screen.note(if text.is_empty() { "there is no instruction" } else { "the instruction is set" });
        }
        ChatCommand::Undo => screen.note(&format!("took back {:?}", chat.undo().ok_or("nothing was asked yet")?)),
        ChatCommand::Stats => screen.note(&chat.stats()),
        ChatCommand::Save(file) => {
            let count = chat.save(Path::new(&file))?;
            screen.note(&format!("wrote {} to {file}", counted(count as u64, "message")));
        }
        ChatCommand::Load(file) => {
            let count = chat.load(Path::new(&file))?;
            screen.note(&format!("read {} from {file}", counted(count as u64, "message")));
        }
        ChatCommand::Model(None) => {
            let names = models(server).await.map_err(|e| e.to_string())?;
            screen.note(&format!("talking to {}; there are {}", chat.model, names.join(", ")));
        }
        ChatCommand::Model(Some(name)) => {
            check_model(server, &name).await?;
            screen.note(&format!("talking to {name}"));
            chat.model = name;
        }
        ChatCommand::Say(text) => {
            chat.ask(text);
            answer(server, chat, screen).await.map_err(|e| e.to_string())?;
        }
        ChatCommand::Retry => {
            let before = chat.retry()?;
            if let Err(failure) = answer(server, chat, screen).await {
                chat.put_back(before);
                return Err(failure.to_string());
            }
        }
    }
    Ok(())
}

/// The way in which an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerEnd {
    /// The service ended it.
    Whole,
    /// The user did, with Ctrl-C.
    Stopped,
}

/// Shows the answer to what was asked last. What a stopped answer had said so far stays in the conversation; a failed
/// one leaves no trace.
async fn answer(server: &ServiceClient, chat: &mut ChatHistory, screen: &mut Screen) -> Result<AnswerEnd, Failure> {
    let (body, mut said, mut notes) = (chat.body(), String::new(), Footnotes::default());
    let (ended, how) = tokio::select! {
        ended = stream(server, &body, screen, (&mut said, &mut notes)) => (ended, AnswerEnd::Whole),
        _ = tokio::signal::ctrl_c() => (Ok(None), AnswerEnd::Stopped),
    };
    screen.end(ended.is_err());
    match ended {
        Ok(figures) => {
            chat.answered(said, figures.as_ref());
            notes.lines().iter().for_each(|line| screen.note(line));
            screen.figures(figures.as_ref(), how == AnswerEnd::Stopped);
            Ok(how)
        }
        Err(failure) => {
            chat.failed();
            Err(failure)
        }
    }
}

/// Draws an answer as it comes; what the service says of it at the end.
async fn stream(
    server: &ServiceClient,
    body: &Value,
    screen: &mut Screen,
    (said, notes): (&mut String, &mut Footnotes),
) -> Result<Option<AnswerFigures>, Failure> {
    let mut events = server.stream("/v1/chat/completions", body).await?;
    let (mut figures, mut finished) = (None, false);
    loop {
        let event = match events.next().await {
            Ok(Some(event)) => event,
            // Some servers end a stream by closing the connection alone.
            Err(Failure::Broken(_)) if finished => break,
            Ok(None) => break,
            Err(failure) => return Err(failure),
        };
        finished |= event["choices"][0]["finish_reason"].is_string();
        let delta = &event["choices"][0]["delta"];
        if let Some(thought) = delta["reasoning_content"].as_str().filter(|t| !t.is_empty()) {
            screen.thought(thought);
        }
        if let Some(text) = delta["content"].as_str().filter(|t| !t.is_empty()) {
            screen.text(text);
            said.push_str(text);
        }
        notes.add(&delta["annotations"], said);
        figures = AnswerFigures::of(&event).or(figures);
    }
    Ok(figures)
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
    fn a_first_failure_says_what_to_do() {
        let tls = |why: &str| Failure::Tls(why.into());
        let refused = Failure::Status { code: 401, message: "no API key".into() };
        for (base, failure, part) in [
            ("http://h:1", Failure::Connect("refused".into()), "no server at http://h:1"),
            ("https://h:1", tls("invalid peer certificate: UnknownIssuer"), "--ca-file"),
            ("https://h:1", tls("received corrupt message"), "http://"),
            ("http://h:1", Failure::Broken("invalid HTTP version".into()), "https://"),
            ("http://h:1", refused, "--api-key-file"),
        ] {
            let said = first_failure(base, &failure);
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn only_what_the_user_set_is_sent() {
        let args = Cli::parse_from(["x", "--system", "be brief", "--temperature", "0"]).args;
        let mut chat = ChatHistory::new("nano".into(), &args, (Vec::new(), None));
        chat.ask("hi".into());
        let body = chat.body();
        let keys: Vec<_> = body.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["model", "messages", "stream", "stream_options", "temperature"]);
        chat.think = Some(false);
        assert_eq!(chat.body()["chat_template_kwargs"], serde_json::json!({ "enable_thinking": false }));
    }

    #[test]
    fn documents_go_with_every_question_under_their_files_names() {
        let folder = tempfile::tempdir().unwrap();
        let (notes, empty) = (folder.path().join("notes.txt"), folder.path().join("empty.txt"));
        std::fs::write(&notes, "The Ferfen capital is Melkar.\n").unwrap();
        std::fs::write(&empty, " \n").unwrap();
        let args = Cli::parse_from(["x", "--document", notes.to_str().unwrap()]).args;
        let mut chat = ChatHistory::new("nano".into(), &args, (documents(&args.document).unwrap(), None));
        chat.ask("hi".into());
        let document = json!({"id": "notes.txt", "text": "The Ferfen capital is Melkar.\n"});
        assert_eq!(chat.body()["engram"], json!({ "documents": [document] }));
        for (file, why) in [
            (empty, "got nothing"),
            (folder.path().join("none"), "No such file"),
            (folder.path().into(), "cannot be read"),
        ] {
            let error = documents(std::slice::from_ref(&file)).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(&*file.to_string_lossy()), "{error}");
        }
    }
}
