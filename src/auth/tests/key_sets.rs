//! Key sets, read from an issuer that rotates, fails and lies.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use jsonwebtoken::jwk::Jwk;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::auth::jwks;

/// An issuer on this machine. Whoever holds it can change what it answers.
struct Issuer {
    url: String,
    answer: Arc<Mutex<(u16, Vec<u8>)>>,
    asked: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Issuer {
    async fn start(document: &Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks.json", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new((200, document.to_string().into_bytes())));
        let asked = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        let (answers, count) = (Arc::clone(&answer), Arc::clone(&asked));
        tasks.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(stream.read_u8().await.unwrap());
                }
                count.fetch_add(1, Ordering::SeqCst);
                let (status, body) = answers.lock().unwrap().clone();
                let head = format!(
                    "HTTP/1.1 {status} X\r\nlocation: /elsewhere\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                // A client that has seen enough hangs up.
                drop(stream.write_all(&body).await);
            }
        });
        Self { url, answer, asked, tasks }
    }

    fn answers(&self, status: u16, document: &Value) {
        *self.answer.lock().unwrap() = (status, document.to_string().into_bytes());
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn settings(&self, every: Duration, at_most_every: Duration) -> Settings {
        let source = KeySetSource::url(&self.url, false).unwrap();
        let key_set = KeySetSettings {
            refresh_every: every,
            refresh_at_most_every: at_most_every,
            ..KeySetSettings::new(source)
        };
        Settings { keys: vec![], key_set: Some(key_set), claims: rules() }
    }
}

const NEVER: Duration = Duration::from_hours(1);
const SOON: Duration = Duration::from_millis(20);

fn ed25519(kid: &str) -> Key {
    Key::from_private_pem(Some(kid), Algorithm::EdDSA, ED25519).unwrap()
}

fn p256(kid: &str) -> Key {
    Key::from_private_pem(Some(kid), Algorithm::ES256, P256).unwrap()
}

fn public(key: &Key) -> Value {
    let signing = key.signing().unwrap();
    let mut jwk = Jwk::from_encoding_key(&signing.key, signing.algorithm).unwrap();
    jwk.common.key_id.clone_from(&signing.kid);
    serde_json::to_value(jwk).unwrap()
}

fn set(keys: &[&Key]) -> Value {
    json!({"keys": keys.iter().map(|key| public(key)).collect::<Vec<_>>()})
}

fn token(key: &Key) -> String {
    mint_at(key.signing().unwrap(), &rules(), &grant(), NOW).unwrap()
}

fn looped(verifier: &Arc<Authenticator>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(verifier).refresh_loop(CancellationToken::new()));
    tasks
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited for 5 seconds in vain");
}

#[tokio::test]
async fn rotation_adds_keys_and_a_removed_key_ends_remembered_tokens() {
    let (old, new) = (ed25519("old"), p256("new"));
    let issuer = Issuer::start(&set(&[&old])).await;
    let verifier = Authenticator::start(issuer.settings(SOON, SOON)).await.unwrap();
    let _tasks = looped(&verifier);
    let (old_token, new_token) = (token(&old), token(&new));
    let first = verifier.authenticate_at(&old_token, NOW).await.unwrap();
    let asked = issuer.asked();
    until(async || issuer.asked() > asked + 1).await;
    let again = verifier.authenticate_at(&old_token, NOW).await.unwrap();
    assert!(Arc::ptr_eq(&first, &again), "an equal set forgets nothing");
    issuer.answers(200, &set(&[&old, &new]));
    until(async || verifier.authenticate_at(&new_token, NOW).await.is_ok()).await;
    assert!(verifier.authenticate_at(&old_token, NOW).await.is_ok());
    issuer.answers(200, &set(&[&new]));
    until(async || verifier.authenticate_at(&old_token, NOW).await == Err(AuthError::UnknownKey)).await;
    assert!(verifier.authenticate_at(&new_token, NOW).await.is_ok());
}

#[tokio::test]
async fn an_outage_keeps_the_keys() {
    let (key, new) = (ed25519("a"), p256("b"));
    let issuer = Issuer::start(&set(&[&key])).await;
    let verifier = Authenticator::start(issuer.settings(SOON, SOON)).await.unwrap();
    let _tasks = looped(&verifier);
    let redirect = (302, set(&[&new]));
    for (status, document) in [(500, set(&[&new])), redirect, (200, json!({"keys": []})), (200, json!("no"))] {
        issuer.answers(status, &document);
        let asked = issuer.asked();
        until(async || issuer.asked() > asked + 1).await;
        assert!(verifier.authenticate_at(&token(&key), NOW).await.is_ok(), "{status} {document}");
        // Nobody can tell now whether this key is good.
        assert_eq!(verifier.authenticate_at(&token(&new), NOW).await, Err(AuthError::KeysUnavailable));
    }
    issuer.answers(200, &set(&[&key, &new]));
    until(async || verifier.authenticate_at(&token(&new), NOW).await.is_ok()).await;
}

