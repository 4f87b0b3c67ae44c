//! Elapsed limits (protocol §8): what counts and what does not, by the database's time, on any replica,
//! and after a restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actonce::domain::command::{Command, Propose};
use actonce::domain::elapsed::ElapsedScope;
use actonce::domain::ids::{EffectKey, Name};
use actonce::domain::record::Record;
use actonce::domain::refusal::Refusal;
use actonce::domain::state::{EffectClass, State};
use actonce::engine::{Decided, EngineError};
use serde_json::{Value, json};

use crate::http::TOOL;
use crate::scenarios::{count, sql};
use crate::store::bed::Bed;
use crate::store::effects::{Maker, claim, failure, name, owner, registration, report, spec, tenant, wish};
use crate::store::engine::Running;
use crate::support::{Api, Options, Server, StoreUnderTest, bodies, both_stores};

both_stores!(
    a_run_s_time_is_without_the_waits_for_people,
    a_session_s_time_is_all_of_it,
    a_review_is_a_wait_and_doubt_is_not,
    waits_that_overlap_count_once,
    an_approval_that_nobody_answers_ends_the_wait_by_itself,
    a_limit_is_younger_than_its_effects,
    who_is_not_limited_writes_and_reads_nothing_for_it,
    the_refusal_says_what_was_counted_and_nothing_is_stored,
    a_registration_is_checked,
    every_replica_counts_the_same_and_so_does_the_next_start,
);

const MINUTE: u32 = 60;
const HOUR: u32 = 3_600;

/// A database with a clock, two processes on it, and three tools: `limited`, `guarded` and `free`.
struct Scene {
    bed: Bed,
    engines: [Running; 2],
    turn: AtomicUsize,
    maker: Maker,
}

impl Scene {
    async fn new(store: StoreUnderTest, limit: Value) -> Self {
        let bed = Bed::with_clock(store).await;
        let day = json!({ "mode": "approval", "expires_after_seconds": 86_400 });
        for (tool, changes) in [
            ("limited", json!({ "elapsed_limit": limit, "reconcile_deadline_seconds": 60 })),
            ("guarded", json!({ "authorization": day })),
            ("free", json!({ "reconcile_deadline_seconds": 60 })),
        ] {
            let write = registration(&tenant("tenant"), tool, &spec(EffectClass::External, &changes));
            bed.store.write_tool(&write).await.unwrap();
        }
        let engines = [Running::on(Arc::clone(&bed.store)).await, Running::on(bed.another().await).await];
        let maker = Maker::external("tenant", bed.now().await);
        Self { bed, engines, turn: AtomicUsize::new(0), maker }
    }

    /// One process after the other.
    fn engine(&self) -> &Running {
        &self.engines[self.turn.fetch_add(1, Ordering::Relaxed) % 2]
    }

    async fn pass(&self, seconds: u32) {
        self.bed.pass(seconds).await;
        for running in &self.engines {
            // A store of another process learns of the time at its next commit, or asks.
            let engine = &running.engine;
            engine.clock().refresh(self.bed.store.as_ref()).await.unwrap();
        }
    }

    fn key(operation: &str) -> EffectKey {
        EffectKey::of(&tenant("tenant"), &name(operation))
    }

    async fn propose(&self, operation: &str, tool: &str, claims: bool) -> Result<Decided, EngineError> {
        let proposal =
            Propose { tool: name(tool), claim: claims.then(|| wish("one")), ..self.maker.proposal(operation) };
        self.engine().engine.propose(&tenant("tenant"), &name("agent"), proposal).await
    }

    async fn apply(&self, operation: &str, by: &str, command: Command) -> Result<Decided, EngineError> {
        self.engine().engine.apply(&Self::key(operation), &name(by), command).await
    }

    async fn record(&self, operation: &str) -> Record {
        self.bed.load(&Self::key(operation)).await.expect("it is there")
    }

    async fn begins(&self, operation: &str) {
        let decided = self.propose(operation, "limited", true).await.unwrap();
        assert!(decided.answer.owns_dispatch, "{operation}");
    }

