//! Passages for a pipeline's generations: from the store that its file names, among those that the caller may read.

use super::checks::Asking;
use crate::citations::NumberedSource;
use crate::documents::DocumentError;
use crate::pipelines::RetrieveStep;
use crate::turn::context::best_passages;
use crate::turn::decisions::{RerankRequest, rerank};
use crate::turn::error::TurnError;
use crate::turn::options::{FileSearchRequest, QueryWriter, StoreReading};

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

/// The passages that fit a question best.
pub(super) async fn passages(
    asking: Asking<'_>,
    (pipeline, step): (&str, &RetrieveStep),
    question: &str,
) -> Result<Vec<NumberedSource>, TurnError> {
    if question.trim().is_empty() {
        return Ok(Vec::new());
    }
    let store = store_of(asking, pipeline, &step.store)?;
    let wanted = search_of(store, step.rerank.unwrap_or(step.k));
    let found = best_passages(asking.services, asking.caller, &wanted, question).await?;
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
