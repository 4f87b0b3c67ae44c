//! Secrets that tools name (`secret_ref`) and never see: from the table `[secrets]` of the configuration
//! file, or from a directory with a file for each.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::args::ServeArgs;
use super::file::{self, Problems, Section};
use super::secret::Secret;
use crate::domain::ids::{Name, Tenant};
use crate::limits;

/// A name, and the one tenant that it is for, or `None` for all.
pub type SecretKey = (Option<Tenant>, String);

/// The named secrets. Each has one value, or two while it is replaced, the newest first.
#[derive(Clone, Default)]
pub struct NamedSecrets(BTreeMap<SecretKey, Secret<Vec<Box<str>>>>);

impl NamedSecrets {
    /// Names, tenants and values.
    pub fn iter(&self) -> impl Iterator<Item = (&SecretKey, &[Box<str>])> {
        self.0.iter().map(|(key, values)| (key, values.expose().as_slice()))
    }

    /// The names alone, `tenant/name` where a secret is for one tenant.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let show = |(tenant, name): &SecretKey| match tenant {
            Some(tenant) => format!("{}/{name}", tenant.as_str()),
            None => name.clone(),
        };
        self.0.keys().map(show).collect()
    }

    fn add(&mut self, tenant: Option<Tenant>, name: &str, values: &Secret<Vec<Box<str>>>, problems: &mut Problems) {
        if self.0.insert((tenant, name.to_owned()), values.clone()).is_some() {
            problems.push(format!("the secret `{name}` is given twice"));
        }
        if self.0.len() == limits::NAMED_SECRETS.saturating_add(1) {
            problems.push(format!("at most {} named secrets", limits::NAMED_SECRETS));
        }
    }
}

impl fmt::Debug for NamedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Reads all of them.
pub(super) fn named(args: &ServeArgs, file: &mut Section, problems: &mut Problems) -> NamedSecrets {
    let mut secrets = NamedSecrets::default();
    let directory = file.pick(args.secrets_dir.as_ref(), "ACTONCE_SECRETS_DIR", "secrets_dir", problems);
    let mut section = file.section("secrets", problems);
    if !section.names().is_empty() {
        problems.note("secrets", true, "");
    }
    for name in section.names() {
        one_of_the_file(&mut section, &name, &mut secrets, problems);
    }
    section.finish(problems);
    if let Some(directory) = directory {
        let path = PathBuf::from(directory.text.expose());
        let mut found = Vec::new();
        if let Err(fault) = files(&path, None, &mut found) {
            problems.push(format!("{}: {fault}", directory.from));
        }
        for (tenant, name, path) in found {
            match check(&name).and_then(|()| content(&path)) {
                Ok(values) => secrets.add(tenant, &name, &values, problems),
                Err(fault) => problems.push(format!("{}: the secret `{name}` {fault}", directory.from)),
            }
        }
    }
    secrets
}

/// `name = "value"`, or `name = { value = "…" }` or `{ file = "…" }`, with `tenants = ["a"]` for these
/// tenants alone.
fn one_of_the_file(section: &mut Section, name: &str, secrets: &mut NamedSecrets, problems: &mut Problems) {
    if let Err(fault) = check(name) {
        problems.push(format!("`secrets.{name}` in the configuration file: {fault}"));
    }
    if !section.is_table(name) {
        let values = section.text(name, problems).and_then(|given| given.parse(problems, values));
        if let Some(values) = values {
            secrets.add(None, name, &values, problems);
        }
        return;
    }
    let mut table = section.section(name, problems);
    let (value, path) = (table.text("value", problems), table.text("file", problems));
    let tenants = table.pick_list(None, "", "tenants", problems);
    let found = match (value, path) {
        (Some(value), None) => value.parse(problems, values),
        (None, Some(path)) => path.parse(problems, |path| content(Path::new(path))),
        _ => {
            table.problem("must have a value or a file", problems);
            None
        }
    };
    table.finish(problems);
    let Some(found) = found else { return };
    let Some((tenants, from)) = tenants else { return secrets.add(None, name, &found, problems) };
    for tenant in tenants {
        match Tenant::new(&tenant) {
            Ok(tenant) => secrets.add(Some(tenant), name, &found, problems),
            Err(fault) => problems.push(format!("{from}: a name of a tenant {fault}")),
        }
    }
}

/// The files of a directory; those in a directory below it are for the tenant that it is called after.
/// What starts with a dot is left out: that is how secrets are mounted under a name that can be swapped.
fn files(
    directory: &Path,
    tenant: Option<&Tenant>,
    found: &mut Vec<(Option<Tenant>, String, PathBuf)>,
) -> Result<(), String> {
    let fault = |error: std::io::Error| format!("{} can't be read: {error}", directory.display());
    for entry in std::fs::read_dir(directory).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let name = entry.file_name().into_string().map_err(|_| "has a file whose name is not UTF-8".to_owned())?;
        if name.starts_with('.') {
            continue;
        }
        let path = entry.path();
        let is_directory = std::fs::metadata(&path).map_err(fault)?.is_dir();
        match (is_directory, tenant) {
            (true, None) => {
                let tenant = Tenant::new(&name).map_err(|fault| format!("the name of a tenant's directory {fault}"))?;
                files(&path, Some(&tenant), found)?;
            }
            (true, Some(_)) => return Err(format!("{} is a directory, not a secret", path.display())),
            (false, _) if found.len() > limits::NAMED_SECRETS => return Ok(()),
            (false, tenant) => found.push((tenant.cloned(), name, path)),
        }
    }
    Ok(())
}

fn check(name: &str) -> Result<(), String> {
    Name::new(name).map(drop).map_err(|fault| fault.to_string())
}

fn content(path: &Path) -> Result<Secret<Vec<Box<str>>>, String> {
    let bytes = file::read(path, limits::KEY_FILE_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| "must be UTF-8".to_owned())?;
    values(&text).map_err(str::to_owned)
}

/// One line, or two while a secret is replaced: the new one first. Lines that start with `@` name the hosts
/// that a declarative adapter may send it to; without any, it signs and is sent nowhere.
fn values(text: &str) -> Result<Secret<Vec<Box<str>>>, &'static str> {
    let mut lines: Vec<Box<str>> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(Box::from).collect();
    if lines.iter().any(|line| line.chars().any(char::is_control)) {
        return Err("must not contain control characters");
    }
    // Hosts behind the values, in whatever order they were written.
    lines.sort_by_key(|line| line.starts_with('@'));
    let hosts = lines.iter().filter(|line| line.starts_with('@')).count();
    if hosts > limits::SECRET_HOSTS {
        return Err("may name at most 16 hosts");
    }
    if (1..=limits::TOOL_SECRETS).contains(&lines.len().saturating_sub(hosts)) {
        Ok(Secret::new(lines))
    } else {
        Err("must have one line, or two while it is replaced")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_lines() {
        let read = |text: &str| values(text).map(|values| values.expose().iter().map(ToString::to_string).collect());
        assert_eq!(read("a\n"), Ok(vec!["a".to_owned()]));
        assert_eq!(read("new\r\n\r\nold\n"), Ok(vec!["new".to_owned(), "old".to_owned()]));
        assert_eq!(read("a\n@api.example"), Ok(vec!["a".to_owned(), "@api.example".to_owned()]));
        for text in ["", "\n", "@api.example", "a\nb\nc", "a\0"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
