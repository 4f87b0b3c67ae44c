//! The Postgres backend.
