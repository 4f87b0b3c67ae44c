//! Handlers: extract, one service call, respond.
#![expect(clippy::missing_errors_doc, reason = "the problems of each handler stand in its OpenAPI responses")]

pub mod approvals;
pub mod authorization;
pub mod batch;
pub mod bypass;
pub mod dry_run;
pub mod effects;
pub mod events;
pub mod evidence;
pub mod grants;
pub mod intents;
pub mod lists;
pub mod meta;
pub mod outcomes;
pub mod profiles;
pub mod quarantine;
pub mod queue;
pub mod receipts;
pub mod reconciliations;
pub mod recovery;
pub mod resolutions;
pub mod sources;
pub mod subscriptions;
pub mod timing;
pub mod tools;
