use serde_json::json;

use base64::engine::general_purpose::STANDARD;

use super::*;

const LONG: &str = "a-long-secret/with=signs";

fn known(values: &[&str]) -> KnownSecrets {
    let mut known = KnownSecrets::default();
    for value in values {
        known.add(value);
    }
    known
}

fn receipt(changes: &serde_json::Value) -> CheckedReceipt {
    let mut receipt = json!({
        "receipt_id": "re_1", "schema": "generic", "schema_version": 1, "operation_id": "op", "target": "order",
        "outcome": "completed", "observed_at": "2026-01-01T00:00:00Z", "source": "adapter",
    });
    for (member, value) in changes.as_object().unwrap() {
        receipt[member] = value.clone();
    }
    serde_json::from_value::<Receipt>(receipt).unwrap().check().unwrap()
}

fn masked(values: &[&str], text: &str) -> String {
    known(values).masked(text).unwrap_or_else(|| text.to_owned())
}

#[test]
fn long_ones_go_wherever_they_stand() {
    for (text, kept) in [
        (format!("x{LONG}y"), "x[masked]y"),
        (format!("{LONG}{LONG}"), "[masked]"),
        (format!("got {} there", STANDARD.encode(LONG)), "got [masked] there"),
        (format!("got {} there", URL_SAFE_NO_PAD.encode(LONG)), "got [masked] there"),
        (format!("got {} there", hex::encode_upper(LONG)), "got [masked] there"),
        ("?key=a%2Dlong%2Dsecret%2Fwith%3Dsigns".to_owned(), "?key=[masked]"),
        ("nothing".to_owned(), "nothing"),
    ] {
        assert_eq!(masked(&[LONG], &text).replace("[masked]=", "[masked]"), kept, "{text}");
    }
    let bearer = "Bearer abcdefghijklmnop1234";
    assert_eq!(masked(&[bearer], "sent abcdefghijklmnop1234."), "sent [masked].");
    // Secrets that overlap leave nothing of either.
    assert_eq!(
        masked(&["0123456789abcdefgh", "efgh0123456789ijkl"], "<0123456789abcdefgh0123456789ijkl>"),
        "<[masked]>"
    );
}

#[test]
fn short_ones_do_not_shred_text() {
    assert_eq!(masked(&["completed"], "completed: uncompleted, completed!"), "[masked]: uncompleted, [masked]!");
    assert_eq!(masked(&["1234"], "card 1234 of 12345"), "card 1234 of 12345");
    assert_eq!(masked(&["1234"], "1234"), "[masked]");
}

#[test]
fn signing_secrets_go_in_each_form() {
    let bytes = [0xfb; 32];
    let mut known = KnownSecrets::default();
    known.add_signing(&SigningSecret::of(bytes.to_vec()));
    let whole = format!("whsec_{}", STANDARD.encode(bytes));
    for form in [whole.clone(), STANDARD.encode(bytes), URL_SAFE_NO_PAD.encode(bytes), hex::encode(bytes)] {
        let text = known.masked(&format!("key {form} end")).unwrap();
        assert!(text.starts_with("key [masked]") && text.ends_with(" end") && text.len() < 24, "{text}");
    }
    let named = self::known(&[&whole]);
    assert_eq!(named.masked(&hex::encode(bytes)).as_deref(), Some("[masked]"), "a named one signs too");
    assert!(!format!("{known:?}").contains("fb"), "{known:?}");
}

#[test]
fn texts_and_keys_go_and_all_else_stays_byte_for_byte() {
    let known = known(&[LONG]);
    let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    let quoted = LONG.replace('/', "\\/").replace('a', "\\u0061");
    let text =
        format!(r#"{{"n": 12345678901234567890.10e+3, "{quoted}": ["\\", "x{quoted}\"", {{"é": null}}], "t":true}}"#);
    let found = known.masked_json(&raw(&text)).unwrap().unwrap();
    assert_eq!(
        found.get(),
        r#"{"n": 12345678901234567890.10e+3, "[masked]": ["\\", "x[masked]\"", {"é": null}], "t":true}"#
    );
    assert!(known.masked_json(&raw(r#"{"a":["b\\",1]}"#)).unwrap().is_none());
}

#[test]
fn a_receipt_without_secrets_is_the_same_bytes() {
    let known = known(&[LONG, "completed", "1"]);
    let sent = receipt(&json!({ "message": "done", "structured": { "amount": 1 } }));
    assert_eq!(known.redact(&sent).unwrap().text, sent.text);
}

#[test]
fn what_must_stay_exact_is_never_altered() {
    let known = known(&[LONG, "123456789"]);
    for changes in [
        json!({ "receipt_id": format!("re-{LONG}") }),
        json!({ "source": LONG }),
        json!({ "integrity": { "digest": LONG } }),
        json!({ "integrity": { LONG: "x" } }),
        json!({ "resource_versions": { "order": format!("v{LONG}") } }),
        json!({ "structured": { "pin": 123_456_789 } }),
        json!({ "artifacts": [[-123_456_789]] }),
    ] {
        assert_eq!(known.redact(&receipt(&changes)).unwrap_err(), Unredactable::Exact, "{changes}");
    }
    // Enumerations are no text, whatever a secret happens to be.
    let words = self::known(&["completed", "generic", "failed"]);
    let found = words.redact(&receipt(&json!({ "message": "completed" }))).unwrap();
    assert_eq!((&*found.receipt.message, found.receipt.outcome.as_str()), ("[masked]", "completed"));
    assert_eq!(found.receipt.schema.as_str(), "generic");
}

#[test]
fn what_is_left_must_be_a_receipt() {
    let known = known(&[LONG, "another-long-secret"]);
    let keys = json!({ "structured": { LONG: 1, "another-long-secret": 2 } });
    assert_eq!(known.redact(&receipt(&keys)).unwrap_err(), Unredactable::Form, "two keys became one");
    let tiny = self::known(&["ab"]);
    let list: Vec<&str> = std::iter::repeat_n("ab", 12_000).collect();
    let long = receipt(&json!({ "artifacts": [list] }));
    assert_eq!(tiny.redact(&long).unwrap_err(), Unredactable::Form, "the masks are longer than the secrets");
}
