//! Serves HTTP on a socket that listens, encrypted or not: what is spoken on a connection is here, what is answered is
//! its caller's.

use super::connection::Connection;
use super::door::{Admitted, ConnectionLimit};
use super::exchange::LAST_BYTES;
use super::faults;
use super::followed::PIECE_BYTES;
use super::socket;
use crate::http::edge::settings::Patience;
use crate::limits::CONNECTIONS_MAX;
use actix_http::{HttpServiceBuilder, Request, Response};
use actix_rt::net::TcpStream;
use actix_server::{GracefulShutdownSignal, Server};
use actix_service::{Service, ServiceFactory, ServiceFactoryExt, fn_factory, fn_service};
use actix_tls::accept::max_concurrent_tls_connect;
use actix_tls::accept::rustls_0_23::{Acceptor, TlsStream};
use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::dev::ServiceResponse;
use std::future::ready;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// How long a worker may take to finish its connections when the server stops. Streams have been ended by then.
const STOP_SECONDS: u64 = 2;

/// A socket that listens, and within which bounds it is served.
pub(in crate::http) struct Listener<W> {
    pub(in crate::http) listener: TcpListener,
    pub(in crate::http) workers: usize,
    pub(in crate::http) connections: usize,
    pub(in crate::http) patience: Patience,
    /// Addresses that many come from.
    pub(in crate::http) proxies: Vec<IpAddr>,
    /// Says of a head whether it is no reason to refuse its body.
    pub(in crate::http) welcome: W,
}

impl<W> Listener<W>
where
    W: Fn(&Request) -> bool + Clone + Send + 'static,
{
    /// Serves it, encrypted or not. A connection is counted before its first byte, so before any handshake.
    pub(in crate::http) fn serve<F, S>(self, tls: Option<rustls::ServerConfig>, service: F) -> std::io::Result<Server>
    where
        F: Fn() -> S + Send + Clone + 'static,
        S: ServiceFactory<Request, Config = (), Response = ServiceResponse<BoxBody>, Error = HttpResponse> + 'static,
        S::InitError: std::fmt::Debug,
    {
        let Self { listener, workers, connections, patience, proxies, welcome } = self;
        socket::prepare(&listener, patience.silence);
        let door = ConnectionLimit::new(connections, patience, &proxies);
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
                    .and_then(http(&patience, &stopping, &welcome, &service, false))
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
                .and_then(http(&patience, &stopping, &welcome, &service, true))
        })?;
        Ok(server.run())
    }
}

/// How HTTP is spoken on any stream. The end of a connection that its client is to blame for is counted.
fn http<T, W, F, S>(
    patience: &Patience,
    stopping: &GracefulShutdownSignal,
    welcome: &W,
    service: &F,
    secure: bool,
) -> impl ServiceFactory<(Connection<T>, Option<SocketAddr>), Config = (), Response = (), Error = (), InitError = ()>
+ use<T, W, F, S>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
    W: Fn(&Request) -> bool + Clone + 'static,
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
        .expect(expectation(welcome.clone(), service()))
        .h1(service())
        .map_err(|error| faults::ended(&error))
}

/// Answers `Expect: 100-continue`: a client is asked for its body only where its head alone is no reason to refuse it.
/// The refusal is made by the same `service` that would make it without that header.
fn expectation<W, S>(
    welcome: W,
    service: S,
) -> impl ServiceFactory<Request, Config = (), Response = Request, Error = Response<BoxBody>, InitError = S::InitError>
where
    W: Fn(&Request) -> bool + Clone + 'static,
    S: ServiceFactory<Request, Config = (), Response = ServiceResponse<BoxBody>, Error = HttpResponse> + 'static,
{
    fn_factory(move || {
        let (welcome, service) = (welcome.clone(), service.new_service(()));
        async move {
            let service = Rc::new(service.await?);
            Ok(fn_service(move |request: Request| {
                let (welcome, service) = (welcome.clone(), service.clone());
                async move {
                    if welcome(&request) {
                        return Ok(request);
                    }
                    Err(service.call(request).await.map_or_else(Response::from, Response::from))
                }
            }))
        }
    })
}
