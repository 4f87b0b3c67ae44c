//! What the command line and the environment can say. Everything is kept as text here, so that
//! all problems are found together, and so that an empty variable counts as unset.

use super::front::FrontArgs;
use super::quotas::QuotaArgs;
use super::secret::Secret;

/// What has no flag, for `--help`.
const WITHOUT_FLAGS: &str = "\
Secrets that have no flag, because everyone on a machine can read command lines:
  ACTONCE_JWT_HS256_SECRET  Shared secret of tokens (HS256), at least 32 bytes
  ACTONCE_DATA_KEY          The data key: 32 bytes in hex or base64; up to 4 by comma, the active one first
  ACTONCE_EVIDENCE_KEY      What signs checkpoints and evidence: 32 bytes in hex or base64
  ACTONCE_ALIAS_KEYS        The alias keyring: id:key by comma, the active one first, at most 4

In the configuration file alone:
  [[auth.keys]]             Several keys of tokens
  [[alias_keys]]            The alias keyring as a list
  [secrets]                 Secrets that tools name
  [quotas.tenants]          Quotas of single tenants
  [quotas.principals]       Quotas of each principal of single tenants

Flags outrank variables, which outrank the file. In the file a setting has the name of its flag with `_`; those of
tokens stand in [auth], those of key sets in [auth.jwks], without `jwt_` and `jwks_`. `actonce config check` finds all
problems at once, `actonce config show` says where each value comes from.";

/// Run the service. Flags outrank the environment, which outranks the configuration file.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = WITHOUT_FLAGS)]
pub struct ServeArgs {
    /// Try the service out: makes its own keys in the data directory, listens on this machine only
    #[arg(
        long,
        env = "ACTONCE_DEV",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub dev: Option<String>,
    /// Address to listen on, with port 0 for a free one [default: 127.0.0.1:8080]
    #[arg(long, env = "ACTONCE_LISTEN", value_name = "ADDR")]
    pub listen: Option<String>,
    /// Directory for the embedded database and the keys of --dev [default: ./actonce-data]
    #[arg(long, env = "ACTONCE_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Prefix of all paths, such as /actonce [default: none]
    #[arg(long, env = "ACTONCE_BASE_PATH", value_name = "PREFIX")]
    pub base_path: Option<String>,
    /// Configuration file (TOML)
    #[arg(long, env = "ACTONCE_CONFIG", value_name = "FILE")]
    pub config: Option<String>,
    /// Database, postgres://… or sqlite:… [default: an embedded one in the data directory]
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: Option<Secret<String>>,
    /// What a connection to Postgres is: session, or transaction behind a pooler that gives every transaction another
    /// session [default: session]
    #[arg(long, env = "DATABASE_POOLING", value_name = "MODE")]
    pub database_pooling: Option<String>,
    /// The same database past such a pooler, to listen and to migrate [default: none, neither is done]
    #[arg(long, env = "DATABASE_DIRECT_URL", hide_env_values = true, value_name = "URL")]
    pub database_direct_url: Option<Secret<String>>,
    /// Form of the log, json or pretty [default: json; with --dev pretty]
    #[arg(long, env = "ACTONCE_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// What is logged, such as warn or info,actonce=debug [default: info]
    #[arg(long, env = "ACTONCE_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// File with the data key: 32 bytes in hex or base64; up to 4 by line, the active one first. `ACTONCE_DATA_KEY`
    /// holds the key itself
    #[arg(long, env = "ACTONCE_DATA_KEY_FILE", value_name = "FILE")]
    pub data_key_file: Option<String>,
    /// File with the key that signs checkpoints and evidence: 32 bytes in hex or base64. `ACTONCE_EVIDENCE_KEY` holds
    /// the key itself [default: none, and nothing is signed]
    #[arg(long, env = "ACTONCE_EVIDENCE_KEY_FILE", value_name = "FILE")]
    pub evidence_key_file: Option<String>,
    /// How often signed checkpoints of the journals are made [default: 3600]
    #[arg(long, env = "ACTONCE_CHECKPOINT_SECONDS", value_name = "SECONDS")]
    pub checkpoint_seconds: Option<String>,
    /// Tenants that may use tools without registering them, by comma, or * for all [default: none]
    #[arg(long, env = "ACTONCE_AD_HOC_TOOLS", value_name = "TENANTS")]
    pub ad_hoc_tools: Option<String>,
    /// Let adapters be reached over plain HTTP [default: false]
    #[arg(
        long,
        env = "ACTONCE_ADAPTER_ALLOW_HTTP",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub adapter_allow_http: Option<String>,
    /// Private networks that adapters may be in, such as 127.0.0.0/8,10.1.0.0/16 [default: none]
    #[arg(long, env = "ACTONCE_ADAPTER_ALLOW_NETWORKS", value_name = "NETWORKS")]
    pub adapter_allow_networks: Option<String>,
    /// Directory with a file for each secret that tools name, in directories those of one tenant [default: none]
    #[arg(long, env = "ACTONCE_SECRETS_DIR", value_name = "DIR")]
    pub secrets_dir: Option<String>,
    /// Longest time for a request that doesn't wait on purpose [default: 30]
    #[arg(long, env = "ACTONCE_REQUEST_TIMEOUT_SECONDS", value_name = "SECONDS")]
    pub request_timeout_seconds: Option<String>,
    /// How long running requests may take to end at shutdown [default: 20]
    #[arg(long, env = "ACTONCE_DRAIN_SECONDS", value_name = "SECONDS")]
    pub drain_seconds: Option<String>,
    /// Most requests at once; more are answered with 503 [default: 20000]
    #[arg(long, env = "ACTONCE_MAX_IN_FLIGHT", value_name = "COUNT")]
    pub max_in_flight: Option<String>,
    /// Most connections to Postgres [default: 10]
    #[arg(long, env = "ACTONCE_POSTGRES_CONNECTIONS", value_name = "COUNT")]
    pub postgres_connections: Option<String>,
    /// Measure the phases of requests, on or off [default: on]
    #[arg(long, env = "ACTONCE_TIMING", value_name = "ON|OFF")]
    pub timing: Option<String>,
    /// Collector that traces are sent to (OTLP over HTTP), such as `http://127.0.0.1:4318` [default: none]
    #[arg(long, env = "ACTONCE_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Share of the traces beginning here that is sent; a caller's own trace follows its flag [default: 100]
    #[arg(long, env = "ACTONCE_OTLP_SAMPLE_PERCENT", value_name = "PERCENT")]
    pub otlp_sample_percent: Option<String>,
    /// File with the certificate of the service and those above it (PEM): it then speaks TLS alone; needs
    /// --tls-key-file [default: none, plain HTTP]
    #[arg(long, env = "ACTONCE_TLS_CERTIFICATE_FILE", value_name = "FILE")]
    pub tls_certificate_file: Option<String>,
    /// File with the private key of that certificate (PEM)
    #[arg(long, env = "ACTONCE_TLS_KEY_FILE", value_name = "FILE")]
    pub tls_key_file: Option<String>,
    /// Bounds of clients and their connections.
    #[command(flatten)]
    pub front: FrontArgs,
    /// How much each tenant, and each of its principals, may have open.
    #[command(flatten)]
    pub quotas: QuotaArgs,
    /// Keys and claims of tokens.
    #[command(flatten)]
    pub auth: AuthArgs,
}

