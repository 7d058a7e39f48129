//! `chimere documents`: puts the files of a directory into a vector store of a running service, and lists stores.

use crate::CliError;
use crate::client::{Credentials, Failure, ServiceClient, form_name};
use chimere::documents::label;
use chimere::printable::one_line;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The commands on documents.
#[derive(clap::Subcommand, Debug, Clone)]
pub enum DocumentsCommand {
    /// Put the files of a directory into a store, and wait until they can be searched. Files that the store has under
    /// the same name and with the same size stay as they are; those that could not be read are tried again.
    Add(AddArgs),
    /// List the stores, with their files by their states.
    List(AccessArgs),
}

/// Where the service is, and the key for it.
#[derive(clap::Args, Debug, Clone)]
pub struct AccessArgs {
    /// Address of the service
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// File whose first line is the API key to send
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// API key to send; better from a file or the environment, which others cannot see
    #[arg(long, value_name = "KEY", env = "CHIMERE_API_KEY", hide_env_values = true, conflicts_with = "api_key_file")]
    api_key: Option<String>,
    /// Certificates in PEM that vouch for an https address, instead of the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// What to add, and where.
#[derive(clap::Args, Debug, Clone)]
pub struct AddArgs {
    /// A directory, which is read with all that is below it, or a file
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Name of the store; it is made if there is none
    #[arg(long, value_name = "NAME")]
    store: String,
    #[command(flatten)]
    access: AccessArgs,
}

/// Files that are looked for in a directory, at most.
const FILES_MAX: usize = 10_000;
/// Bytes of a file that is read to be sent.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// How often it is asked how far the service is.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// The most entries of a page of a list.
const PAGE: usize = 100;

/// Does what was asked.
pub fn run(command: &DocumentsCommand) -> Result<(), CliError> {
    actix_rt::System::new().block_on(async {
        match command {
            DocumentsCommand::Add(args) => add(args).await,
            DocumentsCommand::List(access) => list(access).await,
        }
    })
}

pub(crate) fn client(access: &AccessArgs) -> Result<ServiceClient, CliError> {
    let credentials = Credentials {
        key: access.api_key.as_deref(),
        key_file: access.api_key_file.as_deref(),
        ca_file: access.ca_file.as_deref(),
    };
    ServiceClient::new(&access.url, credentials)
}

fn failed(e: Failure) -> CliError {
    CliError::Failed(e.to_string())
}

/// All entries of a list, page by page.
async fn all(client: &ServiceClient, path: &str) -> Result<Vec<Value>, CliError> {
    let (mut entries, mut after) = (Vec::<Value>::new(), String::new());
    loop {
        let page = client.get(&format!("{path}?order=asc&limit={PAGE}{after}")).await.map_err(failed)?;
        entries.extend(page["data"].as_array().cloned().unwrap_or_default());
        match page["last_id"].as_str().filter(|_| page["has_more"] == true) {
            Some(last) => after = format!("&after={last}"),
            None => return Ok(entries),
        }
    }
}

async fn list(access: &AccessArgs) -> Result<(), CliError> {
    let stores = all(&client(access)?, "/v1/vector_stores").await?;
    for store in &stores {
        let counts = &store["file_counts"];
        println!(
            "{}  {:<24} {:>6} files ({} to do, {} failed)  {:>12} bytes of text{}",
            text(&store["id"]),
            text(&store["name"]),
            counts["total"],
            counts["in_progress"],
            counts["failed"],
            store["usage_bytes"],
            vectors(store),
        );
    }
    if stores.is_empty() {
        println!("there are no vector stores here");
    }
    Ok(())
}

/// How far the vectors of a store are, and how much they count; nothing where no encoder makes any.
fn vectors(store: &Value) -> String {
    let vectors = &store["vectors"];
    match (vectors["waiting"].as_u64(), store["self_test"]["recall_percent"].as_f64()) {
        (None, _) => String::new(),
        (Some(waiting), _) if waiting > 0 => {
            format!("  {waiting} of {} passages wait for vectors", vectors["passages"])
        }
        (Some(_), None) => "  vectors, not tested yet".into(),
        (Some(_), Some(recall)) => {
            let fell = store["self_test"]["fell_points"].as_f64();
            let fell = fell.map_or(String::new(), |points| format!(", {points} points LESS than before"));
            let weight = &vectors["weight"];
            format!("  vectors count {weight}, {recall} % of its sentences find their passage{fell}")
        }
    }
}

/// What the service says is shown without what would change how a terminal reads it.
fn text(value: &Value) -> String {
    one_line(value.as_str().unwrap_or_default())
}

/// A file that the store has, as the service tells of it.
struct KnownFile {
    id: String,
    name: String,
    bytes: u64,
    /// It was given up: it cannot be searched.
    failed: bool,
}

async fn add(args: &AddArgs) -> Result<(), CliError> {
    let files = found(&args.path)?;
    let client = client(&args.access)?;
    let store = store(&client, &args.store).await?;
    let known = known(&client, &store).await?;
    let (mut progress, mut sent, mut refused) = (ProgressLine::default(), Vec::new(), 0);
    for (i, (path, name)) in files.iter().enumerate() {
        let shown = one_line(name);
        progress.show(&format!("{}/{} {shown}", i + 1, files.len()));
        match send(&client, &store, &known, (path, name)).await {
            Ok(Some(id)) => sent.push((id, shown)),
            Ok(None) => {}
            Err(SendError::File(why)) => {
                refused += 1;
                progress.tell(&format!("{shown}: {}", one_line(&why)));
            }
            Err(SendError::Service(failure)) => {
                progress.tell(&format!("{shown} was not sent, nor what comes after it"));
                return Err(failed(failure));
            }
        }
    }
    progress.tell(&format!("{} of {} files sent", sent.len(), files.len()));
    let given_up = wait(&client, &store, &sent, &mut progress).await?;
    println!("{store}: {} more files can be searched", sent.len() - given_up);
    match refused + given_up {
        0 => Ok(()),
        failures => Err(CliError::Failed(format!("{failures} of {} files cannot be searched", files.len()))),
    }
}

/// Why a file was not sent.
enum SendError {
    /// The fault lies in the file.
    File(String),
    /// No other file would fare better.
    Service(Failure),
}

impl From<Failure> for SendError {
    fn from(failure: Failure) -> Self {
        match failure {
            // The file is not taken, too large, or of a kind that is not read.
            Failure::Status { code: 400 | 413 | 415 | 422, message } => Self::File(message),
            failure => Self::Service(failure),
        }
    }
}

/// Sends a file and puts it into the store; gives its id, or nothing where it is there already. One that was given up
/// begins anew and is not sent again.
async fn send(
    client: &ServiceClient,
    store: &str,
    known: &[KnownFile],
    (path, name): (&Path, &str),
) -> Result<Option<String>, SendError> {
    let bytes = read(path).map_err(|e| SendError::File(e.to_string()))?;
    let label = label(&form_name(name));
    let before = known.iter().filter(|file| file.name == label && file.bytes == bytes.len() as u64);
    let id = match before.min_by_key(|file| file.failed) {
        Some(file) if !file.failed => return Ok(None),
        Some(file) => file.id.clone(),
        None => text(&client.post_file("/v1/files", name, &bytes).await?["id"]),
    };
    client.post(&format!("/v1/vector_stores/{store}/files"), &json!({"file_id": id})).await?;
    Ok(Some(id))
}

/// A line that tells how far the work is, where a person sees it; and lines that stay.
#[derive(Default)]
struct ProgressLine {
    /// Characters of the line that is shown.
    width: usize,
}

impl ProgressLine {
    /// Characters of such a line.
    const WIDTH: usize = 79;

