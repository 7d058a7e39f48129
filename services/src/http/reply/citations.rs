//! Citations of files, and the passages that a search of files found, as OpenAI's dialects write them.

use crate::citations::{Citation, NumberedSource, SourcePlace};
use serde_json::{Value, json};

/// A citation of a file: OpenAI's fields, and the place in the file. None of a source that is no file.
fn file_citation(citation: &Citation) -> Option<Value> {
    let SourcePlace::File { file_id, filename, page, start, score } = &citation.source().place else { return None };
    Some(json!({
        "file_id": file_id,
        "filename": filename,
        "index": citation.mark.start,
        "start_index": citation.mark.start,
        "end_index": citation.mark.end,
        "quote": citation.quote(),
        "page": page,
        "source_start": start + citation.span.start,
        "source_end": start + citation.span.end,
        "score": score,
    }))
}

/// A citation of a file or of a page of the web, with the name that OpenAI's dialects have for its kind.
pub(in crate::http) fn citation_of(citation: &Citation) -> Option<(&'static str, Value)> {
    let SourcePlace::Web { url, title } = &citation.source().place else {
        return file_citation(citation).map(|fields| ("file_citation", fields));
    };
    let fields = json!({
        "url": url,
        "title": title,
        "start_index": citation.mark.start,
        "end_index": citation.mark.end,
        "quote": citation.quote(),
    });
    Some(("url_citation", fields))
}

/// A passage that a search found. None of a source that is no file.
pub(in crate::http) fn search_result(source: &NumberedSource) -> Option<Value> {
    let SourcePlace::File { file_id, filename, page, start, score } = &source.place else { return None };
    Some(json!({
        "file_id": file_id,
        "filename": filename,
        "score": score,
        "text": &*source.text,
        "page": page,
        "source_start": start,
        "source_end": start + source.text.len(),
    }))
}
