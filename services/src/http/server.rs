//! The servers: which rooms answer, and what wraps them.

use crate::http::app::App;
use crate::http::dialects;
use crate::http::dialects::shapes;
use crate::http::edge::admission::{check_origin, require_key};
use crate::http::edge::arrival::announced;
use crate::http::edge::connections::followed::follow;
use crate::http::edge::connections::listener::Listener;
use crate::http::edge::{Edge, Patience};
use crate::http::endpoints;
use crate::http::endpoints::{about, hints};
use crate::http::wire::reply::name_requests;
use crate::limits::PROBE_CONNECTIONS;
use actix_cors::Cors;
use actix_http::Request;
use actix_server::Server;
use actix_service::{IntoServiceFactory, ServiceFactoryExt, map_config};
use actix_web::dev::AppConfig;
use actix_web::middleware::{Condition, from_fn};
use actix_web::{Error, HttpMessage, web};
use std::net::TcpListener;

/// Where files arrive, which may be larger than other bodies.
const FILES: &str = "/v1/files";

/// A server on an open socket, not running before it is polled. HTTP/1.1 only, also over TLS: a connection has one
/// request at a time, so that bounding connections bounds requests, and its end is the end of that request. With HTTP/2
/// a client could ask any number of things at once, and one that takes a request back would not be noticed while its
/// answer is made.
pub fn server(
    app: web::Data<App>,
    listener: TcpListener,
    workers: usize,
    connections: usize,
    edge: Edge,
) -> std::io::Result<Server> {
    let Edge { patience, tls, origins, .. } = edge;
    let shared = app.clone();
    let service = move || {
        let factory = actix_web::App::new()
            .app_data(shared.clone())
            .app_data(shared.gate.clone())
            .configure(dialects::routes)
            .configure(endpoints::routes)
            .configure(about::probes)
            .default_service(web::to(hints::no_such_path))
            .wrap(from_fn(require_key))
            .wrap(from_fn(check_origin))
            .wrap(Condition::new(!origins.is_empty(), cors(&origins)))
            .wrap(from_fn(shapes::in_dialect))
            .wrap(from_fn(name_requests))
            .wrap(from_fn(follow));
        map_config(factory.into_factory().map_err(|error: Error| error.error_response()), |_| AppConfig::default())
    };
    let proxies = app.gate.proxies.clone();
    Listener { listener, workers, connections, patience, proxies, welcome: welcome(app) }.serve(tls, service)
}

/// A server for probes and scrapers alone, on a socket and a thread of its own: whatever comes in by the other one, it
/// answers.
pub fn probes(app: web::Data<App>, listener: TcpListener, patience: Patience) -> std::io::Result<Server> {
    let shared = app.clone();
    let service = move || {
        let factory = actix_web::App::new()
            .app_data(shared.clone())
            .configure(about::probes)
            .default_service(web::to(hints::no_such_path))
            .wrap(from_fn(name_requests))
            .wrap(from_fn(follow));
        map_config(factory.into_factory().map_err(|error: Error| error.error_response()), |_| AppConfig::default())
    };
    let (proxies, connections) = (app.gate.proxies.clone(), PROBE_CONNECTIONS);
    Listener { listener, workers: 1, connections, patience, proxies, welcome: welcome(app) }.serve(None, service)
}

/// Says of a head whether it is no reason to refuse its body.
fn welcome(app: web::Data<App>) -> impl Fn(&Request) -> bool + Clone + Send + 'static {
    move |request: &Request| {
        let headers = request.headers();
        app.gate.admits(request.method(), request.path(), headers)
            && (request.path() == FILES || announced(headers).is_none_or(|bytes| bytes <= app.bodies.bytes_max))
    }
}

/// Lets pages of these origins call everything that their users have keys for.
fn cors(origins: &[String]) -> Cors {
    let cors = Cors::default()
        .allowed_methods(["GET", "POST", "PUT", "DELETE"])
        .allow_any_header()
        .expose_headers(["x-request-id", "retry-after", "retry-after-ms"])
        .max_age(600);
    if origins.iter().any(|origin| origin == "*") {
        return cors.allow_any_origin();
    }
    origins.iter().fold(cors, |cors, origin| cors.allowed_origin(origin))
}
