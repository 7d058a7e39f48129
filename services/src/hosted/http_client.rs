//! HTTP of MCP: each message is a request through the one way out, and its answer is one message, as JSON or at the end
//! of a stream of events, which may be cut into several. The stream that a server may open by itself is not listened
//! to.

use super::events::AnswerEvents;
use super::requested_server::RequestedServer;
use crate::limits::{MCP_MESSAGE_BYTES_MAX, MCP_RESUMES_MAX};
use crate::outbound::{Destination, Method, Outbound, OutboundBounds, OutboundError, OutboundReply, OutboundRequest};
use crate::outbound::{OperatorsServer, PublicReach, Refused};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage, ServerResult};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SESSION: &str = "mcp-session-id";
const REVISION: &str = "mcp-protocol-version";
/// Bytes of a refusal that its reader sees.
const SHOWN: usize = 200;

type HttpError = StreamableHttpError<OutboundError>;

/// The way to one server.
#[derive(Clone)]
pub(super) struct HttpClient {
    outbound: Arc<Outbound>,
    address: HttpAddress,
    time: Duration,
}

/// Where a server is.
#[derive(Clone)]
pub(super) enum HttpAddress {
    /// Where the operator says, wherever that is.
    Operators(OperatorsServer),
    /// Where a request says, as far as the operator lets it.
    Requested(RequestedServer, Arc<PublicReach>),
}

impl HttpAddress {
    /// The address as it was written.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Operators(server) => server.url(),
            Self::Requested(server, _) => server.url.clone(),
        }
    }

    fn destination(&self) -> Result<Destination, Refused> {
        match self {
            Self::Operators(server) => Destination::operators(server, ""),
            Self::Requested(server, reach) => Destination::public(&server.url, reach),
        }
    }

    /// What the server is told of who asks.
    fn authorization(&self) -> Option<(String, String)> {
        let Self::Requested(RequestedServer { authorization: Some(secret), .. }, _) = self else { return None };
        Some(("authorization".to_owned(), secret.header()))
    }
}

impl HttpClient {
    /// To a server whose answers take no longer than this.
    pub(super) fn new(address: HttpAddress, time: Duration) -> Self {
        Self { outbound: Arc::default(), address, time }
    }

    async fn ask(&self, mut request: OutboundRequest) -> Result<OutboundReply, HttpError> {
        let refused = |e: Refused| StreamableHttpError::Client(e.into());
        let destination = self.address.destination().map_err(refused)?;
        let bounds = OutboundBounds { time: self.time, bytes: MCP_MESSAGE_BYTES_MAX };
        request.headers.extend(self.address.authorization());
        self.outbound.open(destination, &request, bounds).await.map_err(StreamableHttpError::Client)
    }

    /// The answer to a request in a stream of events. A stream that ends before the answer is asked for again.
    async fn heard(
        &self,
        mut reply: OutboundReply,
        request: &RequestId,
        headers: Vec<(String, String)>,
    ) -> Result<ServerJsonRpcMessage, HttpError> {
        let (end, mut events) = (Instant::now() + self.time, AnswerEvents::to(request.clone()));
        for _ in 0..=MCP_RESUMES_MAX {
            while let Some(piece) = reply.next().await.map_err(StreamableHttpError::Client)? {
                if let Some(answer) = events.take(&piece) {
                    return Ok(answer);
                }
            }
            let Some((last, pause)) = events.broken_off().filter(|(_, pause)| Instant::now() + *pause < end) else {
                break;
            };
            tokio::time::sleep(pause).await;
            let mut headers = headers.clone();
            headers.push(("last-event-id".to_owned(), last));
            reply = self.ask(OutboundRequest { method: Method::Get, headers, body: Bytes::new() }).await?;
            if reply.status() != 200 {
                break;
            }
        }
        Err(StreamableHttpError::UnexpectedEndOfStream)
    }

    /// What the answer to a message says.
    async fn answered(
        &self,
        reply: OutboundReply,
        message: &ClientJsonRpcMessage,
        session: Option<&str>,
        headers: &HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let status = reply.status();
        if matches!(status, 202 | 204) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == 404 && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let given = reply.header(SESSION).map(str::to_owned);
        let is_events =
            reply.header("content-type").is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"));
        if !(200..300).contains(&status) {
            let body = reply.whole().await.map_err(StreamableHttpError::Client)?;
            return refused(status, &body, message, session.is_some());
        }
        let answer = match message {
            ClientJsonRpcMessage::Request(request) if is_events => {
                let headers = resuming(headers, given.as_deref().or(session));
                self.heard(reply, &request.id, headers).await?
            }
            ClientJsonRpcMessage::Request(_) => {
                serde_json::from_slice(&reply.whole().await.map_err(StreamableHttpError::Client)?)?
            }
            // Nothing answers what is no request.
            _ => return Ok(StreamableHttpPostResponse::Accepted),
        };
        Ok(StreamableHttpPostResponse::Json(understood(answer, message), given))
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
        let reply = self.ask(OutboundRequest { method: Method::Post, headers: all, body }).await?;
        self.answered(reply, &message, session.as_deref(), &headers).await
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
        self.ask(OutboundRequest { method: Method::Delete, headers: all, body: Bytes::new() }).await.map(drop)
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

/// The headers with which a stream of events is asked for again.
fn resuming(headers: &HashMap<HeaderName, HeaderValue>, session: Option<&str>) -> Vec<(String, String)> {
    let mut all = vec![("accept".to_owned(), "text/event-stream".to_owned())];
    all.extend(written(headers).into_iter().filter(|(name, _)| name == REVISION));
    all.extend(session.map(|session| (SESSION.to_owned(), session.to_owned())));
    all
}

/// The answer to a request. Some servers of before 2026 have an empty result for every request that they do not know:
/// then it is an error, as others say that they know no `server/discover`.
fn understood(answer: ServerJsonRpcMessage, message: &ClientJsonRpcMessage) -> ServerJsonRpcMessage {
    match (&answer, message) {
        (ServerJsonRpcMessage::Response(response), ClientJsonRpcMessage::Request(request))
            if matches!(request.request, ClientRequest::DiscoverRequest(_))
                && !matches!(response.result, ServerResult::DiscoverResult(_)) =>
        {
            let error = ErrorData::invalid_request("the answer is no description of a server", None);
            ServerJsonRpcMessage::error(error, Some(request.id.clone()))
        }
        _ => answer,
    }
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
