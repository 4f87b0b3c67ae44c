//! TLS of the service's own, on real sockets: both versions, new certificates, slow and wrong clients, bad files.

use std::time::{Duration, Instant};

use rustls::ProtocolVersion;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::http::TOOL;
use crate::support::certificates::{Authority, Issued};
use crate::support::server::program;
use crate::support::{Options, Server, StoreUnderTest, blocking, bodies};

const LIVEZ: &[u8] = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";

struct Secure {
    authority: Authority,
    folder: TempDir,
    server: Server,
}

impl Secure {
    fn new(options: Options) -> (Self, Issued) {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        let issued = authority.issue();
        let (certificate, key) = issued.write(folder.path());
        let options = options
            .env("ACTONCE_TLS_CERTIFICATE_FILE", certificate.to_str().unwrap())
            .env("ACTONCE_TLS_KEY_FILE", key.to_str().unwrap());
        let server = StoreUnderTest::Sqlite.server(options);
        assert!(server.url().starts_with("https://"), "{}", server.url());
        (Self { authority, folder, server }, issued)
    }

    async fn plain(&self) -> TcpStream {
        TcpStream::connect(self.server.url().trim_start_matches("https://")).await.unwrap()
    }

    async fn with(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        alpn: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(self.authority.client(versions, alpn));
        connector.connect(ServerName::try_from("localhost").unwrap(), self.plain().await).await
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        self.with(&[&TLS13, &TLS12], &["http/1.1"]).await.unwrap()
    }

    /// What is shown to who connects now.
    async fn shows(&self, issued: &Issued) -> bool {
        let stream = self.connect().await;
        stream.get_ref().1.peer_certificates().unwrap()[0] == issued.der
    }

    fn client(&self) -> reqwest::ClientBuilder {
        let root = reqwest::Certificate::from_pem(self.authority.pem().as_bytes()).unwrap();
        reqwest::Client::builder().tls_certs_only([root]).no_proxy()
    }

    async fn metric(&self, name: &str) -> String {
        let client = self.client().build().unwrap();
        let text = client.get(format!("{}/metrics", self.server.url())).send().await.unwrap().text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
        line.rsplit(' ').next().unwrap().to_owned()
    }
}

async fn livez(stream: &mut TlsStream<TcpStream>) {
    stream.write_all(LIVEZ).await.unwrap();
    let mut answer = [0; 1024];
    let length = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut answer)).await.unwrap().unwrap();
    assert!(answer[..length].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..length]));
}

/// How long a connection lives while this is sent every 100 ms.
async fn life(stream: &mut TcpStream, drip: &[u8]) -> Duration {
    let begun = Instant::now();
    let (mut bytes, mut drip) = ([0; 1024], drip.chunks(1));
    while begun.elapsed() < Duration::from_secs(20) {
        if let Some(next) = drip.next()
            && stream.write_all(next).await.is_err()
        {
            return begun.elapsed();
        }
        let read = tokio::time::timeout(Duration::from_millis(100), stream.read(&mut bytes)).await;
        if let Ok(Ok(0) | Err(_)) = read {
            return begun.elapsed();
        }
    }
    panic!("the connection never ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_versions_and_both_protocols_are_spoken() {
    let (secure, issued) = Secure::new(Options::default());
    for (version, number) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        for (alpn, chosen) in
            [(&["h2", "http/1.1"][..], Some(&b"h2"[..])), (&["http/1.1"], Some(b"http/1.1")), (&[], None)]
        {
            let mut stream = secure.with(&[version], alpn).await.unwrap();
            let session = stream.get_ref().1;
            assert_eq!((session.protocol_version(), session.alpn_protocol()), (Some(number), chosen));
            if chosen != Some(b"h2") {
                livez(&mut stream).await;
            }
        }
    }
    assert!(secure.with(&[&TLS13], &["spdy/3"]).await.is_err(), "a protocol that is not spoken");
    assert!(secure.shows(&issued).await);
    let url = secure.server.url();
    for (builder, version) in
        [(secure.client(), reqwest::Version::HTTP_2), (secure.client().http1_only(), reqwest::Version::HTTP_11)]
    {
        let client = builder.build().unwrap();
        for path in ["/livez", "/readyz"] {
            let answer = client.get(format!("{url}{path}")).send().await.unwrap();
            assert_eq!((answer.status().as_u16(), answer.version()), (200, version), "{path}");
        }
    }
    // The contract is the same.
    let (client, token) = (secure.client().build().unwrap(), secure.server.token("t", "me", "all"));
    let put = client.put(format!("{url}/api/tools/{TOOL}")).bearer_auth(&token).json(&json!({ "effect": "external" }));
    assert_eq!(put.send().await.unwrap().status(), 201);
    let intent = client.post(format!("{url}/api/intents")).bearer_auth(&token).json(&bodies::claiming("op", TOOL));
    let granted: Value = intent.send().await.unwrap().json().await.unwrap();
    assert_eq!(granted["directive"], "dispatch", "{granted}");
    // Who does not trust the authority is not talked into it.
    let stranger = reqwest::Client::builder().no_proxy().build().unwrap();
    assert!(stranger.get(format!("{url}/livez")).send().await.is_err());
    let health = |arguments: Vec<String>| {
        let mut command = program();
        command.arg("health").args(arguments);
        blocking(move || command.output().unwrap())
    };
    let listen = url.trim_start_matches("https://").to_owned();
    let certificate = secure.folder.path().join("tls.crt").to_str().unwrap().to_owned();
    let asked = health(vec!["--listen".to_owned(), listen.clone(), "--tls-certificate-file".to_owned(), certificate]);
    assert!(asked.await.status.success());
    assert!(!health(vec!["--listen".to_owned(), listen]).await.status.success(), "plain HTTP is not spoken");
}

