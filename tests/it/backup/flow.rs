//! The whole way: load, backup, more work, loss, restore, and nobody acts twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::{back_up, put_back, restore_epoch};
use crate::http::{TOOL, external};
use crate::scenarios::intact;
use crate::support::api::Answer;
use crate::support::downstream::{Downstream, Mode};
use crate::support::{Api, Options, Server, StoreUnderTest, blocking, bodies, both_stores};

both_stores!(a_backup_under_load_restores_what_was_acknowledged_and_nobody_acts_twice);

/// The distance between the fences of two restores.
const EPOCH: u64 = 1 << 20;

/// Claims, acts, and reports.
pub(super) async fn act(api: &Api, downstream: &Downstream, operation: &str) -> Answer {
    let granted = api.intent(&bodies::claiming(operation, TOOL)).await.expect(201).directive("dispatch");
    downstream.act(operation).await.unwrap();
    api.outcome(operation, &bodies::succeeded(&granted)).await.expect(200).state("completed");
    granted
}

/// Works until told to stop; the operations that were acknowledged.
async fn load(api: Api, downstream: Arc<Downstream>, stop: Arc<AtomicBool>, worker: u32) -> Vec<String> {
    let mut done = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let operation = format!("load-{worker}-{}", done.len());
        act(&api, &downstream, &operation).await;
        done.push(operation);
    }
    done
}

/// What stands open when the backup is made.
pub(super) struct Before {
    pub(super) settled: Answer,
    held: Answer,
    retried: Answer,
}

pub(super) async fn prepare(server: &Server, api: &Api, downstream: &Downstream) -> Before {
    external(api).await;
    api.put_tool("guarded", &json!({ "effect": "external", "authorization": { "mode": "approval" } }))
        .await
        .expect(201);
    act(api, downstream, "settled").await;
    let settled = api.intent(&bodies::claiming("settled", TOOL)).await.expect(200).directive("replay");
    let held = api.intent(&bodies::claiming("held", TOOL)).await.expect(201).directive("dispatch");
    api.intent(&bodies::intent("prepared", TOOL)).await.expect(201);
    let retried = api.intent(&bodies::claiming("retried", TOOL)).await.expect(201).directive("dispatch");
    api.outcome("retried", &bodies::not_sent(&retried)).await.expect(200).state("safe_to_retry");
    let proposed = api.intent(&bodies::intent("approved", "guarded")).await.expect(201);
    let ann = api.with_token(Some(server.token(&api.tenant, "ann", "effects:approve")));
    ann.authorize("approved", 1, &bodies::decision(&proposed, "approve")).await.expect(200);
    api.intent(&bodies::intent("waiting", "guarded")).await.expect(201).state("proposed");
    Before { settled, held, retried }
}

async fn a_backup_under_load_restores_what_was_acknowledged_and_nobody_acts_twice(store: StoreUnderTest) {
    let server = Arc::new(store.server(Options::default()));
    let (api, downstream) = (Api::of(&server, "t"), Arc::new(Downstream::start(Mode::Normal).await));
    let before = prepare(&server, &api, &downstream).await;
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..3).map(|n| load(api.clone(), Arc::clone(&downstream), Arc::clone(&stop), n)).collect();
    let backup = async {
        // Some of the load is acknowledged before the backup begins, and some comes while it is made.
        while downstream.total() < 20 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let sure = api.pages("/api/effects?limit=200&state=completed").await;
        let server = Arc::clone(&server);
        let backup = blocking(move || back_up(&server, "backup")).await;
        let total = downstream.total();
        while downstream.total() < total + 10 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        stop.store(true, Ordering::SeqCst);
        (sure, backup)
    };
    let ((sure, backup), loaded) = tokio::join!(backup, futures_util::future::join_all(workers));

    // After the backup: all of this will be lost.
    let lost = act(&api, &downstream, "lost").await;
    for operation in ["prepared", "retried", "approved"] {
        api.dispatch(operation, &bodies::claim()).await.expect(200).directive("dispatch");
        downstream.act(operation).await.unwrap();
    }
    server.kill9();

    let options = put_back(&server, &backup, "restored");
    let (code, report, told) = restore_epoch(&options, "disk-1");
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("is told to act again"), "{told}");
    assert_eq!((&report["epoch"], &report["paused_tools"], &report["repeated"]), (&json!(1), &json!(2), &json!(false)));
    let copy = Server::start(options.clone());
    let api = api.at(&copy);

    // What was settled is answered byte for byte, and everything is there that was acknowledged before.
    let again = api.intent(&bodies::claiming("settled", TOOL)).await.expect(200).directive("replay");
    assert_eq!(again.text, before.settled.text);
    for effect in &sure {
        let found = api.get(effect["operation_id"].as_str().unwrap()).await.expect(200).state("completed");
        assert_eq!(found.json["revision"], effect["revision"]);
    }
    fenced_off(&api, &before).await;
    nobody_is_told_to_act(&api, &downstream, &lost).await;
    goes_on(&api, &downstream).await;
    for operation in loaded.iter().flatten() {
        assert_eq!(downstream.commits(operation), 1, "{operation}");
    }
    let verified = intact(&copy);
    assert_eq!(verified["restores"][0]["epoch_id"], "disk-1");
}

