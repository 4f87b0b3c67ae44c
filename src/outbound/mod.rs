//! What the service asks of the world outside.

pub mod declarative;
