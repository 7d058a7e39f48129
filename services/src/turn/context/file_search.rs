//! From the tool `file_search` to passages in a conversation: what an account's stores say about the last question
//! stands before it, numbered, so that the answer can cite it.

use super::fit::fit;
use crate::actors::request::output::FileSearch;
use crate::citations::{CITE, MISSING, NOTHING_FOUND, NumberedSource, QUOTE, SourcePlace, numbered};
use crate::documents::{Passage, WholeStore, WholeText, after_own_title};
use crate::limits::STORE_QUERY_BYTES_MAX;
use crate::text::{Message, Role};
use crate::turn::caller::TurnCaller;
use crate::turn::decisions::sufficiency;
use crate::turn::error::TurnError;
use crate::turn::options::{FileSearchRequest, StoreReading};
use crate::turn::preparation::{ChatTurn, Preparation};
use crate::turn::prompts::work;
use crate::turn::search::{PassageSearch, find_passages};
use crate::turn::services::TurnServices;

/// Between the passages of a prompt.
pub(in crate::turn) const BETWEEN: &str = "\n\n";

/// Puts passages into a conversation, as many of them as leave room for the answer.
pub(in crate::turn) async fn with_passages(
    preparation: &Preparation<'_>,
    wanted: FileSearchRequest,
    chat: &mut ChatTurn,
) -> Result<FileSearch, TurnError> {
    let before_found = chat.found.take();
    let behind = before_found.as_ref().map_or(0, |found| found.behind);
    let asked = chat.conversation.messages.len().saturating_sub(behind);
    let at = last_question(&chat.conversation.messages[..asked])?;
    let question = chat.conversation.messages[at].content.clone().unwrap_or_default();
    let known = before_found.as_ref().and_then(|found| found.sufficiency);
    let mut found = match wanted.reading {
        _ if before_found.is_some() => before_found.map_or_else(Vec::new, |found| found.sources),
        StoreReading::Passages => best_passages(preparation.services, &preparation.caller, &wanted, &question).await?,
        StoreReading::Whole => whole(preparation, &wanted).await?,
    };
    let before = chat.sources.len();
    let texts: Vec<String> =
        found.iter().enumerate().map(|(i, source)| numbered(before + i + 1, &shown(source))).collect();
    let with = |messages: &[Message], count: usize| {
        let mut messages = messages.to_vec();
        // Passages that the client brought itself came with the request to cite.
        let cite = (before == 0).then_some(CITE);
        let quote = wanted.verbatim.then_some(QUOTE);
        // What may be said behind the question has room too.
        let note = (wanted.sufficiency_min > 0.0).then_some(MISSING);
        let shown = texts[..count].iter().map(String::as_str);
        let parts = cite.into_iter().chain(quote).chain(shown).chain([question.as_str()]).chain(note);
        messages[at].content = Some(parts.collect::<Vec<_>>().join(BETWEEN));
        messages
    };
    let bytes: usize = texts.iter().map(|text| text.len() + BETWEEN.len()).sum();
    let fitting = fit(preparation, chat, (found.len(), bytes), with).await?;
    if wanted.reading == StoreReading::Whole && fitting < found.len() {
        return Err(too_large(&wanted, found.len(), fitting));
    }
    found.truncate(fitting);
    if let Some(asked) = &mut chat.conversation.messages[at].content
        && let Some(without) = asked.strip_suffix(MISSING).filter(|_| wanted.sufficiency_min > 0.0 && fitting > 0)
    {
        asked.truncate(without.len() - BETWEEN.len());
    }
    let sufficiency = match known {
        Some(known) => Some(known),
        None => sufficiency_of(preparation, &wanted, &chat.conversation.messages[..=at], found.len()).await?,
    };
    let note = match sufficiency {
        _ if found.is_empty() => Some(NOTHING_FOUND),
        Some(probability) if probability < wanted.sufficiency_min => Some(MISSING),
        _ => None,
    };
    if let (Some(note), Some(asked)) = (note, &mut chat.conversation.messages[at].content) {
        *asked = [asked, BETWEEN, note].concat();
    }
    chat.sources.extend(found.iter().cloned());
    chat.quoted_for = wanted.verbatim.then_some(wanted.field);
    Ok(FileSearch { queries: vec![question], results: found, sufficiency })
}

/// How probable it is that the passages which stand before a conversation's last question have its answer, if the
/// request wants to know, there are some, and the context has room for asking.
async fn sufficiency_of(
    preparation: &Preparation<'_>,
    wanted: &FileSearchRequest,
    conversation: &[Message],
    passages: usize,
) -> Result<Option<f64>, TurnError> {
    if wanted.sufficiency_min == 0.0 || passages == 0 {
        return Ok(None);
    }
    match sufficiency(preparation.services, &preparation.caller, (conversation, preparation.cache)).await {
        Err(TurnError::Invalid { code: Some("context_length_exceeded"), .. } | TurnError::TooLong { .. }) => Ok(None),
        asked => asked.map(Some),
    }
}

/// The passages that fit the question best. A long question is searched for by its beginning.
pub(in crate::turn) async fn best_passages(
    services: &TurnServices,
    caller: &TurnCaller,
    wanted: &FileSearchRequest,
    question: &str,
) -> Result<Vec<NumberedSource>, TurnError> {
    let query = question[..question.floor_char_boundary(STORE_QUERY_BYTES_MAX)].to_owned();
    let (stores, filter, k) = (wanted.stores.clone(), wanted.filter.clone(), wanted.k as usize);
    let asked = PassageSearch { stores, queries: vec![query], k, filter };
    let found = find_passages(services, caller, asked).await.map_err(|error| in_tool(wanted, error))?;
    Ok(found.into_iter().filter(|passage| passage.score >= wanted.score_min).map(of_passage).collect())
}

/// Passages as the model reads them in the answer to its own search, behind so many others that have numbers. The
/// request to cite stands before the first ones. Equal passages give equal bytes.
pub(in crate::turn) fn numbered_passages(found: &[NumberedSource], before: usize) -> String {
    let cite = (before == 0).then(|| CITE.to_owned());
    let texts = found.iter().enumerate().map(|(i, source)| numbered(before + i + 1, &shown(source)));
    cite.into_iter().chain(texts).collect::<Vec<_>>().join(BETWEEN)
}

/// Refuses stores that are not there, before the model could search them.
pub(in crate::turn) fn stores_exist(
    services: &TurnServices,
    caller: &TurnCaller,
    wanted: &FileSearchRequest,
) -> Result<(), TurnError> {
    let known = |store: &String| services.documents.store(caller.account, store).map(|_| ());
    wanted.stores.iter().try_for_each(known).map_err(|error| in_tool(wanted, TurnError::Documents(error)))
}

/// All texts of the stores.
async fn whole(preparation: &Preparation<'_>, wanted: &FileSearchRequest) -> Result<Vec<NumberedSource>, TurnError> {
    let (documents, owner, stores) =
        (preparation.services.documents.clone(), preparation.caller.account, wanted.stores.clone());
    let read = move || stores.iter().map(|store| documents.whole(owner, store)).collect::<Result<Vec<_>, _>>();
    let read = work(&preparation.services.lanes, preparation.caller.holder, usize::MAX, false, read).await?;
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
