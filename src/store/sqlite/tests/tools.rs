use super::*;

fn write(expected_stamp: Option<i64>, revision: u32, spec: Option<&str>) -> ToolWrite {
    ToolWrite {
        tenant: tenant(),
        name: name("payments.refund"),
        expected_stamp,
        revision,
        spec: spec.map(str::to_owned),
        paused: false,
        deleted: false,
        wakes_doubts: false,
        secret: None,
        by: name("operator"),
        at: at(77),
    }
}

#[tokio::test]
async fn tools_change_by_compare_and_set_on_their_stamp() {
    let bed = bed().await;
    let (tenant, name) = (tenant(), name("payments.refund"));
    let store = &bed.store;
    assert!(store.tool(&tenant, &name).await.unwrap().is_none());
    assert_eq!(store.write_tool(&write(Some(1), 1, Some("{}"))).await.unwrap(), ToolWritten::Lost);
    assert_eq!(store.write_tool(&write(None, 1, Some("{\"a\":1}"))).await.unwrap(), ToolWritten::Applied);
    assert_eq!(store.write_tool(&write(None, 1, Some("{}"))).await.unwrap(), ToolWritten::Lost);
    let tool = store.tool(&tenant, &name).await.unwrap().unwrap();
    assert_eq!((tool.revision, tool.stamp, tool.spec.as_str()), (1, 1, "{\"a\":1}"));
    assert_eq!((tool.paused, tool.deleted, tool.registered_at), (false, false, at(77)));

    let mut pause = write(Some(1), 1, None);
    pause.paused = true;
    assert_eq!(store.write_tool(&pause).await.unwrap(), ToolWritten::Applied);
    assert_eq!(store.write_tool(&pause).await.unwrap(), ToolWritten::Lost);
    assert_eq!(store.write_tool(&write(Some(2), 2, Some("{\"a\":2}"))).await.unwrap(), ToolWritten::Applied);
    let old = store.tool_revision(&tenant, &name, 1).await.unwrap().unwrap();
    assert_eq!((old.revision, old.stamp, old.spec.as_str()), (1, 3, "{\"a\":1}"));
    assert!(store.tool_revision(&tenant, &name, 3).await.unwrap().is_none());

    let mut delete = write(Some(3), 2, None);
    delete.deleted = true;
    assert_eq!(store.write_tool(&delete).await.unwrap(), ToolWritten::Applied);
    assert!(store.tools(&tenant, None, 9).await.unwrap().is_empty());
    let gone = store.tool(&tenant, &name).await.unwrap().unwrap();
    assert_eq!((gone.deleted, gone.stamp, gone.revision), (true, 4, 2));
    assert_eq!(store.write_tool(&write(None, 3, Some("{}"))).await.unwrap(), ToolWritten::Lost);
    assert_eq!(store.write_tool(&write(Some(4), 3, Some("{}"))).await.unwrap(), ToolWritten::Applied);
}

#[tokio::test]
async fn a_tool_in_use_is_not_deleted() {
    let bed = bed().await;
    bed.store.write_tool(&write(None, 1, Some("{}"))).await.unwrap();
    let mut delete = write(Some(1), 1, None);
    delete.deleted = true;
    let row = create("a", 1);
    bed.revise(&row).await;
    assert_eq!(bed.store.write_tool(&delete).await.unwrap(), ToolWritten::InUse);
    // Settled, and open only because it is contradicted.
    for state in State::ALL.into_iter().filter(|state| state.is_terminal()) {
        bed.execute(sqlx::AssertSqlSafe(format!(
            "UPDATE open_effects SET state = {}",
            crate::store::rows::state_code(state)
        )))
        .await;
        let in_use: bool = sqlx::query_scalar(sql::TOOL_IN_USE)
            .bind(tenant().as_str())
            .bind("payments.refund")
            .fetch_one(&bed.store.readers)
            .await
            .unwrap();
        assert!(!in_use);
    }
    assert_eq!(bed.store.write_tool(&delete).await.unwrap(), ToolWritten::Applied);
}

#[tokio::test]
async fn a_change_that_depends_on_a_tool_needs_its_stamp() {
    let bed = bed().await;
    let mut row = create("a", 1);
    row.tool_stamp = Some((name("payments.refund"), 1));
    assert_eq!(bed.revise(&row).await, Committed::Lost, "no tool");
    bed.store.write_tool(&write(None, 1, Some("{}"))).await.unwrap();
    row.tool_stamp = Some((name("payments.refund"), 2));
    assert_eq!(bed.revise(&row).await, Committed::Lost, "another stamp");
    row.tool_stamp = Some((name("payments.refund"), 1));
    assert_eq!(bed.revise(&row).await, Committed::Applied);

    bed.execute("DELETE FROM open_effects").await;
    let mut delete = write(Some(1), 1, None);
    delete.deleted = true;
    bed.store.write_tool(&delete).await.unwrap();
    let mut row = create("b", 1);
    row.tool_stamp = Some((name("payments.refund"), 2));
    assert_eq!(bed.revise(&row).await, Committed::Lost, "deleted");
}

#[tokio::test]
async fn tools_are_listed_by_name() {
    let bed = bed().await;
    for tool in ["b", "a", "ä", "c"] {
        let mut write = write(None, 1, Some("{}"));
        write.name = name(tool);
        bed.store.write_tool(&write).await.unwrap();
    }
    let names = |rows: Vec<ToolRow>| rows.iter().map(|row| row.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(bed.store.tools(&tenant(), None, 2).await.unwrap()), ["a", "b"]);
    assert_eq!(names(bed.store.tools(&tenant(), Some(&name("b")), 9).await.unwrap()), ["c", "ä"]);
    assert!(bed.store.tools(&Tenant::new("other").unwrap(), None, 9).await.unwrap().is_empty());
}