/// Workers from before hold no lease and decide nothing; what they say is kept.
pub(super) async fn fenced_off(api: &Api, before: &Before) {
    api.heartbeat("held", &bodies::heartbeat(&before.held)).await.problem(409, "lease-lost");
    let late = api.outcome("held", &bodies::succeeded(&before.held)).await.problem(409, "stale-fence");
    assert_eq!((late.at("/evidence_recorded"), late.at("/newest_fence")), (&json!(true), &json!(EPOCH)));
    api.outcome("retried", &bodies::succeeded(&before.retried)).await.problem(409, "stale-fence");
    assert!(api.events("held").await.contains(&"effect.restored".to_owned()));
}

/// What may have been done in the time that is lost is in doubt, and what is not known at all is held.
pub(super) async fn nobody_is_told_to_act(api: &Api, downstream: &Downstream, lost: &Answer) {
    for operation in ["prepared", "approved", "waiting"] {
        api.dispatch(operation, &bodies::claim()).await.expect(200).directive("reconcile").state("outcome_unknown");
    }
    // What a worker from before said about these excludes that nothing happened: a person looks.
    for operation in ["held", "retried"] {
        api.dispatch(operation, &bodies::claim()).await.expect(200).directive("review").state("manual_review");
    }
    api.intent(&bodies::claiming("lost", TOOL)).await.expect(201).directive("stop").state("intent_recorded");
    api.outcome("lost", &bodies::succeeded(lost)).await.problem(409, "stale-fence");
    for operation in ["lost", "prepared", "retried", "approved"] {
        assert_eq!(downstream.commits(operation), 1, "{operation}");
    }
}

/// A person looks at the downstream's own list, decides, and resumes the tool.
pub(super) async fn goes_on(api: &Api, downstream: &Downstream) {
    let held = api.get("held").await.revision();
    api.resolve("held", held, &bodies::resolution("1", "completed")).await.expect(200).state("completed");
    let retried = api.get("retried").await.revision();
    api.resolve("retried", retried, &bodies::resolution("2", "safe_to_retry")).await.expect(200);
    api.dispatch("retried", &bodies::claim()).await.expect(200).directive("stop");
    // Its worker came back with a receipt, which excludes that nothing was done.
    let lost = api.get("lost").await.state("manual_review").revision();
    api.resolve("lost", lost, &bodies::resolution("3", "completed")).await.expect(200);
    api.resume(TOOL).await.expect(200);
    api.resume("guarded").await.expect(200);
    let again = api.dispatch("retried", &bodies::claim()).await.expect(200).directive("dispatch");
    assert_eq!(again.dispatch().1, EPOCH + 1);
    let granted = act(api, downstream, "new").await;
    assert_eq!(granted.dispatch().1, EPOCH + 1);
    api.intent(&bodies::claiming("lost", TOOL)).await.expect(200).directive("replay");
    assert_eq!(downstream.commits("lost"), 1);
}
