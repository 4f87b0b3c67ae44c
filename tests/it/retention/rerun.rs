//! Over HTTP: nothing unresolved goes, replays hold within the window, and what was pruned never runs again. The
//! oracle is the downstream's own count.

use serde_json::json;

use super::{DAY, prune, tombstones};
use crate::http::{TOOL, external};
use crate::scenarios::intact;
use crate::store::bed::Bed;
use crate::support::api::segment;
use crate::support::downstream::{Downstream, Mode};
use crate::support::{Answer, Api, Options, Server, StoreUnderTest, bodies, both_stores};

both_stores!(what_was_pruned_never_runs_again_and_what_is_unresolved_stays);

/// Claims, acts, reports.
async fn act(api: &Api, downstream: &Downstream, operation: &str) -> Answer {
    let granted = api.intent(&bodies::claiming(operation, TOOL)).await.expect(201).directive("dispatch");
    downstream.act(operation).await.unwrap();
    api.outcome(operation, &bodies::succeeded(&granted)).await.expect(200).state("completed");
    granted
}

/// Effects that are not settled, or that somebody has to look at.
async fn unresolved(api: &Api) -> Vec<&'static str> {
    api.intent(&bodies::intent("prepared", TOOL)).await.expect(201);
    let doubtful = api.intent(&bodies::claiming("doubtful", TOOL)).await.expect(201);
    api.outcome("doubtful", &bodies::unknown(&doubtful)).await.expect(200).state("outcome_unknown");
    let unsent = api.intent(&bodies::claiming("unsent", TOOL)).await.expect(201);
    api.outcome("unsent", &bodies::not_sent(&unsent)).await.expect(200).state("safe_to_retry");
    let flagged = api.intent(&bodies::claiming("flagged", TOOL)).await.expect(201);
    api.outcome("flagged", &bodies::failed(&flagged)).await.expect(200).state("failed");
    api.outcome("flagged", &bodies::succeeded(&flagged)).await.problem(409, "state-conflict");
    assert_eq!(api.get("flagged").await.json["contradicted"], true);
    vec!["prepared", "doubtful", "unsent", "flagged"]
}

