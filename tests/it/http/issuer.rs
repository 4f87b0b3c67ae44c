//! An issuer whose key set is not there yet, goes away, and rotates: as clients of the service see it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::{Api, Options, StoreUnderTest, both_stores, time};

both_stores!(an_issuer_that_comes_late_goes_and_rotates);

fn key(kid: &str) -> (String, EncodingKey) {
    let pem = include_bytes!("../../data/keys/test-ed25519.private.pem");
    (kid.to_owned(), EncodingKey::from_ed_pem(pem).unwrap())
}

fn set(keys: &[&(String, EncodingKey)]) -> String {
    let public = |(kid, key): &(String, EncodingKey)| {
        let mut jwk = Jwk::from_encoding_key(key, Algorithm::EdDSA).unwrap();
        jwk.common.key_id = Some(kid.clone());
        serde_json::to_value(jwk).unwrap()
    };
    json!({ "keys": keys.iter().map(|key| public(key)).collect::<Vec<Value>>() }).to_string()
}

fn token((kid, key): &(String, EncodingKey)) -> String {
    let header = Header { kid: Some(kid.clone()), ..Header::new(Algorithm::EdDSA) };
    let claims = json!({
        "iss": "actonce", "aud": "actonce", "sub": "tester", "tenant": "t", "scope": "effects:read",
        "exp": time::unix_seconds() + 600,
    });
    jsonwebtoken::encode(&header, &claims, key).unwrap()
}

/// Answers with what stands in `document`.
async fn issuer(address: SocketAddr, document: Arc<Mutex<String>>) -> JoinSet<()> {
    let listener = TcpListener::bind(address).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { break };
                request.push(byte);
            }
            let body = document.lock().unwrap().clone();
            let answer =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
            drop(stream.write_all(answer.as_bytes()).await);
        }
    });
    tasks
}

async fn until(api: &Api, status: u16) {
    let begun = Instant::now();
    while api.list("limit=1").await.status != status {
        assert!(begun.elapsed() < Duration::from_secs(20), "never {status}: {}", api.list("limit=1").await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn an_issuer_that_comes_late_goes_and_rotates(store: StoreUnderTest) {
    let place = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = place.local_addr().unwrap();
    drop(place);
    let options = Options::default()
        .env("ACTONCE_JWKS_URL", &format!("http://{address}/jwks"))
        .env("ACTONCE_JWKS_REFRESH_SECONDS", "1")
        .env("ACTONCE_JWKS_MIN_REFRESH_SECONDS", "1")
        .env("ACTONCE_DATA_KEY", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    let server = store.server(Options { production: true, ..options });
    let (old, new) = (key("old"), key("new"));
    let of = |key| Api::new(&server.url(), "t", Some(token(key)));
    let (with_old, with_new) = (of(&old), of(&new));
    let nobody = with_old.with_token(None);
    // No keys were ever had.
    let answer = with_old.list("limit=1").await.problem(503, "store-unavailable");
    assert_eq!(answer.header("retry-after"), Some("1"), "{answer}");
    nobody.read("/readyz").await.problem(503, "store-unavailable");
    nobody.read("/livez").await.expect(200);
    nobody.list("limit=1").await.problem(401, "unauthenticated");
    let document = Arc::new(Mutex::new(set(&[&old])));
    let mut there = issuer(address, Arc::clone(&document)).await;
    until(&with_old, 200).await;
    nobody.read("/readyz").await.expect(200);
    until(&with_new, 401).await;
    // It rotates, and publishes both for a while.
    *document.lock().unwrap() = set(&[&new, &old]);
    until(&with_new, 200).await;
    with_old.list("limit=1").await.expect(200);
    // It goes away: what was known stays, and of what is not nobody can say.
    there.shutdown().await;
    let stranger = of(&key("stranger"));
    until(&stranger, 503).await;
    with_new.list("limit=1").await.expect(200);
    nobody.read("/readyz").await.expect(200);
    // It is back without the old one.
    *document.lock().unwrap() = set(&[&new]);
    let _back = issuer(address, document).await;
    until(&with_old, 401).await;
    with_new.list("limit=1").await.expect(200);
    until(&stranger, 401).await;
}
