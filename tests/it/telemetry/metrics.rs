//! Metrics: what dashboards and alerts name is there, and a scrape never fails with the database.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::http::{TOOL, external};
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    what_alerts_and_dashboard_name_exists,
    no_label_is_a_tenant,
    effects_are_counted_by_the_state_they_come_into,
    a_repeated_scrape_asks_the_database_once,
);

const ALERTS: &str = include_str!("../../../deploy/prometheus/alerts.yml");
const DASHBOARD: &str = include_str!("../../../deploy/grafana/actonce.json");
const RUNBOOK: &str = include_str!("../../../docs/operations.md");

/// The words in an expression that are metrics of ours.
fn named(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = |word: &&str| word.starts_with("actonce_") || word.starts_with("effects_") || word.starts_with("jwks_");
    words.filter(ours).map(str::to_owned).collect()
}

/// The expressions of the dashboard.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(expression)) = members.get("expr") {
                found.push(expression.clone());
            }
            members.values().for_each(|value| expressions(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

/// What a server shows: names of series, and of the histograms they belong to.
fn shown(metrics: &str) -> BTreeSet<&str> {
    metrics.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['{', ' ']).next()).collect()
}

async fn what_alerts_and_dashboard_name_exists(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    // One request has been answered when there are metrics of requests.
    api.read("/livez").await.expect(200);
    let metrics = api.with_token(None).read("/metrics").await.expect(200).text;
    let shown = shown(&metrics);
    let mut panels = Vec::new();
    expressions(&serde_json::from_str(DASHBOARD).expect("the dashboard is JSON"), &mut panels);
    // Comments and texts of the rules name no metric.
    let texts = ["#", "summary:"];
    let rules = ALERTS.lines().filter(|line| !texts.iter().any(|text| line.trim_start().starts_with(text)));
    let rules: Vec<&str> = rules.collect();
    let (in_rules, in_panels) = (named(&rules.join(" ")), named(&panels.join(" ")));
    assert!(in_rules.len() > 10 && in_panels.len() > 15, "{in_rules:?} {in_panels:?}");
    // A series of calls comes with the first call.
    let late = ["actonce_adapter_call_seconds_bucket"];
    for name in in_rules.union(&in_panels) {
        assert!(shown.contains(name.as_str()) || late.contains(&name.as_str()), "{name} is not in:\n{metrics}");
    }
    for name in late {
        assert!(!in_rules.contains(name), "an alert on {name} would be silent");
    }
    // Each alert has its line in the runbook.
    let alerts: Vec<&str> = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10);
    for alert in alerts {
        assert!(RUNBOOK.contains(&format!("| `{alert}` |")), "{alert} is not in docs/operations.md");
    }
    // What is there says what it is.
    for name in shown.iter().filter(|name| name.starts_with("actonce_")) {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let is_described = [*name, base].iter().any(|name| metrics.contains(&format!("# HELP {name} ")));
        assert!(is_described, "{name} has no help");
    }
}

/// A copy of a rule would be changed in one place alone.
#[test]
fn the_rules_stand_in_one_place() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let pages: Vec<_> = std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path()).collect();
    let pages: Vec<_> = pages.iter().filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    assert!(pages.len() > 10, "{pages:?}");
    for page in pages {
        let text = std::fs::read_to_string(page).unwrap();
        assert!(!text.contains("- alert:"), "{} has rules of its own", page.display());
    }
    assert!(RUNBOOK.contains("`deploy/prometheus/alerts.yml`") && RUNBOOK.contains("`deploy/grafana/actonce.json`"));
}

async fn effects_are_counted_by_the_state_they_come_into(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let granted = api.intent(&bodies::claiming("done", TOOL)).await.expect(201);
    let report = bodies::succeeded(&granted);
    api.outcome("done", &report).await.expect(200).state("completed");
    // The same again, and something else that comes late: both leave it where it is.
    api.outcome("done", &report).await.expect(200);
    api.outcome("done", &bodies::unknown(&granted)).await;
    let granted = api.intent(&bodies::claiming("doubtful", TOOL)).await.expect(201);
    api.outcome("doubtful", &bodies::unknown(&granted)).await.expect(200);
    let metrics = api.read("/metrics").await.expect(200).text;
    let states = [("dispatched", 2), ("completed", 1), ("outcome_unknown", 1), ("failed", 0), ("manual_review", 0)];
    for (state, count) in states {
        let line = format!("actonce_effects_entered_total{{state=\"{state}\"}} {count}");
        assert!(metrics.lines().any(|found| found == line), "{line} is not in:\n{metrics}");
    }
}

async fn no_label_is_a_tenant(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.intent(&bodies::claiming("an operation of mine", TOOL)).await.expect(201);
    let metrics = api.read("/metrics").await.expect(200).text;
    for name in [api.tenant.as_str(), "an operation of mine", bodies::TARGET] {
        assert!(!metrics.contains(name), "{name}");
    }
    assert!(metrics.contains(r#"path="/api/intents""#), "the route is one: {metrics}");
}

async fn a_repeated_scrape_asks_the_database_once(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let open = |metrics: &str| {
        let line = metrics.lines().find(|line| line.starts_with("actonce_effects_open{state=\"dispatched\"}"));
        line.expect("the gauge").rsplit(' ').next().expect("a value").to_owned()
    };
    assert_eq!(open(&api.read("/metrics").await.expect(200).text), "0");
    api.intent(&bodies::claiming("op", TOOL)).await.expect(201);
    let soon = std::time::Instant::now();
    let again = open(&api.read("/metrics").await.expect(200).text);
    // On a machine that stood still in between it may be fresh already.
    assert!(again == "0" || soon.elapsed().as_secs() >= 1, "asked again at once");
    tokio::time::sleep(std::time::Duration::from_secs(actonce::limits::METRICS_FRESH_SECONDS + 1)).await;
    assert_eq!(open(&api.read("/metrics").await.expect(200).text), "1");
}