async fn what_was_pruned_never_runs_again_and_what_is_unresolved_stays(store: StoreUnderTest) {
    let bed = Bed::with_clock(store).await;
    let server = Server::start(Options { database_url: Some(bed.url()), ..Options::default() });
    let (api, downstream) = (Api::of(&server, "t"), Downstream::start(Mode::Normal).await);
    external(&api).await;
    let open = unresolved(&api).await;
    let granted = act(&api, &downstream, "done").await;
    let in_run = bodies::with(bodies::claiming("first of a run", TOOL), &json!({ "run_id": "long" }));
    let first = api.intent(&in_run).await.expect(201);
    api.outcome("first of a run", &bodies::succeeded(&first)).await.expect(200).state("completed");
    api.intent(&bodies::intent("withdrawn", TOOL)).await.expect(201);
    api.cancel("withdrawn").await.expect(200).state("failed");

    let mut cursors = Vec::new();
    let mut after = String::new();
    while let Some(cursor) = next_event(&api, &after).await {
        after = format!("&after={}", segment(&cursor));
        cursors.push(after.clone());
    }

    bed.pass(29 * DAY).await;
    let replay = api.intent(&bodies::claiming("done", TOOL)).await.expect(200).directive("replay");
    let (code, report) = prune(&bed, &["--older-than", "30d"]).await;
    assert_eq!((code, &report["examined"], &report["pruned"]), (0, &json!(0), &json!(0)), "{report:#}");
    let again = api.intent(&bodies::claiming("done", TOOL)).await.expect(200).directive("replay");
    assert_eq!(again.text, replay.text, "byte for byte within the window");

    bed.pass(2 * DAY).await;
    // A service asks the database for its time every so often; this one does at its start.
    server.stop();
    server.restart();
    let api = api.at(&server);
    act(&api, &downstream, "young").await;
    let in_run = bodies::with(bodies::intent("second of a run", TOOL), &json!({ "run_id": "long" }));
    api.intent(&in_run).await.expect(201);
    let before = states(&api, &open).await;
    let (code, dry) = prune(&bed, &["--older-than", "30d", "--dry-run"]).await;
    assert_eq!((code, &dry["dry_run"], &dry["pruned"], tombstones(&bed).await), (0, &json!(true), &json!(2), 0));
    let (code, report) = prune(&bed, &["--older-than", "30d", "--batch", "1"]).await;
    assert_eq!((code, &report["pruned"], &report["kept"]), (0, &json!(2), &json!(5)), "{report:#}");
    assert_eq!((&report["examined"], &report["tenants"][0]["tenant"]), (&dry["examined"], &json!("t")));
    let (_, report) = prune(&bed, &["--older-than", "30d"]).await;
    assert_eq!(report["pruned"], 0, "once");

    // Another process, as it remembers nothing.
    server.stop();
    server.restart();
    let api = api.at(&server);
    assert_eq!(states(&api, &open).await, before);
    api.get("first of a run").await.expect(200).state("completed");
    refused(&api, &granted).await;
    // Who read the events up to one that is pruned now misses nothing of what came after it.
    for after in cursors {
        let events = api.read(&format!("/api/events?limit=200{after}")).await.expect(200);
        assert!(events.text.contains(r#""operation_id":"young""#), "{events}");
        assert!(!events.text.contains(r#""operation_id":"done""#) && !events.text.contains("withdrawn"), "{events}");
    }
    assert_eq!(downstream.commits("done"), 1);
    let listed = api.pages("/api/effects?limit=200").await;
    assert!(listed.iter().all(|effect| effect["operation_id"] != "done" && effect["operation_id"] != "withdrawn"));
    assert_eq!(listed.len(), open.len() + 3);
    let all = intact(&server);
    assert_eq!((&all["pruned"], &all["effects"]), (&json!(2), &json!(open.len() + 5)));
}

/// The place after the next event, if there is one.
async fn next_event(api: &Api, after: &str) -> Option<String> {
    let page = api.read(&format!("/api/events?limit=1{after}")).await.expect(200);
    let is_one = page.at("/items").as_array().unwrap().len() == 1;
    is_one.then(|| page.str("/next_cursor").to_owned())
}

async fn states(api: &Api, operations: &[&str]) -> Vec<serde_json::Value> {
    let mut states = Vec::new();
    for operation in operations {
        let found = api.get(operation).await.expect(200);
        states.push(json!([found.json["state"], found.json["receipt"], found.json["arguments_digest"]]));
    }
    states
}

/// Whatever is asked about a pruned effect, the answer is that it was settled, and nothing is done.
async fn refused(api: &Api, granted: &Answer) {
    let intent = api.intent(&bodies::claiming("done", TOOL)).await.problem(409, "state-conflict");
    assert_eq!((intent.at("/directive"), intent.at("/state")), (&json!("stop"), &json!("completed")));
    assert!(intent.json["pruned_at"].is_string(), "{intent}");
    let withdrawn = api.intent(&bodies::claiming("withdrawn", TOOL)).await.problem(409, "state-conflict");
    assert_eq!((withdrawn.at("/state"), withdrawn.at("/executed")), (&json!("failed"), &json!(false)));
    for change in [json!({ "target": "elsewhere" }), json!({ "arguments": { "n": 2 } }), json!({ "effect": "none" })] {
        let other = bodies::with(bodies::claiming("done", TOOL), &change);
        let answer = api.intent(&other).await;
        assert!([400, 422].contains(&answer.status.as_u16()), "{answer}");
    }
    let other = bodies::with(bodies::claiming("done", TOOL), &json!({ "target": "elsewhere" }));
    api.intent(&other).await.problem(422, "operation-reused");
    api.dispatch("done", &bodies::claim()).await.problem(409, "state-conflict");
    api.heartbeat("done", &bodies::heartbeat(granted)).await.problem(409, "state-conflict");
    let late = api.outcome("done", &bodies::succeeded(granted)).await.problem(409, "state-conflict");
    assert_eq!(late.at("/evidence_recorded"), false);
    api.cancel("done").await.problem(409, "state-conflict");
    api.get("done").await.problem(409, "state-conflict");
    for what in ["journal", "evidence", "inspection", "reports", "resolutions"] {
        let path = format!("/api/effects/{}/{what}", segment("done"));
        api.read(&path).await.problem(409, "state-conflict");
    }
}
