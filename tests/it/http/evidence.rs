//! Signed evidence of one effect, checked offline: any change of it is noticed.

use std::path::{Path, PathBuf};

use actonce::service::proof::{PublicKeys, Signed, Signer, offline};
use serde_json::{Value, json};

use crate::http::{external, granted, in_review};
use crate::support::api::segment;
use crate::support::server::{Options, Server, program};
use crate::support::{Api, StoreUnderTest, blocking, bodies, both_stores};

both_stores!(
    evidence_holds_offline_and_shows_no_content,
    every_changed_field_is_noticed,
    what_the_right_key_signs_still_has_to_fit,
    evidence_names_the_checkpoint_that_covers_it,
    without_a_key_nothing_is_signed,
);

async fn evidence(api: &Api, operation: &str) -> Signed {
    let answer = api.read(&format!("/api/effects/{}/evidence", segment(operation))).await.expect(200);
    assert_eq!(answer.header("content-type"), Some("application/jose+json"));
    serde_json::from_value(answer.json).unwrap()
}

async fn keys(api: &Api) -> (String, PublicKeys) {
    let text = api.with_token(None).read("/api/keys/evidence").await.expect(200).text;
    let keys = PublicKeys::parse(&text).unwrap();
    (text, keys)
}

fn payload(signed: &Signed) -> Value {
    serde_json::from_slice(&signed.unchecked_payload().unwrap()).unwrap()
}

fn faults(signed: &Signed, keys: &PublicKeys) -> Vec<String> {
    offline::check(&serde_json::to_string(signed).unwrap(), keys).faults
}

async fn verify(file: PathBuf, key: String) -> (i32, Value, String) {
    let run = move || {
        let mut command = program();
        command.args(["evidence", "verify"]).arg(&file).args(["--public-key", &key]).output().unwrap()
    };
    let output = blocking(run).await;
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code().unwrap(), report, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

async fn settle(api: &Api, operation: &str) {
    let granted = granted(api, operation).await;
    let report = bodies::with(bodies::succeeded(&granted), &json!({ "result": { "secret": "hunter2" } }));
    api.outcome(operation, &report).await.expect(200).state("completed");
}

async fn evidence_holds_offline_and_shows_no_content(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    settle(&api, "op").await;
    in_review(&api, "decided").await;
    let revision = api.get("decided").await.revision();
    api.resolve("decided", revision, &bodies::resolution("d-1", "completed")).await.expect(200);
    let (key, _) = keys(&api).await;
    let folder = tempfile::tempdir().unwrap();
    let key = write(folder.path(), "keys.json", &key).display().to_string();
    for operation in ["op", "decided"] {
        let signed = evidence(&api, operation).await;
        let read = payload(&signed);
        let shown = api.journal(operation).await;
        assert_eq!(read["journal"].as_array().unwrap().len(), shown.len());
        assert_eq!(read["journal"][0]["hash"], shown[0]["hash"]);
        assert_eq!((&read["state"], &read["tenant"]), (&json!("completed"), &json!(api.tenant)));
        assert_eq!(read["decisions"].as_array().unwrap().len(), usize::from(operation == "decided"));
        let text = read.to_string();
        assert!(!text.contains("hunter2") && !text.contains("ao1_") && !text.contains("\"ticket\""), "{text}");
        // Both forms of the signature.
        for text in [serde_json::to_string(&signed).unwrap(), signed.compact()] {
            let file = write(folder.path(), "evidence.json", &text);
            let (code, report, _) = verify(file, key.clone()).await;
            assert_eq!((code, &report["holds"], &report["operation_id"]), (0, &json!(true), &json!(operation)));
        }
    }
    let signed = evidence(&api, "op").await;
    let edited = Signed { signature: signed.payload.clone(), ..signed };
    let file = write(folder.path(), "edited.json", &serde_json::to_string(&edited).unwrap());
    let (code, report, _) = verify(file.clone(), key).await;
    assert_eq!((code, &report["holds"]), (1, &json!(false)));
    assert_eq!(report["faults"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(verify(file, "no key".to_owned()).await.0, 2);
    assert_eq!(verify(folder.path().join("none"), "x".to_owned()).await.0, 2);
}

/// Every place of a document, as a pointer.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                places(value, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (number, value) in items.iter().enumerate() {
                places(value, &format!("{at}/{number}"), found);
            }
        }
        _ => found.push(at.to_owned()),
    }
}

