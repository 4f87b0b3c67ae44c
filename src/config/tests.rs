use std::path::Path;

use clap::builder::Resettable;
use clap::{CommandFactory, FromArgMatches, Parser as _};

use super::*;
use crate::auth::{Authenticator, KeySetSource, Scope};

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(clap::Parser)]
struct TokenCli {
    #[command(flatten)]
    token: TokenArgs,
}

const SECRET: &str = "a secret of 32 bytes, for tests!";
const DATA_KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Parses a command line as it would be without any variables.
fn parse<T: CommandFactory + FromArgMatches>(line: &[&str]) -> T {
    let command = T::command().mut_args(|argument| argument.env(Resettable::Reset));
    T::from_arg_matches(&command.try_get_matches_from([&["actonce"], line].concat()).unwrap()).unwrap()
}

fn args(line: &[&str]) -> ServeArgs {
    parse::<Cli>(line).serve
}

fn token_args(line: &[&str]) -> TokenArgs {
    parse::<TokenCli>(line).token
}

fn environment() -> Environment {
    Environment {
        jwt_hs256_secret: Some(Secret::new(SECRET.to_owned())),
        data_key: Some(Secret::new(DATA_KEY.to_owned())),
        ..Environment::default()
    }
}

fn load(line: &[&str]) -> Result<Config, ConfigError> {
    Config::load(&args(line), &environment())
}

fn problems(result: Result<Config, ConfigError>) -> String {
    result.map_or_else(|error| error.to_string(), |config| panic!("no problems: {config:?}"))
}

/// Loads a configuration file with nothing from the environment.
fn load_file(content: &str, line: &[&str]) -> Result<Config, ConfigError> {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("actonce.toml");
    std::fs::write(&path, content).unwrap();
    Config::load(&args(&[&["--config", path.to_str().unwrap()], line].concat()), &Environment::default())
}

fn with_keys(content: &str) -> String {
    format!("data_key = '{DATA_KEY}'\n{content}\n[[auth.keys]]\nalgorithm = 'HS256'\nsecret = '{SECRET}'\n")
}

fn dev(directory: &Path, line: &[&str]) -> Result<Config, ConfigError> {
    let line = [&["--dev", "--data-dir", directory.to_str().unwrap()], line].concat();
    Config::load(&args(&line), &Environment::default())
}

#[test]
fn defaults_are_the_documented_ones() {
    let config = load(&[]).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.data_dir, Path::new("./actonce-data"));
    assert_eq!((config.base_path.as_str(), config.log.as_str()), ("", "info"));
    assert_eq!(config.log_format, LogFormat::Json);
    let telemetry = &config.telemetry;
    assert_eq!((telemetry.timing, &telemetry.otlp_endpoint, telemetry.otlp_sample_percent), (true, &None, 100));
    assert_eq!((config.request_timeout.as_secs(), config.drain.as_secs()), (30, 20));
    assert_eq!((config.max_in_flight, config.postgres_connections), (20_000, 10));
    assert_eq!(config.front.max_connections, 20_000);
    assert_eq!((config.front.header_timeout.as_secs(), config.front.idle_timeout.as_secs()), (10, 75));
    assert_eq!((config.front.tenant_rate, config.front.principal_rate), (None, None), "off");
    assert_eq!(config.auth.claims, auth::ClaimRules::new("actonce", "actonce"));
    assert_eq!(config.auth.keys[0].algorithm(), auth::Algorithm::HS256);
    assert_eq!(config.ad_hoc_tools, AdHocTools::Tenants(BTreeSet::new()));
    assert_eq!(config.adapters, AdapterPolicy::default());
    assert!(config.database_url.is_none() && config.alias_keys.is_empty() && !config.dev);
    assert!(config.database_pooling == Pooling::Session && config.database_direct_url.is_none());
    assert_eq!(config.data_key.expose()[..4], [0, 1, 2, 3]);
}

