//! Integration tests: the real program, over HTTP, on both stores.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod architecture;
mod backup;
mod config;
mod degraded;
mod deploy;
mod doctor;
mod documents;
mod elapsed;
mod events;
mod http;
mod journal;
mod model;
mod openapi;
mod outbound;
mod readme;
mod recipes;
mod reconciliation;
mod recovery;
mod retention;
mod rotation;
mod scenarios;
mod smoke;
mod store;
mod support;
mod telemetry;
