//! The compose files.

use std::collections::BTreeMap;

use actonce::limits::WAIT_MAX_SECONDS;
use serde_json::{Value, json};

use super::{AFTER_DRAIN, document, entries, is_command, is_route, list, read, root, text, texts, variables};

const FILES: [&str; 2] = ["docker-compose.yml", "deploy/compose.replicas.yml"];

/// The services, and which of them run our image.
fn services(compose: &Value) -> BTreeMap<&str, (&Value, bool)> {
    let services = compose["services"].as_object().unwrap();
    services.iter().map(|(name, service)| (name.as_str(), (service, service["image"] == "actonce"))).collect()
}

fn seconds(value: &Value) -> u64 {
    text(value).strip_suffix('s').unwrap().parse().unwrap()
}

/// A path of the compose file, from the root of the repository.
fn beside(file: &str, path: &str) -> String {
    let folder = std::path::Path::new(file).parent().unwrap().to_str().unwrap();
    match path.strip_prefix("../") {
        Some(path) => path.to_owned(),
        None => std::path::Path::new(folder).join(path.trim_start_matches("./")).to_str().unwrap().to_owned(),
    }
}

#[test]
fn our_services_know_their_commands_and_variables_and_have_time_to_drain() {
    for file in FILES {
        let compose = document(file);
        let mut ours = 0;
        for (name, (service, _)) in services(&compose).into_iter().filter(|(_, (_, is_ours))| *is_ours) {
            ours += 1;
            let words = if service["command"].is_null() { vec!["serve"] } else { texts(&service["command"]) };
            is_command(&words);
            // A migration is given what a replica is; it reads the database's URL alone.
            let known = variables("serve");
            for (variable, value) in entries(&service["environment"]) {
                assert!(known.contains(variable), "{file}, {name}: {variable}");
                if let Some(secret) = value.strip_prefix("/run/secrets/") {
                    assert!(texts(&service["secrets"]).contains(&secret), "{file}, {name}: {value} is not mounted");
                }
            }
            assert_eq!(service["read_only"], true, "{file}, {name}");
            assert_eq!(service["cap_drop"], json!(["ALL"]), "{file}, {name}");
            let drain: u64 = text(&service["environment"]["ACTONCE_DRAIN_SECONDS"]).parse().unwrap();
            assert!(seconds(&service["stop_grace_period"]) > drain + AFTER_DRAIN, "{file}, {name}");
            if words == ["serve"] {
                let test = texts(&service["healthcheck"]["test"]);
                assert_eq!(test[..2], ["CMD", "actonce"], "{file}, {name}");
                is_command(&test[2..]);
            }
        }
        assert_eq!(ours, if file == FILES[0] { 1 } else { 3 }, "{file}");
    }
}

#[test]
fn what_they_refer_to_is_there() {
    let makes = read("scripts/compose-secrets");
    let made = |path: &str| {
        let name = path.strip_prefix("secrets/").unwrap_or_else(|| panic!("{path} is no secret"));
        assert!(makes.contains(&format!("\nonce {name} ")), "scripts/compose-secrets does not make {path}");
    };
    for file in FILES {
        let compose = document(file);
        for secret in compose["secrets"].as_object().unwrap().values() {
            made(&beside(file, text(&secret["file"])));
        }
        for (name, (service, is_ours)) in services(&compose) {
            if is_ours {
                for path in list(&service["env_file"]) {
                    made(&beside(file, text(path)));
                }
            }
            for other in service["depends_on"].as_object().into_iter().flatten().map(|(name, _)| name) {
                assert!(compose["services"][other].is_object(), "{file}, {name}: {other}");
            }
            for secret in service["secrets"].as_array().into_iter().flatten() {
                assert!(compose["secrets"][text(secret)].is_object(), "{file}, {name}: {secret}");
            }
            for volume in service["volumes"].as_array().into_iter().flatten() {
                let from = text(volume).split(':').next().unwrap();
                if from.starts_with('.') {
                    assert!(root().join(beside(file, from)).is_file(), "{file}, {name}: {from}");
                } else {
                    assert!(compose["volumes"].as_object().unwrap().contains_key(from), "{file}, {name}: {from}");
                }
            }
            for port in service["ports"].as_array().into_iter().flatten() {
                assert!(text(port).starts_with("127.0.0.1:"), "{file}, {name}: {port} is open to everybody");
            }
        }
    }
    // The database's name and user in the URL are those of the database.
    assert!(makes.contains("postgres://actonce:") && makes.contains("@postgres:5432/actonce"));
}

#[test]
fn the_proxy_goes_by_readiness_and_waits_longer_than_clients_may() {
    let compose = document("deploy/compose.replicas.yml");
    let services = services(&compose);
    let config = read("deploy/replicas/haproxy.cfg");
    let variables = entries(&services["proxy"].0["environment"]);
    let mut used: Vec<&str> = config.split("${").skip(1).map(|rest| rest.split('}').next().unwrap()).collect();
    used.sort_unstable();
    let mut given: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
    given.sort_unstable();
    assert_eq!(used, given);
    for (_, address) in variables.iter().filter(|(name, _)| name.starts_with("REPLICA_")) {
        let (host, port) = address.split_once(':').unwrap();
        assert!(services[host].1 && port == "8080", "{address}");
    }
    let (_, check) = config.split_once("http-check send meth GET uri ").unwrap();
    is_route(check.split_whitespace().next().unwrap());
    for side in ["client", "server"] {
        let (_, rest) = config.split_once(&format!("timeout {side} ")).unwrap();
        let wait: u32 = rest.split('s').next().unwrap().parse().unwrap();
        assert!(wait > WAIT_MAX_SECONDS, "{side}: {wait}");
    }
    // The standby streams under the name that a commit waits for.
    assert!(read("deploy/replicas/primary-init.sh").contains("'FIRST 1 (standby)'"));
    assert!(read("deploy/replicas/standby.sh").contains("application_name=standby"));
}