#[tokio::test]
async fn unknown_keys_cause_no_storm() {
    let issuer = Issuer::start(&set(&[&ed25519("a")])).await;
    let verifier = Authenticator::start(issuer.settings(NEVER, NEVER)).await.unwrap();
    let _tasks = looped(&verifier);
    for attempt in 0..50 {
        let stranger = token(&ed25519(&format!("stranger-{attempt}")));
        assert_eq!(verifier.authenticate_at(&stranger, NOW).await, Err(AuthError::UnknownKey));
    }
    assert_eq!(issuer.asked(), 1, "the start has just read");
}

#[tokio::test]
async fn many_callers_with_a_new_key_share_one_read() {
    let (old, new) = (ed25519("old"), p256("new"));
    let issuer = Issuer::start(&set(&[&old])).await;
    let verifier = Authenticator::start(issuer.settings(NEVER, SOON)).await.unwrap();
    let _tasks = looped(&verifier);
    tokio::time::sleep(2 * SOON).await;
    issuer.answers(200, &set(&[&old, &new]));
    let mut callers = JoinSet::new();
    for _ in 0..50 {
        let (verifier, token) = (Arc::clone(&verifier), token(&new));
        callers.spawn(async move { verifier.authenticate_at(&token, NOW).await.is_ok() });
    }
    assert!(callers.join_all().await.into_iter().all(|taken| taken));
    assert_eq!(issuer.asked(), 2);
}

/// No keys were ever had: nobody knows whether a token is good, so it is not called bad.
#[tokio::test]
async fn an_issuer_that_is_down_at_start_is_waited_for() {
    let mut issuer = Issuer::start(&json!({})).await;
    let key = ed25519("a");
    let nameless = token(&hmac(None));
    for status in [200, 404] {
        issuer.answers(status, &json!({}));
        let verifier = Authenticator::start(issuer.settings(SOON, SOON)).await.unwrap();
        assert!(!verifier.has_keys());
        for token in [&token(&key), &nameless] {
            assert_eq!(verifier.authenticate_at(token, NOW).await, Err(AuthError::KeysUnavailable), "{status}");
        }
        assert_eq!(verifier.authenticate_at("x", NOW).await, Err(AuthError::Malformed));
    }
    let verifier = Authenticator::start(issuer.settings(NEVER, SOON)).await.unwrap();
    let _tasks = looped(&verifier);
    issuer.answers(200, &set(&[&key]));
    // The long pause is for keys that are there; while there are none, the short one holds.
    until(async || verifier.has_keys()).await;
    assert!(verifier.authenticate_at(&token(&key), NOW).await.is_ok());
    assert_eq!(verifier.authenticate_at(&token(&p256("b")), NOW).await, Err(AuthError::UnknownKey));
    let settings = issuer.settings(NEVER, SOON);
    issuer.tasks.shutdown().await;
    let own = hmac(Some("own"));
    let verifier = Authenticator::start(Settings { keys: vec![own.clone()], ..settings }).await.unwrap();
    assert!(verifier.authenticate_at(&token(&own), NOW).await.is_ok());
    assert_eq!(verifier.authenticate_at(&token(&key), NOW).await, Err(AuthError::KeysUnavailable));
}

#[tokio::test]
async fn a_file_that_can_not_be_read_ends_the_start_where_there_is_no_other_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    let key_set = Some(KeySetSettings::new(KeySetSource::File(path.clone())));
    let start = || Authenticator::start(Settings { key_set: key_set.clone(), ..settings(vec![]) });
    assert!(matches!(start().await, Err(StartError::KeySet(KeySetError::File(_)))));
    std::fs::write(&path, "{}").unwrap();
    assert!(matches!(start().await, Err(StartError::KeySet(KeySetError::NotAKeySet))));
    let own = Settings { key_set: key_set.clone(), ..settings(vec![hmac(Some("own"))]) };
    assert!(Authenticator::start(own).await.is_ok());
}

/// After a rotation the issuer still publishes the old key: its tokens hold until they end, and no longer.
#[tokio::test]
async fn tokens_of_the_old_key_hold_until_they_end() {
    let (old, new) = (ed25519("old"), p256("new"));
    let issuer = Issuer::start(&set(&[&old])).await;
    let verifier = Authenticator::start(issuer.settings(SOON, SOON)).await.unwrap();
    let _tasks = looped(&verifier);
    let before = token(&old);
    assert!(verifier.authenticate_at(&before, NOW).await.is_ok());
    issuer.answers(200, &set(&[&new, &old]));
    until(async || verifier.authenticate_at(&token(&new), NOW).await.is_ok()).await;
    let end = NOW + grant().expires_in_seconds + rules().leeway_seconds;
    assert!(verifier.authenticate_at(&before, end).await.is_ok(), "its last second");
    assert_eq!(verifier.authenticate_at(&before, end + 1).await, Err(AuthError::Expired));
}