#[test]
fn every_flag_has_its_variable_and_its_place_in_the_file() {
    let content = [
        "listen = '127.0.0.1:9000'\ndata_dir = '/data'\nbase_path = 'actonce/'\ndev = false",
        "log_format = 'pretty'\nlog = 'warn'\ndatabase_pooling = 'transaction'\ndatabase_direct_url = 'postgres://me:hunter2@server/actonce'",
        "database_url = 'postgres://me:hunter2@db/actonce'\ndata_key_file = ''\nevidence_key_file = ''\ncheckpoint_seconds = 12\nad_hoc_tools = ['a,b', 'c']",
        "adapter_allow_http = true\nadapter_allow_networks = '127.0.0.0/8, fd00::/8'\nrequest_timeout_seconds = 5",
        "secrets_dir = ''\ndrain_seconds = '6'\nmax_in_flight = 7\npostgres_connections = 8\nalias_keys = []",
        "timing = 'off'\notlp_endpoint = 'http://127.0.0.1:4318'\notlp_sample_percent = 12",
        &format!("data_key = '{DATA_KEY}'"),
        "[auth]\nissuer = 'i'\naudience = 'a'\ntenant_claim = 'org'\nscopes_claim = 'scp'\nleeway_seconds = 9",
        "[auth.jwks]\nurl = 'https://issuer.example/jwks.json'\nfile = ''\nrefresh_seconds = 10",
        "min_refresh_seconds = 11",
        "rsa_algorithm = 'RS256'\nallow_http = false",
    ];
    let front = "max_connections = 20\nheader_timeout_seconds = 21\nidle_timeout_seconds = 22\n\
                 rate_tenant_per_second = 23\nrate_tenant_burst = 24\nrate_principal_per_second = 25\n\
                 rate_principal_burst = 26\ntls_certificate_file = ''\ntls_key_file = ''\n\
                 quota_tenant_open_effects = 27\nquota_principal_open_effects = 28\n";
    let content = front.to_owned() + &content.join("\n");
    // These describe the one key of the arguments; the file has a list of keys.
    let of_one_key = ["jwt_secret_file", "jwt_public_key_file", "jwt_private_key_file", "jwt_algorithm", "jwt_kid"];
    for command in [Cli::command(), TokenCli::command()] {
        for argument in command.get_arguments() {
            let name = argument.get_long().unwrap().replace('-', "_");
            if ["tenant", "subject", "scopes", "expires_in"].contains(&name.as_str()) {
                continue;
            }
            let variable = format!("ACTONCE_{}", name.to_ascii_uppercase()).replace("ACTONCE_DATABASE", "DATABASE");
            assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(variable.as_str()));
            let key = name.trim_start_matches("jwt_").trim_start_matches("jwks_");
            let placed = format!("\n{content}").contains(&format!("\n{key} ="));
            assert!(placed || name == "config" || of_one_key.contains(&name.as_str()), "{name}");
        }
    }
    let config = load_file(&content, &[]);
    let config = config.unwrap();
    assert_eq!((config.base_path.as_str(), config.log.as_str()), ("/actonce", "warn"));
    assert_eq!(config.database_pooling, Pooling::Transaction);
    assert!(config.database_direct_url.as_ref().unwrap().expose().ends_with("@server/actonce"));
    let telemetry = &config.telemetry;
    assert_eq!((telemetry.timing, telemetry.otlp_sample_percent), (false, 12));
    assert_eq!(telemetry.otlp_endpoint.as_deref(), Some("http://127.0.0.1:4318"));
    assert!(config.ad_hoc_tools.allows(&Tenant::new("a,b").unwrap()));
    assert!(!config.ad_hoc_tools.allows(&Tenant::new("a").unwrap()));
    assert_eq!(config.adapters.allow_networks.len(), 2);
    assert_eq!((config.front.max_connections, config.front.header_timeout.as_secs()), (20, 21));
    assert_eq!(config.front.tenant_rate.unwrap().burst.get(), 24);
    assert_eq!(config.open_quota.of(&Tenant::new("a").unwrap()).unwrap().get(), 27);
    assert_eq!(config.principal_quota.of(&Tenant::new("a").unwrap()).unwrap().get(), 28);
    assert!(config.tls.is_none());
    assert_eq!((config.request_timeout.as_secs(), config.drain.as_secs()), (5, 6));
    let claims = &config.auth.claims;
    assert_eq!((claims.tenant_claim.as_str(), claims.scopes_claim.as_deref()), ("org", Some("scp")));
    let key_set = config.auth.key_set.as_ref().unwrap();
    assert!(matches!(&key_set.source, KeySetSource::Url(_)));
    assert_eq!((key_set.refresh_every.as_secs(), key_set.refresh_at_most_every.as_secs()), (10, 11));
}

