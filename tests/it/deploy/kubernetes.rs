//! `deploy/kubernetes`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    AFTER_DRAIN, USER, commands, document, entries, is_command, is_route, list, read, root, text, texts, variables,
};
use crate::http::external;
use crate::support::server::program;
use crate::support::{Api, Options, Server, StoreUnderTest, bodies, unique};

const DIR: &str = "deploy/kubernetes";

/// Everything that the two kustomizations name, by kind. Several of one kind are a mistake here.
fn resources() -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for dir in [DIR.to_owned(), format!("{DIR}/migrate")] {
        let kustomization = document(&format!("{dir}/kustomization.yaml"));
        let mut named = texts(&kustomization["resources"]);
        named.sort_unstable();
        let mut files: Vec<String> = std::fs::read_dir(root().join(&dir))
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|name| !["kustomization.yaml", "README.md", "migrate"].contains(&name.as_str()))
            .collect();
        files.sort();
        assert_eq!(named, files, "{dir}: each file is named once");
        for file in files {
            for resource in super::documents(&format!("{dir}/{file}")) {
                assert!(resource["apiVersion"].is_string() && resource["metadata"]["name"].is_string(), "{resource}");
                let namespaced = resource["kind"] == "Namespace" || resource["metadata"]["namespace"] == "actonce";
                assert!(namespaced, "{resource}");
                assert!(found.insert(text(&resource["kind"]).to_owned(), resource).is_none(), "{file}");
            }
        }
    }
    found
}

/// The pod of a workload and its one container.
fn pod(resource: &Value) -> (&Value, &Value) {
    let template = &resource["spec"]["template"];
    let containers = list(&template["spec"]["containers"]);
    assert_eq!(containers.len(), 1);
    (template, &containers[0])
}

/// Whether all labels that a selector asks for are there.
fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = entries(selector);
    !wanted.is_empty() && wanted.iter().all(|(name, value)| labels[*name] == *value)
}

fn seconds(config: &Value, name: &str) -> u64 {
    text(&config["data"][name]).parse().unwrap()
}

#[test]
fn pods_are_hardened_and_run_commands_that_exist() {
    let resources = resources();
    for kind in ["Deployment", "Job"] {
        let (template, container) = pod(&resources[kind]);
        let spec = &template["spec"];
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true, "{kind}");
        assert_eq!(spec["securityContext"]["runAsUser"], USER, "{kind}");
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{kind}");
        assert_eq!(spec["automountServiceAccountToken"], false, "{kind}");
        assert_eq!(spec["serviceAccountName"], resources["ServiceAccount"]["metadata"]["name"], "{kind}");
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{kind}");
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false, "{kind}");
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]), "{kind}");
        for resource in ["/requests/cpu", "/requests/memory", "/limits/memory"] {
            assert!(container["resources"].pointer(resource).is_some(), "{kind}: {resource}");
        }
        is_command(&texts(&container["args"]));
        assert!(container["command"].is_null(), "{kind}: the image has an entry point");
    }
    assert_eq!(pod(&resources["Job"]).1["args"], json!(["migrate"]));
    assert!(commands().contains("migrate"));
}

#[test]
fn variables_and_files_are_those_that_the_program_reads() {
    let resources = resources();
    let config = &resources["ConfigMap"];
    let (template, container) = pod(&resources["Deployment"]);
    assert_eq!(container["envFrom"], json!([{ "configMapRef": { "name": config["metadata"]["name"] } }]));
    let known = variables("serve");
    for (name, _) in entries(&config["data"]) {
        assert!(known.contains(name), "serve does not read {name}");
    }
    let kubernetes = read("deploy/kubernetes/README.md");
    let in_secret = |name: &Value, key: &Value| {
        assert_eq!(*name, "actonce");
        assert!(kubernetes.contains(&format!("--from-file={}=", text(key))), "the Secret is made without {key}");
    };
    for (kind, command) in [("Deployment", "serve"), ("Job", "migrate")] {
        for variable in list(&pod(&resources[kind]).1["env"]) {
            assert!(variables(command).contains(text(&variable["name"])), "{command} does not read {variable}");
            let from = &variable["valueFrom"]["secretKeyRef"];
            in_secret(&from["name"], &from["key"]);
        }
    }
    // Every file of the configuration is one of the mounted Secret.
    let mounts = list(&container["volumeMounts"]);
    let mount = mounts.iter().find(|mount| mount["name"] == "secrets").unwrap();
    assert_eq!(mount["readOnly"], true);
    let volumes = list(&template["spec"]["volumes"]);
    let volume = volumes.iter().find(|volume| volume["name"] == "secrets").unwrap();
    let items = list(&volume["secret"]["items"]);
    for item in items {
        in_secret(&volume["secret"]["secretName"], &item["key"]);
    }
    let files: Vec<&str> = entries(&config["data"]).iter().filter(|(n, _)| n.ends_with("_FILE")).map(|e| e.1).collect();
    assert_eq!(files.len(), items.len());
    for file in files {
        let name = file.strip_prefix(text(&mount["mountPath"])).and_then(|rest| rest.strip_prefix('/'));
        assert!(items.iter().any(|item| item["path"].as_str() == name), "{file} is not mounted");
    }
}

