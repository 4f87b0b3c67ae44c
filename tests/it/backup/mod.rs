//! Backups that are made under load, and what holds after one was restored (docs/backup.md). The oracle is the
//! downstream's own count.

mod commands;
mod flow;
mod pitr;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use actonce::app::SQLITE_FILE;
use serde_json::Value;

use crate::support::server::program;
use crate::support::{Options, Server, postgres};

/// A backup of a server's database: what its documented command makes.
pub(crate) fn back_up(server: &Server, name: &str) -> PathBuf {
    let file = server.data_dir().with_file_name(name);
    match server.database_url() {
        None => {
            let mut command = program();
            command.arg("backup").arg(&file).arg("--data-dir").arg(server.data_dir());
            succeed(&command.output().unwrap());
        }
        Some(url) => {
            let mut command = Command::new(binary("pg_dump"));
            command.args(["--format=custom", "--file"]).arg(&file);
            match postgres::as_admin(url) {
                Some(admin) => command.args(["--dbname", &admin]),
                None => {
                    command.args(["--enable-row-security", "--dbname", url]).env("PGOPTIONS", "-c actonce.tenants=*")
                }
            };
            succeed(&command.output().unwrap());
        }
    }
    file
}

/// Where a backup was put back: the options of a service on it. The keys are kept apart from the database.
pub(crate) fn put_back(server: &Server, backup: &Path, name: &str) -> Options {
    let folder = server.data_dir().with_file_name(name);
    std::fs::create_dir_all(&folder).unwrap();
    for file in std::fs::read_dir(server.data_dir()).unwrap() {
        let file = file.unwrap();
        if !file.file_name().to_string_lossy().starts_with(SQLITE_FILE) {
            std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
    }
    let database_url = server.database_url().map(|_| {
        let url = postgres::fresh_database().expect("there is a Postgres");
        let mut command = Command::new(binary("pg_restore"));
        command.args(["--exit-on-error", "--no-owner", "--dbname", &url]).arg(backup);
        succeed(&command.output().unwrap());
        url
    });
    if database_url.is_none() {
        std::fs::copy(backup, folder.join(SQLITE_FILE)).unwrap();
    }
    Options { database_url, ..Options::default() }.data_dir(&folder)
}

/// `actonce restore-epoch` on what was put back: exit code, report, and what it says on standard error.
pub(crate) fn restore_epoch(options: &Options, epoch_id: &str) -> (i32, Value, String) {
    let mut command = program();
    command.args(["restore-epoch", "--epoch-id", epoch_id, "--reason", "a disk died", "--data-dir"]);
    command.arg(options.data_dir.as_ref().unwrap());
    if let Some(url) = &options.database_url {
        command.env("DATABASE_URL", url);
    }
    let output = command.output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap(), report, String::from_utf8_lossy(&output.stderr).into_owned())
}

pub(crate) fn succeed(output: &Output) {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn binary(name: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/postgres");
    let output = Command::new(script).arg("bin").output().unwrap();
    Path::new(String::from_utf8(output.stdout).unwrap().trim()).join(name)
}
