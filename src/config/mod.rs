//! The configuration: flags, then environment, then file; everything resolved and checked once,
//! at start, with all problems reported together.

mod args;
mod database;
mod describe;
mod dev;
mod file;
mod front;
mod keys;
mod named;
mod quotas;
mod retention;
mod secret;
mod secrets;
mod show;
mod telemetry;
#[cfg(test)]
mod tests;
mod tls;
pub mod token;
mod values;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

pub use self::args::{AuthArgs, Environment, ServeArgs, TokenArgs};
pub use self::database::Pooling;
pub use self::describe::Description;
pub use self::front::{Front, FrontArgs, Rate};
pub use self::named::{NamedSecrets, SecretKey};
pub use self::quotas::QuotaArgs;
pub use self::retention::retention;
pub use self::secret::{HIDDEN, Secret};
pub use self::secrets::{AliasKey, DataKeys, data_keys_of};
pub use self::show::{Flags, Inspected, Origin, Setting, inspect, unknown_variables};
pub use self::telemetry::TelemetrySettings;
pub use self::values::Network;

use self::database::Database;
use self::file::{Problems, Section};
use self::secrets::{DevKeys, Secrets};
use crate::auth::{self, Grant, Key, MintError, Scopes};
use crate::domain::ids::{Name, Tenant};
use crate::domain::quota::OpenQuota;
use crate::tls::TlsFiles;

/// Issuer and audience where none are configured.
const NAME: &str = "actonce";
/// Issuer and audience of `--dev` where none are configured, so that its tokens are good nowhere else.
const DEV_NAME: &str = "actonce-dev";
const DATA_DIR: &str = "./actonce-data";
/// Life of the token that `--dev` shows at start.
const DEV_TOKEN_SECONDS: u64 = 30 * 24 * 3600;

/// Everything that is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// One sentence for each problem.
    pub problems: Vec<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration has problems:")?;
        for problem in &self.problems {
            write!(f, "\n- {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// The form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Pretty,
}

/// Who may use tools that aren't registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AdHocTools {
    /// Every tenant.
    All,
    /// These tenants; nobody where there are none.
    Tenants(BTreeSet<Tenant>),
}

impl AdHocTools {
    /// Whether a tenant may.
    #[must_use]
    pub fn allows(&self, tenant: &Tenant) -> bool {
        match self {
            Self::All => true,
            Self::Tenants(tenants) => tenants.contains(tenant),
        }
    }
}

/// Where adapters may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AdapterPolicy {
    /// Whether plain HTTP is allowed.
    pub allow_http: bool,
    /// Private networks that are allowed.
    pub allow_networks: Vec<Network>,
}

/// The configuration of `actonce serve`, resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// Whether the service is only tried out.
    pub dev: bool,
    /// Where to listen.
    pub listen: SocketAddr,
    /// The directory for the embedded database and the keys of `--dev`.
    pub data_dir: PathBuf,
    /// The prefix of all paths: empty, or with a leading and without a trailing slash.
    pub base_path: String,
    /// The database; where `None`, `SQLite` in the data directory.
    pub database_url: Option<Secret<String>>,
    /// What a connection to it is.
    pub database_pooling: Pooling,
    /// An address past a pooler that gives sessions away.
    pub database_direct_url: Option<Secret<String>>,
    /// The form of the log.
    pub log_format: LogFormat,
    /// What is logged.
    pub log: String,
    /// How tokens are verified.
    pub auth: auth::Settings,
    /// What downstream idempotency keys and cursors are derived from.
    pub data_key: Secret<[u8; 32]>,
    /// The next or former data keys, which open what was sealed under them.
    pub other_data_keys: Vec<Secret<[u8; 32]>>,
    /// What checkpoints and evidence are signed with; where `None`, nothing is signed.
    pub evidence_key: Option<Secret<[u8; 32]>>,
    /// How often checkpoints are made.
    pub checkpoint_every: Duration,
    /// The alias keyring, the active key first; may be empty.
    pub alias_keys: Vec<AliasKey>,
    /// Who may use tools that aren't registered.
    pub ad_hoc_tools: AdHocTools,
    /// Where adapters may be.
    pub adapters: AdapterPolicy,
    /// Secrets that tools name.
    pub named_secrets: NamedSecrets,
    /// Longest time for a request that doesn't wait on purpose.
    pub request_timeout: Duration,
    /// How long running requests may take to end at shutdown.
    pub drain: Duration,
    /// Most requests at once.
    pub max_in_flight: usize,
    /// Most connections to Postgres.
    pub postgres_connections: u32,
    /// What the service tells about itself.
    pub telemetry: TelemetrySettings,
    /// Bounds of clients and their connections.
    pub front: Front,
    /// How many effects each tenant may have open.
    pub open_quota: OpenQuota,
    /// How many of them each of its principals may have proposed.
    pub principal_quota: OpenQuota,
    /// Certificate and key; where `None`, plain HTTP is spoken.
    pub tls: Option<TlsFiles>,
}