#[test]
fn an_argument_outranks_the_file_and_an_empty_one_does_not() {
    let content = with_keys("listen = '127.0.0.1:1'\nlog = 'warn'\n[auth]\nissuer = 'file'");
    let config = load_file(&content, &["--listen", "127.0.0.1:2", "--log", "", "--jwt-issuer", "flag"]).unwrap();
    assert_eq!(config.listen.port(), 2);
    assert_eq!(config.log, "warn");
    assert_eq!((config.auth.claims.issuer.as_str(), config.auth.claims.audience.as_str()), ("flag", "actonce"));
    // A key set named by an argument outranks the other kind in the file.
    let content = format!("{content}kid = 'a'\n[auth.jwks]\nurl = 'https://issuer.example/'");
    let config = load_file(&content, &["--jwks-file", "/jwks.json"]).unwrap();
    assert_eq!(config.auth.key_set.unwrap().source, KeySetSource::File(PathBuf::from("/jwks.json")));
}

/// Variables can't be set in this process without risk for other tests, so another one has them.
#[test]
fn a_flag_outranks_the_environment_which_outranks_the_file() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("actonce.toml");
    std::fs::write(&path, "listen = '127.0.0.1:1'\nlog = 'warn'\nbase_path = '/file'\nmax_in_flight = 1").unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "config::tests::precedence_in_a_process_of_its_own"])
        .env("TEST_OF_PRECEDENCE", "1")
        .env("ACTONCE_CONFIG", &path)
        .env("ACTONCE_LISTEN", "127.0.0.1:2")
        .env("ACTONCE_LOG", "error")
        .env("ACTONCE_BASE_PATH", "")
        .env("ACTONCE_DEV", "")
        .env("DATABASE_URL", "")
        .env("ACTONCE_JWT_HS256_SECRET", SECRET)
        .env("ACTONCE_DATA_KEY", DATA_KEY)
        .env("ACTONCE_ALIAS_KEYS", "")
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && report.contains("1 passed"), "{report}");
}

#[test]
fn precedence_in_a_process_of_its_own() {
    if std::env::var_os("TEST_OF_PRECEDENCE").is_none() {
        return;
    }
    let cli = Cli::try_parse_from(["actonce", "--listen", "127.0.0.1:3"]).unwrap();
    let config = Config::load(&cli.serve, &Environment::from_process()).unwrap();
    assert_eq!(config.listen.port(), 3, "the flag");
    assert_eq!(config.log, "error", "the environment");
    assert_eq!((config.base_path.as_str(), config.max_in_flight), ("/file", 1), "the file");
    assert!(!config.dev && config.database_url.is_none());
}

#[test]
fn all_problems_are_reported_together() {
    let content = "listen = 7\nlisten_on = 'x'\nlog_format = 'xml'\n[auth]\nissuers = []\n\
                   [auth.jwks]\nurl = 'ftp://x'\nrefresh_seconds = 0\n\
                   [[auth.keys]]\nalgorithm = 'none'\n[[auth.keys]]\nkid = 'b'\nalgorithm = 'HS256'\nsecret = 'short'";
    let line =
        ["--drain-seconds", "soon", "--base-path", "/a b", "--database-url", "mysql://x", "--ad-hoc-tools", "*,a"];
    let found = problems(load_file(content, &line));
    for expected in [
        "`listen` in the configuration file: must be an IP address",
        "`listen_on` in the configuration file: unknown",
        "`log_format` in the configuration file: must be json or pretty",
        "--drain-seconds (ACTONCE_DRAIN_SECONDS): must be a whole number from 0 to 600",
        "--base-path (ACTONCE_BASE_PATH): must be a path",
        "--database-url (DATABASE_URL): must start with postgres://",
        "--ad-hoc-tools (ACTONCE_AD_HOC_TOOLS): must be * or names",
        "`auth.issuers` in the configuration file: unknown",
        "`auth.jwks.url` in the configuration file: must be an https URL",
        "`auth.jwks.refresh_seconds` in the configuration file: must be a whole number from 1",
        "`auth.keys[0]` in the configuration file: must have one of secret",
        "`auth.keys[0].algorithm` in the configuration file: must be one of HS256",
        "`auth.keys[1].secret` in the configuration file: the secret must have at least 32 bytes",
        "no data key: set ACTONCE_DATA_KEY",
    ] {
        assert!(found.contains(expected), "{expected}\nnot in: {found}");
    }
}

