//! Lists of effects: filters, cursors, order (protocol §5).

use serde_json::{Value, json};

use crate::http::{TOOL, external, granted, report};
use crate::support::api::segment;
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    filters_choose,
    filters_work_together,
    pages_are_complete_and_in_order,
    pages_stay_while_effects_come_and_change,
    cursors_belong_to_their_filter,
    a_page_has_fifty_by_default,
    a_list_reads_what_a_single_read_does,
);

async fn ids(api: &Api, query: &str) -> Vec<String> {
    let items = api.pages(&format!("/api/effects?limit=3&{query}")).await;
    items.iter().map(|item| item["operation_id"].as_str().unwrap().to_owned()).collect()
}

async fn filters_choose(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.put_tool("other", &json!({ "effect": "none" })).await.expect(201);
    let spread = |id: &str, more: Value| bodies::with(bodies::intent(id, TOOL), &more);
    api.intent(&spread("tool", json!({ "tool": "other" }))).await.expect(201);
    api.intent(&spread("target", json!({ "target": "a/b ü" }))).await.expect(201);
    api.intent(&spread("run", json!({ "run_id": "run-1" }))).await.expect(201);
    api.intent(&spread("session", json!({ "session_id": "s-1" }))).await.expect(201);
    let claim = json!({ "worker": "w 1", "claim_id": "c" });
    let worker = api.intent(&spread("worker", json!({ "claim": claim }))).await.expect(201);
    let plain = "tool,target,run,session,worker";
    for (query, expected) in [
        ("", plain),
        ("tool=other", "tool"),
        (&format!("tool={TOOL}"), "target,run,session,worker"),
        ("tool=absent", ""),
        (&format!("target={}", segment("a/b ü")), "target"),
        ("run_id=run-1", "run"),
        ("run_id=run-2", ""),
        ("session_id=s-1", "session"),
        ("session_id=S-1", ""),
        ("worker=w%201", "worker"),
        ("worker=w+1", "worker"),
        ("worker=w", ""),
        ("state=dispatched", "worker"),
        ("state=intent_recorded", "tool,target,run,session"),
        ("state=completed", ""),
        ("contradicted=true", ""),
        ("contradicted=false", plain),
        ("updated_before=2000-01-01T00:00:00Z", ""),
        ("updated_before=2100-01-01T00:00:00%2B01:00", plain),
        (&format!("updated_before={}", worker.str("/updated_at")), "tool,target,run,session"),
    ] {
        assert_eq!(ids(&api, query).await.join(","), expected, "{query}");
    }
    // Every state can be asked for.
    let done = granted(&api, "done").await;
    api.outcome("done", &bodies::succeeded(&done)).await.expect(200);
    api.cancel("run").await.expect(200).state("failed");
    for (state, expected) in [
        ("proposed", ""),
        ("verifying", ""),
        ("outcome_unknown", ""),
        ("safe_to_retry", ""),
        ("manual_review", ""),
        ("completed", "done"),
        ("failed", "run"),
        ("refused", ""),
    ] {
        assert_eq!(ids(&api, &format!("state={state}")).await.join(","), expected, "{state}");
    }
}

async fn filters_work_together(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for n in 0..12 {
        let more = json!({
            "run_id": format!("run-{}", n % 2), "session_id": format!("s-{}", n % 3), "target": format!("t-{}", n % 2),
        });
        api.intent(&bodies::with(bodies::intent(&format!("op-{n}"), TOOL), &more)).await.expect(201);
    }
    for n in [0, 3, 6] {
        api.dispatch(&format!("op-{n}"), &bodies::claim()).await.expect(200).directive("dispatch");
    }
    for (query, expected) in [
        ("run_id=run-0&session_id=s-0", "op-0,op-6"),
        ("session_id=s-0&state=dispatched", "op-0,op-3,op-6"),
        ("state=dispatched&target=t-1", "op-3"),
        ("run_id=run-0&worker=worker-1", "op-0,op-6"),
        ("run_id=run-0&target=t-1", ""),
        ("run_id=run-1&session_id=s-1&state=intent_recorded&contradicted=false", "op-1,op-7"),
    ] {
        assert_eq!(ids(&api, query).await.join(","), expected, "{query}");
    }
}

async fn many(api: &Api, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|n| format!("op-{n:02}")).collect();
    for name in &names {
        api.intent(&bodies::intent(name, TOOL)).await.expect(201);
    }
    names
}

