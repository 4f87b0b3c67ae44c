//! Tests of the decisions: the transition table, the laws as properties, and named cases.
//!
//! Expectations come from the protocol, never from the code under test.

mod approvals;
mod claims;
mod commands;
mod elapsed;
mod inbound;
mod late;
mod laws;
mod properties;
mod receipts;
mod reconciliation;
mod recovery;
mod restore;
mod scene;
mod starts;
mod table;
