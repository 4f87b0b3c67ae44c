//! What a pruned effect costs for ever. Run with `--ignored --nocapture`.

use std::io::Write as _;

use super::{DAY, prune, settle};
use crate::store::bed::Bed;
use crate::store::effects::Maker;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(a_pruned_effect_is_a_fraction_of_a_whole_one);

const EFFECTS: i64 = 300;

/// Bytes of the journal with its indexes, without what is free.
async fn bytes(bed: &Bed) -> i64 {
    if bed.is_sqlite() {
        bed.execute("VACUUM").await;
        let size = "(SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)";
        return bed.count(&format!("SELECT {size}")).await;
    }
    bed.execute("VACUUM FULL entries").await;
    bed.count("SELECT pg_total_relation_size('entries')").await
}

async fn a_pruned_effect_is_a_fraction_of_a_whole_one(store: StoreUnderTest) {
    let bed = Bed::with_clock(store).await;
    let empty = bytes(&bed).await;
    let maker = Maker::external("a-tenant", bed.now().await);
    for n in 0..EFFECTS {
        settle(&bed, &maker, &format!("run-42:refund:order-{n}")).await;
    }
    bed.pass(40 * DAY).await;
    let whole = (bytes(&bed).await - empty) / EFFECTS;
    prune(&bed, &["--older-than", "30d"]).await;
    let pruned = (bytes(&bed).await - empty) / EFFECTS;
    let line = format!("{store:?}: {whole} bytes whole, {pruned} bytes pruned\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(pruned * 4 < whole, "{line}");
}