impl Config {
    /// Resolves the configuration. With `--dev`, and only if there is no problem, keys that are
    /// missing are made in the data directory.
    ///
    /// # Errors
    /// Every problem that was found.
    pub fn load(args: &ServeArgs, environment: &Environment) -> Result<Self, ConfigError> {
        let mut problems = Problems::new();
        let config = load(args, environment, DevKeys::Make, &mut problems);
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(ConfigError { problems: problems.into_sentences() }),
        }
    }

    /// Whether the alias keyring is the one key that `--dev` makes.
    #[must_use]
    pub fn has_dev_alias_key(&self) -> bool {
        self.dev && self.alias_keys.iter().any(|key| key.id == secrets::DEV_ALIAS_ID)
    }

    /// A token for the tenant `dev` with all scopes, where the service runs with `--dev`.
    ///
    /// # Errors
    /// When the key can't sign.
    pub fn dev_token(&self) -> Result<Option<String>, MintError> {
        let key = self.auth.keys.first().and_then(Key::signing).filter(|_| self.dev);
        let named = Tenant::new("dev").ok().zip(Name::new("dev").ok());
        let Some((key, (tenant, subject))) = key.zip(named) else { return Ok(None) };
        let grant = Grant { tenant, subject, scopes: Scopes::all(), expires_in_seconds: DEV_TOKEN_SECONDS };
        auth::mint(key, &self.auth.claims, &grant).map(Some)
    }
}

/// The key that signs checkpoints, for a command: given itself, as a file, or made by `--dev` in the data directory.
///
/// # Errors
/// It is given and can't be read.
pub fn evidence_key(
    path: Option<&str>,
    data_dir: &std::path::Path,
    environment: &Environment,
) -> Result<Option<Secret<[u8; 32]>>, String> {
    if let Some(path) = path {
        let content = file::read(std::path::Path::new(path), crate::limits::KEY_FILE_BYTES)?;
        let key = values::key(&String::from_utf8_lossy(&content));
        return key.map(Some).map_err(|fault| format!("{path} {fault}"));
    }
    if let Some(text) = &environment.evidence_key {
        return values::key(text.expose()).map(Some).map_err(|fault| format!("ACTONCE_EVIDENCE_KEY {fault}"));
    }
    dev::existing(data_dir, dev::EVIDENCE_KEY)
}

/// A file that a command was given, within a bound.
///
/// # Errors
/// It can't be read, or is larger.
pub fn read_file(path: &std::path::Path, limit: usize) -> Result<Vec<u8>, String> {
    file::read(path, limit)
}

