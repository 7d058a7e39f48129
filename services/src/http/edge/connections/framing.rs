//! Where a request ends among the bytes of its connection: after its head, or after the body that the head announces
//! (RFC 9112, sections 2, 6 and 7). Nothing is refused here; that is the parser's part. A request that announces its
//! body in a way that this file does not read is [`FramingState::Endless`], and its connection ends with its answer.

/// Bytes of a line of a head that are looked at: both names that matter, with any value that they may have.
const LINE_BYTES: usize = 64;

/// A request of which some bytes came.
#[derive(Clone, Debug, Default)]
pub(super) struct Framing {
    part: FramingState,
    line: LineStart,
    /// A line of the head was not empty. Empty lines before a request are allowed.
    begun: bool,
    body: BodyLength,
}

/// Where in a request the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FramingState {
    #[default]
    Head,
    /// So many bytes of content are missing.
    Content(u64),
    /// The line with a chunk's size, as far as it came; without a size when digits may follow no more.
    ChunkSize(Option<u64>, bool),
    Chunk(u64),
    /// The end of the line behind a chunk.
    ChunkEnd,
    /// Behind the last chunk. True at the start of a line.
    Trailers(bool),
    /// All that comes belongs to it.
    Endless,
    /// The request is whole.
    End,
}

/// How a head announces its body.
#[derive(Clone, Copy, Debug, Default)]
enum BodyLength {
    #[default]
    None,
    Length(u64),
    Chunked,
    /// In a way that is not read here.
    Unclear,
}

/// The first bytes of a line, without its end.
#[derive(Clone, Debug)]
struct LineStart {
    bytes: [u8; LINE_BYTES],
    /// Bytes of the line, also of those that are not kept.
    length: usize,
}

impl Default for LineStart {
    fn default() -> Self {
        Self { bytes: [0; LINE_BYTES], length: 0 }
    }
}

/// How many bytes were the request's, and how many of them are content of its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Consumed {
    pub(super) bytes: usize,
    pub(super) content: usize,
}

impl Framing {
    /// Where the next byte is.
    pub(super) fn part(&self) -> FramingState {
        self.part
    }

    /// From now on all that comes belongs to the request.
    pub(super) fn goes_on(&mut self) {
        self.part = FramingState::Endless;
    }

    /// Goes on by these bytes, at most to the end of the request.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Consumed {
        let mut taken = Consumed::default();
        while self.part != FramingState::End && taken.bytes < bytes.len() {
            let rest = &bytes[taken.bytes..];
            let content = self.content(rest.len());
            if content == 0 {
                self.part = self.after(rest[0]);
                taken.bytes += 1;
            } else {
                taken.bytes += content;
                taken.content += content;
            }
        }
        taken
    }

    /// Takes as much content as there may be here, of so many bytes.
    fn content(&mut self, bytes: usize) -> usize {
        let (FramingState::Content(left) | FramingState::Chunk(left)) = &mut self.part else {
            return if self.part == FramingState::Endless { bytes } else { 0 };
        };
        let content = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes);
        *left -= content as u64;
        match self.part {
            FramingState::Content(0) => self.part = FramingState::End,
            FramingState::Chunk(0) => self.part = FramingState::ChunkEnd,
            _ => {}
        }
        content
    }

    /// Where the byte after this one is, which is no content.
    fn after(&mut self, byte: u8) -> FramingState {
        match self.part {
            FramingState::Head => self.after_head(byte),
            FramingState::ChunkSize(size, digits) => after_size(size, digits, byte),
            FramingState::ChunkEnd if byte == b'\n' => FramingState::ChunkSize(None, true),
            FramingState::ChunkEnd => FramingState::ChunkEnd,
            FramingState::Trailers(true) if byte == b'\n' => FramingState::End,
            FramingState::Trailers(at_start) => FramingState::Trailers(byte == b'\n' || at_start && byte == b'\r'),
            other => other,
        }
    }

    fn after_head(&mut self, byte: u8) -> FramingState {
        if byte != b'\n' {
            self.line.push(byte);
            return FramingState::Head;
        }
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.begun = true;
            self.body = self.body.after(&line);
        } else if self.begun {
            return match self.body {
                BodyLength::None | BodyLength::Length(0) => FramingState::End,
                BodyLength::Length(bytes) => FramingState::Content(bytes),
                BodyLength::Chunked => FramingState::ChunkSize(None, true),
                BodyLength::Unclear => FramingState::Endless,
            };
        }
        FramingState::Head
    }
}

