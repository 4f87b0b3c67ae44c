//! Every setting with its value and where that came from. Secrets never show.

use std::collections::BTreeSet;
use std::fmt;

use clap::ArgMatches;
use clap::parser::ValueSource;
use serde::Serialize;

use super::args::{Environment, ServeArgs};
use super::describe::without_query;
use super::file::Problems;
use super::front::Rate;
use super::secrets::DevKeys;
use super::{AdHocTools, Config, ConfigError, HIDDEN, values};
use crate::auth::{KeySetSettings, KeySetSource};
use crate::domain::quota::OpenQuota;

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The command line.
    Flag,
    /// The environment.
    Env,
    /// The configuration file.
    File,
    /// Nowhere.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "flag",
            Self::Env => "env",
            Self::File => "file",
            Self::Default => "default",
        })
    }
}

/// What stood on the command line itself: its parser joins flags and variables.
#[derive(Debug, Clone, Default)]
pub struct Flags(BTreeSet<String>);

impl Flags {
    /// Those of a command, however deep it is.
    #[must_use]
    pub fn of(matches: &ArgMatches) -> Self {
        let mut matches = matches;
        while let Some((_, deeper)) = matches.subcommand() {
            matches = deeper;
        }
        let typed = matches.ids().map(clap::Id::as_str);
        // Groups have ids too, and no source of their own.
        let typed = typed.filter(|id| {
            let is_argument = matches.try_get_raw(id).is_ok();
            is_argument && matches.value_source(id) == Some(ValueSource::CommandLine)
        });
        Self(typed.map(str::to_ascii_uppercase).collect())
    }

    fn has(&self, variable: &str) -> bool {
        self.0.contains(variable.strip_prefix("ACTONCE_").unwrap_or(variable))
    }
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its place in the configuration file; `None` where it has none.
    pub key: Option<&'static str>,
    /// Its variable; `None` where it has none.
    pub variable: Option<&'static str>,
    /// Its value as it may be shown; `None` for none.
    pub value: Option<String>,
    /// Where that came from.
    pub origin: Origin,
}

/// The configuration as it was looked at; nothing was written.
#[derive(Debug)]
pub struct Inspected {
    /// What the service would be started with. Keys that `--dev` would make now are stood for by zeros: it is for
    /// looking at and not for running.
    pub config: Config,
    /// Every setting.
    pub settings: Vec<Setting>,
}

/// How a setting is shown.
enum Show {
    /// As it counts in the end.
    Effective(fn(&Config) -> Option<String>),
    /// As it was given.
    Text,
    /// As it was given, without what may be secret in a URL.
    Url,
    /// Not at all.
    Secret,
}

use Show::{Effective, Secret as Hidden, Text, Url};

/// Place in the file, variable, and how it is shown.
type Row = (Option<&'static str>, Option<&'static str>, Show);