/// Resolves everything. `None`, or problems, or both, mean that there is no configuration.
fn load(args: &ServeArgs, environment: &Environment, dev_keys: DevKeys, problems: &mut Problems) -> Option<Config> {
    problems.extend(environment.unreadable.iter().map(|variable| format!("{variable}: must be UTF-8")));
    let mut file = file::load(args.config.as_ref(), problems);
    let file_is_read = problems.is_empty();
    let dev = file.pick(args.dev.as_ref(), "ACTONCE_DEV", "dev", problems);
    let dev = dev.and_then(|given| given.parse(problems, values::truth)).unwrap_or(false);
    let basics = Basics::read(args, &mut file, dev, problems);
    let database = Database::read(args, &mut file, problems);
    let tuning = Tuning::read(args, &mut file, problems);
    let front = front::read(&args.front, &mut file, problems);
    let quotas = quotas::read(&args.quotas, &mut file, problems);
    let tls = tls::read(args, &mut file, problems);
    let (ad_hoc_tools, adapters) = (ad_hoc_tools(args, &mut file, problems), adapters(args, &mut file, problems));
    let telemetry = telemetry::telemetry(args, &mut file, problems);
    let named_secrets = named::named(args, &mut file, problems);
    // For `actonce prune`; a service checks it, and prunes nothing.
    retention::read(&mut file, problems);
    let data_keys = secrets::data_keys(args.data_key_file.as_ref(), environment, &mut file, problems);
    let alias_keys = secrets::aliases(environment, &mut file, problems);
    let evidence_key = secrets::evidence_key(args.evidence_key_file.as_ref(), environment, &mut file, problems);
    let section = file.section("auth", problems);
    let tokens = keys::tokens(&args.auth, environment, section, if dev { DEV_NAME } else { NAME }, problems);
    file.finish(problems);
    let secrets = Secrets { tokens, data_keys, alias_keys };
    // Without the file nobody knows what is missing.
    if file_is_read {
        secrets.check(dev, basics.listen, problems);
    }
    if !problems.is_empty() {
        return None;
    }
    let dev_keys = if dev { dev_keys } else { DevKeys::None };
    let (auth, data_keys, alias_keys) = secrets.complete(dev_keys, &basics.data_dir, problems)?;
    let evidence_key = secrets::dev_evidence_key(evidence_key, dev_keys, &basics.data_dir, problems);
    Some(Config {
        dev,
        listen: basics.listen,
        data_dir: basics.data_dir,
        base_path: basics.base_path,
        database_url: database.url,
        database_pooling: database.pooling,
        database_direct_url: database.direct_url,
        log_format: basics.log_format,
        log: basics.log,
        auth,
        data_key: data_keys.active,
        other_data_keys: data_keys.others,
        evidence_key,
        checkpoint_every: tuning.checkpoint_every,
        alias_keys,
        ad_hoc_tools,
        adapters,
        named_secrets,
        request_timeout: tuning.request_timeout,
        drain: tuning.drain,
        max_in_flight: tuning.max_in_flight,
        postgres_connections: tuning.postgres_connections,
        telemetry,
        front,
        open_quota: quotas.tenants,
        principal_quota: quotas.principals,
        tls,
    })
}

struct Basics {
    listen: SocketAddr,
    data_dir: PathBuf,
    base_path: String,
    log_format: LogFormat,
    log: String,
}

impl Basics {
    fn read(args: &ServeArgs, file: &mut Section, dev: bool, problems: &mut Problems) -> Self {
        let listen = file.pick(args.listen.as_ref(), "ACTONCE_LISTEN", "listen", problems);
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        let base_path = file.pick(args.base_path.as_ref(), "ACTONCE_BASE_PATH", "base_path", problems);
        let log_format = file.pick(args.log_format.as_ref(), "ACTONCE_LOG_FORMAT", "log_format", problems);
        let default_format = if dev { LogFormat::Pretty } else { LogFormat::Json };
        let log = file.pick(args.log.as_ref(), "ACTONCE_LOG", "log", problems);
        Self {
            listen: listen.and_then(|given| given.parse(problems, values::address)).unwrap_or(default),
            data_dir: data_dir(args.data_dir.as_ref(), file, problems),
            base_path: base_path.and_then(|given| given.parse(problems, values::base_path)).unwrap_or_default(),
            log_format: log_format
                .and_then(|given| given.parse(problems, values::log_format))
                .unwrap_or(default_format),
            log: log.and_then(|given| given.parse(problems, values::log_filter)).unwrap_or_else(|| "info".to_owned()),
        }
    }
}

