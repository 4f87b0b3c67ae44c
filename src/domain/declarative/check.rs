//! What a registration of a declarative adapter must keep: everything is read when it is registered,
//! so that nothing is found to be wrong when it is needed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::expression::Expression;
use super::template::{Template, UrlTemplate};
use super::{Consistency, DeclarativeSpec, Inquiry, ReadMethod, ReceiptRule, Rule};
use crate::domain::adapter::{Question, Verdict};
use crate::domain::fault::Fault;
use crate::domain::ids::Name;
use crate::limits;

/// Headers that belong to the connection, or that the service sets itself.
const FORBIDDEN_HEADERS: [&str; 16] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// Headers whose values are secret: whatever stands in a registration can be read again.
const SECRET_HEADERS: [&str; 5] = ["api-key", "authorization", "cookie", "x-api-key", "x-auth-token"];

impl DeclarativeSpec {
    /// Checks what the types can't say, pointers relative to the request.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Faults::default();
        if self.inquiries().next().is_none() {
            faults.add("", "must have a `validate`, a `lookup` or a `verify`");
        }
        for (question, name, inquiry) in self.inquiries() {
            faults.at(&format!("/{name}"), |faults| inquiry.check(question, faults));
        }
        faults.found
    }

    /// Whether a rule claims that an absence proves something: where it stands.
    pub(crate) fn authoritative_rules(&self) -> impl Iterator<Item = String> {
        self.inquiries().flat_map(|(_, name, inquiry)| {
            let rules = inquiry.rules.iter().enumerate();
            let claiming = rules.filter(|(_, rule)| rule.consistency == Consistency::Authoritative);
            claiming.map(move |(index, _)| format!("/{name}/rules/{index}/consistency"))
        })
    }
}

/// Faults, and where we are.
#[derive(Default)]
struct Faults {
    found: Vec<Fault>,
    place: String,
}

impl Faults {
    fn add(&mut self, pointer: &str, reason: &str) {
        self.found.push(Fault::new(&format!("{}{pointer}", self.place), reason));
    }

    fn check(&mut self, ok: bool, pointer: &str, reason: &str) {
        if !ok {
            self.add(pointer, reason);
        }
    }

    fn at(&mut self, step: &str, check: impl FnOnce(&mut Self)) {
        let before = self.place.len();
        self.place.push_str(step);
        check(self);
        self.place.truncate(before);
    }
}

fn step(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

impl Inquiry {
    fn check(&self, question: Question, faults: &mut Faults) {
        let receipt = question != Question::Lookup;
        let mut template = |found: Result<bool, &'static str>, pointer: &str| match found {
            Ok(needs_receipt) => {
                faults.check(receipt || !needs_receipt, pointer, "names a receipt, and a lookup has none");
            }
            Err(reason) => faults.add(pointer, reason),
        };
        template(UrlTemplate::parse(&self.url).map(|url| url.needs_receipt()), "/url");
        for (name, value) in &self.headers {
            template(Template::in_header(value).map(|value| value.needs_receipt()), &format!("/headers{}", step(name)));
        }
        if let Some(body) = &self.body {
            body_texts(body, &mut String::from("/body"), &mut |text, pointer| {
                template(Template::in_body(text).map(|text| text.needs_receipt()), pointer);
            });
        }
        self.check_sizes(faults);
        for (index, rule) in self.rules.iter().enumerate().take(limits::RULES) {
            faults.at(&format!("/rules/{index}"), |faults| rule.check(question, faults));
        }
    }

    fn check_sizes(&self, faults: &mut Faults) {
        faults.check(self.url.len() <= limits::URL_BYTES, "/url", "must be at most 2048 bytes");
        faults.check(self.headers.len() <= limits::TEMPLATE_HEADERS, "/headers", "must have at most 32 entries");
        let mut seen = BTreeSet::new();
        for (name, value) in &self.headers {
            let pointer = format!("/headers{}", step(name));
            let lower = name.to_ascii_lowercase();
            let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            faults.check(
                !name.is_empty() && name.len() <= 128 && name.bytes().all(is_token),
                &pointer,
                "is not the name of a header",
            );
            faults.check(
                !FORBIDDEN_HEADERS.contains(&lower.as_str()),
                &pointer,
                "is not a header that a template may set",
            );
            let shows = SECRET_HEADERS.contains(&lower.as_str()) && !value.contains("{{secret.");
            faults.check(!shows, &pointer, "must take its value from a `{{secret.NAME}}`");
            faults.check(value.len() <= limits::HEADER_BYTES, &pointer, "must be at most 4096 bytes");
            faults.check(seen.insert(lower), &pointer, "stands there twice");
        }
        if let Some(body) = &self.body {
            faults.check(self.method == ReadMethod::Post, "/body", "needs the method POST");
            let size = serde_json::to_string(body).map_or(usize::MAX, |text| text.len());
            faults.check(size <= limits::TEMPLATE_BODY_BYTES, "/body", "must be at most 65536 bytes");
        }
        faults.check(!self.rules.is_empty(), "/rules", "must have at least one rule");
        faults.check(self.rules.len() <= limits::RULES, "/rules", "must have at most 32 rules");
    }
}