    /// A new effect is refused; its elapsed time in whole minutes.
    async fn is_over(&self, operation: &str) -> i64 {
        let refused = self.propose(operation, "limited", true).await;
        assert!(self.bed.load(&Self::key(operation)).await.is_none(), "nothing is stored");
        minutes(refused)
    }

    async fn decides(&self, operation: &str, approve: bool) -> Record {
        let record = self.record(operation).await;
        let command = Command::Authorize {
            expected_revision: record.life.revision,
            proposal_digest: record.life.approval.unwrap().proposal_digest,
            approve,
            reason: "read".to_owned(),
        };
        self.apply(operation, "ann", command).await.unwrap();
        self.record(operation).await
    }
}

fn minutes(refused: Result<Decided, EngineError>) -> i64 {
    match refused {
        Err(EngineError::Refused { refusal: Refusal::ElapsedLimit { elapsed_us: Some(elapsed), .. }, .. }) => {
            elapsed / 60_000_000
        }
        other => panic!("not over: {other:?}"),
    }
}

fn limit(scope: &str, seconds: u32) -> Value {
    json!({ "scope": scope, "max_elapsed_seconds": seconds })
}

async fn a_run_s_time_is_without_the_waits_for_people(store: StoreUnderTest) {
    let scene = Scene::new(store, limit("run", HOUR)).await;
    scene.begins("first").await;
    scene.propose("recorded", "limited", false).await.unwrap();
    scene.pass(20 * MINUTE).await;
    // Somebody is asked, and answers eleven hours later.
    scene.propose("asked", "guarded", true).await.unwrap();
    scene.pass(11 * HOUR).await;
    assert_eq!(scene.decides("asked", true).await.life.state, State::IntentRecorded);
    scene.pass(39 * MINUTE).await;
    scene.begins("second").await;
    // 59 minutes and a moment; now 62.
    scene.pass(3 * MINUTE).await;
    assert_eq!(scene.is_over("third").await, 62);
    // What was recorded in time is not dispatched either, and stays as it is.
    let refused = scene.apply("recorded", "agent", claim("two")).await;
    assert_eq!(minutes(refused), 62);
    let record = scene.record("recorded").await;
    assert_eq!((record.life.state, record.life.revision, record.life.fence), (State::IntentRecorded, 1, 0));
    // What began in time is reported, and tools without a limit go on.
    let second = scene.record("second").await;
    let done = crate::store::effects::succeeded(&second);
    scene.apply("second", "agent", done).await.unwrap();
    assert!(scene.apply("asked", "agent", claim("three")).await.unwrap().answer.owns_dispatch);
    assert!(scene.propose("other", "free", true).await.unwrap().answer.owns_dispatch);
    // Another run is another one.
    let proposal = Propose {
        tool: name("limited"),
        run_id: Some(name("another run")),
        claim: Some(wish("one")),
        ..scene.maker.proposal("elsewhere")
    };
    let decided = scene.engine().engine.propose(&tenant("tenant"), &name("agent"), proposal.clone()).await.unwrap();
    assert!(decided.answer.owns_dispatch);
    // So is the run of that name of another tenant, who has a limit of its own.
    let theirs = registration(
        &tenant("other"),
        "limited",
        &spec(EffectClass::External, &json!({ "elapsed_limit": limit("run", 60) })),
    );
    scene.bed.store.write_tool(&theirs).await.unwrap();
    let proposal = Propose { run_id: Some(name("run")), ..proposal };
    let decided = scene.engine().engine.propose(&tenant("other"), &name("agent"), proposal).await.unwrap();
    assert!(decided.answer.owns_dispatch);
}

async fn a_session_s_time_is_all_of_it(store: StoreUnderTest) {
    let scene = Scene::new(store, limit("session", HOUR)).await;
    scene.propose("asked", "guarded", true).await.unwrap();
    scene.pass(58 * MINUTE).await;
    scene.decides("asked", true).await;
    scene.begins("first").await;
    scene.pass(3 * MINUTE).await;
    assert_eq!(scene.is_over("second").await, 61);
}