/// Where the byte after one of a chunk's size is. The size ends with its digits, the line may go on with an extension.
fn after_size(size: Option<u64>, digits: bool, byte: u8) -> FramingState {
    match (byte, size) {
        (b'\n', None) => FramingState::Endless,
        (b'\n', Some(0)) => FramingState::Trailers(true),
        (b'\n', Some(size)) => FramingState::Chunk(size),
        (byte, size) if digits && byte.is_ascii_hexdigit() => {
            let digit = u64::from(char::from(byte).to_digit(16).unwrap_or_default());
            // The parser refuses a size that is too large.
            size.unwrap_or(0)
                .checked_mul(16)
                .map_or(FramingState::Endless, |size| FramingState::ChunkSize(Some(size + digit), true))
        }
        (_, size) => FramingState::ChunkSize(size, false),
    }
}

impl LineStart {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
        }
        self.length += 1;
    }

    fn is_empty(&self) -> bool {
        self.length == 0 || self.length == 1 && self.bytes[0] == b'\r'
    }

    /// The value, if this is a field of that name: an error where it is longer than what is kept.
    fn value_of(&self, name: &str) -> Option<Result<&str, ()>> {
        let kept = &self.bytes[..self.length.min(LINE_BYTES)];
        let colon = kept.iter().position(|byte| *byte == b':')?;
        if !kept[..colon].eq_ignore_ascii_case(name.as_bytes()) {
            return None;
        }
        if self.length > LINE_BYTES {
            return Some(Err(()));
        }
        Some(std::str::from_utf8(&kept[colon + 1..]).map(str::trim).map_err(drop))
    }
}

impl BodyLength {
    /// As it is announced when this line is known too.
    fn after(self, line: &LineStart) -> Self {
        let announced = match (line.value_of("content-length"), line.value_of("transfer-encoding")) {
            (None, None) => return self,
            (Some(Ok(length)), _) if !length.starts_with('+') => length.parse().map_or(Self::Unclear, Self::Length),
            (_, Some(Ok(coding))) if coding.eq_ignore_ascii_case("chunked") => Self::Chunked,
            _ => Self::Unclear,
        };
        // Two of them are refused by the parser.
        if matches!(self, Self::None) { announced } else { Self::Unclear }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: &str = "GET /next HTTP/1.1\r\n";

    /// Bytes of the request and of its content, where another follows it; the same however it is cut.
    fn ends(request: &str) -> Option<(usize, usize)> {
        let whole = format!("{request}{NEXT}");
        let of = |pieces: &[&[u8]]| {
            let (mut framing, mut sum) = (Framing::default(), Consumed::default());
            for piece in pieces {
                let taken = framing.advance(piece);
                sum = Consumed { bytes: sum.bytes + taken.bytes, content: sum.content + taken.content };
            }
            (framing.part() == FramingState::End).then_some((sum.bytes, sum.content))
        };
        let ended = of(&[whole.as_bytes()]);
        for cut in 0..whole.len() {
            let (left, right) = whole.as_bytes().split_at(cut);
            assert_eq!(of(&[left, right]), ended, "cut at {cut}: {request:?}");
        }
        ended
    }

    #[test]
    fn a_request_ends_with_its_head_or_with_the_body_that_it_announces() {
        for (request, content) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0),
            ("\r\n\r\nGET / HTTP/1.1\r\n\r\n", 0),
            ("GET / HTTP/1.1\nHost: a\n\n", 0),
            ("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 0),
            ("POST / HTTP/1.1\r\ncontent-LENGTH:5 \r\n\r\n\r\n\r\n1", 5),
            ("POST / HTTP/1.1\r\nX-Content-Length: 9\r\nContent-Length: 00002\r\n\r\nab", 2),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", 2),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\n\n\r\nA \r\n0123456789\r\n00\r\nT: x\r\n\r\n",
                11,
            ),
            ("POST / HTTP/1.1\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\na", 1),
        ] {
            assert_eq!(ends(request), Some((request.len(), content)), "{request:?}");
        }
        let long = format!("GET /{} HTTP/1.1\r\nCookie: {}\r\n\r\n", "a".repeat(200), "content-length: 7".repeat(20));
        assert_eq!(ends(&long), Some((long.len(), 0)));
    }

    #[test]
    fn a_body_whose_end_is_not_clear_has_none() {
        for head in [
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 1x\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
        ] {
            assert_eq!(ends(&format!("POST / HTTP/1.1\r\n{head}\r\n0\r\n\r\n")), None, "{head:?}");
        }
        let spaces = format!("POST / HTTP/1.1\r\nContent-Length: {}1\r\n\r\na", " ".repeat(100));
        assert_eq!(ends(&spaces), None);
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for chunks in ["fffffffffffffffff\r\na", "\r\n", "5\r\nab"] {
            assert_eq!(ends(&format!("{chunked}{chunks}")), None, "{chunks:?}");
        }
    }
}