#[test]
fn a_real_deployment_needs_its_keys() {
    let found = problems(Config::load(&args(&[]), &Environment::default()));
    assert!(found.contains("no key for tokens: set ACTONCE_JWKS_URL") && found.contains("--dev"), "{found}");
    assert!(found.contains("no data key: set ACTONCE_DATA_KEY"), "{found}");
    let found = problems(load(&["--jwt-public-key-file", "/key.pem"]));
    assert!(found.contains("ACTONCE_JWT_HS256_SECRET and --jwt-public-key-file (ACTONCE_JWT_PUBLIC_KEY_FILE)"));
    let found = problems(load(&["--jwt-algorithm", "RS256"]));
    assert!(found.contains("must be HS256 or unset"), "{found}");
    let found = problems(load(&["--jwks-url", "https://issuer.example/jwks.json"]));
    assert!(found.contains("each needs an id of its own"), "{found}");
    assert!(load(&["--jwks-url", "https://issuer.example/jwks.json", "--jwt-kid", "own"]).is_ok());
    let found = problems(load(&["--jwks-refresh-seconds", "60"]));
    assert!(found.contains("no key set that it could be for"), "{found}");
    let found = problems(load(&["--jwt-tenant-claim", "sub", "--jwt-scopes-claim", "exp"]));
    assert!(found.matches("must be another claim").count() == 2, "{found}");
}

#[test]
fn a_key_needs_its_algorithm_and_may_be_a_file() {
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/keys/test-p256.public.pem");
    let environment = Environment { jwt_hs256_secret: None, ..environment() };
    let load = |line: &[&str]| Config::load(&args(line), &environment);
    let found = problems(load(&["--jwt-public-key-file", key]));
    assert!(found.contains("set ACTONCE_JWT_ALGORITHM"), "{found}");
    let config = load(&["--jwt-public-key-file", key, "--jwt-algorithm", "ES256"]).unwrap();
    assert!(config.auth.keys[0].signing().is_none());
    assert!(problems(load(&["--jwt-public-key-file", key, "--jwt-algorithm", "ES384"])).contains("another curve"));
    assert!(problems(load(&["--jwt-secret-file", key, "--jwt-algorithm", "HS256"])).contains("not a secret"));
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("secret");
    std::fs::write(&path, format!("{SECRET}\n")).unwrap();
    assert!(load(&["--jwt-secret-file", path.to_str().unwrap(), "--jwt-algorithm", "HS256"]).is_ok());
    std::fs::write(&path, format!("{}\n", &SECRET[1..])).unwrap();
    assert!(load(&["--jwt-secret-file", path.to_str().unwrap(), "--jwt-algorithm", "HS256"]).is_err());
}

#[test]
fn a_list_of_keys_has_ids() {
    let list = |first: &str, second: &str| {
        let key = |kid: &str| format!("[[auth.keys]]\nalgorithm = 'HS256'\nsecret = '{SECRET}'\n{kid}\n");
        load_file(&format!("data_key = '{DATA_KEY}'\n{}{}", key(first), key(second)), &[])
    };
    assert_eq!(list("kid = 'a'", "kid = 'b'").unwrap().auth.keys.len(), 2);
    assert!(problems(list("kid = 'a'", "kid = 'a'")).contains("an id of its own"));
    assert!(problems(list("kid = 'a'", "")).contains("an id of its own"));
}

#[test]
fn secrets_are_shown_nowhere() {
    let url = "postgres://me:hunter2@db.example/actonce";
    let config = load(&["--database-url", url]).unwrap();
    let shown = format!("{config:?}{}", serde_json::to_string(&config.describe()).unwrap());
    assert!(shown.contains("postgres://db.example/actonce") && shown.contains(HIDDEN));
    let arguments = format!("{:?}{:?}", args(&["--database-url", url]), environment());
    for secret in [SECRET, DATA_KEY, "hunter2", "[0, 1, 2, 3"] {
        assert!(!shown.contains(secret) && !arguments.contains(secret), "{shown}{arguments}");
    }
    let url = "https://issuer.example/jwks?token=hunter2";
    let line = ["--jwks-url", url, "--jwt-kid", "own"];
    let config = load(&line).unwrap();
    let shown = format!("{config:?}{:?}{}", args(&line), serde_json::to_string(&config.describe()).unwrap());
    assert!(shown.contains("issuer.example") && !shown.contains("hunter2"), "{shown}");
    let environment_of = Environment { jwt_hs256_secret: Some(Secret::new("hunter2".to_owned())), ..environment() };
    assert!(!format!("{environment_of:?}").contains("hunter2"));
    let inspected = inspect(&args(&line), &environment(), &Flags::default()).unwrap();
    assert!(!format!("{inspected:?}").contains("hunter2") && !format!("{inspected:?}").contains(SECRET));
    let found = problems(load_file("listen = '127.0.0.1:1'\ndata_key = hunter2\n", &[]));
    assert!(found.contains("line 2") && !found.contains("hunter2"), "{found}");
    assert!(!found.contains("no data key"), "nobody knows: {found}");
    let environment = Environment { data_key: Some(Secret::new("hunter2".to_owned())), ..environment() };
    assert!(!problems(Config::load(&args(&[]), &environment)).contains("hunter2"));
}

