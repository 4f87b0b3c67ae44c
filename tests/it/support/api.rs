//! A client of the API. Answers are kept whole, so that a failed check can show everything.

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;

use super::contract;
use super::server::Server;

/// What may stand unescaped in a path segment.
const SEGMENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A name as a path segment.
pub(crate) fn segment(name: &str) -> String {
    utf8_percent_encode(name, &SEGMENT).to_string()
}

/// A client with a token.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    client: Client,
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    /// The tenant of the token, where this client was made for one.
    pub(crate) tenant: String,
}

impl Api {
    /// A client of a tenant with all scopes, subject `tester`.
    pub(crate) fn of(server: &Server, tenant: &str) -> Self {
        Self::new(&server.url(), tenant, Some(server.token(tenant, "tester", "all")))
    }

    /// A client by its parts.
    pub(crate) fn new(url: &str, tenant: &str, token: Option<String>) -> Self {
        // A client belongs to the runtime of its test, so each has its own.
        let client = Client::builder().timeout(Duration::from_secs(90)).no_proxy().build().unwrap();
        Self { client, url: url.to_owned(), token, tenant: tenant.to_owned() }
    }

    /// The same client with another token, or none.
    pub(crate) fn with_token(&self, token: Option<String>) -> Self {
        Self { token, ..self.clone() }
    }

    /// The same client of another server, or of the same one after its restart.
    pub(crate) fn at(&self, server: &Server) -> Self {
        Self { url: server.url(), ..self.clone() }
    }

    /// A request, to be completed.
    pub(crate) fn call(&self, method: &str, path: &str) -> Call {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let name = format!("{method} {path}");
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        Call { request, name, method, path: path.to_owned() }
    }

    pub(crate) async fn read(&self, path: &str) -> Answer {
        self.call("GET", path).send().await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path).json(body).send().await
    }

    pub(crate) async fn put_tool(&self, name: &str, spec: &Value) -> Answer {
        self.call("PUT", &format!("/api/tools/{}", segment(name))).json(spec).send().await
    }

    pub(crate) async fn tool(&self, name: &str) -> Answer {
        self.read(&format!("/api/tools/{}", segment(name))).await
    }

    pub(crate) async fn delete_tool(&self, name: &str) -> Answer {
        self.call("DELETE", &format!("/api/tools/{}", segment(name))).send().await
    }

    pub(crate) async fn pause(&self, name: &str) -> Answer {
        self.call("POST", &format!("/api/tools/{}/pause", segment(name))).send().await
    }

    pub(crate) async fn resume(&self, name: &str) -> Answer {
        self.call("POST", &format!("/api/tools/{}/resume", segment(name))).send().await
    }

    pub(crate) async fn intent(&self, body: &Value) -> Answer {
        self.post("/api/intents", body).await
    }

    /// A POST below an effect, such as `outcome`.
    pub(crate) async fn act(&self, operation_id: &str, verb: &str, body: &Value) -> Answer {
        self.post(&format!("/api/effects/{}/{verb}", segment(operation_id)), body).await
    }

    pub(crate) async fn dispatch(&self, operation_id: &str, claim: &Value) -> Answer {
        self.act(operation_id, "dispatch", claim).await
    }

    pub(crate) async fn heartbeat(&self, operation_id: &str, body: &Value) -> Answer {
        self.act(operation_id, "heartbeat", body).await
    }

    pub(crate) async fn outcome(&self, operation_id: &str, body: &Value) -> Answer {
        self.act(operation_id, "outcome", body).await
    }

    pub(crate) async fn verify(&self, operation_id: &str, body: &Value) -> Answer {
        self.act(operation_id, "verification", body).await
    }

    pub(crate) async fn authorize(&self, operation_id: &str, revision: u64, body: &Value) -> Answer {
        self.call("POST", &format!("/api/effects/{}/authorization", segment(operation_id)))
            .header("if-match", &format!("\"{revision}\""))
            .json(body)
            .send()
            .await
    }

    pub(crate) async fn resolve(&self, operation_id: &str, revision: u64, body: &Value) -> Answer {
        self.call("POST", &format!("/api/effects/{}/resolution", segment(operation_id)))
            .header("if-match", &format!("\"{revision}\""))
            .json(body)
            .send()
            .await
    }

    pub(crate) async fn cancel(&self, operation_id: &str) -> Answer {
        self.call("POST", &format!("/api/effects/{}/cancel", segment(operation_id))).send().await
    }

    pub(crate) async fn get(&self, operation_id: &str) -> Answer {
        self.read(&format!("/api/effects/{}", segment(operation_id))).await
    }

    /// Effects by a query such as `state=completed&limit=2`.
    pub(crate) async fn list(&self, query: &str) -> Answer {
        self.read(&format!("/api/effects?{query}")).await
    }

    pub(crate) async fn run(&self, run_id: &str) -> Answer {
        self.read(&format!("/api/runs/{}", segment(run_id))).await
    }

    /// All entries of a journal, page by page.
    pub(crate) async fn journal(&self, operation_id: &str) -> Vec<Value> {
        self.pages(&format!("/api/effects/{}/journal?limit=200", segment(operation_id))).await
    }

    /// The items of all pages of a list. `path` has a query already.
    pub(crate) async fn pages(&self, path: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut next = path.to_owned();
        loop {
            let page = self.read(&next).await.expect(200);
            items.extend(page.json["items"].as_array().expect("items").iter().cloned());
            match &page.json["next_cursor"] {
                Value::Null => return items,
                cursor => next = format!("{path}&cursor={}", segment(cursor.as_str().expect("a cursor"))),
            }
        }
    }

    /// The names of all events of an effect, in order.
    pub(crate) async fn events(&self, operation_id: &str) -> Vec<String> {
        let entries = self.journal(operation_id).await;
        let events = entries.iter().flat_map(|entry| entry["events"].as_array().expect("events").clone());
        events.map(|event| event["type"].as_str().expect("a name").to_owned()).collect()
    }
}

