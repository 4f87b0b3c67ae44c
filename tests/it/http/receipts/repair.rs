//! A crash between the two commits of a settlement is repaired, whether or not the vendor comes again.

use serde_json::json;

use super::{doubtful, event, until_state, vendor, waiting};
use crate::scenarios::{intact, sql};
use crate::support::{Api, Options, Server, StoreUnderTest, both_stores};

both_stores!(a_kill_between_admission_and_settlement_is_repaired, two_replicas_apply_a_delivery_once);

/// From now on no effect completes (state 8): the second commit fails.
fn block(server: &Server, blocked: bool) {
    let statements: &[&str] = match (server.database_url().is_some(), blocked) {
        (true, true) => &[
            "CREATE FUNCTION block() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'blocked'; END $$ LANGUAGE plpgsql",
            "CREATE TRIGGER block BEFORE INSERT ON entries FOR EACH ROW WHEN (NEW.state = 8) EXECUTE FUNCTION block()",
        ],
        (true, false) => &["DROP TRIGGER block ON entries", "DROP FUNCTION block"],
        (false, true) => &["CREATE TRIGGER block BEFORE INSERT ON entries WHEN NEW.state = 8
                            BEGIN SELECT RAISE(ABORT, 'blocked'); END"],
        (false, false) => &["DROP TRIGGER block"],
    };
    for statement in statements {
        sql(server, statement);
    }
}

async fn a_kill_between_admission_and_settlement_is_repaired(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    let vendor = vendor(&api, &json!({})).await;
    doubtful(&api, "alone").await;
    doubtful(&api, "repeated").await;
    block(&server, true);
    let repeated = event("repeated", "re_2", "succeeded");
    for body in [&event("alone", "re_1", "succeeded"), &repeated] {
        let answer = vendor.call(&body.to_string()).send_to_a_fault().await.unwrap();
        assert_eq!(answer.status.as_u16(), 500, "{answer}");
    }
    for id in ["alone", "repeated"] {
        api.get(id).await.state("outcome_unknown");
        assert_eq!(api.events(id).await.last().unwrap(), "effect.reconciliation.started", "the first commit is there");
    }
    assert_eq!(waiting(&api).await.len(), 2, "what was delivered was put down first");
    server.kill9();
    block(&server, false);
    server.restart();
    let api = api.at(&server);
    let vendor = super::Vendor { api: api.with_token(None), ..vendor };
    let answer = vendor.deliver(&repeated).await.expect(200);
    // The background may have been faster.
    assert!(["settled", "known"].contains(&answer.str("/disposition")), "{answer}");
    for (id, receipt) in [("alone", "re_1"), ("repeated", "re_2")] {
        until_state(&api, id, "completed").await;
        let settled = api.get(id).await;
        assert_eq!(settled.str("/receipt/receipt_id"), receipt);
        let events = api.events(id).await;
        let started = events.iter().filter(|name| *name == "effect.reconciliation.started").count();
        assert_eq!(started, 1, "the attempt on record was continued: {events:?}");
    }
    super::eventually("nothing waits", || async { waiting(&api).await.is_empty() }).await;
    intact(&server);
}

async fn two_replicas_apply_a_delivery_once(store: StoreUnderTest) {
    if store == StoreUnderTest::Sqlite {
        return;
    }
    let server = store.server(Options::default());
    let replica = server.replica();
    let api = Api::of(&server, "t");
    let here = vendor(&api, &json!({})).await;
    let there = super::Vendor { api: api.at(&replica).with_token(None), ..here.clone() };
    for number in 0..10 {
        let id = format!("op-{number}");
        doubtful(&api, &id).await;
        let body = event(&id, "re_1", "succeeded");
        let answers = futures_util::future::join_all(
            [&here, &there, &here, &there].map(|vendor| async { vendor.deliver(&body).await.expect(200) }),
        )
        .await;
        let settled = answers.iter().filter(|answer| answer.str("/disposition") == "settled").count();
        assert!(settled <= 1, "{answers:?}");
        until_state(&api, &id, "completed").await;
        let events = api.events(&id).await;
        let completed = events.iter().filter(|name| *name == "effect.completed").count();
        assert_eq!(completed, 1, "{events:?}");
        assert!(!events.contains(&"effect.late_report".to_owned()), "{events:?}");
    }
    super::eventually("nothing waits", || async { waiting(&api).await.is_empty() }).await;
    intact(&server);
}
