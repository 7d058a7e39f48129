//! The tools `web_search` and `web_fetch`, which the service runs itself where its operator offers the web.

use crate::http::body::fields::{Fields, at_most, wrong_type};
use crate::http::wire::error::ApiError;
use crate::limits::{WEB_DOMAINS_MAX, WEB_FETCHES_MAX, WEB_QUERIES_MAX};
use crate::turn::Hosted;
use crate::turn::options::{WebBounds, WebRequest};
use crate::web::{WebHosts, WebOffer};
use serde_json::Value as Json;

/// The type of the tool that searches.
pub(in crate::http) const WEB_SEARCH: &str = "web_search";
/// The type of Anthropic's tool that opens pages, without its date.
const WEB_FETCH: &str = "web_fetch";
/// Passages of a search or a page: what `search_context_size` asks for, from the least on.
const PASSAGES: [usize; 3] = [4, 8, 16];

/// Whether a tool of this type is a search of the web. Its types have dates and stages behind them.
pub(in crate::http) fn is_web_search(kind: &str) -> bool {
    let after = kind.strip_prefix(WEB_SEARCH);
    after.is_some_and(|after| after.is_empty() || after.starts_with("_preview") || after.starts_with("_2"))
}

/// Whether a tool of this type searches the web or opens its pages.
pub(super) fn is_web(kind: &str) -> bool {
    is_web_search(kind) || is_of_anthropic(kind, WEB_FETCH)
}

/// Whether a tool of this type is one of Anthropic's for the web, and what it does is offered.
pub(in crate::http) fn is_offered_of_anthropic(kind: &str, offer: WebOffer) -> bool {
    offer.search && is_of_anthropic(kind, WEB_SEARCH) || offer.fetch && is_of_anthropic(kind, WEB_FETCH)
}

/// Anthropic's types have eight digits of a date behind their names.
fn is_of_anthropic(kind: &str, name: &str) -> bool {
    let date = kind.strip_prefix(name).and_then(|rest| rest.strip_prefix('_'));
    date.is_some_and(|date| date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit()))
}

/// What a request's tools, which come with their places, or its `web_search_options` ask for.
pub(super) fn the_web(
    fields: &mut Fields,
    tools: Vec<(usize, Json)>,
    offer: WebOffer,
) -> Result<Option<WebRequest>, ApiError> {
    let options = fields.object("web_search_options")?.map(|options| ("web_search_options".to_owned(), options.into()));
    let tools = tools.into_iter().map(|(i, tool)| (format!("tools[{i}]"), tool)).chain(options);
    let mut web: Option<WebRequest> = None;
    for (path, tool) in tools {
        if offer == WebOffer::default() {
            let message = format!("`{path}` asks for the web, which is not offered here (web.searxng_url, web.fetch)");
            return Err(ApiError::unsupported(&path, message));
        }
        let one = one(&path, tool)?;
        let both = || ApiError::invalid(&path, format!("`{path}` is a second web_search or web_fetch"));
        web = Some(match web {
            None => one,
            Some(before) => before.and(one).ok_or_else(both)?,
        });
    }
    Ok(web)
}

/// The functions that the model may call for it.
pub(super) fn functions(offer: WebOffer, web: &WebRequest) -> impl Iterator<Item = Hosted> {
    let (search, fetch) = (offer.search && web.search.most > 0, offer.fetch && web.fetch.most > 0);
    [(search, Hosted::WebSearch), (fetch, Hosted::WebFetch)].into_iter().filter(|(is, _)| *is).map(|(_, f)| f)
}

/// One tool, whose fields stand beside its type or in an object of its name. SearXNG does not ask where the user is.
fn one(path: &str, tool: Json) -> Result<WebRequest, ApiError> {
    let mut fields = Fields::nested(path.to_owned(), tool)?;
    let kind = fields.string("type")?.unwrap_or_default();
    for name in [WEB_SEARCH, WEB_FETCH] {
        if is_of_anthropic(&kind, name) {
            return of_anthropic(path, fields, name);
        }
    }
    if let Some(inner) = fields.fields(WEB_SEARCH)? {
        fields.finish()?;
        fields = inner;
    }
    fields.any("user_location");
    let [low, medium, high] = PASSAGES;
    let k = fields.choice("search_context_size", [("low", low), ("medium", medium), ("high", high)])?;
    let mut allowed = Vec::new();
    if let Some(mut filters) = fields.fields("filters")? {
        allowed = domains(&mut filters, "allowed_domains")?;
        filters.finish()?;
    }
    fields.finish()?;
    let search = WebBounds { most: WEB_QUERIES_MAX, hosts: WebHosts { allowed, ..WebHosts::default() } };
    let fetch = WebBounds { most: WEB_FETCHES_MAX as usize, ..WebBounds::default() };
    Ok(WebRequest { field: path.to_owned(), k: k.unwrap_or(medium), search, fetch })
}

/// One of Anthropic's tools, which does one of both.
fn of_anthropic(path: &str, mut fields: Fields, name: &'static str) -> Result<WebRequest, ApiError> {
    let named = fields.path("name");
    if let Some(other) = fields.string("name")?.filter(|got| got != name) {
        let shown: String = other.chars().take(40).collect();
        return Err(ApiError::invalid(&named, format!("`{named}` must be {name:?}, got {shown:?}")));
    }
    for ignored in ["user_location", "cache_control"] {
        fields.any(ignored);
    }
    if name == WEB_FETCH {
        // Every answer cites what it read.
        fields.any("citations");
    }
    let uses = fields.integer("max_uses", 1..=i64::from(u32::MAX))?.map_or(usize::MAX, |uses| uses as usize);
    let hosts = WebHosts {
        allowed: domains(&mut fields, "allowed_domains")?,
        blocked: domains(&mut fields, "blocked_domains")?,
    };
    fields.finish()?;
    let bounds = |most: usize| WebBounds { most: most.min(uses), hosts };
    let (search, fetch) = match name {
        WEB_SEARCH => (bounds(WEB_QUERIES_MAX), WebBounds::default()),
        _ => (WebBounds::default(), bounds(WEB_FETCHES_MAX as usize)),
    };
    Ok(WebRequest { field: path.to_owned(), k: PASSAGES[1], search, fetch })
}

/// Hosts, which have no paths.
fn domains(fields: &mut Fields, name: &'static str) -> Result<Vec<String>, ApiError> {
    let (path, list) = (fields.path(name), fields.list(name)?.unwrap_or_default());
    at_most(&path, list.len(), WEB_DOMAINS_MAX)?;
    let domain = |(i, value): (usize, Json)| match value {
        Json::String(domain) if domain.is_empty() || domain.contains(['/', '*', ':']) => {
            let (path, shown) = (format!("{path}[{i}]"), domain.chars().take(80).collect::<String>());
            let message = format!("`{path}` must be the name of a host, with all below it, got {shown:?}");
            Err(ApiError::unsupported(&path, message))
        }
        Json::String(domain) => Ok(domain.to_ascii_lowercase()),
        other => Err(wrong_type(&format!("{path}[{i}]"), "a string", &other)),
    };
    list.into_iter().enumerate().map(domain).collect()
}
