//! More than the store takes: who has not begun is told to come later, at once; who has acted gets its place.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;

use super::metric;
use super::slow::hold;
use crate::http::{TOOL, external};
use crate::scenarios::intact;
use crate::support::{Answer, Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(new_acts_are_refused_while_much_waits_and_outcomes_are_not);

/// Two full batches and some: no store was seen to take as much in the time that an act may wait.
const CROWD: usize = 600;

/// The answer, if it refuses at once and says when to come back.
async fn refused(ask: impl Future<Output = Answer>) {
    let began = Instant::now();
    let answer = ask.await.problem(503, "capacity");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}: {answer}", began.elapsed());
    assert_eq!(answer.header("retry-after"), Some("1"), "{answer}");
}

async fn new_acts_are_refused_while_much_waits_and_outcomes_are_not(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let granted = api.intent(&bodies::claiming("before", TOOL)).await.expect(201).directive("dispatch");
    api.intent(&bodies::intent("unclaimed", TOOL)).await.expect(201);

    let release = hold(&server).await;
    let intents: Vec<_> = (0..CROWD).map(|n| bodies::claiming(&format!("op-{n}"), TOOL)).collect();
    let crowd = join_all(intents.iter().map(|intent| api.intent(intent)));
    let late = bodies::claiming("late", TOOL);
    let claim = json!({ "worker": "w", "claim_id": "c", "lease_seconds": 60 });
    let meanwhile = async {
        let until = Instant::now() + Duration::from_secs(4);
        while metric(&api, "actonce_commits_waiting").await < 512.0 {
            assert!(Instant::now() < until, "no crowd came");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        refused(api.intent(&late)).await;
        refused(api.post("/api/effects/unclaimed/dispatch", &claim)).await;
        refused(api.post("/api/intents/batch", &json!({ "items": [late] }))).await;
        // What is there can be read, and who has acted waits for the store like the crowd.
        api.get("before").await.expect(200).state("dispatched");
        let report = bodies::succeeded(&granted);
        let mut outcome = Box::pin(api.outcome("before", &report));
        let told = tokio::time::timeout(Duration::from_millis(200), &mut outcome).await;
        assert!(told.is_err(), "{told:?}");
        release.await;
        outcome.await.expect(200).state("completed");
    };
    let (crowd, ()) = tokio::join!(crowd, meanwhile);

    let (taken, others): (Vec<_>, Vec<_>) = crowd.into_iter().partition(|answer| answer.status == 201);
    // Who came last of the crowd may have found it there already.
    assert!(taken.len() >= 512, "{} were taken", taken.len());
    let refusals = others.len() + 3;
    for other in others {
        other.problem(503, "capacity");
    }
    assert!(
        (metric(&api, "actonce_acts_refused_total").await - f64::from(u32::try_from(refusals).unwrap())).abs() < 0.5
    );
    assert!(metric(&api, "actonce_commits_waiting").await < 0.5);
    api.get("late").await.problem(404, "not-found");
    api.intent(&late).await.expect(201).directive("dispatch");
    api.post("/api/effects/unclaimed/dispatch", &claim).await.expect(200).directive("dispatch");
    assert_eq!(intact(&server)["entries"], json!(taken.len() + 5));
}
