//! The secrets of tools: those that are stored, sealed, and those that the configuration names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::ServiceError;
use super::ports::{AdapterSecrets, DatabaseTime, SigningSecret};
use super::redact::KnownSecrets;
use super::seal::Sealer;
use crate::domain::adapter::{AdapterSpec, NoAnswer, WriteOnly};
use crate::domain::declarative::DeclarativeSpec;
use crate::domain::ids::{Name, Tenant};
use crate::domain::tool::Tool;
use crate::limits;
use crate::store::{Store, StoreError, ToolSecretRow};

/// What the stored secrets are sealed for.
pub(super) const DOMAIN: &str = "tool secret";

/// A name, and the one tenant that it is for, or `None` for all.
pub type SecretKey = (Option<Tenant>, String);

/// The secrets of tools.
pub struct ToolSecrets {
    store: Arc<dyn Store>,
    sealer: Arc<Sealer>,
    time: Arc<dyn DatabaseTime>,
    named: BTreeMap<SecretKey, Vec<Box<str>>>,
}

impl fmt::Debug for ToolSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolSecrets").field("named", &self.named.keys()).finish_non_exhaustive()
    }
}

impl ToolSecrets {
    /// Stored secrets, and those that the configuration names, the newest value of each first.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        sealer: Arc<Sealer>,
        time: Arc<dyn DatabaseTime>,
        named: BTreeMap<SecretKey, Vec<Box<str>>>,
    ) -> Self {
        Self { store, sealer, time, named }
    }

    /// Whether a tenant may name a secret of the configuration, and sign with it where it has to.
    pub(super) fn check_named(&self, tenant: &Tenant, name: &str, signs: bool) -> Result<(), &'static str> {
        let values = self.named(tenant, name).ok_or("is not a secret that the configuration names")?;
        if signs && values.iter().any(|value| SigningSecret::parse(value).is_err()) {
            return Err("names a secret that is not `whsec_` and the base64 of 24 to 64 bytes");
        }
        Ok(())
    }

    /// The secret to be stored, sealed, when a tool is registered; `None` where what is there stays.
    pub(super) async fn change(
        &self,
        tenant: &Tenant,
        tool: &Name,
        adapter: Option<&AdapterSpec>,
        given: Option<&WriteOnly>,
    ) -> Result<Option<Vec<u8>>, ServiceError> {
        if !adapter.is_some_and(|adapter| adapter.url.is_some() && adapter.secret_ref.is_none()) {
            return Ok(None);
        }
        let rows = self.store.tool_secrets(tenant, tool).await?;
        let current = rows.iter().find(|row| row.retired_at.is_none()).and_then(|row| self.open(tenant, tool, row));
        match given {
            None if current.is_some() => Ok(None),
            None => Err(ServiceError::invalid("/adapter/secret", "is required, or a `secret_ref`")),
            Some(given) => {
                let secret = SigningSecret::parse(given.expose())
                    .map_err(|reason| ServiceError::invalid("/adapter/secret", reason))?;
                if current.as_ref() == Some(&secret) {
                    return Ok(None);
                }
                let associated = [tenant.as_str(), tool.as_str()];
                let sealed = self.sealer.seal(DOMAIN, &associated, secret.bytes());
                sealed.map(Some).map_err(|_| ServiceError::Internal("a secret can't be sealed"))
            }
        }
    }

    /// The lines of a named secret: of the tenant's own, or else of the one for all.
    fn lines(&self, tenant: &Tenant, name: &str) -> Option<&[Box<str>]> {
        let of_tenant = self.named.get(&(Some(tenant.clone()), name.to_owned()));
        of_tenant.or_else(|| self.named.get(&(None, name.to_owned()))).map(Vec::as_slice)
    }

    /// Opens a stored secret; `None`, and a line in the log, where it can't be opened.
    fn open(&self, tenant: &Tenant, tool: &Name, row: &ToolSecretRow) -> Option<SigningSecret> {
        match self.sealer.open(DOMAIN, &[tenant.as_str(), tool.as_str()], &row.sealed) {
            Ok(bytes) => Some(SigningSecret::of(bytes)),
            Err(error) => {
                tracing::error!(%error, number = row.number, "a stored secret of a tool is of no use");
                None
            }
        }
    }

    /// All that the adapter of a tool could know of secrets: what its webhooks are signed with, the former
    /// secret included, and what its requests carry.
    ///
    /// # Errors
    /// The store can't answer.
    pub async fn known(&self, tenant: &Tenant, tool: &Tool) -> Result<KnownSecrets, StoreError> {
        let mut known = KnownSecrets::default();
        let Some(adapter) = &tool.spec.adapter else { return Ok(known) };
        let sent = adapter.request.as_ref().map(DeclarativeSpec::secrets).unwrap_or_default();
        for name in adapter.secret_ref.iter().chain(&sent) {
            self.named(tenant, name).unwrap_or_default().iter().for_each(|value| known.add(value));
        }
        if adapter.url.is_some() && adapter.secret_ref.is_none() {
            let rows = self.store.tool_secrets(tenant, &tool.name).await?;
            rows.iter().filter_map(|row| self.open(tenant, &tool.name, row)).for_each(|secret| {
                known.add_signing(&secret);
            });
        }
        Ok(known)
    }

    /// The stored secrets that sign now: the newest, and the one before it for a while.
    async fn stored(&self, tenant: &Tenant, tool: &Name) -> Result<Vec<SigningSecret>, NoAnswer> {
        let rows = self.store.tool_secrets(tenant, tool).await.map_err(|error| unreadable(&error))?;
        let now = self.time.now();
        let signs = |row: &&ToolSecretRow| {
            row.retired_at.is_none_or(|retired| now < retired.plus_seconds(limits::SECRET_OVERLAP_SECONDS))
        };
        let valid = rows.iter().filter(signs).take(limits::TOOL_SECRETS);
        Ok(valid.filter_map(|row| self.open(tenant, tool, row)).collect())
    }
}

