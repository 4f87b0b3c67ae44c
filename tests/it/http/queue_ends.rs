//! The queue goes by the end of a doubt and not by the next question, in its items and in its counts.

use std::time::Duration;

use serde_json::json;

use crate::http::TOOL;
use crate::reconciliation::doubtful;
use crate::scenarios::{count, sql};
use crate::support::adapter::{FakeAdapter, OPEN, Reply};
use crate::support::api::Api;
use crate::support::{Options, StoreUnderTest, bodies, both_stores};

both_stores!(items_and_counts_go_by_the_end_of_a_doubt);

async fn items_and_counts_go_by_the_end_of_a_doubt(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Hang).await;
    let server = store.server(OPEN.iter().fold(Options::default(), |options, (name, value)| options.env(name, value)));
    let api = Api::of(&server, "t");
    let spec = json!({ "effect": "external", "reconciliation": "automatic", "reconcile_deadline_seconds": 7200,
        "adapter": bodies::with(adapter.spec(), &json!({ "verify": false, "timeout_seconds": 120 })) });
    api.put_tool(TOOL, &spec).await.expect(201);
    for id in ["a", "b", "c"] {
        doubtful(&api, id).await;
    }
    while adapter.calls() < 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Made long ago, doubtful since now, and looked at again soon: when the question has been open for too long.
    sql(&server, "UPDATE open_effects SET created_us = created_us - 7000000000");
    let soon = "SELECT count(*) FROM open_effects WHERE due_us < deadline_us - 3600000000";
    assert_eq!(count(&server, soon), 3, "that is long before the end");
    let seen = async || {
        let page = api.read("/api/queue?limit=9").await.expect(200);
        let items = u64::try_from(page.at("/items").as_array().unwrap().len()).unwrap();
        (items, page.at("/counts/outcome_unknown").as_u64().unwrap(), page.at("/counts/blocked").as_u64().unwrap())
    };
    assert_eq!(seen().await, (0, 0, 0), "half of the time is not over");
    let one = "effect = (SELECT effect FROM open_effects ORDER BY effect LIMIT 1)";
    sql(&server, &format!("UPDATE open_effects SET deadline_us = deadline_us - 3700000000 WHERE {one}"));
    assert_eq!(seen().await, (1, 1, 0), "of one it is");
    sql(&server, "UPDATE open_effects SET deadline_us = deadline_us - 3700000000 WHERE deadline_us IS NOT NULL");
    assert_eq!(seen().await, (3, 3, 0));
}
