//! HTTP of MCP: each message is a request through the one way out, and its answer is one message, as JSON or at the end
//! of a stream of events. The stream that a server may open by itself is not listened to.

use crate::limits::MCP_MESSAGE_BYTES_MAX;
use crate::outbound::{Destination, Method, Outbound, OutboundBounds, OutboundError, OutboundReply, OutboundRequest};
use crate::outbound::{OperatorsServer, Refused};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const SESSION: &str = "mcp-session-id";
/// Bytes of a refusal that its reader sees.
const SHOWN: usize = 200;

type HttpError = StreamableHttpError<OutboundError>;

/// The way to one server.
#[derive(Clone)]
pub(super) struct HttpClient {
    outbound: Arc<Outbound>,
    server: OperatorsServer,
    time: Duration,
}

impl HttpClient {
    /// To a server whose answers take no longer than this.
    pub(super) fn new(server: OperatorsServer, time: Duration) -> Self {
        Self { outbound: Arc::default(), server, time }
    }

    async fn ask(&self, request: &OutboundRequest) -> Result<OutboundReply, HttpError> {
        let refused = |e: Refused| StreamableHttpError::Client(e.into());
        let destination = Destination::operators(&self.server, "").map_err(refused)?;
        let bounds = OutboundBounds { time: self.time, bytes: MCP_MESSAGE_BYTES_MAX };
        self.outbound.open(destination, request, bounds).await.map_err(StreamableHttpError::Client)
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = OutboundError;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let mut all = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("accept".to_owned(), "application/json, text/event-stream".to_owned()),
        ];
        all.extend(written(&headers));
        all.extend(session.as_ref().map(|session| (SESSION.to_owned(), session.to_string())));
        let body = Bytes::from(serde_json::to_vec(&message)?);
        let reply = self.ask(&OutboundRequest { method: Method::Post, headers: all, body }).await?;
        answered(reply, &message, session.is_some()).await
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session: Arc<str>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        let mut all = written(&headers);
        all.push((SESSION.to_owned(), session.to_string()));
        self.ask(&OutboundRequest { method: Method::Delete, headers: all, body: Bytes::new() }).await.map(drop)
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        _session: Option<Arc<str>>,
        _last_event: Option<String>,
        _auth: Option<String>,
        _headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        Err(StreamableHttpError::ServerDoesNotSupportSse)
    }
}

fn written(headers: &HashMap<HeaderName, HeaderValue>) -> Vec<(String, String)> {
    let text = |(name, value): (&HeaderName, &HeaderValue)| Some((name.to_string(), value.to_str().ok()?.to_owned()));
    headers.iter().filter_map(text).collect()
}

/// What an answer says.
async fn answered(
    mut reply: OutboundReply,
    message: &ClientJsonRpcMessage,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let status = reply.status();
    if matches!(status, 202 | 204) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    if status == 404 && in_session {
        return Err(StreamableHttpError::SessionExpired);
    }
    let session = reply.header(SESSION).map(str::to_owned);
    let is_events = reply.header("content-type").is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"));
    if !(200..300).contains(&status) {
        let body = reply.whole().await.map_err(StreamableHttpError::Client)?;
        return refused(status, &body, message, in_session);
    }
    if is_events {
        return Ok(StreamableHttpPostResponse::Json(last_of(&mut reply).await?, session));
    }
    let body = reply.whole().await.map_err(StreamableHttpError::Client)?;
    if body.is_empty() && !matches!(message, ClientJsonRpcMessage::Request(_)) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    Ok(StreamableHttpPostResponse::Json(serde_json::from_slice(&body)?, session))
}

/// The answer to a request, before which others may come in the same stream of events.
async fn last_of(reply: &mut OutboundReply) -> Result<ServerJsonRpcMessage, HttpError> {
    let (mut text, mut searched) = (Vec::new(), 0);
    while let Some(piece) = reply.next().await.map_err(StreamableHttpError::Client)? {
        text.extend(piece.iter().filter(|byte| **byte != b'\r'));
        while let Some(end) = text[searched..].windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = text.drain(..searched + end + 2).collect();
            searched = 0;
            let said = data_of(&String::from_utf8_lossy(&event));
            if let Ok(message @ (ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_))) =
                serde_json::from_str(&said)
            {
                return Ok(message);
            }
        }
        // An event's end may be cut in two by the pieces.
        searched = text.len().saturating_sub(1);
    }
    Err(StreamableHttpError::UnexpectedEndOfStream)
}

/// The data of an event.
fn data_of(event: &str) -> String {
    let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// A refusal: an error of the protocol, or none that it knows. A server that does not know `server/discover` may say so
/// by its status alone, and is spoken to with a handshake then.
fn refused(
    status: u16,
    body: &[u8],
    message: &ClientJsonRpcMessage,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let error = match serde_json::from_slice::<ServerJsonRpcMessage>(body) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error),
        _ => None,
    };
    let said: String = String::from_utf8_lossy(body).chars().take(SHOWN).collect();
    if let ClientJsonRpcMessage::Request(request) = message
        && matches!(request.request, ClientRequest::DiscoverRequest(_))
        && (400..500).contains(&status)
        && !matches!(status, 401 | 403)
        && !in_session
    {
        let other = || ErrorData::invalid_request(format!("HTTP {status}: {said}"), None);
        let error = error.map_or_else(other, |error| error.error);
        let message = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
        return Ok(StreamableHttpPostResponse::Json(message, None));
    }
    match error {
        Some(error) => Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), None)),
        None => Err(StreamableHttpError::UnexpectedServerResponse(format!("HTTP {status}: {said}").into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_an_event_is_its_lines_without_their_names() {
        assert_eq!(data_of("event: message\ndata: {\"a\":\ndata:1}\nid: 7\n\n"), "{\"a\":\n1}");
        assert_eq!(data_of(": still here\n\n"), "");
    }
}
