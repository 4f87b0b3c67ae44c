//! What the manifests and compose files say is what the program knows: variables, flags, routes, ports,
//! users, and that nothing is killed before its drain is over.

mod compose;
mod database_tls;
mod kubernetes;
mod pooler;
mod readonly;
mod upgrade;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;

use crate::support::server::program;

/// What the program needs after the drain: the background ends, and the store is closed.
const AFTER_DRAIN: u64 = 5;
/// The file system's user in the image.
const USER: u64 = 65532;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All documents of a YAML file, merge keys applied.
fn documents(path: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(&read(path))
        .map(|document| {
            let mut value =
                serde_yaml_ng::Value::deserialize(document).unwrap_or_else(|error| panic!("{path}: {error}"));
            // What is merged may merge something itself.
            for _ in 0..3 {
                value.apply_merge().unwrap();
            }
            serde_json::to_value(value).unwrap_or_else(|error| panic!("{path}: {error}"))
        })
        .collect()
}

/// The one document of a YAML file.
fn document(path: &str) -> Value {
    let mut documents = documents(path);
    assert_eq!(documents.len(), 1, "{path}");
    documents.remove(0)
}

fn help(command: &[&str]) -> String {
    let output = program().args(command).arg("--help").output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The variables that a command reads.
fn variables(command: &str) -> BTreeSet<String> {
    let help = help(&[command]);
    let found: BTreeSet<String> = help
        .split("[env: ")
        .skip(1)
        .map(|rest| rest.chars().take_while(|char| char.is_ascii_alphanumeric() || *char == '_').collect())
        .collect();
    assert!(found.contains("DATABASE_URL"), "{help}");
    found
}

/// The program's commands.
fn commands() -> BTreeSet<String> {
    let help = help(&[]);
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let found: BTreeSet<String> = list
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect();
    assert!(found.contains("serve"), "{help}");
    found
}

/// A command line of the program: a command that exists, and its flags.
fn is_command(words: &[&str]) {
    let (command, flags) = words.split_first().expect("a command");
    assert!(commands().contains(*command), "{words:?}");
    let help = help(&[command]);
    for flag in flags.iter().filter(|word| word.starts_with('-')) {
        let name = flag.split('=').next().unwrap();
        assert!(help.split_whitespace().any(|word| word == name || word.starts_with(&format!("{name}["))), "{words:?}");
    }
}

/// A path that the service answers to GET.
fn is_route(path: &str) {
    let document = serde_json::to_value(actonce::http::document()).unwrap();
    assert!(document["paths"][path]["get"].is_object(), "{path} is no route");
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

fn texts(value: &Value) -> Vec<&str> {
    list(value).iter().map(text).collect()
}

/// A name with a value, as the environment of a container has it.
fn entries(value: &Value) -> Vec<(&str, &str)> {
    let object = value.as_object().unwrap_or_else(|| panic!("no mapping: {value}"));
    // A number would be written in a way of its own; both tools want texts.
    object.iter().map(|(name, value)| (name.as_str(), text(value))).collect()
}

#[test]
fn the_image_runs_as_the_user_that_the_manifests_name() {
    let dockerfile = read("Dockerfile");
    assert!(dockerfile.contains(&format!("\nUSER {USER}:{USER}\n")));
    assert!(dockerfile.contains("ACTONCE_LISTEN=0.0.0.0:8080") && dockerfile.contains("\nEXPOSE 8080\n"));
}

#[test]
fn the_image_says_its_version_and_where_the_list_of_its_parts_is() {
    let dockerfile = read("Dockerfile");
    assert!(dockerfile.contains(concat!("\nARG VERSION=", env!("CARGO_PKG_VERSION"), "\n")));
    let (_, label) = dockerfile.split_once("actonce.sbom=\"").expect("a label");
    let (directory, file) = label.split('"').next().unwrap().rsplit_once('/').unwrap();
    assert!(dockerfile.contains(&format!("\nCOPY --from=sbom /{file} {directory}/\n")), "{directory}/{file}");
    // The build has the script although it has no others.
    assert!(read(".dockerignore").contains("\n!scripts/sbom\n") && dockerfile.contains("\nCOPY scripts/sbom "));
    for page in ["docs/security.md", "docs/operations.md"] {
        assert!(read(page).contains(&format!("{directory}/{file}")), "{page}");
    }
}
