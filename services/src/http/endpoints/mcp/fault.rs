//! An error of the protocol. That a tool failed is none: its result says so.

use crate::metrics::count_rejected;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcError, RequestId};
use std::borrow::Cow;

/// See the file's head.
#[derive(Debug)]
pub(super) struct Fault {
    /// Absent where it could not be read, or where nothing was asked.
    pub(super) id: Option<RequestId>,
    /// Its code and its words, as the protocol has them.
    pub(super) error: Box<ErrorData>,
    status: StatusCode,
}

impl Fault {
    /// Of a message that is at fault whatever its revision.
    pub(super) fn of(id: Option<RequestId>, code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::bad(id, ErrorData::new(code, message, None))
    }

    /// An error whose status is 400.
    pub(super) fn bad(id: Option<RequestId>, error: ErrorData) -> Self {
        Self { id, error: error.into(), status: StatusCode::BAD_REQUEST }
    }

    /// An error with a status that its revision demands.
    pub(super) fn within(id: RequestId, error: ErrorData, status: StatusCode) -> Self {
        Self { id: Some(id), error: error.into(), status }
    }

    /// As clients read it.
    pub(super) fn into_response(self) -> HttpResponse {
        count_rejected("invalid");
        tracing::info!(code = self.error.code.0, error = &*self.error.message, "an MCP message is refused");
        HttpResponse::build(self.status).json(JsonRpcError::new(self.id, *self.error))
    }
}
