//! The tool `web_search`, which the service runs itself where its operator offers the web.

use crate::http::body::fields::{Fields, at_most, wrong_type};
use crate::http::wire::error::ApiError;
use crate::limits::WEB_DOMAINS_MAX;
use crate::turn::Hosted;
use crate::turn::options::WebRequest;
use crate::web::WebOffer;
use serde_json::Value as Json;

/// The type of the tool.
pub(in crate::http) const WEB_SEARCH: &str = "web_search";
/// Passages of a search or a page: what `search_context_size` asks for, from the least on.
const PASSAGES: [usize; 3] = [4, 8, 16];

/// Whether a tool of this type is a search of the web. Its types have dates and stages behind them.
pub(in crate::http) fn is_web_search(kind: &str) -> bool {
    let after = kind.strip_prefix(WEB_SEARCH);
    after.is_some_and(|after| after.is_empty() || after.starts_with("_preview") || after.starts_with("_2"))
}

/// The search of the web among a request's tools, which come with their places, or in `web_search_options`.
pub(super) fn the_web(
    fields: &mut Fields,
    tools: Vec<(usize, Json)>,
    offer: WebOffer,
) -> Result<Option<WebRequest>, ApiError> {
    let options = fields.object("web_search_options")?.map(|options| ("web_search_options".to_owned(), options.into()));
    let tools = tools.into_iter().map(|(i, tool)| (format!("tools[{i}]"), tool)).chain(options);
    let mut web = None;
    for (path, tool) in tools {
        if offer == WebOffer::default() {
            let message = format!("`{path}` asks for the web, which is not offered here (web.searxng_url, web.fetch)");
            return Err(ApiError::unsupported(&path, message));
        }
        if web.replace(one(&path, tool)?).is_some() {
            return Err(ApiError::invalid(&path, format!("`{path}` is a second web_search")));
        }
    }
    Ok(web)
}

/// The functions that the model may call for it.
pub(super) fn functions(offer: WebOffer) -> impl Iterator<Item = Hosted> {
    [(offer.search, Hosted::WebSearch), (offer.fetch, Hosted::WebFetch)]
        .into_iter()
        .filter(|(is, _)| *is)
        .map(|(_, f)| f)
}

/// One tool, whose fields stand beside its type or in an object of its name. SearXNG does not ask where the user is.
fn one(path: &str, tool: Json) -> Result<WebRequest, ApiError> {
    let mut fields = Fields::nested(path.to_owned(), tool)?;
    fields.string("type")?;
    if let Some(inner) = fields.fields(WEB_SEARCH)? {
        fields.finish()?;
        fields = inner;
    }
    fields.any("user_location");
    let [low, medium, high] = PASSAGES;
    let k = fields.choice("search_context_size", [("low", low), ("medium", medium), ("high", high)])?;
    let domains = domains(&mut fields)?;
    fields.finish()?;
    Ok(WebRequest { field: path.to_owned(), k: k.unwrap_or(medium), domains })
}

/// The hosts that count.
fn domains(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let Some(mut filters) = fields.fields("filters")? else { return Ok(Vec::new()) };
    let path = filters.path("allowed_domains");
    let list = filters.list("allowed_domains")?.unwrap_or_default();
    filters.finish()?;
    at_most(&path, list.len(), WEB_DOMAINS_MAX)?;
    let domain = |(i, value): (usize, Json)| match value {
        Json::String(domain) => Ok(domain.to_ascii_lowercase()),
        other => Err(wrong_type(&format!("{path}[{i}]"), "a string", &other)),
    };
    list.into_iter().enumerate().map(domain).collect()
}
