//! What is written beside a revision, in its transaction, and what that depends on.

use actonce::domain::ids::{EffectKey, Name};
use actonce::domain::state::State;
use actonce::domain::time::Timestamp;
use actonce::store::{
    Adopted, Adoption, Beside, Committed, GrantRow, GrantWritten, ProfileRow, RevisionRow, SessionRow,
};
use futures_util::future::join_all;
use uuid::Uuid;

use super::bed::{Bed, both_ways, revise};
use super::effects::{Maker, TOOL, name, tenant};
use crate::support::StoreUnderTest;

both_ways!(
    arguments_come_and_go_with_their_revisions,
    what_is_lost_leaves_nothing_beside,
    a_grant_is_counted_with_its_revision_alone,
    a_grant_in_one_batch_is_not_used_too_often,
    a_grant_raced_by_stores_is_not_used_too_often,
    a_session_bound_otherwise_loses,
    a_session_is_bound_once,
    an_adoption_sees_what_is_open,
);

fn with(row: &RevisionRow, beside: Beside) -> RevisionRow {
    RevisionRow { beside: Some(Box::new(beside)), ..row.clone() }
}

async fn maker(bed: &Bed) -> Maker {
    Maker::external("tenant", bed.now().await)
}

async fn add(bed: &Bed, id: u128, max_uses: u32, ends: Timestamp) -> Uuid {
    let row = GrantRow {
        id: Uuid::from_u128(id),
        tool: name(TOOL),
        terms: "{}".to_owned(),
        uses: 0,
        max_uses,
        created_at: bed.now().await,
        expires_at: ends,
        revoked: None,
    };
    assert_eq!(bed.store.add_grant(&tenant("tenant"), &row, 100).await.unwrap(), GrantWritten::Applied);
    row.id
}

async fn uses(bed: &Bed, id: Uuid) -> (u32, i64) {
    let grant = bed.store.grant(&tenant("tenant"), id).await.unwrap().unwrap();
    (grant.uses, bed.count("SELECT count(*) FROM grant_uses").await)
}

fn using(grant: Uuid) -> Beside {
    Beside { grant_use: Some(grant), ..Beside::default() }
}

/// The row that settles an effect, as a cancellation would.
fn settled(row: &RevisionRow) -> RevisionRow {
    RevisionRow {
        revision: row.revision + 1,
        state: State::Failed,
        intent: None,
        was_open: true,
        open: None,
        prev_hash: row.hash,
        beside: Some(Box::new(Beside { forget: true, ..Beside::default() })),
        ..row.clone()
    }
}

async fn arguments_come_and_go_with_their_revisions(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = maker(&bed).await;
    let rows: Vec<RevisionRow> = ["a", "b", "c"]
        .into_iter()
        .map(|operation| {
            let sealed = format!("sealed {operation}").into_bytes();
            with(&maker.create(operation).0, Beside { retained: Some(sealed), ..Beside::default() })
        })
        .collect();
    let changes: Vec<_> = rows.iter().map(revise).collect();
    assert_eq!(bed.commit(&changes).await, [Committed::Applied; 3]);
    let kept = async |operation: &str| bed.store.retained(&maker.key(operation)).await.unwrap();
    assert_eq!(kept("b").await.unwrap(), b"sealed b");
    let foreign = EffectKey { tenant: tenant("other"), ..maker.key("b") };
    assert_eq!(bed.store.retained(&foreign).await.unwrap(), None);
    assert_eq!(bed.revise(&settled(&rows[1])).await, Committed::Applied);
    assert_eq!((kept("a").await.is_some(), kept("b").await, kept("c").await.is_some()), (true, None, true));
    let rest: Vec<_> = [&rows[0], &rows[2]].into_iter().map(|row| revise(&settled(row))).collect();
    assert_eq!(bed.commit(&rest).await, [Committed::Applied; 2]);
    assert_eq!(bed.count("SELECT count(*) FROM retained_arguments").await, 0);
}

