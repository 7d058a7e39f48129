//! Paths with their methods: who comes with another one is told which there are.

use super::error::ApiError;
use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, Resource, ResponseError, Route, guard, web};

/// GET, and HEAD, which some probes send.
pub(in crate::http) fn read() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// A path with one method.
pub(in crate::http) fn only(path: &str, method: &'static str, route: Route) -> Resource {
    several(path, method).route(route)
}

/// A path with these methods; others are told which.
pub(in crate::http) fn several(path: &str, method: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move |request: HttpRequest| async move {
        // As it is registered: what a client puts in its place may be long.
        let path = request.match_pattern().unwrap_or_default();
        let message = format!("{path} takes {method}, not {}", request.method());
        let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
            .with_code("method_not_allowed");
        let error = error.rejected_as("method_not_allowed");
        let mut reply = error.error_response();
        reply.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(method));
        reply
    }))
}
