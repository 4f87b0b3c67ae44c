//! Every operation of the description of the API: without a token, with each wrong scope, with the right
//! one, and from another tenant.

use std::collections::BTreeSet;

use actonce::auth::Scope;
use serde_json::{Value, json};

use crate::http::{TOOL, external, granted, in_review, profile, receipts};
use crate::support::api::{Answer, segment};
use crate::support::contract::DOCUMENT;
use crate::support::{Api, StoreUnderTest, bodies, both_stores, unique};

both_stores!(every_operation_asks_for_its_scope, cursors_stay_within_their_tenant);

/// How a foreign tenant's request ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Foreign {
    /// As if nothing were there.
    NotFound,
    /// It concerns the foreign tenant's own things alone.
    Own,
    /// What was made for one tenant is nothing of another's, and is said to be faulty.
    Refused,
}

/// One operation, and a request that it carries out once.
struct Operation {
    method: &'static str,
    /// As documented.
    path: &'static str,
    /// `None`: for everybody.
    scope: Option<Scope>,
    /// One that is needed beside it.
    also: Option<Scope>,
    /// What stands for the parameter of the path.
    name: String,
    body: Option<Value>,
    foreign: Foreign,
    success: u16,
}

impl Operation {
    fn new(method: &'static str, path: &'static str, scope: Option<Scope>, name: &str) -> Self {
        let name = name.to_owned();
        let foreign = if path.contains('{') { Foreign::NotFound } else { Foreign::Own };
        Self { method, path, scope, also: None, name, body: None, foreign, success: 200 }
    }

    fn body(self, body: Value) -> Self {
        Self { body: Some(body), ..self }
    }

    fn also(self, scope: Scope) -> Self {
        Self { also: Some(scope), ..self }
    }

    fn answers(self, success: u16) -> Self {
        Self { success, ..self }
    }

    async fn send(&self, api: &Api, name: &str) -> Answer {
        let path = match self.path.split_once('{') {
            Some((before, rest)) => {
                let (_, after) = rest.split_once('}').unwrap();
                // A second parameter names what the operation before it in the table has made.
                format!("{before}{}{}", segment(name), after.replace("{id}", "3"))
            }
            None => self.path.to_owned(),
        };
        let mut call = api.call(self.method, &path);
        if self.path.ends_with("/authorization") {
            call = call.header("if-match", "\"1\"");
        } else if self.path.ends_with("/resolution") {
            call = call.header("if-match", "\"3\"");
        }
        if self.path == "/api/reports/bypass" {
            let query = "tool=t&key=id&from=2026-01-01T00:00:00Z&until=2027-01-01T00:00:00Z";
            let call = api.call(self.method, &format!("{path}?{query}"));
            return call.header("content-type", "text/csv").bytes(b"id\nx\n").send().await;
        }
        match &self.body {
            Some(body) => call.json(body).send().await,
            None => call.send().await,
        }
    }
}

const EFFECT: &str = "/api/effects/{operation_id}";

/// A delivery that names no operation.
async fn quarantined(api: &Api, receipt_id: &str) -> String {
    let body = bodies::set(receipts::event("", receipt_id, "succeeded"), "/data/metadata", json!({}));
    api.post("/api/receipts/vendor", &body).await.expect(200);
    receipts::waiting(api).await.last().unwrap()["id"].as_str().unwrap().to_owned()
}

