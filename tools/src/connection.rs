//! Connections of a client: HTTP/1.1 in plain text or under TLS, spoken by the codec of `actix-http`, one request after
//! another, and kept open between them. What is asked and what comes is `client.rs`'s.

use actix_codec::{AsyncRead, AsyncWrite, BytesCodec, Framed};
use actix_http::body::BodySize;
use actix_http::header::{self, HeaderValue};
use actix_http::{Method, RequestHead, RequestHeadType, ResponseHead, ServiceConfig, StatusCode, Uri, h1};
use bytes::Bytes;
use futures_util::{FutureExt, SinkExt, StreamExt};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why nothing was answered, in one line.
#[derive(Debug, PartialEq)]
pub(super) enum Unsent {
    /// No connection could be made.
    Connect(String),
    /// There is a server, and no TLS with it.
    Tls(String),
    /// It broke before the reply began.
    Broken(String),
}

/// A request, with its body if it has one.
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) bearer: Option<&'a str>,
    /// Its body with the type of that.
    pub(super) body: Option<(HeaderValue, Bytes)>,
}

trait Socket: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Socket for T {}

type OpenConnection = Framed<Box<dyn Socket>, h1::ClientCodec>;

/// A connection whose reply has a body.
enum ReadingConnection {
    /// The head says where the body ends.
    Framed(Framed<Box<dyn Socket>, h1::ClientPayloadCodec>),
    /// The body ends with the connection.
    UntilClosed(Framed<Box<dyn Socket>, BytesCodec>),
}

/// Ways to one server. Belongs to the runtime it is made on.
pub(super) struct Connections {
    tls: Option<TlsConnector>,
    config: ServiceConfig,
    /// Those on which nobody waits for anything.
    idle: Rc<RefCell<Vec<OpenConnection>>>,
}

impl Connections {
    /// Under TLS if it is known how.
    pub(super) fn new(tls: Option<Arc<ClientConfig>>) -> Self {
        Self { tls: tls.map(TlsConnector::from), config: ServiceConfig::default(), idle: Rc::default() }
    }

    /// Asks and waits for the head of the reply, for as long as that takes.
    pub(super) async fn send(&self, ask: Ask<'_>) -> Result<PendingReply, Unsent> {
        let host = ask.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let mut open = match self.waiting() {
            Some(open) => open,
            None => {
                let port = ask.uri.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
                let opened = tokio::time::timeout(CONNECT_TIMEOUT, self.open(host, port)).await;
                let socket = opened.map_err(|_| Unsent::Connect("it took too long".to_owned())).flatten()?;
                Framed::new(socket, h1::ClientCodec::new(self.config.clone()))
            }
        };
        write(&mut open, ask).await.map_err(|e| Unsent::Broken(e.to_string()))?;
        match open.next().await {
            Some(Ok(head)) => Ok(PendingReply::new(&head, open, self.idle.clone())),
            Some(Err(e)) => Err(Unsent::Broken(e.to_string())),
            None => Err(Unsent::Broken("the server closed the connection".into())),
        }
    }

    /// One that was left open, and which the server has not closed since.
    fn waiting(&self) -> Option<OpenConnection> {
        let idle = || self.idle.borrow_mut().pop();
        std::iter::from_fn(idle).find_map(|mut open| open.next().now_or_never().is_none().then_some(open))
    }

    async fn open(&self, host: String, port: u16) -> Result<Box<dyn Socket>, Unsent> {
        let unconnected = |e: std::io::Error| Unsent::Connect(e.to_string());
        let plain = TcpStream::connect((host.as_str(), port)).await.map_err(unconnected)?;
        // A request is written at once, so nothing is gained by waiting for more of it.
        plain.set_nodelay(true).map_err(unconnected)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(plain)) };
        let name = ServerName::try_from(host).map_err(|e| Unsent::Connect(e.to_string()))?;
        Ok(Box::new(tls.connect(name, plain).await.map_err(|e| Unsent::Tls(e.to_string()))?))
    }
}

