use serde_json::json;

use super::*;

fn scope_with(body: &Value, budget: Budget) -> Scope {
    let headers = BTreeMap::from([("etag".to_owned(), "\"e\"".to_owned())]);
    let effect = json!({ "operation_id": "op", "run_id": null });
    Scope::new((200, &headers, body), (&effect, &Value::Null), Arc::new(budget)).unwrap()
}

fn holds(text: &str, body: &Value) -> Result<bool, EvaluationFault> {
    scope_with(body, Budget::default()).holds(&Expression::parse(text, true).unwrap())
}

#[test]
fn conditions_look_at_the_answer() {
    let body = json!({ "data": [{ "id": 7, "big": 18_446_744_073_709_551_615_u64, "op": "op", "ok": true, "n": null, "x": 1.5 }] });
    for (text, expected) in [
        ("status == 200 && headers.etag == '\"e\"'", true),
        ("'etag' in headers && !('x' in headers)", true),
        ("size(body.data) == 1 && body.data.size() == 1", true),
        ("body.data.exists_one(d, d.op == effect.operation_id)", true),
        ("body.data.all(d, d.id == 7) && body.data.exists(d, d.n == null)", true),
        ("body.data.filter(d, d.ok)[0].id == 7", true),
        ("has(body.data) && !has(body.other)", true),
        ("body.data[0].big == 18446744073709551615u", true),
        ("body.data[0].op.startsWith('o') && body.data[0].op.endsWith('p') && body.data[0].op.contains('op')", true),
        ("string(body.data[0].id) + 'x' == '7x' && body.data[0].x < 2.0", true),
        ("receipt == null", true),
        ("body.data.exists(d, d.op == 'other')", false),
        ("status in [404, 410]", false),
        ("status == 200 ? false : true", false),
    ] {
        assert_eq!(holds(text, &body), Ok(expected), "{text}");
    }
}

#[test]
fn what_fails_or_is_no_boolean_is_no_answer() {
    let body = json!({ "a": 1, "list": [1, 2] });
    for text in [
        "body.b == 1",
        "body.a",
        "body.list[2] == 1",
        "1 / 0 == 1",
        "body.a.contains('x')",
        "'x' < 1",
        "body.list.all(x, x.y == 1)",
        "body.a == 2 || body.list",
        "9223372036854775807 + 1 == 0",
        "int('x') == 1",
    ] {
        assert_eq!(holds(text, &body), Err(EvaluationFault::Failed), "{text}");
    }
}

#[test]
fn only_what_is_offered_is_taken() {
    for text in [
        "",
        "status ==",
        "other == 1",
        "status == 1 &&",
        "effect.arguments == 1",
        "effect.secret == ''",
        "now()",
        "body.matches('(a+)+')",
        "timestamp('x') == 1",
        "body.map(x, x)",
        "body.map(x, true, x.a)",
        "type(status) == int",
        "body.?a == 1",
        "[?body]",
        "optional.of(1).hasValue()",
        "body.filter(status, true)",
        "@turn()",
        "X{a: 1}.a == 1",
        "size()",
        "contains('a', 'b')",
        "status == 1 status",
        "int == 1",
        "body.exists(x, y == 1)",
        "(status == 1",
        "'unfinished",
        "b'x' == dyn(1)",
    ] {
        assert!(Expression::parse(text, true).is_err(), "{text}");
    }
    assert!(Expression::parse("receipt.receipt_id == ''", false).is_err());
    let fits = format!("'{}' == ''", "x".repeat(limits::EXPRESSION_BYTES - 8));
    assert!(Expression::parse(&fits, false).is_ok());
    assert!(Expression::parse(&format!("{fits} "), false).is_err());
}

