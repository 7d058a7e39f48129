//! The caller of a turn, from what the edge knows of a request.

use crate::http::app::App;
use crate::http::edge::keys::auth::{Caller, asker};
use crate::http::edge::keys::cache;
use crate::http::edge::keys::terms::terms_of;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use crate::turn::TurnCaller;
use crate::turn::options::CacheRequest;
use actix_web::HttpRequest;
use chimere_engine::ids::CacheScope;

/// The caller of a turn.
pub(in crate::http) fn turn_caller(app: &App, request: &HttpRequest) -> Result<TurnCaller, ApiError> {
    Ok(TurnCaller {
        name: RequestName::of(request),
        holder: app.holder(request),
        account: Caller::of(request).key,
        asker: asker(request),
        terms: terms_of(request)?,
    })
}

/// Among whose prompts the request's own are looked up, if they are.
pub(in crate::http) fn cache_scope(request: &HttpRequest, wanted: &CacheRequest) -> Option<CacheScope> {
    cache::of_request(Caller::of(request).cache, wanted.on, wanted.salt.as_deref())
}