async fn pages_are_complete_and_in_order(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let names = many(&api, 23).await;
    for limit in [1, 2, 7, 22, 23, 24, 200] {
        let found = api.pages(&format!("/api/effects?limit={limit}")).await;
        let found: Vec<&str> = found.iter().map(|item| item["operation_id"].as_str().unwrap()).collect();
        assert_eq!(found, names, "limit {limit}: oldest first, none twice, none missing");
        let page = api.list(&format!("limit={limit}")).await.expect(200);
        assert_eq!(page.at("/items").as_array().unwrap().len(), limit.min(23));
        assert_eq!(page.json["next_cursor"].is_null(), limit >= 23, "limit {limit}");
    }
    let empty = api.list("state=completed").await.expect(200);
    assert_eq!(empty.json, json!({ "items": [], "next_cursor": null }));
}

async fn pages_stay_while_effects_come_and_change(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let mut names = many(&api, 6).await;
    let first = api.list("limit=4").await.expect(200);
    api.intent(&bodies::intent("op-late", TOOL)).await.expect(201);
    // What was listed changes, what is to come changes: none moves.
    api.cancel("op-01").await.expect(200);
    api.cancel("op-05").await.expect(200);
    let second = api.list(&format!("limit=4&cursor={}", first.str("/next_cursor"))).await.expect(200);
    let items = [first.json["items"].as_array().unwrap().clone(), second.json["items"].as_array().unwrap().clone()];
    let found: Vec<String> =
        items.concat().iter().map(|item| item["operation_id"].as_str().unwrap().to_owned()).collect();
    names.push("op-late".to_owned());
    assert_eq!(found, names);
    assert_eq!(second.json["items"][1]["state"], "failed");
    // The same cursor again starts at the same place.
    let again = api.list(&format!("limit=4&cursor={}", first.str("/next_cursor"))).await.expect(200);
    assert_eq!(again.json, second.json);
}

async fn cursors_belong_to_their_filter(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    many(&api, 4).await;
    let page = api.list("limit=2&state=intent_recorded").await.expect(200);
    let cursor = page.str("/next_cursor").to_owned();
    api.list(&format!("limit=2&state=intent_recorded&cursor={cursor}")).await.expect(200);
    // Another size of page is another matter.
    api.list(&format!("limit=1&state=intent_recorded&cursor={cursor}")).await.expect(200);
    let mut changed = cursor.clone().into_bytes();
    let last = changed.len() - 1;
    changed[last] = if changed[last] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    for query in [
        format!("limit=2&cursor={cursor}"),
        format!("limit=2&state=dispatched&cursor={cursor}"),
        format!("limit=2&state=intent_recorded&tool={TOOL}&cursor={cursor}"),
        format!("limit=2&state=intent_recorded&cursor={changed}"),
        format!("limit=2&state=intent_recorded&cursor={}", &cursor[..cursor.len() - 4]),
        format!("limit=2&state=intent_recorded&cursor={cursor}AAAA"),
        "cursor=bm90aGluZw".to_owned(),
    ] {
        api.list(&query).await.problem(400, "invalid-request").faults_at(&["query:cursor"]);
    }
    let tools = api.read(&format!("/api/tools?cursor={cursor}")).await;
    tools.problem(400, "invalid-request").faults_at(&["query:cursor"]);
    // It tells nothing of what it stands for.
    for secret in ["op-01", "op-02", api.tenant.as_str()] {
        assert!(!cursor.contains(secret), "{cursor}");
    }
}

async fn a_page_has_fifty_by_default(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let posts = (0..51).map(|n| {
        let (api, body) = (api.clone(), bodies::intent(&format!("op-{n}"), TOOL));
        async move { api.intent(&body).await.expect(201) }
    });
    futures_util::future::join_all(posts).await;
    let page = api.read("/api/effects").await.expect(200);
    assert_eq!(page.at("/items").as_array().unwrap().len(), 50);
    let rest = api.list(&format!("cursor={}", page.str("/next_cursor"))).await.expect(200);
    assert_eq!(rest.at("/items").as_array().unwrap().len(), 1);
    assert_eq!(rest.json["next_cursor"], Value::Null);
}

async fn a_list_reads_what_a_single_read_does(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for (id, report) in [
        ("completed", report(bodies::succeeded)),
        ("verifying", report(bodies::receipted)),
        ("failed", report(bodies::failed)),
        ("unknown", report(bodies::unknown)),
        ("safe", report(bodies::not_sent)),
    ] {
        let granted = granted(&api, id).await;
        // A change is in the list as soon as it was answered.
        let state = api.outcome(id, &report(&granted)).await.expect(200).str("/state").to_owned();
        let found = api.pages(&format!("/api/effects?state={state}&limit=10")).await;
        assert_eq!(found.len(), 1, "{state}");
        let mut alone = api.get(id).await.expect(200).json;
        alone["replayed"] = found[0]["replayed"].clone();
        assert_eq!(found[0], alone);
    }
}
