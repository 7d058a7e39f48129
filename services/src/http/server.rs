//! Routes, what wraps them, and the settings of the HTTP server.

use super::app::App;
use super::audited;
use super::auth::Caller;
use super::connection::Connection;
use super::door::{Admitted, Door};
use super::edge::{Edge, Patience};
use super::error::ApiError;
use super::exchange::LAST_BYTES;
use super::faults;
use super::followed::{PIECE_BYTES, follow};
use super::intake::announced;
use super::paced::paced;
use super::reply::name_requests;
use super::wrong_keys;
use super::{
    about, anthropic, chat, collections, completions, console, embeddings, engram, hints, llama, ollama, openapi,
    origin, responses, shapes, socket, steps, text,
};
use crate::limits::{CONNECTIONS_MAX, PROBE_CONNECTIONS};
use actix_cors::Cors;
use actix_http::{HttpServiceBuilder, Request, Response};
use actix_rt::net::TcpStream;
use actix_server::{GracefulShutdownSignal, Server};
use actix_service::{
    IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, fn_factory, fn_service, map_config,
};
use actix_tls::accept::max_concurrent_tls_connect;
use actix_tls::accept::rustls_0_23::{Acceptor, TlsStream};
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{AppConfig, ServiceRequest, ServiceResponse};
use actix_web::http::{StatusCode, header};
use actix_web::middleware::{Condition, Next, from_fn};
use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse, Resource, ResponseError, Route, guard, web};
use std::future::ready;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Paths that need no key: probes and scrapers have none.
pub(super) const OPEN_PATHS: [&str; 4] = ["/", "/health", "/ready", "/metrics"];
/// How long a worker may take to finish its connections when the server stops. Streams have been ended by then.
const STOP_SECONDS: u64 = 2;

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
            .configure(routes)
            .default_service(web::to(hints::no_such_path))
            .wrap(from_fn(require_key))
            .wrap(from_fn(origin::check))
            .wrap(Condition::new(!origins.is_empty(), cors(&origins)))
            .wrap(from_fn(shapes::in_dialect))
            .wrap(from_fn(name_requests))
            .wrap(from_fn(follow));
        map_config(factory.into_factory().map_err(|error: Error| error.error_response()), |_| AppConfig::default())
    };
    Listener { listener, workers, connections, patience, app }.serve(tls, service)
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
    Listener { listener, workers: 1, connections: PROBE_CONNECTIONS, patience, app }.serve(None, service)
}

/// A socket that listens, and within which bounds it is served.
struct Listener {
    listener: TcpListener,
    workers: usize,
    connections: usize,
    patience: Patience,
    app: web::Data<App>,
}

impl Listener {
    /// Serves it, encrypted or not. A connection is counted before its first byte, so before any handshake.
    fn serve<F, S>(self, tls: Option<rustls::ServerConfig>, service: F) -> std::io::Result<Server>
    where
        F: Fn() -> S + Send + Clone + 'static,
        S: ServiceFactory<Request, Config = (), Response = ServiceResponse<BoxBody>, Error = HttpResponse> + 'static,
        S::InitError: std::fmt::Debug,
    {
        let Self { listener, workers, connections, patience, app } = self;
        socket::prepare(&listener, patience.silence);
        let door = Door::new(connections, patience, &app.proxies);
        let server = Server::build()
            .workers(workers)
            .max_concurrent_connections(connections.div_ceil(workers))
            .shutdown_timeout(STOP_SECONDS)
            .disable_signals();
        let stopping = server.graceful_shutdown_signal();
        let Some(mut tls) = tls else {
            return Ok(server
                .listen("http", listener, move || {
                    let door = door.clone();
                    fn_service(move |socket: TcpStream| {
                        let admitted = door.admit(socket);
                        ready(admitted.map(|stream| {
                            let peer = stream.peer();
                            door.connection(stream, peer)
                        }))
                    })
                    .and_then(http(&patience, &stopping, &app, &service, false))
                })?
                .run());
        };
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        // The door bounds handshakes by address; a bound for all of them would let one address hold up the others.
        max_concurrent_tls_connect(CONNECTIONS_MAX);
        let mut acceptor = Acceptor::new(tls);
        acceptor.set_handshake_timeout(patience.head);
        let server = server.listen("https", listener, move || {
            let (door, inner) = (door.clone(), door.clone());
            fn_service(move |socket: TcpStream| ready(door.admit(socket).map(Admitted::begin_handshake)))
                .and_then(acceptor.clone().map_init_err(|_| ()).map_err(|error| faults::handshake(&error)))
                .map(move |stream: TlsStream<Admitted>| {
                    let peer = stream.get_ref().0.end_handshake();
                    inner.connection(stream, peer)
                })
                .and_then(http(&patience, &stopping, &app, &service, true))
        })?;
        Ok(server.run())
    }
}

