//! The configuration as it may be shown.

use serde::Serialize;

use super::{AdHocTools, AdapterPolicy, Config, Front, LogFormat, Pooling, Secret, TelemetrySettings, values};
use crate::auth::{Algorithm, KeySetSettings, KeySetSource};
use crate::domain::quota::OpenQuota;
use crate::tls::TlsFiles;

/// The configuration without its secrets.
#[derive(Debug, Serialize)]
pub struct Description {
    dev: bool,
    listen: String,
    data_dir: String,
    base_path: String,
    database: String,
    database_pooling: Pooling,
    database_direct_url: Option<Secret<()>>,
    log_format: LogFormat,
    log: String,
    auth: Auth,
    data_key: Secret<()>,
    evidence_key: Option<Secret<()>>,
    checkpoint_seconds: u64,
    alias_keys: Vec<String>,
    ad_hoc_tools: AdHocTools,
    adapters: AdapterPolicy,
    named_secrets: Vec<String>,
    request_timeout_seconds: u64,
    drain_seconds: u64,
    max_in_flight: usize,
    postgres_connections: u32,
    telemetry: TelemetrySettings,
    front: Front,
    open_quota: OpenQuota,
    principal_quota: OpenQuota,
    tls: Option<TlsFiles>,
}

#[derive(Debug, Serialize)]
struct Auth {
    issuer: String,
    audience: String,
    tenant_claim: String,
    scopes_claim: Option<String>,
    leeway_seconds: u64,
    keys: Vec<TokenKey>,
    jwks: Option<Jwks>,
}

#[derive(Debug, Serialize)]
struct TokenKey {
    kid: Option<String>,
    algorithm: Algorithm,
    signs: bool,
}

#[derive(Debug, Serialize)]
struct Jwks {
    source: String,
    rsa_algorithm: Option<Algorithm>,
    refresh_seconds: u64,
    min_refresh_seconds: u64,
}

impl Config {
    /// What may be shown of the configuration.
    #[must_use]
    pub fn describe(&self) -> Description {
        let database = match &self.database_url {
            Some(url) => values::without_credentials(url.expose()),
            None => "sqlite in the data directory".to_owned(),
        };
        Description {
            dev: self.dev,
            listen: self.listen.to_string(),
            data_dir: self.data_dir.display().to_string(),
            base_path: self.base_path.clone(),
            database,
            database_pooling: self.database_pooling,
            database_direct_url: self.database_direct_url.as_ref().map(|_| Secret::new(())),
            log_format: self.log_format,
            log: self.log.clone(),
            auth: self.describe_auth(),
            data_key: Secret::new(()),
            evidence_key: self.evidence_key.as_ref().map(|_| Secret::new(())),
            checkpoint_seconds: self.checkpoint_every.as_secs(),
            alias_keys: self.alias_keys.iter().map(|key| key.id.clone()).collect(),
            ad_hoc_tools: self.ad_hoc_tools.clone(),
            adapters: self.adapters.clone(),
            named_secrets: self.named_secrets.names(),
            request_timeout_seconds: self.request_timeout.as_secs(),
            drain_seconds: self.drain.as_secs(),
            max_in_flight: self.max_in_flight,
            postgres_connections: self.postgres_connections,
            telemetry: self.telemetry.clone(),
            front: self.front,
            open_quota: self.open_quota.clone(),
            principal_quota: self.principal_quota.clone(),
            tls: self.tls.clone(),
        }
    }

    fn describe_auth(&self) -> Auth {
        let keys = self.auth.keys.iter().map(|key| TokenKey {
            kid: key.kid().map(str::to_owned),
            algorithm: key.algorithm(),
            signs: key.signing().is_some(),
        });
        let claims = self.auth.claims.clone();
        Auth {
            issuer: claims.issuer,
            audience: claims.audience,
            tenant_claim: claims.tenant_claim,
            scopes_claim: claims.scopes_claim,
            leeway_seconds: claims.leeway_seconds,
            keys: keys.collect(),
            jwks: self.auth.key_set.as_ref().map(describe_key_set),
        }
    }
}

/// A URL as far as it may be shown: the query may be a secret of the issuer.
pub(super) fn without_query(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or_default().to_owned()
}

fn describe_key_set(settings: &KeySetSettings) -> Jwks {
    let source = match &settings.source {
        KeySetSource::Url(url) => without_query(url.as_str()),
        KeySetSource::File(path) => path.display().to_string(),
    };
    Jwks {
        source,
        rsa_algorithm: settings.rsa_algorithm,
        refresh_seconds: settings.refresh_every.as_secs(),
        min_refresh_seconds: settings.refresh_at_most_every.as_secs(),
    }
}