/// Every setting of `actonce serve`.
const ROWS: &[Row] = &[
    (None, Some("ACTONCE_CONFIG"), Text),
    (Some("dev"), Some("ACTONCE_DEV"), Effective(|config| Some(config.dev.to_string()))),
    (Some("listen"), Some("ACTONCE_LISTEN"), Effective(|config| Some(config.listen.to_string()))),
    (Some("data_dir"), Some("ACTONCE_DATA_DIR"), Effective(|config| Some(config.data_dir.display().to_string()))),
    (Some("base_path"), Some("ACTONCE_BASE_PATH"), Effective(|config| some(&config.base_path))),
    (Some("database_url"), Some("DATABASE_URL"), Effective(database)),
    (Some("database_pooling"), Some("DATABASE_POOLING"), Effective(|config| some(config.database_pooling.as_str()))),
    (Some("database_direct_url"), Some("DATABASE_DIRECT_URL"), Hidden),
    (Some("log_format"), Some("ACTONCE_LOG_FORMAT"), Effective(log_format)),
    (Some("log"), Some("ACTONCE_LOG"), Effective(|config| some(&config.log))),
    (Some("data_key"), Some("ACTONCE_DATA_KEY"), Hidden),
    (Some("data_key_file"), Some("ACTONCE_DATA_KEY_FILE"), Text),
    (Some("evidence_key"), Some("ACTONCE_EVIDENCE_KEY"), Hidden),
    (Some("evidence_key_file"), Some("ACTONCE_EVIDENCE_KEY_FILE"), Text),
    (
        Some("checkpoint_seconds"),
        Some("ACTONCE_CHECKPOINT_SECONDS"),
        Effective(|config| seconds(config.checkpoint_every)),
    ),
    (Some("alias_keys"), Some("ACTONCE_ALIAS_KEYS"), Effective(alias_keys)),
    (Some("ad_hoc_tools"), Some("ACTONCE_AD_HOC_TOOLS"), Effective(ad_hoc_tools)),
    (Some("adapter_allow_http"), Some("ACTONCE_ADAPTER_ALLOW_HTTP"), Effective(allow_http)),
    (Some("adapter_allow_networks"), Some("ACTONCE_ADAPTER_ALLOW_NETWORKS"), Effective(allow_networks)),
    (Some("secrets_dir"), Some("ACTONCE_SECRETS_DIR"), Text),
    (Some("secrets"), None, Effective(|config| some(&config.named_secrets.names().join(",")))),
    (
        Some("request_timeout_seconds"),
        Some("ACTONCE_REQUEST_TIMEOUT_SECONDS"),
        Effective(|config| seconds(config.request_timeout)),
    ),
    (Some("drain_seconds"), Some("ACTONCE_DRAIN_SECONDS"), Effective(|config| seconds(config.drain))),
    (Some("max_in_flight"), Some("ACTONCE_MAX_IN_FLIGHT"), Effective(|config| Some(config.max_in_flight.to_string()))),
    (
        Some("postgres_connections"),
        Some("ACTONCE_POSTGRES_CONNECTIONS"),
        Effective(|config| Some(config.postgres_connections.to_string())),
    ),
    (Some("tls_certificate_file"), Some("ACTONCE_TLS_CERTIFICATE_FILE"), Text),
    (Some("tls_key_file"), Some("ACTONCE_TLS_KEY_FILE"), Text),
    (
        Some("max_connections"),
        Some("ACTONCE_MAX_CONNECTIONS"),
        Effective(|config| Some(config.front.max_connections.to_string())),
    ),
    (
        Some("header_timeout_seconds"),
        Some("ACTONCE_HEADER_TIMEOUT_SECONDS"),
        Effective(|config| seconds(config.front.header_timeout)),
    ),
    (
        Some("idle_timeout_seconds"),
        Some("ACTONCE_IDLE_TIMEOUT_SECONDS"),
        Effective(|config| seconds(config.front.idle_timeout)),
    ),
    (
        Some("rate_tenant_per_second"),
        Some("ACTONCE_RATE_TENANT_PER_SECOND"),
        Effective(|config| rate(config.front.tenant_rate)),
    ),
    (Some("rate_tenant_burst"), Some("ACTONCE_RATE_TENANT_BURST"), Effective(|config| burst(config.front.tenant_rate))),
    (
        Some("rate_principal_per_second"),
        Some("ACTONCE_RATE_PRINCIPAL_PER_SECOND"),
        Effective(|config| rate(config.front.principal_rate)),
    ),
    (
        Some("rate_principal_burst"),
        Some("ACTONCE_RATE_PRINCIPAL_BURST"),
        Effective(|config| burst(config.front.principal_rate)),
    ),
    (
        Some("quota_tenant_open_effects"),
        Some("ACTONCE_QUOTA_TENANT_OPEN_EFFECTS"),
        Effective(|config| quota(config.open_quota.default)),
    ),
    (
        Some("quota_principal_open_effects"),
        Some("ACTONCE_QUOTA_PRINCIPAL_OPEN_EFFECTS"),
        Effective(|config| quota(config.principal_quota.default)),
    ),
    (Some("quotas.tenants"), None, Effective(|config| quotas(&config.open_quota))),
    (Some("quotas.principals"), None, Effective(|config| quotas(&config.principal_quota))),
    (Some("timing"), Some("ACTONCE_TIMING"), Effective(timing)),
    (Some("otlp_endpoint"), Some("ACTONCE_OTLP_ENDPOINT"), Effective(|config| config.telemetry.otlp_endpoint.clone())),
    (
        Some("otlp_sample_percent"),
        Some("ACTONCE_OTLP_SAMPLE_PERCENT"),
        Effective(|config| Some(config.telemetry.otlp_sample_percent.to_string())),
    ),
    (Some("auth.keys"), None, Effective(keys)),
    (None, Some("ACTONCE_JWT_HS256_SECRET"), Hidden),
    (None, Some("ACTONCE_JWT_SECRET_FILE"), Text),
    (None, Some("ACTONCE_JWT_PUBLIC_KEY_FILE"), Text),
    (None, Some("ACTONCE_JWT_PRIVATE_KEY_FILE"), Text),
    (None, Some("ACTONCE_JWT_ALGORITHM"), Text),
    (None, Some("ACTONCE_JWT_KID"), Text),
    (Some("auth.jwks.url"), Some("ACTONCE_JWKS_URL"), Url),
    (Some("auth.jwks.file"), Some("ACTONCE_JWKS_FILE"), Text),
    (Some("auth.jwks.rsa_algorithm"), Some("ACTONCE_JWKS_RSA_ALGORITHM"), Text),
    (
        Some("auth.jwks.refresh_seconds"),
        Some("ACTONCE_JWKS_REFRESH_SECONDS"),
        Effective(|config| seconds(set(config).refresh_every)),
    ),
    (
        Some("auth.jwks.min_refresh_seconds"),
        Some("ACTONCE_JWKS_MIN_REFRESH_SECONDS"),
        Effective(|config| seconds(set(config).refresh_at_most_every)),
    ),
    (Some("auth.jwks.allow_http"), Some("ACTONCE_JWKS_ALLOW_HTTP"), Text),
    (Some("auth.issuer"), Some("ACTONCE_JWT_ISSUER"), Effective(|config| some(&config.auth.claims.issuer))),
    (Some("auth.audience"), Some("ACTONCE_JWT_AUDIENCE"), Effective(|config| some(&config.auth.claims.audience))),
    (
        Some("auth.tenant_claim"),
        Some("ACTONCE_JWT_TENANT_CLAIM"),
        Effective(|config| some(&config.auth.claims.tenant_claim)),
    ),
    (
        Some("auth.scopes_claim"),
        Some("ACTONCE_JWT_SCOPES_CLAIM"),
        Effective(|config| config.auth.claims.scopes_claim.clone()),
    ),
    (
        Some("auth.leeway_seconds"),
        Some("ACTONCE_JWT_LEEWAY_SECONDS"),
        Effective(|config| Some(config.auth.claims.leeway_seconds.to_string())),
    ),
];

