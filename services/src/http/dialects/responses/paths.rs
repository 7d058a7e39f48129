//! The paths of responses. `GET` at the first one opens a WebSocket.

use super::{routes, socket};
use crate::http::wire::routing::{only, read, several};
use actix_web::web;

/// What is done with responses.
pub(in crate::http::dialects) fn paths(config: &mut web::ServiceConfig) {
    config
        .service(
            several("/v1/responses", "POST, GET")
                .route(web::post().to(routes::create))
                .route(web::get().to(socket::open)),
        )
        .service(only("/v1/responses/compact", "POST", web::post().to(routes::compact)))
        .service(only("/v1/responses/input_tokens", "POST", web::post().to(routes::input_tokens)))
        .service(only("/v1/responses/{id}/input_items", "GET", read().to(routes::input_items)))
        .service(
            several("/v1/responses/{id}", "GET, DELETE")
                .route(read().to(routes::show))
                .route(web::delete().to(routes::delete)),
        );
}
