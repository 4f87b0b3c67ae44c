//! Wiring: what starts, in which order, and how it stops.

mod supervise;

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::Authenticator;
use crate::config::{self, Config};
use crate::domain::ids::Name;
use crate::engine::{AdHocTools, Engine};
use crate::http;
use crate::http::rates::{Rate, Rates};
use crate::http::server::Connections;
use crate::http::state::{Bounds, Shared};
use crate::limits;
use crate::outbound::OutboundAdapters;
use crate::outbound::client::Outbound;
use crate::outbound::otlp::Exporter;
use crate::outbound::webhooks::OutboundWebhooks;
use crate::service::aliases::Keyring;
use crate::service::keys::DataKey;
use crate::service::proof::Signer;
use crate::service::proof::checkpoint::Proof;
use crate::service::seal::Sealer;
use crate::service::secrets::ToolSecrets;
use crate::service::{Parts, Service};
use crate::store::aliases::{AliasKeyMark, KeysRegistered};
use crate::store::open::{DatabaseUrl, OpenOptions, Pooling, open};
use crate::store::{Backend, Store};
use crate::support::service_principal;
use crate::telemetry::spans::SpanSink;
use crate::telemetry::trace::Sampling;
use crate::telemetry::{Telemetry, meters};
use crate::tls::Tls;

/// The embedded database's file in the data directory.
pub const SQLITE_FILE: &str = "actonce.db";

