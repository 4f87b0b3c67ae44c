//! Laws 2 and 14 on Postgres: what is acknowledged was flushed, whatever the server does by default. (That
//! SQLite flushes is looked at from inside the store, where its connections can be asked.)

use actonce::domain::state::EffectClass;
use actonce::store::Committed::Applied;
use actonce::store::{ToolWrite, ToolWritten};
use serde_json::json;

use super::bed::{Bed, revise};
use super::effects::{Maker, TOOL, registration, spec};
use crate::support::StoreUnderTest;

/// Writes down the setting under which each row of a table is committed.
async fn note_the_setting(bed: &Bed, table: &str) {
    bed.execute(&format!(
        "CREATE TABLE IF NOT EXISTS noted (setting text NOT NULL);
         CREATE OR REPLACE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           INSERT INTO noted VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
         CREATE TRIGGER note AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION note()"
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_are_flushed_whatever_the_server_does_by_default() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    // Less than a flush is overruled, more than one is kept.
    for (default, expected) in [("off", "on"), ("on", "on"), ("remote_apply", "remote_apply")] {
        let bed = Bed::new(StoreUnderTest::Postgres).await;
        note_the_setting(&bed, "entries").await;
        bed.alter_database(&format!("SET synchronous_commit = {default}")).await;
        let store = bed.another().await;
        let maker = Maker::external("tenant", bed.now().await);
        let (row, record) = maker.create("a");
        assert_eq!(store.commit(&[revise(&row)]).await.unwrap(), [Applied]);
        assert_eq!(store.commit(&[revise(&maker.dispatch(&record, "one").0)]).await.unwrap(), [Applied]);
        let noted = format!("SELECT count(*) FROM noted WHERE setting = '{expected}'");
        assert_eq!(bed.count(&noted).await, 2, "{default}");
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_tools_are_flushed_whatever_the_server_does_by_default() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let bed = Bed::new(StoreUnderTest::Postgres).await;
    note_the_setting(&bed, "tools").await;
    bed.alter_database("SET synchronous_commit = off").await;
    let store = bed.another().await;
    let maker = Maker::external("tenant", bed.now().await);
    let register = registration(&maker.tenant, TOOL, &spec(EffectClass::External, &json!({})));
    let pause = ToolWrite { expected_stamp: Some(1), spec: None, paused: true, ..register.clone() };
    for write in [register, pause] {
        assert_eq!(store.write_tool(&write).await.unwrap(), ToolWritten::Applied);
    }
    assert_eq!(bed.count("SELECT count(*) FROM noted WHERE setting = 'on'").await, 2);
    store.close().await;
}
