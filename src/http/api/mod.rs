//! Handlers: extract, one service call, respond.

pub mod authorization;
pub mod batch;
pub mod effects;
pub mod intents;
pub mod lists;
pub mod meta;
pub mod outcomes;
pub mod tools;