/// Makes what the operations act on, and the table of operations.
#[expect(clippy::too_many_lines, reason = "one row for each operation")]
async fn table(api: &Api) -> Vec<Operation> {
    external(api).await;
    receipts::put(api, "vendor", &json!({})).await;
    receipts::doubtful(api, "doubtful").await;
    receipts::doubtful(api, "reconciled").await;
    let approved = json!({ "effect": "external", "authorization": { "mode": "approval" } });
    api.put_tool("guarded", &approved).await.expect(201);
    let rules = json!([{ "when": "true", "verdict": "pending" }]);
    let request = json!({ "lookup": { "url": "https://example.org/", "rules": rules } });
    let asking = json!({ "effect": "external", "adapter": { "lookup": true, "request": request } });
    api.put_tool("asking", &asking).await.expect(201);
    let tried = json!({ "question": "lookup", "answer": { "status": 200 } });
    api.put_tool("unused", &json!({ "effect": "none" })).await.expect(201);
    api.intent(&bodies::with(bodies::intent("prepared", TOOL), &json!({ "run_id": "run" }))).await.expect(201);
    for operation in ["unwanted", "repaired"] {
        api.intent(&bodies::intent(operation, TOOL)).await.expect(201);
    }
    let proposed = api.intent(&bodies::intent("proposed", "guarded")).await.expect(201);
    let (live, reported, receipted) =
        (granted(api, "live").await, granted(api, "reported").await, granted(api, "receipted").await);
    api.outcome("receipted", &bodies::receipted(&receipted)).await.expect(200).state("verifying");
    let batched = granted(api, "reported-batched").await;
    let batched = bodies::with(bodies::succeeded(&batched), &json!({ "operation_id": "reported-batched" }));
    in_review(api, "doubted").await;
    in_review(api, "doubted in bulk").await;
    let preview = api.post("/api/queue/resolutions/preview", &json!({ "operation_ids": ["doubted in bulk"] })).await;
    let bulk = bodies::with(
        bodies::resolution("d-bulk", "completed"),
        &json!({ "preview": preview.at("/preview"), "preview_id": preview.at("/preview_id") }),
    );
    let (attached, discarded) = (quarantined(api, "re_1").await, quarantined(api, "re_2").await);
    receipts::put(api, "unused", &json!({})).await;
    let attach = json!({ "operation_id": "doubtful", "expected_revision": 2, "reason": "because" });
    let profile = profile(api, "1").await;
    let bound = bodies::with(bodies::intent("bound", TOOL), &json!({ "session_id": "session", "profile_id": profile }));
    api.intent(&bound).await.expect(201);
    api.cancel("bound").await.expect(200);
    let grant = json!({ "tool": "guarded", "target": "x", "max_uses": 1, "expires_after_seconds": 60, "reason": "x" });
    let granted = api.post("/api/grants", &grant).await.expect(201);
    let granted: &'static str = granted.str("/grant_id").to_owned().leak();
    let adoption = json!({ "profile_id": profile, "idempotency_key": "key", "reason": "x" });
    let declared: &'static str = profile.clone().leak();
    let components = json!([{ "class": "tool", "name": "x", "behavior_version": "1", "implementation_version": "1" }]);
    let subscription = json!({ "url": "https://example.org/hook", "enabled": false, "start": "beginning" });
    let mut subscriptions = Vec::new();
    for _ in 0..2 {
        let made = api.post("/api/subscriptions", &subscription).await.expect(201);
        subscriptions.push(made.str("/subscription_id").to_owned());
    }
    let (subscribed, unsubscribed) = (&*subscriptions[0], &*subscriptions[1]);
    let hear = Some(Scope::EventsRead);
    let (read, write) = (Some(Scope::EffectsRead), Some(Scope::EffectsWrite));
    let recovery = Some(Scope::RecoveryOperate);
    let plan = api.post("/api/recovery/plans", &json!({ "states": ["intent_recorded"] })).await.expect(200).json;
    let execution = |id: &str| {
        let decisions = json!([{ "operation_id": "repaired", "action": "automatic_repair" }]);
        json!({ "plan": plan, "execution_id": id, "decisions": decisions })
    };
    api.post("/api/recovery/executions", &execution("done")).await.expect(200);
    let (approve, tools) = (Some(Scope::EffectsApprove), Some(Scope::ToolsWrite));
    let on = Operation::new;
    let (resolve, bring) = (Some(Scope::EffectsResolve), Some(Scope::ReceiptsWrite));
    let source = on("PUT", "/api/receipt-sources/{source}", tools, "vendor").body(receipts::spec(&json!({})));
    let put = on("PUT", "/api/tools/{name}", tools, TOOL).body(json!({ "effect": "external", "description": "new" }));
    vec![
        on("POST", "/api/intents", write, "").body(bodies::claiming("new", TOOL)).answers(201),
        on("GET", "/api/effects", read, ""),
        on("GET", EFFECT, read, "prepared"),
        on("GET", "/api/effects/{operation_id}/journal", read, "prepared"),
        on("GET", "/api/effects/{operation_id}/evidence", read, "prepared"),
        on("GET", "/api/keys/evidence", None, ""),
        on("POST", "/api/reports/bypass", read, ""),
        on("GET", "/api/runs/{run_id}", read, "run"),
        on("POST", "/api/effects/{operation_id}/dispatch", write, "prepared").body(bodies::claim()),
        on("POST", "/api/effects/{operation_id}/heartbeat", write, "live").body(bodies::heartbeat(&live)),
        on("POST", "/api/effects/{operation_id}/outcome", write, "reported").body(bodies::succeeded(&reported)),
        on("POST", "/api/intents/batch", write, "").body(json!({ "items": [bodies::intent("batched", TOOL)] })),
        on("POST", "/api/outcomes/batch", write, "").body(json!({ "items": [batched] })),
        on("POST", "/api/effects/{operation_id}/verification", write, "receipted").body(bodies::verification()),
        on("POST", "/api/effects/{operation_id}/cancel", write, "unwanted"),
        on("POST", "/api/effects/{operation_id}/authorization", approve, "proposed")
            .body(bodies::decision(&proposed, "approve")),
        on("GET", "/api/effects/{operation_id}/reports", read, "prepared"),
        on("GET", "/api/effects/{operation_id}/resolutions", resolve, "prepared"),
        on("POST", "/api/effects/{operation_id}/resolution", resolve, "doubted")
            .body(bodies::resolution("d-1", "completed")),
        on("GET", "/api/queue", read, ""),
        on("POST", "/api/queue/resolutions/preview", resolve, "").body(json!({})),
        on("POST", "/api/queue/resolutions", resolve, "").body(bulk),
        on("GET", "/api/effects/{operation_id}/inspection", Some(Scope::EffectsReconcile), "doubtful"),
        on("POST", "/api/effects/{operation_id}/reconciliations", Some(Scope::EffectsReconcile), "reconciled")
            .body(json!({ "expected_revision": 2, "lookup": true })),
        on("GET", "/api/effects/{operation_id}/reconciliations/{id}", read, "reconciled"),
        on("GET", "/api/approvals", approve, ""),
        on("GET", "/api/approvals/{operation_id}", approve, "proposed"),
        on("POST", "/api/grants", approve, "").body(grant).answers(201),
        on("GET", "/api/grants", approve, ""),
        on("GET", "/api/grants/{grant_id}", approve, granted),
        on("POST", "/api/grants/{grant_id}/revoke", approve, granted),
        on("PUT", "/api/profiles", write, "").body(json!({ "components": components })),
        on("GET", "/api/profiles/{profile_id}", read, declared),
        on("GET", "/api/sessions/{session_id}/profile", read, "session"),
        on("POST", "/api/sessions/{session_id}/profile", recovery, "session").body(adoption),
        on("GET", "/api/tools", read, ""),
        on("GET", "/api/tools/{name}", read, TOOL),
        Operation { foreign: Foreign::Own, ..put },
        on("POST", "/api/tools/{name}/pause", tools, TOOL),
        on("POST", "/api/tools/{name}/resume", tools, TOOL),
        on("POST", "/api/tools/{name}/adapter/dry-run", tools, "asking").body(tried),
        on("DELETE", "/api/tools/{name}", tools, "unused").answers(204),
        on("GET", "/api/recovery/startup", recovery, ""),
        on("POST", "/api/recovery/plans", recovery, "").body(json!({})),
        Operation {
            foreign: Foreign::Refused,
            ..on("POST", "/api/recovery/executions", recovery, "").body(execution("new"))
        },
        on("GET", "/api/recovery/executions/{execution_id}", recovery, "done"),
        on("POST", "/api/receipts/{source}", bring, "vendor").body(receipts::event("receipted", "re_77", "succeeded")),
        on("GET", "/api/receipt-sources", read, ""),
        on("GET", "/api/receipt-sources/{source}", read, "vendor"),
        Operation { foreign: Foreign::Own, ..source },
        on("DELETE", "/api/receipt-sources/{source}", tools, "unused").answers(204),
        on("GET", "/api/quarantine", resolve, ""),
        on("GET", "/api/quarantine/{id}", resolve, &attached),
        on("POST", "/api/quarantine/{id}/attach", resolve, &attached).body(attach),
        on("DELETE", "/api/quarantine/{id}", resolve, &discarded).body(json!({ "reason": "because" })).answers(204),
        on("GET", "/api/events", hear, ""),
        on("POST", "/api/subscriptions", hear, "").also(Scope::ToolsWrite).body(subscription.clone()).answers(201),
        on("GET", "/api/subscriptions", hear, ""),
        on("GET", "/api/subscriptions/{subscription_id}", hear, subscribed),
        on("PUT", "/api/subscriptions/{subscription_id}", hear, subscribed)
            .also(Scope::ToolsWrite)
            .body(bodies::without(subscription, "start")),
        on("POST", "/api/subscriptions/{subscription_id}/secret", hear, subscribed).also(Scope::ToolsWrite),
        on("GET", "/api/subscriptions/{subscription_id}/dead-letters", hear, subscribed),
        on("POST", "/api/subscriptions/{subscription_id}/resend", hear, subscribed).also(Scope::ToolsWrite),
        on("DELETE", "/api/subscriptions/{subscription_id}", hear, unsubscribed).also(Scope::ToolsWrite).answers(204),
        on("GET", "/api/openapi.json", None, ""),
        on("GET", "/api/timing/recent", Some(Scope::TimingRead), ""),
        on("GET", "/livez", None, ""),
        on("GET", "/readyz", None, ""),
        on("GET", "/metrics", None, ""),
    ]
}

