use super::*;

async fn pages(bed: &Bed, most: u32) {
    let mut lent = bed.store.writer.lend().await.unwrap();
    let set = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {most}"));
    sqlx::raw_sql(set).execute(&mut lent.connection).await.unwrap();
    lent.give_back();
}

/// `SQLITE_FULL` itself, wherever the test runs: the whole batch is refused, nothing of it is there, and the store says
/// that it takes no writes until it does.
#[tokio::test]
async fn a_full_file_takes_nothing_and_says_so_until_there_is_room() {
    let bed = bed().await;
    let large = |number: i64| {
        let mut row = create(&format!("large {number}"), number);
        row.entry = "x".repeat(20_000);
        row
    };
    let kept = large(1);
    assert_eq!(bed.revise(&kept).await, Committed::Applied);
    assert!(bed.store.takes_writes().await.unwrap());
    for number in 2..5 {
        // The connection that failed is closed, and the bound with it.
        pages(&bed, 1).await;
        let batch = [revise(&create("small", 9)), revise(&large(number))];
        let refused = bed.store.commit(&batch).await.unwrap_err();
        let StoreError::Unavailable(error) = &refused else { panic!("{refused}") };
        let code = error.as_database_error().unwrap().code().unwrap();
        assert_eq!(code, "13", "SQLITE_FULL: {refused}");
        assert!(bed.load(&large(number)).await.is_none());
        assert!(bed.load(&create("small", 9)).await.is_none(), "the small one beside it neither");
    }
    assert!(bed.store.writes.have_failed());
    pages(&bed, 1).await;
    // A try needs room as well: an entry of nobody.
    for number in 0..3 {
        assert!(!bed.store.takes_writes().await.unwrap_or(false), "{number}");
        pages(&bed, 1).await;
        tokio::time::sleep(std::time::Duration::from_millis(1_050)).await;
    }
    pages(&bed, 1_000_000).await;
    assert!(bed.store.takes_writes().await.unwrap());
    assert!(!bed.store.writes.have_failed());
    assert_eq!(bed.count("SELECT count(*) FROM entries").await, 1, "what was tried is taken back");
    assert_eq!(bed.revise(&large(2)).await, Committed::Applied);
}
