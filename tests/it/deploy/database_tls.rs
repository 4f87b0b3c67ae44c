//! The stretch between service and database: what `sslmode` in the URL says is done.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::root;
use crate::scenarios::outage::Cluster;
use crate::support::StoreUnderTest;
use crate::support::postgres::{as_admin, run};
use crate::support::server::program;

fn key(name: &str) -> PathBuf {
    root().join("tests/data/keys").join(name)
}

/// Whether a migration is made with these parameters, and what it says else.
fn migrated(host: &str, cluster: &str, parameters: &str) -> Result<(), String> {
    let (_, rest) = cluster.split_once("@127.0.0.1").expect("the URL of a cluster");
    let url = format!("postgres://postgres@{host}{rest}?{parameters}");
    let output = program().arg("migrate").env("DATABASE_URL", url).output().unwrap();
    match output.status.code() {
        Some(0) => Ok(()),
        Some(2) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        other => panic!("{other:?}: {output:?}"),
    }
}

/// From now on the cluster offers TLS, with a certificate for `localhost`.
fn offer_tls(data: &Path, url: &str) {
    let owner = fs::metadata(data).unwrap();
    for name in ["test-localhost.pem", "test-localhost.private.pem"] {
        let file = data.join(name);
        fs::copy(key(name), &file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    for setting in ["cert_file = 'test-localhost.pem'", "key_file = 'test-localhost.private.pem'"] {
        run(url, &format!("ALTER SYSTEM SET ssl_{setting}"));
    }
    run(url, "ALTER SYSTEM SET ssl = on");
    run(url, "SELECT pg_reload_conf()");
}

#[test]
fn the_database_is_known_by_its_certificate_where_the_url_asks_for_that() {
    // Where the tests use a server that is given, there may be no binaries to make another.
    if !StoreUnderTest::has_postgres() || !Cluster::script().arg("bin").output().unwrap().status.success() {
        return;
    }
    let cluster = Cluster::new();
    let url = cluster.start(true);
    let verified = format!("sslmode=verify-full&sslrootcert={}", key("test-authority.pem").display());
    let refused = migrated("localhost", &url, &verified).unwrap_err();
    assert!(refused.contains("does not support TLS"), "{refused}");

    offer_tls(&cluster.dir.join("data"), &as_admin(&url).unwrap());
    let until = Instant::now() + Duration::from_secs(10);
    while let Err(error) = migrated("localhost", &url, &verified) {
        assert!(Instant::now() < until, "{error}");
        thread::sleep(Duration::from_millis(100));
    }
    // Another name, and an authority that is not known.
    let refused = migrated("127.0.0.1", &url, &verified).unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
    let refused = migrated("localhost", &url, "sslmode=verify-full").unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
    // This one encrypts and asks for no certificate: docs/security.md says so.
    migrated("127.0.0.1", &url, "sslmode=require").unwrap();
}
