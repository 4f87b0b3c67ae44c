//! `actonce recovery`, and the line of docs/recovery.md.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{doubtful, live, prepared};
use crate::http::external;
use crate::support::server::program;
use crate::support::{Api, Options, Server, StoreUnderTest, blocking, both_stores};

both_stores!(a_plan_is_written_executed_and_told_again, exit_codes_say_what_came_of_it, the_line_in_the_docs_runs);

struct Desk {
    folder: tempfile::TempDir,
    url: String,
    token: String,
}

impl Desk {
    fn of(api: &Api) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), url: api.url.clone(), token: api.token.clone().unwrap() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.arg("recovery").args(arguments).current_dir(self.folder.path());
        command.env("ACTONCE_URL", &self.url).env("ACTONCE_TOKEN", &self.token);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        blocking(move || command.output().expect("the program runs")).await
    }

    /// Runs it, with this exit code; what it printed.
    async fn exits(&self, code: i32, arguments: &[&str]) -> (String, String) {
        let output = self.run(arguments).await;
        let texts = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {texts:?}");
        texts
    }
}

async fn a_plan_is_written_executed_and_told_again(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    prepared(&api, "a", "s-7").await;
    prepared(&api, "b", "s-7").await;
    prepared(&api, "other", "s-8").await;
    live(&api, "live", "s-7").await;
    let desk = Desk::of(&api);
    let make = ["plan", "--session", "s-7", "--inactive-for-seconds", "0", "--output", "plan.json"];
    let (out, err) = desk.exits(0, &make).await;
    assert_eq!((out.as_str(), err.as_str()), ("", ""));
    let plan: Value = serde_json::from_slice(&std::fs::read(desk.file("plan.json")).unwrap()).unwrap();
    assert_eq!(plan["items"].as_array().unwrap().len(), 3);
    let execute = ["execute", "plan.json", "--execution-id", "night"];
    let (first, _) = desk.exits(0, &execute).await;
    let done: Value = serde_json::from_str(&first).unwrap();
    let outcomes: Vec<_> = done["receipts"].as_array().unwrap().iter().map(|one| one["outcome"].clone()).collect();
    assert_eq!(outcomes, ["executed", "executed"], "what needs no person, and nothing else");
    for operation in ["a", "b"] {
        api.get(operation).await.state("failed");
    }
    api.get("other").await.state("intent_recorded");
    let (again, _) = desk.exits(0, &execute).await;
    let mut again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["replayed"], true);
    again["replayed"] = json!(false);
    assert_eq!(again, done);
    // With nothing to repair there is nothing to do.
    desk.exits(0, &["plan", "--session", "s-7", "--output", "rest.json"]).await;
    desk.exits(0, &["execute", "rest.json", "--execution-id", "rest"]).await;
    // A plan can go to standard output, and a token can stand in a file.
    std::fs::write(desk.file("token"), format!("{}\n", desk.token)).unwrap();
    let mut command = desk.command(&["plan", "--state", "intent_recorded", "--token-file", "token", "--limit", "10"]);
    command.env_remove("ACTONCE_TOKEN");
    let output = blocking(move || command.output().unwrap()).await;
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(plan["items"][0]["operation_id"], "other");
}

async fn exit_codes_say_what_came_of_it(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    prepared(&api, "a", "s").await;
    doubtful(&api, "doubt", "s").await;
    let desk = Desk::of(&api);
    desk.exits(0, &["plan", "--output", "plan.json"]).await;
    // Edited.
    let text = std::fs::read_to_string(desk.file("plan.json")).unwrap();
    std::fs::write(desk.file("edited.json"), text.replace("\"revision\":1", "\"revision\":3")).unwrap();
    let (_, err) = desk.exits(1, &["execute", "edited.json", "--execution-id", "e"]).await;
    assert!(err.contains("/plan/plan_id"), "{err}");
    // Decided, but without the message that it needs.
    let decide = |name: &str, decisions: Value| std::fs::write(desk.file(name), decisions.to_string()).unwrap();
    decide("bare.json", json!([{ "operation_id": "doubt", "action": "mark_failed" }]));
    let (_, err) = desk.exits(2, &["execute", "plan.json", "--execution-id", "e", "--decisions", "bare.json"]).await;
    assert!(err.contains("/decisions/0/message"), "{err}");
    decide("marks.json", json!([{ "operation_id": "doubt", "action": "mark_failed", "message": "looked" }]));
    desk.exits(0, &["execute", "plan.json", "--execution-id", "e", "--decisions", "marks.json"]).await;
    // Another decision under the same id; then a plan that is stale.
    desk.exits(1, &["execute", "plan.json", "--execution-id", "e"]).await;
    api.cancel("a").await.expect(200);
    let (out, _) = desk.exits(1, &["execute", "plan.json", "--execution-id", "late"]).await;
    assert!(out.contains("stale_plan"), "{out}");
    // Wrong use, files, no answer.
    for arguments in [
        &["execute", "absent.json", "--execution-id", "e"][..],
        &["execute", "marks.json", "--execution-id", "e"],
        &["execute", "plan.json"],
        &["plan", "--session", "s", "--state", "proposed"],
        &["plan", "--state", "failed"],
        &["plan", "--url", "http://127.0.0.1:9"],
        &["plan", "--output", "no/such/folder/plan.json"],
        &["plan", "--token-file", "absent"],
    ] {
        desk.exits(2, arguments).await;
    }
    let nobody = Desk { token: String::new(), ..Desk::of(&api) };
    let (_, err) = nobody.exits(2, &["plan"]).await;
    assert!(err.contains("ACTONCE_TOKEN"), "{err}");
    let stranger = Desk { token: "nonsense".to_owned(), ..Desk::of(&api) };
    stranger.exits(2, &["plan"]).await;
}

fn bash(server: &Server, script: &str) -> Output {
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(script).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    bash.env("ACTONCE", server.url()).env("TOKEN", server.ready().token).env_remove("http_proxy");
    bash.output().expect("bash runs")
}

async fn the_line_in_the_docs_runs(store: StoreUnderTest) {
    let docs = include_str!("../../../docs/recovery.md");
    let (_, after) = docs.split_once("<!-- recovery-startup -->\n```bash\n").expect("the marked block");
    let (script, _) = after.split_once("\n```").expect("its end");
    assert!(script.contains("curl") && script.contains("--fail-with-body"), "{script}");
    for base in ["", "/cayu"] {
        let options = Options::default();
        let options = if base.is_empty() { options } else { options.arg("--base-path").arg(base) };
        let server = store.server(options);
        let output = bash(&server, script);
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!((&report["status"], &report["schema_version"]), (&json!("completed"), &json!(1)));
        // Without a token it fails, and says why.
        let output = bash(&server, &format!("TOKEN=nonsense\n{script}"));
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("/docs/errors/unauthenticated"), "{output:?}");
    }
}
