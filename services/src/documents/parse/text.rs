//! Bytes of text in the encodings that files come in.

use super::lines::ParseFault;
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// Bytes that are looked at to tell text from other bytes.
const LOOKED_AT: usize = 64 << 10;

/// The text, in which a line ends with `\n` alone: UTF-8 or UTF-16 by its mark or by its bytes, else Windows-1252,
/// which has all of Latin-1.
pub(super) fn decoded(bytes: &[u8]) -> Result<String, ParseFault> {
    let encoding = Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
    let encoding = encoding.or_else(|| std::str::from_utf8(bytes).is_ok().then_some(UTF_8));
    let encoding = encoding.or_else(|| without_mark(bytes)).unwrap_or(WINDOWS_1252);
    let (text, _, _) = encoding.decode(bytes);
    let head = text.chars().take(LOOKED_AT);
    let (all, control) = head.fold((0usize, 0usize), |(all, control), c| {
        (all + 1, control + usize::from(c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{c}' | '\u{1b}')))
    });
    // A few are slips of whoever wrote the text.
    if control > all / 50 {
        return Err(ParseFault::Unsupported("its bytes are no text, and no known format".into()));
    }
    Ok(text.replace("\r\n", "\n").replace(['\r', '\u{c}'], "\n").replace('\0', ""))
}

/// UTF-16 of a script with Latin letters or blanks has a zero in every other byte.
fn without_mark(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = &bytes[..bytes.len().min(LOOKED_AT)];
    let zeros = |from: usize| head.iter().skip(from).step_by(2).filter(|byte| **byte == 0).count();
    let (even, odd, half) = (zeros(0), zeros(1), head.len() / 2);
    match () {
        () if odd > half / 4 && even < odd / 8 => Some(UTF_16LE),
        () if even > half / 4 && odd < even / 8 => Some(UTF_16BE),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_same_in_every_encoding_that_it_came_in() {
        let text = "Der Hafen von Kelm heißt Été.\nZeile";
        let utf16 = |mark: bool, big: bool| {
            let units = mark.then_some(0xfeff).into_iter().chain(text.encode_utf16());
            units.flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect::<Vec<u8>>()
        };
        let latin: Vec<u8> = text.chars().map(|c| c as u32 as u8).collect();
        let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
        let windows = text.replace('\n', "\r\n").into_bytes();
        for bytes in [
            text.as_bytes().to_vec(),
            marked,
            windows,
            latin,
            utf16(true, true),
            utf16(true, false),
            utf16(false, true),
            utf16(false, false),
        ] {
            assert_eq!(decoded(&bytes).unwrap(), text, "{bytes:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_unsupported() {
        let noise: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        assert!(matches!(decoded(&noise), Err(ParseFault::Unsupported(_))));
        assert!(matches!(decoded(&[0; 4096]), Err(ParseFault::Unsupported(_))));
        assert_eq!(decoded(b""), Ok(String::new()));
    }
}