/// Resolves the configuration and writes nothing: keys that `--dev` would make are not made.
///
/// # Errors
/// Every problem that was found.
pub fn inspect(args: &ServeArgs, environment: &Environment, flags: &Flags) -> Result<Inspected, ConfigError> {
    let mut problems = Problems::new();
    match super::load(args, environment, DevKeys::Look, &mut problems) {
        Some(config) if problems.is_empty() => {
            let settings = ROWS.iter().map(|row| setting(row, &config, &problems, flags)).collect();
            Ok(Inspected { config, settings })
        }
        _ => Err(ConfigError { problems: problems.into_sentences() }),
    }
}

/// Names of variables that look like ours and are no setting. They are no problem: platforms make some by
/// themselves, such as `ACTONCE_SERVICE_HOST` and `ACTONCE_PORT` for a service of this name.
pub fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    /// What the other commands read.
    const OTHERS: [&str; 3] = ["ACTONCE_URL", "ACTONCE_TOKEN", "ACTONCE_TOKEN_FILE"];
    let is_known = |name: &String| {
        OTHERS.contains(&name.as_str()) || ROWS.iter().any(|(_, variable, _)| *variable == Some(name.as_str()))
    };
    let mut unknown: Vec<String> = names.filter(|name| name.starts_with("ACTONCE_") && !is_known(name)).collect();
    unknown.sort();
    unknown
}

