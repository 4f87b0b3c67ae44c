//! Values and decisions. No I/O, no clock, no SQL, no HTTP.

pub mod adapter;
pub mod approval;
pub mod canonical;
pub mod command;
pub mod data_key;
pub mod decide;
pub mod declarative;
pub mod delivery;
pub mod elapsed;
pub mod events;
pub mod fault;
pub mod grant;
pub mod ids;
pub mod journal;
pub mod object;
pub mod profile;
pub mod quota;
pub mod receipt;
pub mod record;
pub mod recovery;
pub mod refusal;
pub mod resolution;
pub mod restore;
pub mod retention;
pub mod signing;
pub mod source;
pub mod state;
pub mod text;
pub mod time;
pub mod tool;
#[cfg(test)]
mod vectors;
