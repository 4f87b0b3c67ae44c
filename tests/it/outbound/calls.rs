//! What an adapter is told, how it is signed, and that one adapter's trouble stays its own.

use std::time::{Duration, Instant};

use actonce::domain::adapter::{NoAnswer, Question, Verdict};
use actonce::domain::canonical::Sha256Digest;
use actonce::limits;
use actonce::service::ports::{AdapterCall, Adapters as _};
use serde_json::{Value, json};

use super::Asker;
use crate::support::adapter::{FakeAdapter, Reply, answers, secret};
use crate::support::bodies::set;

#[tokio::test]
async fn the_question_says_what_it_is_about_and_no_arguments() {
    let fake = FakeAdapter::always(Reply::Json(answers::absent())).await;
    let asker = Asker::of(&fake);
    let receipt = crate::store::effects::receipt(&asker.record, &json!({ "message": "danke ä" }));
    for (question, word) in [
        (Question::Validate, "receipt.validate"),
        (Question::Lookup, "effect.lookup"),
        (Question::Verify, "effect.verify"),
    ] {
        let call = AdapterCall { receipt: Some(receipt.clone()), ..asker.call(question) };
        asker.adapters.ask(call).await.unwrap();
        let (received, intent) = (fake.last(), &asker.record.intent);
        let dispatch = asker.record.life.dispatch.as_ref().unwrap();
        let intent_text = serde_json::to_string(intent.as_ref()).unwrap();
        let expected = json!({
            "type": word, "tenant": "tenant", "operation_id": "op/1 ä", "tool": "payments.refund", "tool_revision": 3,
            "target": "target of op/1 ä", "idempotency_key": "key",
            "intent_digest": Sha256Digest::of(intent_text.as_bytes()), "arguments_digest": intent.arguments_digest,
            "revision": asker.record.life.revision, "marker": "<!-- actonce:key -->",
            "dispatches": [{
                "dispatch_id": dispatch.dispatch_id, "attempt": 1, "dispatched_at": dispatch.dispatched_at,
            }],
            "receipt": serde_json::from_str::<Value>(&receipt.text).unwrap(),
        });
        assert_eq!(received.json(), expected);
        assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/adapter"));
        assert_eq!(received.header("content-type"), "application/json");
        assert!(std::str::from_utf8(&received.body).unwrap().contains(receipt.text.as_ref()), "the bytes as stored");
    }
    asker.lookup().await.unwrap();
    assert!(fake.last().json().get("receipt").is_none(), "there is none");
}

#[tokio::test]
async fn the_signature_is_that_of_the_specification_and_the_id_stays() {
    let fake = FakeAdapter::always(Reply::Json(answers::absent())).await;
    let (new, old, foreign) = (secret(2), secret(1), secret(3));
    let asker = Asker::new(&fake.spec(), &json!({}), &[new.clone(), old.clone()]);
    let call = asker.call(Question::Lookup);
    for _ in 0..2 {
        asker.adapters.ask(call.clone()).await.unwrap();
        let received = fake.last();
        assert!(received.verify(&new).is_ok() && received.verify(&old).is_ok(), "both sign during the overlap");
        assert!(received.verify(&foreign).is_err());
        assert_eq!(received.header("webhook-id"), call.call_id);
        assert_eq!(received.header("webhook-signature").split(' ').count(), 2);
        let mut forged = received.clone();
        forged.body[0] = b'[';
        assert!(forged.verify(&new).is_err(), "the body is signed");
        let mut forged = received;
        forged.headers.insert("webhook-id", "another".parse().unwrap());
        assert!(forged.verify(&new).is_err(), "the id is signed");
    }
    let without = Asker::new(&fake.spec(), &json!({}), &[]);
    assert_eq!(without.lookup().await.unwrap_err(), NoAnswer::NoSecret);
    assert_eq!(fake.calls(), 2, "nothing goes out unsigned");
}

#[tokio::test]
async fn the_shorter_deadline_holds() {
    let fake = FakeAdapter::always(Reply::Hang).await;
    let asker = Asker::new(&set(fake.spec(), "/timeout_seconds", json!(1)), &json!({}), &[secret(1)]);
    let begun = Instant::now();
    assert_eq!(asker.lookup().await.unwrap_err(), NoAnswer::Timeout);
    let call = AdapterCall { timeout: Duration::from_millis(100), ..asker.call(Question::Lookup) };
    assert_eq!(asker.adapters.ask(call).await.unwrap_err(), NoAnswer::Timeout);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_tool_without_a_webhook_is_unsupported() {
    let fake = FakeAdapter::always(Reply::Close).await;
    let asker = Asker::of(&fake).for_tool("other", &Value::Null);
    assert_eq!(asker.lookup().await.unwrap().verdict, Verdict::Unsupported);
    assert_eq!(fake.calls(), 0);
}

#[tokio::test]
async fn a_dead_adapter_is_left_alone_and_others_are_not() {
    let dead = FakeAdapter::always(Reply::status("500 Internal Server Error")).await;
    let alive = FakeAdapter::always(Reply::Json(answers::absent())).await;
    let asker = Asker::of(&dead);
    let other = asker.for_tool("other", &alive.spec());
    for _ in 0..limits::ADAPTER_FAILURES {
        assert_eq!(asker.lookup().await.unwrap_err(), NoAnswer::Status);
    }
    let calls = dead.calls();
    for _ in 0..3 {
        assert_eq!(asker.lookup().await.unwrap_err(), NoAnswer::CircuitOpen);
    }
    assert_eq!(dead.calls(), calls, "nothing goes out");
    assert_eq!(other.lookup().await.unwrap().verdict, Verdict::NotFound);
    // The pause ends with one probe, and one good answer closes the breaker.
    dead.set(Reply::Json(answers::absent()));
    tokio::time::sleep(Duration::from_secs(limits::ADAPTER_PAUSE_SECONDS)).await;
    for _ in 0..3 {
        assert!(asker.lookup().await.is_ok());
    }
}

#[tokio::test]
async fn nothing_shows_a_secret() {
    let fake = FakeAdapter::always(Reply::Json(answers::absent())).await;
    let asker = Asker::of(&fake);
    let key = secret(1).trim_start_matches("whsec_").to_owned();
    for text in [format!("{:?}", asker.adapters), format!("{:?}", asker.call(Question::Lookup))] {
        assert!(!text.contains(&key) && !text.contains("[1, 1, 1"), "{text}");
    }
}
