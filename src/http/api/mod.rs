//! Handlers: extract, one service call, respond.
#![expect(clippy::missing_errors_doc, reason = "the problems of each handler stand in its OpenAPI responses")]

pub mod approvals;
pub mod authorization;
pub mod batch;
pub mod effects;
pub mod grants;
pub mod intents;
pub mod lists;
pub mod meta;
pub mod outcomes;
pub mod profiles;
pub mod tools;
