//! An answer of HTTP/1.1: its head, and its body in pieces, whichever way the head says how long that is.

use super::error::OutboundError;
use super::network::ByteStream;
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
/// Bytes of a head, or of a line within a body.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Lines of a head.
const HEADERS_MAX: usize = 100;

/// The head of an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) status: u16,
    /// Names in small letters.
    pub(super) headers: Vec<(String, String)>,
}

impl Head {
    /// The value of the first header of this name, which is in small letters.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// How long the body behind this head is (RFC 9112, section 6.3).
    fn length(&self) -> Result<Length, OutboundError> {
        if matches!(self.status, 204 | 304) {
            return Ok(Length::Left(0));
        }
        let coding = self.get("transfer-encoding").map(|coding| coding.trim().to_ascii_lowercase());
        match (coding.as_deref(), self.get("content-length")) {
            (Some("chunked"), _) => Ok(Length::Chunk { left: 0, first: true }),
            (Some(other), _) => Err(OutboundError::Broken(format!("transfer-encoding {other:?}"))),
            (None, Some(length)) => length
                .trim()
                .parse()
                .map(Length::Left)
                .map_err(|_| OutboundError::Broken(format!("content-length {length:?}"))),
            (None, None) => Ok(Length::UntilClosed),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Length {
    /// So many bytes are still to come.
    Left(u64),
    /// So many bytes of this chunk are still to come.
    Chunk {
        left: u64,
        first: bool,
    },
    UntilClosed,
    Ended,
}

/// Reads an answer off a connection.
pub(super) struct ReplyReader {
    stream: Box<dyn ByteStream>,
    read: BytesMut,
    length: Length,
}

impl ReplyReader {
    /// Reads the head of an answer.
    pub(super) async fn begin(stream: Box<dyn ByteStream>) -> Result<(Head, Self), OutboundError> {
        let mut reader = Self { stream, read: BytesMut::new(), length: Length::Ended };
        loop {
            let head = reader.head().await?;
            // Others say that the answer is still to come.
            if head.status >= 200 {
                reader.length = head.length()?;
                return Ok((head, reader));
            }
        }
    }

    async fn head(&mut self) -> Result<Head, OutboundError> {
        loop {
            if let Some((head, bytes)) = parsed(&self.read)? {
                self.read.advance(bytes);
                return Ok(head);
            }
            if self.read.len() > HEAD_BYTES_MAX {
                return Err(broken("its head has no end"));
            }
            self.more().await?;
        }
    }

    /// The next piece of the body, or `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, OutboundError> {
        loop {
            match self.length {
                Length::Ended | Length::Left(0) => return Ok(None),
                Length::UntilClosed => {
                    if self.read.is_empty() && !self.fill().await? {
                        self.length = Length::Ended;
                        continue;
                    }
                    return Ok(Some(self.read.split().freeze()));
                }
                Length::Left(left) => {
                    let piece = self.piece(left).await?;
                    self.length = Length::Left(left - piece.len() as u64);
                    return Ok(Some(piece));
                }
                Length::Chunk { left: 0, first } => self.length = self.chunk(first).await?,
                Length::Chunk { left, first } => {
                    let piece = self.piece(left).await?;
                    self.length = Length::Chunk { left: left - piece.len() as u64, first };
                    return Ok(Some(piece));
                }
            }
        }
    }

    /// At most so many bytes, and at least one.
    async fn piece(&mut self, left: u64) -> Result<Bytes, OutboundError> {
        if self.read.is_empty() {
            self.more().await?;
        }
        let bytes = self.read.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        Ok(self.read.split_to(bytes).freeze())
    }

    /// The size of the next chunk, behind the line's end of the one before it.
    async fn chunk(&mut self, first: bool) -> Result<Length, OutboundError> {
        if !first && !self.line().await?.is_empty() {
            return Err(broken("a chunk is longer than it says"));
        }
        let line = self.line().await?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let digits = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size =
            u64::from_str_radix(size, 16).ok().filter(|_| digits).ok_or_else(|| broken("a chunk has no size"))?;
        Ok(if size == 0 { Length::Ended } else { Length::Chunk { left: size, first: false } })
    }

    async fn line(&mut self) -> Result<String, OutboundError> {
        loop {
            if let Some(at) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(at + 1);
                return Ok(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned());
            }
            if self.read.len() > HEAD_BYTES_MAX {
                return Err(broken("a line of it has no end"));
            }
            self.more().await?;
        }
    }

    /// Reads on, and there must be more.
    async fn more(&mut self) -> Result<(), OutboundError> {
        if self.fill().await? { Ok(()) } else { Err(broken("it is cut short")) }
    }

    /// Reads on. False at the connection's end, which many servers under TLS do not announce.
    async fn fill(&mut self) -> Result<bool, OutboundError> {
        // It reads no more than the buffer has room for.
        self.read.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.read).await {
            Ok(bytes) => Ok(bytes > 0),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(OutboundError::Broken(e.to_string())),
        }
    }
}

/// A head and its bytes, if all of it is there.
fn parsed(read: &[u8]) -> Result<Option<(Head, usize)>, OutboundError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(bytes) = response.parse(read).map_err(|e| OutboundError::Broken(e.to_string()))?
    else {
        return Ok(None);
    };
    let header = |header: &httparse::Header<'_>| {
        (header.name.to_ascii_lowercase(), String::from_utf8_lossy(header.value).into_owned())
    };
    let headers = response.headers.iter().map(header).collect();
    Ok(Some((Head { status: response.code.unwrap_or_default(), headers }, bytes)))
}

fn broken(why: &str) -> OutboundError {
    OutboundError::Broken(why.to_owned())
}