fn changed(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let last = text.chars().last().unwrap_or('x');
            let other = if last == '1' { '2' } else { '1' };
            let kept: String = text.chars().take(text.chars().count().saturating_sub(1)).collect();
            json!(format!("{kept}{other}"))
        }
        Value::Number(number) => json!(number.as_u64().unwrap() + 1),
        Value::Bool(truth) => json!(!truth),
        Value::Null => json!("x"),
        _ => json!(null),
    }
}

/// Each field of the payload changed, and nothing signed again.
async fn every_changed_field_is_noticed(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    settle(&api, "op").await;
    let signed = evidence(&api, "op").await;
    let (_, keys) = keys(&api).await;
    assert_eq!(faults(&signed, &keys), Vec::<String>::new());
    let document = payload(&signed);
    let mut all = Vec::new();
    places(&document, "", &mut all);
    assert!(all.len() > 30, "{all:?}");
    let unsigned = Signer::from_seed(&[9; 32]).unwrap();
    for place in all {
        let edited = bodies::set(document.clone(), &place, changed(document.pointer(&place).unwrap()));
        let other = unsigned.sign("actonce-evidence", &edited.to_string());
        let kept = Signed { payload: other.payload.clone(), ..signed.clone() };
        assert_eq!(faults(&kept, &keys), ["the signature does not hold"], "{place}");
        let foreign = faults(&other, &keys);
        assert_eq!(foreign, ["it is signed with a key that is not the public key given"], "{place}");
    }
    for edited in [
        Signed { protected: signed.payload.clone(), ..signed.clone() },
        Signed { signature: String::new(), ..signed.clone() },
    ] {
        assert_eq!(faults(&edited, &keys).len(), 1);
    }
    for text in ["", "{}", "a.b", "[]", "null"] {
        assert_eq!(offline::check(text, &keys).faults, ["this is no signed evidence"], "{text}");
    }
}

/// Whoever has the key can sign anything; what does not fit together is found all the same.
async fn what_the_right_key_signs_still_has_to_fit(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    settle(&api, "op").await;
    let document = payload(&evidence(&api, "op").await);
    let signer = Signer::from_seed(&[9; 32]).unwrap();
    let keys = signer.public_keys();
    let check = |document: &Value| faults(&signer.sign("actonce-evidence", &document.to_string()), &keys);
    let whole = bodies::set(document.clone(), "/checkpoint", Value::Null);
    assert_eq!(check(&whole), Vec::<String>::new());
    let entry = whole["journal"][1]["entry"].as_str().unwrap().replace("completed", "dispatched");
    let fewer = |count: usize| json!(whole["journal"].as_array().unwrap()[..count]);
    let without_first = json!(whole["journal"].as_array().unwrap()[1..]);
    for (place, value, fault) in [
        ("/journal/1/entry", json!(entry), "entry 2 is not what was hashed"),
        ("/journal/1/entry", json!("{}"), "entry 2 can't be read"),
        ("/journal/0/hash", json!("00".repeat(32)), "entry 1 is not what was hashed"),
        ("/journal/1/prev_hash", json!("00".repeat(32)), "entry 2 does not continue"),
        ("/journal/1/revision", json!(3), "entry 2 is not there"),
        ("/journal", fewer(1), "state and revision are not"),
        ("/journal", json!([]), "state and revision are not"),
        ("/journal", without_first, "entry 1 is not there"),
        ("/state", json!("failed"), "state and revision are not"),
        ("/revision", json!(3), "state and revision are not"),
        ("/tenant", json!("another"), "the effect id is not"),
        ("/operation_id", json!("another"), "the effect id is not"),
        ("/operation_id", json!(""), "the tenant or the operation id is none"),
        ("/effect_id", json!(uuid::Uuid::nil()), "the effect id is not"),
        ("/format", json!(2), "the evidence has the form 2"),
        ("/receipt/digest", json!("sha256:00"), "the receipt's digest is not"),
        ("/receipt/revision", json!(1), "the receipt's digest is not"),
        ("/result/digest", json!("sha256:00"), "the result's digest is not"),
        (
            "/decisions",
            json!([{ "revision": 2, "by": "x", "at": whole["made_at"], "decision_id": "d",
            "outcome": "completed", "decision_digest": "sha256:00" }]),
            "the operators' decisions are not",
        ),
        ("/state", json!("nonsense"), "what is signed is no evidence"),
    ] {
        let found = check(&bodies::set(whole.clone(), place, value));
        assert!(found.iter().any(|found| found.starts_with(fault)), "{place}: {found:?}");
    }
}

