//! API keys from a file, and the check that a request has one. Keys are hashed when they are read and compared as hashes, in constant
//! time; a key itself is kept nowhere.

use super::error::ApiError;
use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use std::path::Path;
use subtle::{Choice, ConstantTimeEq};

/// The keys that are accepted.
#[derive(Clone, Debug)]
pub enum Keys {
    /// No key is asked for.
    Open,
    /// SHA-256 of each key.
    Hashed(Vec<[u8; 32]>),
}

impl Keys {
    /// From a file: one key a line, blank lines and what follows `#` left out. A file without any key is an error, because it would
    /// lock everybody out or, worse, be taken for none.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read key file {}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| format!("key file {}: {e}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.split('#').next().unwrap_or("").trim()));
        let mut hashes = Vec::new();
        for (number, key) in lines.filter(|(_, key)| !key.is_empty()) {
            if !key.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(format!("line {number} has a key with a blank or a character that is not plain ASCII"));
            }
            hashes.push(Sha256::digest(key).into());
        }
        if hashes.is_empty() { Err("it has no key".into()) } else { Ok(Self::Hashed(hashes)) }
    }

    /// SHA-256 of the key that a request brings, known or not.
    pub fn hash_of(request: &HttpRequest) -> Option<[u8; 32]> {
        let (scheme, key) = request.headers().get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| Sha256::digest(key.trim()).into())
    }

    /// Lets a request with a known key pass, and every request where no key is asked for.
    pub fn check(&self, request: &HttpRequest) -> Result<(), ApiError> {
        let Self::Hashed(hashes) = self else { return Ok(()) };
        let hash = Self::hash_of(request).ok_or_else(|| refused("no API key: send it as Authorization: Bearer KEY"))?;
        // All are compared, so that the time does not tell which one came close.
        let known = hashes.iter().fold(Choice::from(0), |known, h| known | h.ct_eq(&hash));
        if bool::from(known) { Ok(()) } else { Err(refused("the API key is not known here")) }
    }
}

/// Lets those pass who may change what others get: on a service without keys, whoever sits at the machine itself.
///
/// Keys have no scopes yet, so with keys nobody may: a key that may ask need not be one that may teach.
pub fn check_admin(keys: &Keys, request: &HttpRequest) -> Result<(), ApiError> {
    let local = request.peer_addr().is_some_and(|peer| peer.ip().is_loopback());
    if matches!(keys, Keys::Open) && local {
        return Ok(());
    }
    let message = "tables are changed only from this machine and on a service without API keys, or in their directory";
    Err(ApiError::new(StatusCode::FORBIDDEN, "permission_error", message).with_code("admin_only").rejected_as("key"))
}

fn refused(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "authentication_error", message).with_code("invalid_api_key").rejected_as("key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    fn check(keys: &Keys, header: Option<&str>) -> bool {
        let request = header.iter().fold(TestRequest::default(), |r, h| r.insert_header((AUTHORIZATION, *h)));
        keys.check(&request.to_http_request()).is_ok()
    }

    #[test]
    fn a_request_needs_one_of_the_keys_of_the_file() {
        let keys = Keys::parse("# ours\nsk-one\n\n  sk-two # of the tests\n").unwrap();
        assert!(check(&keys, Some("Bearer sk-one")));
        assert!(check(&keys, Some("bearer  sk-two")));
        for bad in [
            None,
            Some("sk-one"),
            Some("Bearer sk-three"),
            Some("Bearer "),
            Some("Basic sk-one"),
            Some("Bearer sk-two # of the tests"),
        ] {
            assert!(!check(&keys, bad), "{bad:?}");
        }
        assert!(check(&Keys::Open, None));
    }

    #[test]
    fn no_key_is_readable_in_memory_or_in_logs() {
        assert!(!format!("{:?}", Keys::parse("sk-one").unwrap()).contains("sk-one"));
    }

    #[test]
    fn a_file_without_a_key_or_with_a_strange_one_is_refused() {
        assert_eq!(Keys::parse("# nothing\n\n").unwrap_err(), "it has no key");
        assert!(Keys::parse("sk one\n").unwrap_err().contains("line 1"));
        assert!(Keys::read(Path::new("/nowhere/keys")).unwrap_err().contains("/nowhere/keys"));
    }
}