/// How HTTP is spoken on any stream. The end of a connection that its client is to blame for is counted.
fn http<T, F, S>(
    patience: &Patience,
    stopping: &GracefulShutdownSignal,
    app: &web::Data<App>,
    service: &F,
    secure: bool,
) -> impl ServiceFactory<(Connection<T>, Option<SocketAddr>), Config = (), Response = (), Error = (), InitError = ()>
+ use<T, F, S>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
    F: Fn() -> S,
    S: ServiceFactory<Request, Config = (), Response = ServiceResponse<BoxBody>, Error = HttpResponse> + 'static,
    S::InitError: std::fmt::Debug,
{
    let stopping = stopping.clone();
    let builder = HttpServiceBuilder::default();
    let builder = if secure { builder.secure() } else { builder };
    builder
        .keep_alive(patience.idle)
        // A connection's exchange bounds each phase, also of requests after the first.
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(LAST_BYTES)
        .h1_write_buffer_size(PIECE_BYTES)
        // By default a client that left is noticed only when something is written to it; a request that waits must end
        // at its EOF.
        .h1_allow_half_closed(false)
        .graceful_shutdown_signal(move || {
            let stopping = stopping.clone();
            async move { stopping.notified().await }
        })
        .on_connect_ext(|stream: &Connection<T>, connection| drop(connection.insert(stream.exchange().clone())))
        .expect(expectation(app.clone(), service()))
        .h1(service())
        .map_err(|error| faults::ended(&error))
}

/// Answers `Expect: 100-continue`: a client is asked for its body only where its head alone is no reason to refuse it.
/// The refusal is made by the same `service` that would make it without that header.
fn expectation<S>(
    app: web::Data<App>,
    service: S,
) -> impl ServiceFactory<Request, Config = (), Response = Request, Error = Response<BoxBody>, InitError = S::InitError>
where
    S: ServiceFactory<Request, Config = (), Response = ServiceResponse<BoxBody>, Error = HttpResponse> + 'static,
{
    fn_factory(move || {
        let (app, service) = (app.clone(), service.new_service(()));
        async move {
            let service = Rc::new(service.await?);
            Ok(fn_service(move |request: Request| {
                let (app, service) = (app.clone(), service.clone());
                async move {
                    if is_welcome(&app, &request) {
                        return Ok(request);
                    }
                    Err(service.call(request).await.map_or_else(Response::from, Response::from))
                }
            }))
        }
    })
}

/// Nothing in a head is a reason to refuse its body.
fn is_welcome(app: &App, request: &Request) -> bool {
    let headers = request.headers();
    let known = !needs_key(request.path()) || app.keys.keys().check(headers).is_ok();
    known
        && app.origins.check(request.method(), headers).is_ok()
        && announced(headers).is_none_or(|bytes| bytes <= app.body_bytes_max)
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

/// Closed unless a path is known to be open, so that a new route cannot be forgotten.
fn needs_key(path: &str) -> bool {
    !OPEN_PATHS.contains(&path) && !console::owns(path)
}

async fn require_key(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    if hints::is_preflight(request.request()) {
        return Ok(request.into_response(hints::no_origins().error_response()));
    }
    if needs_key(request.path()) {
        let app = request.app_data::<web::Data<App>>().expect("the server is built with it");
        let checked = app.keys.keys().check(request.headers());
        match wrong_keys::in_turn(app, request.request(), checked).await {
            Ok(caller) => {
                let caller = if app.trust_gateway { caller.on_behalf(request.request()) } else { caller };
                let arrived = app.handles.clock.now();
                request.extensions_mut().insert(Caller { arrived, ..caller });
            }
            Err(error) => return Ok(request.into_response(error.error_response())),
        }
    }
    let reply = next.call(request).await?.map_into_boxed_body();
    let app = reply.request().app_data::<web::Data<App>>().expect("the server is built with it").clone();
    audited::note(&app, &reply);
    Ok(paced(reply, &app))
}
