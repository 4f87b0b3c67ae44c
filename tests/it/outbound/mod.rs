//! Calls to adapters over real HTTP: the contract, the walls around it, and signatures.

mod calls;
mod clauses;
mod secrets;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use actonce::config::{AdapterPolicy, Network};
use actonce::domain::adapter::{AdapterAnswer, NoAnswer, Question, WriteOnly};
use actonce::domain::ids::Tenant;
use actonce::domain::record::Record;
use actonce::domain::time::Timestamp;
use actonce::domain::tool::Tool;
use actonce::outbound::OutboundAdapters;
use actonce::outbound::client::Outbound;
use actonce::service::places::Places;
use actonce::service::ports::{AdapterCall, AdapterSecrets, Adapters as _, DatabaseTime, SigningSecret};
use actonce::service::redact::KnownSecrets;
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::store::effects::{Maker, name, spec, tenant};
use crate::support::adapter::{FakeAdapter, secret};
use crate::support::{time, unique};

/// Adapters on this machine may be called.
pub(crate) fn open_policy() -> AdapterPolicy {
    AdapterPolicy { allow_http: true, allow_networks: vec![Network::parse("127.0.0.0/8").unwrap()] }
}

/// Secrets that are just there.
#[derive(Debug)]
struct Given(Vec<SigningSecret>);

#[async_trait]
impl AdapterSecrets for Given {
    async fn known(&self, _: &Tenant, _: &Tool) -> Result<KnownSecrets, NoAnswer> {
        let mut known = KnownSecrets::default();
        self.0.iter().for_each(|secret| known.add_signing(secret));
        Ok(known)
    }

    async fn signing(&self, _: &Tenant, _: &Tool) -> Result<Vec<SigningSecret>, NoAnswer> {
        if self.0.is_empty() { Err(NoAnswer::NoSecret) } else { Ok(self.0.clone()) }
    }

    fn named(&self, _: &Tenant, _: &str) -> Option<&[Box<str>]> {
        None
    }

    fn for_host(&self, _: &Tenant, _: &str, _: &str) -> Option<WriteOnly> {
        None
    }
}

/// This machine's clock in the place of the database's.
#[derive(Debug)]
struct Clock;

impl DatabaseTime for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(time::unix_seconds() * 1_000_000)
    }
}

/// A caller of adapters, an effect to ask about, and its tool.
pub(crate) struct Asker {
    pub(crate) adapters: Arc<OutboundAdapters>,
    pub(crate) record: Arc<Record>,
    tool: Arc<Tool>,
    tenant: Tenant,
}

impl Asker {
    /// Asks the fake adapter, with one secret.
    pub(crate) fn of(fake: &FakeAdapter) -> Self {
        Self::new(&fake.spec(), &json!({}), &[secret(1)])
    }

    pub(crate) fn new(adapter: &Value, receipts: &Value, secrets: &[String]) -> Self {
        let outbound = Outbound::new(open_policy()).unwrap();
        Self::with(outbound, adapter, receipts, secrets)
    }

    pub(crate) fn with(outbound: Outbound, adapter: &Value, receipts: &Value, secrets: &[String]) -> Self {
        let secrets = secrets.iter().map(|text| SigningSecret::parse(text).unwrap()).collect();
        let adapters = OutboundAdapters::new(outbound, Arc::new(Given(secrets)), Arc::new(Clock));
        let mut asker = Self {
            adapters: Arc::new(adapters),
            record: Arc::new(dispatched()),
            tool: tool("payments.refund", adapter, receipts),
            tenant: tenant("tenant"),
        };
        asker.tenant = asker.record.key.tenant.clone();
        asker
    }

    /// The same adapters, asked for another tool.
    pub(crate) fn for_tool(&self, tool_name: &str, adapter: &Value) -> Self {
        Self {
            adapters: Arc::clone(&self.adapters),
            record: Arc::clone(&self.record),
            tool: tool(tool_name, adapter, &json!({})),
            tenant: self.tenant.clone(),
        }
    }

    pub(crate) fn call(&self, question: Question) -> AdapterCall {
        AdapterCall {
            question,
            call_id: unique("call"),
            tenant: self.tenant.clone(),
            tool: Arc::clone(&self.tool),
            record: Arc::clone(&self.record),
            receipt: None,
            timeout: Duration::from_secs(5),
            place: Places::default().take(&self.tenant, &self.tool.name).expect("nobody else is there"),
        }
    }

    pub(crate) async fn lookup(&self) -> Result<AdapterAnswer, NoAnswer> {
        self.adapters.ask(self.call(Question::Lookup)).await
    }

    /// A receipt for the effect, with some members replaced.
    pub(crate) fn receipt(&self, changes: &Value) -> Value {
        let checked = crate::store::effects::receipt(&self.record, &json!({}));
        let mut receipt: Value = serde_json::from_str(&checked.text).unwrap();
        for (member, value) in changes.as_object().unwrap() {
            receipt[member] = value.clone();
        }
        receipt
    }
}

fn tool(tool_name: &str, adapter: &Value, receipts: &Value) -> Arc<Tool> {
    let class = actonce::domain::state::EffectClass::External;
    let spec = spec(class, &json!({ "adapter": adapter, "receipt": receipts }));
    Tool::new(name(tool_name), 3, spec, false, 1, Timestamp::from_micros(0))
}

/// An effect that was dispatched once.
fn dispatched() -> Record {
    let maker = Maker::external("tenant", Timestamp::from_micros(1_700_000_000_000_000));
    let (_, record) = maker.create("op/1 ä");
    maker.dispatch(&record, "worker").1
}
