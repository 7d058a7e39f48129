//! The items of a collection that are nearest to a text.

use super::prompts::{INLINE_BYTES, work};
use super::vectors::{Layout, tokens, vectors};
use crate::actors::embed::Texts;
use crate::http::app::App;
use crate::http::body::prompt::Prompt;
use crate::http::edge::keys::auth::Caller;
use crate::http::edge::keys::terms::terms_of;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::collection_error;
use crate::http::wire::reply::RequestName;
use crate::metrics;
use crate::semantic::{By, Hit, Query};
use actix_web::HttpRequest;
use chimere_engine::ids::TokenId;
use chimere_engine::scheduler::{Pooling, Terms};
use std::sync::Arc;
use std::time::Instant;

/// How texts of collections are read: as turns, because what a model for conversations makes of one tells what is
/// asked, and over all their positions. Measured in `docs/measurements/collections.md`.
pub(in crate::http) const LAYOUT: Layout = Layout::Turn;
/// Over which positions the vectors of collections are made.
const POOLING: Pooling = Pooling::Mean;
/// Collections up to this many bytes are scanned where they are: that takes some 20 microseconds.
const SCAN_INLINE_BYTES: usize = 64 << 10;
/// Bytes of vectors that are scanned while a byte of text is cut into tokens, about.
const SCAN_TO_TEXT: usize = 256;

/// Texts as collections embed them, under the terms of a request.
pub(in crate::http) fn texts_of(prompts: Vec<Arc<[TokenId]>>, terms: Terms) -> Texts {
    Texts { prompts, pooling: POOLING, priority: 0, terms }
}

/// What to look for.
pub(in crate::http) struct Search {
    /// A collection of the caller's account.
    pub(in crate::http) collection: String,
    /// The text that neighbours are searched of.
    pub(in crate::http) query: String,
    /// The most items to find.
    pub(in crate::http) k: u32,
    /// Whether meaning, words or both decide what is near.
    pub(in crate::http) by: By,
    /// Only those with an answer.
    pub(in crate::http) examples: bool,
    /// Where the text came from, for errors.
    pub(in crate::http) field: &'static str,
}

/// The items nearest to a text, best first, and the tokens of the text.
pub(in crate::http) async fn look(
    app: &App,
    request: &HttpRequest,
    asked: Search,
) -> Result<(Vec<Hit>, usize), ApiError> {
    let Search { collection, query, k, by, examples, field } = asked;
    let owner = Caller::of(request).key;
    // Before the text is read for nothing.
    let info = app.collections.info(owner, &collection).map_err(|e| collection_error(&e))?;
    let prompts: Vec<Arc<[TokenId]>> =
        tokens(app, app.holder(request), field, (vec![Prompt::Text(query.clone())], LAYOUT)).await?;
    let query_tokens = prompts[0].len();
    let texts = texts_of(prompts, terms_of(request)?);
    let vector = vectors(app, RequestName::of(request), field, texts).await?.pop().expect("one text gives one vector");
    let (all, begin) = (app.collections.clone(), Instant::now());
    let bytes = usize::try_from(info.bytes).unwrap_or(usize::MAX);
    let here = bytes <= SCAN_INLINE_BYTES && query.len() <= INLINE_BYTES;
    // What a scan of so many bytes takes is no more than what cutting as long a text into tokens does; the query is
    // parted into words.
    let text_bytes = (bytes / SCAN_TO_TEXT).saturating_add(query.len());
    let scan = move || {
        let query = Query { vector: &vector, text: &query, by };
        all.search(owner, &collection, &query, k as usize, examples)
    };
    let hits = work(&app.lanes, app.holder(request), text_bytes, here, scan).await?;
    ::metrics::histogram!(metrics::SEMANTIC_SEARCH_SECONDS).record(begin.elapsed().as_secs_f64());
    Ok((hits.map_err(|e| collection_error(&e))?, query_tokens))
}
