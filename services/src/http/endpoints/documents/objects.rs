//! Files, stores and passages as OpenAI's clients read them.

use crate::documents::{
    Attributes, BatchInfo, FileCounts, FileInfo, FilePurpose, MemberInfo, MemberState, Passage, StoreInfo, StoreVectors,
};
use crate::http::endpoints::collections::routes::self_test_object;
use serde_json::{Value, json};

/// The purposes of files, as clients say them.
pub(super) const PURPOSES: [(&str, FilePurpose); 2] =
    [("assistants", FilePurpose::Assistants), ("user_data", FilePurpose::UserData)];

/// A purpose as clients know it.
pub(super) fn purpose(purpose: FilePurpose) -> &'static str {
    PURPOSES.iter().find(|(_, known)| *known == purpose).map_or("assistants", |(name, _)| name)
}

pub(super) fn file(file: &FileInfo) -> Value {
    json!({
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created,
        "expires_at": null,
        "filename": file.filename,
        "purpose": purpose(file.purpose),
        "status": "processed",
        "status_details": null,
    })
}

fn counts(counts: FileCounts) -> Value {
    json!({
        "in_progress": counts.in_progress,
        "completed": counts.completed,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "total": counts.total(),
    })
}

pub(super) fn store(store: &StoreInfo) -> Value {
    json!({
        "id": store.id,
        "object": "vector_store",
        "created_at": store.created,
        "name": store.name,
        "description": store.description,
        "usage_bytes": store.bytes,
        "file_counts": counts(store.counts),
        "status": if store.counts.in_progress > 0 { "in_progress" } else { "completed" },
        "expires_after": null,
        "expires_at": null,
        "last_active_at": store.active,
        "metadata": store.metadata,
        "read_only": store.read_only,
        "vectors": store.vectors.as_ref().map(vectors),
        "self_test": store.vectors.as_ref().and_then(|vectors| vectors.test.as_ref()).map(self_test_object),
    })
}

/// How far the vectors of a store are, and how much they count; null where no encoder makes any.
fn vectors(vectors: &StoreVectors) -> Value {
    json!({
        "embedder": vectors.maker,
        "passages": vectors.passages,
        "waiting": vectors.waiting,
        "weight": vectors.weight(),
        "self_test_due": vectors.test_due,
    })
}

/// A file of a store; `auto` is what the configuration says of passages.
pub(super) fn member(store: &str, member: &MemberInfo, auto: u32) -> Value {
    let fault = match &member.state {
        MemberState::Failed(fault) => json!({"code": fault.code.name(), "message": fault.message}),
        _ => Value::Null,
    };
    let (tokens, overlap) = member.chunking.sizes(auto);
    json!({
        "id": member.file_id,
        "object": "vector_store.file",
        "created_at": member.created,
        "vector_store_id": store,
        "status": member.state.name(),
        "last_error": fault,
        "usage_bytes": member.bytes,
        "chunks": member.chunks,
        "attributes": member.attributes,
        "chunking_strategy": {
            "type": "static",
            "static": {"max_chunk_size_tokens": tokens, "chunk_overlap_tokens": overlap},
        },
    })
}

pub(super) fn batch(store: &str, batch: &BatchInfo, files: FileCounts) -> Value {
    let status = match () {
        () if batch.cancelled => "cancelled",
        () if files.in_progress > 0 => "in_progress",
        () if files.total() > 0 && files.failed == files.total() => "failed",
        () => "completed",
    };
    json!({
        "id": batch.id,
        "object": "vector_store.files_batch",
        "created_at": batch.created,
        "vector_store_id": store,
        "status": status,
        "file_counts": counts(files),
    })
}

/// What a search found, with what is ours beside it: what each leg says of the passage, and where it stands.
pub(super) fn result(passage: &Passage, attributes: &Attributes) -> Value {
    json!({
        "file_id": passage.file_id,
        "filename": passage.filename,
        "score": passage.score,
        "scores": {"words": passage.legs.words, "vectors": passage.legs.vectors},
        "attributes": attributes,
        "content": [{"type": "text", "text": &*passage.text}],
        "page": passage.page,
        "headings": passage.headings,
        "start": passage.start,
        "end": passage.end,
    })
}

pub(super) fn deleted(id: &str, object: &str) -> Value {
    json!({"id": id, "object": object, "deleted": true})
}
