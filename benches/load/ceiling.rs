//! What the database alone can do with the same rows: the ceilings that the service is held against.
//! Everything is made beforehand; only the statements are timed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actonce::domain::canonical::Sha256Digest;
use actonce::domain::command::{Claim, Command, Outcome, Propose, Report, ResultDocument};
use actonce::domain::decide::{self, Change, Context};
use actonce::domain::ids::{EffectKey, Name, Tenant};
use actonce::domain::receipt::{Receipt, Verification};
use actonce::domain::time::Timestamp;
use actonce::domain::tool::{Tool, ToolSpec};
use actonce::engine::encode::encode;
use actonce::store::{ChangeSet, Store};
use actonce::support::random_id;
use sqlx::PgPool;

use crate::rows;

/// Effects per batch.
const BATCH: usize = 128;

/// Any time does.
const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// What a ceiling came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ceiling {
    /// Effects per second.
    pub(crate) rate: f64,
    /// Median latency of the first commit of an effect (or of a batch), in microseconds.
    pub(crate) p50_us: u64,
}

type Error = Box<dyn std::error::Error + Send + Sync>;

fn name(text: &str) -> Result<Name, Error> {
    Name::new(text).map_err(|_| Error::from("a name"))
}

fn context(now: Timestamp) -> Result<Context, Error> {
    let tool = Tool::new(name("book_reservation")?, 0, ToolSpec::ad_hoc(), false, 0, now);
    let principal = name("bench")?;
    Ok(Context {
        now,
        principal,
        tool: Arc::clone(&tool),
        current: Some(tool),
        profile_changed: false,
        elapsed_us: None,
    })
}

fn operation(salt: &str, number: u64) -> Result<Name, Error> {
    name(&format!("airline-t0-r0-{salt}-{number}"))
}

/// The key of an effect of [`changes`].
pub(crate) fn key(salt: &str, number: u64) -> Result<EffectKey, Error> {
    let tenant = Tenant::new("bench").map_err(|_| Error::from("a tenant"))?;
    Ok(EffectKey::of(&tenant, &operation(salt, number)?))
}

/// The two change sets of an effect: intent with claim, and outcome.
pub(crate) fn changes(salt: &str, number: u64, now: Timestamp) -> Result<(ChangeSet, ChangeSet), Error> {
    let context = context(now)?;
    let operation_id = operation(salt, number)?;
    let target = name(&format!("user-c69f066f-{number}"))?;
    let key = key(salt, number)?;
    let digest = Sha256Digest::of(&number.to_be_bytes());
    let propose = Propose {
        operation_id: operation_id.clone(),
        tool: name("book_reservation")?,
        class: None,
        target: target.clone(),
        arguments_digest: digest.clone(),
        arguments: None,
        run_id: Some(name(&format!("airline-t0-r0-{}", number / 12))?),
        session_id: None,
        call_id: None,
        profile_id: None,
        claim: Some(Claim {
            worker: name("worker-1")?,
            claim: Some(digest.clone()),
            lease_seconds: Some(600),
            dispatch_id: random_id(),
        }),
        idempotency_key: "ao1_SLJxGatDm3zBpj6-PBL2XM_3BOczO7n0edefxWEEvcA".into(),
        duplicate_of: None,
        sent: None,
        grant: None,
        fence_base: 0,
    };
    let Some(Change::Revise(revision)) = decide::propose(None, &propose, &context).change else {
        return Err("no intent".into());
    };
    let intent = revision.intent.clone().ok_or("no intent")?;
    let (first, record) = encode(&key, None, &intent, *revision, &context)?;
    let receipt = Receipt {
        receipt_id: name(&format!("re-{number}"))?,
        schema: name("generic")?,
        schema_version: 1,
        operation_id,
        target: target.clone(),
        outcome: actonce::domain::receipt::ReceiptOutcome::Completed,
        message: "done".to_owned(),
        structured: serde_json::value::RawValue::from_string(format!("{{\"reference\":\"{number}\"}}"))?,
        artifacts: Vec::new(),
        resource_versions: std::collections::BTreeMap::new(),
        integrity: std::collections::BTreeMap::new(),
        observed_at: now,
        source: name("client")?,
    };
    let receipt = receipt.check().map_err(|_| Error::from("a receipt"))?;
    let text = format!("{{\"status\":\"ok\",\"reference\":\"{number}\"}}");
    let outcome = Outcome {
        dispatch_id: record.life.dispatch.as_ref().map(|dispatch| dispatch.dispatch_id).unwrap_or_default(),
        fence: 1,
        report: Report::Succeeded {
            receipt,
            verification: Some(Verification { verified: true, observed_at: now, source: name("GET /state")?, target }),
        },
        result: Some(ResultDocument {
            digest: Sha256Digest::of(text.as_bytes()),
            size_bytes: u64::try_from(text.len())?,
            text: Some(text.into()),
        }),
        digest,
    };
    let decision = decide::decide(&record, &Command::Outcome(Box::new(outcome)), &context);
    let Some(Change::Revise(revision)) = decision.change else { return Err("no outcome".into()) };
    let (second, _) = encode(&key, Some(&record), &intent, *revision, &context)?;
    Ok((first, second))
}