/// A request.
#[derive(Debug)]
pub(crate) struct Call {
    request: reqwest::RequestBuilder,
    name: String,
    method: Method,
    path: String,
}

impl Call {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    /// A JSON body.
    pub(crate) fn json(self, body: &Value) -> Self {
        self.text(&body.to_string())
    }

    /// A body that says it is JSON, byte by byte as given.
    pub(crate) fn text(mut self, body: &str) -> Self {
        self.request = self.request.header(CONTENT_TYPE, "application/json").body(body.to_owned());
        self
    }

    /// A body without a content type.
    pub(crate) fn bytes(mut self, body: &[u8]) -> Self {
        self.request = self.request.body(body.to_vec());
        self
    }

    pub(crate) async fn send(self) -> Answer {
        let name = self.name.clone();
        self.try_send().await.unwrap_or_else(|error| panic!("{name}: no answer: {error:?}"))
    }

    /// Sends it; the error is the transport's.
    pub(crate) async fn try_send(self) -> Result<Answer, reqwest::Error> {
        let (method, path) = (self.method.clone(), self.path.clone());
        let answer = self.send_to_a_fault().await?;
        contract::check(method.as_str(), &path, &answer);
        Ok(answer)
    }

    /// Sends it where a fault of the service is arranged, which the description does not know.
    pub(crate) async fn send_to_a_fault(self) -> Result<Answer, reqwest::Error> {
        let response = self.request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await?;
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Answer { name: self.name, status, headers, text, json })
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// What was asked.
    pub(crate) name: String,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    /// `null` where the body is not JSON.
    pub(crate) json: Value,
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} answered {} {}", self.name, self.status.as_u16(), self.text)
    }
}

impl Answer {
    /// The same answer, if it has this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self}");
        self
    }

    /// The same answer, if it is this problem, in the form that every problem has.
    #[track_caller]
    pub(crate) fn problem(self, status: u16, slug: &str) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self}");
        assert_eq!(self.json["type"], format!("/docs/errors/{slug}"), "{self}");
        assert_eq!(self.json["status"], status, "{self}");
        for member in ["title", "detail"] {
            assert!(self.json[member].as_str().is_some_and(|text| !text.is_empty()), "no {member}: {self}");
        }
        self
    }

    /// The same answer, if its faults are exactly at these pointers, in any order.
    #[track_caller]
    pub(crate) fn faults_at(self, pointers: &[&str]) -> Self {
        let faults = self.json["faults"].as_array().cloned().unwrap_or_default();
        let mut found: Vec<&str> = faults.iter().filter_map(|fault| fault["pointer"].as_str()).collect();
        assert_eq!(found.len(), faults.len(), "a fault without pointer: {self}");
        assert!(faults.iter().all(|fault| fault["reason"].as_str().is_some_and(|text| !text.is_empty())), "{self}");
        let mut expected = pointers.to_vec();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{self}");
        self
    }

    /// The same answer, if it is an effect with this directive.
    #[track_caller]
    pub(crate) fn directive(self, directive: &str) -> Self {
        assert!(self.status.is_success(), "{self}");
        assert_eq!(self.json["directive"], directive, "{self}");
        self
    }

    /// The same answer, if it is an effect in this state.
    #[track_caller]
    pub(crate) fn state(self, state: &str) -> Self {
        assert!(self.status.is_success(), "{self}");
        assert_eq!(self.json["state"], state, "{self}");
        self
    }

    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header in ASCII"))
    }

    /// The revision in the body; the `ETag` must be the same.
    #[track_caller]
    pub(crate) fn revision(&self) -> u64 {
        let revision = self.json["revision"].as_u64().unwrap_or_else(|| panic!("no revision: {self}"));
        assert_eq!(self.header("etag"), Some(format!("\"{revision}\"").as_str()), "{self}");
        revision
    }

    /// The value at a JSON pointer.
    #[track_caller]
    pub(crate) fn at(&self, pointer: &str) -> &Value {
        self.json.pointer(pointer).unwrap_or_else(|| panic!("nothing at {pointer}: {self}"))
    }

    /// The text at a JSON pointer.
    #[track_caller]
    pub(crate) fn str(&self, pointer: &str) -> &str {
        self.at(pointer).as_str().unwrap_or_else(|| panic!("no text at {pointer}: {self}"))
    }

    /// The dispatch id and the fence.
    #[track_caller]
    pub(crate) fn dispatch(&self) -> (String, u64) {
        let fence = self.at("/dispatch/fence").as_u64().unwrap_or_else(|| panic!("no fence: {self}"));
        (self.str("/dispatch/dispatch_id").to_owned(), fence)
    }
}