async fn eventually(what: &str, secure: &Secure, issued: &Issued) {
    let until = Instant::now() + Duration::from_secs(40);
    while !secure.shows(issued).await {
        assert!(Instant::now() < until, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn refused_is(secure: &Secure, value: &str) {
    let until = Instant::now() + Duration::from_secs(40);
    while secure.metric("actonce_tls_files_refused ").await != value {
        assert!(Instant::now() < until, "not {value} in time");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_taken_and_a_bad_one_leaves_the_old() {
    let (secure, first) = Secure::new(Options::default());
    let mut kept = secure.connect().await;
    livez(&mut kept).await;
    let second = secure.authority.issue();
    second.write(secure.folder.path());
    eventually("the second is shown", &secure, &second).await;
    // Another key for the certificate, a key that is none, and no key.
    std::fs::write(secure.folder.path().join("tls.key"), &first.key).unwrap();
    refused_is(&secure, "1").await;
    assert!(secure.shows(&second).await, "the pair that was good stays");
    let log = secure.server.log();
    assert!(log.contains("is not the key of the certificate") && !log.contains("BEGIN"), "{log}");
    std::fs::write(secure.folder.path().join("tls.key"), "-----BEGIN PRIVATE KEY-----\nhunter2\n").unwrap();
    std::fs::remove_file(secure.folder.path().join("tls.crt")).unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(secure.shows(&second).await && !secure.server.log().contains("hunter2"));
    let third = secure.authority.issue();
    third.write(secure.folder.path());
    eventually("the third is shown", &secure, &third).await;
    refused_is(&secure, "0").await;
    assert_eq!(secure.metric("actonce_tls_certificate_expires_seconds").await, "4142102400");
    // Who was there before goes on as before.
    livez(&mut kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_never_shakes_hands_or_does_it_slowly_is_cut_off() {
    let strict = Options::default().env("ACTONCE_HEADER_TIMEOUT_SECONDS", "1").env("ACTONCE_MAX_CONNECTIONS", "5");
    let (secure, _) = Secure::new(strict);
    let one = Duration::from_millis(900)..Duration::from_secs(3);
    let lived = life(&mut secure.plain().await, b"").await;
    assert!(one.contains(&lived), "silent: {lived:?}");
    // A hello that is announced with 512 bytes, one at a time.
    let lived =
        life(&mut secure.plain().await, &[&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &[7; 500]].concat())
            .await;
    assert!(one.contains(&lived), "slow: {lived:?}");
    // Hands and head share the time.
    let begun = Instant::now();
    let mut shaken = secure.connect().await;
    let mut rest = Vec::new();
    drop(tokio::time::timeout(Duration::from_secs(20), shaken.read_to_end(&mut rest)).await.expect("it ends"));
    assert!(one.contains(&begun.elapsed()) && rest.is_empty(), "no head: {:?}", begun.elapsed());
    // They take the places of connections, and give them back.
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(secure.plain().await);
    }
    let mut closed = 0;
    for stream in &mut crowd {
        let read = tokio::time::timeout(Duration::from_millis(2), stream.read(&mut [0; 1])).await;
        closed += usize::from(matches!(read, Ok(Ok(0) | Err(_))));
    }
    assert!(closed >= 200 - 5 - actonce::limits::SPARE_CONNECTIONS, "{closed} of 200 were closed");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    livez(&mut secure.connect().await).await;
    assert_ne!(secure.metric("actonce_tls_handshakes_failed_total{why=\"timeout\"}").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_and_nonsense_are_closed_at_once() {
    let (secure, _) = Secure::new(Options::default());
    let long = [b"GET /livez HTTP/1.1\r\nhost: a\r\nx-long: ", &[b'a'; 3000][..], b"\r\n\r\n"].concat();
    for sent in
        [LIVEZ, &long, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", b"\x16\x03\x01\0\x05hello", &[0; 64]]
    {
        let mut stream = secure.plain().await;
        stream.write_all(sent).await.unwrap();
        let mut answer = Vec::new();
        let begun = Instant::now();
        // An end, and not a reset.
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(answer.first().is_none_or(|first| *first == 0x15), "an alert, or nothing: {answer:?}");
    }
    assert_ne!(secure.metric("actonce_tls_handshakes_failed_total{why=\"failed\"}").await, "0");
    assert!(secure.server.stop().success());
}

/// What `actonce config check` and a start say of files.
async fn refused(certificate: Option<&str>, key: Option<&str>, said: &str) {
    for verb in [&["config", "check"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = program();
        command.args(verb).args(["--dev", "--data-dir"]).arg(folder.path());
        for (name, value) in [("ACTONCE_TLS_CERTIFICATE_FILE", certificate), ("ACTONCE_TLS_KEY_FILE", key)] {
            value.map(|value| command.env(name, value));
        }
        let output = blocking(move || command.output().unwrap()).await;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(said), "{said}: {text}");
        assert!(!text.contains("BEGIN PRIVATE KEY-----\n"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_files_and_pairs_are_named() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let (one, two) = (authority.issue(), authority.issue());
    let (certificate, key) = one.write(folder.path());
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let other = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (foreign, empty) = (other("foreign.key", &two.key), other("empty.pem", ""));
    let (cut, large) = (other("cut.crt", &one.certificate[..200]), other("large.pem", &"x".repeat(300_000)));
    let nonsense = other("no.crt", "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n");
    refused(Some(certificate), None, "ACTONCE_TLS_CERTIFICATE_FILE): needs its key too").await;
    refused(None, Some(key), "ACTONCE_TLS_KEY_FILE): needs its certificate too").await;
    refused(Some("/nowhere.crt"), Some(key), "/nowhere.crt can't be read").await;
    refused(Some(certificate), Some("/nowhere.key"), "ACTONCE_TLS_KEY_FILE): /nowhere.key can't be read").await;
    refused(Some(certificate), Some(&foreign), "foreign.key is not the key of the certificate").await;
    refused(Some(&empty), Some(key), "empty.pem has no certificate").await;
    refused(Some(certificate), Some(&empty), "empty.pem has no private key").await;
    refused(Some(certificate), Some(certificate), "tls.crt has no private key").await;
    refused(Some(&cut), Some(key), "cut.crt").await;
    refused(Some(&large), Some(key), "large.pem can't be read: it is larger").await;
    refused(Some(&nonsense), Some(key), "no.crt has a certificate that can't be read").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_looks_at_the_end_and_at_who_may_read_the_key() {
    use std::os::unix::fs::PermissionsExt as _;
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let says = |issued: &Issued, mode: u32| {
        let (certificate, key) = issued.write(folder.path());
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = program();
        command.args(["doctor", "--json", "--dev", "--data-dir"]).arg(folder.path().join("data"));
        command.env("ACTONCE_TLS_CERTIFICATE_FILE", certificate).env("ACTONCE_TLS_KEY_FILE", key);
        async move {
            let output = blocking(move || command.output().unwrap()).await;
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let all = report["findings"].as_array().unwrap().clone();
            let of = |finding: &Value| finding["check"] == "tls";
            all.into_iter().filter(of).map(|finding| finding["level"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        }
    };
    assert_eq!(says(&authority.issue(), 0o600).await, ["ok"]);
    assert_eq!(says(&authority.issue(), 0o640).await, ["ok"]);
    assert_eq!(says(&authority.issue(), 0o644).await, ["ok", "warn"]);
    assert_eq!(says(&authority.issue_until(2020), 0o600).await, ["fail"]);
}
