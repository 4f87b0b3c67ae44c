//! The keys of the service itself, and those that `--dev` makes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use super::args::Environment;
use super::file::{self, Found, Given, Problems, Section, from_environment};
use super::keys::Tokens;
use super::secret::Secret;
use super::{ConfigError, dev, values};
use crate::auth::{self, Algorithm, Key};
use crate::limits;

/// A 32-byte key given as text, or as a file with that text.
fn one_key(text: Option<Given>, path: Option<Given>, problems: &mut Problems) -> Found<Secret<[u8; 32]>> {
    given_or_filed(text, path, problems, |text| values::key(text).map_err(str::to_owned))
}

/// A secret given as text, or as a file with that text.
fn given_or_filed<T>(
    text: Option<Given>,
    path: Option<Given>,
    problems: &mut Problems,
    read: impl Fn(&str) -> Result<T, String>,
) -> Found<T> {
    match (text, path) {
        (Some(text), Some(path)) if text.in_file == path.in_file => {
            problems.push(format!("{} and {}: give one of them", text.from, path.from));
            Found::Wrong
        }
        (Some(text), path) if path.as_ref().is_none_or(|path| path.in_file) => {
            problems.outranks(path.as_ref());
            Found::given(text.parse(problems, read))
        }
        (text, Some(path)) => {
            problems.outranks(text.as_ref());
            Found::given(path.parse(problems, |path| {
                let content = file::read(Path::new(path), limits::KEY_FILE_BYTES)?;
                read(&String::from_utf8_lossy(&content))
            }))
        }
        (_, None) => Found::Absent,
    }
}

/// The id of the alias key that `--dev` makes.
pub(super) const DEV_ALIAS_ID: &str = "dev";

/// A key that aliases are made with (protocol §6).
#[derive(Debug, Clone)]
pub struct AliasKey {
    /// The id that stands in each alias.
    pub id: String,
    /// The key.
    pub key: Secret<[u8; 32]>,
}

/// The alias keyring, the active key first.
pub(super) fn aliases(environment: &Environment, file: &mut Section, problems: &mut Problems) -> Vec<AliasKey> {
    let listed = file.sections("alias_keys", problems);
    let mut keys = Vec::new();
    if !listed.is_empty() {
        problems.note("ACTONCE_ALIAS_KEYS", true, "");
    }
    for mut section in listed {
        let id = section.text("id", problems).and_then(|given| given.parse(problems, alias_id));
        let (text, path) = (section.text("key", problems), section.text("key_file", problems));
        let key = one_key(text, path, problems);
        if id.is_none() || key.is_absent() {
            section.problem("must have an id, and a key or a key_file", problems);
        }
        section.finish(problems);
        keys.extend(id.zip(key.good()).map(|(id, key)| AliasKey { id, key }));
    }
    let ring = from_environment(environment.alias_keys.as_ref(), "ACTONCE_ALIAS_KEYS");
    if let Some(given) = file::noted(ring, "ACTONCE_ALIAS_KEYS", problems) {
        keys = given.parse(problems, alias_list).unwrap_or_default();
    }
    let ids: BTreeSet<_> = keys.iter().map(|key| key.id.as_str()).collect();
    if ids.len() < keys.len() || keys.len() > limits::ALIAS_KEYS {
        problems.push(format!("alias keys: at most {}, each with an id of its own", limits::ALIAS_KEYS));
    }
    keys
}

fn alias_list(text: &str) -> Result<Vec<AliasKey>, String> {
    let one = |item: &str| {
        let (id, key) = item.split_once(':').ok_or("must be id:key by comma")?;
        Ok(AliasKey { id: alias_id(id)?, key: values::key(key)? })
    };
    text.split(',').map(|item| one(item.trim())).collect()
}

fn alias_id(text: &str) -> Result<String, &'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=32).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err("must have ids of 1 to 32 letters, digits, - and _")
    }
}

/// The data keys.
#[derive(Debug, Clone)]
pub struct DataKeys {
    /// The one that everything new is made with.
    pub active: Secret<[u8; 32]>,
    /// The next or former ones: they open what was sealed under them.
    pub others: Vec<Secret<[u8; 32]>>,
}

impl DataKeys {
    fn one(active: Secret<[u8; 32]>) -> Self {
        Self { active, others: Vec::new() }
    }

    fn of(ring: &Secret<Vec<[u8; 32]>>) -> Option<Self> {
        let (active, others) = ring.expose().split_first()?;
        Some(Self { active: Secret::new(*active), others: others.iter().copied().map(Secret::new).collect() })
    }
}

/// The data keys.
pub(super) fn data_keys(
    path: Option<&String>,
    environment: &Environment,
    file: &mut Section,
    problems: &mut Problems,
) -> Found<DataKeys> {
    let text = file.pick_secret(environment.data_key.as_ref(), "ACTONCE_DATA_KEY", "data_key", problems);
    let path = file.pick(path, "ACTONCE_DATA_KEY_FILE", "data_key_file", problems);
    match given_or_filed(text, path, problems, values::data_keys) {
        Found::Good(ring) => Found::given(DataKeys::of(&ring)),
        Found::Wrong => Found::Wrong,
        Found::Absent => Found::Absent,
    }
}

