//! Pages: complete, resumable, walled, without content.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{all, complete, execute, names, page};
use crate::http::{TOOL, external, granted};
use crate::support::api::segment;
use crate::support::{Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    the_feed_is_the_journal_event_by_event,
    events_tell_no_content,
    a_cursor_goes_on_where_it_stands_and_nowhere_else,
    a_filter_passes_what_it_names,
    a_wait_ends_with_the_event,
    a_waiter_hears_of_another_replica,
    a_cursor_whose_event_is_gone_is_refused,
);

async fn the_feed_is_the_journal_event_by_event(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for operation in ["a", "b", "c"] {
        let granted = granted(&api, operation).await;
        api.outcome(operation, &bodies::succeeded(&granted)).await.expect(200);
    }
    let events = complete(&api, &["a", "b", "c"]).await;
    let ids: BTreeSet<&str> = events.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), events.len());
    for operation in ["a", "b", "c"] {
        let of: Vec<_> = events.iter().filter(|event| event["data"]["operation_id"] == operation).cloned().collect();
        assert_eq!(names(&of), api.events(operation).await);
        let journal = api.journal(operation).await;
        for event in &of {
            let entry = &journal[usize::try_from(event["data"]["revision"].as_u64().unwrap()).unwrap() - 1];
            assert_eq!(event["timestamp"], entry["at"]);
            assert_eq!(event["data"]["state"], entry["state"]);
            assert_eq!(event["journal"]["hash"], entry["hash"]);
            assert_eq!(event["data"]["tool"], TOOL);
        }
    }
    for limit in [1, 2, 3] {
        assert_eq!(all(&api, limit).await, events, "pages of {limit}");
    }
}

async fn events_tell_no_content(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let intent = bodies::with(
        bodies::claiming("op", TOOL),
        &json!({ "arguments": { "card": "planted-argument" }, "target": "planted-target" }),
    );
    let granted = api.intent(&intent).await.expect(201);
    let receipt = bodies::with(
        bodies::receipt("op"),
        &json!({ "target": "planted-target", "message": "planted-message", "structured": { "x": "planted-structured" } }),
    );
    let verification = bodies::with(bodies::verification(), &json!({ "target": "planted-target" }));
    let report = bodies::with(
        bodies::report(&granted, "succeeded"),
        &json!({ "receipt": receipt, "verification": verification, "result": { "x": "planted-result" } }),
    );
    api.outcome("op", &report).await.expect(200).state("completed");
    complete(&api, &["op"]).await;
    let text = api.read("/api/events?limit=200").await.expect(200).text;
    assert!(text.contains("effect.completed"));
    for secret in
        ["planted", granted.str("/dispatch/idempotency_key"), granted.str("/dispatch/dispatch_id"), &api.tenant]
    {
        assert!(!text.contains(secret), "{secret}");
    }
}

async fn a_cursor_goes_on_where_it_stands_and_nowhere_else(store: StoreUnderTest) {
    let (api, other) = (store.tenant(), store.tenant());
    let (none, start) = page(&api, "limit=5", None).await;
    assert!(none.is_empty());
    external(&api).await;
    granted(&api, "a").await;
    complete(&api, &["a"]).await;
    let (first, cursor) = page(&api, "limit=200", Some(&start)).await;
    assert!(names(&first).contains(&"effect.dispatched"), "{first:?}");
    // A cursor looks different each time: whether others wrote meanwhile can't be read from it.
    let (none, same) = page(&api, "limit=200", Some(&cursor)).await;
    assert!(none.is_empty() && same != cursor);
    let latest = api.read("/api/events?after=latest").await.expect(200);
    assert_eq!(latest.at("/items"), &json!([]));
    granted(&api, "b").await;
    complete(&api, &["a", "b"]).await;
    for cursor in [&cursor, &same, latest.str("/next_cursor")] {
        let (next, _) = page(&api, "limit=200", Some(cursor)).await;
        assert!(!next.is_empty() && next.iter().all(|event| event["data"]["operation_id"] == "b"));
    }
    for (api, cursor) in [(&other, cursor.as_str()), (&api, "nonsense"), (&api, "")] {
        let answer = api.read(&format!("/api/events?after={}", segment(cursor))).await;
        answer.problem(400, "invalid-request").faults_at(&["query:after"]);
    }
    assert!(all(&other, 50).await.is_empty());
}

