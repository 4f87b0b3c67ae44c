//! Writes that the database refuses, and rows that nobody can read back.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{entries, sql, verification};
use crate::http::{TOOL, external, until_decided};
use crate::support::{Answer, Api, Options, Server, StoreUnderTest, bodies, both_stores};

both_stores!(a_refused_journal_entry_takes_the_whole_change_with_it, an_unreadable_effect_harms_no_other);

const MARKER: &str = "marker-of-the-database";

fn refuse_entries(server: &Server) {
    if server.database_url().is_some() {
        sql(
            server,
            &format!(
                "CREATE FUNCTION refuse_entry() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION '{MARKER}'; END $$; \
                 CREATE TRIGGER refuse_entry BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION refuse_entry();"
            ),
        );
    } else {
        sql(
            server,
            &format!("CREATE TRIGGER refuse_entry BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, '{MARKER}'); END"),
        );
    }
}

fn accept_entries(server: &Server) {
    let on = if server.database_url().is_some() { " ON entries" } else { "" };
    sql(server, &format!("DROP TRIGGER refuse_entry{on}"));
}

/// A problem of the service that tells nothing of its inside.
fn is_silent_fault(answer: &Answer) {
    assert!(answer.status.is_server_error(), "{answer}");
    let slug = if answer.status == 503 { "store-unavailable" } else { "internal-error" };
    answer.clone().problem(answer.status.as_u16(), slug);
    let text = answer.text.to_lowercase();
    for word in [MARKER, "entries", "trigger", "sql", "postgres", "database", "insert", "column", "corrupt row", "life"]
    {
        assert!(!text.contains(word), "{word}: {answer}");
    }
}

async fn a_refused_journal_entry_takes_the_whole_change_with_it(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let live = api.intent(&bodies::claiming("live", TOOL)).await.expect(201).directive("dispatch");
    let report = bodies::succeeded(&live);
    let (intent, claiming) = (bodies::intent("new", TOOL), bodies::claiming("claimed", TOOL));
    refuse_entries(&server);
    for _ in 0..3 {
        let faulty = |path: &str, body: &serde_json::Value| api.call("POST", path).json(body).send_to_a_fault();
        is_silent_fault(&faulty("/api/intents", &intent).await.unwrap());
        is_silent_fault(&faulty("/api/intents", &claiming).await.unwrap());
        is_silent_fault(&faulty("/api/effects/live/outcome", &report).await.unwrap());
        is_silent_fault(&faulty("/api/effects/live/cancel", &json!({})).await.unwrap());
        // Many at once go to the database together.
        let many = (0..20).map(|n| {
            let body = bodies::claiming(&format!("many-{n}"), TOOL);
            let call = api.call("POST", "/api/intents").json(&body);
            async move { is_silent_fault(&call.send_to_a_fault().await.unwrap()) }
        });
        futures_util::future::join_all(many).await;
        for id in ["new", "claimed", "many-0"] {
            api.get(id).await.problem(404, "not-found");
        }
        let found = api.get("live").await.expect(200).state("dispatched").directive("wait");
        assert_eq!(found.revision(), 1);
        // A renewal writes no entry, so it goes on.
        api.heartbeat("live", &bodies::heartbeat(&live)).await.expect(200);
        let open = api.pages("/api/effects?limit=200").await;
        assert_eq!(open.len(), 1, "{open:?}");
    }
    assert_eq!(entries(&server), 1);
    accept_entries(&server);
    api.intent(&intent).await.expect(201).directive("claim");
    api.intent(&claiming).await.expect(201).directive("dispatch");
    assert_eq!(api.outcome("live", &report).await.expect(200).state("completed").revision(), 2);
    for n in 0..20 {
        api.intent(&bodies::claiming(&format!("many-{n}"), TOOL)).await.expect(201).directive("dispatch");
    }
    assert_eq!(entries(&server), 24, "no revision was skipped");
}

async fn an_unreadable_effect_harms_no_other(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let brief = |id: &str, seconds: u32| {
        let body = bodies::with(bodies::claiming(id, TOOL), &json!({ "run_id": "run-1" }));
        bodies::set(body, "/claim/lease_seconds", json!(seconds))
    };
    api.intent(&brief("before", 60)).await.expect(201).directive("dispatch");
    api.intent(&brief("poison", 1)).await.expect(201).directive("dispatch");
    let live = api.intent(&brief("after", 60)).await.expect(201).directive("dispatch");
    api.intent(&bodies::with(bodies::intent("poison-2", TOOL), &json!({ "run_id": "run-1" }))).await.expect(201);
    for id in ["poison", "poison-2"] {
        sql(
            &server,
            &format!("UPDATE entries SET life = '{{\"{MARKER}' WHERE intent LIKE '%\"{id}\"%' AND revision = 1"),
        );
    }
    // Nothing of them is at hand any more.
    server.kill9();
    server.restart();
    let api = api.at(&server);
    let started = Instant::now();
    let granted = api.intent(&brief("expiring", 2)).await.expect(201).directive("dispatch");
    let waited = until_decided(&api, "expiring").await.state("outcome_unknown").directive("reconcile");
    let took = started.elapsed();
    assert!(took > Duration::from_secs(2), "{took:?}: {waited}");
    assert!(took < Duration::from_secs(12), "an unreadable effect that is due holds up the sweep: {took:?}");
    for id in ["poison", "poison-2"] {
        for (method, path) in [("GET", ""), ("POST", "/cancel")] {
            let call = api.call(method, &format!("/api/effects/{id}{path}"));
            let answer = call.send_to_a_fault().await.unwrap();
            is_silent_fault(&answer);
            assert_eq!(answer.status, 500, "{answer}");
        }
        let again = api.call("POST", "/api/intents").json(&brief(id, 1)).send_to_a_fault().await.unwrap();
        is_silent_fault(&again);
    }
    // The others and all lists go on.
    let ids = |items: Vec<serde_json::Value>| -> Vec<String> {
        items.iter().map(|item| item["operation_id"].as_str().unwrap().to_owned()).collect()
    };
    let readable = ["before", "after", "expiring"];
    for query in ["limit=2", "limit=2&run_id=run-1", "limit=200"] {
        assert_eq!(ids(api.pages(&format!("/api/effects?{query}")).await), readable, "{query}");
    }
    assert_eq!(ids(api.pages("/api/effects?limit=1&state=dispatched").await), ["before", "after"]);
    api.run("run-1").await.expect(200);
    api.outcome("after", &bodies::succeeded(&live)).await.expect(200).state("completed");
    api.outcome("expiring", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    api.get("before").await.expect(200).state("dispatched");
    api.read("/readyz").await.expect(200);
    // The verification names what was spoilt, and nothing else.
    let (code, report) = verification(&server);
    assert_eq!((code, &report["damaged"]), (Some(1), &json!(2)), "{report:#}");
}