fn unreadable(error: &StoreError) -> NoAnswer {
    tracing::warn!(%error, "the secrets of a tool can't be read");
    NoAnswer::NoSecret
}

#[async_trait]
impl AdapterSecrets for ToolSecrets {
    async fn signing(&self, tenant: &Tenant, tool: &Tool) -> Result<Vec<SigningSecret>, NoAnswer> {
        let spec = tool.spec.adapter.as_ref().ok_or(NoAnswer::NoSecret)?;
        let secrets = match &spec.secret_ref {
            Some(name) => {
                let values = self.named(tenant, name).ok_or(NoAnswer::NoSecret)?;
                values.iter().filter_map(|value| SigningSecret::parse(value).ok()).collect()
            }
            None => self.stored(tenant, &tool.name).await?,
        };
        if secrets.is_empty() { Err(NoAnswer::NoSecret) } else { Ok(secrets) }
    }

    async fn known(&self, tenant: &Tenant, tool: &Tool) -> Result<KnownSecrets, NoAnswer> {
        Self::known(self, tenant, tool).await.map_err(|error| unreadable(&error))
    }

    fn named(&self, tenant: &Tenant, name: &str) -> Option<&[Box<str>]> {
        // Hosts stand behind the values.
        let lines = self.lines(tenant, name)?;
        lines.get(..lines.iter().position(|line| line.starts_with('@')).unwrap_or(lines.len()))
    }

    fn for_host(&self, tenant: &Tenant, host: &str, name: &str) -> Option<WriteOnly> {
        let hosts = self.lines(tenant, name)?.iter().filter_map(|line| line.strip_prefix('@'));
        let may = hosts.into_iter().any(|allowed| allowed.eq_ignore_ascii_case(host));
        let value = self.named(tenant, name)?.first().filter(|_| may)?;
        Some(WriteOnly::new(value))
    }
}
