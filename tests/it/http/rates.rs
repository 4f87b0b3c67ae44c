//! Rates: of a tenant, and of a principal in it. Who is over its own takes nothing from others.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::http::{TOOL, external};
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(principals_and_tenants_have_their_own_share, a_batch_costs_its_items);

async fn principals_and_tenants_have_their_own_share(store: StoreUnderTest) {
    let options = Options::default()
        .env("ACTONCE_RATE_PRINCIPAL_PER_SECOND", "1")
        .env("ACTONCE_RATE_PRINCIPAL_BURST", "20")
        .env("ACTONCE_RATE_TENANT_PER_SECOND", "1")
        .env("ACTONCE_RATE_TENANT_BURST", "30");
    let server = store.server(options);
    let of = |tenant: &str, subject: &str| Api::new(&server.url(), tenant, Some(server.token(tenant, subject, "all")));
    let (greedy, modest, foreign) = (of("t", "greedy"), of("t", "modest"), of("u", "greedy"));
    external(&greedy).await;
    let mut passed = 1;
    let limited = loop {
        let answer = greedy.intent(&bodies::intent(&format!("op-{passed}"), TOOL)).await;
        if answer.status != 201 {
            break answer.problem(429, "rate-limited");
        }
        passed += 1;
        assert!(passed < 60, "no bound");
    };
    assert!((20..=25).contains(&passed), "{passed}");
    let seconds = limited.at("/retry_after_seconds").as_u64().unwrap();
    assert_eq!(limited.header("retry-after"), Some(seconds.to_string().as_str()), "{limited}");
    assert_eq!((seconds, limited.str("/limited_by")), (1, "principal"));
    assert!(!limited.text.contains("greedy"), "{limited}");
    // Another token of the same principal is no way around, a wrong one costs nothing, and the others go on.
    of("t", "greedy").list("limit=1").await.problem(429, "rate-limited");
    greedy.with_token(Some("x".to_owned())).list("limit=1").await.problem(401, "unauthenticated");
    foreign.list("limit=1").await.expect(200);
    modest.get(&format!("op-{passed}")).await.problem(404, "not-found");
    // The share of the tenant, which the refused requests of the other took nothing from.
    let mut shared = 0;
    let limited = loop {
        let answer = modest.list("limit=1").await;
        if answer.status != 200 {
            break answer.problem(429, "rate-limited");
        }
        shared += 1;
        assert!(shared < 60, "no bound");
    };
    assert!((4..=16).contains(&shared), "{shared}");
    assert_eq!(limited.str("/limited_by"), "tenant");
    foreign.list("limit=1").await.expect(200);
    // Nobody asks who looks after the service.
    let nobody = greedy.with_token(None);
    for _ in 0..40 {
        nobody.read("/livez").await.expect(200);
        nobody.read("/readyz").await.expect(200);
    }
    let metrics = nobody.read("/metrics").await.expect(200);
    assert!(metrics.text.contains("actonce_rate_limited_total{by=\"tenant\"}"), "{metrics}");
    // After the time that was told, or soon after, the same passes.
    let begun = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        if modest.list("limit=1").await.status == 200 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "never again");
    }
}

async fn a_batch_costs_its_items(store: StoreUnderTest) {
    let options = Options::default().env("ACTONCE_RATE_TENANT_PER_SECOND", "1").env("ACTONCE_RATE_TENANT_BURST", "100");
    let server = store.server(options);
    let api = Api::of(&server, "t");
    external(&api).await;
    let batch = |from: usize| {
        let items: Vec<_> = (from..from + 60).map(|number| bodies::intent(&format!("op-{number}"), TOOL)).collect();
        json!({ "items": items })
    };
    api.post("/api/intents/batch", &batch(0)).await.expect(200);
    let limited = api.post("/api/intents/batch", &batch(60)).await.problem(429, "rate-limited");
    assert!(limited.at("/retry_after_seconds").as_u64().unwrap() > 10, "{limited}");
    api.get("op-60").await.problem(404, "not-found");
    api.get("op-59").await.expect(200);
    api.post("/api/outcomes/batch", &json!({ "items": vec![json!({}); 60] })).await.problem(429, "rate-limited");
}