/// The whole tenant, as it can be read.
async fn everything(api: &Api) -> (Vec<Value>, Vec<Value>) {
    (api.pages("/api/effects?limit=200").await, api.pages("/api/tools?limit=200").await)
}

async fn every_operation_asks_for_its_scope(store: StoreUnderTest) {
    let (server, api) = (store.shared(), store.tenant());
    let table = table(&api).await;
    assert_table_is_complete(&table);
    let token = |scopes: &str| Some(server.token(&api.tenant, "approver", scopes));
    let before = everything(&api).await;
    for operation in &table {
        let name = format!("{} {}", operation.method, operation.path);
        let Some(scope) = operation.scope else {
            for token in [None, Some("nonsense".to_owned())] {
                operation.send(&api.with_token(token), "").await.expect(operation.success);
            }
            continue;
        };
        operation.send(&api.with_token(None), &operation.name).await.problem(401, "unauthenticated");
        for wrong in Scope::ALL.into_iter().filter(|wrong| *wrong != scope) {
            let answer = operation.send(&api.with_token(token(wrong.as_str())), &operation.name).await;
            let answer = answer.problem(403, "insufficient-scope");
            assert_eq!(answer.at("/required_scope"), scope.as_str(), "{name}");
        }
        // All wrong ones together open nothing either, and what is not there is no more visible.
        let wrong: Vec<&str> = Scope::ALL.into_iter().filter(|wrong| *wrong != scope).map(Scope::as_str).collect();
        let api = api.with_token(token(&wrong.join(",")));
        operation.send(&api, &operation.name).await.problem(403, "insufficient-scope");
        operation.send(&api, "absent").await.problem(403, "insufficient-scope");
    }
    assert_walls_hold(store, &api, &table).await;
    assert_eq!(everything(&api).await, before, "a refused request changed something");
    for operation in &table {
        let scope = operation.scope.map_or("events:read", Scope::as_str);
        if let Some(also) = operation.also {
            let answer = operation.send(&api.with_token(token(scope)), &operation.name).await;
            assert_eq!(answer.problem(403, "insufficient-scope").at("/required_scope"), also.as_str());
        }
        let scope = operation.also.map_or_else(|| scope.to_owned(), |also| format!("{scope},{}", also.as_str()));
        let scope = scope.as_str();
        operation.send(&api.with_token(token(scope)), &operation.name).await.expect(operation.success);
    }
}