#[test]
fn pooling_is_for_postgres_and_a_direct_address_for_pooling() {
    let (url, direct) =
        (["--database-url", "postgres://pooler/x"], ["--database-direct-url", "postgres://me:hunter2@db/x"]);
    let pooled = ["--database-pooling", "transaction"];
    let load = |parts: &[[&str; 2]]| load(&parts.concat());
    let config = load(&[url, pooled, direct]).unwrap();
    let shown = format!("{config:?}{}", serde_json::to_string(&config.describe()).unwrap());
    assert!(shown.contains("transaction") && !shown.contains("hunter2"), "{shown}");
    assert!(load(&[url, pooled]).unwrap().database_direct_url.is_none());
    for (wrong, said) in [
        (vec![url, ["--database-pooling", "statement"]], "must be session or transaction"),
        (vec![pooled], "is for Postgres: set DATABASE_URL"),
        (vec![["--database-url", "sqlite:a.db"], pooled], "is for Postgres: set DATABASE_URL"),
        (vec![url, direct], "is for DATABASE_POOLING=transaction alone"),
        (vec![url, ["--database-pooling", "session"], direct], "is for DATABASE_POOLING=transaction alone"),
        (vec![url, pooled, ["--database-direct-url", "sqlite:hunter2"]], "must start with postgres://"),
    ] {
        let found = problems(load(&wrong));
        assert!(found.contains(said) && !found.contains("hunter2"), "{wrong:?}: {found}");
    }
}

#[test]
fn alias_keys_are_a_small_ring() {
    let load = |text: &str| {
        let alias_keys = Some(Secret::new(text.to_owned()));
        Config::load(&args(&[]), &Environment { alias_keys, ..environment() })
    };
    let ids = |config: Config| config.alias_keys.into_iter().map(|key| key.id).collect::<Vec<_>>();
    assert_eq!(ids(load(&format!("new:{DATA_KEY}, old:{DATA_KEY}")).unwrap()), ["new", "old"]);
    for wrong in ["x", "a.b:00", &format!("a:{DATA_KEY},a:{DATA_KEY}"), &format!("a.b:{DATA_KEY}")] {
        assert!(load(wrong).is_err(), "{wrong}");
    }
    let content = with_keys(&format!("[[alias_keys]]\nid = 'a'\nkey = '{DATA_KEY}'\n[[alias_keys]]\nid = 'b'"));
    assert!(problems(load_file(&content, &[])).contains("`alias_keys[1]` in the configuration file: must have an id"));
}

#[tokio::test]
async fn dev_keeps_its_keys_and_makes_tokens_that_it_takes() {
    let root = tempfile::tempdir().unwrap();
    let first = dev(root.path(), &[]).unwrap();
    let second = dev(root.path(), &["--listen", "[::1]:0"]).unwrap();
    assert!(first.dev && first.log_format == LogFormat::Pretty);
    assert_eq!(first.data_key, second.data_key);
    assert_eq!(first.alias_keys[0].key, second.alias_keys[0].key);
    assert_ne!(&first.data_key, &first.alias_keys[0].key);
    assert_eq!(first.auth.claims.issuer, "actonce-dev");
    let shown = first.dev_token().unwrap().unwrap();
    let authenticator = Authenticator::start(second.auth).await.unwrap();
    let principal = authenticator.authenticate(&shown).await.unwrap();
    assert_eq!((principal.tenant.as_str(), principal.subject.as_str()), ("dev", "dev"));
    assert_eq!(principal.scopes, Scopes::all());
    let line = ["--tenant", "acme", "--subject", "s", "--scopes", "effects:read,tools:write", "--data-dir"];
    let line = [line.as_slice(), &[root.path().to_str().unwrap()]].concat();
    let made = token::run(&token_args(&line), &Environment::default()).unwrap();
    let principal = authenticator.authenticate(&made).await.unwrap();
    assert_eq!(principal.tenant.as_str(), "acme");
    assert!(principal.scopes.contains(Scope::ToolsWrite) && !principal.scopes.contains(Scope::EffectsWrite));
}

