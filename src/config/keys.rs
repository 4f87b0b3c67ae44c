//! Keys and claims of tokens, from the configuration.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::args::{AuthArgs, Environment};
use super::file::{self, Found, Given, Problems, Section};
use super::secret::Secret;
use super::values;
use crate::auth::{Algorithm, ClaimRules, Key, KeySetSettings, KeySetSource};
use crate::domain::ids::check_name;
use crate::limits;

/// What the configuration says about tokens.
pub(super) struct Tokens {
    pub(super) keys: Vec<Key>,
    pub(super) key_set: Option<KeySetSettings>,
    pub(super) claims: ClaimRules,
    /// Whether a key or key set is named at all, be it a good one or not.
    pub(super) named: bool,
}

/// Reads the keys and claims of tokens. `name` is issuer and audience where none is given.
pub(super) fn tokens(
    args: &AuthArgs,
    environment: &Environment,
    mut file: Section,
    name: &str,
    problems: &mut Problems,
) -> Tokens {
    let claims = claims(args, &mut file, name, problems);
    let listed = file.sections("keys", problems);
    let key_set_section = file.section("jwks", problems);
    file.finish(problems);
    let before = problems.len();
    let (key_set, has_set) = key_set(args, key_set_section, problems);
    if !listed.is_empty() {
        problems.note("auth.keys", true, "");
    }
    let single = single_key(args, environment, problems);
    let has_keys = !single.is_absent() || !listed.is_empty();
    let mut keys: Vec<_> = listed.into_iter().filter_map(|section| listed_key(section, problems)).collect();
    if !single.is_absent() {
        // An argument takes the place of the list.
        problems.outranked("auth.keys");
        keys = Vec::from_iter(single.good());
    }
    if problems.len() == before {
        check_ids(&keys, has_set, problems);
    }
    Tokens { keys, key_set, claims, named: has_set || has_keys }
}

/// Where a token can be of more than one key, it names its key, so every key needs a name.
fn check_ids(keys: &[Key], has_set: bool, problems: &mut Problems) {
    let named: BTreeSet<_> = keys.iter().filter_map(Key::kid).collect();
    if (has_set || keys.len() > 1) && named.len() < keys.len() {
        problems.push(
            "keys of tokens: each needs an id of its own (`kid`, ACTONCE_JWT_KID) where there are several, or a key set"
                .to_owned(),
        );
    }
}

fn claims(args: &AuthArgs, file: &mut Section, name: &str, problems: &mut Problems) -> ClaimRules {
    let mut rules = ClaimRules::new(name, name);
    let plain = |text: &str| check_name(text, limits::NAME_BYTES).map(|()| text.to_owned());
    if let Some(given) = file.pick(args.jwt_issuer.as_ref(), "ACTONCE_JWT_ISSUER", "issuer", problems) {
        rules.issuer = given.parse(problems, plain).unwrap_or_default();
    }
    if let Some(given) = file.pick(args.jwt_audience.as_ref(), "ACTONCE_JWT_AUDIENCE", "audience", problems) {
        rules.audience = given.parse(problems, plain).unwrap_or_default();
    }
    let tenant = file.pick(args.jwt_tenant_claim.as_ref(), "ACTONCE_JWT_TENANT_CLAIM", "tenant_claim", problems);
    if let Some(given) = tenant {
        rules.tenant_claim = given.parse(problems, claim_name).unwrap_or_default();
    }
    let scopes = file.pick(args.jwt_scopes_claim.as_ref(), "ACTONCE_JWT_SCOPES_CLAIM", "scopes_claim", problems);
    if let Some(given) = scopes {
        rules.scopes_claim = given.parse(problems, claim_name);
    }
    let scopes_claims = rules.scopes_claim.as_deref().map_or(vec!["scope", "scopes"], |name| vec![name]);
    if scopes_claims.contains(&rules.tenant_claim.as_str()) {
        problems.push("the claims of tenant and scopes must not be the same".to_owned());
    }
    let leeway = file.pick(args.jwt_leeway_seconds.as_ref(), "ACTONCE_JWT_LEEWAY_SECONDS", "leeway_seconds", problems);
    if let Some(given) = leeway {
        let read = |text: &str| values::number(text, 0..=limits::TOKEN_LEEWAY_MAX_SECONDS);
        rules.leeway_seconds = given.parse(problems, read).unwrap_or_default();
    }
    rules
}

