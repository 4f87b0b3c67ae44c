//! Secrets of tools: taken, sealed, replaced with an overlap, and what webhooks are signed with.

use std::collections::BTreeMap;
use std::sync::Arc;

use actonce::auth::{Principal, Scopes};
use actonce::domain::adapter::{NoAnswer, Question};
use actonce::domain::tool::ToolSpec;
use actonce::engine::Engine;
use actonce::limits;
use actonce::outbound::OutboundAdapters;
use actonce::outbound::client::Outbound;
use actonce::service::keys::DataKey;
use actonce::service::ports::{AdapterCall, Adapters as _};
use actonce::service::seal::Sealer;
use actonce::service::secrets::{SecretKey, ToolSecrets};
use actonce::service::{Parts, Service, ServiceError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Asker, open_policy};
use crate::store::bed::Bed;
use crate::store::effects::{name, tenant};
use crate::store::engine::Running;
use crate::support::adapter::{FakeAdapter, Received, Reply, answers, secret};
use crate::support::bodies::{set, without};
use crate::support::{StoreUnderTest, both_stores};

both_stores!(
    a_new_secret_signs_beside_the_former_one_for_a_while,
    two_secrets_sign_at_most,
    a_secret_stays_where_none_is_sent_and_goes_with_the_tool,
    what_is_stored_is_sealed_and_bound_to_its_tool,
    a_tenant_names_what_it_may,
    equal_secrets_sent_at_once_are_stored_once,
);

const TOOL: &str = "payments.refund";

struct Setting {
    bed: Bed,
    running: Running,
    service: Service,
    fake: FakeAdapter,
    asker: Asker,
}

fn caller(of: &str) -> Principal {
    Principal { tenant: tenant(of), subject: name("operator"), scopes: Scopes::all() }
}

impl Setting {
    async fn new(store: StoreUnderTest) -> Self {
        Self::with(store, [7; 32], BTreeMap::new()).await
    }

    async fn with(store: StoreUnderTest, key: [u8; 32], named: BTreeMap<SecretKey, Vec<Box<str>>>) -> Self {
        let bed = Bed::with_clock(store).await;
        let running = Running::on(Arc::clone(&bed.store)).await;
        let engine = Arc::clone(&running.engine);
        let sealer = Arc::new(Sealer::new(key));
        let secrets = Arc::new(ToolSecrets::new(Arc::clone(&bed.store), sealer, Arc::<Engine>::clone(&engine), named));
        let outbound = Outbound::new(open_policy()).unwrap();
        let adapters = Arc::new(OutboundAdapters::new(
            outbound,
            Arc::<ToolSecrets>::clone(&secrets),
            Arc::<Engine>::clone(&engine),
        ));
        let stopping = CancellationToken::new();
        let service = Service::new(Parts {
            engine,
            data_key: DataKey::new(key),
            keyring: None,
            adapters: Arc::<OutboundAdapters>::clone(&adapters),
            secrets,
            sealer: Arc::new(Sealer::new(key)),
            principal: name("actonce"),
            tasks: TaskTracker::new(),
            stopping,
            proof: actonce::service::proof::checkpoint::Proof::default(),
        });
        let fake = FakeAdapter::always(Reply::Json(answers::absent())).await;
        let asker = Asker { adapters, ..Asker::of(&fake) };
        Self { bed, running, service, fake, asker }
    }

    async fn put_as(&self, of: &str, adapter: &Value) -> Result<u32, ServiceError> {
        let spec: ToolSpec = serde_json::from_value(json!({ "effect": "external", "adapter": adapter })).unwrap();
        let changed = self.service.put_tool(&caller(of), &name(TOOL), spec, None).await?;
        let debug = format!("{changed:?}");
        assert!(!debug.contains("whsec_"), "{debug}");
        Ok(changed.tool.revision)
    }

    async fn put(&self, adapter: &Value) -> Result<u32, ServiceError> {
        self.put_as("tenant", adapter).await
    }

