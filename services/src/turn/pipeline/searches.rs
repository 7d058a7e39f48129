//! Passages for a pipeline's generations: from the store that its file names, among those that the caller may read, or
//! from the web.

use super::asking::Asking;
use crate::actors::request::output::{FileSearch, Output, WebAction};
use crate::citations::NumberedSource;
use crate::documents::DocumentError;
use crate::pipelines::{RetrieveFrom, RetrieveStep};
use crate::turn::context::best_passages;
use crate::turn::decisions::{RerankRequest, rerank};
use crate::turn::error::TurnError;
use crate::turn::options::{FileSearchRequest, QueryWriter, StoreReading};
use crate::web::WebHosts;

/// The search of a store, for errors and for the stage that puts passages into a conversation.
pub(super) fn search_of(store: String, k: u32) -> FileSearchRequest {
    FileSearchRequest {
        field: "model".to_owned(),
        stores: vec![store],
        reading: StoreReading::Passages,
        k,
        filter: None,
        score_min: 0.0,
        verbatim: false,
        sufficiency_min: 0.0,
        queries: QueryWriter::User,
    }
}

/// A search that was made.
pub(super) struct StepSearch {
    /// The passages that fit the question best.
    pub(super) found: Vec<NumberedSource>,
    /// The search as the client is told of it.
    pub(super) told: Vec<Output>,
    /// Nothing could be searched.
    pub(super) failed: bool,
}

/// Searches for the passages that fit a question best.
///
/// # Errors
/// If the caller may not search there.
pub(super) async fn search(
    asking: Asking<'_>,
    (pipeline, step): (&str, &RetrieveStep),
    question: String,
) -> Result<StepSearch, TurnError> {
    match &step.from {
        RetrieveFrom::Store(store) => {
            let found = stored(asking, store_of(asking, pipeline, store)?, step, &question).await?;
            let results = found.clone();
            let told = vec![Output::Searched(FileSearch { queries: vec![question], results, sufficiency: None })];
            Ok(StepSearch { found, told, failed: false })
        }
        RetrieveFrom::Web if asking.services.web.offer().search && asking.caller.tools.allow_web() => {
            on_the_web(asking, step, question).await
        }
        RetrieveFrom::Web => {
            let message = format!("the pipeline `{pipeline}` searches the web, which is not offered to this key");
            Err(TurnError::coded("model", message, "web_not_offered"))
        }
    }
}

async fn stored(
    asking: Asking<'_>,
    store: String,
    step: &RetrieveStep,
    question: &str,
) -> Result<Vec<NumberedSource>, TurnError> {
    if question.trim().is_empty() {
        return Ok(Vec::new());
    }
    let wanted = search_of(store, step.rerank.unwrap_or(step.k));
    let found = best_passages(asking.services, asking.caller, &wanted, question).await?;
    ranked(asking, step, question, found).await
}

/// Searches the web with the user's own words, which are all that leaves.
async fn on_the_web(asking: Asking<'_>, step: &RetrieveStep, question: String) -> Result<StepSearch, TurnError> {
    let Asking { services, caller, .. } = asking;
    let visitor = caller.visitor();
    let most = step.rerank.unwrap_or(step.k) as usize;
    let queries = if question.trim().is_empty() { Vec::new() } else { vec![question.clone()] };
    let searched = services.web.search(&visitor, &queries, &WebHosts::default(), most).await;
    let failed = searched.is_err();
    let searched = searched.unwrap_or_else(|error| {
        tracing::warn!(request = &*caller.name, %error, "a pipeline's search of the web failed");
        Default::default()
    });
    let found = ranked(asking, step, &question, searched.passages).await?;
    let action = |pages| WebAction::Search { queries: queries.clone(), pages, failed };
    let told = vec![Output::Browsing(action(Vec::new())), Output::Browsed(action(searched.pages))];
    Ok(StepSearch { found, told, failed })
}

/// Those that the model ranks best, if the step wants that.
async fn ranked(
    asking: Asking<'_>,
    step: &RetrieveStep,
    question: &str,
    found: Vec<NumberedSource>,
) -> Result<Vec<NumberedSource>, TurnError> {
    if step.rerank.is_none() || found.len() < 2 {
        return Ok(found);
    }
    let text = |source: &NumberedSource| match &source.title {
        Some(title) => format!("{title}\n{}", source.text),
        None => source.text.to_string(),
    };
    let documents = found.iter().map(text).collect();
    let top_n = Some(step.k as usize);
    let asked = RerankRequest { query: question.to_owned(), documents, top_n, cache: asking.cache };
    let (ranked, _) = rerank(asking.services, asking.caller, &asked).await?;
    Ok(ranked.iter().map(|ranked| found[ranked.index].clone()).collect())
}

/// The id of a store that a pipeline's file gives by id or by name; the caller's own one goes first.
fn store_of(asking: Asking<'_>, pipeline: &str, wanted: &str) -> Result<String, TurnError> {
    let stores = match asking.services.documents.stores(asking.caller.account) {
        Ok(stores) => stores,
        Err(DocumentError::NoDirectory) => Vec::new(),
        Err(other) => return Err(TurnError::Documents(other)),
    };
    let named = stores.iter().filter(|store| store.id == wanted || store.name == wanted);
    let best = named.min_by_key(|store| store.read_only);
    best.map(|store| store.id.clone()).ok_or_else(|| {
        let message = format!(
            "the pipeline `{pipeline}` searches the vector store `{wanted}`, and this key may read none of this name"
        );
        TurnError::coded("model", message, "vector_store_not_found")
    })
}
