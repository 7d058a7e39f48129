//! Which requests others feel, as the audit log has them: what changes tables, collections and
//! stores, what removes a file or a kept response, and what goes into and out of the examples to learn from, also where
//! it was refused.

use super::keys::auth::Caller;
use crate::audit::{Audit, AuditRecord};
use crate::http::wire::reply::RequestName;
use actix_web::HttpRequest;
use actix_web::body::BoxBody;
use actix_web::dev::ServiceResponse;
use actix_web::http::Method;

const TABLES: &str = "/v1/engram/tables/";
const COLLECTIONS: &str = "/v1/engram/collections/";
const RESPONSES: &str = "/v1/responses/";
const FILES: &str = "/v1/files/";
const FEEDBACK: &str = "/v1/feedback";
const LEARNING_MINE: &str = "/v1/learning/mine";
const LEARNING_EXAMPLES: &str = "/v1/learning/examples";
const LEARNING_RUN: &str = "/v1/learning/run";
const LEARNING_PROMOTE: &str = "/v1/learning/promote";
const LEARNING_ROLLBACK: &str = "/v1/learning/rollback";
const STORES: &str = "/v1/vector_stores/";
const FLUSH: &str = "/flush_cache";

/// Writes a request down, if it is one of these.
pub(super) fn note(audit: &Audit, reply: &ServiceResponse<BoxBody>) {
    let request = reply.request();
    let Some((action, on)) = action(request.method(), request.path()) else { return };
    let (caller, name) = (Caller::of(request), RequestName::of(request));
    audit.record(&AuditRecord {
        account: Some(caller.key),
        address: address(request),
        request: Some(&name),
        ..AuditRecord::own(action, Some(on), reply.status().as_str())
    });
}

fn address(request: &HttpRequest) -> Option<std::net::IpAddr> {
    request.peer_addr().map(|peer| peer.ip())
}

/// What a request changes of the examples to learn from, and whose.
fn learning_action<'a>(method: &Method, path: &'a str) -> Option<(&'static str, &'a str)> {
    let (verb, on) = match (method, path) {
        (&Method::POST, FEEDBACK) => ("learning.feedback", "mine"),
        (&Method::DELETE, LEARNING_MINE) => ("learning.delete", "mine"),
        (&Method::POST, LEARNING_EXAMPLES) => ("learning.import", "all"),
        (&Method::GET, LEARNING_EXAMPLES) => ("learning.export", "all"),
        (&Method::POST, LEARNING_RUN) => ("learning.run", "all"),
        (&Method::POST, LEARNING_PROMOTE) => ("learning.promote", "all"),
        (&Method::POST, LEARNING_ROLLBACK) => ("learning.rollback", "all"),
        _ => {
            let id = path.strip_prefix(LEARNING_MINE)?.strip_prefix('/')?;
            (*method == Method::DELETE).then_some(("learning.delete", id))?
        }
    };
    Some((verb, on))
}

/// What a request does, and to what.
fn action<'a>(method: &Method, path: &'a str) -> Option<(&'static str, &'a str)> {
    if let Some(learning) = learning_action(method, path) {
        return Some(learning);
    }
    if path == FLUSH {
        return (*method == Method::POST).then_some(("cache.flush", "prefixes"));
    }
    if let Some(id) = path.strip_prefix(RESPONSES) {
        return (*method == Method::DELETE && !id.contains('/')).then_some(("response.delete", id));
    }
    if let Some(id) = path.strip_prefix(FILES) {
        return (*method == Method::DELETE && !id.contains('/')).then_some(("file.delete", id));
    }
    if let Some(rest) = path.strip_prefix(STORES) {
        let (store, verb) = rest.split_once('/').unwrap_or((rest, ""));
        let action = match (method, verb) {
            (&Method::DELETE, "") => "store.delete",
            (&Method::DELETE, _) => "store.detach",
            (&Method::POST, "files" | "file_batches") => "store.attach",
            _ => return None,
        };
        return Some((action, store));
    }
    let (table, rest) = match path.strip_prefix(TABLES) {
        Some(rest) => (true, rest),
        None => (false, path.strip_prefix(COLLECTIONS)?),
    };
    let (name, verb) = rest.split_once('/').map_or((rest, ""), |(name, verb)| (name, verb));
    let action = match (table, method, verb) {
        (true, &Method::PUT, "") => "table.put",
        (true, &Method::DELETE, "") => "table.delete",
        (true, &Method::POST, "learn") => "table.learn",
        (true, &Method::POST, "rollback") => "table.rollback",
        (false, &Method::PUT, "") => "collection.put",
        (false, &Method::DELETE, "") => "collection.delete",
        (false, &Method::POST, "add") => "collection.add",
        _ => return None,
    };
    Some((action, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_has_a_word_and_what_reads_has_none() {
        let of = |method: Method, path| action(&method, path);
        assert_eq!(of(Method::PUT, "/v1/engram/tables/a"), Some(("table.put", "a")));
        assert_eq!(of(Method::POST, "/flush_cache"), Some(("cache.flush", "prefixes")));
        assert_eq!(of(Method::POST, "/v1/engram/tables/a/learn"), Some(("table.learn", "a")));
        assert_eq!(of(Method::DELETE, "/v1/engram/collections/b"), Some(("collection.delete", "b")));
        assert_eq!(of(Method::POST, "/v1/engram/collections/b/search"), None);
        assert_eq!(of(Method::GET, "/v1/engram/tables/a"), None);
        assert_eq!(of(Method::DELETE, "/v1/responses/resp_1"), Some(("response.delete", "resp_1")));
        assert_eq!(of(Method::DELETE, "/v1/files/file-1"), Some(("file.delete", "file-1")));
        assert_eq!(of(Method::POST, "/v1/vector_stores/vs_1/files"), Some(("store.attach", "vs_1")));
        assert_eq!(of(Method::DELETE, "/v1/vector_stores/vs_1/files/file-1"), Some(("store.detach", "vs_1")));
        assert_eq!(of(Method::DELETE, "/v1/vector_stores/vs_1"), Some(("store.delete", "vs_1")));
        assert_eq!(of(Method::POST, "/v1/vector_stores/vs_1/search"), None);
        assert_eq!(of(Method::GET, "/v1/responses/resp_1"), None);
        assert_eq!(of(Method::POST, "/v1/responses/resp_1/cancel"), None);
        assert_eq!(of(Method::POST, "/v1/feedback"), Some(("learning.feedback", "mine")));
        assert_eq!(of(Method::DELETE, "/v1/learning/mine"), Some(("learning.delete", "mine")));
        assert_eq!(of(Method::DELETE, "/v1/learning/mine/ex_1"), Some(("learning.delete", "ex_1")));
        assert_eq!(of(Method::GET, "/v1/learning/mine"), None);
        assert_eq!(of(Method::GET, "/v1/learning/examples"), Some(("learning.export", "all")));
        assert_eq!(of(Method::POST, "/v1/learning/examples"), Some(("learning.import", "all")));
        assert_eq!(of(Method::POST, "/v1/learning/run"), Some(("learning.run", "all")));
        assert_eq!(of(Method::POST, "/v1/learning/promote"), Some(("learning.promote", "all")));
        assert_eq!(of(Method::POST, "/v1/learning/rollback"), Some(("learning.rollback", "all")));
        assert_eq!(of(Method::POST, "/v1/chat/completions"), None);
    }
}
