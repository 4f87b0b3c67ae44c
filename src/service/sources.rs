//! Registration of receipt sources.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;

use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::fault::Fault;
use crate::domain::ids::{Name, Tenant, check_name};
use crate::domain::source::SourceSpec;
use crate::limits;
use crate::service::ports::AdapterSecrets as _;
use crate::store::receipts::{SourceDeleted, SourceRow, SourceWrite};
use crate::support::random_id;
use crate::telemetry::probe;

/// What the secrets of sources are sealed for.
pub(super) const SEAL_DOMAIN: &str = "receipt source secrets v1";
/// How the address of a source begins.
const ADDRESS_PREFIX: &str = "rs_";

/// A source as registered.
#[derive(Debug)]
pub struct Source {
    /// As stored.
    pub row: SourceRow,
    /// The registration.
    pub spec: SourceSpec,
    /// Secrets that are kept here.
    pub secret_count: usize,
}

/// A source after a change, and whether it is new.
#[derive(Debug)]
pub struct SourceChanged {
    /// The source as it is now.
    pub source: Source,
    /// Whether the name was free before.
    pub created: bool,
}

impl Source {
    /// What stands for the source in the path of a signed delivery.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{ADDRESS_PREFIX}{}", self.row.source_id.simple())
    }
}

/// The id in an address.
pub(super) fn id_of(address: &str) -> Option<Uuid> {
    let digits = address.strip_prefix(ADDRESS_PREFIX).filter(|digits| digits.len() == 32)?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.bytes().all(is_digit).then(|| Uuid::try_parse(digits).ok()).flatten()
}