#[test]
fn probes_ports_and_selectors_meet() {
    let resources = resources();
    let (template, container) = pod(&resources["Deployment"]);
    let ports = list(&container["ports"]);
    let (name, port) = (&ports[0]["name"], &ports[0]["containerPort"]);
    let listen = text(&resources["ConfigMap"]["data"]["ACTONCE_LISTEN"]);
    assert_eq!(listen, format!("0.0.0.0:{port}"));
    for (probe, path) in [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        let get = &container[probe]["httpGet"];
        assert_eq!((&get["path"], &get["port"]), (&json!(path), name), "{probe}");
        is_route(path);
        // Readiness gives itself 2 s.
        assert!(container[probe]["timeoutSeconds"].as_u64() > Some(2), "{probe}");
    }
    let annotations = &template["metadata"]["annotations"];
    is_route(text(&annotations["prometheus.io/path"]));
    assert_eq!(text(&annotations["prometheus.io/port"]), port.to_string());
    let service = &resources["Service"]["spec"];
    assert_eq!(service["ports"][0]["targetPort"], *name);
    let network = &resources["NetworkPolicy"]["spec"];
    assert_eq!(network["ingress"][0]["ports"][0]["port"], *port);
    assert_eq!(network["policyTypes"], json!(["Ingress", "Egress"]));

    let labels = &template["metadata"]["labels"];
    let of_migration = &resources["Job"]["spec"]["template"]["metadata"]["labels"];
    let deployment = &resources["Deployment"]["spec"]["selector"]["matchLabels"];
    let disruption = &resources["PodDisruptionBudget"]["spec"];
    for selector in [deployment, &service["selector"], &disruption["selector"]["matchLabels"]] {
        assert!(selects(selector, labels), "{selector}");
        assert!(!selects(selector, of_migration), "{selector}: a migration serves nothing");
    }
    assert!(selects(&network["podSelector"]["matchLabels"], labels));
    assert!(selects(&network["podSelector"]["matchLabels"], of_migration));
    assert_eq!(disruption["maxUnavailable"], 1);
    assert!(resources["Deployment"]["spec"]["replicas"].as_u64() >= Some(2));
}

#[test]
fn no_pod_is_killed_before_its_drain_is_over() {
    let resources = resources();
    let (template, container) = pod(&resources["Deployment"]);
    let drain = seconds(&resources["ConfigMap"], "ACTONCE_DRAIN_SECONDS");
    let sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
    let grace = template["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(sleep > 0 && grace > sleep + drain + AFTER_DRAIN, "{grace} s for {sleep} + {drain} + {AFTER_DRAIN}");
    // The start waits at least for the sweep before readiness, which livez does not.
    let startup = &container["startupProbe"];
    let patience = startup["periodSeconds"].as_u64().unwrap() * startup["failureThreshold"].as_u64().unwrap();
    assert!(patience >= 60, "{patience}");
}

/// The migration as its pod runs it: with the database's URL alone, and on a file system that it can't write to.
fn migrate(job: &Value, url: &str, data: &std::path::Path) {
    let container = pod(job).1;
    let given: Vec<&str> = list(&container["env"]).iter().map(|variable| text(&variable["name"])).collect();
    assert_eq!(given, ["DATABASE_URL"]);
    let mut migration = program();
    migration.args(texts(&container["args"])).env("DATABASE_URL", url).env("ACTONCE_DATA_DIR", data);
    let output = migration.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!data.exists(), "a migration of Postgres needs no place of its own");
    // Running it again is harmless.
    assert!(migration.output().unwrap().status.success());
}

/// The values, not only the names: the database is migrated as the Job does it, the service starts with them and works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_starts_with_this_configuration() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let secrets = std::env::temp_dir().join(unique("actonce-deploy"));
    std::fs::create_dir_all(&secrets).unwrap();
    for name in ["jwt-secret", "data-key", "evidence-key"] {
        std::fs::write(secrets.join(name), "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e7abcd").unwrap();
    }
    let mut options = Options { production: true, ..Options::default() };
    options.database_url = crate::support::postgres::fresh_database();
    let resources = resources();
    migrate(&resources["Job"], options.database_url.as_ref().unwrap(), &secrets.join("none"));
    let (_, container) = pod(&resources["Deployment"]);
    let mount = text(&list(&container["volumeMounts"])[0]["mountPath"]);
    for (name, value) in entries(&resources["ConfigMap"]["data"]) {
        options = options.env(name, &value.replace(mount, secrets.to_str().unwrap()));
    }
    let server = Server::start(options);
    let api = Api::of(&server, "t");
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        api.read(text(&container[probe]["httpGet"]["path"])).await.expect(200);
    }
    external(&api).await;
    api.intent(&bodies::claiming("op", crate::http::TOOL)).await.expect(201).directive("dispatch");
    assert!(server.stop().success(), "{}", server.log());
    std::fs::remove_dir_all(secrets).unwrap();
}
