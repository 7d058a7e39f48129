//! Posts batches of spans to a collector: one HTTP/1.1 request over a connection of its own, in plain text. It runs on
//! the thread of the spans, which has nothing else to do, so it simply waits.

use crate::metrics;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long each of connecting, writing and reading may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of an answer that are read; a collector says little.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// The way to a collector.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// The last batch was not taken: said once, not with every batch.
    silent: AtomicBool,
}

impl HttpClient for Collector {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = post(&request);
            match &answer {
                Ok(answer) if answer.status().is_success() => self.silent.store(false, Ordering::Relaxed),
                Ok(answer) => self.complain(&answer.status().to_string()),
                Err(error) => self.complain(&error.to_string()),
            }
            answer
        })
    }
}

impl Collector {
    fn complain(&self, why: &str) {
        ::metrics::counter!(metrics::TRACE_FAILURES).increment(1);
        if !self.silent.swap(true, Ordering::Relaxed) {
            tracing::warn!(why, "the collector of traces takes no spans");
        }
    }
}

fn post(request: &Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (host, port) = (request.uri().host().ok_or("no host")?, request.uri().port_u16().unwrap_or(80));
    let address = (host.trim_matches(['[', ']']), port).to_socket_addrs()?.next().ok_or("no address")?;
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.write_all(&written(request, host, port))?;
    let mut answer = Vec::new();
    socket.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    read(&answer)
}

fn written(request: &Request<Bytes>, host: &str, port: u16) -> Vec<u8> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut out =
        format!("{} {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n", request.method()).into_bytes();
    for (name, value) in request.headers() {
        out.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    out.extend(format!("content-length: {}\r\n\r\n", request.body().len()).into_bytes());
    out.extend_from_slice(request.body());
    out
}

/// Status and body. A body in chunks is left as it came: nothing but its status is looked at.
fn read(answer: &[u8]) -> Result<Response<Bytes>, HttpError> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("the answer has no end of its head")?;
    let head = std::str::from_utf8(&answer[..end])?;
    let status = head.split(' ').nth(1).filter(|_| head.starts_with("HTTP/1.")).ok_or("the answer is not HTTP/1")?;
    Ok(Response::builder().status(status).body(Bytes::copy_from_slice(&answer[end + 4..]))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_what_is_none_is_an_error() {
        let good = read(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        assert_eq!((good.status().as_u16(), &good.body()[..]), (200, b"{}".as_slice()));
        for bad in ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0 200\r\n\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.1 yes\r\n\r\n"] {
            assert!(read(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_request_is_written_with_its_length_and_host() {
        let request = Request::post("http://[::1]:4318/v1/traces").header("content-type", "application/json");
        let request = request.body(Bytes::from_static(b"{}")).unwrap();
        let text = String::from_utf8(written(&request, "[::1]", 4318)).unwrap();
        assert!(text.starts_with("POST /v1/traces HTTP/1.1\r\nhost: [::1]:4318\r\nconnection: close\r\n"), "{text}");
        assert!(
            text.contains("content-type: application/json\r\n") && text.ends_with("content-length: 2\r\n\r\n{}"),
            "{text}"
        );
    }
}
