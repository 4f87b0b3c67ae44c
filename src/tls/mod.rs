//! TLS of the service's own: a certificate and its key from files, which are read again when they change.

mod expiry;

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use serde::Serialize;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::limits;

/// Where certificate and key are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TlsFiles {
    /// The certificate, and those between it and the root (PEM).
    pub certificate: PathBuf,
    /// Its private key (PEM).
    pub key: PathBuf,
}

/// Why the files can't be used. It names files and never shows what is in them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    /// A file can't be read.
    #[error("{} can't be read: {why}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file has not what it should have.
    #[error("{} {what}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// Key and certificate are not of one pair.
    #[error("{} is not the key of the certificate in {}", key.display(), certificate.display())]
    Pair {
        /// The key's file.
        key: PathBuf,
        /// The certificate's.
        certificate: PathBuf,
    },
    /// The library refuses.
    #[error("TLS can't be set up: {0}")]
    Library(String),
}

/// The content of both files.
#[derive(Clone, PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFault> {
    let unreadable = |why: String| TlsFault::Unreadable { path: path.to_owned(), why };
    let most = limits::TLS_FILE_BYTES;
    let file = std::fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let mut bytes = Vec::new();
    let bound = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    file.take(bound).read_to_end(&mut bytes).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() > most { Err(unreadable(format!("it is larger than {most} bytes"))) } else { Ok(bytes) }
}

impl TlsFiles {
    fn read(&self) -> Result<Content, TlsFault> {
        Ok(Content { certificate: read(&self.certificate)?, key: read(&self.key)? })
    }

    fn pair(&self, content: &Content) -> Result<Pair, TlsFault> {
        let fault = |path: &Path, what| TlsFault::Content { path: path.to_owned(), what };
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(&content.certificate).collect();
        let chain = chain.map_err(|_| fault(&self.certificate, "is not PEM"))?;
        let Some(leaf) = chain.first() else {
            return Err(fault(&self.certificate, "has no certificate (PEM, `BEGIN CERTIFICATE`)"));
        };
        let expires_at = expiry::not_after(leaf.as_ref())
            .ok_or_else(|| fault(&self.certificate, "has a certificate that can't be read"))?;
        let key = PrivateKeyDer::from_pem_slice(&content.key)
            .map_err(|_| fault(&self.key, "has no private key (PEM, `BEGIN PRIVATE KEY`)"))?;
        let provider = default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                TlsFault::Pair { key: self.key.clone(), certificate: self.certificate.clone() }
            }
            rustls::Error::InvalidCertificate(_) => fault(&self.certificate, "has a certificate that can't be used"),
            _ => fault(&self.key, "has a private key that can't be used"),
        })?;
        Ok(Pair { certified: Arc::new(certified), expires_at })
    }

    /// Whether they could be used; the end of the certificate in seconds since 1970.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self) -> Result<i64, TlsFault> {
        Ok(self.pair(&self.read()?)?.expires_at)
    }

    /// Whether everybody on this machine may read the key.
    #[must_use]
    pub fn key_is_open(&self) -> bool {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(&self.key).is_ok_and(|found| found.permissions().mode() & 0o007 != 0)
    }
}

#[derive(Clone)]
struct Pair {
    certified: Arc<CertifiedKey>,
    expires_at: i64,
}

/// What is shown to clients now.
struct Shown(RwLock<Arc<CertifiedKey>>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// TLS with what the files have, as long as that is good.
pub struct Tls {
    files: TlsFiles,
    shown: Arc<Shown>,
    acceptor: TlsAcceptor,
    first: Content,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// They can't be used.
    pub fn start(files: TlsFiles) -> Result<Self, TlsFault> {
        let first = files.read()?;
        let pair = files.pair(&first)?;
        told(&pair);
        warn_of_an_open_key(&files);
        let shown = Arc::new(Shown(RwLock::new(pair.certified)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| TlsFault::Library(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::<Shown>::clone(&shown));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        metrics::counter!("actonce_tls_reloads_total", "result" => "taken").increment(0);
        metrics::counter!("actonce_tls_reloads_total", "result" => "refused").increment(0);
        metrics::gauge!("actonce_tls_files_refused").set(0.0);
        Ok(Self { files, shown, acceptor: TlsAcceptor::from(Arc::new(config)), first })
    }

    /// What takes connections.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// Looks at the files again and again. A new pair that is good is shown to whoever connects from then on; with one that
    /// is not, the former one stays.
    pub async fn watch(self, stop: CancellationToken) {
        let mut last = Ok(self.first.clone());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(Duration::from_secs(limits::TLS_LOOK_SECONDS)) => {}
            }
            let files = self.files.clone();
            let Ok(found) = tokio::task::spawn_blocking(move || files.read()).await else { continue };
            if found != last {
                self.take(found.as_ref());
                last = found;
            }
        }
    }

    fn take(&self, found: Result<&Content, &TlsFault>) {
        match found.map_err(TlsFault::clone).and_then(|content| self.files.pair(content)) {
            Ok(pair) => {
                *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&pair.certified);
                metrics::counter!("actonce_tls_reloads_total", "result" => "taken").increment(1);
                metrics::gauge!("actonce_tls_files_refused").set(0.0);
                tracing::info!(expires_at = pair.expires_at, "a new certificate is shown");
                told(&pair);
                warn_of_an_open_key(&self.files);
            }
            Err(fault) => {
                metrics::counter!("actonce_tls_reloads_total", "result" => "refused").increment(1);
                metrics::gauge!("actonce_tls_files_refused").set(1.0);
                tracing::error!(%fault, "the new certificate or key can't be used; the former ones stay");
            }
        }
    }
}

fn told(pair: &Pair) {
    #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "a time in seconds is far below 2^53")]
    metrics::gauge!("actonce_tls_certificate_expires_seconds").set(pair.expires_at as f64);
}

fn warn_of_an_open_key(files: &TlsFiles) {
    if files.key_is_open() {
        tracing::warn!(file = %files.key.display(), "everybody on this machine may read the private key (chmod o= helps)");
    }
}
