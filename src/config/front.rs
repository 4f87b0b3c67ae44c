//! Bounds of clients and their connections: how many, how slow, how often.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Serialize;

use super::file::{Problems, Section};
use super::values;
use crate::limits;

/// Bounds of clients and their connections.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct FrontArgs {
    /// Most connections at once; the next ones are answered with 503, and those beyond them closed [default: 20000]
    #[arg(long, env = "ACTONCE_MAX_CONNECTIONS", value_name = "COUNT")]
    pub max_connections: Option<String>,
    /// Longest time for the head of a request to arrive [default: 10]
    #[arg(long, env = "ACTONCE_HEADER_TIMEOUT_SECONDS", value_name = "SECONDS")]
    pub header_timeout_seconds: Option<String>,
    /// Longest silence of a connection between requests [default: 75]
    #[arg(long, env = "ACTONCE_IDLE_TIMEOUT_SECONDS", value_name = "SECONDS")]
    pub idle_timeout_seconds: Option<String>,
    /// Requests per second that a tenant may make in the long run, per process; 0 for no bound [default: 0]
    #[arg(long, env = "ACTONCE_RATE_TENANT_PER_SECOND", value_name = "COUNT")]
    pub rate_tenant_per_second: Option<String>,
    /// Requests that a tenant may make at once [default: twice its rate]
    #[arg(long, env = "ACTONCE_RATE_TENANT_BURST", value_name = "COUNT")]
    pub rate_tenant_burst: Option<String>,
    /// Requests per second that a principal may make in the long run, per process; 0 for no bound [default: 0]
    #[arg(long, env = "ACTONCE_RATE_PRINCIPAL_PER_SECOND", value_name = "COUNT")]
    pub rate_principal_per_second: Option<String>,
    /// Requests that a principal may make at once [default: twice its rate]
    #[arg(long, env = "ACTONCE_RATE_PRINCIPAL_BURST", value_name = "COUNT")]
    pub rate_principal_burst: Option<String>,
}

/// How often somebody may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// In the long run.
    pub per_second: NonZeroU32,
    /// At once.
    pub burst: NonZeroU32,
}

/// Bounds of clients and their connections, resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Front {
    /// Most connections.
    pub max_connections: usize,
    /// Longest time for the head of a request.
    pub header_timeout: Duration,
    /// Longest silence between requests.
    pub idle_timeout: Duration,
    /// The bound of each tenant; `None` for none.
    pub tenant_rate: Option<Rate>,
    /// The bound of each principal; `None` for none.
    pub principal_rate: Option<Rate>,
}

/// Reads them.
pub(super) fn read(args: &FrontArgs, file: &mut Section, problems: &mut Problems) -> Front {
    let mut number = |argument: &Option<String>, key: &str, range| {
        let variable = format!("ACTONCE_{}", key.to_ascii_uppercase());
        let given = file.pick(argument.as_ref(), &variable, key, problems);
        given.and_then(|given| given.parse(problems, |text| values::number(text, range)))
    };
    let connections = number(&args.max_connections, "max_connections", 1..=1_000_000);
    let seconds = 1..=3600;
    let header = number(&args.header_timeout_seconds, "header_timeout_seconds", seconds.clone());
    let idle = number(&args.idle_timeout_seconds, "idle_timeout_seconds", seconds);
    let rates = 0..=limits::RATE_MAX_PER_SECOND;
    let bursts = 1..=limits::RATE_MAX_PER_SECOND;
    let tenant = number(&args.rate_tenant_per_second, "rate_tenant_per_second", rates.clone());
    let tenant_burst = number(&args.rate_tenant_burst, "rate_tenant_burst", bursts.clone());
    let principal = number(&args.rate_principal_per_second, "rate_principal_per_second", rates);
    let principal_burst = number(&args.rate_principal_burst, "rate_principal_burst", bursts);
    Front {
        max_connections: connections.and_then(|count| usize::try_from(count).ok()).unwrap_or(limits::CONNECTIONS),
        header_timeout: Duration::from_secs(header.unwrap_or(limits::HEADER_SECONDS)),
        idle_timeout: Duration::from_secs(idle.unwrap_or(limits::IDLE_SECONDS)),
        tenant_rate: rate(tenant, tenant_burst),
        principal_rate: rate(principal, principal_burst),
    }
}

fn rate(per_second: Option<u64>, burst: Option<u64>) -> Option<Rate> {
    let small = |count: u64| u32::try_from(count).ok().and_then(NonZeroU32::new);
    let per_second = per_second.and_then(small)?;
    let burst = burst.and_then(small).unwrap_or(per_second.saturating_mul(NonZeroU32::MIN.saturating_add(1)));
    Some(Rate { per_second, burst })
}