async fn a_review_is_a_wait_and_doubt_is_not(store: StoreUnderTest) {
    let scene = Scene::new(store, limit("run", HOUR)).await;
    let first = scene.propose("first", "free", true).await.unwrap().record;
    let doubt = report(owner(&first), actonce::domain::command::Report::Unknown(failure("slow")));
    scene.apply("first", "agent", doubt).await.unwrap();
    scene.pass(10 * MINUTE).await;
    // The deadline of the doubt passed long ago; a person is waited for from the moment that it is written.
    scene.apply("first", "actonce", Command::Expire { hold_released: false }).await.unwrap();
    assert_eq!(scene.record("first").await.life.state, State::ManualReview);
    scene.pass(30 * HOUR).await;
    scene.begins("second").await;
    let record = scene.record("first").await;
    let resolve = actonce::domain::command::Resolve {
        expected_revision: record.life.revision,
        decision_id: name("d-1"),
        outcome: actonce::domain::record::ResolvedOutcome::Failed,
        reason: "looked".to_owned(),
        evidence: "{}".into(),
        bulk_decision_id: None,
        digest: actonce::domain::canonical::Sha256Digest::of(b"d-1"),
    };
    scene.apply("first", "ann", Command::Resolve(resolve)).await.unwrap();
    scene.pass(49 * MINUTE).await;
    scene.begins("third").await;
    scene.pass(2 * MINUTE).await;
    assert_eq!(scene.is_over("fourth").await, 61);
}

async fn waits_that_overlap_count_once(store: StoreUnderTest) {
    let scene = Scene::new(store, limit("run", HOUR)).await;
    scene.begins("first").await;
    scene.propose("a", "guarded", true).await.unwrap();
    scene.pass(HOUR).await;
    scene.propose("b", "guarded", true).await.unwrap();
    scene.pass(HOUR).await;
    scene.decides("a", true).await;
    scene.pass(HOUR).await;
    scene.decides("b", false).await;
    // Three hours of waiting, not four: what was active is not made less by waiting twice.
    scene.pass(59 * MINUTE).await;
    scene.begins("second").await;
    scene.pass(2 * MINUTE).await;
    assert_eq!(scene.is_over("third").await, 61);
}

async fn an_approval_that_nobody_answers_ends_the_wait_by_itself(store: StoreUnderTest) {
    let scene = Scene::new(store, limit("run", HOUR)).await;
    scene.begins("first").await;
    scene.propose("asked", "guarded", true).await.unwrap();
    // A day until it expires; nobody sweeps for one hour more, and that hour is the run's.
    scene.pass(24 * HOUR + 50 * MINUTE).await;
    scene.begins("second").await;
    scene.pass(11 * MINUTE).await;
    assert_eq!(scene.is_over("third").await, 61);
    scene.apply("asked", "actonce", Command::Expire { hold_released: false }).await.unwrap();
    assert_eq!(scene.record("asked").await.life.state, State::Refused);
    assert_eq!(scene.is_over("third").await, 61, "seen late, the wait is no longer for it");
}

async fn a_limit_is_younger_than_its_effects(store: StoreUnderTest) {
    let scene = Scene::new(store, limit("run", HOUR)).await;
    let bare = |operation: &str| Propose { run_id: None, tool: name("free"), ..scene.maker.proposal(operation) };
    let engine = &scene.engines[0].engine;
    for operation in ["early", "late"] {
        engine.propose(&tenant("tenant"), &name("agent"), bare(operation)).await.unwrap();
    }
    let changed = actonce::store::ToolWrite {
        expected_stamp: Some(1),
        revision: 2,
        ..registration(
            &tenant("tenant"),
            "free",
            &spec(EffectClass::External, &json!({ "elapsed_limit": limit("run", HOUR) })),
        )
    };
    assert_eq!(scene.bed.store.write_tool(&changed).await.unwrap(), actonce::store::ToolWritten::Applied);
    for running in &scene.engines {
        running.engine.tools().forget(&tenant("tenant"), &name("free"));
    }
    scene.pass(50 * MINUTE).await;
    assert!(scene.apply("early", "agent", claim("one")).await.unwrap().answer.owns_dispatch);
    scene.pass(11 * MINUTE).await;
    assert_eq!(minutes(scene.apply("late", "agent", claim("one")).await), 61, "its own time, where it names no run");
    let fresh = engine.propose(&tenant("tenant"), &name("agent"), bare("new")).await;
    assert!(matches!(fresh, Err(EngineError::Refused { refusal: Refusal::Invalid(_), .. })), "{fresh:?}");
    assert_eq!(ElapsedScope::Run.pointer(), "/run_id");
}