/// However many tokens of unknown keys come, the issuer is asked at most once in the shortest time.
#[tokio::test]
async fn strangers_cause_one_read_per_shortest_time() {
    let issuer = Issuer::start(&set(&[&ed25519("a")])).await;
    let pause = Duration::from_millis(300);
    let verifier = Authenticator::start(issuer.settings(NEVER, pause)).await.unwrap();
    let _tasks = looped(&verifier);
    let begun = std::time::Instant::now();
    for attempt in 0..400 {
        let stranger = token(&ed25519(&format!("stranger-{attempt}")));
        assert_eq!(verifier.authenticate_at(&stranger, NOW).await, Err(AuthError::UnknownKey));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let most = 2 + usize::try_from(begun.elapsed().as_millis() / pause.as_millis()).unwrap();
    assert!((2..=most).contains(&issuer.asked()), "{} of {most}", issuer.asked());
}

#[tokio::test]
async fn a_huge_answer_is_cut_off() {
    let issuer = Issuer::start(&json!({"keys": [], "padding": "x".repeat(limits::KEY_SET_BYTES)})).await;
    let settings = issuer.settings(NEVER, NEVER).key_set.unwrap();
    assert!(matches!(probe_key_set(&settings).await, Err(KeySetError::TooLarge)));
    assert!(!Authenticator::start(issuer.settings(NEVER, NEVER)).await.unwrap().has_keys());
}

#[tokio::test]
async fn a_file_is_read_again_like_a_url() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    let (old, new) = (ed25519("old"), p256("new"));
    std::fs::write(&path, set(&[&old]).to_string()).unwrap();
    let key_set = KeySetSettings { refresh_every: SOON, ..KeySetSettings::new(KeySetSource::File(path.clone())) };
    let verifier = Authenticator::start(Settings { key_set: Some(key_set), ..settings(vec![]) }).await.unwrap();
    let _tasks = looped(&verifier);
    assert!(verifier.authenticate_at(&token(&old), NOW).await.is_ok());
    std::fs::write(&path, set(&[&new]).to_string()).unwrap();
    until(async || verifier.authenticate_at(&token(&new), NOW).await.is_ok()).await;
}

#[tokio::test]
async fn the_loop_ends_when_told_to() {
    let issuer = Issuer::start(&set(&[&ed25519("a")])).await;
    let verifiers = [verifier().await, Authenticator::start(issuer.settings(NEVER, NEVER)).await.unwrap()];
    for verifier in verifiers {
        let stop = CancellationToken::new();
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(5), verifier.refresh_loop(stop)).await.unwrap();
    }
}

#[test]
fn only_public_keys_with_one_algorithm_are_taken() {
    let taken = |key: &Value, rsa| {
        let document = json!({"keys": [key, {"kty": "strange"}, 7, {"kty": "EC", "crv": "secp256k1", "kid": 7}]});
        jwks::parse(document.to_string().as_bytes(), rsa).ok().map(|keys| keys[0].algorithm())
    };
    let changed = |key: &Value, name: &str, value: Value| {
        let mut key = key.clone();
        key[name] = value;
        key
    };
    let curve = public(&p256("a"));
    assert_eq!(taken(&curve, None), Some(Algorithm::ES256));
    assert_eq!(taken(&changed(&curve, "alg", json!(null)), None), Some(Algorithm::ES256));
    assert_eq!(taken(&changed(&curve, "alg", json!("ES384")), None), None);
    assert_eq!(taken(&changed(&curve, "alg", json!("HS256")), None), None);
    assert_eq!(taken(&changed(&curve, "alg", json!("ECDH-ES")), None), None);
    assert_eq!(taken(&changed(&curve, "use", json!("sig")), None), Some(Algorithm::ES256));
    assert_eq!(taken(&changed(&curve, "use", json!("enc")), None), None);
    assert_eq!(taken(&changed(&curve, "key_ops", json!(["sign", "verify"])), None), Some(Algorithm::ES256));
    assert_eq!(taken(&changed(&curve, "key_ops", json!(["deriveKey"])), None), None);
    assert_eq!(taken(&changed(&curve, "y", json!("AAAA")), None), None);
    let rsa = public(&Key::from_private_pem(Some("r"), Algorithm::PS256, RSA).unwrap());
    assert_eq!(taken(&rsa, None), Some(Algorithm::PS256));
    let unstated = changed(&rsa, "alg", json!(null));
    assert_eq!(taken(&unstated, None), None);
    assert_eq!(taken(&unstated, Some(Algorithm::RS256)), Some(Algorithm::RS256));
    let secret = json!({"kty": "oct", "alg": "HS256", "kid": "s", "k": URL_SAFE_NO_PAD.encode(SECRET)});
    assert_eq!(taken(&secret, None), None);
}

#[test]
fn a_key_set_comes_over_https_or_from_this_machine() {
    let refused = |text, allow| KeySetSource::url(text, allow).is_err();
    assert!(!refused("https://issuer.example/jwks.json", false));
    assert!(refused("http://issuer.example/jwks.json", false));
    assert!(!refused("http://issuer.example/jwks.json", true));
    assert!(!refused("http://[::1]:8080/jwks.json", false));
    assert!(refused("http://127.0.0.1.issuer.example/", false));
    assert!(refused("https://user:password@issuer.example/", false));
    assert!(refused("file:///jwks.json", true) && refused("issuer", true));
}