/// Commits effects through the store itself, `batch` at a time, one after the other.
pub(crate) async fn store(store: &dyn Store, batch: usize, time: Duration, salt: &str) -> Result<Ceiling, Error> {
    let mut number = 0;
    let mut spent = Duration::ZERO;
    let (mut effects, mut firsts) = (0_u32, Vec::new());
    while spent < time {
        let (mut intents, mut outcomes) = (Vec::with_capacity(batch), Vec::with_capacity(batch));
        for _ in 0..batch {
            let (intent, outcome) = changes(salt, number, NOW)?;
            number += 1;
            intents.push(intent);
            outcomes.push(outcome);
        }
        let begun = Instant::now();
        store.commit(&intents).await?;
        firsts.push(micros(begun.elapsed()));
        store.commit(&outcomes).await?;
        spent += begun.elapsed();
        effects += u32::try_from(batch)?;
    }
    Ok(Ceiling { rate: f64::from(effects) / spent.as_secs_f64(), p50_us: median(&mut firsts) })
}

/// One effect after the other on one connection, each revision one hand-written statement and one
/// commit: what a single caller pays the database at least.
pub(crate) async fn one_by_one(pool: &PgPool, time: Duration, salt: &str) -> Result<Ceiling, Error> {
    let mut spent = Duration::ZERO;
    let (mut effects, mut firsts) = (0_u32, Vec::new());
    while spent < time {
        let (intent, outcome) = changes(salt, u64::from(effects), NOW)?;
        let (ChangeSet::Revise(intent), ChangeSet::Revise(outcome)) = (intent, outcome) else { continue };
        let begun = Instant::now();
        rows::insert(pool, &intent).await?;
        firsts.push(micros(begun.elapsed()));
        rows::settle(pool, &outcome).await?;
        spent += begun.elapsed();
        effects += 1;
    }
    Ok(Ceiling { rate: f64::from(effects) / spent.as_secs_f64(), p50_us: median(&mut firsts) })
}

/// Effects through the store, `batch` at a time: the append-only ceiling of this schema.
pub(crate) async fn append_only(target: &dyn Store, time: Duration, salt: &str) -> Result<Ceiling, Error> {
    store(target, BATCH, time, salt).await
}

const UPDATE_SCHEMA: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS bench_effects (tenant text NOT NULL, operation_id text NOT NULL, state text NOT NULL, \
     revision int NOT NULL, record jsonb NOT NULL, updated_us bigint NOT NULL, PRIMARY KEY (tenant, operation_id))",
    "CREATE TABLE IF NOT EXISTS bench_events (id bigserial PRIMARY KEY, tenant text NOT NULL, operation_id text NOT NULL, \
     revision int NOT NULL, entry jsonb NOT NULL, UNIQUE (tenant, operation_id, revision))",
    "TRUNCATE bench_effects, bench_events",
];
const UPDATE_INTENT: &str = "WITH i AS (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS i(operation_id, record, entry)), \
  e AS (INSERT INTO bench_effects SELECT 'ceiling', operation_id, 'dispatched', 1, record::jsonb, 0 FROM i \
  ON CONFLICT DO NOTHING RETURNING operation_id) \
  INSERT INTO bench_events (tenant, operation_id, revision, entry) SELECT 'ceiling', i.operation_id, 1, i.entry::jsonb FROM i";
const UPDATE_OUTCOME: &str = "WITH i AS (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS i(operation_id, record, entry)), \
  e AS (UPDATE bench_effects b SET state = 'completed', revision = 2, record = i.record::jsonb, updated_us = 1 FROM i \
  WHERE b.tenant = 'ceiling' AND b.operation_id = i.operation_id AND b.revision = 1 RETURNING b.operation_id) \
  INSERT INTO bench_events (tenant, operation_id, revision, entry) SELECT 'ceiling', i.operation_id, 2, i.entry::jsonb FROM i";

/// The usual shape in batches: a record that is inserted and updated, and an event row for each.
pub(crate) async fn with_update(pool: &PgPool, time: Duration, salt: &str) -> Result<Ceiling, Error> {
    for statement in UPDATE_SCHEMA {
        sqlx::query(statement).execute(pool).await?;
    }
    let mut connection = pool.acquire().await?;
    // The honest best of this shape: the plan that SPEED-minded people would pin.
    sqlx::query("SET enable_mergejoin = off").execute(&mut *connection).await?;
    let mut number = 0;
    let mut spent = Duration::ZERO;
    let (mut effects, mut firsts) = (0_u32, Vec::new());
    while spent < time {
        let (mut ids, mut first, mut second) = (Vec::new(), (Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        for _ in 0..BATCH {
            let (ChangeSet::Revise(intent), ChangeSet::Revise(outcome)) = changes(salt, number, NOW)? else { continue };
            ids.push(format!("airline-t0-r0-{salt}-{number}"));
            number += 1;
            let stated = intent.intent.as_ref().map(|intent| intent.text.to_string()).unwrap_or_default();
            first.0.push(format!("{{\"intent\":{stated},\"life\":{}}}", intent.life));
            first.1.push(intent.entry.clone());
            let receipt = outcome.receipt.as_deref().unwrap_or("null");
            second.0.push(format!("{{\"intent\":{stated},\"life\":{},\"receipt\":{receipt}}}", outcome.life));
            second.1.push(outcome.entry.clone());
        }
        let begun = Instant::now();
        sqlx::query(UPDATE_INTENT).bind(&ids).bind(&first.0).bind(&first.1).execute(&mut *connection).await?;
        firsts.push(micros(begun.elapsed()));
        sqlx::query(UPDATE_OUTCOME).bind(&ids).bind(&second.0).bind(&second.1).execute(&mut *connection).await?;
        spent += begun.elapsed();
        effects += u32::try_from(BATCH)?;
    }
    drop(connection);
    sqlx::query("DROP TABLE bench_effects, bench_events").execute(pool).await?;
    Ok(Ceiling { rate: f64::from(effects) / spent.as_secs_f64(), p50_us: median(&mut firsts) })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
