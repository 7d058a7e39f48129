//! Texts from files: what tables are made from, and what they are judged on.

use crate::CliError;
use crate::figures::ByteProgress;
use chimere_engine::ids::TokenId;
use serde_json::{Map, Value};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// What a directory is searched for. A file that is named itself may be called anything.
const EXTENSIONS: [&str; 3] = ["jsonl", "md", "txt"];

/// The options by which files become token ids.
#[derive(clap::Args, Debug, Clone)]
pub struct TextOptions {
    /// The string that each line of a .jsonl file has its text in.
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub field: String,
    /// Read the tokenizer's added tokens, such as <|im_start|>, as themselves; otherwise they are spelled out like any
    /// text.
    #[arg(long)]
    pub markup: bool,
}

/// Reads a file, or every .jsonl, .md and .txt file under a directory in the order of their paths. Of a .jsonl file
/// each line is a text, any other file is one. `encode` makes ids of each; texts without ids are left out.
pub(super) fn read(
    from: &Path,
    options: &TextOptions,
    encode: impl Fn(&str) -> Vec<TokenId>,
) -> Result<Vec<Vec<TokenId>>, CliError> {
    let files = files(from)?;
    let all = files.iter().filter_map(|f| fs::metadata(f).ok()).map(|m| m.len()).sum();
    let mut progress = ByteProgress::new("reading");
    let (mut done, mut texts) = (0, Vec::new());
    for file in &files {
        each_text(file, &options.field, &mut |text, _, bytes| {
            texts.push(encode(text));
            done += bytes;
            progress.show(done, all);
            Ok(())
        })?;
    }
    progress.end();
    texts.retain(|ids: &Vec<_>| !ids.is_empty());
    if texts.is_empty() {
        return Err(CliError::Failed(format!("{}: wanted at least one text, got none", from.display())));
    }
    Ok(texts)
}

/// Hands over each text as it is written, with its file and with the other fields of its line where it stood in one.
pub(super) fn each_row(from: &Path, field: &str, take: &mut TakeRow<'_>) -> Result<(), CliError> {
    files(from)?.iter().try_for_each(|file| each_text(file, field, &mut |text, row, _| take(file, text, row)))
}

/// Takes a file's text and the other fields of its line; what is wrong with these.
type TakeRow<'a> = dyn FnMut(&Path, &str, Option<&Map<String, Value>>) -> Result<(), String> + 'a;
/// Takes a text, the other fields of its line, and the bytes of the file that it took.
type TakeText<'a> = dyn FnMut(&str, Option<&Map<String, Value>>, u64) -> Result<(), String> + 'a;

fn files(from: &Path) -> Result<Vec<PathBuf>, CliError> {
    if !from.is_dir() {
        return Ok(vec![from.to_path_buf()]);
    }
    let mut files = Vec::new();
    search(from, &mut files)?;
    files.sort();
    match files.is_empty() {
        true => Err(CliError::Failed(format!("{}: wanted .jsonl, .md or .txt files, got none", from.display()))),
        false => Ok(files),
    }
}

/// Links to directories are not followed: they may lead in circles.
fn search(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), CliError> {
    for entry in fs::read_dir(directory).map_err(|e| in_file(directory, &e))? {
        let entry = entry.map_err(|e| in_file(directory, &e))?;
        let path = entry.path();
        let known = path.extension().is_some_and(|ext| EXTENSIONS.iter().any(|known| ext == *known));
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            search(&path, files)?;
        } else if known && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

/// Hands over each text with the bytes of the file that it took.
fn each_text(file: &Path, field: &str, take: &mut TakeText<'_>) -> Result<(), CliError> {
    if file.extension().is_none_or(|ext| ext != "jsonl") {
        let text = fs::read_to_string(file).map_err(|e| in_file(file, &e))?;
        return take(&text, None, text.len() as u64).map_err(|e| in_file(file, &e));
    }
    let lines = BufReader::new(fs::File::open(file).map_err(|e| in_file(file, &e))?).lines();
    for (number, line) in (1..).zip(lines) {
        let line = line.map_err(|e| in_file(file, &format!("line {number}: {e}")))?;
        if line.trim().is_empty() {
            continue;
        }
        let (text, row) = text_of(&line, field).map_err(|got| {
            in_file(
                file,
                &format!("line {number}: wanted a JSON object with a string {field:?} (see --field), got {got}"),
            )
        })?;
        take(&text, Some(&row), line.len() as u64 + 1).map_err(|e| in_file(file, &format!("line {number}: {e}")))?;
    }
    Ok(())
}

fn text_of(line: &str, field: &str) -> Result<(String, Map<String, Value>), String> {
    match serde_json::from_str(line).map_err(|e| e.to_string())? {
        Value::Object(mut object) => match object.remove(field) {
            Some(Value::String(text)) => Ok((text, object)),
            Some(_) => Err("something else under that name".into()),
            None => {
                let names = object.keys().take(8).map(|k| format!("{k:?}")).collect::<Vec<_>>().join(", ");
                Err(if names.is_empty() { "an empty object".into() } else { format!("one with {names}") })
            }
        },
        _ => Err("something other than an object".into()),
    }
}

fn in_file(file: &Path, e: &dyn std::fmt::Display) -> CliError {
    CliError::Failed(format!("{}: {e}", file.display()))
}
