//! Subscriptions: their registration, and who they are told by.

use std::time::Duration;

use serde_json::{Value, json};

use super::execute;
use crate::http::{TOOL, external, granted};
use crate::support::adapter::{FakeAdapter, OPEN, Received, Reply, secret};
use crate::support::{Api, Options, Server, StoreUnderTest, bodies, both_stores, unique};

both_stores!(
    every_event_is_told_once_and_signed,
    the_registration_and_its_bounds,
    a_secret_is_replaced_with_an_overlap,
    every_attempt_sends_the_same_bytes,
    an_endpoint_that_is_gone_is_left_alone,
    what_was_given_up_can_be_sent_again,
    a_hanging_endpoint_delays_no_other,
    a_crash_before_the_note_sends_the_same_again,
    a_filter_keeps_the_rest_away,
    the_age_of_the_outbox_is_seen,
    addresses_inside_are_refused,
);

fn open(options: Options) -> Options {
    OPEN.iter().fold(options, |options, (name, value)| options.env(name, value))
}

/// A server of its own whose subscribers may be on this machine.
pub(super) async fn start(store: StoreUnderTest) -> (Server, Api) {
    let server = store.server(open(Options::default()));
    let api = Api::of(&server, &unique("tenant"));
    external(&api).await;
    (server, api)
}

pub(super) async fn subscribe(api: &Api, endpoint: &FakeAdapter, more: &Value) -> String {
    let body = bodies::with(json!({ "url": endpoint.url(), "secret": secret(7) }), more);
    api.post("/api/subscriptions", &body).await.expect(201).str("/subscription_id").to_owned()
}

pub(super) async fn settle(api: &Api, operation: &str) {
    let granted = granted(api, operation).await;
    api.outcome(operation, &bodies::succeeded(&granted)).await.expect(200);
}