/// The same for a command, from a configuration file whose other settings are a service's, or as `--dev` made one in the
/// data directory.
///
/// # Errors
/// There is none, or it can't be read.
pub fn data_keys_of(
    config: Option<&String>,
    path: Option<&String>,
    environment: &Environment,
    data_dir: &Path,
) -> Result<DataKeys, ConfigError> {
    let mut problems = Problems::default();
    problems.extend(environment.unreadable.iter().map(|variable| format!("{variable}: must be UTF-8")));
    let mut file = file::load(config, &mut problems);
    let keys = match data_keys(path, environment, &mut file, &mut problems) {
        Found::Absent if problems.is_empty() => match dev::existing(data_dir, dev::DATA_KEY) {
            Ok(key) => key.map(DataKeys::one),
            Err(fault) => {
                problems.push(fault);
                None
            }
        },
        found => found.good(),
    };
    if keys.is_none() && problems.is_empty() {
        problems.push("no data key: set ACTONCE_DATA_KEY or ACTONCE_DATA_KEY_FILE as the service has it".to_owned());
    }
    keys.filter(|_| problems.is_empty()).ok_or_else(|| ConfigError { problems: problems.into_sentences() })
}

/// The key that signs checkpoints and evidence.
pub(super) fn evidence_key(
    path: Option<&String>,
    environment: &Environment,
    file: &mut Section,
    problems: &mut Problems,
) -> Found<Secret<[u8; 32]>> {
    let text = file.pick_secret(environment.evidence_key.as_ref(), "ACTONCE_EVIDENCE_KEY", "evidence_key", problems);
    let path = file.pick(path, "ACTONCE_EVIDENCE_KEY_FILE", "evidence_key_file", problems);
    one_key(text, path, problems)
}

/// The same where `--dev` makes one.
pub(super) fn dev_evidence_key(
    given: Found<Secret<[u8; 32]>>,
    dev: DevKeys,
    data_dir: &Path,
    problems: &mut Problems,
) -> Option<Secret<[u8; 32]>> {
    match given.good() {
        None if dev != DevKeys::None => dev.key(data_dir, dev::EVIDENCE_KEY, problems),
        given => given,
    }
}

/// What becomes of the keys that `--dev` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DevKeys {
    /// It is a real deployment.
    None,
    /// They are made where they are missing.
    Make,
    /// Nothing is written: a missing one is stood for by zeros, in a configuration that is only looked at.
    Look,
}

impl DevKeys {
    fn key(self, data_dir: &Path, name: &str, problems: &mut Problems) -> Option<Secret<[u8; 32]>> {
        let key = match self {
            Self::Make => dev::key(data_dir, name),
            Self::Look | Self::None => dev::existing(data_dir, name).map(|found| found.unwrap_or(Secret::new([0; 32]))),
        };
        key.map_err(|fault| problems.push(format!("--dev: {fault}"))).ok()
    }
}

/// All keys that the configuration gives.
pub(super) struct Secrets {
    pub(super) tokens: Tokens,
    pub(super) data_keys: Found<DataKeys>,
    pub(super) alias_keys: Vec<AliasKey>,
}

impl Secrets {
    /// Says what is missing for a real deployment, or too much for `--dev`.
    pub(super) fn check(&self, dev: bool, listen: SocketAddr, problems: &mut Problems) {
        if dev {
            if !listen.ip().is_loopback() {
                problems.push(format!(
                    "--dev: may listen on this machine only (127.0.0.1 or [::1]), not on {listen}, as it \
                     shows a token with all rights"
                ));
            }
            if self.tokens.named {
                problems
                    .push("--dev: makes its own key for tokens; leave out --dev, or the keys and key sets".to_owned());
            }
            return;
        }
        if !self.tokens.named {
            problems.push(
                "no key for tokens: set ACTONCE_JWKS_URL or ACTONCE_JWKS_FILE, or ACTONCE_JWT_PUBLIC_KEY_FILE with \
                 ACTONCE_JWT_ALGORITHM, or ACTONCE_JWT_HS256_SECRET (at least 32 bytes), or [[auth.keys]] in the \
                 configuration file; to try the service out, start it with --dev, which makes all keys itself"
                    .to_owned(),
            );
        }
        if self.data_keys.is_absent() {
            problems.push(
                "no data key: set ACTONCE_DATA_KEY to 32 random bytes in hex or base64 (`openssl rand -hex 32`), or \
                 ACTONCE_DATA_KEY_FILE to a file with them, the same for all replicas; to try the service out, start \
                 it with --dev, which makes all keys itself"
                    .to_owned(),
            );
        }
    }

    /// Makes what `--dev` makes.
    pub(super) fn complete(
        mut self,
        dev: DevKeys,
        data_dir: &Path,
        problems: &mut Problems,
    ) -> Option<(auth::Settings, DataKeys, Vec<AliasKey>)> {
        let mut made = |name| dev.key(data_dir, name, problems);
        let is_dev = dev != DevKeys::None;
        if is_dev {
            self.tokens.keys = vec![dev_signing_key(&made(dev::SIGNING_KEY)?)?];
            if self.alias_keys.is_empty() {
                self.alias_keys = vec![AliasKey { id: DEV_ALIAS_ID.to_owned(), key: made(dev::ALIAS_KEY)? }];
            }
        }
        let data_keys = match self.data_keys.good() {
            Some(keys) => keys,
            None if is_dev => DataKeys::one(made(dev::DATA_KEY)?),
            None => return None,
        };
        let Tokens { keys, key_set, claims, .. } = self.tokens;
        Some((auth::Settings { keys, key_set, claims }, data_keys, self.alias_keys))
    }
}

/// What signs and verifies the tokens of `--dev`.
pub(super) fn dev_signing_key(key: &Secret<[u8; 32]>) -> Option<Key> {
    Key::from_secret(Some("dev"), Algorithm::HS256, key.expose()).ok()
}
