//! The caller of a turn, from what the edge knows of a request.

use crate::http::app::App;
use crate::http::edge::keys::auth::{Caller, Viewer, viewer};
use crate::http::edge::keys::cache;
use crate::http::edge::keys::terms::terms_of;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use crate::learning::Consent;
use crate::turn::TurnCaller;
use crate::turn::options::CacheRequest;
use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use chimere_engine::ids::{CacheScope, KeyId};

/// The caller of a turn.
pub(in crate::http) fn turn_caller(app: &App, request: &HttpRequest) -> Result<TurnCaller, ApiError> {
    let Viewer { asker, tools } = viewer(request);
    Ok(TurnCaller {
        name: RequestName::of(request),
        holder: app.holder(request),
        account: Caller::of(request).key,
        asker,
        tools,
        terms: terms_of(request)?,
    })
}

/// Says of one request that less is kept of it than its key's line allows.
const LEARN: &str = "x-chimere-learn";

/// What of a request's answer may be kept to learn from: what the key's line and the request both allow. Without keys
/// it is the configuration's word for callers on this machine, and nothing for others.
pub(in crate::http) fn consent(app: &App, request: &HttpRequest) -> Result<Consent, ApiError> {
    let caller = Caller::of(request);
    let keyless = app.learning.get().map_or(Consent::Off, |learning| learning.settings().keyless);
    let own = if caller.key == KeyId::default() && caller.admin { keyless } else { caller.learn };
    let Some(word) = request.headers().get(LEARN) else { return Ok(own) };
    let word = String::from_utf8_lossy(word.as_bytes());
    let said: Consent = word.trim().parse().map_err(|why| ApiError::invalid(LEARN, format!("`{LEARN}` {why}")))?;
    Ok(own.and(said))
}

/// Among whose prompts the request's own are looked up, if they are.
pub(in crate::http) fn cache_scope(request: &HttpRequest, wanted: &CacheRequest) -> Option<CacheScope> {
    cache::of_request(Caller::of(request).cache, wanted.on, wanted.salt.as_deref())
}

/// The account whose collections, files or stores (`what`) a request may change. Who comes without a key from another
/// machine shares no account with anybody and has none.
pub(in crate::http) fn owner(request: &HttpRequest, what: &str) -> Result<KeyId, ApiError> {
    let caller = Caller::of(request);
    if caller.key != KeyId::default() || caller.admin {
        return Ok(caller.key);
    }
    let message = format!(
        "{what} belong to an API key, and this request has none; without keys they can be made only while the service \
         listens on loopback"
    );
    Err(ApiError::new(StatusCode::FORBIDDEN, "permission_error", message)
        .with_code("key_required")
        .rejected_as("admin"))
}