async fn write(open: &mut OpenConnection, ask: Ask<'_>) -> std::io::Result<()> {
    let invalid = |e: header::InvalidHeaderValue| std::io::Error::new(std::io::ErrorKind::InvalidInput, e);
    let mut head = RequestHead::default();
    (head.method, head.uri) = (ask.method, ask.uri);
    let host = head.uri.authority().map_or("", |at| at.as_str()).to_owned();
    head.headers.insert(header::HOST, HeaderValue::try_from(host).map_err(invalid)?);
    if let Some(key) = ask.bearer {
        let bearer = HeaderValue::try_from(format!("Bearer {key}")).map_err(invalid)?;
        head.headers.insert(header::AUTHORIZATION, bearer);
    }
    let length = match &ask.body {
        Some((kind, body)) => {
            head.headers.insert(header::CONTENT_TYPE, kind.clone());
            BodySize::Sized(body.len() as u64)
        }
        None => BodySize::None,
    };
    open.feed(h1::Message::Item((RequestHeadType::Owned(head), length))).await?;
    if let Some((_, body)) = ask.body {
        open.feed(h1::Message::Chunk(Some(body))).await?;
    }
    SinkExt::<h1::Message<(RequestHeadType, BodySize)>>::flush(open).await
}

/// A reply whose head is there.
pub(super) struct PendingReply {
    status: StatusCode,
    /// `None` once all of the body is there.
    body: Option<ReadingConnection>,
    idle: Rc<RefCell<Vec<OpenConnection>>>,
}

impl PendingReply {
    fn new(head: &ResponseHead, open: OpenConnection, idle: Rc<RefCell<Vec<OpenConnection>>>) -> Self {
        let mut reply = Self { status: head.status, body: None, idle };
        reply.body = match open.codec_ref().message_type() {
            h1::MessageType::None if ends_with_the_connection(head) => {
                Some(ReadingConnection::UntilClosed(open.into_map_codec(|_| BytesCodec)))
            }
            h1::MessageType::None => {
                reply.leave(open);
                None
            }
            _ => Some(ReadingConnection::Framed(open.into_map_codec(h1::ClientCodec::into_payload_codec))),
        };
        reply
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The next bytes of the body; `None` at its end, which may be that of the connection. Who drops a reply before
    /// that closes the connection.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        match self.body.as_mut()? {
            ReadingConnection::Framed(body) => match body.next().await {
                Some(Ok(Some(bytes))) => Some(Ok(bytes)),
                Some(Ok(None)) => {
                    if let Some(ReadingConnection::Framed(body)) = self.body.take() {
                        self.leave(body.into_map_codec(h1::ClientPayloadCodec::into_message_codec));
                    }
                    None
                }
                Some(Err(e)) => Some(Err(e.to_string())),
                None => None,
            },
            ReadingConnection::UntilClosed(body) => match body.next().await? {
                Ok(bytes) => Some(Ok(bytes.freeze())),
                // Many servers end TLS without a word. Whether all has come, the body says itself: JSON, or its last
                // event.
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => None,
                Err(e) => Some(Err(e.to_string())),
            },
        }
    }

    /// Leaves a connection for the next request, if the server does.
    fn leave(&self, open: OpenConnection) {
        if open.codec_ref().keep_alive() {
            self.idle.borrow_mut().push(open);
        }
    }
}