fn claim_name(text: &str) -> Result<String, String> {
    if ["iss", "aud", "sub", "exp", "nbf", "iat", "jti"].contains(&text) {
        return Err("must be another claim than the registered ones".to_owned());
    }
    check_name(text, limits::NAME_BYTES).map(|()| text.to_owned()).map_err(|fault| fault.to_string())
}

/// Reads the key set, and says whether one is named at all.
fn key_set(args: &AuthArgs, mut file: Section, problems: &mut Problems) -> (Option<KeySetSettings>, bool) {
    let source = key_set_source(args, &mut file, problems);
    let rsa = file.pick(args.jwks_rsa_algorithm.as_ref(), "ACTONCE_JWKS_RSA_ALGORITHM", "rsa_algorithm", problems);
    let variable = "ACTONCE_JWKS_REFRESH_SECONDS";
    let every = file.pick(args.jwks_refresh_seconds.as_ref(), variable, "refresh_seconds", problems);
    let variable = "ACTONCE_JWKS_MIN_REFRESH_SECONDS";
    let least = file.pick(args.jwks_min_refresh_seconds.as_ref(), variable, "min_refresh_seconds", problems);
    file.finish(problems);
    if source.is_absent() {
        for left in [&rsa, &every, &least].into_iter().flatten() {
            problems.push(format!("{}: there is no key set that it could be for", left.from));
        }
    }
    let seconds = |text: &str| values::number(text, 1..=86_400).map(Duration::from_secs);
    let rsa = rsa.and_then(|given| given.parse(problems, rsa_algorithm));
    let every = every.and_then(|given| given.parse(problems, seconds));
    let least = least.and_then(|given| given.parse(problems, seconds));
    let named = !source.is_absent();
    let settings = source.good().map(|source| {
        let default = KeySetSettings::new(source);
        KeySetSettings {
            refresh_every: every.unwrap_or(default.refresh_every),
            refresh_at_most_every: least.unwrap_or(default.refresh_at_most_every),
            rsa_algorithm: rsa,
            ..default
        }
    });
    (settings, named)
}

fn key_set_source(args: &AuthArgs, file: &mut Section, problems: &mut Problems) -> Found<KeySetSource> {
    let url = file.pick(args.jwks_url.as_ref().map(Secret::expose), "ACTONCE_JWKS_URL", "url", problems);
    let path = file.pick(args.jwks_file.as_ref(), "ACTONCE_JWKS_FILE", "file", problems);
    let allow = file.pick(args.jwks_allow_http.as_ref(), "ACTONCE_JWKS_ALLOW_HTTP", "allow_http", problems);
    let allow_http = allow.and_then(|given| given.parse(problems, values::truth)).unwrap_or(false);
    match (url, path) {
        (Some(url), Some(path)) if url.in_file == path.in_file => {
            problems.push(format!("{} and {}: give one of them", url.from, path.from));
            Found::Wrong
        }
        // One of them in an argument outranks the other in the file.
        (Some(url), path) if path.as_ref().is_none_or(|path| path.in_file) => {
            problems.outranks(path.as_ref());
            Found::given(url.parse(problems, |text| KeySetSource::url(text, allow_http)))
        }
        (url, Some(path)) => {
            problems.outranks(url.as_ref());
            Found::Good(KeySetSource::File(PathBuf::from(path.text.expose())))
        }
        (_, None) => Found::Absent,
    }
}

fn rsa_algorithm(text: &str) -> Result<Algorithm, &'static str> {
    let rsa = Algorithm::RS256.family();
    let algorithm = values::algorithm(text).ok().filter(|algorithm| algorithm.family() == rsa);
    algorithm.ok_or("must be one of RS256, RS384, RS512, PS256, PS384, PS512")
}

/// What a key is made of.
#[derive(Clone, Copy)]
enum Material {
    Secret,
    SecretFile,
    PublicKeyFile,
    PrivateKeyFile,
}

