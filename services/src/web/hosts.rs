//! The hosts whose pages a request wants, and those whose pages it does not.

/// Hosts in small letters, each with all below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebHosts {
    /// Those that count alone; empty for all.
    pub allowed: Vec<String>,
    /// Those that do not count.
    pub blocked: Vec<String>,
}

impl WebHosts {
    /// Whether a page counts.
    pub fn admit(&self, url: &str) -> bool {
        let host = host(url);
        let among = |hosts: &[String]| hosts.iter().any(|domain| is_within(&host, domain));
        (self.allowed.is_empty() || among(&self.allowed)) && !among(&self.blocked)
    }
}

fn host(url: &str) -> String {
    let behind = url.split_once("://").map_or("", |(_, rest)| rest);
    behind.split(['/', '?', '#', ':']).next().unwrap_or_default().to_ascii_lowercase()
}

/// Whether a host is a domain, or one below it.
fn is_within(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_counts_with_all_below_it_and_a_blocked_one_does_not() {
        let domains = vec!["a.test".to_owned()];
        let allowed = WebHosts { allowed: domains.clone(), ..WebHosts::default() };
        let blocked = WebHosts { blocked: domains, ..WebHosts::default() };
        for url in ["http://a.test/x", "https://www.A.test:443/", "http://a.test"] {
            assert!(allowed.admit(url) && !blocked.admit(url), "{url}");
        }
        for url in ["http://ba.test/", "http://a.test.evil/", "a.test", "http://evil/a.test"] {
            assert!(!allowed.admit(url) && blocked.admit(url), "{url}");
        }
        assert!(WebHosts::default().admit("http://anything/"));
    }
}