/// A foreign id answers as an absent one, to the letter.
async fn assert_walls_hold(store: StoreUnderTest, api: &Api, table: &[Operation]) {
    let foreign = store.tenant();
    external(&foreign).await;
    foreign.put_tool("guarded", &json!({ "effect": "external", "authorization": { "mode": "approval" } })).await;
    for operation in table.iter().filter(|operation| operation.foreign == Foreign::NotFound) {
        let there = operation.send(&foreign, if operation.name == TOOL { "unused" } else { &operation.name }).await;
        let absent = operation.send(&foreign, &unique("absent")).await.problem(404, "not-found");
        assert_eq!(there.text, absent.text, "{} {}", operation.method, operation.path);
        let names =
            |answer: &Answer| answer.headers.keys().map(|name| name.as_str().to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(names(&there), names(&absent));
        let own = operation.send(api, &unique("absent")).await.problem(404, "not-found");
        assert_eq!(own.text, absent.text);
    }
    for operation in table.iter().filter(|operation| operation.foreign == Foreign::Refused) {
        operation.send(&foreign, &operation.name).await.problem(400, "invalid-request");
    }
    // What it may do, it does to its own.
    for operation in table.iter().filter(|operation| operation.foreign == Foreign::Own && operation.scope.is_some()) {
        let answer = operation.send(&foreign, &operation.name).await;
        assert!(answer.status.is_success(), "{answer}");
        assert!(operation.method != "GET" || !answer.text.contains("prepared"), "{answer}");
    }
}

fn assert_table_is_complete(table: &[Operation]) {
    let in_table: BTreeSet<_> = table.iter().map(|o| (o.path.to_owned(), o.method.to_ascii_lowercase())).collect();
    assert_eq!(in_table.len(), table.len(), "an operation stands in the table twice");
    let mut documented = BTreeSet::new();
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if !["get", "put", "post", "delete", "patch", "head", "options", "trace"].contains(&method.as_str()) {
                continue;
            }
            documented.insert((path.clone(), method.clone()));
            let row = table.iter().find(|row| row.path == path && row.method.eq_ignore_ascii_case(method));
            let Some(row) = row else { continue };
            let scopes: Vec<_> = row.scope.iter().chain(&row.also).map(|scope| scope.as_str()).collect();
            let mut expected = if scopes.is_empty() { json!([{}]) } else { json!([{ "bearer": scopes }]) };
            if row.path == "/api/receipts/{source}" {
                // A good signature stands for a token.
                expected.as_array_mut().unwrap().insert(0, json!({}));
            }
            assert_eq!(operation["security"], expected, "{method} {path}");
            assert!(operation["responses"].get(row.success.to_string()).is_some(), "{method} {path}");
        }
    }
    assert_eq!(in_table, documented, "left: this test; right: the OpenAPI document");
}

