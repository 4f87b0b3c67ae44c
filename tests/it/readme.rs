//! What the README and the hints of `serve --dev` tell people to paste works.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::http::{external, in_review};
use crate::support::{Api, Options, Server, StoreUnderTest, both_stores};

both_stores!(the_flow_in_the_readme_runs, the_hints_at_start_can_be_pasted, the_operators_flow_in_the_docs_runs);

/// Runs a script with bash, as somebody who pastes it.
fn bash(server: &Server, script: &str) -> Output {
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(script).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    bash.env("ACTONCE", server.url()).env("TOKEN", server.ready().token).env_remove("http_proxy");
    bash.output().expect("bash runs")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

async fn the_flow_in_the_readme_runs(store: StoreUnderTest) {
    let readme = include_str!("../../README.md");
    let (_, after) = readme.split_once("<!-- readme-flow -->\n```bash\n").expect("the marked block");
    let (script, _) = after.split_once("\n```").expect("its end");
    let server = store.server(Options::default());
    let out = stdout(&bash(&server, script));
    let answers: Vec<&str> = out.lines().filter(|line| line.contains("answer:")).collect();
    assert_eq!(answers, ["first answer:  dispatch", "second answer: replay"], "{out}");
    // Once per database: the second time somebody has acted already.
    assert!(!bash(&server, script).status.success());
}

async fn the_hints_at_start_can_be_pasted(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let log = server.log();
    let (_, hints) = log.split_once("To try it, paste:\n").expect("hints");
    let (hints, _) = hints.split_once("\n\n20").map_or((hints, ""), |(hints, rest)| (hints, rest));
    let steps: Vec<&str> = hints.split("\n\n").map(str::trim).filter(|step| !step.is_empty()).collect();
    let find = |word: &str| *steps.iter().find(|step| step.contains(word)).unwrap_or_else(|| panic!("{word}: {log}"));
    let exports = find("export ACTONCE");
    assert!(exports.contains(&server.url()) && exports.contains(&server.ready().token));
    let paste = |step: &str| -> Value {
        let out = stdout(&bash(&server, &format!("unset ACTONCE TOKEN\n{exports}\n{step}")));
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{step}\n{out}"))
    };
    assert_eq!(paste(find("-X PUT"))["effect"], "external");
    let granted = paste(find("/api/intents"));
    assert_eq!(granted["directive"], "dispatch", "{granted}");
    let report = find("/outcome\"").replace("DISPATCH_ID", granted["dispatch"]["dispatch_id"].as_str().unwrap());
    let done = paste(&report);
    assert_eq!((&done["directive"], &done["state"]), (&"replay".into(), &"completed".into()), "{done}");
    let read = steps.iter().rfind(|step| step.starts_with("curl")).expect("a last step");
    // The log may go on right behind the last line.
    let read = paste(read.lines().next().unwrap());
    assert_eq!((&read["state"], &read["result"]["refund"]), (&"completed".into(), &"re_77".into()), "{read}");
}

async fn the_operators_flow_in_the_docs_runs(store: StoreUnderTest) {
    let docs = include_str!("../../docs/operations.md");
    let (_, after) = docs.split_once("<!-- operators-flow -->\n```bash\n").expect("the marked block");
    let (script, _) = after.split_once("\n```").expect("its end");
    let server = store.server(Options::default());
    let api = Api::new(&server.url(), "dev", Some(server.ready().token));
    external(&api).await;
    for id in ["run-42:refund:order-1001", "run-42:refund:order-1002", "run-42:refund:order-1003"] {
        in_review(&api, id).await;
    }
    let out = stdout(&bash(&server, script));
    assert!(out.contains("\"late_reports\":1") && out.contains("\"contradicts\":true"), "{out}");
    let said: Vec<&str> = out.lines().filter(|line| !line.starts_with('{')).collect();
    assert_eq!(said, ["decided: completed", "previewed: 2", "decided in bulk: 2"], "{out}");
    api.get("run-42:refund:order-1002").await.state("failed");
}
