//! The operator's queue (law 10).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::http::{TOOL, external, granted, in_review};
use crate::scenarios::sql;
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    the_queue_has_what_a_person_has_to_look_at,
    pages_and_filters_of_the_queue,
    what_cannot_be_read_is_seen_and_slows_nobody,
);

fn ids(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["operation_id"].as_str().unwrap_or("?")).collect()
}

async fn queue(api: &Api, query: &str) -> Vec<Value> {
    api.pages(&format!("/api/queue?{query}")).await
}

async fn the_queue_has_what_a_person_has_to_look_at(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let empty = api.read("/api/queue").await.expect(200);
    assert_eq!((empty.at("/items"), empty.at("/next_cursor")), (&json!([]), &Value::Null));
    let zeros = json!({ "manual_review": 0, "contradicted": 0, "blocked": 0, "outcome_unknown": 0, "unclaimed": 0 });
    assert_eq!((empty.at("/counts"), empty.at("/counts_capped")), (&zeros, &json!(false)));
    // What goes its way is not in it: prepared, dispatched, fresh doubt, settled.
    api.intent(&bodies::intent("prepared", TOOL)).await.expect(201);
    granted(&api, "dispatched").await;
    let doubt = granted(&api, "doubt").await;
    api.outcome("doubt", &bodies::unknown(&doubt)).await.expect(200).state("outcome_unknown");
    let done = granted(&api, "done").await;
    api.outcome("done", &bodies::succeeded(&done)).await.expect(200);
    assert_eq!(queue(&api, "limit=9").await, Vec::<Value>::new());
    in_review(&api, "review").await;
    let flagged = granted(&api, "flagged").await;
    api.outcome("flagged", &bodies::succeeded(&flagged)).await.expect(200);
    api.outcome("flagged", &bodies::failed(&flagged)).await.problem(409, "state-conflict");
    let page = api.read("/api/queue").await.expect(200);
    let items = page.at("/items").as_array().unwrap();
    assert_eq!(ids(items), ["review", "flagged"], "oldest first");
    let (review, flagged) = (&items[0], &items[1]);
    assert_eq!((&review["reason"], &review["reason_codes"][0]), (&json!("manual_review"), &json!("contradiction")));
    assert_eq!(review["actions"], json!(["resolve", "reconcile"]));
    assert_eq!(review["outcomes"], json!(["completed", "failed", "safe_to_retry", "outcome_unknown"]));
    assert_eq!((&review["blockers"], &review["revision"], &review["late_reports"]), (&json!([]), &json!(3), &json!(1)));
    assert!(review["age_seconds"].as_u64().unwrap() < 60);
    assert_eq!((&flagged["reason"], &flagged["state"]), (&json!("contradicted"), &json!("completed")));
    assert_eq!((&flagged["actions"], &flagged["outcomes"]), (&json!(["resolve"]), &json!(["completed", "failed"])));
    assert_eq!((page.at("/counts/manual_review"), page.at("/counts/contradicted")), (&json!(1), &json!(1)));
    // What the item says is enough to decide, and a decision takes it away.
    for item in items {
        let (id, revision) = (item["operation_id"].as_str().unwrap(), item["revision"].as_u64().unwrap());
        api.resolve(id, revision, &bodies::resolution("d-1", "completed")).await.expect(200);
    }
    assert_eq!(queue(&api, "limit=9").await, Vec::<Value>::new());
}

