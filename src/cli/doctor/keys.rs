//! Keys: of tokens, of aliases, of evidence.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Findings;
use crate::auth::{Key, probe_key_set};
use crate::config::Config;
use crate::domain::data_key::{key_id, key_name};
use crate::service::aliases::Keyring;
use crate::service::rotation::key_of;
use crate::store::inspect::Inspection;
use crate::store::migrate::Level;
use crate::store::seals::SealedStart;

pub(super) fn judge(config: &Config, inspection: Option<&Inspection>, findings: &mut Findings) {
    let keys = &config.auth.keys;
    if !keys.is_empty() {
        let signing = keys.iter().filter(|key| Key::signing(key).is_some()).count();
        let finding = format!("{} configured, {signing} of them can sign", keys.len());
        findings.ok("token_keys", finding, "tokens can be verified without asking anybody");
    }
    if config.dev {
        let advice =
            ("the keys lie beside the data, and a token with all rights is shown", "leave out --dev in a deployment");
        findings.warn("token_keys", "the service is only tried out (--dev)", advice);
    }
    match config.evidence_key {
        Some(_) => findings.ok("evidence_key", "there is one", "checkpoints and evidence are signed"),
        None => {
            let advice = (
                "no checkpoints are made: a journal that was removed or hashed anew is not noticed",
                "set ACTONCE_EVIDENCE_KEY_FILE, and keep its public key elsewhere",
            );
            findings.warn("evidence_key", "there is none", advice);
        }
    }
    aliases(config, inspection, findings);
    data_keys(config, inspection, findings);
}

fn aliases(config: &Config, inspection: Option<&Inspection>, findings: &mut Findings) {
    let ring = config.alias_keys.iter().map(|key| (key.id.clone(), *key.key.expose())).collect();
    let Some(ring) = Keyring::new(ring) else {
        let advice = (
            "requests that need an alias are refused with aliases-unavailable",
            "set ACTONCE_ALIAS_KEYS where aliases are used",
        );
        return findings.warn("alias_keys", "there is no keyring", advice);
    };
    // The key that `--dev` makes is on no record.
    let known = inspection.filter(|_| !config.has_dev_alias_key()).map(|found| found.alias_keys.as_slice());
    let before = findings.0.len();
    for (id, fingerprint) in ring.fingerprints() {
        let record = known.unwrap_or_default().iter().find(|(known, ..)| *known == id);
        let advice = ("the service does not start", "give the key an id that was never used");
        match record {
            Some((_, _, true)) => findings.fail("alias_keys", format!("the id {id} was retired"), advice),
            Some((_, found, false)) if found.as_slice() != fingerprint => {
                findings.fail("alias_keys", format!("the id {id} stands for another key"), advice);
            }
            _ => {}
        }
    }
    if findings.0.len() == before {
        let finding = format!("{} in the keyring", config.alias_keys.len());
        findings.ok("alias_keys", finding, "aliases can be made and recognised");
    }
}

/// What the database has sealed, by the key that it names. What it has of more rows than are looked at, the rotation says.
fn data_keys(config: &Config, inspection: Option<&Inspection>, findings: &mut Findings) {
    // A data key that `--dev` would only make now is stood for by zeros.
    let Some(found) = inspection.filter(|found| found.schema == Level::Current) else { return };
    let others = || config.other_data_keys.iter().map(|key| key_id(key.expose()));
    let active = key_id(config.data_key.expose());
    let (mut now, mut before, mut nobody) = (0, BTreeMap::new(), BTreeMap::new());
    for SealedStart { table, start, rows } in &found.sealed {
        let counts = match key_of(*table, start) {
            Some(id) if id == active => &mut now,
            Some(id) if others().any(|other| other == id) => before.entry(key_name(id)).or_default(),
            found => nobody.entry(found.map_or_else(|| "unknown".to_owned(), key_name)).or_default(),
        };
        *counts = rows.saturating_add(*counts);
    }
    let told = |counts: &BTreeMap<String, u64>| {
        counts.iter().map(|(id, rows)| format!("{rows} under {id}")).collect::<Vec<_>>().join(", ")
    };
    if !nobody.is_empty() {
        let advice = (
            "retained arguments can't be read, or calls and messages can't be signed",
            "put the key of that id back into the ring: ACTONCE_DATA_KEY or ACTONCE_DATA_KEY_FILE",
        );
        let finding = format!("sealed rows under keys that are not in the ring: {}", told(&nobody));
        findings.fail("data_key", finding, advice);
    }
    if !before.is_empty() {
        let advice = (
            "the key that is active is not the one that they need",
            "run `actonce rotate-data-key` once all replicas have the same active key",
        );
        findings.warn("data_key", format!("sealed rows under other keys of the ring: {}", told(&before)), advice);
    }
    if nobody.is_empty() && before.is_empty() {
        let finding =
            format!("{now} sealed rows under {}, {} keys in the ring", key_name(active), others().count() + 1);
        findings.ok("data_key", finding, "what is sealed can be opened with the active key alone");
    }
}

/// Reads the issuer's key set once.
pub(super) async fn key_set(config: &Config, bound: Duration) -> Findings {
    let mut findings = Findings::default();
    let Some(settings) = &config.auth.key_set else { return findings };
    let found = match tokio::time::timeout(bound, probe_key_set(settings)).await {
        Ok(found) => found.map_err(|error| error.to_string()),
        Err(_) => Err("no answer in time".to_owned()),
    };
    match found {
        Ok(count) => {
            findings.ok("key_set", format!("{count} keys can be used"), "tokens of the issuer can be verified");
        }
        Err(fault) => {
            let fault = format!("it can't be read: {fault}");
            let action = "see that the issuer can be reached from here and answers a key set";
            if config.auth.keys.is_empty() {
                findings.fail("key_set", fault, ("no token can be verified: requests get 503", action));
            } else {
                findings.warn("key_set", fault, ("only tokens of the configured keys can be verified", action));
            }
        }
    }
    findings
}
