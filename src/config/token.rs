//! `actonce token`.

use std::fmt::Display;

use super::args::{Environment, TokenArgs};
use super::file::{self, Problems};
use super::secrets::dev_signing_key;
use super::{ConfigError, DEV_NAME, NAME, data_dir, dev, keys, values};
use crate::auth::{self, Grant, Key, Scope, Scopes};
use crate::domain::ids::{Name, Tenant};
use crate::limits;

/// Makes one token.
///
/// # Errors
/// Every problem with the arguments or the configuration.
pub fn run(args: &TokenArgs, environment: &Environment) -> Result<String, ConfigError> {
    let mut problems = Problems::new();
    let token = make(args, environment, &mut problems);
    match token {
        Some(token) if problems.is_empty() => Ok(token),
        _ => Err(ConfigError { problems: problems.into_sentences() }),
    }
}

fn make(args: &TokenArgs, environment: &Environment, problems: &mut Problems) -> Option<String> {
    let grant = grant(args, problems);
    let mut file = file::load(args.config.as_ref(), problems);
    let data_dir = data_dir(args.data_dir.as_ref(), &mut file, problems);
    let dev = dev::existing(&data_dir, dev::SIGNING_KEY).unwrap_or_else(|fault| {
        problems.push(fault);
        None
    });
    let name = if dev.is_some() { DEV_NAME } else { NAME };
    // What else the file says is for `actonce serve` to check.
    let section = file.section("auth", problems);
    let tokens = keys::tokens(&args.auth, environment, section, name, problems);
    let key = dev.as_ref().and_then(dev_signing_key).or_else(|| {
        let mut signing = tokens.keys.into_iter().filter(|key| key.signing().is_some());
        signing.next()
    });
    if key.is_none() && problems.is_empty() {
        problems.push(format!(
            "no key to make tokens with: {} has no key of --dev, and no secret or private key is configured \
             (ACTONCE_JWT_HS256_SECRET, ACTONCE_JWT_SECRET_FILE, ACTONCE_JWT_PRIVATE_KEY_FILE)",
            data_dir.display()
        ));
    }
    let (grant, key) = grant.zip(key.as_ref().and_then(Key::signing))?;
    auth::mint(key, &tokens.claims, &grant).map_err(|fault| problems.push(fault.to_string())).ok()
}

fn grant(args: &TokenArgs, problems: &mut Problems) -> Option<Grant> {
    let tenant = noted("--tenant", Tenant::new(&args.tenant), problems);
    let subject = noted("--subject", Name::new(&args.subject), problems);
    let scopes = noted("--scopes", scopes(&args.scopes), problems);
    let life = values::number(&args.expires_in, 1..=limits::TOKEN_LIFETIME_MAX_SECONDS);
    let life = noted("--expires-in", life, problems);
    Some(Grant { tenant: tenant?, subject: subject?, scopes: scopes?, expires_in_seconds: life? })
}

fn noted<T, E: Display>(flag: &str, value: Result<T, E>, problems: &mut Problems) -> Option<T> {
    value.map_err(|fault| problems.push(format!("{flag}: {fault}"))).ok()
}

/// Scopes by comma or white space; `all` is every one. Unlike in a token, an unknown one is a slip.
fn scopes(text: &str) -> Result<Scopes, String> {
    let mut scopes = Scopes::NONE;
    for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
        scopes = match (word, Scope::parse(word)) {
            ("all", _) => Scopes::all(),
            (_, Some(scope)) => scopes.with(scope),
            (_, None) => return Err(format!("must be all, or some of {}", Scopes::all())),
        };
    }
    Ok(scopes)
}