fn setting((key, variable, show): &Row, config: &Config, problems: &Problems, flags: &Flags) -> Setting {
    let given = variable.or(*key).and_then(|name| problems.given(name));
    let origin = match (given, variable) {
        (None, _) => Origin::Default,
        (Some(given), _) if given.in_file => Origin::File,
        (Some(_), Some(variable)) if flags.has(variable) => Origin::Flag,
        (Some(_), _) => Origin::Env,
    };
    let text = given.map(|given| given.text.expose().clone());
    let value = match show {
        Effective(read) => read(config),
        Text => text,
        Url => text.map(|url| without_query(&url)),
        Hidden => text.map(|_| HIDDEN.to_owned()),
    };
    Setting { key: *key, variable: *variable, value, origin }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[expect(clippy::unnecessary_wraps, reason = "one form for all settings")]
fn seconds(time: std::time::Duration) -> Option<String> {
    Some(time.as_secs().to_string())
}

#[expect(clippy::unnecessary_wraps, reason = "one form for all settings")]
fn rate(rate: Option<Rate>) -> Option<String> {
    Some(rate.map_or(0, |rate| rate.per_second.get()).to_string())
}

fn burst(rate: Option<Rate>) -> Option<String> {
    rate.map(|rate| rate.burst.to_string())
}

#[expect(clippy::unnecessary_wraps, reason = "one form for all settings")]
fn quota(most: Option<std::num::NonZeroU32>) -> Option<String> {
    Some(most.map_or(0, std::num::NonZeroU32::get).to_string())
}

fn quotas(quota_of: &OpenQuota) -> Option<String> {
    let named = quota_of.tenants.iter();
    let shown = named.map(|(tenant, most)| format!("{}={}", tenant.as_str(), quota(*most).unwrap_or_default()));
    some(&shown.collect::<Vec<_>>().join(","))
}

fn database(config: &Config) -> Option<String> {
    config.database_url.as_ref().map(|url| values::without_credentials(url.expose()))
}

#[expect(clippy::unnecessary_wraps, reason = "one form for all settings")]
fn log_format(config: &Config) -> Option<String> {
    let name = match config.log_format {
        super::LogFormat::Json => "json",
        super::LogFormat::Pretty => "pretty",
    };
    Some(name.to_owned())
}

#[expect(clippy::unnecessary_wraps, reason = "one form for all settings")]
fn timing(config: &Config) -> Option<String> {
    Some(if config.telemetry.timing { "on" } else { "off" }.to_owned())
}

fn alias_keys(config: &Config) -> Option<String> {
    let ids: Vec<&str> = config.alias_keys.iter().map(|key| key.id.as_str()).collect();
    some(&ids.join(","))
}

fn ad_hoc_tools(config: &Config) -> Option<String> {
    match &config.ad_hoc_tools {
        AdHocTools::All => Some("*".to_owned()),
        AdHocTools::Tenants(tenants) => {
            let names: Vec<&str> = tenants.iter().map(crate::domain::ids::Tenant::as_str).collect();
            some(&names.join(","))
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "one form for all settings")]
fn allow_http(config: &Config) -> Option<String> {
    Some(config.adapters.allow_http.to_string())
}

fn allow_networks(config: &Config) -> Option<String> {
    let networks: Vec<String> = config.adapters.allow_networks.iter().map(ToString::to_string).collect();
    some(&networks.join(","))
}

/// Ids and algorithms of the keys of tokens.
fn keys(config: &Config) -> Option<String> {
    let names = config.auth.keys.iter().map(|key| match key.kid() {
        Some(kid) => format!("{kid} ({:?})", key.algorithm()),
        None => format!("{:?}", key.algorithm()),
    });
    some(&names.collect::<Vec<_>>().join(","))
}

/// The key set, or the times of one that is not there.
fn set(config: &Config) -> KeySetSettings {
    let none = || KeySetSettings::new(KeySetSource::File(std::path::PathBuf::new()));
    config.auth.key_set.clone().unwrap_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_the_service_is_shown() {
        let command = <ServeArgs as clap::Args>::augment_args(clap::Command::new("serve"));
        let variables = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
        let variables: BTreeSet<&str> = variables.collect();
        assert!(variables.len() > 30, "{variables:?}");
        let is_shown = |name: &&&str| ROWS.iter().any(|(_, variable, _)| *variable == Some(**name));
        let missing: Vec<&&str> = variables.iter().filter(|name| !is_shown(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
