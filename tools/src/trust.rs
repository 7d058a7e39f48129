//! The certificates that a client trusts: those of a file, or those of the system.
//!
//! A certificate of the file may vouch for others, and it may be the server's own. The line of `openssl req -x509` that
//! everybody knows makes one that says it is a certificate authority's, which a server must not show by the rules of
//! web browsers (`CaUsedAsEndEntity`). Here it may if the very same bytes stand in the file: whoever trusts it to vouch
//! for every other name can trust it for its own. Its dates, its names and the server's signature count as ever.

use super::CliError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;

/// TLS by the certificates of a file, or else by those that the system trusts.
pub(super) fn config(ca_file: Option<&Path>) -> Result<ClientConfig, CliError> {
    let verifier = Verifier::new(ca_file.map(read).transpose()?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| CliError::Failed(e.to_string()))?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

fn read(file: &Path) -> Result<Vec<CertificateDer<'static>>, CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::Failed(format!("--ca-file {}: {e}", file.display()));
    let found = CertificateDer::pem_file_iter(file).map_err(|e| failed(&e))?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(|e| failed(&e))?;
    let mut roots = RootCertStore::empty();
    for certificate in &found {
        roots.add(certificate.clone()).map_err(|e| failed(&e))?;
    }
    if found.is_empty() { Err(failed(&"no certificate in it")) } else { Ok(found) }
}

/// Checks as rustls does by itself, but for one rule about the certificates of the file.
#[derive(Debug)]
struct Verifier {
    usual: Arc<WebPkiServerVerifier>,
    /// Certificates of the file; none of the system's.
    own: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn new(file: Option<Vec<CertificateDer<'static>>>) -> Result<Self, CliError> {
        let mut roots = RootCertStore::empty();
        let own = file.unwrap_or_default();
        if own.is_empty() {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        } else {
            roots.add_parsable_certificates(own.iter().cloned());
        }
        let provider = Arc::new(rustls_graviola::default_provider());
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let none = |_| CliError::Failed("the system trusts no certificates: give --ca-file".into());
        Ok(Self { usual: usual.map_err(none)?, own })
    }
}

/// Methods that leave all to rustls.
macro_rules! as_usual {
    ($($method:ident)*) => { $(
        fn $method(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.usual.$method(message, certificate, signed)
        }
    )* };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // Dates are looked at before this rule is, names are not.
            Err(Error::InvalidCertificate(why)) if is_ca_rule(&why) && self.own.contains(end_entity) => {
                rustls::client::verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    as_usual!(verify_tls12_signature verify_tls13_signature);

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// rustls passes this rule on as the text of the error alone.
fn is_ca_rule(why: &CertificateError) -> bool {
    matches!(why, CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// For localhost and 127.0.0.1, from 29 November 2026 for a hundred years, made by the line of
    /// `docs/operating/access.md`.
    const CERTIFICATE: &[u8] = include_bytes!("../tests/data/authority_of_itself.pem");
    /// Made by that line a second time: other bytes for equal names.
    const OTHER: &[u8] = include_bytes!("../tests/data/authority_of_itself_again.pem");

    fn certificate(pem: &[u8]) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem).unwrap()
    }

    fn verified(trusted: &[u8], shown: &[u8], name: &'static str, years: u64) -> Result<(), Error> {
        let verifier = Verifier::new(Some(vec![certificate(trusted)])).unwrap();
        // Years since 1970, roughly: the certificates begin in the 57th.
        let now = UnixTime::since_unix_epoch(Duration::from_secs(years * 31_557_600));
        let name = ServerName::try_from(name).unwrap();
        verifier.verify_server_cert(&certificate(shown), &[], &name, &[], now).map(|_| ())
    }

    #[test]
    fn an_authority_of_itself_is_trusted_by_its_bytes() {
        for name in ["localhost", "127.0.0.1"] {
            assert_eq!(verified(CERTIFICATE, CERTIFICATE, name, 60), Ok(()), "{name}");
        }
        let other = verified(OTHER, CERTIFICATE, "localhost", 60).unwrap_err();
        assert!(other.to_string().contains("invalid peer certificate"), "{other}");
    }

    #[test]
    fn its_names_and_its_dates_count_as_ever() {
        let refused = |name, years| verified(CERTIFICATE, CERTIFICATE, name, years).unwrap_err();
        let name = |e: &Error| matches!(e, Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. }));
        assert!(name(&refused("example.com", 60)) && name(&refused("127.0.0.2", 60)));
        let early = refused("localhost", 50);
        let late = refused("localhost", 200);
        assert!(matches!(early, Error::InvalidCertificate(CertificateError::NotValidYetContext { .. })), "{early}");
        assert!(matches!(late, Error::InvalidCertificate(CertificateError::ExpiredContext { .. })), "{late}");
    }

    #[test]
    fn an_https_address_needs_somebody_who_vouches_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let certificates = |file: &Path| config(Some(file)).unwrap_err().to_string();
        let file = folder.path().join("ca.pem");
        assert!(certificates(&file).contains("ca.pem"));
        std::fs::write(&file, "nothing").unwrap();
        assert!(certificates(&file).contains("no certificate in it"));
    }
}
