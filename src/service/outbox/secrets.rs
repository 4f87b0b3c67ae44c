//! The secrets of subscriptions: sealed at rest, shown once, replaced with an overlap.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::domain::time::Timestamp;
use crate::service::ports::SigningSecret;
use crate::service::{Service, ServiceError};
use crate::store::subscriptions::{SubscriptionKey, SubscriptionRow};
use crate::support::random_bytes;

/// What they are sealed for.
pub(in crate::service) const SEAL_DOMAIN: &str = "subscription secrets v1";

/// A secret as it is sealed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    secret: String,
    /// When it stops to sign; the current one does not.
    until: Option<Timestamp>,
}

impl Kept {
    pub(super) fn new(secret: &SigningSecret) -> Self {
        Self { secret: secret.text(), until: None }
    }

    pub(super) fn until(self, until: Timestamp) -> Self {
        Self { until: Some(until), ..self }
    }
}

/// A new secret.
pub(super) fn make() -> Result<SigningSecret, ServiceError> {
    let bytes: [u8; 32] = random_bytes().map_err(|_| ServiceError::Internal("there is no randomness"))?;
    Ok(SigningSecret::of(bytes.to_vec()))
}

impl Service {
    pub(super) fn seal_kept(&self, key: &SubscriptionKey, kept: &[Kept]) -> Result<String, ServiceError> {
        let text = serde_json::to_vec(kept).map_err(|_| ServiceError::Internal("secrets can't be serialized"))?;
        let sealed = self.sealer.seal(SEAL_DOMAIN, &[key.tenant.as_str(), &key.id.to_string()], &text);
        sealed.map(|sealed| STANDARD.encode(sealed)).map_err(|_| ServiceError::Internal("secrets can't be sealed"))
    }

    pub(super) fn kept_secrets(&self, row: &SubscriptionRow) -> Result<Vec<Kept>, ServiceError> {
        let sealed = STANDARD.decode(&row.secrets).unwrap_or_default();
        let text = self.sealer.open(SEAL_DOMAIN, &[row.tenant.as_str(), &row.id.to_string()], &sealed);
        let kept = text.ok().and_then(|text| serde_json::from_slice(&text).ok());
        kept.ok_or(ServiceError::Internal("the secrets of a subscription can't be opened with this data key"))
    }

    /// The secrets of a row that is written again. A change of the data key may seal them anew between the read and the
    /// write: whatever was read, what goes back is under the active key, where it can be opened at all.
    pub(super) fn sealed_again(&self, row: &SubscriptionRow) -> String {
        let again = self.kept_secrets(row).and_then(|kept| self.seal_kept(&row.key(), &kept));
        again.unwrap_or_else(|_| row.secrets.clone())
    }

    /// What messages are signed with now, the newest first.
    pub(super) fn subscription_secrets(&self, row: &SubscriptionRow) -> Result<Vec<SigningSecret>, ServiceError> {
        let now = self.engine().clock().now();
        let kept = self.kept_secrets(row)?;
        let good = kept.iter().filter(|kept| kept.until.is_none_or(|until| until > now));
        Ok(good.filter_map(|kept| SigningSecret::parse(&kept.secret).ok()).collect())
    }
}
