//! Rows that can't be decoded at all: named, counted as damage, and in nobody's way.

use actonce::service::journal::Damage::{Edited, Truncated, Unreadable};
use actonce::service::journal::{Damage, Finding, Scope, verify, verify_scope};
use serde_json::Value;

use super::command::run;
use super::{Journals, another_history};
use crate::store::bed::Bed;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(
    an_entry_of_no_tenant_is_named_and_the_others_are_looked_at,
    an_open_mark_of_no_tenant_is_named,
    the_command_ends_with_1_and_says_which,
);

async fn findings(journals: &Journals) -> Vec<Finding> {
    verify(journals.bed.store.as_ref()).await.unwrap().findings
}

fn says(finding: &Finding) -> (&str, &str, u32, Damage, Option<&str>) {
    (&finding.tenant, &finding.effect, finding.revision, finding.damage, finding.column)
}

async fn an_entry_of_no_tenant_is_named_and_the_others_are_looked_at(store: StoreUnderTest) {
    let journals = Journals::in_bed(Bed::new(store).await).await;
    let (settled, open) = (journals.settled.effect.to_string(), journals.open.effect.to_string());
    // No tenant is called so: all three rows of one effect, and the newest one of another.
    journals.bed.execute(&format!("UPDATE entries SET tenant = '' WHERE {}", journals.bed.of(&journals.settled))).await;
    journals.spoil("UPDATE entries SET life = life || ' '", &journals.flagged, 2).await;
    journals.spoil("UPDATE entries SET tenant = ''", &journals.open, 4).await;
    let found = findings(&journals).await;
    let mut found: Vec<_> = found.iter().map(says).collect();
    found.sort_by_key(|found| format!("{found:?}"));
    let flagged = journals.flagged.effect.to_string();
    let mut expected = vec![
        ("", settled.as_str(), 1, Unreadable, Some("tenant")),
        ("", settled.as_str(), 2, Unreadable, Some("tenant")),
        ("", settled.as_str(), 3, Unreadable, Some("tenant")),
        ("", open.as_str(), 4, Unreadable, Some("tenant")),
        ("tenant", open.as_str(), 4, Truncated, None),
        ("tenant", flagged.as_str(), 2, Edited, None),
    ];
    expected.sort_by_key(|found| format!("{found:?}"));
    assert_eq!(found, expected);
    // One tenant alone has nothing of it.
    let another = Scope { tenant: Some(another_history(&journals.maker).tenant), ..Scope::default() };
    let report = verify_scope(journals.bed.store.as_ref(), &another).await.unwrap();
    assert!(report.findings.iter().all(|found| found.tenant == "tenant"), "{:?}", report.findings);
}

async fn an_open_mark_of_no_tenant_is_named(store: StoreUnderTest) {
    let journals = Journals::in_bed(Bed::new(store).await).await;
    journals
        .bed
        .execute(&format!("UPDATE open_effects SET tenant = '' WHERE {}", journals.bed.of(&journals.open)))
        .await;
    let found = findings(&journals).await;
    let found: Vec<_> = found.iter().map(|found| (found.revision, found.damage, found.column)).collect();
    assert_eq!(found, [(4, Truncated, None), (0, Unreadable, Some("tenant"))]);
}

/// On SQLite a text may be any bytes; on Postgres a name is all that can be wrong with a row.
async fn the_command_ends_with_1_and_says_which(store: StoreUnderTest) {
    let journals = Journals::in_bed(Bed::new(store).await).await;
    let (statement, column, tenant) = if journals.bed.is_sqlite() {
        ("UPDATE entries SET life = CAST(x'ff68756e746572' AS TEXT)", "life", "tenant")
    } else {
        ("UPDATE entries SET tenant = ''", "tenant", "")
    };
    journals.spoil(statement, &journals.settled, 3).await;
    let (code, output) = run(journals.bed.url()).await;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, 1, "{text}{}", String::from_utf8_lossy(&output.stderr));
    // Where the name is wrong, the effect's newest entry is missed as well.
    assert_eq!(report["damaged"], 1 + u64::from(tenant.is_empty()), "{text}");
    let found = report["findings"].as_array().unwrap().iter().find(|found| found["damage"] == "unreadable").unwrap();
    assert_eq!((&found["damage"], &found["column"]), (&"unreadable".into(), &column.into()), "{text}");
    assert_eq!((&found["tenant"], &found["revision"]), (&tenant.into(), &3.into()), "{text}");
    assert_eq!(found["effect"], journals.settled.effect.to_string());
    assert_eq!((&report["effects"], &report["entries"]), (&(9 + u64::from(tenant.is_empty())).into(), &26.into()));
    assert!(!text.contains("hunter"), "a report shows no content");
}
