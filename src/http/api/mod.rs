//! Handlers: extract, one service call, respond.
#![expect(clippy::missing_errors_doc, reason = "the problems of each handler stand in its OpenAPI responses")]

pub mod authorization;
pub mod batch;
pub mod effects;
pub mod intents;
pub mod lists;
pub mod meta;
pub mod outcomes;
pub mod quarantine;
pub mod receipts;
pub mod sources;
pub mod tools;
