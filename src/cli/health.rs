//! `actonce health`: for container health checks, which have no `curl`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::{fail, print};
use crate::app::reachable;

/// `actonce health`.
#[derive(Debug, Args)]
pub(super) struct HealthArgs {
    /// The service's URL; made from the listen address where absent.
    #[arg(long)]
    url: Option<String>,
    /// The listen address of the service.
    #[arg(long, env = "ACTONCE_LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The certificate of the service: where there is one, it is asked over TLS.
    #[arg(long, env = "ACTONCE_TLS_CERTIFICATE_FILE", value_name = "FILE")]
    tls_certificate_file: Option<String>,
}

pub(super) async fn run(args: &HealthArgs) -> ExitCode {
    let has_tls = args.tls_certificate_file.as_ref().is_some_and(|path| !path.is_empty());
    let scheme = if has_tls { "https" } else { "http" };
    let base = args.url.clone().unwrap_or_else(|| format!("{scheme}://{}", reachable(args.listen)));
    let builder = reqwest::Client::builder().timeout(Duration::from_secs(5)).no_proxy();
    // The service on this machine is asked by its address, for which no certificate is made. Nothing is told to it.
    let builder = builder.tls_danger_accept_invalid_certs(has_tls && args.url.is_none());
    let client = match builder.build() {
        Ok(client) => client,
        Err(error) => return fail(&format!("no client: {error}")),
    };
    match client.get(format!("{}/readyz", base.trim_end_matches('/'))).send().await {
        Ok(response) if response.status().is_success() => print("ready"),
        Ok(response) => fail(&format!("not ready: {}", response.status())),
        Err(_) => fail("not ready: no answer"),
    }
}