/// Calls with each text of a body and its pointer. A placeholder in a member's name stays as it is, so
/// it is pointed at like an unknown one.
fn body_texts(value: &Value, pointer: &mut String, each: &mut impl FnMut(&str, &str)) {
    let before = pointer.len();
    match value {
        Value::String(text) => each(text, pointer),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pointer.push('/');
                pointer.push_str(&index.to_string());
                body_texts(item, pointer, each);
                pointer.truncate(before);
            }
        }
        Value::Object(members) => {
            for (name, item) in members {
                pointer.push_str(&step(name));
                if name.contains("{{") {
                    each("{{}}", pointer);
                }
                body_texts(item, pointer, each);
                pointer.truncate(before);
            }
        }
        _ => {}
    }
}

impl Rule {
    fn check(&self, question: Question, faults: &mut Faults) {
        let receipt = question != Question::Lookup;
        let settles = matches!(self.verdict, Verdict::Completed | Verdict::Failed);
        let absent = matches!(self.verdict, Verdict::NotFound | Verdict::NotSent);
        let only_absent = "counts for `not_found` and `not_sent` alone";
        faults.check(absent || self.consistency == Consistency::Eventual, "/consistency", only_absent);
        faults.check(absent || !self.is_final, "/final", only_absent);
        expression(&self.when, receipt, "/when", faults);
        match &self.binds {
            Some(_) if !settles => faults.add("/binds", "counts for `completed` and `failed` alone"),
            None if settles => faults.add("/binds", "is required: what proves that the answer is about this effect?"),
            Some(binds) => {
                if let Some(binds) = expression(binds, receipt, "/binds", faults) {
                    let compares = binds.mentions("effect") && (binds.mentions("body") || binds.mentions("headers"));
                    faults.check(compares, "/binds", "must compare the `body` or the `headers` with the `effect`");
                }
            }
            None => {}
        }
        match &self.verified {
            Some(_) if self.verdict != Verdict::Completed => faults.add("/verified", "counts for `completed` alone"),
            None if question == Question::Verify && self.verdict == Verdict::Completed => {
                faults.add("/verified", "is required: what confirms the receipt?");
            }
            Some(verified) => drop(expression(verified, receipt, "/verified", faults)),
            None => {}
        }
        match &self.receipt {
            Some(_) if question != Question::Lookup || !settles => {
                faults.add("/receipt", "is made by a lookup that finds `completed` or `failed` alone");
            }
            None if question == Question::Lookup && settles => faults.add("/receipt", "is required"),
            Some(receipt) => faults.at("/receipt", |faults| receipt.check(faults)),
            None => {}
        }
    }
}

impl ReceiptRule {
    fn check(&self, faults: &mut Faults) {
        expression(&self.receipt_id, false, "/receipt_id", faults);
        if let Some(message) = &self.message {
            expression(message, false, "/message", faults);
        }
        for (map, max, pointer) in [
            (&self.structured, limits::STRUCTURED_FIELDS, "/structured"),
            (&self.resource_versions, limits::RESOURCE_VERSIONS, "/resource_versions"),
            (&self.integrity, limits::INTEGRITY_ENTRIES, "/integrity"),
        ] {
            faults.check(map.len() <= max, pointer, &format!("must have at most {max} entries"));
            fields(map, pointer, faults);
        }
    }
}

fn fields(map: &BTreeMap<String, String>, pointer: &str, faults: &mut Faults) {
    for (name, text) in map {
        let pointer = format!("{pointer}{}", step(name));
        faults.check(Name::new(name).is_ok(), &pointer, "must be a name of 1 to 256 bytes");
        expression(text, false, &pointer, faults);
    }
}