async fn evidence_names_the_checkpoint_that_covers_it(store: StoreUnderTest) {
    let server = store.server(Options::default().env("ACTONCE_CHECKPOINT_SECONDS", "1"));
    let api = Api::of(&server, "tenant");
    external(&api).await;
    for operation in ["before", "op", "after"] {
        settle(&api, operation).await;
    }
    let (_, keys) = keys(&api).await;
    let mut signed = evidence(&api, "op").await;
    for _ in 0..200 {
        if !payload(&signed)["checkpoint"].is_null() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        signed = evidence(&api, "op").await;
    }
    assert_eq!(faults(&signed, &keys), Vec::<String>::new());
    let document = payload(&signed);
    assert!(document["checkpoint"]["revision"].is_u64(), "no checkpoint came");
    // Signed anew by the same key, with something else in the place of the checkpoint's parts.
    let seed = std::fs::read_to_string(server.data_dir().join("dev-evidence-key")).unwrap();
    let signer = Signer::from_seed(&hex::decode(seed.trim()).unwrap().try_into().unwrap()).unwrap();
    let foreign = Signer::from_seed(&[9; 32]).unwrap();
    let jws = Signed::parse(document["checkpoint"]["jws"].as_str().unwrap()).unwrap();
    let text = String::from_utf8(jws.unchecked_payload().unwrap()).unwrap();
    let resigned = |by: &Signer, text: &str| json!(by.sign("actonce-checkpoint", text).compact());
    for (place, value) in [
        ("/checkpoint/index", json!(1000)),
        ("/checkpoint/revision", json!(1)),
        ("/checkpoint/revision", json!(9)),
        ("/checkpoint/path", json!(["00".repeat(32)])),
        ("/checkpoint/jws", json!("x")),
        ("/checkpoint/jws", resigned(&foreign, &text)),
        ("/checkpoint/jws", resigned(&signer, &text.replace("\"tenant\":\"tenant\"", "\"tenant\":\"other\""))),
        ("/checkpoint/jws", json!(signed.compact())),
    ] {
        let edited = bodies::set(document.clone(), place, value);
        let found = faults(&signer.sign("actonce-evidence", &edited.to_string()), &keys);
        assert!(found.len() == 1 && found[0].contains("checkpoint"), "{place}: {found:?}");
    }
    assert_commands_agree(&server, &api).await;
}

/// The command line: what the service made is verified with its public key, and printed to be kept.
async fn assert_commands_agree(server: &Server, api: &Api) {
    let url = server.database_url().map(str::to_owned);
    let data_dir = server.data_dir().to_owned();
    let public = api.read("/api/keys/evidence").await.text;
    let key = write(server.data_dir(), "public.json", &public);
    let run = move |arguments: Vec<String>| {
        let mut command = program();
        command.arg("journal").args(arguments).arg("--data-dir").arg(&data_dir);
        if let Some(url) = &url {
            command.env("DATABASE_URL", url);
        }
        command.output().unwrap()
    };
    let printed = blocking({
        let run = run.clone();
        move || run(vec!["checkpoint".to_owned(), "--print".to_owned()])
    })
    .await;
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let kept = write(server.data_dir(), "kept", &String::from_utf8_lossy(&printed.stdout));
    let arguments = |more: &[&str]| {
        let mut all = vec!["verify".to_owned(), "--public-key".to_owned(), key.display().to_string()];
        all.extend(["--checkpoints".to_owned(), kept.display().to_string()]);
        all.extend(more.iter().map(|&argument| argument.to_owned()));
        all
    };
    for (more, code, effects) in [
        (vec![], 0, 3),
        (vec!["--tenant", "tenant"], 0, 3),
        (vec!["--tenant", "tenant", "--effect", "op"], 0, 1),
        (vec!["--tenant", "other"], 0, 0),
        (vec!["--tenant", "tenant", "--effect", "absent"], 2, 0),
        (vec!["--effect", "op"], 2, 0),
    ] {
        let (run, arguments) = (run.clone(), arguments(&more));
        let output = blocking(move || run(arguments)).await;
        assert_eq!(output.status.code(), Some(code), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
        if code == 0 {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!((&report["effects"], &report["signatures_checked"]), (&json!(effects), &json!(true)));
        }
    }
}

async fn without_a_key_nothing_is_signed(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "tenant");
    external(&api).await;
    settle(&api, "op").await;
    let keyless = server.without_dev();
    let api = Api::of(&keyless, "tenant");
    api.read("/api/effects/op/evidence").await.problem(409, "state-conflict");
    assert_eq!(api.read("/api/keys/evidence").await.expect(200).json, json!({ "keys": [] }));
    assert!(keyless.log().contains("no evidence key"), "the start says so");
}
