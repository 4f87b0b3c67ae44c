//! The feed of events and its subscribers (protocol §10).

mod bounds;
mod cost;
mod feed;
mod messages;
mod order;
mod streams;
mod subscriptions;

use std::time::Duration;

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};

use crate::support::api::segment;
use crate::support::{Api, Server};

/// Runs statements past the server, in its database.
pub(crate) async fn execute(server: &Server, sql: &str) {
    let sql = AssertSqlSafe(sql.to_owned());
    if let Some(url) = server.database_url() {
        let mut connection = PgConnection::connect(url).await.unwrap();
        sqlx::raw_sql(sql).execute(&mut connection).await.expect("the statement runs");
        connection.close().await.unwrap();
    } else {
        let url = format!("sqlite:{}", server.data_dir().join("actonce.db").display());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe("PRAGMA busy_timeout = 10000")).execute(&mut connection).await.unwrap();
        sqlx::raw_sql(sql).execute(&mut connection).await.expect("the statement runs");
        connection.close().await.unwrap();
    }
}

/// One text, past the server, from its database.
async fn text_of(server: &Server, sql: &str) -> String {
    let sql = AssertSqlSafe(sql.to_owned());
    if let Some(url) = server.database_url() {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let text = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        text
    } else {
        let url = format!("sqlite:{}", server.data_dir().join("actonce.db").display());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let text = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        text
    }
}

/// The page behind a cursor.
async fn page(api: &Api, query: &str, after: Option<&str>) -> (Vec<Value>, String) {
    let after = after.map_or_else(String::new, |cursor| format!("&after={}", segment(cursor)));
    let page = api.read(&format!("/api/events?{query}{after}")).await.expect(200);
    (page.json["items"].as_array().unwrap().clone(), page.str("/next_cursor").to_owned())
}

/// Everything behind a cursor, page by page.
async fn all(api: &Api, limit: u32) -> Vec<Value> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let (more, next) = page(api, &format!("limit={limit}"), after.as_deref()).await;
        if more.is_empty() {
            return items;
        }
        items.extend(more);
        after = Some(next);
    }
}

/// Everything, when the feed has come to what the journals of these operations hold: on Postgres a
/// transaction of another test holds it back too.
async fn complete(api: &Api, operations: &[&str]) -> Vec<Value> {
    let mut expected = 0;
    for operation in operations {
        expected += api.events(operation).await.len();
    }
    for _ in 0..600 {
        let events = all(api, 200).await;
        if events.len() >= expected {
            return events;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the feed stays behind");
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}