/// Of each way to nest, the deepest that is taken runs on a thread with a small stack, in a build
/// without optimization, and the rest is refused on it.
#[test]
fn no_nesting_takes_the_process_down() {
    let work = || {
        let mut taken = 0;
        for depth in 1..=limits::EXPRESSION_BYTES {
            for (open, inner, close) in [
                ("(", "true", ")"),
                ("[", "1", "]"),
                ("!", "true", ""),
                ("-", "1", ""),
                ("true?true:", "true", ""),
                ("1+", "1", ""),
                ("", "body", ".a"),
                ("", "body", "[0]"),
                ("", "true", "&&true"),
                ("string(", "1", ")"),
                ("{1:", "1", "}"),
                ("[1].exists(x,", "true", ")"),
                ("!(", "true", ")"),
                ("", "true", "==true"),
                ("true?", "true", ":true"),
                ("", "''", ".size()"),
                ("-(", "1", ")"),
                ("[[1]].filter(x,", "true", ").size()==1"),
                ("1-(", "1", ")"),
            ] {
                let text = format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
                if text.len() > limits::EXPRESSION_BYTES {
                    continue;
                }
                if let Ok(expression) = Expression::parse(&text, true) {
                    taken += 1;
                    drop(scope_with(&Value::Null, Budget::default()).value(&expression));
                }
            }
        }
        assert!(taken > 200, "{taken}");
    };
    std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(work).unwrap().join().unwrap();
}

#[test]
fn loops_end() {
    let body = json!({ "list": vec![0; 3_000] });
    for text in [
        "body.list.all(a, body.list.all(b, a == b))",
        "body.list.exists(a, body.list.exists(b, a != b))",
        "body.list.filter(a, body.list.filter(b, true).size() > 0).size() > 0",
        "body.list.exists_one(a, body.list.exists_one(b, a != b))",
        // Nothing swallows the end of the budget.
        "body.list.exists(a, body.list.all(b, body.list.all(c, true))) || true",
        "body.list.all(a, body.list.all(b, true)) ? true : true",
        "!(body.list.all(a, body.list.all(b, true)) && false)",
    ] {
        assert_eq!(holds(text, &body), Err(EvaluationFault::TooLong), "{text}");
    }
    assert_eq!(holds("body.list.all(a, a == 0) && body.list.filter(a, a == 0).size() == 3000", &body), Ok(true));
}

#[test]
fn the_budget_is_for_all_expressions_of_an_answer_and_stops_when_nobody_waits() {
    let scope = scope_with(&json!([1, 2, 3]), Budget::of(5));
    let all = Expression::parse("body.all(x, x > 0)", false).unwrap();
    assert_eq!(scope.holds(&all), Ok(true));
    assert_eq!(scope.holds(&all), Err(EvaluationFault::TooLong));
    assert_eq!(scope.holds(&Expression::parse("true", false).unwrap()), Err(EvaluationFault::TooLong));
    let scope = scope_with(&json!([1]), Budget::default());
    scope.budget.stop();
    assert_eq!(scope.holds(&all), Err(EvaluationFault::TooLong));
}

#[test]
fn numbers_are_exact_or_refused() {
    let make = |text: &str| {
        let body: Value = serde_json::from_str(text).unwrap();
        Scope::new((200, &BTreeMap::new(), &body), (&Value::Null, &Value::Null), Arc::default()).map(drop)
    };
    for exact in ["1.5", "-9223372036854775808", "18446744073709551615", "1e3"] {
        assert_eq!(make(exact), Ok(()), "{exact}");
    }
    for inexact in ["18446744073709551616", "123456789012345678901234567890", "1e300", "-9223372036854775809"] {
        assert_eq!(make(inexact), Err(EvaluationFault::Inexact), "{inexact}");
    }
}

#[test]
fn values_become_json_again() {
    let body = json!({ "a": [1, -2, 1.5, "x", null, true, { "b": [] }], "n": 18_446_744_073_709_551_615_u64 });
    let scope = scope_with(&body, Budget::default());
    let value = |text: &str| scope.value(&Expression::parse(text, false).unwrap());
    assert_eq!(value("body"), Ok(body.clone()));
    assert_eq!(value("{'x': body.a, 'y': [status]}"), Ok(json!({ "x": body["a"], "y": [200] })));
    for no_json in ["0.0 / 0.0", "{1: 2}", "b'x'"] {
        assert_eq!(value(no_json), Err(EvaluationFault::Failed), "{no_json}");
    }
}