async fn what_is_lost_leaves_nothing_beside(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = maker(&bed).await;
    let first = with(&maker.create("a").0, Beside { retained: Some(vec![1]), ..Beside::default() });
    let grant = add(&bed, 1, 5, bed.now().await.plus_seconds(60)).await;
    assert_eq!(bed.revise(&first).await, Committed::Applied);
    let again = Beside { retained: Some(vec![2]), grant_use: Some(grant), ..Beside::default() };
    assert_eq!(bed.revise(&with(&first, again)).await, Committed::Lost);
    assert_eq!(bed.store.retained(&first.key).await.unwrap().unwrap(), [1]);
    assert_eq!(uses(&bed, grant).await, (0, 0));
    // A settlement that is late forgets nothing.
    let mut late = settled(&first);
    late.revision = 3;
    assert_eq!(bed.revise(&late).await, Committed::Lost);
    assert_eq!(bed.store.retained(&first.key).await.unwrap().unwrap(), [1]);
}

async fn a_grant_is_counted_with_its_revision_alone(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = maker(&bed).await;
    let tenant = tenant("tenant");
    let far = bed.now().await.plus_seconds(60);
    let grant = add(&bed, 1, 1, far).await;
    let row = |operation: &str, grant: Uuid| with(&maker.create(operation).0, using(grant));
    assert_eq!(bed.revise(&row("a", grant)).await, Committed::Applied);
    assert_eq!(uses(&bed, grant).await, (1, 1));
    assert_eq!(bed.revise(&row("b", grant)).await, Committed::Lost, "used up");
    assert_eq!(bed.revise(&row("b", Uuid::from_u128(9))).await, Committed::Lost, "absent");
    let expired = add(&bed, 2, 5, bed.now().await).await;
    assert_eq!(bed.revise(&row("b", expired)).await, Committed::Lost, "expired");
    let revoked = add(&bed, 3, 5, far).await;
    assert!(bed.store.revoke_grant(&tenant, revoked, &name("ann"), bed.now().await).await.unwrap());
    assert_eq!(bed.revise(&row("b", revoked)).await, Committed::Lost, "revoked");
    let foreign = Maker::external("other", bed.now().await);
    assert_eq!(bed.revise(&with(&foreign.create("b").0, using(grant))).await, Committed::Lost, "foreign");
    assert_eq!(uses(&bed, grant).await, (1, 1));
    assert_eq!(bed.rows().await, (1, 1));
    let live = bed.store.live_grants(&tenant, &name(TOOL), 10).await.unwrap();
    assert!(live.is_empty(), "{live:?}");
}

async fn a_grant_in_one_batch_is_not_used_too_often(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = maker(&bed).await;
    let far = bed.now().await.plus_seconds(60);
    let (one, two) = (add(&bed, 1, 3, far).await, add(&bed, 2, 2, far).await);
    let batch: Vec<_> = (0..10)
        .map(|number| {
            let grant = if number % 2 == 0 { one } else { two };
            revise(&with(&maker.create(&format!("op-{number}")).0, using(grant)))
        })
        .collect();
    let done = bed.commit(&batch).await;
    assert_eq!(done.iter().filter(|done| **done == Committed::Applied).count(), 5, "{done:?}");
    assert_eq!((uses(&bed, one).await, uses(&bed, two).await), ((3, 5), (2, 5)));
    assert_eq!(bed.rows().await, (5, 5));
}

async fn a_grant_raced_by_stores_is_not_used_too_often(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = maker(&bed).await;
    let far = bed.now().await.plus_seconds(60);
    // Two grants in both orders: whoever locks in no order of its own would stand still.
    let grants = [add(&bed, 1, 11, far).await, add(&bed, 2, 11, far).await];
    let others = [bed.another().await, bed.another().await];
    let batches = (0..20).map(|batch| {
        let changes: Vec<_> = (0..4)
            .map(|number| {
                let grant = grants[(batch + number) % 2];
                revise(&with(&maker.create(&format!("op-{batch}-{number}")).0, using(grant)))
            })
            .collect();
        let store = &others[batch % 2];
        async move { store.commit(&changes).await.unwrap() }
    });
    let done: Vec<Committed> = join_all(batches).await.concat();
    assert_eq!(done.iter().filter(|done| **done == Committed::Applied).count(), 22);
    assert_eq!((uses(&bed, grants[0]).await, uses(&bed, grants[1]).await), ((11, 22), (11, 22)));
    assert_eq!(bed.rows().await, (22, 22));
    for store in others {
        store.close().await;
    }
}

