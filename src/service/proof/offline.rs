//! Evidence checked with the public key alone: no service, no database.

use serde::Deserialize;

use super::bundle::{Bundle, CheckpointFacts, FORMAT, TYP, decisions};
use super::checkpoint::{self, Checkpoint, leaf};
use super::merkle;
use super::signer::{PublicKeys, Signed};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::journal::{GENESIS, entry_hash};
use crate::domain::state::State;

/// What a check came to.
#[derive(Debug)]
pub struct Checked {
    /// What was signed, where it could be read.
    pub bundle: Option<Bundle>,
    /// Everything that is wrong; nothing where the evidence holds.
    pub faults: Vec<String>,
}

/// What an entry says that the bundle says too.
#[derive(Deserialize)]
struct Said {
    revision: u32,
    state: State,
    #[serde(default)]
    intent_digest: Option<String>,
    #[serde(default)]
    receipt_digest: Option<String>,
    #[serde(default)]
    result_digest: Option<String>,
}

/// Checks a file: a JSON Web Signature in flattened JSON or compact form.
#[must_use]
pub fn check(text: &str, keys: &PublicKeys) -> Checked {
    let only = |fault: &str| Checked { bundle: None, faults: vec![fault.to_owned()] };
    let signed = serde_json::from_str(text).ok().or_else(|| Signed::parse(text));
    let Some(signed) = signed else { return only("this is no signed evidence") };
    let payload = match keys.open(TYP, &signed) {
        Ok(payload) => payload,
        Err(fault) => return only(fault),
    };
    let Ok(bundle) = serde_json::from_slice::<Bundle>(&payload) else {
        return only("what is signed is no evidence of a form that this program knows");
    };
    let mut faults = Vec::new();
    check_bundle(&bundle, keys, &mut faults);
    Checked { bundle: Some(bundle), faults }
}

fn check_bundle(bundle: &Bundle, keys: &PublicKeys, faults: &mut Vec<String>) {
    if bundle.format != FORMAT {
        faults.push(format!("the evidence has the form {}, not {FORMAT}", bundle.format));
    }
    let names = Tenant::new(&bundle.tenant).ok().zip(Name::new(&bundle.operation_id).ok());
    let Some(key) = names.map(|(tenant, operation_id)| EffectKey::of(&tenant, &operation_id)) else {
        faults.push("the tenant or the operation id is none".to_owned());
        return;
    };
    if key.effect != bundle.effect_id {
        faults.push("the effect id is not the one of this tenant and operation id".to_owned());
    }
    let said = check_chain(bundle, &key, faults);
    check_facts(bundle, &said, faults);
    if let Some(facts) = &bundle.checkpoint
        && let Err(fault) = check_checkpoint(bundle, facts, &key, keys)
    {
        faults.push(fault.to_owned());
    }
}

/// Every hash anew, from the bytes of the entries.
fn check_chain(bundle: &Bundle, key: &EffectKey, faults: &mut Vec<String>) -> Vec<Said> {
    let mut previous = GENESIS;
    let mut said = Vec::with_capacity(bundle.journal.len());
    for (expected, entry) in (1_u32..).zip(&bundle.journal) {
        let revision = entry.revision;
        if revision != expected {
            faults.push(format!("entry {expected} is not there: {revision} stands in its place"));
        }
        if entry.prev_hash != hex::encode(previous) {
            faults.push(format!("entry {revision} does not continue the one before it"));
        }
        let hash = entry_hash(key, revision, &previous, &entry.entry);
        if entry.hash != hex::encode(hash) {
            faults.push(format!("entry {revision} is not what was hashed"));
        }
        // From here on by what is stated, so that one fault is told once.
        previous = hex::decode(&entry.hash).ok().and_then(|hash| hash.try_into().ok()).unwrap_or(hash);
        match serde_json::from_str::<Said>(&entry.entry) {
            Ok(one) if one.revision == revision => said.push(one),
            Ok(_) | Err(_) => faults.push(format!("entry {revision} can't be read, or is another one's")),
        }
    }
    said
}

/// What the bundle says beside the journal is what the journal says.
fn check_facts(bundle: &Bundle, said: &[Said], faults: &mut Vec<String>) {
    let at = |revision: u32| said.iter().find(|one| one.revision == revision);
    match said.last() {
        Some(last) if last.revision == bundle.revision && last.state == bundle.state => {}
        _ => faults.push("state and revision are not those of the newest entry".to_owned()),
    }
    if at(1).is_none_or(|first| first.intent_digest.is_none()) {
        faults.push("the first entry covers no intent".to_owned());
    }
    if let Some(receipt) = &bundle.receipt
        && at(receipt.revision).and_then(|one| one.receipt_digest.as_ref()) != Some(&receipt.digest)
    {
        faults.push("the receipt's digest is not the one that its entry covers".to_owned());
    }
    if let Some(result) = bundle.result.as_ref().filter(|result| !result.truncated)
        && at(result.revision).and_then(|one| one.result_digest.as_ref()) != Some(&result.digest)
    {
        faults.push("the result's digest is not the one that its entry covers".to_owned());
    }
    if decisions(&bundle.journal) != bundle.decisions {
        faults.push("the operators' decisions are not those that the journal tells of".to_owned());
    }
}

fn check_checkpoint(
    bundle: &Bundle,
    facts: &CheckpointFacts,
    key: &EffectKey,
    keys: &PublicKeys,
) -> Result<(), &'static str> {
    let signed = Signed::parse(&facts.jws).ok_or("the checkpoint can't be read")?;
    keys.open(checkpoint::TYP, &signed).map_err(|_| "the checkpoint's signature does not hold for this key")?;
    let (document, _) = Checkpoint::read(&facts.jws).ok_or("the checkpoint can't be read")?;
    if document.tenant != bundle.tenant {
        return Err("the checkpoint is another tenant's");
    }
    let named = bundle.journal.iter().find(|entry| entry.revision == facts.revision);
    let hash = named.and_then(|entry| hex::decode(&entry.hash).ok()).and_then(|hash| hash.try_into().ok());
    let hash = hash.ok_or("the checkpoint names an entry that is not there")?;
    let path: Option<Vec<merkle::Hash>> =
        facts.path.iter().map(|hash| hex::decode(hash).ok()?.try_into().ok()).collect();
    let leaves = usize::try_from(document.leaves).unwrap_or(usize::MAX);
    let leaf = leaf(key.effect, facts.revision, &hash);
    let root = path.and_then(|path| merkle::root_of(&leaf, facts.index, leaves, &path));
    if root.map(hex::encode).as_ref() != Some(&document.root) {
        return Err("the checkpoint does not cover this journal");
    }
    Ok(())
}
