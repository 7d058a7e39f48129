//! Names, sockets and TLS. Connections are made in this file and nowhere else in the service.

use super::error::OutboundError;
use futures_util::future::BoxFuture;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// A connection of bytes.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Finds the addresses of a name.
pub(super) trait Resolver: Send + Sync {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// Connects to one address.
pub(super) trait Connector: Send + Sync {
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn ByteStream>>>;
}

/// The system's names and sockets.
pub(super) struct System;

impl Resolver for System {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) })
    }
}

impl Connector for System {
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn ByteStream>>> {
        Box::pin(async move {
            let socket = tokio::net::TcpStream::connect(address).await?;
            // A request is written at once, so nothing is gained by waiting for more of it.
            socket.set_nodelay(true)?;
            Ok(Box::new(socket) as Box<dyn ByteStream>)
        })
    }
}

/// A connection under TLS on top of another, by the certificates that the system trusts.
pub(super) async fn encrypted(socket: Box<dyn ByteStream>, host: &str) -> Result<Box<dyn ByteStream>, OutboundError> {
    let failed = |why: String| OutboundError::Tls { host: host.to_owned(), why };
    let config = config().as_ref().map_err(|why| failed(why.clone()))?;
    let name = host.trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(name).map_err(|e| failed(e.to_string()))?;
    let stream = TlsConnector::from(config.clone()).connect(name, socket).await;
    Ok(Box::new(stream.map_err(|e| failed(e.to_string()))?))
}

/// Read once: certificates that the system trusts change with its updates, which restart services.
fn config() -> &'static Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("the system trusts no certificates: install its package ca-certificates".into());
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?;
        Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
    })
}
