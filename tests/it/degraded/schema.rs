//! The schema changes under a running service: a table is not what it was.

use super::{readiness, unavailable};
use crate::http::{TOOL, external};
use crate::scenarios::{intact, sql};
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(a_schema_that_goes_away_is_told_and_comes_back);

async fn a_schema_that_goes_away_is_told_and_comes_back(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let granted = api.intent(&bodies::claiming("before", TOOL)).await.expect(201).directive("dispatch");
    sql(&server, "ALTER TABLE entries RENAME TO somewhere_else");
    for _ in 0..3 {
        unavailable(api.intent(&bodies::claiming("during", TOOL)).await);
        unavailable(api.outcome("before", &bodies::succeeded(&granted)).await);
        unavailable(api.get("unknown").await);
    }
    readiness(&api, 503).await;
    sql(&server, "ALTER TABLE somewhere_else RENAME TO entries");
    readiness(&api, 200).await;
    api.intent(&bodies::claiming("during", TOOL)).await.expect(201).directive("dispatch");
    api.outcome("before", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    assert_eq!(intact(&server)["entries"], 3);
}
