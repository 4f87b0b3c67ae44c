//! No silent state (law 10): after random histories, every effect that is not settled has a deadline
//! that the database knows, or stands in the operator's queue; and what stands there has a reason to.

use std::collections::BTreeMap;

use actonce::auth::{Principal, Scopes};
use actonce::domain::command::Command;
use actonce::domain::ids::{EffectKey, Tenant};
use actonce::domain::record::Record;
use actonce::domain::state::State;
use actonce::service::Service;
use actonce::service::queue::QueueFilter;
use actonce::service::queue_item::{QueueItem, QueueReason};
use uuid::Uuid;

use super::history::{self, Dice, Step, tenants};
use super::reference::Reference;
use super::{AD_HOC, Subject};
use crate::store::effects::{claim, failure, name, owner, report, tenant};
use crate::store::engine::service_on;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(no_state_is_silent, doubt_is_shown_when_half_of_its_time_is_over);

const STEPS: usize = 160;

pub(super) fn service(subject: &Subject) -> Service {
    service_on(subject.engine.store(), &subject.engine)
}

fn operator(tenant: &Tenant) -> Principal {
    Principal { tenant: tenant.clone(), subject: name("operator"), scopes: Scopes::all() }
}

/// The whole queue of a tenant, page by page, each effect once, and the counts agree.
pub(super) async fn queue(service: &Service, tenant: &Tenant) -> BTreeMap<Uuid, QueueItem> {
    let (mut found, mut cursor, mut counts) = (BTreeMap::new(), None, None);
    let mut last = None;
    loop {
        let caller = operator(tenant);
        let page = service.queue(&caller, &QueueFilter::default(), cursor.as_deref(), 3).await.unwrap();
        counts = counts.or(page.counts);
        for item in page.items {
            let place = Some((item.created_at, item.effect));
            assert!(place > last, "oldest first");
            last = place;
            assert!(found.insert(item.effect, item).is_none(), "an effect stands in the queue twice");
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let counts = counts.unwrap();
    assert!(!counts.is_capped);
    for (reason, count) in counts.counts {
        let listed = found.values().filter(|item| item.reason == reason).count();
        assert_eq!(u64::try_from(listed).unwrap(), count, "{reason:?}");
    }
    found
}

async fn all(subject: &Subject, reference: &Reference) -> Vec<Record> {
    let mut records = Vec::new();
    for key in reference.keys() {
        records.push(subject.bed.load(&key).await.unwrap());
    }
    records
}

/// What is not settled has a deadline in the database, or is in the queue, or will be there when its
/// time to be claimed is over. Settled effects are in it only if they are contradicted.
async fn check(subject: &Subject, service: &Service, reference: &Reference, hours_passed: bool) {
    let mut queues = BTreeMap::new();
    for tenant in tenants() {
        queues.insert(tenant.clone(), queue(service, &tenant).await);
    }
    for record in all(subject, reference).await {
        let (key, life) = (&record.key, &record.life);
        let item = queues.get_mut(&key.tenant).unwrap().remove(&key.effect);
        let due = subject
            .bed
            .count(&format!("SELECT count(*) FROM open_effects WHERE due_us IS NOT NULL AND {}", subject.bed.of(key)))
            .await;
        assert_eq!(due == 1, life.due_at().is_some(), "the database does not know the deadline of {life:?}");
        let waits_for_claim = matches!(life.state, State::IntentRecorded | State::SafeToRetry);
        // Hours after everything was due, with no sweep, whatever is open is seen.
        let may_wait = !hours_passed && (waits_for_claim || due == 1);
        if life.state.is_terminal() {
            assert_eq!(item.is_some(), life.contradicted, "{life:?}");
        } else {
            assert!(item.is_some() || may_wait, "silent: {life:?}");
        }
        match item.map(|item| item.reason) {
            Some(QueueReason::ManualReview) => assert_eq!(life.state, State::ManualReview),
            Some(QueueReason::Contradicted) => assert!(life.contradicted),
            Some(QueueReason::Unclaimed) => assert!(waits_for_claim),
            Some(QueueReason::OutcomeUnknown) => assert_eq!(life.state, State::OutcomeUnknown),
            Some(QueueReason::Blocked) => assert!(due == 1),
            None => assert!(life.state != State::ManualReview && !life.contradicted, "{life:?}"),
        }
    }
    assert!(queues.values().all(BTreeMap::is_empty), "nothing else is in a queue");
}

async fn no_state_is_silent(store: StoreUnderTest) {
    for seed in 100..103 {
        let subject = Subject::new(store).await;
        let service = service(&subject);
        let (mut reference, mut dice) = (Reference::new(AD_HOC), Dice(seed));
        let mut beginning = history::beginning().into_iter();
        for number in 0..STEPS {
            let step = beginning.next().unwrap_or_else(|| history::step(&mut dice, &reference));
            reference.play(&step);
            Box::pin(subject.play(&step)).await;
            if number % 40 == 39 {
                Box::pin(check(&subject, &service, &reference, false)).await;
            }
        }
        Box::pin(subject.play(&Step::Pass(7_200))).await;
        Box::pin(check(&subject, &service, &reference, true)).await;
        // Sweeps move all that is due, and then there is no blocked one.
        for _ in 0..2 {
            Box::pin(subject.play(&Step::Sweep { principal: name("actonce") })).await;
        }
        for tenant in tenants() {
            let blocked =
                queue(&service, &tenant).await.into_values().filter(|item| item.reason == QueueReason::Blocked);
            assert_eq!(blocked.count(), 0);
        }
        subject.bed.store.close().await;
    }
}

/// The history's tool `refund` has 240 seconds to reconcile.
async fn doubt_is_shown_when_half_of_its_time_is_over(store: StoreUnderTest) {
    let subject = Subject::new(store).await;
    let service = service(&subject);
    for step in history::beginning() {
        Box::pin(subject.play(&step)).await;
    }
    let tenant = tenant("tenant 1");
    let mut proposal = history::plain("op", "refund");
    proposal.claim = None;
    let key = EffectKey::of(&tenant, &name("op"));
    Box::pin(subject.engine.propose(&tenant, &name("agent"), proposal)).await.unwrap();
    let shown = async || queue(&service, &tenant).await.into_values().map(|item| item.reason).collect::<Vec<_>>();
    assert_eq!(shown().await, []);
    // Nobody claims it for an hour.
    Box::pin(subject.play(&Step::Pass(3_540))).await;
    assert_eq!(shown().await, []);
    Box::pin(subject.play(&Step::Pass(120))).await;
    assert_eq!(shown().await, [QueueReason::Unclaimed]);
    let apply =
        async |command: Command| Box::pin(subject.engine.apply(&key, &name("agent"), command)).await.unwrap().record;
    let record = apply(claim("one")).await;
    assert_eq!(record.life.state, State::Dispatched);
    assert_eq!(shown().await, [], "somebody acts");
    let doubt = report(owner(&record), actonce::domain::command::Report::Unknown(failure("slow")));
    assert_eq!(apply(doubt).await.life.state, State::OutcomeUnknown);
    assert_eq!(shown().await, []);
    Box::pin(subject.play(&Step::Pass(100))).await;
    assert_eq!(shown().await, [], "not half");
    Box::pin(subject.play(&Step::Pass(30))).await;
    assert_eq!(shown().await, [QueueReason::OutcomeUnknown]);
    Box::pin(subject.play(&Step::Pass(120))).await;
    assert_eq!(shown().await, [QueueReason::OutcomeUnknown], "due, and a sweep may still come");
    Box::pin(subject.play(&Step::Pass(60))).await;
    assert_eq!(shown().await, [QueueReason::Blocked], "no sweep came");
    Box::pin(subject.play(&Step::Sweep { principal: name("actonce") })).await;
    assert_eq!(shown().await, [QueueReason::ManualReview]);
    subject.bed.store.close().await;
}