/// The head says neither that there is no body nor how long it is (RFC 9112, section 6.3).
fn ends_with_the_connection(head: &ResponseHead) -> bool {
    let has = |name| head.headers.contains_key(name);
    let none = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&head.status);
    !none && !has(header::CONTENT_LENGTH) && !has(header::TRANSFER_ENCODING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream as Plain};

    /// Heads and bodies of the requests of one connection.
    type Asked = Vec<(String, String)>;

    /// Reads a request, of which it returns head and body.
    fn read(from: &mut BufReader<Plain>) -> Option<(String, String)> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            (from.read_line(&mut head).unwrap() > 0).then_some(())?;
        }
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        let mut body = vec![0; length];
        from.read_exact(&mut body).unwrap();
        Some((head, String::from_utf8(body).unwrap()))
    }

    /// Answers what comes, connection after connection, each with its replies; says how many requests each brought.
    fn server(replies: Vec<Vec<&'static str>>) -> (u16, std::thread::JoinHandle<Vec<Asked>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = move |replies: Vec<&str>| {
            let mut from = BufReader::new(listener.accept().unwrap().0);
            let mut asked = Vec::new();
            for reply in replies {
                asked.push(read(&mut from).unwrap());
                from.get_mut().write_all(reply.as_bytes()).unwrap();
            }
            asked
        };
        (port, std::thread::spawn(move || replies.into_iter().map(serve).collect()))
    }

    fn ask(port: u16, json: Option<&'static str>) -> Ask<'static> {
        let method = if json.is_some() { Method::POST } else { Method::GET };
        let uri = format!("http://127.0.0.1:{port}/v1/x?y=1").parse().unwrap();
        let kind = HeaderValue::from_static("application/json");
        let body = json.map(|json| (kind, Bytes::from_static(json.as_bytes())));
        Ask { method, uri, bearer: Some("k"), body }
    }

    async fn whole(mut reply: PendingReply) -> (u16, String) {
        let mut text = Vec::new();
        while let Some(bytes) = reply.next().await {
            text.extend(bytes.unwrap());
        }
        (reply.status().as_u16(), String::from_utf8(text).unwrap())
    }

    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n4\r\n two\r\n0\r\n\r\n";

    #[actix_rt::test]
    async fn a_connection_is_used_again_and_another_opened_where_the_server_closed() {
        let empty = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        let last = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        let (port, served) = server(vec![vec![CHUNKED, empty, CHUNKED], vec![last], vec![CHUNKED]]);
        let connections = Connections::new(None);
        for (nth, want) in
            [(200, "one two"), (404, ""), (200, "one two"), (200, "{}"), (200, "one two")].iter().enumerate()
        {
            let got = whole(connections.send(ask(port, Some("[1]"))).await.unwrap()).await;
            assert_eq!((got.0, got.1.as_str()), *want);
            // The server closes behind its third reply: until that is seen.
            while nth == 2
                && let Some(open) = connections.waiting()
            {
                connections.idle.borrow_mut().push(open);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let asked = served.join().unwrap();
        assert_eq!(asked.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1, 1]);
        let (head, body) = &asked[0][1];
        assert!(head.starts_with("POST /v1/x?y=1 HTTP/1.1\r\n") && body == "[1]", "{head}{body}");
        for line in ["authorization: Bearer k", "content-type: application/json", &format!("host: 127.0.0.1:{port}")] {
            assert!(head.lines().any(|have| have == line), "{line} in {head}");
        }
    }

    #[actix_rt::test]
    async fn a_reply_without_a_length_ends_with_its_connection() {
        let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"a\": 1}";
        let older = "HTTP/1.0 200 OK\r\n\r\n{\"b\": 2}";
        let nothing = "HTTP/1.1 204 No Content\r\n\r\n";
        let (port, served) = server(vec![vec![closing], vec![older], vec![nothing, CHUNKED]]);
        let connections = Connections::new(None);
        for want in [(200, "{\"a\": 1}"), (200, "{\"b\": 2}"), (204, ""), (200, "one two")] {
            let got = whole(connections.send(ask(port, None)).await.unwrap()).await;
            assert_eq!((got.0, got.1.as_str()), want);
        }
        served.join().unwrap();
    }

    #[actix_rt::test]
    async fn a_reply_that_is_dropped_closes_its_connection_and_one_without_end_is_seen() {
        let open_ended = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";
        let (port, served) = server(vec![vec![open_ended], vec!["HTTP/1.1 200 OK\r\n"]]);
        let connections = Connections::new(None);
        let mut reply = connections.send(ask(port, None)).await.unwrap();
        assert_eq!(reply.next().await, Some(Ok(Bytes::from_static(b"one"))));
        drop(reply);
        assert!(connections.idle.borrow().is_empty());
        let closed = connections.send(ask(port, None)).await.err().unwrap();
        assert!(matches!(closed, Unsent::Broken(_)), "{closed:?}");
        served.join().unwrap();
        let refused = connections.send(ask(port, None)).await.err().unwrap();
        assert!(matches!(refused, Unsent::Connect(_)), "{refused:?}");
    }
}
