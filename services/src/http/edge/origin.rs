//! Whether a request is one that a page of somewhere else made its visitor's browser send. Browsers say where a page is
//! from (`Origin`, `Sec-Fetch-Site`); a name in `Host` that is none of ours says that somebody pointed his own name at
//! this machine. Programs that say nothing of the kind are served as they come.

use super::keys::auth::AcceptedKeys;
use crate::http::wire::error::ApiError;
use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderMap};
use actix_web::http::{Method, StatusCode};
use std::net::IpAddr;

/// Says whether the page that made a request is of the place that the request goes to.
const FETCH_SITE: &str = "sec-fetch-site";

/// Whom the service takes for its own.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Origins whose pages may call; `*` for all.
    pub allowed: Vec<String>,
    /// Names that `Host` may have where no key is asked for. `None` where keys are: then a name opens nothing.
    pub hosts: Option<Hosts>,
}

/// Names under which the service is reached.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// As they were configured.
    pub names: Vec<String>,
    /// Where it listens; unspecified means every address of the machine, and then any address will do: no name can be
    /// pointed at it.
    pub address: Option<IpAddr>,
}

impl Origins {
    /// As the service was told, listening on this address.
    pub fn of(allowed: &[String], names: &[String], keys: &AcceptedKeys, address: Option<IpAddr>) -> Self {
        let hosts = keys.is_empty().then(|| Hosts { names: names.to_vec(), address });
        Self { allowed: allowed.to_vec(), hosts }
    }

    /// An error if the request came from where nobody was asked.
    pub fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let host = text("host");
        if let (Some(hosts), Some(host)) = (&self.hosts, host)
            && !hosts.have(host)
        {
            return Err(strange_host(host));
        }
        let (origin, site) = (text("origin"), text(FETCH_SITE));
        let elsewhere = match (origin, site) {
            (Some(origin), _) if self.allows(origin) => false,
            (Some(origin), _) => !is_of_host(origin, host),
            (None, Some(site)) => matches!(site, "cross-site" | "same-site") && !self.allows("*"),
            (None, None) => return Ok(()),
        };
        if elsewhere {
            return Err(strange_origin(origin));
        }
        check_type(method, headers)
    }

    fn allows(&self, origin: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
    }
}

impl Hosts {
    /// `NAME` or `NAME:PORT`; an IPv6 address stands in brackets.
    fn have(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        if name.eq_ignore_ascii_case("localhost") || self.names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return true;
        }
        let Ok(address) = name.parse::<IpAddr>() else { return false };
        address.is_loopback() || self.address.is_none_or(|own| own.is_unspecified() || own == address)
    }
}

/// Is the page of the very host that it calls?
fn is_of_host(origin: &str, host: Option<&str>) -> bool {
    let place = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    place.is_some_and(|place| host.is_some_and(|host| place.eq_ignore_ascii_case(host)))
}

/// A page can make a browser send a form's types anywhere without asking; JSON it cannot.
fn check_type(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let empty = headers.get(header::CONTENT_LENGTH).is_none_or(|n| n == "0")
        && !headers.contains_key(header::TRANSFER_ENCODING);
    if empty || !matches!(*method, Method::POST | Method::PUT) {
        return Ok(());
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = format!("a browser's body must be application/json, got {:?}", shown(kind));
    let error = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message);
    Err(error.with_code("content_type").rejected_as("origin"))
}

fn strange_host(host: &str) -> ApiError {
    let message = format!(
        "Host is {:?}, which is no name of this service; without API keys it answers to the address it listens on, to localhost and to \
         server.hosts",
        shown(host)
    );
    ApiError::new(StatusCode::FORBIDDEN, "permission_error", message).with_code("host_not_allowed").rejected_as("host")
}