/// Keys and claims of tokens. `ACTONCE_JWT_HS256_SECRET` holds a secret itself.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct AuthArgs {
    /// File with the shared secret of tokens; needs --jwt-algorithm
    #[arg(long, env = "ACTONCE_JWT_SECRET_FILE", value_name = "FILE")]
    pub jwt_secret_file: Option<String>,
    /// File with the public key of tokens (PEM); needs --jwt-algorithm
    #[arg(long, env = "ACTONCE_JWT_PUBLIC_KEY_FILE", value_name = "FILE")]
    pub jwt_public_key_file: Option<String>,
    /// File with a private key (PEM), to make tokens too; needs --jwt-algorithm
    #[arg(long, env = "ACTONCE_JWT_PRIVATE_KEY_FILE", value_name = "FILE")]
    pub jwt_private_key_file: Option<String>,
    /// The one algorithm of that key: HS256, HS384, HS512, RS256, …, PS256, …, ES256, ES384 or `EdDSA`
    #[arg(long, env = "ACTONCE_JWT_ALGORITHM", value_name = "NAME")]
    pub jwt_algorithm: Option<String>,
    /// Id of that key (`kid`), needed where there is a key set too
    #[arg(long, env = "ACTONCE_JWT_KID", value_name = "ID")]
    pub jwt_kid: Option<String>,
    /// The issuer's key set (JWKS)
    #[arg(long, env = "ACTONCE_JWKS_URL", hide_env_values = true, value_name = "URL")]
    pub jwks_url: Option<Secret<String>>,
    /// The issuer's key set (JWKS) as a file, read again when it is due
    #[arg(long, env = "ACTONCE_JWKS_FILE", value_name = "FILE")]
    pub jwks_file: Option<String>,
    /// Algorithm of RSA keys in the key set that don't name theirs [default: such keys are not taken]
    #[arg(long, env = "ACTONCE_JWKS_RSA_ALGORITHM", value_name = "NAME")]
    pub jwks_rsa_algorithm: Option<String>,
    /// How often the key set is read [default: 300]
    #[arg(long, env = "ACTONCE_JWKS_REFRESH_SECONDS", value_name = "SECONDS")]
    pub jwks_refresh_seconds: Option<String>,
    /// Shortest time between two reads for tokens with unknown keys [default: 30]
    #[arg(long, env = "ACTONCE_JWKS_MIN_REFRESH_SECONDS", value_name = "SECONDS")]
    pub jwks_min_refresh_seconds: Option<String>,
    /// Let the key set come over plain HTTP from other machines [default: false]
    #[arg(
        long,
        env = "ACTONCE_JWKS_ALLOW_HTTP",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub jwks_allow_http: Option<String>,
    /// `iss` of tokens [default: actonce; with --dev actonce-dev]
    #[arg(long, env = "ACTONCE_JWT_ISSUER", value_name = "TEXT")]
    pub jwt_issuer: Option<String>,
    /// `aud` of tokens [default: actonce; with --dev actonce-dev]
    #[arg(long, env = "ACTONCE_JWT_AUDIENCE", value_name = "TEXT")]
    pub jwt_audience: Option<String>,
    /// Claim with the tenant [default: tenant]
    #[arg(long, env = "ACTONCE_JWT_TENANT_CLAIM", value_name = "NAME")]
    pub jwt_tenant_claim: Option<String>,
    /// Claim with the scopes [default: scope, or else scopes]
    #[arg(long, env = "ACTONCE_JWT_SCOPES_CLAIM", value_name = "NAME")]
    pub jwt_scopes_claim: Option<String>,
    /// How far the issuer's clock may be from ours [default: 5]
    #[arg(long, env = "ACTONCE_JWT_LEEWAY_SECONDS", value_name = "SECONDS")]
    pub jwt_leeway_seconds: Option<String>,
}