impl Service {
    /// Registers a source, or changes its registration. An equal registration changes nothing.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn put_source(
        &self,
        caller: &Principal,
        name: &Name,
        spec: SourceSpec,
        expected_revision: Option<u32>,
    ) -> Result<SourceChanged, ServiceError> {
        if check_name(name.as_str(), limits::RECEIPT_SOURCE_NAME_BYTES).is_err() {
            return Err(ServiceError::invalid("path:name", "must be at most 128 bytes"));
        }
        let faults = spec.faults();
        if !faults.is_empty() {
            return Err(ServiceError::Invalid(faults));
        }
        if let Some(reference) = &spec.secret_ref
            && self.named_secrets(&caller.tenant, reference).iter().all(|secret| spec.scheme.secret(secret).is_none())
        {
            let reason = "is not a secret of the configuration that the scheme could use";
            return Err(ServiceError::invalid("/secret_ref", reason));
        }
        let text = serde_json::to_string(&spec).map_err(|_| ServiceError::Internal("a source can't be serialized"))?;
        if text.len() > limits::RECEIPT_SOURCE_BYTES {
            return Err(ServiceError::Invalid(vec![Fault::new("", "must be at most 16384 bytes in all")]));
        }
        for _ in 0..limits::COMMIT_RETRIES {
            let row = probe::read(self.engine().store().receipt_source(&caller.tenant, name)).await?;
            check_revision(row.as_ref(), expected_revision)?;
            if row.is_none() {
                self.check_room(caller).await?;
            }
            let kept = self.secrets_after(&spec, row.as_ref())?;
            let before = row.as_ref().map(|row| self.sealed_secrets(row)).transpose()?.flatten();
            if let Some(row) = &row
                && row.spec == text
                && before == kept
            {
                return Ok(SourceChanged { source: self.source_of(row.clone())?, created: false });
            }
            let created = row.is_none();
            let source_id = row.as_ref().map_or_else(random_id, |row| row.source_id);
            let changed = SourceRow {
                tenant: caller.tenant.clone(),
                name: name.clone(),
                source_id,
                revision: row.map_or(0, |row| row.revision).saturating_add(1),
                spec: text.clone(),
                secrets: kept.map(|secrets| self.seal_secrets(caller, source_id, &secrets)).transpose()?,
                changed_at: self.engine().clock().now(),
            };
            let write = SourceWrite { row: changed.clone(), by: caller.subject.clone() };
            if probe::write(self.engine().store().write_receipt_source(&write)).await? {
                self.inbound.wake.notify_one();
                return Ok(SourceChanged { source: self.source_of(changed)?, created });
            }
        }
        Err(ServiceError::Capacity("the source is changed by too many at once"))
    }

    async fn check_room(&self, caller: &Principal) -> Result<(), ServiceError> {
        let most = u32::try_from(limits::RECEIPT_SOURCES).unwrap_or(u32::MAX);
        let known = probe::read(self.engine().store().receipt_sources(&caller.tenant, None, most)).await?;
        if known.len() >= limits::RECEIPT_SOURCES {
            return Err(ServiceError::ToolConflict("this tenant has 100 receipt sources already"));
        }
        Ok(())
    }

    /// The secrets that the source has after the change.
    fn secrets_after(&self, spec: &SourceSpec, row: Option<&SourceRow>) -> Result<Option<Vec<String>>, ServiceError> {
        if spec.secret_ref.is_some() {
            return Ok(None);
        }
        if let Some(secrets) = &spec.secrets {
            return Ok(Some(secrets.iter().map(|secret| secret.expose().to_owned()).collect()));
        }
        let known = row.map(|row| self.sealed_secrets(row)).transpose()?.flatten();
        let known = known.ok_or_else(|| ServiceError::invalid("/secrets", "is required, or a `secret_ref`"))?;
        if known.iter().any(|secret| spec.scheme.secret(secret).is_none()) {
            let reason = "must be given again: the scheme reads them in another way than before";
            return Err(ServiceError::invalid("/secrets", reason));
        }
        Ok(Some(known))
    }

    /// The values of a secret of the configuration that this tenant may name.
    fn named_secrets(&self, tenant: &Tenant, name: &str) -> Vec<String> {
        self.secrets.named(tenant, name).unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    fn seal_secrets(&self, caller: &Principal, source_id: Uuid, secrets: &[String]) -> Result<String, ServiceError> {
        let text = serde_json::to_vec(secrets).map_err(|_| ServiceError::Internal("secrets can't be serialized"))?;
        let owner = [caller.tenant.as_str(), &source_id.to_string()];
        let sealed = self.sealer.seal(SEAL_DOMAIN, &owner, &text);
        sealed.map(|sealed| STANDARD.encode(sealed)).map_err(|_| ServiceError::Internal("secrets can't be sealed"))
    }

    fn sealed_secrets(&self, row: &SourceRow) -> Result<Option<Vec<String>>, ServiceError> {
        let Some(sealed) = &row.secrets else { return Ok(None) };
        let owner = [row.tenant.as_str(), &row.source_id.to_string()];
        let sealed = STANDARD.decode(sealed).unwrap_or_default();
        let text = self.sealer.open(SEAL_DOMAIN, &owner, &sealed);
        let secrets = text.ok().and_then(|text| serde_json::from_slice(&text).ok());
        secrets.map(Some).ok_or(ServiceError::Internal("the secrets of a source can't be opened with this data key"))
    }

    /// The secrets of a source as they were given.
    pub(super) fn secret_texts(&self, source: &Source) -> Result<Vec<String>, ServiceError> {
        match &source.spec.secret_ref {
            Some(reference) => Ok(self.named_secrets(&source.row.tenant, reference)),
            None => Ok(self.sealed_secrets(&source.row)?.unwrap_or_default()),
        }
    }

    /// The bytes of the secrets that a delivery may be signed with.
    pub(super) fn signing_secrets(&self, source: &Source) -> Result<Vec<Vec<u8>>, ServiceError> {
        let texts = self.secret_texts(source)?;
        if texts.is_empty() {
            tracing::warn!(source = %source.row.name, "a receipt source has no secret here");
        }
        Ok(texts.iter().filter_map(|text| source.spec.scheme.secret(text)).collect())
    }

    pub(super) fn source_of(&self, row: SourceRow) -> Result<Source, ServiceError> {
        let spec: SourceSpec = serde_json::from_str(&row.spec).map_err(|_| crate::store::Corruption {
            table: "receipt_sources",
            column: "spec",
            key: row.name.as_str().to_owned(),
        })?;
        let secret_count = self.sealed_secrets(&row)?.map_or(0, |secrets| secrets.len());
        Ok(Source { row, spec, secret_count })
    }

    /// A source as registered now.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn source(&self, caller: &Principal, name: &Name) -> Result<Source, ServiceError> {
        let row = probe::read(self.engine().store().receipt_source(&caller.tenant, name)).await?;
        self.source_of(row.ok_or(ServiceError::NotFound)?)
    }

    /// Sources by name.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn sources(
        &self,
        caller: &Principal,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<Source>, Option<String>), ServiceError> {
        let list = "receipt sources";
        let after = self.place_after(caller, list, cursor, |name| Name::new(name).ok())?;
        let store = self.engine().store();
        let mut rows =
            probe::read(store.receipt_sources(&caller.tenant, after.as_ref(), limit.saturating_add(1))).await?;
        let next = self.cut_to_page(caller, list, &mut rows, limit, |row| row.name.to_string());
        Ok((rows.into_iter().map(|row| self.source_of(row)).collect::<Result<_, _>>()?, next))
    }

    /// Deletes a source of which nothing waits in quarantine. Its address is never given out again.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn delete_source(
        &self,
        caller: &Principal,
        name: &Name,
        expected_revision: Option<u32>,
    ) -> Result<(), ServiceError> {
        for _ in 0..limits::COMMIT_RETRIES {
            let store = self.engine().store();
            let row = probe::read(store.receipt_source(&caller.tenant, name)).await?.ok_or(ServiceError::NotFound)?;
            check_revision(Some(&row), expected_revision)?;
            match probe::write(store.delete_receipt_source(&caller.tenant, name, row.revision)).await? {
                SourceDeleted::Applied => return Ok(()),
                SourceDeleted::InUse => {
                    let reason = "deliveries of this source wait in quarantine: attach or discard them first";
                    return Err(ServiceError::ToolConflict(reason));
                }
                SourceDeleted::Lost => {}
            }
        }
        Err(ServiceError::Capacity("the source is changed by too many at once"))
    }
}

fn check_revision(row: Option<&SourceRow>, expected: Option<u32>) -> Result<(), ServiceError> {
    let found = row.map_or(0, |row| row.revision);
    match expected {
        Some(expected) if expected != found => Err(ServiceError::StaleSource { found }),
        _ => Ok(()),
    }
}
