//! The passages of documents that answer some queries best, found on the threads of texts: a scan of a large store takes
//! as long as cutting a long text into tokens.

use super::caller::TurnCaller;
use super::error::TurnError;
use super::prompts::work;
use super::services::TurnServices;
use crate::documents::{Filter, Passage};

/// Passages that are scanned while a byte of text is cut into tokens, about.
const SCAN_TO_TEXT: usize = 4;

/// What to look for.
#[derive(Clone, Debug)]
pub struct PassageSearch {
    /// Ids of stores of the caller's account.
    pub stores: Vec<String>,
    /// At least one.
    pub queries: Vec<String>,
    /// The most passages to find.
    pub k: usize,
    /// Only files whose attributes fulfil it.
    pub filter: Option<Filter>,
}

/// The best passages for some queries, best first.
pub async fn find(
    services: &TurnServices,
    caller: &TurnCaller,
    asked: PassageSearch,
) -> Result<Vec<Passage>, TurnError> {
    services.check_open()?;
    let (documents, owner) = (services.documents.clone(), caller.account);
    let scanned: usize = asked.stores.iter().map(|store| documents.chunks(owner, store)).sum();
    let bytes = asked.queries.iter().map(|query| query.len() + scanned / SCAN_TO_TEXT).sum();
    let search = move || {
        let stores: Vec<&str> = asked.stores.iter().map(String::as_str).collect();
        let queries: Vec<&str> = asked.queries.iter().map(String::as_str).collect();
        documents.search(owner, &stores, &queries, asked.k, asked.filter.as_ref())
    };
    let found = work(&services.lanes, caller.holder, bytes, false, search).await?;
    found.map_err(TurnError::Documents)
}
