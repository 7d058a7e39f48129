//! Feedback and examples in `/openapi.json`.

use crate::limits;
use serde_json::{Value, json};

/// Path, method, summary, and the schema of the body.
pub(in crate::http::endpoints) const ENDPOINTS: &[(&str, &str, &str, Option<&str>)] = &[
    ("/v1/feedback", "post", "Say what you think of an answer", Some("Feedback")),
    ("/v1/learning", "get", "Say whether answers are kept to learn from", None),
    ("/v1/learning/mine", "get", "List what is kept of your answers", None),
    ("/v1/learning/mine", "delete", "Remove all that is kept of your answers", None),
    ("/v1/learning/mine/{id}", "delete", "Remove one example", None),
    ("/v1/learning/examples", "get", "Export examples as lines of JSON", None),
    ("/v1/learning/examples", "post", "Import examples as lines of JSON", Some("Any")),
    ("/v1/learning/versions", "get", "List what was learned and what the gate said of it", None),
    ("/v1/learning/run", "post", "Learn now", Some("LearningRun")),
    ("/v1/learning/promote", "post", "Serve a version that has passed the gate", Some("LearningPromote")),
    ("/v1/learning/rollback", "post", "Take the served version back", None),
];

/// The schemas of the bodies, by name.
pub(in crate::http::endpoints) fn schemas() -> [(&'static str, Value); 3] {
    let text = |most: usize| json!({"type": ["string", "null"], "minLength": 1, "maxLength": most, "pattern": "\\S"});
    let id = json!({"type": ["string", "null"]});
    let label = json!({"type": "string", "minLength": 1, "maxLength": limits::LEARNING_LABEL_CHARS_MAX});
    let feedback = json!({
        "response_id": id,
        "completion_id": id,
        "rating": {"type": ["integer", "null"], "minimum": -1, "maximum": 1},
        "correction": text(limits::LEARNING_CORRECTION_CHARS_MAX),
        "reason": text(limits::LEARNING_REASON_CHARS_MAX),
        "labels": {"type": ["array", "null"], "items": label, "maxItems": limits::LEARNING_LABELS_MAX},
    });
    let closed = |properties: Value| json!({"type": "object", "properties": properties, "additionalProperties": false});
    let mut promote = closed(json!({"version": {"type": "integer", "minimum": 1}}));
    promote["required"] = json!(["version"]);
    let run = closed(json!({"dry": {"type": ["boolean", "null"]}}));
    [("Feedback", closed(feedback)), ("LearningRun", run), ("LearningPromote", promote)]
}
