//! The items of a collection that are nearest to a text, and the passages of documents that answer some queries best.
//! The model reads the text only where its vector counts.

use super::caller::TurnCaller;
use super::error::TurnError;
use super::prompts::{INLINE_BYTES, work};
use super::services::TurnServices;
use super::text_vectors::VectorCaller;
use crate::documents::{AttributeFilter, DocumentError, Passage, StoreSearch};
use crate::embedder::Purpose;
use crate::metrics;
use crate::semantic::{By, CollectionQuery, FoundItem};
use std::time::{Duration, Instant};

/// Collections up to this many bytes are scanned where they are: that takes some 20 microseconds.
const SCAN_INLINE_BYTES: usize = 64 << 10;
/// Bytes of vectors that are scanned while a byte of text is cut into tokens, about.
const SCAN_TO_TEXT: usize = 256;

/// What to look for.
pub struct Search {
    /// A collection of the caller's account.
    pub collection: String,
    /// The text that neighbours are searched of.
    pub query: String,
    /// The most items to find.
    pub k: u32,
    /// Whether meaning, words or both decide what is near.
    pub by: By,
    /// Only those with an answer.
    pub examples: bool,
    /// Where the text came from, for errors.
    pub field: &'static str,
}

/// The items nearest to a text, best first, and the tokens that the model read for it.
pub async fn look(
    services: &TurnServices,
    caller: &TurnCaller,
    asked: Search,
) -> Result<(Vec<FoundItem>, usize), TurnError> {
    services.check_open()?;
    let Search { collection, query, k, by, examples, field } = asked;
    let owner = caller.account;
    // Before the text is read for nothing.
    let ranking = services.collections.ranking(owner, &collection, by, examples).map_err(TurnError::Collection)?;
    let info = services.collections.info(owner, &collection).map_err(TurnError::Collection)?;
    let (vector, query_tokens) =
        if ranking.reads_vector() { vector_of(services, caller, field, &query).await? } else { (Vec::new(), 0) };
    let (all, begin) = (services.collections.clone(), Instant::now());
    let bytes = usize::try_from(info.bytes).unwrap_or(usize::MAX);
    let here = bytes <= SCAN_INLINE_BYTES && query.len() <= INLINE_BYTES;
    let text_bytes = scan_bytes(bytes, query.len());
    let scan = move || {
        let query = CollectionQuery { vector: &vector, text: &query, ranking };
        all.search(owner, &collection, &query, k as usize, examples)
    };
    let hits = work(&services.lanes, caller.holder, text_bytes, here, scan).await?;
    ::metrics::histogram!(metrics::SEMANTIC_SEARCH_SECONDS).record(begin.elapsed().as_secs_f64());
    Ok((hits.map_err(TurnError::Collection)?, query_tokens))
}

/// Bytes of a text that takes as long to cut into tokens as a scan of a collection takes, whose query is parted into
/// words beside.
pub(super) fn scan_bytes(collection: usize, query: usize) -> usize {
    (collection / SCAN_TO_TEXT).saturating_add(query)
}

/// The vector of a query, and its tokens.
async fn vector_of(
    services: &TurnServices,
    caller: &TurnCaller,
    field: &'static str,
    query: &str,
) -> Result<(Vec<f32>, usize), TurnError> {
    let reader = VectorCaller::Request { caller, field };
    let mut embedded = services.vectors(reader, vec![query.to_owned()], Purpose::Query).await?;
    Ok((embedded.vectors.pop().expect("one text gives one vector"), embedded.tokens))
}

/// What to look for.
#[derive(Clone, Debug)]
pub struct PassageSearch {
    /// Ids of stores of the caller's account.
    pub stores: Vec<String>,
    /// There is at least one.
    pub queries: Vec<String>,
    /// The most passages to find.
    pub k: usize,
    /// Only files whose attributes fulfil it.
    pub filter: Option<AttributeFilter>,
}

/// Passages whose words are scanned while a byte of text is cut into tokens, about.
const PASSAGES_TO_TEXT: usize = 4;
/// How long a search waits for the vectors of its queries before it goes by words alone.
const QUERY_PATIENCE: Duration = Duration::from_secs(5);

/// The best passages for some queries, best first.
pub async fn find_passages(
    services: &TurnServices,
    caller: &TurnCaller,
    asked: PassageSearch,
) -> Result<Vec<Passage>, TurnError> {
    find_weighed(services, caller, asked, None).await
}

/// The best passages for some queries, best first. `weight` says how much vectors count, in the place of what the
/// stores have found by their self-tests.
pub async fn find_weighed(
    services: &TurnServices,
    caller: &TurnCaller,
    asked: PassageSearch,
    weight: Option<f32>,
) -> Result<Vec<Passage>, TurnError> {
    services.check_open()?;
    let (documents, owner) = (services.documents.clone(), caller.account);
    let vectors = query_vectors(services, caller, &asked, weight).await?;
    let scanned = asked.stores.iter().map(|store| documents.chunks(owner, store)).sum::<Option<usize>>();
    let bytes = scanned.map_or(usize::MAX, |scanned| {
        asked.queries.iter().map(|query| passage_scan_bytes(scanned, query.len(), !vectors.is_empty())).sum()
    });
    let search = move || {
        let search = StoreSearch {
            stores: asked.stores.iter().map(String::as_str).collect(),
            queries: asked.queries.iter().map(String::as_str).collect(),
            vectors: &vectors,
            weight,
            k: asked.k,
            filter: asked.filter.as_ref(),
        };
        documents.search(owner, &search)
    };
    let found = work(&services.lanes, caller.holder, bytes, false, search).await?;
    found.map_err(TurnError::Documents)
}

/// Bytes of a text that takes as long to cut into tokens as a search among so many passages takes.
pub(super) fn passage_scan_bytes(passages: usize, query: usize, by_vectors: bool) -> usize {
    query + if by_vectors { passages } else { passages / PASSAGES_TO_TEXT }
}

/// A vector for each query; none at all where words alone count. A search that did not ask for vectors goes by words
/// where the encoder has none to give.
async fn query_vectors(
    services: &TurnServices,
    caller: &TurnCaller,
    asked: &PassageSearch,
    weight: Option<f32>,
) -> Result<Vec<Vec<f32>>, TurnError> {
    let documents = &services.documents;
    // A store that is not there is told before anything else.
    let tested = documents.vector_weight(caller.account, &asked.stores).map_err(TurnError::Documents)?;
    if weight.unwrap_or(tested) <= 0.0 {
        return Ok(Vec::new());
    }
    if !documents.has_vectors() {
        let field = "ranking_options.hybrid_search.embedding_weight";
        let message = format!("`{field}`: {}", DocumentError::NoEmbedder);
        return Err(TurnError::coded(field, message, "no_embedder"));
    }
    let reader = VectorCaller::Request { caller, field: "query" };
    let read = services.vectors(reader, asked.queries.clone(), Purpose::Query);
    if weight.is_some() {
        return Ok(read.await?.vectors);
    }
    let why = match tokio::time::timeout(QUERY_PATIENCE, read).await {
        Ok(Ok(read)) => return Ok(read.vectors),
        Ok(Err(TurnError::Embedder { error, .. })) => error.to_string(),
        Ok(Err(other)) => return Err(other),
        Err(_) => format!("it takes more than {} s", QUERY_PATIENCE.as_secs()),
    };
    ::metrics::counter!(metrics::STORE_WORDS_ALONE).increment(1);
    tracing::warn!(request = &*caller.name, why, "a search goes by words alone: the query has no vector");
    Ok(Vec::new())
}
