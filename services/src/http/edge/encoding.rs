//! Bodies that came compressed, piece by piece into what they were. How much may come out is the caller's to say.

use crate::http::wire::error::ApiError;
use actix_web::HttpRequest;
use actix_web::http::{StatusCode, header};
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use std::io::Read;

/// Bytes that are made at a time.
const PIECE_BYTES: usize = 64 << 10;

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Coding {
    /// The body is as it is.
    Identity,
    /// The body is compressed by gzip (RFC 1952).
    Gzip,
    /// RFC 1950, or as some programs understand the name, RFC 1951.
    Deflate,
}

impl Coding {
    /// What a request's head says.
    pub(in crate::http) fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        let Some(value) = request.headers().get(header::CONTENT_ENCODING) else { return Ok(Self::Identity) };
        let name = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
        match name.as_str() {
            "" | "identity" => Ok(Self::Identity),
            "gzip" | "x-gzip" => Ok(Self::Gzip),
            "deflate" => Ok(Self::Deflate),
            other => {
                let shown: String = other.chars().take(40).collect();
                let message = format!("bodies may be encoded as gzip or deflate, got {shown:?}");
                let error = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message);
                Err(error.with_code("unsupported_encoding").rejected_as("body_encoding"))
            }
        }
    }

    /// Decodes `bytes` and gives every piece to `take`, whose error ends it.
    pub(super) fn decode(self, bytes: &[u8], take: impl FnMut(&[u8]) -> Result<(), ApiError>) -> Result<(), ApiError> {
        match self {
            Self::Identity => pieces(bytes, take),
            Self::Gzip => pieces(MultiGzDecoder::new(bytes), take),
            Self::Deflate if has_zlib_head(bytes) => pieces(ZlibDecoder::new(bytes), take),
            Self::Deflate => pieces(DeflateDecoder::new(bytes), take),
        }
    }
}

/// Whether the first two bytes are those of RFC 1950: the method, and a check on both.
fn has_zlib_head(bytes: &[u8]) -> bool {
    matches!(bytes, [method, flags, ..] if method & 15 == 8 && (u16::from(*method) << 8 | u16::from(*flags)) % 31 == 0)
}

fn pieces(mut from: impl Read, mut take: impl FnMut(&[u8]) -> Result<(), ApiError>) -> Result<(), ApiError> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(n) => take(&piece[..n])?,
            Err(e) => {
                let message = format!("the body is not what its content-encoding says: {e}");
                return Err(ApiError::invalid_body(message).with_code("invalid_encoding"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::{DeflateEncoder, GzEncoder, ZlibEncoder};

    fn all(mut from: impl Read) -> Vec<u8> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn decoded(coding: Coding, bytes: &[u8]) -> Result<Vec<u8>, ApiError> {
        let mut all = Vec::new();
        coding.decode(bytes, |piece| {
            all.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn gzip_and_both_kinds_of_deflate_become_what_they_were() {
        let text = b"{\"messages\": []} ".repeat(10_000);
        let level = Compression::fast();
        for (coding, bytes) in [
            (Coding::Identity, text.clone()),
            (Coding::Gzip, all(GzEncoder::new(&text[..], level))),
            (Coding::Gzip, [all(GzEncoder::new(&text[..7], level)), all(GzEncoder::new(&text[7..], level))].concat()),
            (Coding::Deflate, all(ZlibEncoder::new(&text[..], level))),
            (Coding::Deflate, all(DeflateEncoder::new(&text[..], level))),
        ] {
            assert!(decoded(coding, &bytes).unwrap() == text, "{coding:?}");
        }
    }

    #[test]
    fn what_is_cut_short_or_damaged_is_an_error() {
        let bytes = all(GzEncoder::new(&b"some text that is long enough"[..], Compression::fast()));
        for damaged in [&bytes[..bytes.len() - 3], &bytes[..12], b"{}", b"\x1f\x8b"] {
            assert_eq!(decoded(Coding::Gzip, damaged).unwrap_err().code, Some("invalid_encoding"));
        }
        let mut wrong = bytes.clone();
        let end = wrong.len() - 6;
        wrong[end] ^= 1;
        assert!(decoded(Coding::Gzip, &wrong).is_err(), "its checksum does not agree");
        assert!(decoded(Coding::Deflate, b"\xff\xff\xff").is_err());
    }
}
