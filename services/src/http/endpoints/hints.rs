//! What to try instead, for those who knock at the wrong door.

use crate::http::wire::error::ApiError;
use crate::limits::HINT_BYTES_MAX;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, ResponseError};

/// Paths without a name in them.
pub(super) const PATHS: [&str; 60] = [
    "/v1/chat/completions",
    "/v1/chat/completions/input_tokens",
    "/v1/completions",
    "/v1/completions/render",
    "/v1/chat/completions/render",
    "/inference/v1/generate",
    "/v1/loads",
    "/server_info",
    "/is_sleeping",
    "/flush_cache",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/v1/embeddings",
    "/v1/decisions",
    "/v1/rerank",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/v2/rerank",
    "/rerank",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/show",
    "/api/tags",
    "/api/ps",
    "/api/version",
    "/api/pull",
    "/completion",
    "/embedding",
    "/infill",
    "/props",
    "/slots",
    "/lora-adapters",
    "/v1/models",
    "/v1/pipelines",
    "/v1/feedback",
    "/v1/learning",
    "/v1/learning/mine",
    "/v1/learning/examples",
    "/v1/learning/versions",
    "/v1/learning/run",
    "/v1/learning/promote",
    "/v1/learning/rollback",
    "/v1/tools",
    "/v1/files",
    "/v1/vector_stores",
    "/v1/engram/tables",
    "/v1/engram/collections",
    "/mcp",
    "/tokenize",
    "/apply-template",
    "/detokenize",
    "/version",
    "/openapi.json",
    "/health",
    "/ready",
    "/metrics",
];
/// Characters of a path that leads nowhere that its answer shows.
const SHOWN_CHARS: usize = 200;
/// How much a path must be like one of ours to be taken for it.
const LIKE: f64 = 0.9;

/// The answer at a path that leads nowhere.
pub(in crate::http) async fn no_such_path(request: HttpRequest) -> HttpResponse {
    let path = request.path();
    let shown: String = path.chars().take(SHOWN_CHARS).collect();
    let cut = if shown.len() < path.len() { "..." } else { "" };
    let message = format!("there is nothing at {shown}{cut}{}", instead_of(path));
    ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message)
        .with_code("unknown_path")
        .rejected_as("unknown_path")
        .error_response()
}

/// For the message about a path that leads nowhere: the end of the sentence, or nothing.
fn instead_of(path: &str) -> String {
    // A longer one is no slip of the pen, and comparing it with all of ours would take milliseconds.
    if path.len() > HINT_BYTES_MAX {
        return String::new();
    }
    let bare = path.trim_end_matches('/').to_ascii_lowercase();
    // Programs put the version before a path that has it, or leave it out.
    let once = bare.replacen("/v1/v1/", "/v1/", 1);
    if let Some(known) = known(&once).or_else(|| known(&format!("/v1{once}"))) {
        return format!("; did you mean {known}?");
    }
    // What is there begins alike, and means other things.
    if once.starts_with("/api/") {
        return String::new();
    }
    let likeness = |known: &&&str| (strsim::jaro_winkler(known, &once) * 1e3) as u32;
    let nearest = PATHS.iter().max_by_key(likeness).filter(|known| strsim::jaro_winkler(known, &once) > LIKE);
    nearest.map_or_else(String::new, |known| format!("; did you mean {known}?"))
}

fn known(path: &str) -> Option<&'static str> {
    PATHS.into_iter().find(|known| *known == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_nowhere_is_answered_with_the_one_that_was_meant() {
        for (path, hint) in [
            ("/v1/chat/completions/", "; did you mean /v1/chat/completions?"),
            ("/chat/completions", "; did you mean /v1/chat/completions?"),
            ("/models", "; did you mean /v1/models?"),
            ("/v1/v1/models/", "; did you mean /v1/models?"),
            ("/V1/Models", "; did you mean /v1/models?"),
            ("/v1/chat/completion", "; did you mean /v1/chat/completions?"),
            ("/version/", "; did you mean /version?"),
            ("/api/chat/", "; did you mean /api/chat?"),
            ("/api/create", ""),
            ("/favicon.ico", ""),
            ("/v1/audio/speech", ""),
            (&format!("/v1/models{}", "/".repeat(HINT_BYTES_MAX)), ""),
        ] {
            assert_eq!(instead_of(path), hint, "{path}");
        }
    }
}
