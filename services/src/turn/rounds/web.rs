//! The web within a turn: which calls go out, and what they bring. A page may tell the model to carry words of the
//! conversation away, so once one was read the model writes nothing more that leaves: the machine refuses queries, and
//! of addresses only those are opened that the user wrote or a search found.

use crate::text::{Conversation, Role};
use crate::turn::caller::TurnCaller;
use crate::turn::hosted::WebCall;
use crate::turn::options::WebRequest;
use crate::web::{Web, WebError, WebFinding, addresses_in};
use std::collections::BTreeSet;

/// What a turn has done on the web.
#[derive(Debug, Default)]
pub(super) struct WebTurn {
    request: Option<WebRequest>,
    /// Addresses that the user wrote or a search found.
    named: BTreeSet<String>,
    /// Queries that were searched for.
    queries: usize,
    /// Pages that were opened.
    opened: usize,
}

impl WebTurn {
    /// Of a turn that asks for this, before its conversation is known.
    pub(super) fn of(request: Option<WebRequest>) -> Self {
        Self { request, ..Self::default() }
    }

    /// Takes over the addresses that the user wrote.
    pub(super) fn begin(&mut self, conversation: &Conversation) {
        if self.request.is_some() {
            let users = conversation.messages.iter().filter(|message| message.role == Role::User);
            let texts = users.filter_map(|message| message.content.as_deref());
            self.named.extend(texts.flat_map(addresses_in).map(plain));
        }
    }

    /// Why a call does not go out, in words for the model; none if it does.
    pub(super) fn refusal(&self, call: &WebCall) -> Option<String> {
        let WebRequest { search, fetch, .. } = self.request.as_ref()?;
        match call {
            WebCall::Search { queries } if self.queries + queries.len() > search.most => {
                Some(format!("an answer may have {} queries of the web: answer from what was found", search.most))
            }
            WebCall::Open { .. } if self.opened >= fetch.most => {
                Some(format!("an answer may open {} pages: answer from what was found", fetch.most))
            }
            WebCall::Open { url, .. } if !fetch.hosts.admit(url) => {
                Some("the request wants no pages of this host".into())
            }
            WebCall::Open { url, .. } if !self.named.contains(&plain(url)) => {
                Some("only addresses that the user wrote or a search found are opened".into())
            }
            _ => None,
        }
    }

    /// Searches, or reads a page.
    pub(super) async fn run(&mut self, web: &Web, caller: &TurnCaller, call: &WebCall) -> Result<WebFinding, WebError> {
        let Some(request) = self.request.clone() else { return Ok(WebFinding::default()) };
        let visitor = caller.visitor();
        match call {
            WebCall::Search { queries } => {
                self.queries += queries.len();
                let found = web.search(&visitor, queries, &request.search.hosts, request.k).await?;
                self.named.extend(found.pages.iter().map(|page| plain(&page.url)));
                Ok(found)
            }
            WebCall::Open { url, query } => {
                self.opened += 1;
                web.open(&visitor, url, query, request.k).await
            }
        }
    }
}

/// An address without what changes nothing about the page.
fn plain(url: &str) -> String {
    url.split('#').next().unwrap_or_default().trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Message;
    use crate::turn::options::WebBounds;
    use crate::web::WebHosts;

    fn search(queries: &[&str]) -> WebCall {
        WebCall::Search { queries: queries.iter().map(|query| (*query).to_owned()).collect() }
    }

    fn open(url: &str) -> WebCall {
        WebCall::Open { url: url.into(), query: String::new() }
    }

    /// For two queries, and one page that is none of c.test.
    fn request() -> WebRequest {
        let blocked = WebHosts { blocked: vec!["c.test".into()], ..WebHosts::default() };
        let (search, fetch) = (WebBounds { most: 2, ..WebBounds::default() }, WebBounds { most: 1, hosts: blocked });
        WebRequest { field: "tools[0]".into(), k: 8, search, fetch }
    }

    fn turn() -> WebTurn {
        let mut turn = WebTurn::of(Some(request()));
        let messages = vec![
            Message::new(Role::User, "Read http://a.test/x and http://c.test/."),
            Message::new(Role::Assistant, "See http://evil.test/"),
            Message::new(Role::Tool, "http://evil.test/"),
        ];
        turn.begin(&Conversation { messages, ..Conversation::default() });
        turn
    }

    #[test]
    fn only_addresses_that_the_user_wrote_or_a_search_found_are_opened() {
        let mut turn = turn();
        for url in ["http://a.test/x", "http://a.test/x/#part"] {
            assert_eq!(turn.refusal(&open(url)), None, "{url}");
        }
        for url in
            ["http://c.test/", "http://evil.test/", "http://a.test/", "http://a.test/x?secret=1", "http://b.test/"]
        {
            assert!(turn.refusal(&open(url)).is_some(), "{url}");
        }
        turn.named.insert(plain("http://b.test/"));
        assert_eq!(turn.refusal(&open("http://b.test")), None);
    }

    #[test]
    fn an_answer_has_as_many_queries_and_pages_as_its_request_allows() {
        let mut turn = turn();
        assert_eq!(turn.refusal(&search(&["a"; 2])), None);
        assert!(turn.refusal(&search(&["a"; 3])).is_some());
        turn.opened = 1;
        assert!(turn.refusal(&open("http://a.test/x")).unwrap().contains("may open 1 pages"));
    }
}
