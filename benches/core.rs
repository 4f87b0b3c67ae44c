//! The pure parts of the hot path, alone: `cargo bench --bench core`.
//!
//! Times move with the machine; for a figure that does not, count instructions:
//! `valgrind --tool=callgrind target/release/deps/core-… --bench 'decide'`.

use std::hint::black_box;
use std::sync::Arc;

use actonce::auth::{Algorithm, Authenticator, ClaimRules, Grant, Key, Scopes, Settings, mint};
use actonce::domain::canonical::Canonical;
use actonce::domain::command::{Claim, Propose};
use actonce::domain::decide::{self, Change, Context};
use actonce::domain::ids::{EffectKey, Name, Tenant};
use actonce::domain::journal::entry_hash;
use actonce::domain::time::Timestamp;
use actonce::domain::tool::{Tool, ToolSpec};
use actonce::engine::encode::encode;
use actonce::support::random_id;
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::value::RawValue;

const ARGUMENTS: &str = r#"{"user_id":"user-c69f066f","origin":"JFK","destination":"SEA","flight_type":"one_way",
 "cabin":"economy","flights":[{"flight_number":"HAT136","date":"2024-05-20"},{"flight_number":"HAT039","date":"2024-05-20"}],
 "passengers":[{"first_name":"x-4150950870","last_name":"x-3d368a0b97","dob":"x-b822646c32"}],
 "payment_methods":[{"payment_id":"pa-ed10c9f1","amount":250},{"payment_id":"pa-9488137d","amount":5}],
 "total_baggages":3,"nonfree_baggages":1,"insurance":"no"}"#;

type Error = Box<dyn std::error::Error>;

fn name(text: &str) -> Name {
    Name::new(text).unwrap_or_else(|_| unreachable!("a valid name"))
}

fn proposal(arguments: &RawValue) -> Result<(Propose, Context), Error> {
    let now = Timestamp::from_micros(1_767_225_600_000_000);
    let tool = Tool::new(name("book_reservation"), 0, ToolSpec::ad_hoc(), false, 0, now);
    let context = Context {
        now,
        principal: name("agent"),
        tool: Arc::clone(&tool),
        current: Some(tool),
        profile_changed: false,
        elapsed_us: None,
    };
    let canonical = Canonical::of(arguments)?;
    let propose = Propose {
        operation_id: name("airline-t0-r0-4"),
        tool: name("book_reservation"),
        class: None,
        target: name("user-c69f066f"),
        arguments_digest: canonical.digest(),
        arguments: Some(Arc::new(canonical)),
        run_id: Some(name("airline-t0-r0")),
        session_id: None,
        call_id: None,
        profile_id: None,
        claim: Some(Claim {
            worker: name("agent-7"),
            claim: Some(Claim::digest(&name("agent-7"), "one")),
            lease_seconds: None,
            dispatch_id: random_id(),
        }),
        idempotency_key: "ao1_SLJxGatDm3zBpj6-PBL2XM_3BOczO7n0edefxWEEvcA".into(),
        duplicate_of: None,
        sent: None,
        grant: None,
        fence_base: 0,
    };
    Ok((propose, context))
}

fn hot_path(criterion: &mut Criterion) -> Result<(), Error> {
    let raw = RawValue::from_string(ARGUMENTS.to_owned())?;
    criterion.bench_function("canonical digest of real arguments", |bencher| {
        bencher.iter(|| Canonical::of(black_box(&raw)).map(|canonical| canonical.digest()));
    });
    let (propose, context) = proposal(&raw)?;
    criterion.bench_function("decide a new intent with a claim", |bencher| {
        bencher.iter(|| decide::propose(None, black_box(&propose), &context));
    });
    let tenant = Tenant::new("bench").map_err(|_| "a tenant")?;
    let key = EffectKey::of(&tenant, &propose.operation_id);
    let Some(Change::Revise(revision)) = decide::propose(None, &propose, &context).change else {
        return Err("no change".into());
    };
    let intent = revision.intent.clone().ok_or("no intent")?;
    criterion.bench_function("rows and hashes of a new intent", |bencher| {
        bencher.iter(|| encode(&key, None, &intent, *revision.clone(), &context));
    });
    let entry = "x".repeat(800);
    criterion.bench_function("journal hash of 800 bytes", |bencher| {
        bencher.iter(|| entry_hash(&key, 2, &[7; 32], black_box(&entry)));
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signing = Key::from_secret(None, Algorithm::HS256, &[7; 32])?;
    let claims = ClaimRules::new("actonce", "actonce");
    let grant = Grant { tenant, subject: name("agent"), scopes: Scopes::all(), expires_in_seconds: 3600 };
    let token = mint(signing.signing().ok_or("no key")?, &claims, &grant)?;
    let settings = Settings { keys: vec![signing], key_set: None, claims };
    let authenticator = runtime.block_on(Authenticator::start(settings))?;
    criterion.bench_function("a token that was verified before", |bencher| {
        bencher.iter(|| runtime.block_on(authenticator.authenticate(black_box(&token))));
    });
    Ok(())
}

fn all(criterion: &mut Criterion) {
    if let Err(error) = hot_path(criterion) {
        unreachable!("the benches can't be set up: {error}");
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