/// Make one token, with the key of --dev where the data directory has one, or else with the
/// configured key.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TokenArgs {
    /// Directory with the key of --dev [default: ./actonce-data]
    #[arg(long, env = "ACTONCE_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Configuration file (TOML)
    #[arg(long, env = "ACTONCE_CONFIG", value_name = "FILE")]
    pub config: Option<String>,
    /// Tenant of the token
    #[arg(long, value_name = "NAME")]
    pub tenant: String,
    /// Principal of the token
    #[arg(long, value_name = "NAME")]
    pub subject: String,
    /// Scopes by comma, or all
    #[arg(long, value_name = "SCOPES", default_value = "all")]
    pub scopes: String,
    /// Life of the token
    #[arg(long, value_name = "SECONDS", default_value = "3600")]
    pub expires_in: String,
    /// Keys and claims of tokens.
    #[command(flatten)]
    pub auth: AuthArgs,
}

/// Settings that are secrets themselves. They have no flags, as everyone on a machine can read
/// the command lines of its processes.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `ACTONCE_JWT_HS256_SECRET`: the shared secret of tokens.
    pub jwt_hs256_secret: Option<Secret<String>>,
    /// `ACTONCE_DATA_KEY`: the data keys by comma, the active one first.
    pub data_key: Option<Secret<String>>,
    /// `ACTONCE_EVIDENCE_KEY`: what signs checkpoints and evidence.
    pub evidence_key: Option<Secret<String>>,
    /// `ACTONCE_ALIAS_KEYS`: `id:key` by comma, the active one first.
    pub alias_keys: Option<Secret<String>>,
    /// Variables that aren't UTF-8.
    pub(super) unreadable: Vec<&'static str>,
}

impl Environment {
    /// The environment of this process. Empty variables count as unset.
    #[must_use]
    pub fn from_process() -> Self {
        let mut unreadable = Vec::new();
        let mut read = |name| match std::env::var(name) {
            Ok(value) if !value.is_empty() => Some(Secret::new(value)),
            Ok(_) | Err(std::env::VarError::NotPresent) => None,
            Err(std::env::VarError::NotUnicode(_)) => {
                unreadable.push(name);
                None
            }
        };
        let jwt_hs256_secret = read("ACTONCE_JWT_HS256_SECRET");
        let data_key = read("ACTONCE_DATA_KEY");
        let alias_keys = read("ACTONCE_ALIAS_KEYS");
        let evidence_key = read("ACTONCE_EVIDENCE_KEY");
        Self { jwt_hs256_secret, data_key, evidence_key, alias_keys, unreadable }
    }
}
