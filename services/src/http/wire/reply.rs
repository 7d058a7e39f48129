//! How an [`ApiError`] becomes a response, and what every response carries.

use super::error::ApiError;
use crate::limits::REQUEST_NAME_BYTES_MAX;
use crate::metrics::count_rejected;
use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::http::{ConnectionType, StatusCode, Version};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse, ResponseError};
use std::sync::Arc;

/// Code of a refusal for want of room for the body, whose rest nobody reads.
pub(in crate::http) const BODIES_FULL: &str = "bodies_full";
/// Name of a request, chosen by the client or by us, in the reply and in the log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Milliseconds until it is worth coming back; OpenAI's clients prefer it to `Retry-After`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// Why a request was refused that another worker may have room for, in the header that llm-d's router gives it too.
pub(in crate::http) const DROPPED_REASON: HeaderName = HeaderName::from_static("x-llm-d-request-dropped-reason");

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        self.counted();
        let mut reply = HttpResponse::build(self.status);
        for header in self.retry_headers().into_iter().flatten() {
            reply.insert_header(header);
        }
        let elsewhere = matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        if let Some(reason) = self.rejected.or(self.code).filter(|_| elsewhere) {
            reply.insert_header((DROPPED_REASON, reason));
        }
        let unread = matches!(self.status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT);
        if unread || self.code == Some(BODIES_FULL) {
            reply.force_close(); // the rest of the body is on its way, and nobody will read it
        }
        if self.status == StatusCode::UNAUTHORIZED {
            reply.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
        }
        let mut reply = reply.json(self);
        // Whoever speaks another dialect has it written anew on the way out.
        reply.extensions_mut().insert(self.clone());
        reply
    }
}

impl ApiError {
    /// Counts a refusal. Each one is told once: in a response, or in a message of a socket.
    pub(in crate::http) fn counted(&self) {
        self.rejected.into_iter().for_each(count_rejected);
    }

    /// Headers that say when it is worth coming back.
    pub(in crate::http) fn retry_headers(&self) -> Option<[(HeaderName, u64); 2]> {
        // Both rounded up, one from the other: nobody comes back before the time, and they agree.
        let millis = self.retry_after?.as_nanos().div_ceil(1_000_000) as u64;
        Some([(header::RETRY_AFTER, millis.div_ceil(1000)), (RETRY_AFTER_MS, millis)])
    }
}

/// The name of this request.
#[derive(Clone, Debug)]
pub(in crate::http) struct RequestName(Arc<str>);

impl RequestName {
    /// As the middleware gave it.
    pub(in crate::http) fn of(request: &HttpRequest) -> Arc<str> {
        request.extensions().get::<RequestName>().map_or_else(|| draw().into(), |name| name.0.clone())
    }
}

/// Names another request of a connection that carries several with one head.
pub(in crate::http) fn name_anew(request: &HttpRequest) {
    request.extensions_mut().insert(RequestName(draw().into()));
}

/// Names each request and puts the name into its reply, whatever that is. A stream to a client of HTTP/1.0, which knows
/// no chunks, ends with the connection.
pub(in crate::http) async fn name_requests(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let given = request.headers().get(&REQUEST_ID).and_then(|v| v.to_str().ok()).filter(|v| acceptable(v));
    let name: Arc<str> = given.map_or_else(draw, str::to_owned).into();
    let value = HeaderValue::from_str(&name).expect("an acceptable name is plain ASCII");
    request.extensions_mut().insert(RequestName(name));
    let knows_chunks = request.version() >= Version::HTTP_11;
    let mut reply = next.call(request).await?;
    if !knows_chunks && reply.response().body().size() == BodySize::Stream {
        let head = reply.response_mut().head_mut();
        head.no_chunking(true);
        head.set_connection_type(ConnectionType::Close);
    }
    reply.headers_mut().insert(REQUEST_ID, value);
    Ok(reply)
}

fn draw() -> String {
    format!("req_{}", uuid::Uuid::new_v4().simple())
}

/// Plain enough for logs and headers; anything else is replaced, not cut.
fn acceptable(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&b);
    (1..=REQUEST_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_name_that_could_forge_a_log_line_is_not_taken() {
        assert!(acceptable("req_1.a:b/c+d=e@f"));
        for bad in ["", "a b", "a\"b", "a\nb", "ä", &"a".repeat(129)] {
            assert!(!acceptable(bad), "{bad:?}");
        }
        assert!(acceptable(&draw()));
    }

    #[test]
    fn a_refusal_that_passes_says_when_in_both_headers() {
        // Part of a millisecond beyond a whole second must not be lost in one header and kept in the other.
        for (micros, seconds, millis) in [(2_300_000, "3", "2300"), (1_000_000, "1", "1000"), (1_000_300, "2", "1001")]
        {
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "full");
            let reply = error.with_retry_after(Duration::from_micros(micros)).error_response();
            assert_eq!(reply.headers().get("retry-after").unwrap(), seconds);
            assert_eq!(reply.headers().get("retry-after-ms").unwrap(), millis);
        }
    }

    #[test]
    fn a_refusal_that_another_worker_may_not_give_says_its_reason_to_the_router() {
        for (status, reason, told) in [(429, "queue_full", true), (503, "draining", true), (400, "invalid", false)] {
            let status = StatusCode::from_u16(status).unwrap();
            let reply = ApiError::new(status, "a_kind", "why").rejected_as(reason).error_response();
            let header = reply.headers().get(DROPPED_REASON).map(|value| value.to_str().unwrap());
            assert_eq!(header, told.then_some(reason));
        }
    }
}
