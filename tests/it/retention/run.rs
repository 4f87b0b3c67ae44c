//! Runs of the command: two at once, one that is killed, one beside a late report, and what was promised.

use std::time::Duration;

use actonce::domain::journal::entry_hash;
use actonce::domain::record::Record;
use actonce::domain::retention::Tombstone;
use actonce::service::journal::verify;
use actonce::store::Committed::{Applied, Lost};
use actonce::store::retention::Grave;
use serde_json::json;

use super::{DAY, orphans, prune, prune_output, settle, tombstones};
use crate::store::bed::{Bed, both_ways, revise};
use crate::store::effects::{Maker, contradiction};
use crate::support::server::program;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(
    two_runs_at_once_prune_each_effect_once,
    a_run_that_is_killed_leaves_every_effect_whole_or_pruned,
    late_reports_and_pruning_at_once_leave_no_half,
    nobody_shortens_what_the_configuration_promises,
);
both_ways!(what_changed_meanwhile_is_left_alone_and_what_was_pruned_takes_nothing_more);

async fn many(bed: &Bed, effects: usize) -> Vec<Record> {
    let maker = Maker::external("tenant", bed.now().await);
    let mut records = Vec::new();
    for n in 0..effects {
        records.push(settle(bed, &maker, &format!("op {n}")).await);
    }
    bed.pass(40 * DAY).await;
    records
}

async fn whole(bed: &Bed) -> u64 {
    let report = verify(bed.store.as_ref()).await.unwrap();
    assert_eq!((report.damaged, orphans(bed).await), (0, 0), "{:?}", report.findings);
    report.pruned
}

async fn two_runs_at_once_prune_each_effect_once(store: StoreUnderTest) {
    let bed = Bed::with_clock(store).await;
    many(&bed, 40).await;
    let arguments = ["--older-than", "30d", "--batch", "3"];
    let ((one, first), (other, second)) = tokio::join!(prune(&bed, &arguments), prune(&bed, &arguments));
    assert_eq!((one, other), (0, 0));
    let sum = first["pruned"].as_u64().unwrap() + second["pruned"].as_u64().unwrap();
    assert_eq!((sum, tombstones(&bed).await, whole(&bed).await), (40, 40, 40));
    let (_, limited) = prune(&bed, &arguments).await;
    assert_eq!((&limited["examined"], &limited["more"]), (&json!(0), &json!(false)));
}

async fn a_run_that_is_killed_leaves_every_effect_whole_or_pruned(store: StoreUnderTest) {
    let bed = Bed::with_clock(store).await;
    many(&bed, 60).await;
    let mut run = program();
    run.args(["prune", "--older-than", "30d", "--batch", "1"]).env("DATABASE_URL", bed.url());
    let mut child = run.stdout(std::process::Stdio::null()).spawn().unwrap();
    while tombstones(&bed).await == 0 && child.try_wait().unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let pruned = whole(&bed).await;
    assert!(pruned > 0);
    let (_, report) = prune(&bed, &["--older-than", "30d", "--limit", "2", "--batch", "2"]).await;
    let some = (60 - pruned).min(2);
    assert_eq!((&report["pruned"], &report["more"]), (&json!(some), &json!(pruned + some < 60)));
    prune(&bed, &["--older-than", "30d"]).await;
    assert_eq!(whole(&bed).await, 60);
}

fn grave(record: &Record) -> Grave {
    let (before, now) = (record.life.updated_at.plus_seconds(1), record.life.updated_at.plus_seconds(2));
    let tombstone = Tombstone::of(record, before, now).unwrap();
    let text = serde_json::to_string(&tombstone).unwrap();
    let hash = entry_hash(&record.key, tombstone.revision, &record.head, &text);
    Grave { key: record.key.clone(), head: record.head, state: tombstone.state, text, hash }
}

async fn what_changed_meanwhile_is_left_alone_and_what_was_pruned_takes_nothing_more(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (early, late) = (settle(&bed, &maker, "early").await, settle(&bed, &maker, "late").await);
    assert!(Tombstone::of(&early, early.life.updated_at, early.life.updated_at).is_none(), "within the window");
    // Late truth comes after the effect was seen, and before it is pruned.
    let (row, flagged) = maker.next(&late, &contradiction(&late));
    assert_eq!(bed.revise(&row).await, Applied);
    assert_eq!(bed.store.prune(&[grave(&early), grave(&late)]).await.unwrap(), [early.key.effect]);
    assert_eq!(bed.load(&late.key).await.unwrap().head, flagged.head);
    // And the other way round: a change that was decided on the whole effect is lost.
    let (row, _) = maker.next(&early, &contradiction(&early));
    assert_eq!(bed.revise(&row).await, Lost);
    assert_eq!(bed.commit(&[revise(&maker.create("early").0)]).await, [Lost], "never again under its name");
    assert!(bed.store.prune(&[grave(&early)]).await.unwrap().is_empty(), "once");
    assert_eq!(whole(&bed).await, 1);
}

async fn late_reports_and_pruning_at_once_leave_no_half(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let mut records = Vec::new();
    for n in 0..30 {
        records.push(settle(&bed, &maker, &format!("op {n}")).await);
    }
    let another = bed.another().await;
    let mut both = 0;
    for some in records.chunks(5) {
        let graves: Vec<Grave> = some.iter().map(grave).collect();
        let changes: Vec<_> = some.iter().map(|record| revise(&maker.next(record, &contradiction(record)).0)).collect();
        let (pruned, written) = tokio::join!(another.prune(&graves), bed.store.commit(&changes));
        let (pruned, written) = (pruned.unwrap(), written.unwrap());
        let applied = written.iter().filter(|done| **done == Applied).count();
        both += pruned.len() + applied;
    }
    assert_eq!(both, 30, "each was pruned or took the report, and never both");
    whole(&bed).await;
}

async fn nobody_shortens_what_the_configuration_promises(store: StoreUnderTest) {
    let bed = Bed::with_clock(store).await;
    for tenant in ["a", "b", "c"] {
        settle(&bed, &Maker::external(tenant, bed.now().await), "op").await;
    }
    bed.pass(40 * DAY).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("actonce.toml");
    std::fs::write(&file, "[retention]\ndefault_days = 90\n[retention.tenants]\na = 30\nb = 0\n").unwrap();
    let file = file.to_str().unwrap();
    let (code, report) = prune(&bed, &["--config", file, "--older-than", "1d"]).await;
    let pruned: Vec<_> = report["tenants"].as_array().unwrap().iter().map(|of| &of["tenant"]).collect();
    assert_eq!((code, pruned, &report["unlimited_tenants"]), (0, vec![&json!("a")], &json!(1)), "{report:#}");
    let text = prune_output(&bed, &["--config", file, "--format", "text"]).await;
    assert!(String::from_utf8_lossy(&text.stdout).starts_with("0 pruned"));
    assert_eq!(prune(&bed, &[]).await.0, 2, "nothing says how long");
    for wrong in ["30", "0d", "-1d", "1h"] {
        assert_eq!(prune(&bed, &["--older-than", wrong]).await.0, 2, "{wrong}");
    }
    std::fs::write(folder.path().join("wrong.toml"), "[retention]\ndefault_days = 'soon'\n").unwrap();
    let wrong = folder.path().join("wrong.toml");
    assert_eq!(prune(&bed, &["--config", wrong.to_str().unwrap()]).await.0, 2);
    let (_, report) = prune(&bed, &["--older-than", "30d", "--tenant", "c"]).await;
    assert_eq!((&report["pruned"], tombstones(&bed).await), (&json!(1), 2));
}
