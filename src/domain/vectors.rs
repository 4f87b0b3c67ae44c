//! Golden vectors (`tests/data/digest-vectors.json`) of every digest that stored data depends on, and
//! a comparison with another implementation of RFC 8785.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::canonical::{ALGORITHM, Canonical};
use super::ids::{EffectKey, Name, Tenant};
use super::journal::entry_hash;

#[derive(Deserialize)]
struct Vectors {
    algorithm: String,
    canonical: Vec<Vector>,
    same: Vec<Group>,
    different: Vec<Group>,
    refused: Vec<Refused>,
    effect_keys: Vec<Key>,
    entry_hashes: Vec<Hashed>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    json: String,
    canonical: String,
    digest: String,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    json: Vec<String>,
}

#[derive(Deserialize)]
struct Refused {
    name: String,
    json: String,
}

#[derive(Deserialize)]
struct Key {
    tenant: String,
    operation_id: String,
    effect: String,
}

#[derive(Deserialize)]
struct Hashed {
    tenant: String,
    operation_id: String,
    revision: u32,
    prev_hash: String,
    entry: String,
    hash: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../tests/data/digest-vectors.json")).unwrap()
}

fn canonical(text: &str) -> Canonical {
    Canonical::of(&serde_json::from_str::<Box<RawValue>>(text).unwrap()).unwrap()
}

fn key_of(tenant: &str, operation_id: &str) -> EffectKey {
    EffectKey::of(&Tenant::new(tenant).unwrap(), &Name::new(operation_id).unwrap())
}

#[test]
fn canonical_texts_and_digests_are_what_they_were() {
    let vectors = vectors();
    assert_eq!(vectors.algorithm, ALGORITHM, "another algorithm needs another name and its own vectors");
    assert!(vectors.canonical.len() >= 35);
    for Vector { name, json, canonical: expected, digest } in vectors.canonical {
        let found = canonical(&json);
        assert_eq!(found.text(), expected, "{name}");
        assert_eq!(found.digest().as_str(), digest, "{name}");
        assert_eq!(canonical(&expected).text(), expected, "{name}: canonical text is canonical");
    }
}

#[test]
fn what_is_the_same_shares_a_digest_and_nothing_else_does() {
    for Group { name, json } in vectors().same {
        let digests: Vec<_> = json.iter().map(|text| canonical(text).digest()).collect();
        assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{name}");
    }
    for Group { name, json } in vectors().different {
        let digests: std::collections::HashSet<_> = json.iter().map(|text| canonical(text).digest()).collect();
        assert_eq!(digests.len(), json.len(), "{name}");
    }
}

#[test]
fn what_has_no_canonical_text_is_refused() {
    for Refused { name, json } in vectors().refused {
        let raw: Box<RawValue> = serde_json::from_str(&json).unwrap();
        assert!(Canonical::of(&raw).is_err(), "{name}");
    }
}

#[test]
fn effect_keys_are_what_they_were() {
    for Key { tenant, operation_id, effect } in vectors().effect_keys {
        assert_eq!(key_of(&tenant, &operation_id).effect.to_string(), effect, "{tenant} {operation_id}");
    }
}

#[test]
fn entry_hashes_are_what_they_were_and_depend_on_every_part() {
    for Hashed { tenant, operation_id, revision, prev_hash, entry, hash } in vectors().entry_hashes {
        let key = key_of(&tenant, &operation_id);
        let prev: [u8; 32] = hex::decode(&prev_hash).unwrap().try_into().unwrap();
        let found = entry_hash(&key, revision, &prev, &entry);
        assert_eq!(hex::encode(found), hash);
        let mut other_prev = prev;
        other_prev[31] ^= 1;
        for other in [
            entry_hash(&key_of("other", &operation_id), revision, &prev, &entry),
            entry_hash(&key_of(&tenant, "other"), revision, &prev, &entry),
            entry_hash(&key, revision + 1, &prev, &entry),
            entry_hash(&key, revision, &other_prev, &entry),
            entry_hash(&key, revision, &prev, &format!("{entry} ")),
        ] {
            assert_ne!(found, other);
        }
    }
}

/// Any JSON without NUL and without integers that a double can't hold.
fn json() -> impl Strategy<Value = Value> {
    let text = || any::<String>().prop_map(|text| text.replace('\0', "0"));
    let exact = -(1_i64 << 53)..=(1_i64 << 53);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        exact.prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof![Just(0.0), Just(-0.0), Just(1e21), Just(1e-7), Just(f64::MAX), Just(f64::MIN_POSITIVE)]
            .prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000, rng_seed: RngSeed::Fixed(20_260_101), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn another_implementation_of_the_rfc_agrees(value in json()) {
        let expected = serde_json_canonicalizer::to_string(&value).unwrap();
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let found = canonical(&text);
            prop_assert_eq!(found.text(), expected.as_str());
        }
    }

    #[test]
    fn large_integers_keep_every_digit(number in any::<i128>()) {
        let kept = canonical(&number.to_string());
        prop_assert_eq!(kept.text(), number.to_string());
    }
}
