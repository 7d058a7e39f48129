//! Routes, and what wraps them.

use crate::http::app::App;
use crate::http::dialects::shapes;
use crate::http::edge::admission::{check_origin, require_key};
use crate::http::edge::arrival::announced;
use crate::http::edge::connections::followed::follow;
use crate::http::edge::connections::listener::Listener;
use crate::http::edge::{Edge, Patience};
use crate::http::wire::reply::name_requests;
use crate::http::wire::routing::{only, read, several};
use crate::http::{
    about, anthropic, chat, collections, completions, console, embeddings, engram, hints, llama, ollama, openapi,
    responses, steps, text,
};
use crate::limits::PROBE_CONNECTIONS;
use actix_cors::Cors;
use actix_http::Request;
use actix_server::Server;
use actix_service::{IntoServiceFactory, ServiceFactoryExt, map_config};
use actix_web::dev::AppConfig;
use actix_web::middleware::{Condition, from_fn};
use actix_web::{Error, HttpMessage, web};
use std::net::TcpListener;

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
            .configure(routes)
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
            .configure(open_routes)
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
            && announced(headers).is_none_or(|bytes| bytes <= app.bodies.bytes_max)
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

fn routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/v1/chat/completions", "POST", web::post().to(chat::chat)))
        .service(only("/v1/chat/completions/input_tokens", "POST", web::post().to(text::input_tokens)))
        .service(only("/v1/messages", "POST", web::post().to(anthropic::messages)))
        .service(only("/v1/messages/count_tokens", "POST", web::post().to(anthropic::count_tokens)))
        .service(only("/v1/responses", "POST", web::post().to(responses::create)))
        .service(only("/v1/responses/input_tokens", "POST", web::post().to(responses::input_tokens)))
        .service(only("/v1/responses/{id}/input_items", "GET", read().to(responses::input_items)))
        .service(
            several("/v1/responses/{id}", "GET, DELETE")
                .route(read().to(responses::show))
                .route(web::delete().to(responses::delete)),
        )
        .configure(ollama_routes)
        .configure(llama_routes)
        .service(only("/v1/completions", "POST", web::post().to(completions::completions)))
        .service(only("/v1/embeddings", "POST", web::post().to(embeddings::embeddings)))
        .service(only("/v1/models", "GET", read().to(about::models)))
        .service(only("/v1/models/{id:.+}", "GET", read().to(about::model)))
        .configure(engram_routes)
        .service(only("/tokenize", "POST", web::post().to(text::tokenize)))
        .service(only("/apply-template", "POST", web::post().to(text::apply_template)))
        .service(only("/detokenize", "POST", web::post().to(text::detokenize)))
        .service(only("/version", "GET", read().to(about::version)))
        .service(only("/openapi.json", "GET", read().to(openapi::document)))
        .service(only("/", "GET", read().to(console::page)))
        .service(only("/console/{file:.+}", "GET", read().to(console::file)))
        .service(only("/v1/console/steps", "GET", web::get().to(steps::steps)))
        .configure(open_routes);
}

fn engram_routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/v1/engram/tables", "GET", read().to(engram::list)))
        .service(
            several("/v1/engram/tables/{name}", "GET, PUT, DELETE")
                .route(read().to(engram::show))
                .route(web::put().to(engram::put))
                .route(web::delete().to(engram::delete)),
        )
        .service(only("/v1/engram/tables/{name}/learn", "POST", web::post().to(engram::learn)))
        .service(only("/v1/engram/tables/{name}/rollback", "POST", web::post().to(engram::rollback)))
        .service(only("/v1/engram/collections", "GET", read().to(collections::list)))
        .service(
            several("/v1/engram/collections/{name}", "GET, PUT, DELETE")
                .route(read().to(collections::show))
                .route(web::put().to(collections::put))
                .route(web::delete().to(collections::delete)),
        )
        .service(only("/v1/engram/collections/{name}/add", "POST", web::post().to(collections::add)))
        .service(only("/v1/engram/collections/{name}/search", "POST", web::post().to(collections::search)));
}

fn ollama_routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/api/chat", "POST", web::post().to(ollama::chat)))
        .service(only("/api/generate", "POST", web::post().to(ollama::prompt)))
        .service(only("/api/embed", "POST", web::post().to(ollama::embed)))
        .service(only("/api/embeddings", "POST", web::post().to(ollama::embeddings)))
        .service(only("/api/show", "POST", web::post().to(ollama::show)))
        .service(only("/api/pull", "POST", web::post().to(ollama::pull)))
        .service(only("/api/tags", "GET", read().to(ollama::tags)))
        .service(only("/api/ps", "GET", read().to(ollama::loaded_models)))
        .service(only("/api/version", "GET", read().to(ollama::version)));
}

fn llama_routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/completion", "POST", web::post().to(llama::completion)))
        .service(only("/completions", "POST", web::post().to(llama::completion)))
        .service(only("/embedding", "POST", web::post().to(llama::embedding)))
        .service(only("/embeddings", "POST", web::post().to(llama::embedding)))
        .service(only("/infill", "POST", web::post().to(llama::infill)))
        .service(only("/props", "GET", read().to(llama::props)))
        .service(only("/slots", "GET", read().to(llama::slots)));
}

/// Those of [`OPEN_PATHS`](crate::http::edge::gate::OPEN_PATHS) that are for programs.
fn open_routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/health", "GET", read().to(about::health)))
        .service(only("/ready", "GET", read().to(about::ready)))
        .service(only("/metrics", "GET", read().to(about::metrics)));
}
