//! The certificate and its key, and the cryptography of rustls: Graviola, whose assembly the Rust compiler builds by itself.

use crate::metrics;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;

/// Reads both files and tells when the certificate ends. `None` where neither is named.
pub fn load(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Option<ServerConfig>, String> {
    let (certificate, key) = (certificate.as_ref(), key.as_ref());
    if certificate.as_os_str().is_empty() {
        return Ok(None);
    }
    let about = |path: &Path, why: String| format!("{}: {why}", path.display());
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|e| about(certificate, format!("no certificate in PEM: {e}")))?;
    let first = chain.first().ok_or_else(|| about(certificate, "it has no certificate".into()))?;
    let end = not_after(first).ok_or_else(|| about(certificate, "the certificate cannot be read".into()))?;
    ::metrics::gauge!(metrics::CERTIFICATE_EXPIRY).set(end as f64);
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| about(key, format!("no private key in PEM: {e}")))?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|e| about(certificate, format!("certificate and key {}: {e}", key.display())))?;
    Ok(Some(config))
}

/// The end of a certificate's validity, in seconds since 1970: the second time in the fifth or fourth field of its first part (RFC
/// 5280, section 4.1), which is all that is read here.
fn not_after(certificate: &[u8]) -> Option<u64> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let mut whole = Der(certificate);
    let mut first = Der(Der(whole.next(SEQUENCE)?).next(SEQUENCE)?);
    if first.0.first() == Some(&VERSION) {
        first.any()?;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        first.any()?;
    }
    let mut validity = Der(first.next(SEQUENCE)?);
    validity.any()?;
    let (tag, text) = validity.any()?;
    seconds(tag, std::str::from_utf8(text).ok()?)
}

/// Values one after the other, each with a tag and a length.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&short, rest) = rest.split_first()?;
        let (len, rest) = match short {
            0..=0x7f => (usize::from(short), rest),
            // So many bytes of length follow; a certificate needs no more than four.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
                (bytes.iter().fold(0usize, |len, byte| len << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, value))
    }

    fn next(&mut self, wanted: u8) -> Option<&'a [u8]> {
        self.any().filter(|(tag, _)| *tag == wanted).map(|(_, value)| value)
    }
}

/// `YYMMDDhhmmssZ` (before 2050) or `YYYYMMDDhhmmssZ`.
fn seconds(tag: u8, text: &str) -> Option<u64> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    let (year, rest) = match (tag, digits.len()) {
        (0x17, 12) => (digits[..2].parse::<u64>().ok().map(|y| if y < 50 { 2000 + y } else { 1900 + y })?, &digits[2..]),
        (0x18, 14) => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let part = |i: usize| rest[2 * i..2 * i + 2].parse::<u64>().ok();
    let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
    let days = days_since_1970(year, month, day)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Of the Gregorian calendar, with years that begin in March, so that the leap day is the last.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some(days.saturating_sub(719_468))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(file: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file)
    }

    #[test]
    fn the_end_of_a_certificate_is_what_openssl_says() {
        let certificate = CertificateDer::from_pem_file(data("tls_certificate.pem")).unwrap();
        assert_eq!(not_after(&certificate), Some(4_948_894_074));
        for cut in 0..certificate.len().min(200) {
            let _no_panic = not_after(&certificate[..cut]);
        }
    }

    #[test]
    fn dates_are_counted_as_calendars_do() {
        for (tag, text, want) in [
            (0x17, "700101000000Z", Some(0)),
            (0x17, "491231235959Z", Some(2_524_607_999)),
            (0x17, "000301000000Z", Some(951_868_800)),
            (0x18, "20240229120000Z", Some(1_709_208_000)),
            (0x18, "21000301000000Z", Some(4_107_542_400)),
            (0x18, "20241301000000Z", None),
            (0x17, "2402291200Z", None),
            (0x17, "24022912000éZ", None),
        ] {
            assert_eq!(seconds(tag, text), want, "{text}");
        }
    }

    #[test]
    fn files_that_are_none_are_named() {
        assert!(load("", "").unwrap().is_none());
        let error = load("/nowhere.pem", data("tls_key.pem")).unwrap_err();
        assert!(error.starts_with("/nowhere.pem: no certificate in PEM"), "{error}");
        let error = load(data("tls_key.pem"), data("tls_key.pem")).unwrap_err();
        assert!(error.contains("tls_key.pem: it has no certificate"), "{error}");
        let error = load(data("tls_certificate.pem"), data("tls_certificate.pem")).unwrap_err();
        assert!(error.contains("no private key in PEM"), "{error}");
        assert!(load(data("tls_certificate.pem"), data("tls_key.pem")).unwrap().is_some());
    }
}
