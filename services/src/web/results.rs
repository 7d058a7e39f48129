//! What SearXNG says it found, several lists as one, and what a search comes to.

use crate::citations::NumberedSource;
use crate::outbound::OutboundError;
use crate::semantic;
use serde::Deserialize;

/// A page that a search found.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct WebHit {
    pub(super) url: String,
    pub(super) title: String,
    /// Some of its words.
    pub(super) content: String,
}

/// The answer of SearXNG, as far as it is read.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WebHits {
    pub(super) results: Vec<WebHit>,
}

/// What a search or a page says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebFinding {
    /// Passages, the best first.
    pub passages: Vec<NumberedSource>,
    /// The pages that were found or read.
    pub pages: Vec<WebPage>,
}

/// A page that was found or read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebPage {
    /// The address of the page.
    pub url: String,
    /// Its title; the address where it has none.
    pub title: String,
}

/// Why the web says nothing.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The page or the search could not be reached.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// SearXNG gives no JSON.
    #[error("SearXNG refuses format=json: its settings.yml must list json under search.formats")]
    NoJson,
    /// SearXNG or a page said something else than was asked for.
    #[error("{0}")]
    Unreadable(String),
    /// Too much is read already.
    #[error("too many pages are being read, try again later")]
    Busy,
}

/// Several lists as one: a page counts by its places in all of them, ties in the order in which they came.
pub(super) fn fused(lists: Vec<Vec<WebHit>>) -> Vec<WebHit> {
    let all = semantic::fused(lists, |hit| hit.url.clone(), |_, _| {});
    all.into_iter().map(|(_, hit)| hit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_two_lists_stands_before_the_first_of_one() {
        let list = |urls: &str| urls.chars().map(|c| WebHit { url: c.to_string(), ..WebHit::default() }).collect();
        let urls = |lists| fused(lists).into_iter().map(|hit| hit.url).collect::<String>();
        assert_eq!(urls(vec![list("abc"), list("dc")]), "cadb");
        assert_eq!(urls(vec![list("ab"), list("")]), "ab");
        assert_eq!(urls(vec![]), "");
    }
}
