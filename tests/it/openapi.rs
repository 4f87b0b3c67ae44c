//! The checked-in description of the API is the one that the program prints and serves.

use serde_json::Value;

use crate::support::server::program;
use crate::support::{StoreUnderTest, both_stores, contract};

both_stores!(what_is_served_is_what_is_checked_in);

#[test]
fn what_is_printed_is_what_is_checked_in() {
    let output = program().arg("openapi").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let checked_in = include_str!("../../openapi/actonce.json");
    if printed != checked_in {
        let lines = printed.lines().zip(checked_in.lines()).enumerate();
        let (number, (now, then)) =
            lines.into_iter().find(|(_, (now, then))| now != then).unwrap_or((0, ("(more lines)", "(fewer lines)")));
        panic!(
            "openapi/actonce.json is not what the program prints; write it anew with:\n\n  \
             cargo run -- openapi > openapi/actonce.json\n\nline {}:\n  printed:    {now}\n  checked in: {then}\n",
            number + 1
        );
    }
}

#[test]
fn every_reference_resolves() {
    fn walk(value: &Value, found: &mut usize) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let pointer = reference.strip_prefix('#').expect("a reference within the document");
                    assert!(contract::DOCUMENT.pointer(pointer).is_some(), "{reference} leads nowhere");
                    *found += 1;
                }
                members.values().for_each(|value| walk(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let mut found = 0;
    walk(&contract::DOCUMENT, &mut found);
    assert!(found > 50, "{found}");
}

async fn what_is_served_is_what_is_checked_in(store: StoreUnderTest) {
    let served = store.tenant().with_token(None).read("/api/openapi.json").await.expect(200);
    assert_eq!(&served.json, &*contract::DOCUMENT);
    assert_eq!(served.at("/openapi"), "3.1.0");
}
