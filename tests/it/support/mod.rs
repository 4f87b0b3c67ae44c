//! What the integration tests share: servers, databases, a client, a downstream.
#![expect(dead_code, reason = "helpers for tests that are still to come")]

pub(crate) mod adapter;
pub(crate) mod api;
pub(crate) mod bodies;
pub(crate) mod collector;
pub(crate) mod contract;
pub(crate) mod downstream;
pub(crate) mod postgres;
pub(crate) mod raw;
pub(crate) mod reaper;
pub(crate) mod server;
pub(crate) mod stores;
pub(crate) mod time;

pub(crate) use api::{Answer, Api};
pub(crate) use server::{Options, Server};
pub(crate) use stores::{StoreUnderTest, both_stores};

/// A name that no other test has.
pub(crate) fn unique(prefix: &str) -> String {
    format!("{prefix}-{}", &actonce::support::random_id().simple().to_string()[..12])
}

/// Runs blocking work outside the threads that serve futures.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("blocking work panicked")
}
