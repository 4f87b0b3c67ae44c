//! The arrows between the rooms of `src/` run one way (ARCHITECTURE.md, 1).

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::rust_files;

struct Source {
    /// Relative to `src/`, with `/`.
    path: String,
    /// Code without comments, one entry per line.
    lines: Vec<String>,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let of = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned()).collect();
        Source { path: path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/"), lines }
    };
    let found: Vec<Source> = rust_files("src").into_iter().map(of).collect();
    assert!(found.len() > 50, "src/ was found");
    found
}

/// Whether a word stands in a line as an identifier of its own.
fn names(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word)
        .any(|(at, _)| !is_part(line[..at].chars().next_back()) && !is_part(line[at + word.len()..].chars().next()))
}

/// Fails with every line that names one of the words outside the rooms where it may stand.
fn only_in(words: &[&str], rooms: &[&str]) {
    let mut seen = false;
    let mut faults = Vec::new();
    for source in sources() {
        let is_allowed = rooms.iter().any(|room| source.path == *room || source.path.starts_with(&format!("{room}/")));
        for (number, line) in source.lines.iter().enumerate() {
            if words.iter().any(|word| names(line, word)) {
                seen |= is_allowed;
                if !is_allowed {
                    faults.push(format!("src/{}:{}: {}", source.path, number + 1, line.trim()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{words:?} may stand in {rooms:?} only:\n{}", faults.join("\n"));
    assert!(seen, "{words:?} stands nowhere: this test shows nothing");
}

/// Fails with every line of a room that names one of the paths.
fn never_in(room: &str, paths: &[&str]) {
    let mut files = 0;
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| source.path.starts_with(&format!("{room}/"))) {
        files += 1;
        for (number, line) in source.lines.iter().enumerate() {
            let line = line.replace(' ', "");
            if paths.iter().any(|path| line.contains(&format!("crate::{path}")) || in_group(&line, path)) {
                faults.push(format!("src/{}:{}: {line}", source.path, number + 1));
            }
        }
    }
    assert!(files > 0, "src/{room} is there");
    assert!(faults.is_empty(), "src/{room} may not use {paths:?}:\n{}", faults.join("\n"));
}

/// `use crate::{a, b::c};`
fn in_group(line: &str, path: &str) -> bool {
    let Some(group) = line.strip_prefix("usecrate::{") else { return false };
    let parts = group.trim_end_matches(['}', ';']).split(',');
    parts.into_iter().any(|part| part == path || part.starts_with(&format!("{path}::")))
}

#[test]
fn sql_stands_in_the_store_alone() {
    only_in(&["sqlx"], &["store"]);
}

#[test]
fn connections_to_postgres_stand_behind_the_wall() {
    // `connect.rs` looks at the server before there is a store.
    let before = "store/postgres/connect.rs";
    only_in(&["PgPool", "PgPoolOptions", "PgListener"], &["store/postgres/wall", before]);
    only_in(&["acquire", "begin_with"], &["store/postgres/wall", before, "store/sqlite", "store/migrate.rs"]);
    // A use that is not had there has no end that is waited for; migrations and the beginning of a restore have sessions.
    let sessions = ["store/migrate.rs", "store/postgres/restore.rs"];
    only_in(&["PgConnection"], &["store/postgres/wall", before, sessions[0], sessions[1]]);
}

#[test]
fn http_stands_at_the_edge_alone() {
    only_in(&["axum", "tower_http", "utoipa_axum"], &["http", "console", "app.rs", "cli"]);
}

#[test]
fn outgoing_requests_stand_in_few_places() {
    only_in(&["reqwest"], &["auth", "outbound", "cli"]);
}

#[test]
fn the_domain_is_pure() {
    never_in("domain", &["store", "http", "engine", "service", "auth", "app", "cli", "config", "outbound", "support"]);
    for word in
        ["tokio", "sqlx", "axum", "reqwest", "Instant", "SystemTime", "random_id", "std::fs", "std::env", "std::net"]
    {
        for source in sources().iter().filter(|source| source.path.starts_with("domain/")) {
            for line in &source.lines {
                assert!(!names(line, word), "src/{}: {}", source.path, line.trim());
            }
        }
    }
}

#[test]
fn arrows_run_from_the_edge_to_the_store() {
    never_in("store", &["http", "engine", "service", "auth", "app", "cli", "config", "outbound"]);
    never_in("engine", &["http", "service", "auth", "app", "cli", "config", "outbound"]);
    never_in("service", &["http", "app", "cli", "config"]);
    never_in("http", &["app", "cli", "config"]);
    never_in("outbound", &["http", "store", "app", "cli"]);
    never_in("auth", &["http", "engine", "service", "store", "app", "cli", "config"]);
    never_in("config", &["http", "engine", "service", "store", "app", "cli"]);
    never_in("telemetry", &["http", "engine", "service", "store", "auth", "app", "cli", "config", "outbound"]);
}

#[test]
fn the_wall_clock_stands_in_few_places() {
    // Tokens carry an issuer's absolute times; on SQLite this machine's clock is the database's.
    only_in(&["SystemTime"], &["auth/mod.rs", "store/sqlite/clock.rs", "cli/demo/downstream.rs"]);
    for word in ["now_utc", "now_local", "now_v7", "new_v4"] {
        for source in sources().iter().filter(|source| source.path != "support.rs") {
            for line in &source.lines {
                assert!(!names(line, word), "src/{}: {}", source.path, line.trim());
            }
        }
    }
}
