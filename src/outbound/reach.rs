//! Whether a place could be called: its URL and addresses are let through, it takes a connection, and over https
//! its certificate holds. Nothing is sent beyond that.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::{check_url, is_allowed, literal};
use super::client::Lookup;
use crate::config::AdapterPolicy;

/// Why a place could not be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreached {
    /// It would be refused before any connection.
    #[error("the URL {0}")]
    Refused(&'static str),
    /// Its name has an address that may not be called.
    #[error("the name resolves to an address that may not be called")]
    Forbidden,
    /// Its name has no address.
    #[error("the name can't be resolved")]
    NoName,
    /// It takes no connection.
    #[error("no connection: {0}")]
    NoConnection(std::io::ErrorKind),
    /// The handshake failed, or the certificate does not hold.
    #[error("no TLS: {0}")]
    NoTls(String),
    /// It took too long.
    #[error("no answer in time")]
    TimedOut,
}

/// Connects and hangs up.
///
/// # Errors
/// Why it could not be called.
pub async fn reach(policy: &AdapterPolicy, url: &str, lookup: &dyn Lookup, bound: Duration) -> Result<(), Unreached> {
    let reaching = Box::pin(connect(policy, url, lookup));
    tokio::time::timeout(bound, reaching).await.unwrap_or(Err(Unreached::TimedOut))
}

async fn connect(policy: &AdapterPolicy, url: &str, lookup: &dyn Lookup) -> Result<(), Unreached> {
    let url = check_url(policy, url).map_err(Unreached::Refused)?;
    let host = url.host_str().unwrap_or_default();
    let addresses = match literal(host) {
        Some(address) => vec![address],
        None => lookup.lookup(host).await.map_err(|_| Unreached::NoName)?,
    };
    if addresses.is_empty() {
        return Err(Unreached::NoName);
    }
    if addresses.iter().any(|address| !is_allowed(policy, *address)) {
        return Err(Unreached::Forbidden);
    }
    let stream = any_of(&addresses, url.port_or_known_default().unwrap_or(443)).await?;
    if url.scheme() == "https" { handshake(host, stream).await } else { Ok(()) }
}

async fn any_of(addresses: &[IpAddr], port: u16) -> Result<TcpStream, Unreached> {
    let mut fault = Unreached::NoName;
    for address in addresses {
        match TcpStream::connect(SocketAddr::new(*address, port)).await {
            Ok(stream) => return Ok(stream),
            Err(error) => fault = Unreached::NoConnection(error.kind()),
        }
    }
    Err(fault)
}

async fn handshake(host: &str, stream: TcpStream) -> Result<(), Unreached> {
    let no_tls = |error: &dyn std::fmt::Display| Unreached::NoTls(error.to_string());
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| no_tls(&error))?
        .with_no_client_auth();
    let bare = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let name = ServerName::try_from(bare.to_owned()).map_err(|error| no_tls(&error))?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(drop).map_err(|error| no_tls(&error))
}