fn data_dir(argument: Option<&String>, file: &mut Section, problems: &mut Problems) -> PathBuf {
    let given = file.pick(argument, "ACTONCE_DATA_DIR", "data_dir", problems);
    given.map_or_else(|| PathBuf::from(DATA_DIR), |given| PathBuf::from(given.text.expose()))
}

struct Tuning {
    request_timeout: Duration,
    drain: Duration,
    max_in_flight: usize,
    postgres_connections: u32,
    checkpoint_every: Duration,
}

impl Tuning {
    fn read(args: &ServeArgs, file: &mut Section, problems: &mut Problems) -> Self {
        let mut number = |argument: &Option<String>, key: &str, range, default| {
            let variable = format!("ACTONCE_{}", key.to_ascii_uppercase());
            let given = file.pick(argument.as_ref(), &variable, key, problems);
            given.and_then(|given| given.parse(problems, |text| values::number(text, range))).unwrap_or(default)
        };
        let request_timeout = number(&args.request_timeout_seconds, "request_timeout_seconds", 1..=600, 30);
        let drain = number(&args.drain_seconds, "drain_seconds", 0..=600, 20);
        let max_in_flight = number(&args.max_in_flight, "max_in_flight", 1..=1_000_000, 20_000);
        let connections = number(&args.postgres_connections, "postgres_connections", 1..=1000, 10);
        let range = 1..=crate::limits::CHECKPOINT_MAX_SECONDS;
        let default = crate::limits::CHECKPOINT_DEFAULT_SECONDS;
        let checkpoints = number(&args.checkpoint_seconds, "checkpoint_seconds", range, default);
        Self {
            checkpoint_every: Duration::from_secs(checkpoints),
            request_timeout: Duration::from_secs(request_timeout),
            drain: Duration::from_secs(drain),
            max_in_flight: usize::try_from(max_in_flight).unwrap_or(usize::MAX),
            postgres_connections: u32::try_from(connections).unwrap_or(u32::MAX),
        }
    }
}

fn ad_hoc_tools(args: &ServeArgs, file: &mut Section, problems: &mut Problems) -> AdHocTools {
    let given = file.pick_list(args.ad_hoc_tools.as_ref(), "ACTONCE_AD_HOC_TOOLS", "ad_hoc_tools", problems);
    let Some((names, from)) = given else { return AdHocTools::Tenants(BTreeSet::new()) };
    if names == ["*"] {
        return AdHocTools::All;
    }
    let mut tenants = BTreeSet::new();
    for name in &names {
        match Tenant::new(name) {
            // One that would surprise: no tenant is called so.
            Ok(_) if name == "*" => problems.push(format!("{from}: must be * or names of tenants, not both")),
            Ok(tenant) => drop(tenants.insert(tenant)),
            Err(fault) => problems.push(format!("{from}: a name of a tenant {fault}")),
        }
    }
    AdHocTools::Tenants(tenants)
}

fn adapters(args: &ServeArgs, file: &mut Section, problems: &mut Problems) -> AdapterPolicy {
    let variable = "ACTONCE_ADAPTER_ALLOW_HTTP";
    let http = file.pick(args.adapter_allow_http.as_ref(), variable, "adapter_allow_http", problems);
    let variable = "ACTONCE_ADAPTER_ALLOW_NETWORKS";
    let networks = file.pick_list(args.adapter_allow_networks.as_ref(), variable, "adapter_allow_networks", problems);
    let mut policy = AdapterPolicy {
        allow_http: http.and_then(|given| given.parse(problems, values::truth)).unwrap_or(false),
        allow_networks: Vec::new(),
    };
    let (names, from) = networks.unwrap_or_default();
    for name in names {
        match Network::parse(&name) {
            Ok(network) => policy.allow_networks.push(network),
            Err(fault) => problems.push(format!("{from}: {fault}")),
        }
    }
    policy
}
