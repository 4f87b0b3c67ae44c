//! Uses of a connection, and how each of them ends.
//!
//! Most are one statement. Such a use ([`Scoped`]) is given to its statement and comes back as the answer: it ends
//! itself, and no row is handed on before its end was answered. Several statements are a transaction
//! ([`ScopedTransaction`]), which somebody commits. There is no third way, so that no end can be forgotten.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgConnection, PgQueryResult, PgRow, PgStatement, PgTypeInfo, Postgres};
use sqlx::{Either, Execute, Executor, SqlStr};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

use super::seats::{Seat, Seats};
use crate::store::Result;

/// In which state a connection is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Everything was answered.
    Known,
    /// Something may be under way.
    Unknown,
    /// And it is in a transaction.
    InTransaction,
}

/// A connection that somebody has, and takes statements.
#[derive(Debug)]
pub struct Held {
    /// There until it is dropped.
    seat: Option<Seat>,
    place: Option<OwnedSemaphorePermit>,
    seats: Arc<Seats>,
    rest: Rest,
    since: Instant,
}

impl Held {
    pub(super) fn new(seat: Seat, place: OwnedSemaphorePermit, seats: Arc<Seats>) -> Self {
        Self { seat: Some(seat), place: Some(place), seats, rest: Rest::Unknown, since: Instant::now() }
    }

    #[expect(clippy::expect_used, reason = "the seat leaves in `drop` alone")]
    pub(super) fn seat(&mut self) -> &mut Seat {
        self.seat.as_mut().expect("a seat")
    }

    pub(super) fn is_in(&mut self, rest: Rest) {
        self.rest = rest;
    }

    /// Whether what is prepared is still there for the next use. Behind a pooler it is somebody else's by then.
    fn keeps_statements(&self) -> bool {
        !self.seats.manner().is_of_transactions()
    }

    fn connection(&mut self) -> &mut PgConnection {
        &mut self.seat().connection
    }

    /// Gives the connection back at once: the whole answer of all that it was sent was seen.
    fn give_back(mut self) {
        self.rest = Rest::Known;
    }

    /// Ends a use of one statement whose whole answer was seen. Behind a pooler it was a transaction, and nothing of it
    /// counts before that was committed; otherwise there is nothing to wait for.
    async fn done(mut self) -> sqlx::Result<()> {
        let manner = self.seats.manner();
        if manner.is_of_transactions() {
            let commit = manner.commit();
            sqlx::raw_sql(commit).execute(&mut self).await?;
        }
        self.give_back();
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(mut seat) = self.seat.take() else { return };
        seat.has_worked(self.since.elapsed());
        let (seats, place, rest) = (Arc::clone(&self.seats), self.place.take(), self.rest);
        if rest == Rest::Known {
            // Before the place is free: whoever gets it finds the connection.
            seats.give_back(seat);
            drop(place);
        } else if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                if seat.settle(rest == Rest::InTransaction).await {
                    seats.give_back(seat);
                } else {
                    // Whatever ended it has likely ended the others.
                    seats.forget();
                }
                drop(place);
            });
        }
    }
}

/// A statement as it is sent. One that is not to be kept has to say so itself: without a cache the driver would still
/// prepare it under a name, and leave it there.
struct Sent<E> {
    query: E,
    named: bool,
}

impl<'q, E: Execute<'q, Postgres>> Execute<'q, Postgres> for Sent<E> {
    fn sql(self) -> SqlStr {
        self.query.sql()
    }

    fn statement(&self) -> Option<&PgStatement> {
        self.query.statement()
    }

    fn take_arguments(&mut self) -> std::result::Result<Option<PgArguments>, BoxDynError> {
        self.query.take_arguments()
    }

    fn persistent(&self) -> bool {
        self.named && self.query.persistent()
    }
}

/// Rows, and the counts between them.
type Step = Either<PgQueryResult, PgRow>;

impl<'c> Executor<'c> for &'c mut Held {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, sqlx::Result<Step>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let named = self.keeps_statements();
        self.connection().fetch_many(Sent { query, named })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Option<PgRow>>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let named = self.keeps_statements();
        self.connection().fetch_optional(Sent { query, named })
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, sqlx::Result<PgStatement>>
    where
        'c: 'e,
    {
        self.connection().prepare_with(sql, parameters)
    }
}

/// One use of a connection that sees the rows of those whom it was asked for: one statement.
#[derive(Debug)]
pub struct Scoped {
    held: Held,
}

impl Scoped {
    pub(super) fn new(held: Held) -> Self {
        Self { held }
    }
}

impl Executor<'static> for Scoped {
    type Database = Postgres;

    fn execute<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<PgQueryResult>>
    where
        'static: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let mut held = self.held;
        Box::pin(async move {
            let done = held.execute(query).await?;
            held.done().await?;
            Ok(done)
        })
    }

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, sqlx::Result<Step>>
    where
        'static: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let mut held = self.held;
        let whole = async move {
            let steps: Vec<Step> = held.fetch_many(query).try_collect().await?;
            held.done().await?;
            Ok::<_, sqlx::Error>(stream::iter(steps.into_iter().map(Ok)))
        };
        stream::once(whole).try_flatten().boxed()
    }

    fn fetch_all<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Vec<PgRow>>>
    where
        'static: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let mut held = self.held;
        Box::pin(async move {
            let rows = held.fetch_all(query).await?;
            held.done().await?;
            Ok(rows)
        })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Option<PgRow>>>
    where
        'static: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let mut held = self.held;
        Box::pin(async move {
            let row = held.fetch_optional(query).await?;
            held.done().await?;
            Ok(row)
        })
    }

    fn prepare_with<'e>(self, _: SqlStr, _: &'e [PgTypeInfo]) -> BoxFuture<'e, sqlx::Result<PgStatement>>
    where
        'static: 'e,
    {
        Box::pin(async { Err(sqlx::Error::Protocol("statements are prepared as they are run".to_owned())) })
    }
}

/// A transaction that sees the rows of those whom it was asked for. Rolled back when dropped.
#[derive(Debug)]
pub struct ScopedTransaction {
    held: Held,
}

impl ScopedTransaction {
    pub(super) fn new(held: Held) -> Self {
        Self { held }
    }

    /// Commits.
    ///
    /// # Errors
    /// Nothing was committed, or nobody knows: the connection broke, or the transaction had failed before.
    pub async fn commit(self) -> Result<()> {
        let commit = self.held.seats.manner().commit();
        self.end(commit).await
    }

    /// Takes all of it back.
    ///
    /// # Errors
    /// The connection broke; the server takes it back then.
    pub async fn rollback(self) -> Result<()> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, how: &'static str) -> Result<()> {
        sqlx::raw_sql(how).execute(&mut self.held).await?;
        self.held.give_back();
        Ok(())
    }
}

impl Deref for ScopedTransaction {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl DerefMut for ScopedTransaction {
    fn deref_mut(&mut self) -> &mut Held {
        &mut self.held
    }
}