    /// The registration with this secret.
    fn with_secret(&self, number: u8) -> Value {
        set(self.fake.spec(), "/secret", json!(secret(number)))
    }

    /// Asks the adapter of the tool as it is registered now, and gives what arrived.
    async fn ask(&self) -> Result<Received, NoAnswer> {
        let tool = self.service.tool(&caller("tenant"), &name(TOOL)).await.unwrap();
        let call = AdapterCall { tool, ..self.asker.call(Question::Lookup) };
        self.asker.adapters.ask(call).await?;
        Ok(self.fake.last())
    }

    /// Which of the secrets 1 to 5 the next question is signed with.
    async fn signers(&self) -> Vec<u8> {
        let received = self.ask().await.unwrap();
        // The database's time is put forward in some tests, so the tolerance of the library does not apply.
        let signed = |number: &u8| {
            let (id, time) = (received.header("webhook-id"), received.header("webhook-timestamp").parse().unwrap());
            let key = standardwebhooks::Webhook::new(&secret(*number)).unwrap();
            let signature = key.sign(id, time, &received.body).unwrap();
            received.header("webhook-signature").split(' ').any(|found| found == signature)
        };
        (1..=5).filter(signed).collect()
    }

    async fn stored(&self) -> i64 {
        self.bed.count("SELECT count(*) FROM tool_secrets").await
    }

    async fn pass(&self, seconds: u32) {
        self.bed.pass(seconds).await;
        self.running.engine.clock().refresh(self.bed.store.as_ref()).await.unwrap();
    }
}

fn faults(result: Result<u32, ServiceError>) -> Vec<String> {
    match result {
        Err(ServiceError::Invalid(faults)) => faults.into_iter().map(|fault| fault.pointer).collect(),
        other => panic!("{other:?}"),
    }
}

async fn a_new_secret_signs_beside_the_former_one_for_a_while(store: StoreUnderTest) {
    let setting = Setting::new(store).await;
    assert_eq!(setting.put(&setting.with_secret(1)).await.unwrap(), 1);
    assert_eq!(setting.signers().await, [1]);
    assert!(setting.ask().await.unwrap().verify(&secret(1)).is_ok(), "under the database's time");
    assert_eq!(setting.put(&setting.with_secret(1)).await.unwrap(), 1, "an equal one changes nothing");
    assert_eq!(setting.stored().await, 1);
    assert_eq!(setting.put(&setting.with_secret(2)).await.unwrap(), 1, "a secret makes no revision");
    assert_eq!(setting.signers().await, [1, 2]);
    let first = setting.ask().await.unwrap();
    assert!(first.verify(&secret(1)).is_ok() && first.verify(&secret(2)).is_ok());
    setting.pass(limits::SECRET_OVERLAP_SECONDS - 60).await;
    assert_eq!(setting.signers().await, [1, 2], "within the overlap");
    setting.pass(120).await;
    assert_eq!(setting.signers().await, [2], "after it");
}

async fn two_secrets_sign_at_most(store: StoreUnderTest) {
    let setting = Setting::new(store).await;
    for number in 1..=4 {
        setting.put(&setting.with_secret(number)).await.unwrap();
    }
    assert_eq!(setting.signers().await, [3, 4]);
    assert_eq!(setting.stored().await, 2);
    // Back to the former one: it is the newest again.
    setting.put(&setting.with_secret(3)).await.unwrap();
    assert_eq!(setting.signers().await, [3, 4]);
    setting.pass(limits::SECRET_OVERLAP_SECONDS + 1).await;
    assert_eq!(setting.signers().await, [3]);
}

