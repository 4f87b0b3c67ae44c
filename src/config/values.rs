//! Reading single values. Each fault completes the sentence "this setting …".

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde::{Serialize, Serializer};

use super::LogFormat;
use super::secret::Secret;
use crate::auth::Algorithm;
use crate::domain::data_key::{key_id, key_name};
use crate::limits;

pub(super) fn number(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let fault = || format!("must be a whole number from {} to {}", range.start(), range.end());
    text.trim().parse().ok().filter(|number| range.contains(number)).ok_or_else(fault)
}

pub(super) fn truth(text: &str) -> Result<bool, &'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("must be true or false"),
    }
}

pub(super) fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.trim().parse().map_err(|_| "must be an IP address and a port, such as 127.0.0.1:8080 or [::]:8080")
}

/// A prefix of paths as it is put before them: empty, or `/a` or `/a/b`.
pub(super) fn base_path(text: &str) -> Result<String, &'static str> {
    let inner = text.trim().trim_matches('/');
    if inner.is_empty() {
        return Ok(String::new());
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let fine = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(allowed);
    if inner.len() <= 256 && inner.split('/').all(fine) {
        Ok(format!("/{inner}"))
    } else {
        Err("must be a path such as /actonce, of letters, digits and - . _ ~, at most 256 bytes")
    }
}

pub(super) fn database_url(text: &str) -> Result<Secret<String>, &'static str> {
    let known = ["postgres://", "postgresql://", "sqlite:"];
    if known.iter().any(|scheme| text.starts_with(scheme)) {
        Ok(Secret::new(text.to_owned()))
    } else {
        Err("must start with postgres:// or sqlite:")
    }
}

/// A URL of a Postgres database.
pub(super) fn postgres_url(text: &str) -> Result<Secret<String>, &'static str> {
    database_url(text).ok().filter(|_| !text.starts_with("sqlite:")).ok_or("must start with postgres://")
}

/// A database URL without user, password and options. Where it isn't plain which part is the
/// password, only the scheme is left.
pub(super) fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once(':').unwrap_or_default();
    let (place, options) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    match place.rsplit_once('@') {
        _ if options.contains('@') => format!("{scheme}:…"),
        Some((_, place)) => format!("{scheme}://{place}"),
        None => format!("{scheme}:{place}"),
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, &'static str> {
    match text.trim() {
        "json" => Ok(LogFormat::Json),
        "pretty" => Ok(LogFormat::Pretty),
        _ => Err("must be json or pretty"),
    }
}

pub(super) fn log_filter(text: &str) -> Result<String, &'static str> {
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("must be a filter such as info or warn,actonce=debug"),
    }
}

pub(super) fn algorithm(text: &str) -> Result<Algorithm, &'static str> {
    text.trim().parse().map_err(
        |_| "must be one of HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA",
    )
}

/// 32 bytes in hex or base64 (either alphabet, padded or not).
pub(super) fn key(text: &str) -> Result<Secret<[u8; 32]>, &'static str> {
    let text = text.trim();
    let unpadded = text.trim_end_matches('=');
    let bytes = hex::decode(text)
        .ok()
        .or_else(|| STANDARD_NO_PAD.decode(unpadded).ok())
        .or_else(|| URL_SAFE_NO_PAD.decode(unpadded).ok());
    let key = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    key.map(Secret::new).ok_or("must be 32 random bytes in hex or base64, as `openssl rand -hex 32` makes them")
}

/// A ring of data keys, by comma or line, the active one first.
pub(super) fn data_keys(text: &str) -> Result<Secret<Vec<[u8; 32]>>, String> {
    let parts: Vec<&str> =
        text.split(|c: char| c == ',' || c.is_whitespace()).filter(|part| !part.is_empty()).collect();
    if parts.len() > limits::DATA_KEYS {
        return Err(format!("must have at most {} keys", limits::DATA_KEYS));
    }
    let mut keys: Vec<[u8; 32]> = Vec::new();
    for part in if parts.is_empty() { vec![""] } else { parts } {
        let new = *key(part)?.expose();
        if keys.contains(&new) {
            return Err("must not have a key twice".to_owned());
        }
        if let Some(place) = keys.iter().position(|known| key_id(known) == key_id(&new)) {
            // One byte is not much: what was sealed under the one would look like sealed under the other.
            let id = key_name(key_id(&new));
            return Err(format!(
                "has two keys of the id {id}, numbers {} and {}: make another",
                place + 1,
                keys.len() + 1
            ));
        }
        keys.push(new);
    }
    Ok(Secret::new(keys))
}

