//! Tokens: what is refused, and that a refusal says nothing of what was sent.

use actonce::config::AuthArgs;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::http::external;
use crate::support::{Api, Options, Server, StoreUnderTest, both_stores, time, unique};

both_stores!(bad_tokens_are_refused, good_tokens_of_all_kinds_are_taken, a_token_ends_while_the_service_runs);

fn key_of(server: &Server) -> Vec<u8> {
    let text = std::fs::read_to_string(server.data_dir().join("dev-signing-key")).unwrap();
    hex::decode(text.trim()).unwrap()
}

fn claims(tenant: &str) -> Value {
    json!({
        "iss": "actonce-dev", "aud": "actonce-dev", "sub": "tester", "tenant": tenant,
        "scope": "effects:read", "exp": time::unix_seconds() + 600,
    })
}

fn sign(server: &Server, algorithm: Algorithm, claims: &Value) -> String {
    let header = Header { kid: Some("dev".to_owned()), ..Header::new(algorithm) };
    jsonwebtoken::encode(&header, claims, &EncodingKey::from_secret(&key_of(server)).unwrap()).unwrap()
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims("t");
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

fn base64url(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

async fn bad_tokens_are_refused(store: StoreUnderTest) {
    let server = store.shared();
    let good = sign(server, Algorithm::HS256, &claims("t"));
    let api = Api::new(&server.url(), "t", None);
    api.with_token(Some(good.clone())).list("limit=1").await.expect(200);
    let mut tokens: Vec<(&str, String)> = Vec::new();
    let now = time::unix_seconds();
    for (what, name, value) in [
        ("expired", "exp", json!(now - 60)),
        ("expires never", "exp", Value::Null),
        ("expires in words", "exp", json!("tomorrow")),
        ("not yet valid", "nbf", json!(now + 600)),
        ("of another issuer", "iss", json!("actonce")),
        ("of a list of issuers", "iss", json!(["actonce-dev"])),
        ("of no issuer", "iss", Value::Null),
        ("for another audience", "aud", json!("actonce")),
        ("for no audience", "aud", Value::Null),
        ("of nobody", "sub", Value::Null),
        ("of an empty name", "sub", json!("")),
        ("of the service itself", "sub", json!("actonce")),
        ("of no tenant", "tenant", Value::Null),
        ("of an empty tenant", "tenant", json!("")),
        ("of a tenant with NUL", "tenant", json!("a\0b")),
        ("of two tenants", "tenant", json!(["a", "b"])),
        ("with scopes of another type", "scope", json!({ "effects:read": true })),
    ] {
        tokens.push((what, sign(server, Algorithm::HS256, &with(name, value))));
    }
    let [head, body, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!("a token has three parts") };
    let other_body = base64url(&with("tenant", json!("other")).to_string());
    let none = base64url(r#"{"alg":"none","typ":"JWT"}"#);
    for (what, token) in [
        ("with another body", format!("{head}.{other_body}.{signature}")),
        ("without a signature", format!("{head}.{body}.")),
        ("cut", good[..good.len() - 2].to_owned()),
        ("unsigned", format!("{none}.{body}.")),
        ("unsigned, with a signature", format!("{none}.{body}.{signature}")),
        ("of two parts", format!("{head}.{body}")),
        ("of four parts", format!("{good}.x")),
        ("empty", String::new()),
        ("no token", "x".to_owned()),
        ("huge", format!("{head}.{}.{signature}", "A".repeat(20_000))),
    ] {
        tokens.push((what, token));
    }
    tokens.push(("of another algorithm", sign(server, Algorithm::HS512, &claims("t"))));
    let header = Header { kid: Some("other".to_owned()), ..Header::new(Algorithm::HS256) };
    let foreign = EncodingKey::from_secret(&[7; 32]).unwrap();
    tokens.push(("of an unknown key", jsonwebtoken::encode(&header, &claims("t"), &foreign).unwrap()));
    let header = Header { kid: Some("dev".to_owned()), ..Header::new(Algorithm::HS256) };
    tokens.push(("of a false key", jsonwebtoken::encode(&header, &claims("t"), &foreign).unwrap()));
    for (what, token) in tokens {
        let answer = api.with_token(Some(token.clone())).list("limit=1").await;
        assert_eq!(answer.status, 401, "a token {what}: {answer}");
        let answer = answer.problem(401, "unauthenticated");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{answer}");
        assert!(token.len() < 8 || !answer.text.contains(&token), "a token {what} is echoed");
    }
    for header in
        ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", &good, &format!("Token {good}"), &format!("Bearer{good}")]
    {
        let answer = api.call("GET", "/api/effects").header("authorization", header).send().await;
        answer.problem(401, "unauthenticated");
    }
    api.list("limit=1").await.problem(401, "unauthenticated");
}

async fn good_tokens_of_all_kinds_are_taken(store: StoreUnderTest) {
    let server = store.shared();
    let api = Api::new(&server.url(), "t", None);
    for (name, value) in [
        ("aud", json!(["other", "actonce-dev"])),
        ("scope", json!("openid effects:read profile")),
        ("scope", json!(["effects:read"])),
        ("nbf", json!(time::unix_seconds() - 10)),
        ("exp", json!(4_102_444_800.5)),
        ("sub", json!("user@example.org")),
        ("extra", json!({ "any": "thing" })),
    ] {
        let token = sign(server, Algorithm::HS256, &with(name, value));
        api.with_token(Some(token)).list("limit=1").await.expect(200);
    }
    let mut plural = with("scope", Value::Null);
    plural["scopes"] = json!(["effects:read"]);
    api.with_token(Some(sign(server, Algorithm::HS256, &plural))).list("limit=1").await.expect(200);
    let good = sign(server, Algorithm::HS256, &claims("t"));
    for header in [format!("bearer {good}"), format!("BEARER {good}")] {
        api.call("GET", "/api/effects").header("authorization", &header).send().await.expect(200);
    }
    // Without scopes the caller is known, but allowed nothing.
    let token = sign(server, Algorithm::HS256, &with("scope", Value::Null));
    api.with_token(Some(token)).list("limit=1").await.problem(403, "insufficient-scope");
    let other = AuthArgs { jwt_audience: Some("elsewhere".to_owned()), ..AuthArgs::default() };
    let token = server.token_by("t", "tester", "all", other);
    api.with_token(Some(token)).list("limit=1").await.problem(401, "unauthenticated");
}

/// A remembered token is refused as soon as it has ended.
async fn a_token_ends_while_the_service_runs(store: StoreUnderTest) {
    let server = store.server(Options::default().env("ACTONCE_JWT_LEEWAY_SECONDS", "0"));
    let tenant = unique("tenant");
    external(&Api::of(&server, &tenant)).await;
    let mut claims = claims(&tenant);
    claims["exp"] = json!(time::unix_seconds() + 2);
    let api = Api::new(&server.url(), &tenant, Some(sign(&server, Algorithm::HS256, &claims)));
    let mut taken = 0;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while api.list("limit=1").await.status == 200 {
        taken += 1;
        assert!(std::time::Instant::now() < until, "the token never ends");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(taken > 0, "the token was never taken");
    api.list("limit=1").await.problem(401, "unauthenticated");
}