async fn a_secret_stays_where_none_is_sent_and_goes_with_the_tool(store: StoreUnderTest) {
    let setting = Setting::new(store).await;
    let without = |adapter: Value| without(adapter, "secret");
    assert_eq!(faults(setting.put(&without(setting.fake.spec())).await), ["/adapter/secret"], "none is stored");
    setting.put(&setting.with_secret(1)).await.unwrap();
    let changed = set(without(setting.fake.spec()), "/timeout_seconds", json!(7));
    assert_eq!(setting.put(&changed).await.unwrap(), 2, "a new revision");
    assert_eq!(setting.signers().await, [1], "with the secret that is stored");
    setting.service.delete_tool(&caller("tenant"), &name(TOOL), None).await.unwrap();
    assert_eq!(setting.stored().await, 0);
    assert_eq!(faults(setting.put(&changed).await), ["/adapter/secret"], "whoever takes the name brings a secret");
    setting.put(&setting.with_secret(2)).await.unwrap();
    assert_eq!(setting.signers().await, [2]);
}

async fn what_is_stored_is_sealed_and_bound_to_its_tool(store: StoreUnderTest) {
    let setting = Setting::new(store).await;
    setting.put(&setting.with_secret(1)).await.unwrap();
    setting.put_as("other", &setting.with_secret(2)).await.unwrap();
    let spec = setting.bed.count("SELECT count(*) FROM tool_revisions WHERE spec LIKE '%whsec%'").await;
    let plain = setting.bed.bytes(&[1; 32]);
    let sealed = setting.bed.count(&format!("SELECT count(*) FROM tool_secrets WHERE sealed = {plain}")).await;
    let length = setting.bed.count("SELECT min(length(sealed)) FROM tool_secrets").await;
    assert_eq!((spec, sealed, length), (0, 0, 2 + 12 + 32 + 16));
    // A row of another tenant is of no use in this one's place.
    setting
        .bed
        .execute(
            "UPDATE tool_secrets SET sealed = (SELECT sealed FROM tool_secrets WHERE tenant = 'other')
             WHERE tenant = 'tenant'",
        )
        .await;
    assert_eq!(setting.ask().await.unwrap_err(), NoAnswer::NoSecret);
    assert_eq!(setting.fake.calls(), 0, "nothing goes out unsigned");
    // Nor can it be kept, but it can be replaced.
    let keep = without(setting.fake.spec(), "secret");
    assert_eq!(faults(setting.put(&keep).await), ["/adapter/secret"]);
    setting.put(&setting.with_secret(3)).await.unwrap();
    assert_eq!(setting.signers().await, [3]);
}

async fn a_tenant_names_what_it_may(store: StoreUnderTest) {
    let value = |number: u8| Box::<str>::from(secret(number));
    let named = BTreeMap::from([
        ((None, "all".to_owned()), vec![value(2), value(1)]),
        ((Some(tenant("tenant")), "ours".to_owned()), vec![value(3)]),
        ((Some(tenant("other")), "theirs".to_owned()), vec![value(4)]),
        ((Some(tenant("tenant")), "token".to_owned()), vec!["an API token".into()]),
    ]);
    let setting = Setting::with(store, [7; 32], named).await;
    let refer = |name: &str| set(without(setting.fake.spec(), "secret"), "/secret_ref", json!(name));
    setting.put(&refer("all")).await.unwrap();
    assert_eq!(setting.signers().await, [1, 2], "both lines");
    setting.put(&refer("ours")).await.unwrap();
    assert_eq!(setting.signers().await, [3]);
    for name in ["theirs", "absent", "token"] {
        assert_eq!(faults(setting.put(&refer(name)).await), ["/adapter/secret_ref"], "{name}");
    }
    assert_eq!(faults(setting.put_as("other", &refer("ours")).await), ["/adapter/secret_ref"]);
    let both = set(setting.fake.spec(), "/secret_ref", json!("all"));
    assert_eq!(faults(setting.put(&both).await), ["/adapter/secret"], "not both");
    assert_eq!(setting.stored().await, 0);
}

async fn equal_secrets_sent_at_once_are_stored_once(store: StoreUnderTest) {
    let setting = Setting::new(store).await;
    let adapter = setting.with_secret(1);
    let puts = (0..6).map(|_| setting.put(&adapter));
    for put in futures_util::future::join_all(puts).await {
        assert_eq!(put.unwrap(), 1);
    }
    assert_eq!((setting.stored().await, setting.signers().await), (1, vec![1]));
}
