//! Routes, what wraps them, and the settings of the HTTP server.

use super::app::App;
use super::audited;
use super::auth::Caller;
use super::door::Door;
use super::edge::{Edge, Patience};
use super::error::ApiError;
use super::heads::Heads;
use super::paced::paced;
use super::reply::name_requests;
use super::wrong_keys;
use super::{
    about, anthropic, chat, collections, completions, console, embeddings, engram, hints, llama, ollama, openapi,
    origin, responses, shapes, socket, steps, text,
};
use crate::limits::PROBE_CONNECTIONS;
use actix_cors::Cors;
use actix_http::{HttpServiceBuilder, Request};
use actix_rt::net::TcpStream;
use actix_server::{GracefulShutdownSignal, Server};
use actix_service::{IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_tls::accept::TlsError;
use actix_tls::accept::rustls_0_23::{Acceptor, TlsStream};
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{AppConfig, ServiceRequest, ServiceResponse};
use actix_web::http::{StatusCode, header};
use actix_web::middleware::{Condition, Next, from_fn};
use actix_web::{Error, HttpMessage, HttpRequest, Resource, ResponseError, Route, guard, web};
use std::future::ready;
use std::net::TcpListener;
use std::time::Duration;

/// Paths that need no key: probes and scrapers have none.
pub(super) const OPEN_PATHS: [&str; 4] = ["/", "/health", "/ready", "/metrics"];
/// How long a worker may take to finish its connections when the server stops. Streams have been ended by then.
const STOP_SECONDS: u64 = 2;
/// How long the last bytes of a connection may take when the server closes it.
const LAST_BYTES: Duration = Duration::from_secs(1);

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
    let Edge { patience, tls, origins, proxies, .. } = edge;
    let door = Door::new(connections, &proxies);
    socket::prepare(&listener, patience.silence);
    let factory = move || {
        let factory = actix_web::App::new()
            .app_data(app.clone())
            .configure(routes)
            .default_service(web::to(hints::no_such_path))
            .wrap(from_fn(require_key))
            .wrap(from_fn(origin::check))
            .wrap(Condition::new(!origins.is_empty(), cors(&origins)))
            .wrap(from_fn(shapes::in_dialect))
            .wrap(from_fn(name_requests));
        map_config(factory.into_factory().map_err(|error: Error| error.error_response()), |_| AppConfig::default())
    };
    let server = Server::build()
        .workers(workers)
        .max_concurrent_connections(connections.div_ceil(workers))
        .shutdown_timeout(STOP_SECONDS)
        .disable_signals();
    let stopping = server.graceful_shutdown_signal();
    let server = match tls {
        Some(mut tls) => {
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            server.listen("https", listener, move || {
                let (door, outer) = (door.clone(), door.clone());
                let protocol = protocol(&patience, &stopping).secure().on_connect_ext(
                    move |io: &Heads<TlsStream<TcpStream>>, ext| door.enter(io.stream().get_ref().0, ext),
                );
                Acceptor::new(tls.clone())
                    .map_init_err(|_| unreachable!("making an acceptor cannot fail"))
                    .map_err(TlsError::into_service_error)
                    .map(move |io: TlsStream<TcpStream>| {
                        let peer = io.get_ref().0.peer_addr().ok();
                        (outer.bounded(io, peer), peer)
                    })
                    .and_then(protocol.h1(factory()).map_err(TlsError::Service))
            })?
        }
        None => server.listen("http", listener, move || {
            let (door, outer) = (door.clone(), door.clone());
            let protocol = protocol(&patience, &stopping)
                .on_connect_ext(move |io: &Heads<TcpStream>, ext| door.enter(io.stream(), ext));
            fn_service(move |io: TcpStream| {
                let peer = io.peer_addr().ok();
                ready(Ok((outer.bounded(io, peer), peer)))
            })
            .and_then(protocol.h1(factory()))
        })?,
    };
    Ok(server.run())
}

/// A server for probes and scrapers alone, on a socket and a thread of its own: whatever comes in by the other one, it
/// answers.
pub fn probes(app: web::Data<App>, listener: TcpListener, patience: Patience) -> std::io::Result<Server> {
    let factory = move || {
        let factory = actix_web::App::new()
            .app_data(app.clone())
            .configure(open_routes)
            .default_service(web::to(hints::no_such_path))
            .wrap(from_fn(name_requests));
        map_config(factory.into_factory().map_err(|error: Error| error.error_response()), |_| AppConfig::default())
    };
    let server = Server::build()
        .workers(1)
        .max_concurrent_connections(PROBE_CONNECTIONS)
        .shutdown_timeout(STOP_SECONDS)
        .disable_signals();
    let stopping = server.graceful_shutdown_signal();
    Ok(server.listen("probes", listener, move || protocol(&patience, &stopping).h1(factory()).tcp())?.run())
}

/// How connections are kept, on any transport.
fn protocol<T, S>(patience: &Patience, stopping: &GracefulShutdownSignal) -> HttpServiceBuilder<T, S>
where
    S: ServiceFactory<Request, Config = ()>,
    S::Error: Into<actix_http::Response<BoxBody>> + 'static,
    S::InitError: std::fmt::Debug,
    <S::Service as Service<Request>>::Future: 'static,
{
    let stopping = stopping.clone();
    HttpServiceBuilder::default()
        .keep_alive(patience.idle)
        .client_request_timeout(patience.head)
        .client_disconnect_timeout(LAST_BYTES)
        // By default a client that left is noticed only when something is written to it; a request that waits must end
        // at its EOF.
        .h1_allow_half_closed(false)
        .graceful_shutdown_signal(move || {
            let stopping = stopping.clone();
            async move { stopping.notified().await }
        })
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

/// Those of [`OPEN_PATHS`] that are for programs.
fn open_routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/health", "GET", read().to(about::health)))
        .service(only("/ready", "GET", read().to(about::ready)))
        .service(only("/metrics", "GET", read().to(about::metrics)));
}

/// GET, and HEAD, which some probes send.
fn read() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// A path with one method.
fn only(path: &str, method: &'static str, route: Route) -> Resource {
    several(path, method).route(route)
}

/// A path with these methods; others are told which.
fn several(path: &str, method: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move |request: HttpRequest| async move {
        let message = format!("{} takes {method}, not {}", request.path(), request.method());
        let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
            .with_code("method_not_allowed");
        let error = error.rejected_as("method_not_allowed");
        let mut reply = error.error_response();
        reply.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(method));
        reply
    }))
}

/// Closed unless a path is known to be open, so that a new route cannot be forgotten.
async fn require_key(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    if hints::is_preflight(request.request()) {
        return Ok(request.into_response(hints::no_origins().error_response()));
    }
    if !OPEN_PATHS.contains(&request.path()) && !console::owns(request.path()) {
        let app = request.app_data::<web::Data<App>>().expect("the server is built with it");
        match app.keys.keys().check(request.request()) {
            Ok(caller) => {
                let caller = if app.trust_gateway { caller.on_behalf(request.request()) } else { caller };
                let arrived = app.handles.clock.now();
                request.extensions_mut().insert(Caller { arrived, ..caller });
            }
            Err(error) => {
                wrong_keys::hold_up(app, request.request()).await;
                return Ok(request.into_response(error.error_response()));
            }
        }
    }
    let reply = next.call(request).await?.map_into_boxed_body();
    let app = reply.request().app_data::<web::Data<App>>().expect("the server is built with it").clone();
    audited::note(&app, &reply);
    Ok(paced(reply, &app))
}
