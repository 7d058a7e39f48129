//! Lets requests in or answers them at the gate: a page of elsewhere, a key that is not known.

use super::audited;
use super::gate::{Gatekeeper, OPEN_PATHS, needs_key};
use super::gateway;
use super::keys::auth::{AcceptedKeys, Caller};
use super::keys::wrong_keys::{KeyTurn, WrongKey};
use super::origin::{is_preflight, no_origins};
use super::paced::paced;
use crate::audit::AuditRecord;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpRequest, ResponseError, web};
use chimere_engine::ids::KeyId;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Answers what came from elsewhere, and says of every reply that it depends on where the page was from.
pub(in crate::http) async fn check_origin(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let gate = request.app_data::<web::Data<Gatekeeper>>().expect("the server is built with it");
    let checked = gate.origins.check(request.method(), request.headers());
    // Probes and scrapers name whatever they were given, and what they read is no secret. A browser's question is
    // answered further in.
    let open = OPEN_PATHS.contains(&request.path());
    let mut reply = match checked {
        Err(error) if !open && !is_preflight(request.request()) => request.into_response(error.error_response()),
        _ => next.call(request).await?.map_into_boxed_body(),
    };
    reply.headers_mut().append(header::VARY, HeaderValue::from_static("origin"));
    Ok(reply)
}

/// Lets requests with a known key in, also where none is needed; notes what others feel, and paces large replies.
pub(in crate::http) async fn require_key(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    if is_preflight(request.request()) {
        return Ok(request.into_response(no_origins().error_response()));
    }
    if needs_key(request.path()) {
        let gate = request.app_data::<web::Data<Gatekeeper>>().expect("the server is built with it");
        let checked = gate.keys.keys().check(request.headers());
        match in_turn(gate, request.request(), checked).await {
            Ok(caller) => {
                gateway::count_without_effect(request.headers());
                let caller = gate.arrived(caller, request.request());
                request.extensions_mut().insert(caller);
            }
            Err(error) => return Ok(request.into_response(error.error_response())),
        }
    }
    let reply = next.call(request).await?.map_into_boxed_body();
    let gate = reply.request().app_data::<web::Data<Gatekeeper>>().expect("the server is built with it").clone();
    audited::note(&gate.audit, &reply);
    let holder = gate.holder(reply.request());
    Ok(paced(reply, &gate.replies, holder, gate.unread))
}

/// Lets a request in whose key was checked, or says why not, when its address has its turn.
async fn in_turn(
    gate: &Gatekeeper,
    request: &HttpRequest,
    checked: Result<Caller, ApiError>,
) -> Result<Caller, ApiError> {
    let (address, now) = (request.peer_addr().map(|peer| peer.ip()), Instant::now());
    let of_many = address.is_some_and(|from| gate.proxies.contains(&from.to_canonical()));
    let turn = match (&checked, address) {
        // Where no key is asked for none is tried.
        (Ok(caller), _) if of_many || caller.key == KeyId::default() => KeyTurn::Now,
        (Ok(caller), Some(from)) => gate.wrong_keys.known(from, caller.key, now),
        (Ok(_), None) => KeyTurn::Now,
        (Err(_), _) => note(gate, request, address.map(|from| (from, of_many)), now),
    };
    match turn {
        KeyTurn::Now => {}
        KeyTurn::After(wait) => actix_rt::time::sleep(wait).await,
        KeyTurn::Never(wait) => return Err(not_now(wait)),
    }
    if let (Ok(caller), Some(from)) = (&checked, address)
        && caller.key != KeyId::default()
    {
        gate.wrong_keys.let_in(from, caller.key);
    }
    checked
}

/// Notes a request without a known key. One without any key tries nothing.
fn note(gate: &Gatekeeper, request: &HttpRequest, from: Option<(IpAddr, bool)>, now: Instant) -> KeyTurn {
    let tried = AcceptedKeys::hash_of(request.headers()).is_some();
    let one = from.map(|(from, of_many)| gate.wrong_keys.another(from, tried, of_many, now));
    if one.is_none_or(WrongKey::is_told) {
        let (name, times) = (RequestName::of(request), one.map(|one| one.count));
        tracing::warn!(request = &*name, times, "no known API key");
        let (action, address) = (if tried { "key.unknown" } else { "key.missing" }, from.map(|(from, _)| from));
        let (request, outcome) = (Some(&*name), "401");
        gate.audit.record(&AuditRecord { address, times, request, ..AuditRecord::own(action, None, outcome) });
    }
    one.map_or(KeyTurn::Now, |one| one.turn)
}

/// Refuses a key unseen. A right key is refused in the words of a wrong one, or the answer would tell them apart.
fn not_now(wait: Duration) -> ApiError {
    let message = "too many keys that are not known here came from this address: no other is looked at for now";
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message)
        .with_code("too_many_wrong_keys")
        .with_retry_after(wait)
        .rejected_as("key")
}
