//! Bodies that come packed: no more of them is unpacked than may be read.

use super::error::OutboundError;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use std::io::Read;

/// A body as it was before the server packed it, of at most so many bytes.
pub(super) fn unpacked(body: Bytes, encoding: Option<&str>, bytes_max: usize) -> Result<Bytes, OutboundError> {
    match encoding.map(|encoding| encoding.trim().to_ascii_lowercase()).as_deref() {
        None | Some("" | "identity") => Ok(body),
        Some("gzip" | "x-gzip") => {
            let mut whole = Vec::new();
            let read = MultiGzDecoder::new(&body[..]).take(bytes_max as u64 + 1).read_to_end(&mut whole);
            read.map_err(|e| OutboundError::Broken(format!("its gzip: {e}")))?;
            if whole.len() > bytes_max { Err(OutboundError::Long(bytes_max)) } else { Ok(whole.into()) }
        }
        Some(other) => Err(OutboundError::Broken(format!("content-encoding {other:?} was not asked for"))),
    }
}
