//! What the integration tests share: servers, databases, a client, a downstream.
#![expect(dead_code, reason = "helpers for tests that are still to come")]

use std::path::{Path, PathBuf};

pub(crate) mod adapter;
pub(crate) mod api;
pub(crate) mod bodies;
pub(crate) mod certificates;
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

/// The Rust files below a folder of this project.
pub(crate) fn rust_files(folder: &str) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// A name that no other test has.
pub(crate) fn unique(prefix: &str) -> String {
    format!("{prefix}-{}", &actonce::support::random_id().simple().to_string()[..12])
}

/// Runs blocking work outside the threads that serve futures.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("blocking work panicked")
}