async fn cursors_stay_within_their_tenant(store: StoreUnderTest) {
    let operators = (store.tenant(), store.tenant());
    for api in [&operators.0, &operators.1] {
        external(api).await;
        for operation in ["a", "b"] {
            let granted = in_review(api, operation).await;
            api.outcome(operation, &bodies::unknown(&granted)).await.problem(409, "state-conflict");
        }
    }
    for list in ["/api/queue?tool=payments.refund", "/api/effects/a/reports?"] {
        let page = operators.0.read(&format!("{list}&limit=1")).await.expect(200);
        let next = format!("{list}&limit=1&cursor={}", segment(page.str("/next_cursor")));
        operators.0.read(&next).await.expect(200);
        operators.1.read(&next).await.problem(400, "invalid-request").faults_at(&["query:cursor"]);
        operators
            .0
            .read(&next.replace("/a/", "/b/").replace("tool=payments.refund&", ""))
            .await
            .problem(400, "invalid-request");
    }
    let tenants = (store.tenant(), store.tenant());
    for api in [&tenants.0, &tenants.1] {
        external(api).await;
        api.put_tool("other", &json!({ "effect": "none" })).await.expect(201);
        for operation in ["a", "b"] {
            let body = bodies::with(bodies::intent(operation, TOOL), &json!({ "run_id": "run" }));
            api.intent(&body).await.expect(201);
        }
        api.cancel("a").await.expect(200);
        for source in ["vendor", "vendor-2"] {
            receipts::put(api, source, &json!({})).await;
        }
        for receipt in ["re_1", "re_2"] {
            quarantined(api, receipt).await;
        }
    }
    let lists = ["/api/effects", "/api/runs/run", "/api/tools", "/api/effects/a/journal"];
    for list in lists.into_iter().chain(["/api/receipt-sources", "/api/quarantine"]) {
        let page = tenants.0.read(&format!("{list}?limit=1")).await.expect(200);
        let cursor = segment(page.str("/next_cursor"));
        let next = format!("{list}?limit=1&cursor={cursor}");
        tenants.0.read(&next).await.expect(200);
        tenants.1.read(&next).await.problem(400, "invalid-request").faults_at(&["query:cursor"]);
    }
}
