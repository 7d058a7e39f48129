//! The web within a turn: which calls go out, and what they bring. A page may tell the model to carry words of the
//! conversation away, so once one was read the model writes nothing more that leaves: the machine refuses queries, and
//! of addresses only those are opened that the user wrote or a search found.

use crate::limits::WEB_QUERIES_MAX;
use crate::text::{Conversation, Role};
use crate::turn::caller::TurnCaller;
use crate::turn::hosted::WebCall;
use crate::turn::options::WebRequest;
use crate::web::{Web, WebError, WebFinding, WebVisitor, addresses_in};
use std::collections::BTreeSet;

/// What a turn has done on the web.
#[derive(Debug, Default)]
pub(super) struct WebTurn {
    request: Option<WebRequest>,
    /// Addresses that the user wrote or a search found.
    named: BTreeSet<String>,
    /// Queries that were searched for.
    queries: usize,
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
        match call {
            WebCall::Search { queries } if self.queries + queries.len() > WEB_QUERIES_MAX => {
                Some(format!("an answer may have {WEB_QUERIES_MAX} queries of the web: answer from what was found"))
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
        let visitor = WebVisitor { holder: caller.holder, account: caller.account, request: caller.name.clone() };
        match call {
            WebCall::Search { queries } => {
                self.queries += queries.len();
                let found = web.search(&visitor, queries, &request.domains, request.k).await?;
                self.named.extend(found.urls.iter().map(|url| plain(url)));
                Ok(found)
            }
            WebCall::Open { url, query } => web.open(&visitor, url, query, request.k).await,
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

    fn search(queries: &[&str]) -> WebCall {
        WebCall::Search { queries: queries.iter().map(|query| (*query).to_owned()).collect() }
    }

    fn open(url: &str) -> WebCall {
        WebCall::Open { url: url.into(), query: String::new() }
    }

    fn turn() -> WebTurn {
        let mut turn = WebTurn::of(Some(WebRequest { field: "tools[0]".into(), k: 8, domains: Vec::new() }));
        let messages = vec![
            Message::new(Role::User, "Read http://a.test/x."),
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
        for url in ["http://evil.test/", "http://a.test/", "http://a.test/x?secret=1", "http://b.test/"] {
            assert!(turn.refusal(&open(url)).is_some(), "{url}");
        }
        turn.named.insert(plain("http://b.test/"));
        assert_eq!(turn.refusal(&open("http://b.test")), None);
    }

    #[test]
    fn an_answer_has_so_many_queries() {
        let turn = turn();
        assert_eq!(turn.refusal(&search(&["a"; WEB_QUERIES_MAX])), None);
        assert!(turn.refusal(&search(&["a"; WEB_QUERIES_MAX + 1])).is_some());
    }
}
