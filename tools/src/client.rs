//! A small client of the service's own HTTP interface, for `chat` and `bench serve`: JSON in, JSON or server-sent
//! events out, over `http` or `https`.

use super::CliError;
use super::connection::{Ask, Connections, PendingReply, Unsent};
use super::trust;
use actix_http::header::HeaderValue;
use actix_http::{Method, StatusCode};
use bytes::Bytes;
use serde_json::Value;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a reply that is not a stream.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// The key and the certificates that a client needs of a service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// The API key itself.
    pub key: Option<&'a str>,
    /// Or a file whose first line it is.
    pub key_file: Option<&'a Path>,
    /// Certificates that vouch for an https address, instead of the system's.
    pub ca_file: Option<&'a Path>,
}

/// A service that runs somewhere, and how to reach it.
pub struct ServiceClient {
    base: String,
    bearer: Option<String>,
    connections: Connections,
}

impl ServiceClient {
    /// A client for the service at `url`, such as `http://127.0.0.1:8080`. Connects only when something is asked.
    /// Belongs to the runtime it is made on.
    pub fn new(url: &str, access: Credentials<'_>) -> Result<Self, CliError> {
        let base = base_url(url)?;
        let bearer = access.key.map(|key| Ok(key.to_owned())).or_else(|| access.key_file.map(read_key)).transpose()?;
        let tls = if base.starts_with("https:") {
            Some(Arc::new(trust::config(access.ca_file)?))
        } else if let Some(file) = access.ca_file {
            return Err(CliError::Usage(format!("--ca-file {} is for an https address, not {base}", file.display())));
        } else {
            None
        };
        Ok(Self { base, bearer, connections: Connections::new(tls) })
    }

    /// Where the service is.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Asks for a JSON document.
    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        let mut reply = self.ask(Method::GET, path, None).await?;
        read_json(&mut reply).await
    }

    /// Sends a JSON document and reads one.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let mut reply = self.send(path, body).await?;
        read_json(&mut reply).await
    }

    /// Sends a JSON document and reads a stream of them.
    pub async fn stream(&self, path: &str, body: &Value) -> Result<EventStream, Failure> {
        let mut reply = self.send(path, body).await?;
        if reply.status() != StatusCode::OK {
            return Err(read_json(&mut reply)
                .await
                .err()
                .unwrap_or_else(|| Failure::status(reply.status(), &Value::Null)));
        }
        Ok(EventStream { reply, parser: SseParser::default(), ready: VecDeque::new() })
    }

    async fn send(&self, path: &str, body: &Value) -> Result<PendingReply, Failure> {
        let kind = HeaderValue::from_static("application/json");
        self.ask(Method::POST, path, Some((kind, Bytes::from(body.to_string())))).await
    }

    /// Sends a file in a form and reads a JSON document.
    pub async fn post_file(&self, path: &str, filename: &str, bytes: &[u8]) -> Result<Value, Failure> {
        let (boundary, body) = form(filename, bytes);
        let kind = HeaderValue::try_from(format!("multipart/form-data; boundary={boundary}"));
        let kind = kind.map_err(|e| Failure::Broken(e.to_string()))?;
        let mut reply = self.ask(Method::POST, path, Some((kind, body))).await?;
        read_json(&mut reply).await
    }

    /// A request that waits in the queue is silent for as long as that takes: only the connection has a time limit.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<(HeaderValue, Bytes)>,
    ) -> Result<PendingReply, Failure> {
        let url = format!("{}{path}", self.base);
        let uri = url.parse().map_err(|e| Failure::Connect(format!("{url} is no address: {e}")))?;
        let ask = Ask { method, uri, bearer: self.bearer.as_deref(), body };
        self.connections.send(ask).await.map_err(|unsent| match unsent {
            Unsent::Connect(why) => Failure::Connect(why),
            Unsent::Tls(why) => Failure::Tls(why),
            Unsent::Broken(why) => Failure::Broken(why),
        })
    }
}

/// A file's name as a form has room for it.
pub fn form_name(filename: &str) -> String {
    filename.chars().map(|c| if c.is_control() || c == '"' || c == '\\' { '_' } else { c }).collect()
}

/// A form with a file that is to be searched, and what parts it.
fn form(filename: &str, bytes: &[u8]) -> (String, Bytes) {
    // Drawn, so that no file has it.
    let boundary = format!("chimere-{:032x}", rand::random::<u128>());
    let name = form_name(filename);
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nassistants\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let end = format!("\r\n--{boundary}--\r\n");
    (boundary, [head.as_bytes(), bytes, end.as_bytes()].concat().into())
}

fn base_url(url: &str) -> Result<String, CliError> {
    let url = url.trim_end_matches('/');
    let url = url.strip_suffix("/v1").unwrap_or(url);
    match url.split_once("://") {
        Some(("http" | "https", _)) => Ok(url.to_owned()),
        Some((scheme, _)) => {
            Err(CliError::Usage(format!("--url takes http://HOST:PORT or https://HOST:PORT, not the scheme {scheme}")))
        }
        None => Ok(format!("http://{url}")),
    }
}

fn read_key(file: &Path) -> Result<String, CliError> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| CliError::Failed(format!("cannot read the key file {}: {e}", file.display())))?;
    let key = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    key.map(str::to_owned).ok_or_else(|| CliError::Failed(format!("the key file {} has no key", file.display())))
}