fn expression(text: &str, receipt: bool, pointer: &str, faults: &mut Faults) -> Option<Expression> {
    match Expression::parse(text, receipt) {
        Ok(expression) => Some(expression),
        Err(reason) => {
            faults.add(pointer, &reason);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(spec: &Value) -> Vec<String> {
        let spec: DeclarativeSpec = serde_json::from_value(spec.clone()).unwrap();
        let mut at: Vec<String> = spec.faults().into_iter().map(|fault| fault.pointer).collect();
        at.sort();
        at
    }

    fn lookup() -> Value {
        json!({ "lookup": {
            "url": "https://api.example.org/things?op={{operation_id}}",
            "headers": { "authorization": "Bearer {{secret.key}}" },
            "rules": [
                { "when": "size(body.items) == 0", "verdict": "not_found", "consistency": "authoritative", "final": true },
                { "when": "size(body.items) == 1", "verdict": "completed", "binds": "body.items[0].op == effect.operation_id",
                  "verified": "body.items[0].done", "receipt": { "receipt_id": "body.items[0].id" } },
            ],
        } })
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut spec = lookup();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[name] = value;
        spec
    }

    #[test]
    fn a_good_one_has_no_faults_and_comes_back_as_sent() {
        assert_eq!(at(&lookup()), Vec::<String>::new());
        let spec: DeclarativeSpec = serde_json::from_value(lookup()).unwrap();
        let mut sent = lookup();
        sent["lookup"]["method"] = json!("GET");
        assert_eq!(serde_json::to_value(&spec).unwrap(), sent);
        assert_eq!(at(&json!({})), [""]);
    }

    #[test]
    fn each_fault_is_pointed_at() {
        let rule = "/lookup/rules/1";
        for (pointer, value) in [
            ("/lookup/url", json!("https://api.example.org/{{nonsense}}")),
            ("/lookup/url", json!("https://api.example.org/{{secret.key}}")),
            ("/lookup/url", json!("https://api.example.org/{{receipt.receipt_id}}")),
            ("/lookup/url", json!(format!("https://api.example.org/{}", "x".repeat(2_048)))),
            ("/lookup/headers/host", json!("example.org")),
            ("/lookup/headers/Content-Length", json!("1")),
            ("/lookup/headers/transfer-encoding", json!("chunked")),
            ("/lookup/headers/x y", json!("1")),
            ("/lookup/headers/x", json!("a\r\nb: c")),
            ("/lookup/headers/x", json!("{{target|path}}")),
            ("/lookup/headers/Authorization", json!("{{secret.key}}")),
            ("/lookup/headers/authorization", json!("Bearer sk_live_1")),
            ("/lookup/body", json!({})),
            ("/lookup/rules", json!([])),
            ("/lookup/rules/0/when", json!("body.")),
            ("/lookup/rules/0/when", json!("x == 1")),
            ("/lookup/rules/0/binds", json!("body.op == effect.operation_id")),
            ("/lookup/rules/1/binds", json!("true")),
            ("/lookup/rules/1/binds", json!("effect.target != ''")),
            ("/lookup/rules/1/binds", json!(null)),
            ("/lookup/rules/1/consistency", json!("authoritative")),
            ("/lookup/rules/1/final", json!(true)),
            ("/lookup/rules/1/receipt", json!(null)),
            ("/lookup/rules/1/verified", json!("maybe")),
        ] {
            let expected = if pointer.ends_with("/Authorization") { "/lookup/headers/authorization" } else { pointer };
            assert_eq!(at(&with(pointer, value)), [expected], "{pointer}");
        }
        let receipt = format!("{rule}/receipt");
        for (member, name) in [("structured", "a/b"), ("resource_versions", "v"), ("integrity", "i")] {
            let found = at(&with(&format!("{receipt}/{member}"), json!({ name: "receipt.x" })));
            assert_eq!(found, [format!("{receipt}/{member}{}", step(name))]);
        }
        assert_eq!(at(&with(&format!("{receipt}/message"), json!("1 +"))), [format!("{receipt}/message")]);
        let many: Vec<Value> = (0..33).map(|_| json!({ "when": "true", "verdict": "pending" })).collect();
        assert_eq!(at(&with("/lookup/rules", json!(many))), ["/lookup/rules"]);
    }

    #[test]
    fn bodies_are_looked_through() {
        let mut spec = lookup();
        spec["lookup"]["method"] = json!("POST");
        spec["lookup"]["body"] =
            json!({ "a": ["{{target}}", 1, "{{x}}"], "b": { "c": "{{secret.k}}" }, "{{target}}": 1 });
        assert_eq!(at(&spec), ["/lookup/body/a/2", "/lookup/body/b/c", "/lookup/body/{{target}}"]);
        spec["lookup"]["body"] = json!("x".repeat(limits::TEMPLATE_BODY_BYTES));
        assert_eq!(at(&spec), ["/lookup/body"]);
    }

    #[test]
    fn verifications_say_what_confirms_and_make_no_receipt() {
        let binds = "body.op == effect.operation_id && body.id == receipt.receipt_id";
        let rule = json!({ "when": "true", "verdict": "completed", "binds": binds, "verified": "body.done" });
        let spec = |rule: &Value| json!({ "verify": { "url": "https://a/{{receipt.receipt_id}}", "rules": [rule] } });
        assert_eq!(at(&spec(&rule)), Vec::<String>::new());
        let mut without = rule.clone();
        without["verified"] = Value::Null;
        assert_eq!(at(&spec(&without)), ["/verify/rules/0/verified"]);
        let mut making = rule.clone();
        making["receipt"] = json!({ "receipt_id": "body.id" });
        assert_eq!(at(&spec(&making)), ["/verify/rules/0/receipt"]);
    }
}
