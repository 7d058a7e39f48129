//! Which revision of the protocol a message is of, and whether its headers say what its body says.

use super::message::McpMessage;
use actix_web::http::header::HeaderMap;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion};
use serde_json::Value;

/// Headers that say of a message what its body says.
const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
/// Members of a request's `_meta` in revision 2026-07-28. Who the client is (`clientInfo`) need not be said.
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Around the Base64 of a header's value that is no plain text.
const BASE64_BEGIN: &str = "=?base64?";
const BASE64_END: &str = "?=";

/// The revisions that begin with a handshake, oldest first. What is used of them here is alike.
pub(super) const HANDSHAKES: [ProtocolVersion; 2] = [ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25];
/// The revision whose every request stands for itself.
pub(super) const STATELESS: ProtocolVersion = ProtocolVersion::V_2026_07_28;

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revision {
    /// It began with `initialize`, of which nothing is kept here.
    Handshake,
    /// Each request says all about itself.
    Stateless,
}

/// All revisions that are served, oldest first.
pub(super) fn served() -> Vec<ProtocolVersion> {
    HANDSHAKES.into_iter().chain([STATELESS]).collect()
}

/// The revision of a request.
pub(super) fn revision_of(headers: &HeaderMap, message: &McpMessage) -> Result<Revision, ErrorData> {
    let header = only(headers, VERSION)?;
    let said = message.meta().and_then(|meta| meta.get(META_VERSION));
    if let Some(said) = said
        && said.as_str() != header
        && said.is_string()
    {
        return Err(mismatch(VERSION, header, said));
    }
    match known_revision(headers)? {
        Revision::Handshake => Ok(Revision::Handshake),
        Revision::Stateless => {
            check_meta(message)?;
            same(headers, METHOD, &Value::from(message.method.as_str()))?;
            if message.method == "tools/call"
                && let Some(name) = message.params.get("name")
            {
                same(headers, NAME, name)?;
            }
            Ok(Revision::Stateless)
        }
    }
}

/// The revision that the header names. Clients of those with a handshake name none before it.
pub(super) fn known_revision(headers: &HeaderMap) -> Result<Revision, ErrorData> {
    match only(headers, VERSION)? {
        None => Ok(Revision::Handshake),
        Some(version) if HANDSHAKES.iter().any(|known| known.as_str() == version) => Ok(Revision::Handshake),
        Some(version) if version == STATELESS.as_str() => Ok(Revision::Stateless),
        Some(version) => {
            let shown: String = version.chars().take(40).collect();
            let data = serde_json::json!({"supported": served(), "requested": shown});
            let message = format!("the protocol version {shown:?} is not served here");
            Err(ErrorData::new(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, message, Some(data)))
        }
    }
}

/// What each request of the stateless revision has to say about itself.
fn check_meta(message: &McpMessage) -> Result<(), ErrorData> {
    let invalid = |path: String, wanted: &str| {
        ErrorData::new(ErrorCode::INVALID_PARAMS, format!("`{path}` is missing: it must be {wanted}"), None)
    };
    let Some(meta) = message.meta() else { return Err(invalid("params._meta".into(), "an object")) };
    let path = |name: &str| format!("params._meta[\"{name}\"]");
    if !meta.get(META_VERSION).is_some_and(Value::is_string) {
        return Err(invalid(path(META_VERSION), "the protocol version"));
    }
    if !meta.get(META_CAPABILITIES).is_some_and(Value::is_object) {
        return Err(invalid(path(META_CAPABILITIES), "an object"));
    }
    Ok(())
}

/// A header says what the body says.
fn same(headers: &HeaderMap, header: &'static str, said: &Value) -> Result<(), ErrorData> {
    let got = only(headers, header)?;
    let plain = got.and_then(decoded);
    if plain.is_some() && plain.as_deref() == said.as_str() { Ok(()) } else { Err(mismatch(header, got, said)) }
}

/// A header's value, which may be there once: of two, others on the way may have read the other one.
fn only<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, ErrorData> {
    let mut values = headers.get_all(name);
    let first = values.next().map(|value| value.to_str().unwrap_or("?").trim());
    match values.next() {
        None => Ok(first),
        Some(_) => Err(ErrorData::header_mismatch(format!("the header {name} stands there twice"), None)),
    }
}

/// The text that a header's value stands for, if it is well formed.
fn decoded(value: &str) -> Option<String> {
    match value.strip_prefix(BASE64_BEGIN).and_then(|rest| rest.strip_suffix(BASE64_END)) {
        Some(inner) => String::from_utf8(BASE64_STANDARD.decode(inner).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

fn mismatch(header: &str, got: Option<&str>, said: &Value) -> ErrorData {
    let cut = |text: &str| text.chars().take(80).collect::<String>();
    let got = got.map_or_else(|| "missing".to_owned(), |got| format!("{:?}", cut(got)));
    let message = format!("the header {header} is {got}, and the body says {}", cut(&said.to_string()));
    ErrorData::header_mismatch(message, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{HeaderName, HeaderValue};

    const META: &str = r#""_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}}"#;

    fn asked(headers: &[(&str, &str)], method: &str, params: &str) -> Result<Revision, i32> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let body = format!(r#"{{"jsonrpc": "2.0", "id": 1, "method": "{method}", "params": {{{params}}}}}"#);
        revision_of(&map, &McpMessage::parse(body.as_bytes()).unwrap()).map_err(|error| error.code.0)
    }

    #[test]
    fn a_request_is_of_the_revision_that_its_header_names_and_says_the_same_in_its_body() {
        let version = ("mcp-protocol-version", "2026-07-28");
        let (list, call) = (("mcp-method", "tools/list"), ("mcp-method", "tools/call"));
        let other = META.replace("2026", "2027");
        let named = format!(r#"{META}, "name": "decide""#);
        for (headers, method, params, want) in [
            (&[][..], "initialize", "", Ok(Revision::Handshake)),
            (&[("mcp-protocol-version", "2025-11-25")], "tools/list", "", Ok(Revision::Handshake)),
            (&[("mcp-protocol-version", "2025-06-18")], "tools/list", "", Ok(Revision::Handshake)),
            (&[("mcp-protocol-version", "1999-01-01")], "tools/list", "", Err(-32022)),
            (&[version, list], "tools/list", META, Ok(Revision::Stateless)),
            (&[version, list], "tools/list", "", Err(-32602)),
            (&[version, list], "tools/list", r#""_meta": {}"#, Err(-32602)),
            (&[version, list], "tools/list", &other, Err(-32020)),
            (&[version], "tools/list", META, Err(-32020)),
            (&[list], "tools/list", META, Err(-32020)),
            (&[("mcp-protocol-version", "2025-11-25"), list], "tools/list", META, Err(-32020)),
            (&[version, call], "tools/list", META, Err(-32020)),
            (&[version, ("mcp-method", "Tools/List")], "tools/list", META, Err(-32020)),
            (&[version, version, list], "tools/list", META, Err(-32020)),
            (&[version, call], "tools/call", &named, Err(-32020)),
            (&[version, call, ("mcp-name", "read")], "tools/call", &named, Err(-32020)),
            (&[version, call, ("mcp-name", " decide ")], "tools/call", &named, Ok(Revision::Stateless)),
            (&[version, call, ("mcp-name", "=?base64?ZGVjaWRl?=")], "tools/call", &named, Ok(Revision::Stateless)),
            (&[version, call, ("mcp-name", "=?base64?ZGVj!?=")], "tools/call", &named, Err(-32020)),
        ] {
            assert_eq!(asked(headers, method, params), want, "{headers:?} {method} {params}");
        }
    }
}
