//! The certificate and its key, and the cryptography of rustls: Graviola, whose assembly the Rust compiler builds by
//! itself.

use crate::clock::days_since_1970;
use crate::metrics;
use chimere_engine::engram::Latest;
use chimere_engine::files::{Stamp, read_regular};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a file of certificates or of a key.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// A certificate with its key, as they are now: who comes after a renewal gets the new ones.
#[derive(Debug)]
pub struct Certificate {
    files: [PathBuf; 2],
    live: Latest<CertifiedKey>,
    /// What the files were when they were last looked at.
    seen: Mutex<[Option<Stamp>; 2]>,
}

impl Certificate {
    /// Reads both files and tells when the certificate ends. `None` where neither is named.
    pub fn open(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Option<Arc<Self>>, String> {
        let files = [certificate.as_ref().to_owned(), key.as_ref().to_owned()];
        if files[0].as_os_str().is_empty() {
            return Ok(None);
        }
        let seen = Mutex::new(files.each_ref().map(|file| Stamp::at(file)));
        let live = Latest::new(read(&files[0], &files[1])?);
        Ok(Some(Arc::new(Self { files, live, seen })))
    }

    /// How connections are encrypted with it.
    pub fn config(self: &Arc<Self>) -> Result<ServerConfig, String> {
        let config = ServerConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?;
        Ok(config.with_no_client_auth().with_cert_resolver(self.clone()))
    }

    /// Reads the files again if one changed, or in any case. True if they were read; after a mistake the old ones stay.
    pub fn reload(&self, in_any_case: bool) -> Result<bool, String> {
        let now = self.files.each_ref().map(|file| Stamp::at(file));
        let before = std::mem::replace(&mut *self.seen.lock(), now);
        if before == now && !in_any_case {
            return Ok(false);
        }
        self.live.replace(read(&self.files[0], &self.files[1])?);
        Ok(true)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.live.snapshot())
    }
}

/// A configuration with the certificate of these files, which stays as it is as long as nobody has them read again.
pub fn load(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Option<ServerConfig>, String> {
    Certificate::open(certificate, key)?.map(|certificate| certificate.config()).transpose()
}

fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, String> {
    let about = |path: &Path, why: String| format!("{}: {why}", path.display());
    let text = |path: &Path| read_regular(path, PEM_BYTES_MAX).map_err(pem::Error::Io);
    let chain = text(certificate).and_then(|text| CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>());
    let chain = chain.map_err(|e| about(certificate, format!("no certificate in PEM: {e}")))?;
    let first = chain.first().ok_or_else(|| about(certificate, "it has no certificate".into()))?;
    let end = not_after(first).ok_or_else(|| about(certificate, "the certificate cannot be read".into()))?;
    ::metrics::gauge!(metrics::CERTIFICATE_EXPIRY).set(end as f64);
    let secret = text(key)
        .and_then(|text| PrivateKeyDer::from_pem_slice(&text))
        .map_err(|e| about(key, format!("no private key in PEM: {e}")))?;
    CertifiedKey::from_der(chain, secret, &rustls_graviola::default_provider())
        .map_err(|e| about(certificate, format!("certificate and key {}: {e}", key.display())))
}

/// The end of a certificate's validity, in seconds since 1970: the second time in the fifth or fourth field of its
/// first part (RFC 5280, section 4.1), which is all that is read here.
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
        (0x17, 12) => {
            (digits[..2].parse::<u64>().ok().map(|y| if y < 50 { 2000 + y } else { 1900 + y })?, &digits[2..])
        }
        (0x18, 14) => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let part = |i: usize| rest[2 * i..2 * i + 2].parse::<u64>().ok();
    let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
    let days = days_since_1970(year, month, day)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
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
    fn a_renewed_certificate_is_taken_up_and_a_broken_one_leaves_the_old() {
        let dir = tempfile::tempdir().unwrap();
        let [certificate, key] = ["tls_certificate.pem", "tls_key.pem"].map(|file| {
            std::fs::copy(data(file), dir.path().join(file)).unwrap();
            dir.path().join(file)
        });
        let served = Certificate::open(&certificate, &key).unwrap().unwrap();
        let first = served.live.snapshot();
        assert!(!served.reload(false).unwrap());
        // Half of it, as while it is copied over.
        let whole = std::fs::read(&certificate).unwrap();
        std::fs::write(&certificate, &whole[..whole.len() / 2]).unwrap();
        assert!(served.reload(false).unwrap_err().contains("tls_certificate.pem"));
        assert!(Arc::ptr_eq(&served.live.snapshot(), &first));
        std::fs::write(&certificate, &whole).unwrap();
        assert!(served.reload(false).unwrap() || served.reload(true).unwrap());
        assert!(!Arc::ptr_eq(&served.live.snapshot(), &first));
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
