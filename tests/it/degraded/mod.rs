//! What the service says and does while something that it stands on is gone, full, slow or wrong (docs/operations.md,
//! "Degraded"): 503 with `Retry-After`, red readiness, green liveness, nothing half written, and back by itself.
//! Beside these: `scenarios::outage` (gone, restarted), `deploy::readonly`, `deploy::upgrade` (a schema at the start).

mod adapter;
mod clock;
mod crowd;
mod exhausted;
mod full;
mod schema;
mod slow;

use std::time::{Duration, Instant};

use crate::support::{Answer, Api};

/// Until readiness says this; liveness never says anything but 200.
async fn readiness(api: &Api, status: u16) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        api.read("/livez").await.expect(200);
        let ready = api.read("/readyz").await;
        if ready.status == status {
            if status == 503 {
                unavailable(ready);
            }
            return;
        }
        assert!(Instant::now() < until, "readiness is not {status}: {ready}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The answer, if it says that the store can't answer and when to come back.
#[track_caller]
fn unavailable(answer: Answer) -> Answer {
    let answer = answer.problem(503, "store-unavailable");
    assert!(answer.header("retry-after").is_some_and(|after| after.parse::<u32>().is_ok()), "{answer}");
    answer
}

/// The value of a metric without labels.
async fn metric(api: &Api, name: &str) -> f64 {
    let text = api.read("/metrics").await.expect(200).text;
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}
