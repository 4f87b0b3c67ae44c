//! What messages tell and do not tell, and how the documentation says to check them.

use serde_json::json;

use super::subscriptions::{ids, settle, start, subscribe, until, until_is};
use super::{execute, text_of};
use crate::http::{TOOL, granted};
use crate::support::adapter::{FakeAdapter, Reply, secret};
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(
    a_place_that_is_gone_is_told_and_nothing_is_passed_by,
    messages_tell_no_content,
    the_recipes_in_the_docs_run,
);

/// A database that was restored in part: what was told and what was not can't be known.
async fn a_place_that_is_gone_is_told_and_nothing_is_passed_by(store: StoreUnderTest) {
    let (server, api) = start(store).await;
    let endpoint = FakeAdapter::always(Reply::status("200 OK")).await;
    let id = subscribe(&api, &endpoint, &json!({ "events": ["effect.completed"] })).await;
    settle(&api, "a").await;
    until(&endpoint, 1).await;
    until_is(&api, &id, |now| now["waiting"] == 0).await;
    // The entry at which it stands is another one now.
    execute(&server, "UPDATE subscriptions SET cursor_revision = cursor_revision + 7").await;
    settle(&api, "b").await;
    let now = until_is(&api, &id, |now| now["enabled"] == false).await;
    assert_eq!(now["disabled_reason"], "cursor_gone");
    assert_eq!(endpoint.calls(), 1);
    let again = subscribe(&api, &endpoint, &json!({ "events": ["effect.completed"], "start": "beginning" })).await;
    let received = until(&endpoint, 3).await;
    until_is(&api, &again, |now| now["waiting"] == 0).await;
    assert!(ids(&received[1..]).contains(&ids(&received)[0]), "what was told before has the same id");
}

async fn messages_tell_no_content(store: StoreUnderTest) {
    let (server, api) = start(store).await;
    let endpoint = FakeAdapter::always(Reply::status("500 Internal Server Error")).await;
    let id = subscribe(&api, &endpoint, &json!({ "description": "for planted-nobody" })).await;
    let planted = json!({ "arguments": { "card": "planted-argument" }, "target": "planted-target" });
    let granted = api.intent(&bodies::with(bodies::claiming("op", TOOL), &planted)).await.expect(201);
    let failure = json!({ "classification": "exception", "phase": "after_send", "detail": "planted-detail" });
    let unknown = bodies::with(bodies::report(&granted, "unknown"), &json!({ "failure_evidence": failure }));
    api.outcome("op", &unknown).await.expect(200);
    let key = granted.str("/dispatch/idempotency_key");
    let mut told = String::new();
    until_is(&api, &id, |now| now["failures_in_a_row"].as_u64() > Some(0) && now["waiting"].as_u64() > Some(1)).await;
    for one in endpoint.received() {
        told.push_str(std::str::from_utf8(&one.body).unwrap());
        for (name, value) in &one.headers {
            told.push_str(name.as_str());
            told.push_str(value.to_str().unwrap());
        }
    }
    assert!(told.contains("effect."));
    let letters = api.read(&format!("/api/subscriptions/{id}")).await.expect(200).text.replace("planted-nobody", "");
    let metrics = api.read("/metrics").await.expect(200).text;
    for text in [&told, &letters, &metrics, &server.log()] {
        for secret in ["planted", key, granted.str("/dispatch/dispatch_id"), &secret(7)] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    // Neither are secrets readable where they are kept.
    let kept = text_of(&server, "SELECT secrets FROM subscriptions").await;
    assert!(kept.len() > 60 && !kept.contains("whsec"), "{kept}");
    let rows = text_of(&server, "SELECT body FROM deliveries LIMIT 1").await;
    assert!(rows.contains("\"id\":\"evt_") && !rows.contains("planted"), "{rows}");
}

fn script(name: &str) -> String {
    let docs = include_str!("../../../docs/events.md");
    let (_, after) = docs.split_once(&format!("<!-- {name} -->\n```bash\n")).expect("the marked block");
    after.split_once("\n```").expect("its end").0.to_owned()
}

async fn bash(script: String, environment: Vec<(&'static str, String)>) -> (bool, String) {
    crate::support::blocking(move || {
        let mut command = std::process::Command::new("bash");
        command.arg("-c").arg(script).envs(environment);
        let output = command.output().unwrap();
        (
            output.status.success(),
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        )
    })
    .await
}

async fn the_recipes_in_the_docs_run(store: StoreUnderTest) {
    let (_server, api) = start(store).await;
    let endpoint = FakeAdapter::always(Reply::status("200 OK")).await;
    granted(&api, "op").await;
    let environment =
        vec![("ACTONCE", api.url.clone()), ("TOKEN", api.token.clone().unwrap()), ("ENDPOINT", endpoint.url())];
    let (is_good, said) = bash(script("events-flow"), environment).await;
    assert!(is_good && said.contains("event: effect.dispatched") && !said.contains("event: effect.proposed"), "{said}");
    let (_, secret) = said.split_once("secret: ").expect("the secret");
    let secret = secret.lines().next().unwrap();
    let message = until(&endpoint, 1).await.remove(0);
    message.verify(secret).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let body = directory.path().join("body");
    std::fs::write(&body, &message.body).unwrap();
    let environment = |secret: &str| {
        vec![
            ("SECRET", secret.to_owned()),
            ("WEBHOOK_ID", message.header("webhook-id").to_owned()),
            ("WEBHOOK_TIMESTAMP", message.header("webhook-timestamp").to_owned()),
            ("WEBHOOK_SIGNATURE", message.header("webhook-signature").to_owned()),
            ("BODY_FILE", body.display().to_string()),
        ]
    };
    let (is_good, said) = bash(script("events-verify"), environment(secret)).await;
    assert!(is_good && said == "signed by the service\n", "{said}");
    assert!(!bash(script("events-verify"), environment(&self::secret(9))).await.0);
    std::fs::write(&body, [&message.body[..], b" "].concat()).unwrap();
    assert!(!bash(script("events-verify"), environment(secret)).await.0);
}