/// Rows are written where a person is asked, and nowhere else.
async fn who_is_not_limited_writes_and_reads_nothing_for_it(store: StoreUnderTest) {
    let scene = Scene::new(store, limit("run", HOUR)).await;
    let waits = async || scene.bed.count("SELECT count(*) FROM run_waits").await;
    let first = scene.propose("first", "free", true).await.unwrap().record;
    scene.apply("first", "agent", crate::store::effects::succeeded(&first)).await.unwrap();
    assert_eq!(waits().await, 0);
    // Without the table everything goes on that needs no limit and asks nobody.
    scene.bed.execute("ALTER TABLE run_waits RENAME TO elsewhere").await;
    scene.propose("second", "free", true).await.unwrap();
    assert!(scene.propose("limited", "limited", true).await.is_err());
    scene.bed.execute("ALTER TABLE elsewhere RENAME TO run_waits").await;
    scene.propose("asked", "guarded", true).await.unwrap();
    assert_eq!(waits().await, 1);
    scene.decides("asked", true).await;
    assert_eq!(waits().await, 1);
    assert_eq!(scene.bed.count("SELECT count(*) FROM run_waits WHERE ends_us > began_us + 3600000000").await, 0);
}

async fn registered(server: &Server, tenant: &str, limit: Value) -> Api {
    let api = Api::of(server, tenant);
    api.put_tool(TOOL, &json!({ "effect": "external", "elapsed_limit": limit })).await.expect(201);
    api
}

fn in_run(operation: &str) -> Value {
    bodies::with(bodies::claiming(operation, TOOL), &json!({ "run_id": "run", "session_id": "session" }))
}

/// The run began an hour earlier than it did.
fn an_hour_ago(server: &Server) {
    sql(server, "UPDATE entries SET created_us = created_us - 3600000000 WHERE created_us IS NOT NULL");
}

async fn the_refusal_says_what_was_counted_and_nothing_is_stored(store: StoreUnderTest) {
    for scope in ["run", "session"] {
        let server = store.server(Options::default());
        let api = registered(&server, "t", limit(scope, 600)).await;
        let first = api.intent(&in_run("first")).await.expect(201).directive("dispatch");
        let recorded =
            bodies::with(bodies::intent("recorded", TOOL), &json!({ "run_id": "run", "session_id": "session" }));
        api.intent(&recorded).await.expect(201).directive("claim");
        an_hour_ago(&server);
        let before = count(&server, "SELECT count(*) FROM entries");
        let dispatch = api.dispatch("recorded", &bodies::claim()).await;
        for refused in [api.intent(&in_run("second")).await, dispatch] {
            let refused = refused.problem(409, "state-conflict");
            let counted = refused.at("/elapsed_limit");
            assert_eq!((&counted["scope"], &counted["max_elapsed_seconds"]), (&json!(scope), &json!(600)));
            let elapsed = counted["elapsed_seconds"].as_i64().unwrap();
            assert!((3_600..3_700).contains(&elapsed), "{refused}");
            assert_eq!(refused.at("/directive"), "stop");
        }
        api.get("second").await.problem(404, "not-found");
        // In a batch it is its item's alone.
        let other = bodies::with(bodies::claiming("other", TOOL), &json!({ "run_id": "r-2", "session_id": "s-2" }));
        let batch = api.post("/api/intents/batch", &json!({ "items": [in_run("third"), other] })).await.expect(200);
        assert!(batch.text.contains("elapsed_limit") && batch.text.contains("\"dispatch\""), "{batch}");
        assert_eq!(count(&server, "SELECT count(*) FROM entries"), before + 1);
        // What is in flight goes on, and is known again.
        api.intent(&in_run("first")).await.expect(200).directive("wait");
        api.heartbeat("first", &bodies::heartbeat(&first)).await.expect(200);
        api.outcome("first", &bodies::succeeded(&first)).await.expect(200).state("completed");
        api.intent(&in_run("first")).await.expect(200).directive("replay");
        // A raised limit lets go what waits.
        let raised = json!({ "effect": "external", "elapsed_limit": limit(scope, 7_200) });
        api.put_tool(TOOL, &raised).await.expect(200);
        api.dispatch("recorded", &bodies::claim()).await.expect(200).directive("dispatch");
        // What the limit counts by has to be said.
        let nameless = api.intent(&bodies::claiming("nameless", TOOL)).await.problem(400, "invalid-request");
        nameless.faults_at(&[if scope == "run" { "/run_id" } else { "/session_id" }]);
    }
}