/// A range of addresses, such as `10.1.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Reads a network or a single address.
    ///
    /// # Errors
    /// What it must look like.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const FAULT: &str = "must be networks such as 10.1.0.0/16 or fd00::/8";
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| FAULT)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(most), str::parse).map_err(|_| FAULT)?;
        if prefix > most { Err(FAULT) } else { Ok(Self { address, prefix }) }
    }

    /// Whether an address is in the network. IPv4 in IPv6 clothes (`::ffff:10.0.0.1`) is IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_paths_are_brought_to_one_form() {
        for text in ["/actonce", "actonce", "/actonce/", " /actonce// "] {
            assert_eq!(base_path(text).as_deref(), Ok("/actonce"), "{text}");
        }
        assert_eq!(base_path("/a/b/").as_deref(), Ok("/a/b"));
        assert_eq!(base_path("/").as_deref(), Ok(""));
        for text in ["/a//b", "/a/../b", "/a b", "/{x}", "/a?b", "/a%2fb"] {
            assert!(base_path(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_are_read_in_the_usual_forms() {
        let bytes: [u8; 32] = std::array::from_fn(|place| 255 - u8::try_from(place).unwrap());
        let forms = [hex::encode(bytes), STANDARD_NO_PAD.encode(bytes), URL_SAFE_NO_PAD.encode(bytes) + "=\n"];
        for form in forms {
            assert_eq!(key(&form).unwrap().expose(), &bytes, "{form}");
        }
        for form in ["", "secret", &hex::encode([1; 31]), &hex::encode([1; 33]), &"x".repeat(32)] {
            assert!(key(form).is_err(), "{form}");
        }
    }

    #[test]
    fn data_keys_are_a_ring_of_keys_that_can_be_told_apart() {
        let text = |byte: u8| hex::encode([byte; 32]);
        let read = |text: &str| data_keys(text).map(|keys| keys.expose().iter().map(|key| key[0]).collect::<Vec<_>>());
        assert_eq!(read(&text(7)), Ok(vec![7]));
        assert_eq!(read(&format!("{}\n{}\r\n", text(8), text(7))), Ok(vec![8, 7]));
        assert_eq!(read(&format!("{}, {},", text(8), text(7))), Ok(vec![8, 7]));
        assert!(read("").is_err() && read(",").is_err() && read(&format!("{},x", text(7))).is_err());
        assert!(read(&format!("{0},{0}", text(7))).unwrap_err().contains("twice"));
        assert!(read(&[1, 2, 3, 4, 5].map(text).join(",")).unwrap_err().contains("at most 4"));
        let alike = (8..=255).find(|byte| key_id(&[*byte; 32]) == key_id(&[7; 32])).expect("some are alike");
        let fault = read(&format!("{},{}", text(7), text(alike))).unwrap_err();
        assert!(fault.contains("numbers 1 and 2") && !fault.contains(&text(7)), "{fault}");
    }

    #[test]
    fn networks_hold_their_addresses() {
        let holds = |network: &str, address: &str| Network::parse(network).unwrap().contains(address.parse().unwrap());
        assert!(holds("127.0.0.0/8", "127.1.2.3") && !holds("127.0.0.0/8", "128.0.0.1"));
        assert!(holds("10.1.2.3", "10.1.2.3") && !holds("10.1.2.3", "10.1.2.4"));
        assert!(holds("0.0.0.0/0", "8.8.8.8") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("10.0.0.0/8", "::ffff:10.1.1.1"));
        assert!(holds("fd00::/8", "fd12::1") && !holds("fd00::/8", "fe80::1"));
        for text in ["", "10.0.0.0/33", "fd00::/129", "example.org", "10.0.0.0/-1", "10.0.0.0/"] {
            assert!(Network::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn database_urls_are_shown_without_credentials() {
        assert_eq!(
            without_credentials("postgres://me:p@ss@db.example:5432/actonce?password=x"),
            "postgres://db.example:5432/actonce"
        );
        assert_eq!(without_credentials("sqlite:///var/lib/actonce.db?mode=rwc"), "sqlite:///var/lib/actonce.db");
        assert_eq!(without_credentials("sqlite:actonce.db"), "sqlite:actonce.db");
        assert_eq!(without_credentials("postgres://db/actonce"), "postgres://db/actonce");
        for odd in ["postgres://me:p#s@db/actonce", "postgres://db/actonce?password=p@s", "postgres://me:p@?s@db/a"] {
            assert_eq!(without_credentials(odd), "postgres:…");
        }
    }
}
