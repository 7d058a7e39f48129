//! The section `web` of the configuration.

use super::search::WebSettings;
use crate::limits::{WEB_PAGE_BYTES, WEB_PAGE_BYTES_MAX};
use crate::outbound::{OperatorsServer, PublicReach};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A key of the section, and what is wrong with its value.
type InvalidWebKey = (&'static str, String);

/// Searches of the web and reading of its pages, both of which answers ask for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebKeys {
    /// SearXNG's address; empty searches nothing.
    pub searxng_url: String,
    /// Which pages are read.
    pub fetch: WebFetch,
    /// Hosts that are read where only listed ones are; with a port, servers that may stand anywhere.
    pub allow: String,
    /// Bytes of a page that are read.
    pub bytes: u64,
}

/// Which pages are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WebFetch {
    /// No page is read at all.
    #[default]
    Off,
    /// Those of hosts that the configuration lists.
    Listed,
    /// Those of every public host.
    Public,
}

impl Default for WebKeys {
    fn default() -> Self {
        Self { searxng_url: String::new(), fetch: WebFetch::Off, allow: String::new(), bytes: WEB_PAGE_BYTES }
    }
}

impl WebKeys {
    pub(crate) fn check(&self) -> Result<(), InvalidWebKey> {
        let got = self.bytes;
        if !(1..=WEB_PAGE_BYTES_MAX).contains(&got) {
            return Err(("bytes", format!("must lie between 1 and {WEB_PAGE_BYTES_MAX}, got {got}")));
        }
        self.settings().map(|_| ())
    }

    fn entries(&self) -> impl Iterator<Item = &str> {
        self.allow.split(',').map(str::trim).filter(|entry| !entry.is_empty())
    }

    /// What the service makes of it.
    pub fn settings(&self) -> Result<WebSettings, InvalidWebKey> {
        let searxng = match self.searxng_url.as_str() {
            "" => None,
            url => Some(OperatorsServer::configured(url).map_err(|e| ("searxng_url", e.to_string()))?),
        };
        let listed = |entry: &str| ("allow", entry.to_owned());
        let mut reach = match self.fetch {
            WebFetch::Off => None,
            WebFetch::Listed => Some(PublicReach::listed()),
            WebFetch::Public => Some(PublicReach::everywhere()),
        };
        for entry in self.entries() {
            let reach = reach.as_mut().ok_or_else(|| listed("lists hosts, and web.fetch is \"off\""))?;
            reach.allow(entry).map_err(|e| listed(&e.to_string()))?;
        }
        if self.fetch == WebFetch::Listed && self.entries().next().is_none() {
            return Err(listed("must list a host where web.fetch is \"listed\""));
        }
        Ok(WebSettings { searxng, reach: reach.map(Arc::new), bytes: self.bytes as usize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_web_is_off_unless_it_is_asked_for() {
        let settings = WebKeys::default().settings().unwrap();
        assert!(settings.searxng.is_none() && settings.reach.is_none());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_the_name_of_its_key() {
        let keys = |url: &str, fetch, allow: &str| WebKeys {
            searxng_url: url.into(),
            fetch,
            allow: allow.into(),
            ..WebKeys::default()
        };
        for (refused, key) in [
            (keys("searx.lan:8080", WebFetch::Off, ""), "searxng_url"),
            (keys("ftp://searx.lan", WebFetch::Off, ""), "searxng_url"),
            (keys("", WebFetch::Off, "a.test"), "allow"),
            (keys("", WebFetch::Listed, ""), "allow"),
            (keys("", WebFetch::Listed, "http://a.test/"), "allow"),
            (keys("", WebFetch::Listed, "127.1"), "allow"),
            (keys("", WebFetch::Listed, "a.test:0"), "allow"),
        ] {
            assert_eq!(refused.check().unwrap_err().0, key, "{refused:?}");
        }
        let taken = keys("http://10.0.0.7:8888", WebFetch::Listed, "a.test, 10.0.0.8:8000, [fd00::1]:80");
        assert!(taken.check().is_ok_and(|()| taken.settings().unwrap().reach.is_some()));
    }
}
