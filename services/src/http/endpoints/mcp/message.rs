//! A message of JSON-RPC as it comes: a request or a notification. Batches are none since revision 2025-06-18, and
//! answers have no place here, because the service asks its clients nothing.

use super::fault::Fault;
use crate::http::wire::json::{self, JsonError};
use rmcp::model::{ErrorCode, JsonObject, RequestId};
use serde_json::Value;

/// What a client sent.
#[derive(Debug)]
pub(super) struct McpMessage {
    /// Absent from a notification, which gets no answer.
    pub(super) id: Option<RequestId>,
    pub(super) method: String,
    pub(super) params: JsonObject,
}

impl McpMessage {
    /// Reads the body of a POST.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Fault> {
        let code = |error: &JsonError| match error {
            JsonError::Invalid(_) => ErrorCode::PARSE_ERROR,
            JsonError::TooLarge { .. } => ErrorCode::INVALID_REQUEST,
        };
        let mut map = match json::parse(body).map_err(|e| Fault::of(None, code(&e), e.to_string()))? {
            Value::Object(map) => map,
            Value::Array(_) => return Err(malformed(None, "the body must be one message, got a batch")),
            _ => return Err(malformed(None, "the body must be one message, which is a JSON object")),
        };
        let id = map.remove("id").map(id).transpose()?;
        if map.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(malformed(id, "`jsonrpc` must be \"2.0\""));
        }
        let Some(Value::String(method)) = map.remove("method") else {
            return Err(malformed(id, "`method` must be a string: requests and notifications are taken"));
        };
        let params = match map.remove("params") {
            None => JsonObject::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return Err(Fault::of(id, ErrorCode::INVALID_PARAMS, "`params` must be an object")),
        };
        Ok(Self { id, method, params })
    }

    /// What stands beside the parameters, where the client says what it is.
    pub(super) fn meta(&self) -> Option<&JsonObject> {
        self.params.get("_meta").and_then(Value::as_object)
    }

    /// A parameter that is a text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.params.get(name).and_then(Value::as_str)
    }
}

fn malformed(id: Option<RequestId>, message: &'static str) -> Fault {
    Fault::of(id, ErrorCode::INVALID_REQUEST, message)
}

fn id(value: Value) -> Result<RequestId, Fault> {
    serde_json::from_value(value).map_err(|_| malformed(None, "`id` must be a string or a whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_and_no_notification_is_told_why() {
        for (body, code, word) in [
            ("{", -32700, "not valid JSON"),
            ("[]", -32600, "batch"),
            ("7", -32600, "JSON object"),
            (r#"{"id": 1, "method": "ping"}"#, -32600, "`jsonrpc`"),
            (r#"{"jsonrpc": "2.0", "id": null, "method": "ping"}"#, -32600, "`id`"),
            (r#"{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}"#, -32600, "`id`"),
            (r#"{"jsonrpc": "2.0", "id": 1, "result": {}}"#, -32600, "`method`"),
            (r#"{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}"#, -32602, "`params`"),
        ] {
            let fault = McpMessage::parse(body.as_bytes()).unwrap_err();
            assert_eq!(fault.error.code.0, code, "{body}");
            assert!(fault.error.message.contains(word), "{body}: {}", fault.error.message);
        }
        let message = McpMessage::parse(br#"{"jsonrpc": "2.0", "id": "a", "method": "ping"}"#).unwrap();
        assert_eq!((message.id, message.method.as_str()), (Some(RequestId::String("a".into())), "ping"));
        assert_eq!(McpMessage::parse(br#"{"jsonrpc": "2.0", "method": "notifications/x"}"#).unwrap().id, None);
    }
}
