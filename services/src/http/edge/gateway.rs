//! Headers of gateways: those of the Gateway API inference extension, of llm-d's router, and of routers that keep a
//! session with one worker. One table of names; whatever a router puts into a header that is not here is not looked at.

use crate::metrics::count_ignored;
use actix_web::http::header::{HeaderMap, HeaderValue};

/// What a header does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderUse {
    /// Says for whom the gateway sends the request; the first one in the table that is there counts.
    Account,
    /// Was for the gateway itself. Taken without effect, and counted by name.
    None,
}

/// All headers of gateways that are known here.
const HEADERS: [(&str, HeaderUse); 11] = [
    ("x-llm-d-inference-fairness-id", HeaderUse::Account),
    ("x-gateway-inference-fairness-id", HeaderUse::Account),
    ("x-llm-d-inference-objective", HeaderUse::None),
    ("x-gateway-inference-objective", HeaderUse::None),
    ("x-llm-d-slo-ttft-ms", HeaderUse::None),
    ("x-llm-d-slo-tpot-ms", HeaderUse::None),
    ("x-session-id", HeaderUse::None),
    ("x-session-token", HeaderUse::None),
    ("x-gateway-destination-endpoint", HeaderUse::None),
    ("x-prefiller-host-port", HeaderUse::None),
    ("x-data-parallel-rank", HeaderUse::None),
];

/// The id of the one for whom a gateway sends a request.
pub(in crate::http::edge) fn account(headers: &HeaderMap) -> Option<&HeaderValue> {
    named(HeaderUse::Account).find_map(|name| headers.get(name))
}

/// Counts the headers of a request that have no effect.
pub(super) fn count_without_effect(headers: &HeaderMap) {
    named(HeaderUse::None).filter(|name| headers.contains_key(*name)).for_each(|name| count_ignored("header", name));
}

fn named(what: HeaderUse) -> impl Iterator<Item = &'static str> {
    HEADERS.into_iter().filter(move |(_, its)| *its == what).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::wire::reply::DROPPED_REASON;
    use crate::metrics::IGNORED;

    #[test]
    fn the_page_says_of_each_header_whether_it_has_an_effect() {
        let page = include_str!("../../../../docs/operating/gateways.md");
        for (name, does) in HEADERS {
            let row = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
            let row = row.unwrap_or_else(|| panic!("no row has {name}"));
            assert_eq!(row.contains("no effect"), does == HeaderUse::None, "{row}");
            assert_eq!(IGNORED.contains(&&*format!("header.{name}")), does == HeaderUse::None, "{name}");
        }
        assert!(page.contains(DROPPED_REASON.as_str()));
    }
}