/// Waits until an endpoint got so many messages.
pub(super) async fn until(endpoint: &FakeAdapter, count: usize) -> Vec<Received> {
    for _ in 0..600 {
        let received = endpoint.received();
        if received.len() >= count {
            return received;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} of {count} messages came", endpoint.calls());
}

/// Waits until a subscription is as it should be.
pub(super) async fn until_is(api: &Api, id: &str, is: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    for _ in 0..600 {
        last = api.read(&format!("/api/subscriptions/{id}")).await.expect(200).json;
        if is(&last) {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it stays {last}");
}

pub(super) fn ids(received: &[Received]) -> Vec<&str> {
    received.iter().map(|one| one.header("webhook-id")).collect()
}

/// Makes what failed due now, as waiting would.
async fn make_due(server: &Server) {
    execute(server, "UPDATE deliveries SET due_us = 0; UPDATE subscriptions SET next_us = 0, pause_us = 0").await;
}

async fn every_event_is_told_once_and_signed(store: StoreUnderTest) {
    let (_server, api) = start(store).await;
    let endpoint = FakeAdapter::always(Reply::status("204 No Content")).await;
    settle(&api, "before").await;
    subscribe(&api, &endpoint, &json!({ "start": "beginning" })).await;
    for number in 0..5 {
        settle(&api, &format!("op-{number}")).await;
    }
    let mut expected = Vec::new();
    for operation in ["before", "op-0", "op-1", "op-2", "op-3", "op-4"] {
        expected.extend(api.events(operation).await);
    }
    let received = until(&endpoint, expected.len()).await;
    let mut told: Vec<String> = received.iter().map(|one| one.json()["type"].as_str().unwrap().to_owned()).collect();
    told.sort();
    expected.sort();
    assert_eq!(told, expected);
    for one in &received {
        one.verify(&secret(7)).unwrap();
        assert!(one.verify(&secret(8)).is_err());
        assert_eq!(one.json()["id"], one.header("webhook-id"));
    }
    // The message is the event of the feed, byte by byte.
    let feed = api.read("/api/events?limit=200").await.expect(200).text;
    for one in &received {
        assert!(feed.contains(std::str::from_utf8(&one.body).unwrap()));
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(endpoint.calls(), expected.len(), "nothing is told twice");
}

async fn the_registration_and_its_bounds(store: StoreUnderTest) {
    let api = store.tenant();
    let body = json!({ "url": "https://example.org/hook", "enabled": false });
    let made = api.post("/api/subscriptions", &body).await.expect(201);
    assert!(made.str("/secret").starts_with("whsec_"));
    let path = format!("/api/subscriptions/{}", made.str("/subscription_id"));
    let read = api.read(&path).await.expect(200);
    assert!(read.json.get("secret").is_none() && !read.text.contains("whsec_"));
    assert_eq!((read.at("/waiting"), read.at("/dead_letters"), read.revision()), (&json!(0), &json!(0), 1));
    let change =
        json!({ "url": "https://example.org/other", "events": ["effect.failed"], "tools": [TOOL], "enabled": false });
    let put = |tag: &'static str| api.call("PUT", &path).header("if-match", tag).json(&change).send();
    put("\"9\"").await.problem(412, "stale-revision");
    assert_eq!(put("\"1\"").await.expect(200).revision(), 2);
    assert_eq!(put("\"2\"").await.expect(200).revision(), 2, "an equal change changes nothing");
    for (pointer, fault) in [
        ("/url", json!({ "url": "ftp://example.org" })),
        ("/url", json!({ "url": "https://user@example.org" })),
        ("/secret", json!({ "secret": "hunter2" })),
        ("/events/0", json!({ "events": ["effect.invented"] })),
        ("/tools", json!({ "tools": vec!["t"; 65] })),
        ("/description", json!({ "description": "x".repeat(2049) })),
        ("/tools/0", json!({ "tools": [""] })),
    ] {
        let answer = api.post("/api/subscriptions", &bodies::with(body.clone(), &fault)).await;
        let answer = answer.problem(400, "invalid-request").faults_at(&[pointer]);
        assert!(!answer.text.contains("hunter2"));
    }
    for _ in 1..50 {
        api.post("/api/subscriptions", &body).await.expect(201);
    }
    api.post("/api/subscriptions", &body).await.problem(409, "state-conflict");
    assert_eq!(api.pages("/api/subscriptions?limit=7").await.len(), 50);
    assert!(store.tenant().pages("/api/subscriptions?limit=7").await.is_empty());
    api.call("DELETE", &path).send().await.expect(204);
    api.read(&path).await.problem(404, "not-found");
}

async fn a_secret_is_replaced_with_an_overlap(store: StoreUnderTest) {
    let (_server, api) = start(store).await;
    let endpoint = FakeAdapter::always(Reply::status("200 OK")).await;
    let id = subscribe(&api, &endpoint, &json!({ "events": ["effect.completed"] })).await;
    settle(&api, "a").await;
    let first = until(&endpoint, 1).await.remove(0);
    first.verify(&secret(7)).unwrap();
    let path = format!("/api/subscriptions/{id}/secret");
    let made = api.call("POST", &path).send().await.expect(200).str("/secret").to_owned();
    settle(&api, "b").await;
    let second = until(&endpoint, 2).await.remove(1);
    second.verify(&secret(7)).unwrap();
    second.verify(&made).unwrap();
    // Two at most: a third one ends the first.
    api.post(&path, &json!({ "secret": secret(9) })).await.expect(200);
    settle(&api, "c").await;
    let third = until(&endpoint, 3).await.remove(2);
    third.verify(&made).unwrap();
    third.verify(&secret(9)).unwrap();
    assert!(third.verify(&secret(7)).is_err());
}

async fn every_attempt_sends_the_same_bytes(store: StoreUnderTest) {
    let (server, api) = start(store).await;
    let endpoint = FakeAdapter::always(Reply::status("500 Internal Server Error")).await;
    let id = subscribe(&api, &endpoint, &json!({ "events": ["effect.completed"] })).await;
    settle(&api, "a").await;
    for attempt in 1..5 {
        until(&endpoint, attempt).await;
        until_is(&api, &id, |now| now["failures_in_a_row"].as_u64() >= u64::try_from(attempt).ok()).await;
        if attempt == 4 {
            endpoint.set(Reply::status("200 OK"));
        }
        make_due(&server).await;
    }
    let received = until(&endpoint, 5).await;
    for one in &received {
        assert_eq!(one.body, received[0].body);
        assert_eq!(one.header("webhook-id"), received[0].header("webhook-id"));
        one.verify(&secret(7)).unwrap();
    }
    until_is(&api, &id, |now| now["waiting"] == 0 && now["failures_in_a_row"] == 0).await;
}

async fn an_endpoint_that_is_gone_is_left_alone(store: StoreUnderTest) {
    let (_server, api) = start(store).await;
    let endpoint = FakeAdapter::always(Reply::status("410 Gone")).await;
    let id = subscribe(&api, &endpoint, &json!({ "events": ["effect.completed"] })).await;
    settle(&api, "a").await;
    let now = until_is(&api, &id, |now| now["enabled"] == false).await;
    assert_eq!((&now["disabled_reason"], &now["waiting"]), (&json!("gone"), &json!(1)));
    settle(&api, "b").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(endpoint.calls(), 1);
    // A person takes it back: nothing was lost.
    endpoint.set(Reply::status("200 OK"));
    let body = json!({ "url": endpoint.url(), "events": ["effect.completed"] });
    api.call("PUT", &format!("/api/subscriptions/{id}")).json(&body).send().await.expect(200);
    // The message of `a` has its own time to come again; the one of `b` comes at once.
    let received = until(&endpoint, 2).await;
    assert_ne!(ids(&received)[0], ids(&received)[1]);
}

async fn what_was_given_up_can_be_sent_again(store: StoreUnderTest) {
    let (server, api) = start(store).await;
    let endpoint = FakeAdapter::always(Reply::status("500 Internal Server Error")).await;
    let id = subscribe(&api, &endpoint, &json!({ "events": ["effect.completed"] })).await;
    settle(&api, "a").await;
    until_is(&api, &id, |now| now["failures_in_a_row"] == 1).await;
    // As after many attempts.
    execute(&server, "UPDATE deliveries SET attempts = 13").await;
    make_due(&server).await;
    until_is(&api, &id, |now| now["dead_letters"] == 1 && now["waiting"] == 0).await;
    let dead = api.pages(&format!("/api/subscriptions/{id}/dead-letters?limit=1")).await;
    assert_eq!(
        (&dead[0]["type"], &dead[0]["last_result"], &dead[0]["attempts"]),
        (&json!("effect.completed"), &json!("500"), &json!(14))
    );
    let resend = format!("/api/subscriptions/{id}/resend");
    let none = api.post(&resend, &json!({ "message_ids": ["evt_of_nobody"] })).await.expect(200);
    assert_eq!((none.at("/resent"), none.at("/dead_letters")), (&json!(0), &json!(1)));
    endpoint.set(Reply::status("200 OK"));
    let before = endpoint.calls();
    let resent = api.post(&resend, &json!({ "message_ids": [dead[0]["message_id"]] })).await.expect(200);
    assert_eq!((resent.at("/resent"), resent.at("/dead_letters")), (&json!(1), &json!(0)));
    let received = until(&endpoint, before + 1).await;
    let (first, last) = (&received[0], &received[before]);
    assert_eq!((first.header("webhook-id"), &first.body), (last.header("webhook-id"), &last.body));
    until_is(&api, &id, |now| now["waiting"] == 0 && now["dead_letters"] == 0).await;
}

async fn a_hanging_endpoint_delays_no_other(store: StoreUnderTest) {
    let (_server, api) = start(store).await;
    let hanging = FakeAdapter::always(Reply::Hang).await;
    let dripping = FakeAdapter::always(Reply::Drip(Duration::from_millis(200))).await;
    let good = FakeAdapter::always(Reply::status("200 OK")).await;
    for endpoint in [&hanging, &dripping, &good] {
        subscribe(&api, endpoint, &json!({ "events": ["effect.completed"] })).await;
    }
    settle(&api, "first").await;
    until(&hanging, 1).await;
    until(&dripping, 1).await;
    let started = std::time::Instant::now();
    for number in 0..5 {
        settle(&api, &format!("op-{number}")).await;
    }
    until(&good, 6).await;
    // Well before the deadline of the ones that hang.
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
}

async fn a_crash_before_the_note_sends_the_same_again(store: StoreUnderTest) {
    let (server, api) = start(store).await;
    // It has the message and has not said so when the service is killed.
    let endpoint = FakeAdapter::always(Reply::Hang).await;
    let id = subscribe(&api, &endpoint, &json!({ "events": ["effect.completed"] })).await;
    settle(&api, "a").await;
    until(&endpoint, 1).await;
    server.kill9();
    endpoint.set(Reply::status("200 OK"));
    server.restart();
    // As after the lease of the one that is dead.
    execute(&server, "UPDATE subscriptions SET lease_us = 0").await;
    let received = until(&endpoint, 2).await;
    assert_eq!(ids(&received)[0], ids(&received)[1]);
    assert_eq!(received[0].body, received[1].body);
    until_is(&api.at(&server), &id, |now| now["waiting"] == 0).await;
}

async fn a_filter_keeps_the_rest_away(store: StoreUnderTest) {
    let (_server, api) = start(store).await;
    api.put_tool("other", &json!({ "effect": "none" })).await.expect(201);
    let endpoint = FakeAdapter::always(Reply::status("200 OK")).await;
    let filter = json!({ "events": ["effect.intent_recorded", "effect.completed"], "tools": ["other"] });
    subscribe(&api, &endpoint, &filter).await;
    settle(&api, "a").await;
    api.intent(&bodies::intent("b", "other")).await.expect(201);
    let received = until(&endpoint, 1).await;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(endpoint.calls(), 1);
    let event = received[0].json();
    assert_eq!((&event["type"], &event["data"]["operation_id"]), (&json!("effect.intent_recorded"), &json!("b")));
    assert!(!String::from_utf8_lossy(&received[0].body).contains(&api.tenant));
}

async fn the_age_of_the_outbox_is_seen(store: StoreUnderTest) {
    let (server, api) = start(store).await;
    let age = |text: &str, name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let ready = api.read("/readyz").await.expect(200).text;
    assert!(ready.starts_with("ok\n") && age(&ready, "outbox_age_seconds") < 0.001, "{ready}");
    let endpoint = FakeAdapter::always(Reply::status("500 Internal Server Error")).await;
    let id = subscribe(&api, &endpoint, &json!({ "events": ["effect.completed"] })).await;
    settle(&api, "a").await;
    until_is(&api, &id, |now| now["failures_in_a_row"] == 1).await;
    // Overdue, and left alone.
    execute(
        &server,
        "UPDATE deliveries SET due_us = due_us - 600000000; UPDATE subscriptions SET pause_us = 9000000000000000",
    )
    .await;
    let ready = api.read("/readyz").await.expect(200).text;
    assert!(age(&ready, "outbox_age_seconds") > 500.0, "{ready}");
    let metrics = api.read("/metrics").await.expect(200).text;
    assert!(age(&metrics, "actonce_outbox_age_seconds") > 500.0);
    assert!(!metrics.contains(&api.tenant) && !metrics.contains(&id));
}

async fn addresses_inside_are_refused(store: StoreUnderTest) {
    // The shared server has no address opened.
    let api = store.tenant();
    for url in [
        "http://example.org/",
        "https://127.0.0.1/",
        "https://169.254.169.254/latest",
        "https://[::1]/",
        "https://localhost/x",
        "https://10.0.0.1/",
    ] {
        let answer = api.post("/api/subscriptions", &json!({ "url": url })).await;
        answer.problem(400, "invalid-request").faults_at(&["/url"]);
    }
    // A redirect to an address inside is a failure, and nobody follows it.
    let (_server, api) = start(store).await;
    let inside = FakeAdapter::always(Reply::status("200 OK")).await;
    let redirect = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        inside.url()
    );
    let endpoint = FakeAdapter::always(Reply::Raw(redirect.into_bytes())).await;
    let id = subscribe(&api, &endpoint, &json!({ "events": ["effect.completed"] })).await;
    settle(&api, "a").await;
    until_is(&api, &id, |now| now["failures_in_a_row"] == 1).await;
    assert_eq!(inside.calls(), 0);
}

/// Two replicas share the work: what one has in hand the other leaves alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_tell_everything_once() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let (server, api) = start(StoreUnderTest::Postgres).await;
    let replica = server.replica();
    let endpoint = FakeAdapter::always(Reply::Late(Duration::from_millis(20), json!({}))).await;
    let id = subscribe(&api, &endpoint, &json!({ "events": ["effect.completed"] })).await;
    let apis = [api.clone(), api.at(&replica)];
    for number in 0..12 {
        settle(&apis[number % 2], &format!("op-{number}")).await;
    }
    until(&endpoint, 12).await;
    until_is(&api, &id, |now| now["waiting"] == 0).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let received = endpoint.received();
    let mut told = ids(&received);
    told.sort_unstable();
    told.dedup();
    assert_eq!((told.len(), received.len()), (12, 12));
    // The one that is stopped gives back what it has in hand.
    assert!(crate::support::blocking(move || server.stop()).await.success());
    settle(&apis[1], "last").await;
    until(&endpoint, 13).await;
}
