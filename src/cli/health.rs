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
}

pub(super) async fn run(args: &HealthArgs) -> ExitCode {
    let base = args.url.clone().unwrap_or_else(|| format!("http://{}", reachable(args.listen)));
    let client = match reqwest::Client::builder().timeout(Duration::from_secs(5)).no_proxy().build() {
        Ok(client) => client,
        Err(error) => return fail(&format!("no client: {error}")),
    };
    match client.get(format!("{}/readyz", base.trim_end_matches('/'))).send().await {
        Ok(response) if response.status().is_success() => print("ready"),
        Ok(response) => fail(&format!("not ready: {}", response.status())),
        Err(_) => fail("not ready: no answer"),
    }
}
