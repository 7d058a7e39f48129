//! From the tool `file_search` to passages in a conversation: what an account's stores say about the last question
//! stands before it, numbered, so that the answer can cite it.

use super::fit::fit;
use crate::actors::request::cited::FileSearch;
use crate::citations::{CITE, NumberedSource, QUOTE, SourcePlace, numbered};
use crate::documents::{Passage, WholeStore, WholeText, after_own_title};
use crate::limits::STORE_QUERY_BYTES_MAX;
use crate::text::{Message, Role};
use crate::turn::error::TurnError;
use crate::turn::options::{FileSearchRequest, StoreReading};
use crate::turn::prompts::work;
use crate::turn::search::{PassageSearch, find_passages};
use crate::turn::state::{ChatTurn, Turn};

/// Between the passages of a prompt.
const BETWEEN: &str = "\n\n";

/// Puts passages into a conversation, as many of them as leave room for the answer.
pub(in crate::turn) async fn with_passages(
    turn: &Turn<'_>,
    wanted: FileSearchRequest,
    chat: &mut ChatTurn,
) -> Result<FileSearch, TurnError> {
    let at = last_question(&chat.conversation.messages)?;
    let question = chat.conversation.messages[at].content.clone().unwrap_or_default();
    let mut found = match wanted.reading {
        StoreReading::Passages => search(turn, &wanted, &question).await?,
        StoreReading::Whole => whole(turn, &wanted).await?,
    };
    let before = chat.sources.len();
    let texts: Vec<String> =
        found.iter().enumerate().map(|(i, source)| numbered(before + i + 1, &shown(source))).collect();
    let with = |messages: &[Message], count: usize| {
        let mut messages = messages.to_vec();
        // Passages that the client brought itself came with the request to cite.
        let cite = (before == 0).then_some(CITE);
        let quote = wanted.verbatim.then_some(QUOTE);
        let parts =
            cite.into_iter().chain(quote).chain(texts[..count].iter().map(String::as_str)).chain([question.as_str()]);
        messages[at].content = Some(parts.collect::<Vec<_>>().join(BETWEEN));
        messages
    };
    let bytes: usize = texts.iter().map(|text| text.len() + BETWEEN.len()).sum();
    let fitting = fit(turn, chat, (found.len(), bytes), with).await?;
    if wanted.reading == StoreReading::Whole && fitting < found.len() {
        return Err(too_large(&wanted, found.len(), fitting));
    }
    found.truncate(fitting);
    chat.sources.extend(found.iter().cloned());
    chat.quoted_for = wanted.verbatim.then_some(wanted.field);
    Ok(FileSearch { queries: vec![question], results: found })
}

/// The passages that fit the question best. A long question is searched for by its beginning.
async fn search(turn: &Turn<'_>, wanted: &FileSearchRequest, question: &str) -> Result<Vec<NumberedSource>, TurnError> {
    let query = question[..question.floor_char_boundary(STORE_QUERY_BYTES_MAX)].to_owned();
    let (stores, filter, k) = (wanted.stores.clone(), wanted.filter.clone(), wanted.k as usize);
    let asked = PassageSearch { stores, queries: vec![query], k, filter };
    let found = find_passages(turn.services, &turn.caller, asked).await.map_err(|error| in_tool(wanted, error))?;
    Ok(found.into_iter().filter(|passage| passage.score >= wanted.score_min).map(of_passage).collect())
}

/// All texts of the stores.
async fn whole(turn: &Turn<'_>, wanted: &FileSearchRequest) -> Result<Vec<NumberedSource>, TurnError> {
    let (documents, owner, stores) = (turn.services.documents.clone(), turn.caller.account, wanted.stores.clone());
    let read = move || stores.iter().map(|store| documents.whole(owner, store)).collect::<Result<Vec<_>, _>>();
    let read = work(&turn.services.lanes, turn.caller.holder, usize::MAX, false, read).await?;
    let read: Vec<WholeStore> = read.map_err(|error| in_tool(wanted, TurnError::Documents(error)))?;
    let texts = read.into_iter().map(|store| store.texts.ok_or(store.bytes)).collect::<Result<Vec<_>, u64>>();
    let texts = texts.map_err(|bytes| {
        let message = format!("`{}.mode` is \"whole\", and a store has {bytes} bytes of text", wanted.field);
        TurnError::coded(format!("{}.mode", wanted.field), message, "context_length_exceeded")
    })?;
    let source = |text: WholeText| NumberedSource {
        title: Some(text.filename.clone()),
        text: text.text,
        place: SourcePlace::File { file_id: text.file_id, filename: text.filename, page: None, start: 0, score: 1.0 },
    };
    Ok(texts.into_iter().flatten().map(source).collect())
}

/// In a chat the fault lies in the tool that names the stores.
fn in_tool(wanted: &FileSearchRequest, error: TurnError) -> TurnError {
    match error {
        TurnError::Documents(error) => TurnError::FileSearch { field: wanted.field.clone(), error },
        other => other,
    }
}

fn too_large(wanted: &FileSearchRequest, files: usize, fitting: usize) -> TurnError {
    let field = format!("{}.mode", wanted.field);
    let message = format!("`{field}` is \"whole\", and of {files} files the context has room for {fitting}");
    TurnError::coded(field, message, "context_length_exceeded").counted_as("prompt_too_long")
}

fn of_passage(passage: Passage) -> NumberedSource {
    let Passage { file_id, filename, page, headings, mut start, mut text, score, .. } = passage;
    // The title stands above the text, which need not say it again.
    let behind = after_own_title(&headings, &text);
    if behind > 0 {
        (start, text) = (start + behind, text[behind..].into());
    }
    let title = if headings.is_empty() { filename.clone() } else { headings.join(" / ") };
    NumberedSource { text, title: Some(title), place: SourcePlace::File { file_id, filename, page, start, score } }
}

/// A source as the prompt shows it: below its title.
fn shown(source: &NumberedSource) -> String {
    source.title.iter().map(|title| format!("Title: {title}\n")).chain([source.text.to_string()]).collect()
}

/// Place of the last message of a user that has a text.
fn last_question(messages: &[Message]) -> Result<usize, TurnError> {
    let asks = |message: &Message| {
        message.role == Role::User && message.content.as_deref().is_some_and(|text| !text.trim().is_empty())
    };
    messages.iter().rposition(asks).ok_or_else(|| {
        let message = "`file_search` looks for what answers the last text of a user, and `messages` has none";
        TurnError::invalid("messages", message)
    })
}
