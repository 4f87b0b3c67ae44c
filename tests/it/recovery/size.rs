//! The sweep at start in a database of a hundred thousand effects: it looks at what is incomplete, and
//! at nothing else.

use std::time::{Duration, Instant};

use actonce::domain::command::Propose;
use actonce::domain::recovery::Blocker;
use actonce::service::recovery::startup::SweepStatus;
use actonce::store::ChangeSet;

use super::sweep::Subject;
use crate::store::bed::{Bed, revise};
use crate::store::effects::{Maker, name, wish};
use crate::support::{StoreUnderTest, both_stores};

both_stores!(a_thousand_of_a_hundred_thousand_in_three_hundred_sessions);

const ALL: usize = 100_000;
const INCOMPLETE: usize = 1_000;
const SESSIONS: usize = 300;

/// Settled effects, as rows: nobody reads what is in them.
async fn settled(bed: &Bed, rows: usize) {
    let (numbers, id, bytes) = if bed.is_sqlite() {
        let numbers = format!("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows})");
        (numbers, "randomblob(16)", "x'00'")
    } else {
        (format!("WITH s(n) AS (SELECT generate_series(1, {rows}))"), "gen_random_uuid()", "'\\x00'::bytea")
    };
    let insert =
        "INSERT INTO entries (tenant, effect, revision, state, created_us, run_id, session_id, intent, life, entry,
        prev_hash, hash)";
    let filler = "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'";
    let select = format!(
        "SELECT 'tenant', {id}, 1, 8, n, 'run', 'session-' || (n % {SESSIONS}), '{{}}', {filler}, {filler}, {bytes}, {bytes} FROM s"
    );
    bed.execute(&format!("{insert} {numbers} {select}")).await;
}

async fn a_thousand_of_a_hundred_thousand_in_three_hundred_sessions(store: StoreUnderTest) {
    let loading = Instant::now();
    let subject = Subject::new(store).await;
    settled(&subject.bed, ALL - INCOMPLETE).await;
    let maker = Maker::external("tenant", subject.bed.now().await);
    let batches: Vec<Vec<ChangeSet>> = (0..INCOMPLETE)
        .collect::<Vec<_>>()
        .chunks(250)
        .map(|some| {
            some.iter()
                .map(|number| {
                    // Of ten sessions nobody has claimed anything: they are incomplete and not blocked.
                    let session = number % SESSIONS;
                    let proposal = Propose {
                        session_id: Some(name(&format!("session-{session:03}"))),
                        claim: (session >= 10).then(|| wish("one")),
                        ..maker.proposal(&format!("op-{number}"))
                    };
                    revise(&maker.first(&proposal).0)
                })
                .collect()
        })
        .collect();
    for batch in &batches {
        subject.bed.commit(batch).await;
    }
    assert_eq!(subject.bed.rows().await, (i64::try_from(ALL).unwrap(), i64::try_from(INCOMPLETE).unwrap()));
    let (loaded, started) = (loading.elapsed(), Instant::now());
    subject.service.startup_sweep(&subject.caller.subject).await.unwrap();
    let took = started.elapsed();
    let report = subject.service.startup_report(&subject.caller);
    eprintln!("{}: loaded in {loaded:?}, swept in {took:?}", store.word());
    assert_eq!(report.status, SweepStatus::Completed);
    assert_eq!((report.scheduled_roots, report.blocked_session_count, report.deferred_session_count), (300, 290, 290));
    assert_eq!((report.skipped_session_count, report.blocked_sessions_truncated), (0, true));
    let listed: Vec<String> = report.blocked_sessions.iter().map(|one| one.session_id.clone()).collect();
    let expected: Vec<String> = (10..110).map(|number| format!("session-{number:03}")).collect();
    assert_eq!(listed, expected, "the first hundred by name");
    assert!(report.blocked_sessions.iter().all(|one| one.blocker_codes == [Blocker::ActiveExecutionOwner]));
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(subject.bed.rows().await.0, i64::try_from(ALL).unwrap(), "and it writes nothing");
    subject.bed.store.close().await;
}