    fn show(&mut self, line: &str) {
        if std::io::stderr().is_terminal() {
            let line: String = line.chars().take(Self::WIDTH).collect();
            let width = line.chars().count();
            eprint!("\r{line}{:1$}", "", self.width.saturating_sub(width));
            self.width = width;
        }
    }

    /// Shows a line that stays, in the place of the one that is shown.
    fn tell(&mut self, line: &str) {
        if self.width > 0 {
            eprint!("\r{:1$}\r", "", self.width);
        }
        self.width = 0;
        eprintln!("{line}");
    }
}

/// Until all files can be searched or are given up; gives the number of these.
async fn wait(
    client: &ServiceClient,
    store: &str,
    sent: &[(String, String)],
    progress: &mut ProgressLine,
) -> Result<usize, CliError> {
    let mut given_up = 0;
    for (i, (id, name)) in sent.iter().enumerate() {
        loop {
            let file = client.get(&format!("/v1/vector_stores/{store}/files/{id}")).await.map_err(failed)?;
            match file["status"].as_str() {
                Some("in_progress") => tokio::time::sleep(ASK_EVERY).await,
                Some("completed") => break,
                _ => {
                    given_up += 1;
                    progress.tell(&format!("{name}: {}", text(&file["last_error"]["message"])));
                    break;
                }
            }
        }
        progress.show(&format!("{}/{} can be searched or are given up", i + 1, sent.len()));
    }
    progress.show("");
    Ok(given_up)
}

/// The caller's own store of this name, made if there is none.
async fn store(client: &ServiceClient, name: &str) -> Result<String, CliError> {
    let stores = all(client, "/v1/vector_stores").await?;
    if let Some(found) = stores.iter().find(|store| store["name"] == name && store["read_only"] != true) {
        return Ok(text(&found["id"]));
    }
    Ok(text(&client.post("/v1/vector_stores", &json!({"name": name})).await.map_err(failed)?["id"]))
}

/// The files of the store, but for those that somebody cancelled.
async fn known(client: &ServiceClient, store: &str) -> Result<Vec<KnownFile>, CliError> {
    let members = all(client, &format!("/v1/vector_stores/{store}/files")).await?;
    let files = all(client, "/v1/files").await?;
    let files: HashMap<&str, &Value> = files.iter().filter_map(|file| Some((file["id"].as_str()?, file))).collect();
    let known = |member: &Value| {
        let file = files.get(member["id"].as_str()?)?;
        Some(KnownFile {
            id: text(&member["id"]),
            name: file["filename"].as_str()?.to_owned(),
            bytes: file["bytes"].as_u64()?,
            failed: member["status"] == "failed",
        })
    };
    Ok(members.iter().filter(|member| member["status"] != "cancelled").filter_map(known).collect())
}

/// Files below a path, each with its name from there on; hidden ones are passed over, and links are not followed.
fn found(path: &Path) -> Result<Vec<(PathBuf, String)>, CliError> {
    let failed = |path: &Path, e: std::io::Error| CliError::Failed(format!("{}: {e}", path.display()));
    if path.metadata().map_err(|e| failed(path, e))?.is_file() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Ok(vec![(path.to_owned(), name)]);
    }
    let (mut files, mut open) = (Vec::new(), vec![path.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).map_err(|e| failed(&directory, e))? {
            let entry = entry.map_err(|e| failed(&directory, e))?;
            let kind = entry.file_type().map_err(|e| failed(&entry.path(), e))?;
            match () {
                () if entry.file_name().to_string_lossy().starts_with('.') => {}
                () if kind.is_dir() => open.push(entry.path()),
                () if kind.is_file() => {
                    let below = entry.path();
                    let name = below.strip_prefix(path).unwrap_or(&below).to_string_lossy().into_owned();
                    files.push((entry.path(), name));
                }
                () => {}
            }
        }
        if files.len() > FILES_MAX {
            return Err(CliError::Failed(format!("{} has more than {FILES_MAX} files", path.display())));
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    chimere_engine::files::read_regular(path, FILE_BYTES_MAX)
        .map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_below_a_directory_and_hidden_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/.git")).unwrap();
        for name in ["b.md", "a/c.txt", "a/.git/d", ".e"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let names = |path: &Path| found(path).unwrap().into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(dir.path()), ["a/c.txt", "b.md"]);
        assert_eq!(names(&dir.path().join("b.md")), ["b.md"]);
        assert!(found(&dir.path().join("z")).is_err());
    }
}