/// Why a request did not end well.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Failure {
    /// No connection could be made.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// Something answers there, and no encrypted connection could be made.
    #[error("no encrypted connection: {0}")]
    Tls(String),
    /// The service answered with an error.
    #[error("the server answered {code}: {message}")]
    Status {
        /// Status of the HTTP reply.
        code: u16,
        /// The error's own message.
        message: String,
    },
    /// The stream carried an error.
    #[error("the stream ended with an error: {0}")]
    Event(String),
    /// The connection broke, or what came was no JSON.
    #[error("the reply broke off: {0}")]
    Broken(String),
}

impl Failure {
    fn status(code: StatusCode, body: &Value) -> Self {
        let message = body["error"]["message"].as_str().unwrap_or("no message").to_owned();
        Failure::Status { code: code.as_u16(), message }
    }

    /// A short name to count by.
    pub fn kind(&self) -> String {
        match self {
            Failure::Connect(_) => "connect".into(),
            Failure::Tls(_) => "tls".into(),
            Failure::Status { code, .. } => format!("http_{code}"),
            Failure::Event(_) => "error_event".into(),
            Failure::Broken(_) => "broken".into(),
        }
    }
}

async fn read_json(reply: &mut PendingReply) -> Result<Value, Failure> {
    let mut body = Vec::new();
    while let Some(bytes) = reply.next().await {
        body.extend_from_slice(&bytes.map_err(Failure::Broken)?);
        if body.len() > REPLY_BYTES_MAX {
            return Err(Failure::Broken(format!("it has more than {REPLY_BYTES_MAX} bytes")));
        }
    }
    let json: Result<Value, _> = serde_json::from_slice(&body);
    match (reply.status().is_success(), json) {
        (true, Ok(json)) => Ok(json),
        (true, Err(e)) => Err(Failure::Broken(format!("the reply is no JSON: {e}"))),
        (false, json) => Err(Failure::status(reply.status(), &json.unwrap_or(Value::Null))),
    }
}

/// A running stream. Dropping it closes the connection, which cancels the request.
pub struct EventStream {
    reply: PendingReply,
    parser: SseParser,
    ready: VecDeque<String>,
}

impl EventStream {
    /// The next document; `None` after `[DONE]`. A stream that ends without it is broken.
    pub async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return document(&data);
            }
            match self.reply.next().await {
                Some(Ok(bytes)) => self.ready.extend(self.parser.push(&bytes)),
                Some(Err(e)) => return Err(Failure::Broken(e)),
                None => {
                    let why = "the server closed the connection before the end of its answer (no [DONE])";
                    return Err(Failure::Broken(why.into()));
                }
            }
        }
    }
}

fn document(data: &str) -> Result<Option<Value>, Failure> {
    if data == "[DONE]" {
        return Ok(None);
    }
    let json: Value = serde_json::from_str(data).map_err(|e| Failure::Broken(format!("an event is no JSON: {e}")))?;
    match json.get("error") {
        None | Some(Value::Null) => Ok(Some(json)),
        Some(error) => Err(Failure::Event(error["message"].as_str().unwrap_or("no message").to_owned())),
    }
}

/// Splits a byte stream into the data of server-sent events, wherever the bytes were cut.
#[derive(Default)]
struct SseParser {
    rest: Vec<u8>,
}

impl SseParser {
    /// The data lines that these bytes complete. Comments and other fields are passed over; the service sends one data
    /// line an event.
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(bytes);
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(len) = self.rest[at..].iter().position(|b| *b == b'\n') {
            let line = String::from_utf8_lossy(&self.rest[at..at + len]);
            if let Some(data) = line.trim_end_matches('\r').strip_prefix("data:") {
                found.push(data.trim_start().to_owned());
            }
            at += len + 1;
        }
        self.rest.drain(..at);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_the_bytes_are_cut() {
        let stream = ": waiting\n\ndata: {\"a\":\"\u{e9}\"}\r\n\r\nevent: x\ndata:[DONE]\n\n".as_bytes();
        for cut in 0..stream.len() {
            let mut parser = SseParser::default();
            let mut found = parser.push(&stream[..cut]);
            found.extend(parser.push(&stream[cut..]));
            assert_eq!(found, ["{\"a\":\"\u{e9}\"}", "[DONE]"], "cut at {cut}");
        }
    }

    #[test]
    fn an_event_is_a_document_an_end_or_an_error() {
        assert_eq!(document("[DONE]"), Ok(None));
        assert_eq!(document("{\"x\":1}"), Ok(Some(serde_json::json!({"x": 1}))));
        assert_eq!(document("{\"error\":{\"message\":\"engine lost\"}}"), Err(Failure::Event("engine lost".into())));
        assert!(matches!(document("{"), Err(Failure::Broken(_))));
    }

    #[test]
    fn an_address_may_leave_out_the_scheme_and_keep_the_v1() {
        assert_eq!(base_url("127.0.0.1:8080").unwrap(), "http://127.0.0.1:8080");
        assert_eq!(base_url("http://h:1/v1/").unwrap(), "http://h:1");
        assert_eq!(base_url("https://h:1").unwrap(), "https://h:1");
        assert!(base_url("ftp://h:1").is_err());
    }

    #[test]
    fn certificates_are_for_an_https_address() {
        let with = Credentials { ca_file: Some(Path::new("ca.pem")), ..Credentials::default() };
        assert!(ServiceClient::new("http://h:1", with).is_err());
    }
}
