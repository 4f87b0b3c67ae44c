//! The wall between tenants, a second time: row-level security of the database itself.
//!
//! Every statement names its tenant. Should one forget it, the policies of migration 15 let it see the rows of the
//! tenants that its connection was set to, and no others. So a connection is never had without saying for whom:
//! [`Tenants`] is the one way to it, and the pools are known to this module alone.

mod manner;
mod seats;
mod uses;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPool};

pub(super) use self::manner::Manner;
use self::seats::Seats;
pub use self::uses::{Held, Scoped, ScopedTransaction};
use super::sql;
use crate::domain::ids::{EffectKey, Tenant};
use crate::store::{PoolUse, Result};

/// The setting that the policies read: each tenant with a line feed behind it, which no name has in it.
pub(super) const SETTING: &str = "actonce.tenants";
/// What it says for the rows of every tenant, and of none. No list of names is one of these.
const EVERY: &str = "*";
const NOBODY: &str = "nobody";

/// Whose rows a connection sees and writes.
#[derive(Debug, Clone)]
pub enum Tenants<'a> {
    /// Nobody's: the server itself, and tables of the deployment.
    Nobody,
    /// One tenant's.
    One(&'a Tenant),
    /// Those of several: a batch.
    These(BTreeSet<&'a str>),
    /// Every tenant's, for work that belongs to none.
    All(Purpose),
}

/// The work that needs every tenant's rows. A test lists where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// What is due, and how much is open.
    Sweep,
    /// Which of all overdue effects are a tenant's: the bound is on all of them.
    Overdue,
    /// Doubts that are to be woken.
    Doubts,
    /// What is open at a start.
    Recovery,
    /// An address of a vendor's deliveries, which tells the tenant.
    Address,
    /// Subscriptions that a replica takes in hand.
    Deliveries,
    /// What was written since the last checkpoints.
    Checkpoints,
    /// The journal as a whole, for verification.
    Verification,
    /// Which tenants there are, for pruning.
    Retention,
    /// The highest number of the feed.
    FeedOrigin,
    /// Migrations.
    Migration,
    /// The beginning of a restore.
    Restore,
    /// A look from outside.
    Inspection,
    /// What is sealed, under whichever key.
    Rotation,
    /// Whether anything can be written: a row of nobody, taken back.
    Health,
}

impl<'a> Tenants<'a> {
    /// Those of these keys.
    pub fn of(keys: impl IntoIterator<Item = &'a EffectKey>) -> Self {
        Self::These(keys.into_iter().map(|key| key.tenant.as_str()).collect())
    }

    /// The setting's text.
    fn text(&self) -> Cow<'static, str> {
        match self {
            Self::Nobody => Cow::Borrowed(NOBODY),
            Self::These(tenants) if tenants.is_empty() => Cow::Borrowed(NOBODY),
            Self::One(tenant) => Cow::Owned(format!("{tenant}\n")),
            Self::These(tenants) => Cow::Owned(tenants.iter().flat_map(|tenant| [*tenant, "\n"]).collect()),
            Self::All(purpose) => {
                tracing::trace!(?purpose, "rows of every tenant");
                Cow::Borrowed(EVERY)
            }
        }
    }
}

/// The connections of a store.
#[derive(Debug)]
pub(super) struct Wall {
    /// Those that commit, and nothing else.
    writers: Arc<Seats>,
    /// Reads and everything that is not hot.
    readers: Arc<Seats>,
    /// The one that listens, and reads no table. `None`: all that there is leads through a pooler that gives sessions
    /// away, and nothing is heard.
    listening: Option<PgPool>,
}

/// Where connections lead to, and how.
#[derive(Debug)]
pub(super) struct Ways {
    /// Those that work.
    pub(super) working: PgConnectOptions,
    /// The one that listens: a session of its own.
    pub(super) listening: Option<PgConnectOptions>,
    pub(super) manner: Manner,
}

impl Wall {
    /// Connections that are made as they are needed.
    pub(super) fn new(ways: &Ways, readers: u32, writers: u32) -> Self {
        let Ways { working, listening, manner } = ways;
        Self {
            writers: Arc::new(Seats::new(working, manner.clone(), writers)),
            // The one that listens is counted with them.
            readers: Arc::new(Seats::new(working, manner.clone(), readers.saturating_sub(1).max(1))),
            listening: listening.clone().map(|options| seats::pool(1).connect_lazy_with(options)),
        }
    }