async fn a_registration_is_checked(store: StoreUnderTest) {
    let api = store.tenant();
    for (wrong, pointer) in [
        (limit("run", 0), "/elapsed_limit/max_elapsed_seconds"),
        (limit("run", 31_536_001), "/elapsed_limit/max_elapsed_seconds"),
    ] {
        let spec = json!({ "effect": "external", "elapsed_limit": wrong });
        api.put_tool(TOOL, &spec).await.problem(400, "invalid-request").faults_at(&[pointer]);
    }
    for wrong in [
        limit("tenant", 60),
        json!({ "scope": "run" }),
        json!({ "max_elapsed_seconds": 60 }),
        json!(60),
        json!(["run", 60]),
        json!({ "scope": "run", "max_elapsed_seconds": 60, "more": 1 }),
        json!({ "scope": "run", "max_elapsed_seconds": "60" }),
    ] {
        let spec = json!({ "effect": "external", "elapsed_limit": wrong });
        api.put_tool(TOOL, &spec).await.problem(400, "invalid-request");
    }
    let good = json!({ "effect": "external", "elapsed_limit": limit("session", 31_536_000) });
    let made = api.put_tool(TOOL, &good).await.expect(201);
    assert_eq!(made.at("/elapsed_limit"), &limit("session", 31_536_000));
    let without = api.put_tool(TOOL, &json!({ "effect": "external" })).await.expect(200);
    assert!(!without.text.contains("elapsed_limit"), "{without}");
}

async fn every_replica_counts_the_same_and_so_does_the_next_start(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = registered(&server, "t", limit("run", 600)).await;
    let guarded =
        json!({ "effect": "external", "authorization": { "mode": "approval", "expires_after_seconds": 86_400 } });
    api.put_tool("guarded", &guarded).await.expect(201);
    api.intent(&in_run("first")).await.expect(201).directive("dispatch");
    let asked = bodies::with(bodies::claiming("asked", "guarded"), &json!({ "run_id": "run" }));
    api.intent(&asked).await.expect(201).directive("authorize");
    // Both began an hour ago, and somebody has been waited for since.
    an_hour_ago(&server);
    sql(&server, "UPDATE run_waits SET began_us = began_us - 3600000000");
    let replica = server.replica();
    let other = api.at(&replica);
    api.intent(&in_run("second")).await.expect(201).directive("dispatch");
    other.intent(&in_run("third")).await.expect(201).directive("dispatch");
    server.kill9();
    server.restart();
    let api = api.at(&server);
    api.intent(&in_run("fourth")).await.expect(201).directive("dispatch");
    // It was withdrawn when it began: the hour was the run's.
    other.cancel("asked").await.expect(200);
    sql(&server, "UPDATE run_waits SET ends_us = began_us");
    for api in [&api, &other] {
        api.intent(&in_run("fifth")).await.problem(409, "state-conflict");
    }
    server.kill9();
    server.restart();
    api.at(&server).intent(&in_run("fifth")).await.problem(409, "state-conflict");
}

/// Names are spelled as they are counted.
#[test]
fn the_words_are_the_protocol_s() {
    for (scope, word) in [(ElapsedScope::Run, "run"), (ElapsedScope::Session, "session")] {
        assert_eq!((scope.as_str(), serde_json::to_value(scope).unwrap()), (word, json!(word)));
        assert!(Name::new(word).is_ok());
    }
}