async fn pages_and_filters_of_the_queue(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.put_tool("other", &json!({ "effect": "external" })).await.expect(201);
    let (mut expected, mut contradicted) = (Vec::new(), Vec::new());
    // More of both kinds than one step of a walk takes, so that the walks have to keep pace.
    for number in 0..66 {
        let id = format!("op-{number}");
        if number % 3 == 0 {
            let granted = api.intent(&bodies::claiming(&id, "other")).await.expect(201);
            api.outcome(&id, &bodies::succeeded(&granted)).await.expect(200);
            api.outcome(&id, &bodies::failed(&granted)).await.problem(409, "state-conflict");
            contradicted.push(id.clone());
        } else {
            in_review(&api, &id).await;
        }
        expected.push(id);
    }
    for limit in [2, 7, 20, 65, 66, 200] {
        assert_eq!(ids(&queue(&api, &format!("limit={limit}")).await), expected, "limit {limit}");
    }
    assert_eq!(ids(&queue(&api, "limit=7&reason=contradicted").await), contradicted);
    // 25: the walk of the others ends a step before this page is full.
    for limit in [7, 25] {
        assert_eq!(ids(&queue(&api, &format!("limit={limit}&tool=other")).await), contradicted, "limit {limit}");
    }
    let others: Vec<&String> = expected.iter().filter(|id| !contradicted.contains(id)).collect();
    assert_eq!(ids(&queue(&api, &format!("limit=9&tool={TOOL}")).await), others);
    for none in ["reason=contradicted&tool=payments.refund", "reason=blocked", "reason=unclaimed", "tool=absent"] {
        assert!(queue(&api, &format!("limit=9&{none}")).await.is_empty(), "{none}");
    }
    let counted = api.read("/api/queue?limit=1&tool=other&reason=blocked").await.expect(200);
    assert_eq!(counted.at("/counts/contradicted"), 22, "of the tool, whatever the reason");
    assert_eq!(counted.at("/counts/manual_review"), 0);
    let page = api.read("/api/queue?limit=2").await.expect(200);
    let next = api.read(&format!("/api/queue?limit=2&cursor={}", page.str("/next_cursor"))).await.expect(200);
    assert!(next.json.get("counts").is_none(), "counted once per walk");
    for (query, pointer) in [
        ("reason=old", "query:reason"),
        ("limit=0", "query:limit"),
        ("limit=201", "query:limit"),
        ("cursor=x", "query:cursor"),
        ("tool=%00", "query:tool"),
    ] {
        api.read(&format!("/api/queue?{query}")).await.problem(400, "invalid-request").faults_at(&[pointer]);
    }
    api.read("/api/queue?more=1").await.problem(400, "invalid-request");
}

async fn what_cannot_be_read_is_seen_and_slows_nobody(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    api.put_tool("spoilt", &json!({ "effect": "external" })).await.expect(201);
    let mut expected = BTreeSet::new();
    for number in 0..5 {
        let id = format!("poison-{number}");
        if number % 2 == 0 {
            in_review(&api, &id).await;
        } else {
            granted(&api, &id).await;
        }
        expected.insert(id);
    }
    let lost = api.intent(&bodies::claiming("lost", "spoilt")).await.expect(201);
    api.outcome("lost", &bodies::not_sent(&lost)).await.expect(200);
    api.outcome("lost", &bodies::succeeded(&lost)).await.problem(409, "state-conflict");
    sql(
        &server,
        "UPDATE entries SET life = '{\"hunter2\":1}' WHERE revision = (SELECT o.revision FROM open_effects o \
        WHERE o.tenant = entries.tenant AND o.effect = entries.effect AND o.tool <> 'spoilt')",
    );
    sql(&server, "UPDATE open_effects SET due_us = due_us - 200000000 WHERE due_us IS NOT NULL");
    sql(&server, "UPDATE tool_revisions SET spec = 'hunter2' WHERE name = 'spoilt'");
    // Nothing of it is in memory after this.
    server.stop();
    server.restart();
    let api = api.at(&server);
    let items = queue(&api, "limit=2").await;
    assert_eq!(items.len(), 6, "{items:?}");
    let (unreadable, other): (Vec<&Value>, Vec<&Value>) =
        items.iter().partition(|item| item["blockers"] == json!(["invalid_durable_state"]));
    assert_eq!((unreadable.len(), other.len()), (5, 1));
    for item in unreadable {
        assert!(item.get("operation_id").is_none() && item["effect_id"].is_string(), "its key alone: {item}");
        assert!(item["reason"] == "blocked" || item["reason"] == "manual_review", "{item}");
        assert_eq!((&item["actions"], &item["outcomes"]), (&json!([]), &json!([])));
    }
    assert_eq!(
        (&other[0]["operation_id"], &other[0]["blockers"]),
        (&json!("lost"), &json!(["registration_unavailable"]))
    );
    assert!(!json!(items).to_string().contains("hunter2"));
    assert_eq!(api.read("/api/queue").await.at("/counts/blocked"), 2);
    // A sweep passes over them: what is clean goes its way.
    let clean = crate::http::granted_briefly(&api, "clean").await;
    crate::http::until_decided(&api, "clean").await.state("outcome_unknown");
    api.outcome("clean", &bodies::succeeded(&clean)).await.expect(200).state("completed");
    // A preview leaves them out and says so.
    let preview = api.post("/api/queue/resolutions/preview", &json!({ "tool": TOOL })).await.expect(200);
    assert_eq!((preview.at("/preview/count"), preview.at("/skipped/invalid_durable_state")), (&json!(0), &json!(3)));
}