fn strange_origin(origin: Option<&str>) -> ApiError {
    let from = origin.map_or_else(|| "another site".to_owned(), |origin| format!("{:?}", shown(origin)));
    let message = format!("a page of {from} may not call this service; server.cors_origins names those that may");
    ApiError::new(StatusCode::FORBIDDEN, "permission_error", message)
        .with_code("origin_not_allowed")
        .rejected_as("origin")
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Whether a browser asks if a page of another origin may call. Such a question carries no key. It comes this far only
/// where no origin may.
pub(super) fn is_preflight(request: &HttpRequest) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// No page may call, which its developer reads in the browser's tools.
pub(super) fn no_origins() -> ApiError {
    let message = "pages of other origins may not call this server; `server.cors_origins` in its configuration names those that may";
    ApiError::new(StatusCode::FORBIDDEN, "invalid_request_error", message)
        .with_code("origin_not_allowed")
        .rejected_as("origin")
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{HeaderName, HeaderValue};

    fn ask(origins: &Origins, method: Method, headers: &[(&str, &str)]) -> Option<&'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        origins.check(&method, &map).err().and_then(|error| error.code)
    }

    #[test]
    fn without_keys_a_host_is_one_of_ours_or_nobody_s() {
        let hosts = |address: &str| Hosts { names: vec!["llm.lan".into()], address: Some(address.parse().unwrap()) };
        let loopback = Origins { hosts: Some(hosts("127.0.0.1")), ..Origins::default() };
        let all = Origins { hosts: Some(hosts("0.0.0.0")), ..Origins::default() };
        for (host, on_loopback, on_all) in [
            ("localhost:8080", true, true),
            ("LOCALHOST", true, true),
            ("127.0.0.1:8080", true, true),
            ("127.0.0.1", true, true),
            ("[::1]:8080", true, true),
            ("llm.lan:8080", true, true),
            ("192.168.0.7:8080", false, true),
            ("evil.example", false, false),
            ("evil.example:8080", false, false),
            ("127.0.0.1.evil.example", false, false),
            ("", false, false),
        ] {
            let refused = |origins| ask(origins, Method::GET, &[("host", host)]) == Some("host_not_allowed");
            assert_eq!((!refused(&loopback), !refused(&all)), (on_loopback, on_all), "{host:?}");
        }
        assert_eq!(ask(&loopback, Method::GET, &[]), None, "programs that name no host are no browsers");
        assert_eq!(
            ask(&Origins::default(), Method::GET, &[("host", "evil.example")]),
            None,
            "with keys a name opens nothing"
        );
    }

    #[test]
    fn a_page_of_elsewhere_is_refused_and_programs_are_served_with_any_type() {
        let origins = Origins { allowed: vec!["https://app.example".into()], hosts: None };
        let json = ("content-type", "application/json; charset=utf-8");
        let (host, form, some) = (("host", "localhost:8080"), ("content-type", "text/plain"), ("content-length", "2"));
        for (headers, want) in [
            (&[host, form, some][..], None),
            (&[host, some], None),
            (&[host, ("origin", "https://evil.example"), form, some], Some("origin_not_allowed")),
            (&[host, ("origin", "https://evil.example"), json, some], Some("origin_not_allowed")),
            (&[host, ("origin", "null"), json, some], Some("origin_not_allowed")),
            (&[host, ("sec-fetch-site", "cross-site"), json, some], Some("origin_not_allowed")),
            (&[host, ("sec-fetch-site", "same-site"), json, some], Some("origin_not_allowed")),
            (&[host, ("sec-fetch-site", "same-origin"), json, some], None),
            (&[host, ("sec-fetch-site", "none"), json, some], None),
            (&[host, ("origin", "http://localhost:8080"), json, some], None),
            (&[host, ("origin", "http://localhost:8080"), form, some], Some("content_type")),
            (&[host, ("origin", "http://localhost:9090"), json, some], Some("origin_not_allowed")),
            (&[host, ("origin", "https://app.example"), ("sec-fetch-site", "cross-site"), json, some], None),
            (&[host, ("origin", "https://app.example"), form, some], Some("content_type")),
            (&[host, ("origin", "https://app.example"), form, ("transfer-encoding", "chunked")], Some("content_type")),
            (&[host, ("origin", "https://app.example")], None),
        ] {
            assert_eq!(ask(&origins, Method::POST, headers), want, "{headers:?}");
        }
        let all = Origins { allowed: vec!["*".into()], hosts: None };
        assert_eq!(ask(&all, Method::GET, &[host, ("sec-fetch-site", "cross-site")]), None);
    }
}
