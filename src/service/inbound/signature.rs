//! Whether a delivery was signed by who holds the source's secret. Over the bytes as they came, before
//! anything of them is parsed, and compared in constant time.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hmac::digest::KeyInit as _;
use hmac::{Hmac, Mac as _};
use sha2::{Sha256, Sha512};

use crate::domain::ids::Name;
use crate::domain::signing::{Encoding, HmacAlgorithm, PLAIN_HEADER, SchemeKind, SchemeSpec};
use crate::domain::time::Timestamp;
use crate::limits;

/// The headers of a delivery.
#[derive(Clone, Default)]
pub struct Headers(Vec<(String, String)>);

/// Their values may be signatures.
impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[headers]")
    }
}

impl Headers {
    /// Headers by name and value.
    #[must_use]
    pub fn new(headers: Vec<(String, String)>) -> Self {
        Self(headers)
    }

    /// The value of a header that stands once.
    fn one(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let (_, value) = found.next()?;
        found.next().is_none().then_some(value.trim())
    }
}

/// A delivery whose signature is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The delivery's own id, where the scheme has one.
    pub delivery_id: Option<String>,
}

/// A delivery as its headers tell it.
struct Signed<'a> {
    signatures: Vec<Vec<u8>>,
    timestamp: &'a str,
    id: Option<&'a str>,
}

/// Checks a delivery; `None` if it is not signed, wrongly signed, or too old or too new.
#[must_use]
pub fn check(
    scheme: &SchemeSpec,
    secrets: &[Vec<u8>],
    headers: &Headers,
    body: &[u8],
    now: Timestamp,
) -> Option<Checked> {
    let signed = match scheme.kind {
        SchemeKind::StandardWebhooks => standard(headers)?,
        SchemeKind::TimestampedHmac => timestamped(scheme, headers)?,
        SchemeKind::Hmac => plain(scheme, headers)?,
    };
    if scheme.kind != SchemeKind::Hmac && !is_fresh(signed.timestamp, scheme.tolerance(), now) {
        return None;
    }
    let (before, after) = scheme.content().split_once("{body}")?;
    // The timestamp is digits; the id goes in last, so that nothing in it is taken for a place.
    let fill =
        |part: &str| part.replace("{timestamp}", signed.timestamp).replace("{id}", signed.id.unwrap_or_default());
    let content = [fill(before).as_bytes(), body, fill(after).as_bytes()].concat();
    let algorithm = scheme.algorithm.unwrap_or_default();
    let mut good = false;
    for secret in secrets {
        for signature in &signed.signatures {
            good |= verifies(algorithm, secret, &content, signature);
        }
    }
    good.then(|| Checked { delivery_id: signed.id.map(str::to_owned) })
}

/// Whether a delivery carries a signature of this scheme, good or not.
#[must_use]
pub fn is_signed(scheme: &SchemeSpec, headers: &Headers) -> bool {
    let header = match scheme.kind {
        SchemeKind::StandardWebhooks => "webhook-signature",
        SchemeKind::TimestampedHmac | SchemeKind::Hmac => scheme.signature_header.as_deref().unwrap_or(PLAIN_HEADER.0),
    };
    headers.0.iter().any(|(name, _)| name.eq_ignore_ascii_case(header))
}

fn standard(headers: &Headers) -> Option<Signed<'_>> {
    let listed = headers.one("webhook-signature")?.split(' ').filter_map(|one| one.strip_prefix("v1,"));
    Some(Signed {
        signatures: decoded(listed, Encoding::Base64),
        timestamp: headers.one("webhook-timestamp")?,
        id: Some(name(headers.one("webhook-id")?)?),
    })
}

fn timestamped<'a>(scheme: &'a SchemeSpec, headers: &'a Headers) -> Option<Signed<'a>> {
    let value = headers.one(scheme.signature_header.as_deref()?)?;
    let (prefix, encoding) = (scheme.prefix.as_deref().unwrap_or_default(), scheme.encoding.unwrap_or_default());
    let id = delivery_id(scheme, headers);
    if scheme.content().contains("{id}") {
        id?;
    }
    let (Some(time_key), Some(signature_key)) = (&scheme.timestamp_key, &scheme.signature_key) else {
        let timestamp = headers.one(scheme.timestamp_header.as_deref()?)?;
        return Some(Signed { signatures: decoded(value.strip_prefix(prefix).into_iter(), encoding), timestamp, id });
    };
    let pairs = || value.split(',').filter_map(|pair| pair.trim().split_once('='));
    let mut times = pairs().filter(|(key, _)| key == time_key).map(|(_, time)| time);
    let timestamp = times.next()?;
    if times.next().is_some() {
        return None;
    }
    let listed = pairs().filter(|(key, _)| key == signature_key).filter_map(|(_, one)| one.strip_prefix(prefix));
    Some(Signed { signatures: decoded(listed, encoding), timestamp, id })
}

fn plain<'a>(scheme: &SchemeSpec, headers: &'a Headers) -> Option<Signed<'a>> {
    let (header, prefix) = PLAIN_HEADER;
    let value = headers.one(scheme.signature_header.as_deref().unwrap_or(header))?;
    let signature = value.strip_prefix(scheme.prefix.as_deref().unwrap_or(prefix));
    let signatures = decoded(signature.into_iter(), scheme.encoding.unwrap_or_default());
    Some(Signed { signatures, timestamp: "", id: delivery_id(scheme, headers) })
}

fn delivery_id<'a>(scheme: &SchemeSpec, headers: &'a Headers) -> Option<&'a str> {
    name(headers.one(scheme.delivery_header.as_deref()?)?)
}

