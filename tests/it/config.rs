//! `actonce config`, as the program runs it: where each setting may be given, which place wins, and that no secret
//! is ever shown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::certificates::Authority;
use crate::support::server::program;

const SECRET: &str = "hunter2hunter2hunter2hunter2hunter2hunter2";
const DATA_KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A setting: its variable, its place in the file, and what it is given as in the file, in the environment and on
/// the command line.
type Case = (&'static str, &'static str, [&'static str; 3]);

/// Settings that can all be given at once.
const TOGETHER: &[Case] = &[
    ("ACTONCE_LISTEN", "listen", ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]),
    ("ACTONCE_DATA_DIR", "data_dir", ["/a", "/b", "/c"]),
    ("ACTONCE_BASE_PATH", "base_path", ["/a", "/b", "/c"]),
    ("DATABASE_URL", "database_url", ["postgres://a/x", "postgres://b/x", "sqlite:/c.db"]),
    ("DATABASE_POOLING", "database_pooling", ["session", "transaction", "session"]),
    ("ACTONCE_LOG_FORMAT", "log_format", ["pretty", "json", "pretty"]),
    ("ACTONCE_LOG", "log", ["warn", "error", "debug"]),
    ("ACTONCE_CHECKPOINT_SECONDS", "checkpoint_seconds", ["1", "2", "3"]),
    ("ACTONCE_AD_HOC_TOOLS", "ad_hoc_tools", ["a", "b", "*"]),
    ("ACTONCE_ADAPTER_ALLOW_HTTP", "adapter_allow_http", ["true", "false", "true"]),
    ("ACTONCE_ADAPTER_ALLOW_NETWORKS", "adapter_allow_networks", ["10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24"]),
    ("ACTONCE_SECRETS_DIR", "secrets_dir", ["DIR/a", "DIR/b", "DIR/c"]),
    ("ACTONCE_REQUEST_TIMEOUT_SECONDS", "request_timeout_seconds", ["1", "2", "3"]),
    ("ACTONCE_DRAIN_SECONDS", "drain_seconds", ["1", "2", "3"]),
    ("ACTONCE_MAX_IN_FLIGHT", "max_in_flight", ["1", "2", "3"]),
    ("ACTONCE_POSTGRES_CONNECTIONS", "postgres_connections", ["1", "2", "3"]),
    ("ACTONCE_MAX_CONNECTIONS", "max_connections", ["1", "2", "3"]),
    ("ACTONCE_HEADER_TIMEOUT_SECONDS", "header_timeout_seconds", ["1", "2", "3"]),
    ("ACTONCE_IDLE_TIMEOUT_SECONDS", "idle_timeout_seconds", ["1", "2", "3"]),
    ("ACTONCE_RATE_TENANT_PER_SECOND", "rate_tenant_per_second", ["1", "2", "3"]),
    ("ACTONCE_RATE_TENANT_BURST", "rate_tenant_burst", ["4", "5", "6"]),
    ("ACTONCE_RATE_PRINCIPAL_PER_SECOND", "rate_principal_per_second", ["1", "2", "3"]),
    ("ACTONCE_RATE_PRINCIPAL_BURST", "rate_principal_burst", ["4", "5", "6"]),
    ("ACTONCE_QUOTA_TENANT_OPEN_EFFECTS", "quota_tenant_open_effects", ["1", "2", "3"]),
    ("ACTONCE_QUOTA_PRINCIPAL_OPEN_EFFECTS", "quota_principal_open_effects", ["1", "2", "3"]),
    ("ACTONCE_TIMING", "timing", ["on", "off", "on"]),
    ("ACTONCE_OTLP_ENDPOINT", "otlp_endpoint", ["http://a:1", "http://b:2", "http://c:3"]),
    ("ACTONCE_OTLP_SAMPLE_PERCENT", "otlp_sample_percent", ["1", "2", "3"]),
    ("ACTONCE_JWT_ISSUER", "auth.issuer", ["a", "b", "c"]),
    ("ACTONCE_JWT_AUDIENCE", "auth.audience", ["a", "b", "c"]),
    ("ACTONCE_JWT_TENANT_CLAIM", "auth.tenant_claim", ["a", "b", "c"]),
    ("ACTONCE_JWT_SCOPES_CLAIM", "auth.scopes_claim", ["d", "e", "f"]),
    ("ACTONCE_JWT_LEEWAY_SECONDS", "auth.leeway_seconds", ["1", "2", "3"]),
    ("ACTONCE_JWKS_RSA_ALGORITHM", "auth.jwks.rsa_algorithm", ["RS256", "RS384", "PS512"]),
    ("ACTONCE_JWKS_REFRESH_SECONDS", "auth.jwks.refresh_seconds", ["1", "2", "3"]),
    ("ACTONCE_JWKS_MIN_REFRESH_SECONDS", "auth.jwks.min_refresh_seconds", ["1", "2", "3"]),
    ("ACTONCE_JWKS_ALLOW_HTTP", "auth.jwks.allow_http", ["true", "false", "true"]),
    ("ACTONCE_JWKS_URL", "auth.jwks.url", ["https://a/", "https://b/", "https://c/"]),
    ("ACTONCE_TLS_CERTIFICATE_FILE", "tls_certificate_file", ["DIR/1.pem", "DIR/2.pem", "DIR/3.pem"]),
    ("ACTONCE_TLS_KEY_FILE", "tls_key_file", ["DIR/1.pem", "DIR/2.pem", "DIR/3.pem"]),
    ("ACTONCE_DATA_KEY_FILE", "data_key_file", ["DIR/b/key", "DIR/c/key", "DIR/key"]),
    ("ACTONCE_EVIDENCE_KEY_FILE", "evidence_key_file", ["DIR/b/key", "DIR/c/key", "DIR/key"]),
];

/// Each excludes one of the others.
const ALONE: &[Case] = &[
    ("ACTONCE_DEV", "dev", ["false", "true", "true"]),
    ("DATABASE_DIRECT_URL", "database_direct_url", ["postgres://a/x", "postgres://b/x", "postgres://c/x"]),
    ("ACTONCE_JWKS_FILE", "auth.jwks.file", ["/a", "/b", "/c"]),
    ("ACTONCE_DATA_KEY", "data_key", [DATA_KEY, DATA_KEY, ""]),
    ("ACTONCE_EVIDENCE_KEY", "evidence_key", [DATA_KEY, DATA_KEY, ""]),
    (
        "ACTONCE_ALIAS_KEYS",
        "alias_keys",
        ["", "a:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", ""],
    ),
    ("ACTONCE_JWT_HS256_SECRET", "", ["", SECRET, ""]),
    ("ACTONCE_JWT_SECRET_FILE", "", ["", "DIR/long", "DIR/long"]),
    ("ACTONCE_JWT_PUBLIC_KEY_FILE", "", ["", "PEM.public.pem", "PEM.public.pem"]),
    ("ACTONCE_JWT_PRIVATE_KEY_FILE", "", ["", "PEM.private.pem", "PEM.private.pem"]),
    ("ACTONCE_JWT_ALGORITHM", "", ["", "HS256", "HS256"]),
    ("ACTONCE_JWT_KID", "", ["", "a", "b"]),
    ("ACTONCE_CONFIG", "", ["", "DIR/empty.toml", "DIR/empty.toml"]),
];

struct Ground(tempfile::TempDir);

impl Ground {
    fn new() -> Self {
        let ground = Self(tempfile::tempdir().unwrap());
        for folder in ["a", "b", "c"] {
            std::fs::create_dir(ground.path().join(folder)).unwrap();
        }
        for (name, content) in
            [("key", DATA_KEY), ("b/key", DATA_KEY), ("c/key", DATA_KEY), ("long", SECRET), ("empty.toml", "")]
        {
            std::fs::write(ground.path().join(name), content).unwrap();
        }
        let authority = Authority::new();
        for name in ["1.pem", "2.pem", "3.pem"] {
            let issued = authority.issue();
            std::fs::write(ground.path().join(name), issued.certificate + &issued.key).unwrap();
        }
        ground
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn value(&self, text: &str) -> String {
        let pem = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/keys/test-p256");
        text.replace("DIR", self.path().to_str().unwrap()).replace("PEM", pem)
    }

    /// A file with these values, by their places.
    fn file<'a>(&self, values: impl Iterator<Item = (&'a str, String)>) -> String {
        let mut tables: BTreeMap<&str, String> = BTreeMap::new();
        for (place, value) in values {
            let (table, key) = place.rsplit_once('.').unwrap_or(("", place));
            writeln!(tables.entry(table).or_default(), "{key} = '{value}'").unwrap();
        }
        let text = tables.into_iter().map(
            |(table, lines)| {
                if table.is_empty() { lines } else { format!("[{table}]\n{lines}") }
            },
        );
        let path = self.path().join("actonce.toml");
        std::fs::write(&path, text.collect::<String>()).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn flag(variable: &str, value: &str) -> String {
    let name = variable.strip_prefix("ACTONCE_").unwrap_or(variable).to_ascii_lowercase().replace('_', "-");
    format!("--{name}={value}")
}

/// What `actonce config show --json` says, by variable or place.
fn shown(command: &mut Command) -> BTreeMap<String, (String, String)> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let settings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let of = |setting: &Value| {
        let name = setting["variable"].as_str().or(setting["key"].as_str()).unwrap().to_owned();
        let value = setting["value"].as_str().unwrap_or_default().to_owned();
        (name, (value, setting["origin"].as_str().unwrap().to_owned()))
    };
    settings.iter().map(of).collect()
}

fn show() -> Command {
    let mut command = program();
    command.args(["config", "show", "--json"]);
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn of_each_setting_the_flag_outranks_the_variable_which_outranks_the_file() {
    let ground = Ground::new();
    let file = ground.file(TOGETHER.iter().map(|(_, place, [value, ..])| (*place, ground.value(value))));
    let mut command = show();
    command.env("ACTONCE_CONFIG", &file);
    let check = |command: &mut Command, which: usize, origin: &str| {
        let shown = shown(command);
        for (variable, _, values) in TOGETHER {
            let expected = (ground.value(values[which]), origin.to_owned());
            assert_eq!(shown[*variable], expected, "{variable}");
        }
        assert_eq!(shown["ACTONCE_CONFIG"], (file.clone(), "env".to_owned()));
    };
    check(&mut command, 0, "file");
    command.envs(TOGETHER.iter().map(|(variable, _, values)| (*variable, ground.value(values[1]))));
    check(&mut command, 1, "env");
    command.args(TOGETHER.iter().map(|(variable, _, values)| flag(variable, &ground.value(values[2]))));
    check(&mut command, 2, "flag");
}

/// The same, one at a time, beside what a deployment needs at least.
#[test]
fn settings_that_exclude_others_keep_the_same_order() {
    let ground = Ground::new();
    for (variable, place, values) in ALONE {
        let (mut base, mut file) = (show(), Vec::new());
        base.args(["--data-dir", ground.path().join("data").to_str().unwrap()]);
        if !variable.contains("DATA_KEY") && !variable.contains("DEV") {
            base.env("ACTONCE_DATA_KEY", DATA_KEY);
        }
        match *variable {
            "ACTONCE_DEV"
            | "ACTONCE_JWT_HS256_SECRET"
            | "ACTONCE_JWT_SECRET_FILE"
            | "ACTONCE_JWT_PUBLIC_KEY_FILE"
            | "ACTONCE_JWT_PRIVATE_KEY_FILE" => {}
            "DATABASE_DIRECT_URL" => drop(
                base.env("ACTONCE_JWT_HS256_SECRET", SECRET)
                    .env("DATABASE_URL", "postgres://pooler/x")
                    .env("DATABASE_POOLING", "transaction"),
            ),
            "ACTONCE_JWKS_FILE" => file.push(("auth.jwks.url", "https://a/".to_owned())),
            _ => drop(base.env("ACTONCE_JWT_HS256_SECRET", SECRET)),
        }
        if variable.ends_with("KEY_FILE") {
            base.env("ACTONCE_JWT_ALGORITHM", "ES256");
        } else if *variable == "ACTONCE_JWT_SECRET_FILE" {
            base.env("ACTONCE_JWT_ALGORITHM", "HS256");
        }
        let is_secret = ["_KEY", "_KEYS", "_SECRET", "_DIRECT_URL"].iter().any(|end| variable.ends_with(end));
        if !place.is_empty() && !values[0].is_empty() {
            let needs = *variable == "ACTONCE_DEV";
            if needs {
                base.env("ACTONCE_JWT_HS256_SECRET", SECRET).env("ACTONCE_DATA_KEY", DATA_KEY);
            }
            if *variable == "ACTONCE_JWKS_FILE" {
                file.clear();
                base.env("ACTONCE_JWT_KID", "a").env("ACTONCE_JWT_HS256_SECRET", SECRET);
            }
            file.push((place, ground.value(values[0])));
            let path = ground.file(file.clone().into_iter());
            base.env("ACTONCE_CONFIG", path);
            let shown = shown(&mut base);
            assert_eq!(shown[*variable].1, "file", "{variable}");
            let expected = if is_secret { "[hidden]".to_owned() } else { ground.value(values[0]) };
            assert_eq!(shown[*variable].0, expected, "{variable}");
            if needs {
                base.env_remove("ACTONCE_JWT_HS256_SECRET").env_remove("ACTONCE_DATA_KEY");
            }
        }
        for (which, origin) in [(1, "env"), (2, "flag")] {
            if values[which].is_empty() {
                continue;
            }
            let value = ground.value(values[which]);
            if origin == "env" {
                base.env(variable, value)
            } else {
                base.arg(flag(variable, &value))
            };
            let shown = shown(&mut base);
            assert_eq!(shown[*variable].1, origin, "{variable}");
            if *variable == "ACTONCE_ALIAS_KEYS" {
                assert_eq!(shown[*variable].0, "a", "the id alone");
            } else if is_secret {
                assert_eq!(shown[*variable].0, "[hidden]");
            } else {
                assert_eq!(shown[*variable].0, ground.value(values[which]), "{variable}");
            }
        }
    }
}

#[test]
fn every_setting_is_in_these_tests_and_in_the_help() {
    let ground = Ground::new();
    let mut command = show();
    command.env("ACTONCE_JWT_HS256_SECRET", SECRET).env("ACTONCE_DATA_KEY", DATA_KEY);
    let all = shown(&mut command);
    let help = text(&program().args(["serve", "--help"]).output().unwrap());
    for name in all.keys() {
        assert!(help.contains(name.as_str()), "{name} is not in the help");
        assert!(
            include_str!("../../docs/configuration.md").contains(&format!("`{name}`"))
                || name.starts_with("auth.")
                || name == "secrets",
            "{name}"
        );
        let tested = TOGETHER.iter().chain(ALONE).any(|(variable, ..)| variable == name);
        let of_the_file = ["secrets", "auth.keys", "quotas.tenants", "quotas.principals"];
        assert!(tested || of_the_file.contains(&name.as_str()), "{name}");
    }
    for (variable, place, _) in TOGETHER.iter().chain(ALONE) {
        assert!(all.contains_key(*variable), "{variable} at {place}");
        assert_eq!(all[*variable].1 == "env", matches!(*variable, "ACTONCE_JWT_HS256_SECRET" | "ACTONCE_DATA_KEY"));
    }
    // What stands in the file alone.
    let path = ground.path().join("actonce.toml");
    std::fs::write(
        &path,
        format!("[quotas.tenants]\nacme = 3\nvault = 0\n[quotas.principals]\nacme = 2\n[secrets]\nx = '{SECRET}'\n[[auth.keys]]\nkid = 'k'\nalgorithm = 'HS256'\nsecret = '{SECRET}'\n"),
    )
    .unwrap();
    let mut command = show();
    let shown = shown(command.env("ACTONCE_DATA_KEY", DATA_KEY).arg("--config").arg(&path));
    assert_eq!(shown["quotas.tenants"], ("acme=3,vault=0".to_owned(), "file".to_owned()));
    assert_eq!(shown["quotas.principals"], ("acme=2".to_owned(), "file".to_owned()));
    assert_eq!(shown["secrets"], ("x".to_owned(), "file".to_owned()));
    assert_eq!(shown["auth.keys"], ("k (HS256)".to_owned(), "file".to_owned()));
}

#[test]
fn what_is_outranked_is_not_shown_as_in_use() {
    let ground = Ground::new();
    let file = ground.file([("data_key", DATA_KEY.to_owned()), ("auth.jwks.url", "https://a/".to_owned())].into_iter());
    let mut command = show();
    command.args(["--config", &file, "--jwks-file", "/x", "--data-key-file", &ground.value("DIR/key")]);
    let shown = shown(&mut command);
    for (gone, used) in [("ACTONCE_DATA_KEY", "ACTONCE_DATA_KEY_FILE"), ("ACTONCE_JWKS_URL", "ACTONCE_JWKS_FILE")] {
        assert_eq!((shown[gone].1.as_str(), shown[used].1.as_str()), ("default", "flag"));
    }
}

#[test]
fn check_tells_all_problems_at_once_and_writes_nothing() {
    let ground = Ground::new();
    let file = ground.file(
        [("listen", "here"), ("listem", "x"), ("auth.issuers", "x"), ("rate_tenant_burst", "0")]
            .map(|(place, value)| (place, value.to_owned()))
            .into_iter(),
    );
    let output = program()
        .args(["config", "check", "--config", &file, "--drain-seconds", "soon"])
        .env("ACTONCE_LOG_FORMAT", "xml")
        .env("ACTONCE_MAX_CONNECTIONS", "-1")
        .output()
        .unwrap();
    let found = text(&output);
    assert_eq!(output.status.code(), Some(1), "{found}");
    for expected in [
        "`listen` in the configuration file: must be an IP address",
        "`listem` in the configuration file: unknown",
        "`auth.issuers` in the configuration file: unknown",
        "`rate_tenant_burst` in the configuration file: must be a whole number from 1",
        "--drain-seconds (ACTONCE_DRAIN_SECONDS): must be a whole number",
        "--log-format (ACTONCE_LOG_FORMAT): must be json or pretty",
        "--max-connections (ACTONCE_MAX_CONNECTIONS): must be a whole number",
        "no key for tokens",
        "no data key",
    ] {
        assert!(found.contains(expected), "{expected}\nnot in: {found}");
    }
    let data = ground.path().join("data");
    for verb in ["check", "show"] {
        let output = program().args(["config", verb, "--dev", "--data-dir"]).arg(&data).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
    assert!(!data.exists(), "no key was made");
    let output = program().args(["config", "check", "--listem", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "wrong use");
}

/// Platforms make variables of our name by themselves.
#[test]
fn variables_that_are_no_settings_are_told_and_do_no_harm() {
    let output = program()
        .args(["config", "check"])
        .env("ACTONCE_JWT_HS256_SECRET", SECRET)
        .env("ACTONCE_DATA_KEY", DATA_KEY)
        .env("ACTONCE_PORT", "tcp://10.0.0.1:8080")
        .env("ACTONCE_LISTN", SECRET)
        .output()
        .unwrap();
    let found = text(&output);
    assert_eq!(output.status.code(), Some(0), "{found}");
    assert!(found.contains("ACTONCE_PORT is no setting") && found.contains("ACTONCE_LISTN is no setting"), "{found}");
    assert!(!found.contains(SECRET) && !found.contains("10.0.0.1"), "{found}");
}

#[test]
fn no_secret_is_in_any_output() {
    let ground = Ground::new();
    let file = ground.path().join("actonce.toml");
    let secrets = format!(
        "database_url = 'postgres://me:{SECRET}@db.example/x'\ndatabase_pooling = 'transaction'\n\
         database_direct_url = 'postgres://me:{SECRET}@db.example/y'\ndata_key = '{DATA_KEY}'\nevidence_key = '{DATA_KEY}'\n\
         [secrets]\nvendor = '{SECRET}'\n[auth.jwks]\nurl = 'https://issuer.example/jwks?token={SECRET}'\n\
         [[alias_keys]]\nid = 'a'\nkey = '{DATA_KEY}'\n[[auth.keys]]\nkid = 'k'\nalgorithm = 'HS256'\nsecret = '{SECRET}'\n"
    );
    // Good, and with a problem in every line that has a secret.
    let spoiled = secrets.replace("postgres://", "mysql://").replace(DATA_KEY, SECRET).replace("HS256", "ES256");
    let spoiled = spoiled.replace("https://", "ftp://");
    for (content, code) in [(&secrets, 0), (&spoiled, 1), (&format!("{secrets}x = {SECRET}"), 1)] {
        std::fs::write(&file, content).unwrap();
        for command in
            [["config", "check"].as_slice(), &["config", "show"], &["config", "show", "--json"], &["doctor", "--json"]]
        {
            let output = program().args(command).arg("--config").arg(&file).output().unwrap();
            let found = text(&output);
            assert!(!found.contains(SECRET) && !found.contains(DATA_KEY), "{command:?}: {found}");
            if command[0] == "config" {
                assert_eq!(output.status.code(), Some(code), "{found}");
            }
        }
    }
    let environment = [
        ("DATABASE_URL", format!("postgres://me:{SECRET}@db.example/x")),
        ("DATABASE_POOLING", "transaction".to_owned()),
        ("DATABASE_DIRECT_URL", format!("postgres://me:{SECRET}@db.example/y")),
        ("ACTONCE_JWT_HS256_SECRET", SECRET.to_owned()),
        ("ACTONCE_DATA_KEY", DATA_KEY.to_owned()),
        ("ACTONCE_ALIAS_KEYS", format!("a:{DATA_KEY}")),
        ("ACTONCE_EVIDENCE_KEY", DATA_KEY.to_owned()),
        ("ACTONCE_JWKS_URL", format!("https://issuer.example/jwks?token={SECRET}")),
        ("ACTONCE_JWT_KID", "own".to_owned()),
    ];
    for verb in
        [["config", "show"].as_slice(), &["serve", "--help"], &["config", "show", "--help"], &["doctor", "--help"]]
    {
        let output = program().args(verb).envs(environment.clone()).output().unwrap();
        let found = text(&output);
        assert!(output.status.success() && !found.contains(SECRET) && !found.contains(DATA_KEY), "{verb:?}: {found}");
    }
}
