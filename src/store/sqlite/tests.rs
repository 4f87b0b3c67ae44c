//! Tests of the SQLite backend, on real files.

mod commits;
mod full;
mod opening;
mod reads;
mod statements;
mod tools;

use std::path::PathBuf;
use std::sync::Arc;

use sqlx::SqlSafeStr;
use tempfile::TempDir;

use super::*;
use crate::domain::canonical::Sha256Digest;
use crate::domain::record::{Intent, Life};
use crate::domain::state::EffectClass;
use crate::store::{IntentRow, OpenRow, Renewal, RevisionRow, StoreError};

/// A store in a folder that goes away with it.
struct Bed {
    _folder: TempDir,
    path: PathBuf,
    store: SqliteStore,
}

async fn bed() -> Bed {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("actonce.db");
    let store = SqliteStore::connect(&path, true).await.unwrap();
    Bed { _folder: folder, path, store }
}

impl Bed {
    async fn commit(&self, changes: Vec<ChangeSet>) -> Vec<Committed> {
        self.store.commit(&changes).await.unwrap()
    }

    async fn revise(&self, row: &RevisionRow) -> Committed {
        self.commit(vec![revise(row)]).await[0]
    }

    async fn load(&self, row: &RevisionRow) -> Option<Record> {
        self.store.load(std::slice::from_ref(&row.key)).await.unwrap().remove(0).unwrap()
    }

    async fn count(&self, statement: &'static str) -> i64 {
        sqlx::query_scalar(statement).fetch_one(&self.store.readers).await.unwrap()
    }

    /// Runs a statement on the connection that writes, past the store.
    async fn execute(&self, statement: impl SqlSafeStr) {
        let mut lent = self.store.writer.lend().await.unwrap();
        sqlx::raw_sql(statement).execute(&mut lent.connection).await.unwrap();
        lent.give_back();
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn tenant() -> Tenant {
    Tenant::new("tenant ä").unwrap()
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn key(operation: &str) -> EffectKey {
    EffectKey::of(&tenant(), &name(operation))
}

fn revise(row: &RevisionRow) -> ChangeSet {
    ChangeSet::Revise(Box::new(row.clone()))
}

fn renew(row: &RevisionRow, until: Timestamp) -> ChangeSet {
    let fence = row.open.as_ref().unwrap().fence;
    ChangeSet::Renew(Renewal { key: row.key.clone(), revision: row.revision, fence, until })
}

fn intent(operation: &str, created_at: Timestamp) -> String {
    let intent = Intent {
        operation_id: name(operation),
        tool: name("payments.refund"),
        tool_revision: 1,
        class: EffectClass::External,
        target: name("order"),
        arguments_digest: Sha256Digest::of(b"arguments"),
        digest_algorithm: "sha256".into(),
        identity: None,
        run_id: Some(name("run")),
        session_id: Some(name("session")),
        call_id: None,
        profile_id: None,
        proposer: name("agent"),
        created_at,
        idempotency_key: "key".into(),
    };
    serde_json::to_string(&intent).unwrap()
}

fn life(state: State, revision: u32) -> String {
    let mut life = Life::new(at(i64::from(revision)));
    life.state = state;
    life.revision = revision;
    serde_json::to_string(&life).unwrap()
}

/// Revision 1, open, without duplicate key and deadline.
fn create(operation: &str, created_us: i64) -> RevisionRow {
    RevisionRow {
        key: key(operation),
        revision: 1,
        state: State::IntentRecorded,
        intent: Some(IntentRow { text: Arc::from(intent(operation, at(created_us))), created_at: at(created_us) }),
        run_id: Some(name("run")),
        session_id: Some(name("session")),
        life: life(State::IntentRecorded, 1),
        entry: format!("{{\"entry\":\"{operation} 1\"}}"),
        receipt: None,
        result: None,
        prev_hash: [0; 32],
        hash: [1; 32],
        was_open: false,
        open: Some(OpenRow {
            fence: 0,
            due_at: None,
            doubt_until: None,
            duplicate: None,
            created_at: at(created_us),
            contradicted: false,
            tool: name("payments.refund"),
            proposer: name("agent"),
        }),
        lease_seen: None,
        tool_stamp: None,
        at: at(created_us),
        beside: None,
    }
}

/// The revision after another one.
fn next(row: &RevisionRow, state: State) -> RevisionRow {
    let revision = row.revision + 1;
    let byte = u8::try_from(revision).unwrap();
    RevisionRow {
        revision,
        state,
        intent: None,
        life: life(state, revision),
        entry: format!("{{\"entry\":{revision}}}"),
        prev_hash: row.hash,
        hash: [byte; 32],
        was_open: row.open.is_some(),
        open: row.open.clone().filter(|_| !state.is_terminal()),
        ..row.clone()
    }
}

/// A dispatch with fence 1 and a lease.
fn dispatch(row: &RevisionRow, due_at: Timestamp) -> RevisionRow {
    let mut row = next(row, State::Dispatched);
    row.open = row.open.map(|open| OpenRow { fence: 1, due_at: Some(due_at), ..open });
    row
}

fn with_duplicate(mut row: RevisionRow, duplicate: Uuid) -> RevisionRow {
    row.open = row.open.map(|open| OpenRow { duplicate: Some(duplicate), ..open });
    row
}