/// The one key that arguments or environment give.
fn single_key(args: &AuthArgs, environment: &Environment, problems: &mut Problems) -> Found<Key> {
    let variable = "ACTONCE_JWT_HS256_SECRET";
    let secret = file::from_environment(environment.jwt_hs256_secret.as_ref(), variable);
    let secret = file::noted(secret, variable, problems);
    let mut given = Vec::from_iter(secret.map(|given| (Material::Secret, given)));
    let files = [
        (Material::SecretFile, &args.jwt_secret_file, "ACTONCE_JWT_SECRET_FILE"),
        (Material::PublicKeyFile, &args.jwt_public_key_file, "ACTONCE_JWT_PUBLIC_KEY_FILE"),
        (Material::PrivateKeyFile, &args.jwt_private_key_file, "ACTONCE_JWT_PRIVATE_KEY_FILE"),
    ];
    for (material, argument, variable) in files {
        let argued = file::noted(file::from_argument(argument.as_ref(), variable), variable, problems);
        given.extend(argued.map(|given| (material, given)));
    }
    let mut argued = |argument: &Option<String>, variable: &str| {
        file::noted(file::from_argument(argument.as_ref(), variable), variable, problems)
    };
    let algorithm = argued(&args.jwt_algorithm, "ACTONCE_JWT_ALGORITHM");
    let kid = argued(&args.jwt_kid, "ACTONCE_JWT_KID");
    let (material, source) = match given.as_slice() {
        [] => {
            for left in [&algorithm, &kid].into_iter().flatten() {
                problems.push(format!("{}: there is no key that it could be of", left.from));
            }
            return Found::Absent;
        }
        [(material, source)] => (*material, source),
        [(_, first), (_, second), ..] => {
            problems.push(format!("{} and {}: give one of them, or a list in the file", first.from, second.from));
            return Found::Wrong;
        }
    };
    let algorithm = match (material, algorithm) {
        (Material::Secret, None) => Some(Algorithm::HS256),
        (Material::Secret, Some(given)) => given.parse(problems, |text| match values::algorithm(text) {
            Ok(Algorithm::HS256) => Ok(Algorithm::HS256),
            _ => Err("must be HS256 or unset, as ACTONCE_JWT_HS256_SECRET says which it is"),
        }),
        (_, Some(given)) => given.parse(problems, values::algorithm),
        (_, None) => {
            problems.push(format!("{}: set ACTONCE_JWT_ALGORITHM to the algorithm of this key", source.from));
            None
        }
    };
    let kid = kid.map_or(Found::Absent, |given| Found::given(given.parse(problems, key_id)));
    Found::given(algorithm.and_then(|algorithm| make(material, source, algorithm, kid, problems)))
}

/// A key of the list in the file.
fn listed_key(mut file: Section, problems: &mut Problems) -> Option<Key> {
    let kid = file.text("kid", problems);
    let kid = kid.map_or(Found::Absent, |given| Found::given(given.parse(problems, key_id)));
    let algorithm = file.text("algorithm", problems);
    let kinds = [
        (Material::Secret, "secret"),
        (Material::SecretFile, "secret_file"),
        (Material::PublicKeyFile, "public_key_file"),
        (Material::PrivateKeyFile, "private_key_file"),
    ];
    let mut given = Vec::new();
    for (material, name) in kinds {
        given.extend(file.text(name, problems).map(|given| (material, given)));
    }
    if given.len() != 1 {
        file.problem("must have one of secret, secret_file, public_key_file, private_key_file", problems);
    }
    if algorithm.is_none() {
        file.problem("must have an algorithm", problems);
    }
    file.finish(problems);
    let algorithm = algorithm.and_then(|given| given.parse(problems, values::algorithm));
    match given.as_slice() {
        [(material, source)] => make(*material, source, algorithm?, kid, problems),
        _ => None,
    }
}

fn key_id(text: &str) -> Result<String, String> {
    check_name(text, limits::NAME_BYTES).map(|()| text.to_owned()).map_err(|fault| fault.to_string())
}

fn make(
    material: Material,
    source: &Given,
    algorithm: Algorithm,
    kid: Found<String>,
    problems: &mut Problems,
) -> Option<Key> {
    let bad_kid = matches!(kid, Found::Wrong);
    let kid = kid.good();
    let kid = kid.as_deref();
    let key = source.parse(problems, |text| {
        let content = || file::read(Path::new(text), limits::KEY_FILE_BYTES);
        let key = match material {
            Material::Secret => Key::from_secret(kid, algorithm, text.as_bytes()),
            Material::SecretFile => Key::from_secret(kid, algorithm, without_newline(&content()?)),
            Material::PublicKeyFile => Key::from_public_pem(kid, algorithm, &content()?),
            Material::PrivateKeyFile => Key::from_private_pem(kid, algorithm, &content()?),
        };
        key.map_err(|fault| fault.to_string())
    });
    key.filter(|_| !bad_kid)
}

/// Editors end a file with a line break that is no part of the secret.
fn without_newline(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}