/// Upper bounds of the buckets of all histograms in seconds.
const BUCKETS: [f64; 14] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Why the service does not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The store.
    #[error("the database: {0}")]
    Store(#[from] crate::store::StoreError),
    /// The keys of tokens.
    #[error("{0}")]
    Auth(#[from] crate::auth::StartError),
    /// The client for outgoing requests.
    #[error("{0}")]
    Outbound(#[from] crate::outbound::client::ClientError),
    /// The trace collector.
    #[error("{0}")]
    Otlp(#[from] crate::outbound::otlp::OtlpError),
    /// Certificate and key.
    #[error("{0}")]
    Tls(#[from] crate::tls::TlsFault),
    /// The socket.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The look at incomplete work.
    #[error("the recovery sweep at start: {0}")]
    Recovery(#[source] crate::service::ServiceError),
    /// Serving.
    #[error("serving failed: {0}")]
    Serve(#[source] std::io::Error),
    /// A part that must never end did.
    #[error("{0} ended unexpectedly")]
    Ended(&'static str),
    /// The alias keyring is not one that this database may have.
    #[error("the alias key id {id} {reason}: give the key a new id")]
    AliasKeys {
        /// The id.
        id: String,
        /// Why.
        reason: &'static str,
    },
    /// A restore was begun and has not ended: what is open may have been done.
    #[error("a restore of this database has not ended: run `actonce restore-epoch --epoch-id {0}` first")]
    RestoreBegun(Name),
    /// Something of ours.
    #[error("{0}")]
    Internal(&'static str),
}

/// A started service.
#[derive(Debug)]
pub struct App {
    /// Where it answers, base path included.
    pub url: String,
    /// What it stores in.
    pub backend: Backend,
    store: Arc<dyn Store>,
    tasks: TaskTracker,
    stopping: CancellationToken,
    background: CancellationToken,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
    failed: Arc<OnceLock<&'static str>>,
    drain: Duration,
}

/// The database that a configuration names: its URL, or the file in the data directory.
///
/// # Errors
/// The URL can't be understood, or the database not be reached so.
pub fn database_url(
    url: Option<&str>,
    data_dir: &Path,
    pooling: Pooling,
) -> Result<DatabaseUrl, crate::store::StoreError> {
    let found = match url {
        Some(url) => DatabaseUrl::parse(url)?,
        None => DatabaseUrl::Sqlite(data_dir.join(SQLITE_FILE)),
    };
    found.pooled(pooling)
}

/// The same of a service's whole configuration.
///
/// # Errors
/// As above.
pub fn database_of(config: &Config) -> Result<DatabaseUrl, crate::store::StoreError> {
    let direct = config.database_direct_url.as_ref().map(|url| url.expose().as_str());
    let pooling = Pooling::of(config.database_pooling == config::Pooling::Transaction, direct)?;
    database_url(config.database_url.as_ref().map(|url| url.expose().as_str()), &config.data_dir, pooling)
}

/// The one recorder of metrics of this process.
fn recorder() -> Result<PrometheusHandle, AppError> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        let builder = PrometheusBuilder::new().set_buckets(&BUCKETS).ok()?;
        let batch = metrics_exporter_prometheus::Matcher::Full("actonce_commit_batch_size".to_owned());
        let sizes = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
        let handle = builder.set_buckets_for_metric(batch, &sizes).ok()?.install_recorder().ok()?;
        meters::install();
        Some(handle)
    });
    handle.clone().ok_or(AppError::Internal("the metrics recorder can't be installed"))
}

impl App {
    /// Starts the service: database, migrations, keys, engine, background, the socket, and the look at
    /// incomplete work. While that goes on, health and reads are answered and nothing is taken.
    ///
    /// # Errors
    /// See [`AppError`].
    pub async fn start(config: &Config) -> Result<Self, AppError> {
        let metrics = recorder()?;
        let url = database_of(config)?;
        let store = open(&url, OpenOptions { migrate: true, connections: config.postgres_connections }).await?;
        let begun = store.restore_epochs().await?.pop().filter(|epoch| epoch.ended_at.is_none());
        begun.map_or(Ok(()), |epoch| Err(AppError::RestoreBegun(epoch.epoch_id)))?;
        let auth = Authenticator::start(config.auth.clone()).await?;
        let principal = service_principal().map_err(|_| AppError::Internal("the service has no name"))?;
        let (engine, loops) =
            Engine::start(Arc::clone(&store), ad_hoc(&config.ad_hoc_tools), principal.clone()).await?;
        engine.quotas().bound_by(config.open_quota.clone(), config.principal_quota.clone());
        let stopping = CancellationToken::new();
        let (tasks, background) = (TaskTracker::new(), CancellationToken::new());
        let telemetry = telemetry(config, &engine, &tasks, &background)?;
        let parts =
            Surroundings { principal: principal.clone(), tasks: &tasks, stopping: &stopping, telemetry: &telemetry };
        let service = service(config, engine, parts).await?;
        let failed: Arc<OnceLock<&'static str>> = Arc::default();
        spawn_lanes(&tasks, loops, &failed, &stopping, &background);
        spawn_background(&tasks, &service, &background);
        {
            let (auth, stop) = (Arc::clone(&auth), background.clone());
            tasks.spawn(async move { auth.refresh_loop(stop).await });
        }
        spawn_upkeep(&tasks, metrics.clone(), &background);
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|source| AppError::Listen { address: config.listen, source })?;
        let address = listener.local_addr().map_err(AppError::Serve)?;
        let state = Arc::new(Shared {
            service: Arc::clone(&service),
            auth,
            telemetry,
            routes: http::route_meters(&config.base_path),
            metrics,
            bounds: Bounds { request_timeout: config.request_timeout, max_in_flight: config.max_in_flight },
            rates: rates(&config.front),
            in_flight: AtomicUsize::new(0),
            starting: AtomicBool::new(true),
            stopping: stopping.clone(),
            base_path: config.base_path.as_str().into(),
        });
        let tls = start_tls(config, &tasks, &background)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let server =
            spawn_server(&tasks, listener, &state, Connections { tls, ..connections(&config.front) }, &stopping);
        let url = format!("{scheme}://{}{}", reachable(address), config.base_path);
        tracing::info!(url, "listening; looking at incomplete work before anything is taken");
        if let Err(error) = sweep_at_start(&tasks, &service, principal, &background).await {
            stopping.cancel();
            background.cancel();
            return Err(error);
        }
        state.starting.store(false, Ordering::Release);
        Ok(Self {
            url,
            backend: store.backend(),
            store,
            tasks,
            stopping,
            background,
            server,
            failed,
            drain: config.drain,
        })
    }

    /// A token whose cancellation stops the service.
    #[must_use]
    pub fn stopper(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Serves until stopped; then accepts nothing more, finishes what is in flight within the
    /// drain time, stops the background, and closes the database.
    ///
    /// # Errors
    /// See [`AppError`].
    pub async fn run(self) -> Result<(), AppError> {
        let mut server = self.server;
        let served = tokio::select! {
            served = &mut server => Some(served),
            () = self.stopping.cancelled() => None,
        };
        let served = match served {
            Some(served) => Some(served),
            None => tokio::time::timeout(self.drain, &mut server).await.ok(),
        };
        if served.is_none() {
            tracing::warn!("some requests did not finish within the drain time");
            server.abort();
        }
        self.stopping.cancel();
        self.background.cancel();
        self.tasks.close();
        if tokio::time::timeout(Duration::from_secs(5), self.tasks.wait()).await.is_err() {
            tracing::warn!("some background work did not end in time");
        }
        self.store.close().await;
        if let Some(part) = self.failed.get() {
            return Err(AppError::Ended(part));
        }
        match served {
            Some(Ok(Err(error))) => Err(AppError::Serve(error)),
            Some(Err(_)) => Err(AppError::Ended("the server")),
            Some(Ok(Ok(()))) | None => Ok(()),
        }
    }

    /// The line that scripts wait for (protocol §14).
    ///
    /// # Errors
    /// Standard output is closed.
    pub fn announce(&self, token: Option<&str>) -> std::io::Result<()> {
        let mut line = serde_json::json!({ "event": "ready", "url": self.url, "database": self.backend.as_str() });
        if let (Some(token), Some(object)) = (token, line.as_object_mut()) {
            object.insert("token".to_owned(), token.into());
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    }
}

/// What one process collects about itself, and the task that sends it to a collector where there is one.
fn telemetry(
    config: &Config,
    engine: &Arc<Engine>,
    tasks: &TaskTracker,
    background: &CancellationToken,
) -> Result<Arc<Telemetry>, AppError> {
    let (settings, clock) = (&config.telemetry, Arc::clone(engine));
    let telemetry = Telemetry::new(settings.timing, Box::new(move || clock.clock().now().micros()));
    let Some(endpoint) = &settings.otlp_endpoint else { return Ok(Arc::new(telemetry)) };
    let (sink, finished) = SpanSink::new();
    tasks.spawn(Exporter::new(endpoint, finished)?.run(background.clone()));
    Ok(Arc::new(telemetry.recording(sink, Sampling { percent: settings.otlp_sample_percent })))
}

/// What the use cases live in.
struct Surroundings<'a> {
    principal: Name,
    tasks: &'a TaskTracker,
    stopping: &'a CancellationToken,
    telemetry: &'a Arc<Telemetry>,
}

/// The use cases with everything that they are made with.
async fn service(
    config: &Config,
    engine: Arc<Engine>,
    surroundings: Surroundings<'_>,
) -> Result<Arc<Service>, AppError> {
    let Surroundings { principal, tasks, stopping, telemetry } = surroundings;
    let keyring = keyring(config);
    register_keys(engine.store().as_ref(), config, keyring.as_ref()).await?;
    let sealer = Arc::new(Sealer::of_ring(*config.data_key.expose(), other_data_keys(config)));
    let secrets = Arc::new(tool_secrets(config, &engine, &sealer));
    let outbound = Outbound::new(config.adapters.clone())?.observed_by(Arc::clone(telemetry));
    let webhooks = OutboundWebhooks::new(outbound.clone(), Arc::<Engine>::clone(&engine));
    let adapters = OutboundAdapters::new(outbound, Arc::<ToolSecrets>::clone(&secrets), Arc::<Engine>::clone(&engine));
    let service = Service::new(Parts {
        engine,
        data_key: DataKey::of_ring(*config.data_key.expose(), other_data_keys(config)),
        keyring,
        adapters: Arc::new(adapters),
        secrets,
        sealer,
        principal,
        tasks: tasks.clone(),
        stopping: stopping.clone(),
        proof: proof(config)?,
    });
    service.deliver_with(Arc::new(webhooks));
    Ok(Arc::new(service))
}

/// Notes which alias keys are in use, so that a retired id never comes back. The key that `--dev` makes
/// belongs to a data directory and not to the deployment.
async fn register_keys(store: &dyn Store, config: &Config, keyring: Option<&Keyring>) -> Result<(), AppError> {
    let Some(keyring) = keyring.filter(|_| !config.has_dev_alias_key()) else { return Ok(()) };
    let marks: Vec<AliasKeyMark> =
        keyring.fingerprints().into_iter().map(|(id, fingerprint)| AliasKeyMark { id, fingerprint }).collect();
    match store.register_alias_keys(&marks).await? {
        KeysRegistered::Applied => Ok(()),
        KeysRegistered::Retired(id) => Err(AppError::AliasKeys { id, reason: "was retired, and never comes back" }),
        KeysRegistered::Another(id) => Err(AppError::AliasKeys { id, reason: "stands for another key" }),
    }
}

/// They open what was sealed under them, and make nothing.
fn other_data_keys(config: &Config) -> impl Iterator<Item = [u8; 32]> + '_ {
    config.other_data_keys.iter().map(|key| *key.expose())
}

fn keyring(config: &Config) -> Option<Keyring> {
    Keyring::new(config.alias_keys.iter().map(|key| (key.id.clone(), *key.key.expose())).collect())
}

/// The key that signs checkpoints and evidence. Without one there are none, and the log says so.
fn proof(config: &Config) -> Result<Proof, AppError> {
    let signer = match &config.evidence_key {
        Some(key) => Some(Signer::from_seed(key.expose()).ok_or(AppError::Internal("the evidence key is refused"))?),
        None => None,
    };
    match &signer {
        Some(signer) => tracing::info!(kid = signer.kid(), "checkpoints and evidence are signed"),
        None => tracing::warn!(
            "no evidence key (ACTONCE_EVIDENCE_KEY_FILE): no checkpoints are made and no evidence is signed"
        ),
    }
    Ok(Proof { signer: signer.map(Arc::new), every: config.checkpoint_every })
}

fn tool_secrets(config: &Config, engine: &Arc<Engine>, sealer: &Arc<Sealer>) -> ToolSecrets {
    let named = config.named_secrets.iter().map(|(key, values)| (key.clone(), values.to_vec()));
    ToolSecrets::new(Arc::clone(engine.store()), Arc::clone(sealer), Arc::<Engine>::clone(engine), named.collect())
}

fn ad_hoc(tools: &config::AdHocTools) -> AdHocTools {
    match tools {
        config::AdHocTools::All => AdHocTools { all: true, tenants: Vec::new() },
        config::AdHocTools::Tenants(tenants) => {
            AdHocTools { all: false, tenants: tenants.iter().map(|tenant| tenant.as_str().to_owned()).collect() }
        }
    }
}

/// An address that a client on this machine can use.
#[must_use]
pub fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port())),
        _ => address,
    }
}

