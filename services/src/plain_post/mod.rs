//! One HTTP/1.1 request over a connection of its own, in plain text, to a server that the operator named. It waits, so
//! it runs on threads that have nothing else to do.

use opentelemetry_http::{Bytes, HttpError, Request, Response};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Bounds of one request.
#[derive(Clone, Copy, Debug)]
pub struct PostBounds {
    /// How long each of connecting, writing and every read may take.
    pub patience: Duration,
    /// Bytes of an answer that are read.
    pub answer_bytes_max: u64,
}

/// Sends a request and reads the answer to its end.
pub fn post(request: &Request<Bytes>, bounds: PostBounds) -> Result<Response<Bytes>, HttpError> {
    let (host, port) = (request.uri().host().ok_or("no host")?, request.uri().port_u16().unwrap_or(80));
    let address = (host.trim_matches(['[', ']']), port).to_socket_addrs()?.next().ok_or("no address")?;
    let mut socket = TcpStream::connect_timeout(&address, bounds.patience)?;
    socket.set_read_timeout(Some(bounds.patience))?;
    socket.set_write_timeout(Some(bounds.patience))?;
    socket.write_all(&written(request, host, port))?;
    let mut answer = Vec::new();
    socket.take(bounds.answer_bytes_max).read_to_end(&mut answer)?;
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

/// Status and body. A body that is cut short of its length is an error.
fn read(answer: &[u8]) -> Result<Response<Bytes>, HttpError> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("the answer has no end of its head")?;
    let (head, body) = (std::str::from_utf8(&answer[..end])?, &answer[end + 4..]);
    let status = head.split(' ').nth(1).filter(|_| head.starts_with("HTTP/1.")).ok_or("the answer is not HTTP/1")?;
    let header = |name: &str| {
        let lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(own, _)| own.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    };
    let chunked = header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    let body = match (chunked, header("content-length")) {
        (true, _) => joined(body)?,
        (false, None) => body.to_vec(),
        (false, Some(length)) => body.get(..length.parse()?).ok_or("the answer is cut short")?.to_vec(),
    };
    Ok(Response::builder().status(status).body(Bytes::from(body))?)
}

/// A body in chunks as one.
fn joined(mut chunks: &[u8]) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    loop {
        let line = chunks.windows(2).position(|two| two == b"\r\n").ok_or("the answer is cut short")?;
        let size = std::str::from_utf8(&chunks[..line])?.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16)?;
        if size == 0 {
            return Ok(body);
        }
        let rest = &chunks[line + 2..];
        let end = size.checked_add(2).ok_or("a chunk of the answer has no size")?;
        body.extend_from_slice(rest.get(..size).ok_or("the answer is cut short")?);
        chunks = rest.get(end..).ok_or("the answer is cut short")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_what_is_none_is_an_error() {
        let good = read(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        assert_eq!((good.status().as_u16(), &good.body()[..]), (200, b"{}".as_slice()));
        for bad in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "SSH-2.0 200\r\n\r\n",
            "HTTP/1.1\r\n\r\n",
            "HTTP/1.1 yes\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}",
        ] {
            assert!(read(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_body_in_chunks_is_joined_and_one_that_is_cut_is_an_error() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let whole = format!("{head}3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n");
        assert_eq!(&read(whole.as_bytes()).unwrap().body()[..], b"abc0123456789");
        for bad in ["3\r\nab", "3\r\nabc", "3\r\nabc\r\n", "x\r\n", "ffffffffffffffff\r\nabc"] {
            assert!(read(format!("{head}{bad}").as_bytes()).is_err(), "{bad:?}");
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
