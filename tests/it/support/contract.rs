//! Every answer that a test gets is held against the checked-in description of the API: its status is
//! documented for the operation, and its body has the documented form.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::{Value, json};

use super::api::Answer;

/// The checked-in document.
pub(crate) static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../openapi/actonce.json")).expect("it is JSON"));

/// The documented path that a path belongs to, literal segments first.
pub(crate) fn template_of(path: &str) -> Option<&'static str> {
    let path = path.split('?').next().unwrap_or_default();
    let fits = |template: &str, is_literal: bool| {
        let (mut given, mut wanted) = (path.split('/'), template.split('/'));
        loop {
            match (given.next(), wanted.next()) {
                (None, None) => return true,
                (Some(given), Some(wanted)) if given == wanted => {}
                (Some(given), Some(wanted)) if !is_literal && wanted.starts_with('{') && !given.is_empty() => {}
                _ => return false,
            }
        }
    };
    let templates = || DOCUMENT["paths"].as_object().expect("paths").keys();
    let found = templates().find(|template| fits(template, true));
    found.or_else(|| templates().find(|template| fits(template, false))).map(String::as_str)
}

/// Checks an answer. What the document does not know (other paths, other methods) is left alone.
pub(crate) fn check(method: &str, path: &str, answer: &Answer) {
    let Some(template) = template_of(path) else { return };
    let method = method.to_ascii_lowercase();
    let Some(operation) = DOCUMENT["paths"][template].get(&method) else { return };
    let status = answer.status.as_u16();
    assert_ne!(status, 500, "a fault of the service: {answer}");
    let key = status.to_string();
    let Some(response) = operation["responses"].get(&key) else {
        panic!("{method} {template} does not document the status {status}: {answer}");
    };
    let response = match response["$ref"].as_str() {
        Some(reference) => DOCUMENT.pointer(reference.trim_start_matches('#')).expect("the reference resolves"),
        None => response,
    };
    let content = answer.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default().to_owned();
    match response.get("content") {
        None => assert_eq!(answer.text, "", "no content is documented: {answer}"),
        Some(documented) => {
            let Some(media) = documented.get(&content) else {
                panic!("{method} {template} {status} does not document {content:?}: {answer}");
            };
            if content.ends_with("json") {
                let validator = validator(&format!("{method} {template} {status}"), &media["schema"]);
                let faults: Vec<String> = validator
                    .iter_errors(&answer.json)
                    .map(|fault| format!("{} at {}", fault.masked(), fault.instance_path()))
                    .collect();
                assert!(faults.is_empty(), "not as documented: {faults:#?}\n{answer}");
            }
        }
    }
}

fn validator(name: &str, schema: &Value) -> Arc<Validator> {
    static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);
    let mut known = VALIDATORS.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || {
        let whole = json!({ "allOf": [schema], "components": DOCUMENT["components"] });
        let options = jsonschema::options().should_validate_formats(true);
        Arc::new(options.build(&whole).unwrap_or_else(|error| panic!("{name}: {error}")))
    };
    Arc::clone(known.entry(name.to_owned()).or_insert_with(make))
}