    /// A wall of one connection, which is there already.
    pub(super) fn of(connection: PgConnection, ways: &Ways) -> Self {
        let wall = Self::new(ways, 1, 1);
        wall.readers.seat(connection);
        wall
    }

    /// A connection for one statement, which sees these tenants' rows.
    pub(super) async fn scope(&self, whose: Tenants<'_>) -> Result<Scoped> {
        self.readers.scope(&whose).await
    }

    /// A transaction that sees these tenants' rows.
    pub(super) async fn begin(&self, whose: Tenants<'_>) -> Result<ScopedTransaction> {
        self.readers.begin(&whose).await
    }

    /// A connection for one statement, which commits changes of these tenants.
    pub(super) async fn scope_writer(&self, whose: Tenants<'_>) -> Result<Scoped> {
        self.writers.scope(&whose).await
    }

    /// A transaction that commits changes of these tenants.
    pub(super) async fn begin_writer(&self, whose: Tenants<'_>) -> Result<ScopedTransaction> {
        self.writers.begin(&whose).await
    }

    /// Listens. No table is read there. `None`: there is no session to listen with.
    pub(super) async fn listener(&self) -> Result<Option<PgListener>> {
        let Some(listening) = &self.listening else { return Ok(None) };
        Ok(Some(PgListener::connect_with(listening).await?))
    }

    /// Closes the connections that there are; the writers alone where asked for.
    pub(super) fn forget(&self, writers_alone: bool) {
        self.writers.forget();
        if !writers_alone {
            self.readers.forget();
        }
    }

    pub(super) fn pools(&self) -> Vec<PoolUse> {
        let mut readers = self.readers.usage("readers");
        if let Some(listening) = self.listening.as_ref().map(|pool| PoolUse::of("readers", pool)) {
            readers.in_use = readers.in_use.saturating_add(listening.in_use);
            readers.idle = readers.idle.saturating_add(listening.idle);
            readers.limit = readers.limit.saturating_add(listening.limit);
        }
        vec![readers, self.writers.usage("writer")]
    }

    pub(super) async fn close(&self) {
        self.writers.close().await;
        if let Some(listening) = &self.listening {
            listening.close().await;
        }
        self.readers.close().await;
    }
}

/// Connections that are made so see no rows until they say whose. A pooler may drop it; what is asked for through
/// [`Wall`] is said anew on every connection.
pub(super) fn declared(options: PgConnectOptions) -> PgConnectOptions {
    options.options([(SETTING, NOBODY)])
}

/// A connection of its own, beside every pool, that sees every tenant's rows.
pub(super) async fn connect(options: PgConnectOptions, purpose: Purpose) -> Result<PgConnection> {
    let mut connection = declared(options).connect().await?;
    say(&mut connection, &Tenants::All(purpose).text()).await?;
    Ok(connection)
}

/// Sets a connection. Never inside a transaction: taken back, it would take the setting back with it.
async fn say(connection: &mut PgConnection, text: &str) -> Result<()> {
    sqlx::query(sql::SAY_TENANTS).bind(text).execute(connection).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_names_say_every_tenant_and_no_two_lists_are_the_same() {
        let tenant = |name: &str| Tenant::new(name).unwrap();
        let (every, ab, a, b) = (tenant("*"), tenant("a b"), tenant("a"), tenant("b"));
        let these = |tenants: &[&'static str]| Tenants::These(tenants.iter().copied().collect()).text();
        assert_eq!(Tenants::All(Purpose::Sweep).text(), "*");
        assert_eq!(Tenants::One(&every).text(), "*\n");
        assert_eq!(these(&["*"]), "*\n");
        assert_eq!(Tenants::Nobody.text(), "nobody");
        assert_eq!(these(&[]), "nobody");
        assert_eq!(Tenants::One(&tenant("nobody")).text(), "nobody\n");
        assert_eq!(Tenants::One(&ab).text(), "a b\n");
        assert_eq!(these(&["b", "a", "b"]), "a\nb\n");
        assert_ne!(Tenants::One(&a).text(), Tenants::One(&b).text());
        assert!(Tenant::new("a\nb").is_err(), "what ends a name is in none");
    }
}
