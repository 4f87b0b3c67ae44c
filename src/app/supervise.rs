//! Background loops that panic are begun again.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// Runs a loop to its end, and begins it again whenever it panics.
pub(super) fn supervise(
    name: &'static str,
    begin: impl Fn() -> BoxFuture<'static, ()> + Send + 'static,
) -> impl Future<Output = ()> + Send {
    let restarts = metrics::counter!("actonce_background_restarts_total", "loop" => name);
    // There from the start: alerts look at its increase.
    restarts.increment(0);
    async move {
        while AssertUnwindSafe(begin()).catch_unwind().await.is_err() {
            restarts.increment(1);
            tracing::error!(name, "a background loop panicked and is begun again");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_loop_that_panics_is_begun_again_until_it_ends_by_itself() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let began = tokio::time::Instant::now();
        let supervised = supervise("deliveries", || {
            async {
                // Once at its very beginning, once after it has waited.
                match BEGUN.fetch_add(1, Ordering::SeqCst) {
                    0 => panic!("at once"),
                    1 => {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        panic!("later");
                    }
                    _ => {}
                }
            }
            .boxed()
        });
        supervised.await;
        assert_eq!(BEGUN.load(Ordering::SeqCst), 3);
        assert!(began.elapsed() >= Duration::from_secs(2), "it does not spin");
    }
}