fn name(text: &str) -> Option<&str> {
    Name::new(text).is_ok().then_some(text)
}

fn decoded<'a>(texts: impl Iterator<Item = &'a str>, encoding: Encoding) -> Vec<Vec<u8>> {
    let decode = |text: &str| match encoding {
        Encoding::Hex => hex::decode(text).ok(),
        Encoding::Base64 => STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok(),
    };
    texts.filter_map(decode).take(limits::INBOUND_SIGNATURES).collect()
}

fn is_fresh(timestamp: &str, tolerance_seconds: u32, now: Timestamp) -> bool {
    if !(1..=12).contains(&timestamp.len()) || !timestamp.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let at = timestamp.parse::<i64>().ok().and_then(|seconds| seconds.checked_mul(1_000_000));
    let away = at.map(|at| now.micros().saturating_sub(at).saturating_abs());
    away.is_some_and(|away| away <= i64::from(tolerance_seconds).saturating_mul(1_000_000))
}

fn verifies(algorithm: HmacAlgorithm, secret: &[u8], content: &[u8], signature: &[u8]) -> bool {
    match algorithm {
        HmacAlgorithm::Sha256 => Hmac::<Sha256>::new_from_slice(secret)
            .is_ok_and(|mac| mac.chain_update(content).verify_slice(signature).is_ok()),
        HmacAlgorithm::Sha512 => Hmac::<Sha512>::new_from_slice(secret)
            .is_ok_and(|mac| mac.chain_update(content).verify_slice(signature).is_ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_614_265_330_000_000);
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        Headers::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn scheme(text: &str) -> SchemeSpec {
        let scheme: SchemeSpec = serde_json::from_str(text).unwrap();
        assert_eq!(scheme.faults(), []);
        scheme
    }

    /// The example of the Standard Webhooks specification's reference libraries.
    #[test]
    fn the_published_example_verifies_and_nothing_near_it() {
        let scheme = scheme(r#"{"kind": "standard_webhooks"}"#);
        let secrets = [scheme.secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()];
        let good = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let signed = |id: &str, time: &str, signature: &str| {
            headers(&[("Webhook-Id", id), ("webhook-timestamp", time), ("webhook-signature", signature)])
        };
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let checked = check(&scheme, &secrets, &signed(id, "1614265330", good), BODY, NOW).unwrap();
        assert_eq!(checked.delivery_id.as_deref(), Some(id));
        let among = format!("v1a,AAAA v1,AAAA {good} v2,x");
        assert!(check(&scheme, &secrets, &signed(id, "1614265330", &among), BODY, NOW).is_some());
        let rotated = [vec![7; 24], secrets[0].clone()];
        assert!(check(&scheme, &rotated, &signed(id, "1614265330", good), BODY, NOW).is_some());
        assert!(check(&scheme, &[vec![7; 24]], &signed(id, "1614265330", good), BODY, NOW).is_none());
        assert!(check(&scheme, &[], &signed(id, "1614265330", good), BODY, NOW).is_none());
        for (id, time, signature) in [
            ("msg_other", "1614265330", good),
            (id, "1614265331", good),
            (id, "+1614265330", good),
            (id, "1614265330", &good[3..]),
            (id, "1614265330", ""),
            (id, "1614265330", "v1,"),
            ("", "1614265330", good),
        ] {
            assert!(check(&scheme, &secrets, &signed(id, time, signature), BODY, NOW).is_none(), "{id} {time}");
        }
        for at in 0..BODY.len() {
            let mut body = BODY.to_vec();
            body[at] ^= 1;
            assert!(check(&scheme, &secrets, &signed(id, "1614265330", good), &body, NOW).is_none(), "byte {at}");
        }
        for (later, fresh) in [(300, true), (-300, true), (301, false), (-301, false)] {
            let now = Timestamp::from_micros(NOW.micros() + later * 1_000_000);
            assert_eq!(check(&scheme, &secrets, &signed(id, "1614265330", good), BODY, now).is_some(), fresh);
        }
        let mut twice = signed(id, "1614265330", good);
        twice.0.push(("webhook-timestamp".to_owned(), "1614265330".to_owned()));
        assert!(check(&scheme, &secrets, &twice, BODY, NOW).is_none(), "which one counts?");
    }

    #[test]
    fn an_id_is_never_taken_for_a_place() {
        let scheme = scheme(
            r#"{"kind": "timestamped_hmac", "signature_header": "s", "timestamp_header": "t",
                "signed_content": "{id}:{timestamp}:{body}", "delivery_header": "d"}"#,
        );
        let secret = vec![1; 32];
        let sign = |content: &str| {
            let mac = Hmac::<Sha256>::new_from_slice(&secret).unwrap().chain_update(content);
            hex::encode(mac.finalize().into_bytes())
        };
        let with = |id: &str, signature: &str| headers(&[("s", signature), ("t", "1614265330"), ("d", id)]);
        let secrets = [secret.clone()];
        let honest = sign("{timestamp}:1614265330:{}");
        assert!(check(&scheme, &secrets, &with("{timestamp}", &honest), b"{}", NOW).is_some());
        let confused = sign("1614265330:1614265330:{}");
        assert!(check(&scheme, &secrets, &with("{timestamp}", &confused), b"{}", NOW).is_none());
        let without = headers(&[("s", &sign(":1614265330:{}")), ("t", "1614265330")]);
        assert!(check(&scheme, &secrets, &without, b"{}", NOW).is_none());
    }
}