/// Runs the lanes to the store. They own their queues and can't be begun again: without them the process is of no use
/// and says so by ending.
fn spawn_lanes(
    tasks: &TaskTracker,
    lanes: Vec<futures_util::future::BoxFuture<'static, ()>>,
    failed: &Arc<OnceLock<&'static str>>,
    stopping: &CancellationToken,
    background: &CancellationToken,
) {
    for lane in lanes {
        let (failed, stopping, background) = (Arc::clone(failed), stopping.clone(), background.clone());
        tasks.spawn(async move {
            let panicked = AssertUnwindSafe(lane).catch_unwind().await.is_err();
            if panicked && !background.is_cancelled() {
                // The first failure is the one that is told.
                failed.get_or_init(|| "a lane to the store");
                stopping.cancel();
            }
        });
    }
}

/// Starts the background loops; one that panics is begun again.
fn spawn_background(tasks: &TaskTracker, service: &Arc<Service>, stop: &CancellationToken) {
    type Loop = fn(Arc<Service>, CancellationToken) -> futures_util::future::BoxFuture<'static, ()>;
    let loops: [(&'static str, Loop); 11] = [
        ("sweep", |service, stop| service.run_sweep(stop).boxed()),
        ("clock", |service, stop| service.run_clock(stop).boxed()),
        ("waiters", |service, stop| service.run_waiter_poll(stop).boxed()),
        ("announcer", |service, stop| service.run_announcer(stop).boxed()),
        ("listener", |service, stop| service.run_listener(stop).boxed()),
        ("feeds", |service, stop| service.run_feed_poll(stop).boxed()),
        ("deliveries", |service, stop| service.run_deliveries(stop).boxed()),
        ("doubts", |service, stop| service.run_doubt_wakes(stop).boxed()),
        ("receipts", |service, stop| service.run_receipts(stop).boxed()),
        ("quotas", |service, stop| service.run_quotas(stop).boxed()),
        ("checkpoints", |service, stop| service.run_checkpoints(stop).boxed()),
    ];
    for (name, begin) in loops {
        let (service, stop) = (Arc::clone(service), stop.clone());
        tasks.spawn(supervise::supervise(name, move || begin(Arc::clone(&service), stop.clone())));
    }
}

/// Serves on a socket until stopped.
fn spawn_server(
    tasks: &TaskTracker,
    listener: TcpListener,
    state: &http::state::AppState,
    connections: Connections,
    stopping: &CancellationToken,
) -> tokio::task::JoinHandle<std::io::Result<()>> {
    let router = http::router(Arc::clone(state));
    tasks.spawn(http::server::serve(listener, router, connections, stopping.clone()))
}

/// TLS where it is configured, and the task that looks at its files.
fn start_tls(
    config: &Config,
    tasks: &TaskTracker,
    background: &CancellationToken,
) -> Result<Option<TlsAcceptor>, AppError> {
    let Some(files) = &config.tls else { return Ok(None) };
    let tls = Tls::start(files.clone())?;
    let acceptor = tls.acceptor();
    tasks.spawn(tls.watch(background.clone()));
    Ok(Some(acceptor))
}

/// How many connections, within what the system lets this process have open.
fn connections(front: &config::Front) -> Connections {
    let bounds = Connections {
        most: front.max_connections,
        header_timeout: front.header_timeout,
        idle_timeout: front.idle_timeout,
        tls: None,
    };
    bounds.within(open_files())
}

/// How many files and sockets this process may have open; `None` for no bound.
#[must_use]
pub fn open_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

fn rates(front: &config::Front) -> Rates {
    let rate = |rate: config::Rate| Rate { per_second: rate.per_second, burst: rate.burst };
    Rates::new(front.tenant_rate.map(rate), front.principal_rate.map(rate))
}

/// Looks at incomplete work before anything is taken, for a bounded time: what is left then goes on
/// in the background. A store that fails meanwhile fails the start.
async fn sweep_at_start(
    tasks: &TaskTracker,
    service: &Arc<Service>,
    principal: Name,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let (first, done) = tokio::sync::oneshot::channel();
    tasks.spawn(Arc::clone(service).run_startup_sweep(principal, stop.clone(), first));
    match tokio::time::timeout(Duration::from_secs(limits::RECOVERY_START_SECONDS), done).await {
        Ok(Ok(Err(error))) => Err(AppError::Recovery(error)),
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Err(_)) => Err(AppError::Ended("the recovery sweep")),
        Err(_) => {
            tracing::warn!("there is much incomplete work: the recovery sweep goes on in the background");
            Ok(())
        }
    }
}

fn spawn_upkeep(tasks: &TaskTracker, metrics: PrometheusHandle, stop: &CancellationToken) {
    let stop = stop.clone();
    tasks.spawn(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(Duration::from_secs(5)) => metrics.run_upkeep(),
            }
        }
    });
}