async fn a_filter_passes_what_it_names(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.put_tool("other", &json!({ "effect": "none" })).await.expect(201);
    granted(&api, "a").await;
    api.intent(&bodies::intent("b", "other")).await.expect(201);
    complete(&api, &["a", "b"]).await;
    let (dispatched, _) = page(&api, "events=effect.dispatched,effect.completed", None).await;
    assert_eq!(names(&dispatched), ["effect.dispatched"]);
    let (of_tool, cursor) = page(&api, "tool=other", None).await;
    assert!(!of_tool.is_empty() && of_tool.iter().all(|event| event["data"]["operation_id"] == "b"));
    // A cursor is a place in the feed, whatever the filter was.
    assert!(page(&api, "limit=1", Some(&cursor)).await.0.is_empty());
    let (of_operation, _) = page(&api, "operation_id=a", None).await;
    assert!(!of_operation.is_empty() && of_operation.iter().all(|event| event["data"]["tool"] == TOOL));
    api.read("/api/events?events=effect.invented").await.problem(400, "invalid-request").faults_at(&["query:events"]);
    api.read("/api/events?limit=201").await.problem(400, "invalid-request");
}

async fn a_wait_ends_with_the_event(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let (_, cursor) = page(&api, "limit=1", None).await;
    let path = format!("/api/events?events=effect.completed&after={}", segment(&cursor));
    let started = Instant::now();
    let empty = api.call("GET", &path).header("prefer", "wait=1").send().await.expect(200);
    assert_eq!(empty.at("/items"), &json!([]));
    assert!(started.elapsed() >= Duration::from_millis(900));
    let act = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let granted = granted(&api, "op").await;
        api.outcome("op", &bodies::succeeded(&granted)).await.expect(200);
    };
    let waiters = futures_util::future::join_all(
        (0..5).map(|_| async { api.call("GET", &path).header("prefer", "wait=30").send().await.expect(200) }),
    );
    let started = Instant::now();
    let (answers, ()) = tokio::join!(waiters, act);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    for answer in answers {
        assert_eq!(names(answer.at("/items").as_array().unwrap()), ["effect.completed"]);
        assert_eq!(page(&api, "limit=9", Some(answer.str("/next_cursor"))).await.0.len(), 0);
    }
}

async fn a_waiter_hears_of_another_replica(store: StoreUnderTest) {
    if store == StoreUnderTest::Sqlite {
        return;
    }
    let server = store.server(Options::default());
    let replica = server.replica();
    let (here, there) = (crate::support::Api::of(&server, "t"), crate::support::Api::of(&replica, "t"));
    external(&here).await;
    let wait = async { there.call("GET", "/api/events").header("prefer", "wait=30").send().await.expect(200) };
    let act = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        granted(&here, "op").await;
    };
    let started = Instant::now();
    let (answer, ()) = tokio::join!(wait, act);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert!(names(answer.at("/items").as_array().unwrap()).contains(&"effect.dispatched"));
}

/// After a restore to a time before the cursor's event, what is written since must not be passed by.
async fn a_cursor_whose_event_is_gone_is_refused(store: StoreUnderTest) {
    let (server, api) = (store.shared(), store.tenant());
    external(&api).await;
    granted(&api, "a").await;
    complete(&api, &["a"]).await;
    let (_, early) = page(&api, "limit=1", None).await;
    granted(&api, "b").await;
    complete(&api, &["a", "b"]).await;
    let (found, _) = page(&api, "limit=200", Some(&early)).await;
    // At the last event of `b`, and not behind what others wrote after it.
    let (_, cursor) = page(&api, &format!("limit={}", found.len()), Some(&early)).await;
    let lost = "(SELECT effect FROM entries WHERE intent LIKE '%\"operation_id\":\"b\"%' AND tenant";
    execute(server, &format!("DELETE FROM entries WHERE tenant = '{0}' AND effect IN {lost} = '{0}')", api.tenant))
        .await;
    granted(&api, "c").await;
    let path = format!("/api/events?after={}", segment(&cursor));
    api.read(&path).await.problem(410, "cursor-gone");
    api.call("GET", "/api/events")
        .header("accept", "text/event-stream")
        .header("last-event-id", &cursor)
        .send()
        .await
        .problem(410, "cursor-gone");
    complete(&api, &["a", "c"]).await;
    let (rest, _) = page(&api, "limit=200", Some(&early)).await;
    assert!(rest.iter().any(|event| event["data"]["operation_id"] == "c"));
}
