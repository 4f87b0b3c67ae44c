//! Act once, or stop.
//!
//! Actonce stands between a program that acts and the world it acts on: it records what is about
//! to be done before it is done, and what came of it after. `PROTOCOL` words are used throughout.

pub mod app;
pub mod auth;
pub mod cli;
pub mod config;
pub mod domain;
pub mod engine;
pub mod http;
pub mod limits;
pub mod outbound;
pub mod panics;
pub mod recent;
pub mod service;
pub mod store;
pub mod support;
pub mod telemetry;
pub mod tls;
