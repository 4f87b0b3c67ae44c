//! HTTP conventions (protocol §11): every refusal is a problem document that points at its faults,
//! echoes nothing and stores nothing.

mod bodies_refused;
mod echo;
mod evidence;
mod faults;
mod limits;
mod paths;
mod problems;

use crate::support::Api;

/// Nothing of the tenant is stored: no effect, and no tool but the named ones.
pub(crate) async fn assert_nothing_stored(api: &Api, tools: &[&str]) {
    let effects = api.pages("/api/effects?limit=200").await;
    assert!(effects.is_empty(), "stored after all: {effects:#?}");
    let found = api.pages("/api/tools?limit=200").await;
    let names: Vec<&str> = found.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, tools);
}

/// `depth` containers around a number.
pub(crate) fn nested_arrays(depth: usize) -> String {
    format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
}

/// `depth` objects around a number.
pub(crate) fn nested_objects(depth: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))
}