#[test]
fn dev_stays_on_this_machine_and_mixes_with_no_other_key() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("data");
    assert!(problems(dev(&directory, &["--listen", "0.0.0.0:8080"])).contains("may listen on this machine only"));
    assert!(problems(dev(&directory, &["--jwks-file", "/x"])).contains("makes its own key for tokens"));
    assert!(!directory.exists(), "nothing is made where there is a problem");
    let real = Environment { data_key: environment().data_key, ..Environment::default() };
    let line = ["--dev=true", "--data-dir", directory.to_str().unwrap()];
    let config = Config::load(&args(&line), &real).unwrap();
    assert_eq!(config.data_key.expose()[..4], [0, 1, 2, 3]);
    assert!(load(&["--dev=false"]).unwrap().dev_token().unwrap().is_none());
}

#[tokio::test]
async fn a_token_is_made_with_the_configured_key_where_there_is_no_other() {
    let root = tempfile::tempdir().unwrap();
    let make = |line: &[&str], environment: &Environment| {
        let line = [&["--data-dir", root.path().to_str().unwrap()], line].concat();
        token::run(&token_args(&line), environment)
    };
    let who = ["--tenant", "t", "--subject", "s"];
    let signed = make(&[who.as_slice(), &["--jwt-tenant-claim", "org"]].concat(), &environment()).unwrap();
    let config = load(&["--jwt-tenant-claim", "org"]).unwrap();
    let authenticator = Authenticator::start(config.auth).await.unwrap();
    assert_eq!(authenticator.authenticate(&signed).await.unwrap().scopes, Scopes::all());
    let found = make(&who, &Environment::default()).unwrap_err().to_string();
    assert!(found.contains("no key to make tokens with") && found.contains("ACTONCE_JWT_HS256_SECRET"), "{found}");
    let wrong = ["--tenant", " t", "--subject", "", "--scopes", "effects:all", "--expires-in", "0"];
    let found = make(&wrong, &environment()).unwrap_err();
    assert_eq!(found.problems.len(), 4, "{found}");
    let found = make(&["--tenant", "t", "--subject", "actonce"], &environment()).unwrap_err().to_string();
    assert!(found.contains("reserved"), "{found}");
}

#[test]
fn named_secrets_come_from_the_file_and_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for folder in ["a", "..2026"] {
        std::fs::create_dir(path(folder)).unwrap();
    }
    for (name, content) in
        [("one", "hunter2\n"), ("two", "new\nold"), ("a/three", "x"), ("..2026/one", "y"), (".hidden", "")]
    {
        std::fs::write(path(name), content).unwrap();
    }
    let dir = directory.path().display();
    let content = with_keys(&format!(
        "secrets_dir = '{dir}'\n[secrets]\nplain = 'hunter2'\nours = {{ value = 'v', tenants = ['a', 'b'] }}\n\
         filed = {{ file = '{dir}/two' }}\n"
    ));
    let config = load_file(&content, &[]).unwrap();
    let names = ["filed", "one", "plain", "two", "a/ours", "a/three", "b/ours"];
    assert_eq!(config.named_secrets.names(), names);
    let values: Vec<usize> = config.named_secrets.iter().map(|(_, values)| values.len()).collect();
    assert_eq!(values, [2, 1, 1, 2, 1, 1, 1]);
    for shown in [format!("{config:?}"), serde_json::to_string(&config.describe()).unwrap()] {
        assert!(!shown.contains("hunter2") && shown.contains("a/three"), "{shown}");
    }
    for (wrong, said) in [
        ("one = 'twice'", "given twice"),
        ("x = { tenants = ['a'] }", "must have a value or a file"),
        ("x = { value = 'v', file = 'f' }", "must have a value or a file"),
        ("x = { value = 'v', other = 1 }", "unknown"),
        ("x = { value = 'v', tenants = [''] }", "a name of a tenant"),
        ("x = { file = '/absent' }", "can't be read"),
        ("x = \"hunter2\\n2\\n3\"", "one line, or two"),
        ("x = \"hunter2\\u0001\"", "control characters"),
        ("x = ['hunter2']", "must be a single value"),
    ] {
        let found = problems(load_file(&with_keys(&format!("secrets_dir = '{dir}'\n[secrets]\n{wrong}\n")), &[]));
        assert!(found.contains(said) && !found.contains("hunter2"), "{wrong}: {found}");
    }
    assert!(problems(load(&["--secrets-dir", "/absent"])).contains("can't be read"));
}