fn session(profile: &str, at: Timestamp) -> SessionRow {
    SessionRow { id: name("session"), profile: name(profile), bound_at: at, bound_by: name("agent") }
}

fn expecting(profile: &str) -> Beside {
    Beside { session: Some((name("session"), name(profile))), ..Beside::default() }
}

async fn a_session_bound_otherwise_loses(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = maker(&bed).await;
    let row = |operation: &str, profile: &str| revise(&with(&maker.create(operation).0, expecting(profile)));
    assert_eq!(bed.commit(&[row("a", "one")]).await, [Committed::Lost], "bound to nothing");
    bed.store.bind_session(&tenant("tenant"), &session("one", bed.now().await)).await.unwrap();
    let batch = [row("a", "one"), row("b", "two"), row("c", "one")];
    assert_eq!(bed.commit(&batch).await, [Committed::Applied, Committed::Lost, Committed::Applied]);
    let foreign = Maker::external("other", bed.now().await);
    let foreign = revise(&with(&foreign.create("a").0, expecting("one")));
    assert_eq!(bed.commit(&[foreign]).await, [Committed::Lost]);
    assert_eq!(bed.rows().await, (2, 2));
}

async fn a_session_is_bound_once(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let tenant = tenant("tenant");
    let now = bed.now().await;
    let rows: Vec<SessionRow> = (0..8).map(|number| session(&format!("profile-{number}"), now)).collect();
    let bound = join_all(rows.iter().map(|row| bed.store.bind_session(&tenant, row))).await;
    let first = bound[0].as_ref().unwrap().clone();
    assert!(bound.iter().all(|bound| *bound.as_ref().unwrap() == first));
    assert_eq!(bed.store.session(&tenant, &name("session")).await.unwrap(), Some(first));
    let profile =
        ProfileRow { id: name("id"), components: "[1]".to_owned(), declared_at: now, declared_by: name("ann") };
    bed.store.add_profile(&tenant, &profile).await.unwrap();
    let again = ProfileRow { components: "[2]".to_owned(), declared_by: name("ben"), ..profile.clone() };
    bed.store.add_profile(&tenant, &again).await.unwrap();
    assert_eq!(bed.store.profile(&tenant, &name("id")).await.unwrap(), Some(profile));
}

async fn an_adoption_sees_what_is_open(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let (maker, tenant) = (maker(&bed).await, tenant("tenant"));
    let wish = |key: &str, profile: &str, at| Adoption {
        session: name("session"),
        key: name(key),
        previous: name("not looked at"),
        profile: name(profile),
        request: format!("to {profile}"),
        by: name("ann"),
        at,
    };
    let now = bed.now().await;
    assert_eq!(bed.store.adopt(&tenant, &wish("k", "two", now)).await.unwrap(), Adopted::Unbound);
    bed.store.bind_session(&tenant, &session("one", now)).await.unwrap();
    let row = maker.create("a").0;
    assert_eq!(bed.revise(&with(&row, expecting("one"))).await, Committed::Applied);
    let found = bed.store.adopt(&tenant, &wish("k", "two", now)).await.unwrap();
    assert_eq!(found, Adopted::Unresolved(vec![(row.state, 1)]));
    assert_eq!(bed.count("SELECT count(*) FROM adoptions").await, 0);
    assert_eq!(bed.revise(&settled(&row)).await, Committed::Applied);
    let made = Adoption { previous: name("one"), ..wish("k", "two", now) };
    assert_eq!(bed.store.adopt(&tenant, &wish("k", "two", now)).await.unwrap(), Adopted::Applied(made.clone()));
    assert_eq!(bed.store.adopt(&tenant, &wish("k", "three", now)).await.unwrap(), Adopted::Known(made));
    let bound: Option<Name> = bed.store.session(&tenant, &name("session")).await.unwrap().map(|row| row.profile);
    assert_eq!(bound, Some(name("two")));
    let late = revise(&with(&maker.create("b").0, expecting("one")));
    assert_eq!(bed.commit(&[late]).await, [Committed::Lost]);
}
