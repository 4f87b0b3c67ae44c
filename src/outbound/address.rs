//! Which addresses this service may speak to, and which URLs it may be told to call.
//!
//! Who registers a tool names a URL that this service calls from inside its network. Everything that
//! is not plainly a public unicast address is refused, unless the configuration names its network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use reqwest::Url;

use crate::config::AdapterPolicy;
use crate::limits;

/// Special-purpose networks of IPv4 (IANA registry), multicast, and what clouds answer instances on.
const FORBIDDEN_V4: [(Ipv4Addr, u32); 17] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // A platform's agent answers instances here, although the address is public.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Multicast, reserved and broadcast.
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// Inside `2000::/3`, the only part of IPv6 that is public at all: protocol assignments (Teredo among
/// them), documentation, and 6to4, which carries an IPv4 address of anybody's choice.
const FORBIDDEN_V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Whether a call may go to an address.
#[must_use]
pub fn is_allowed(policy: &AdapterPolicy, address: IpAddr) -> bool {
    is_public(address) || policy.allow_networks.iter().any(|network| network.contains(address))
}

/// Whether an address is a plain public one. IPv4 in IPv6 clothes (mapped, compatible, translated,
/// NAT64, 6to4, Teredo, ISATAP) never is: no honest name resolves to it.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !FORBIDDEN_V4
            .iter()
            .any(|(network, prefix)| (network.to_bits() ^ address.to_bits()).leading_zeros() >= *prefix),
        IpAddr::V6(address) => {
            let [first, .., five, six, _, _] = address.segments();
            let is_isatap = matches!(five, 0 | 0x200) && six == 0x5efe;
            let is_special = FORBIDDEN_V6
                .iter()
                .any(|(network, prefix)| (network.to_bits() ^ address.to_bits()).leading_zeros() >= *prefix);
            first & 0xe000 == 0x2000 && !is_isatap && !is_special
        }
    }
}

/// Reads a URL that may be called, as far as it can be judged without asking for its name.
///
/// # Errors
/// What is wrong with it, as the end of the sentence "this URL …".
pub fn check_url(policy: &AdapterPolicy, text: &str) -> Result<Url, &'static str> {
    if text.len() > limits::URL_BYTES {
        return Err("must be at most 2048 bytes");
    }
    // The URL standard drops these silently, and then means another URL than the one that was read.
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err("must not contain spaces, control characters or backslashes");
    }
    let url = Url::parse(text)
        .ok()
        .filter(|_| text.contains("://"))
        .ok_or("must be a URL, such as https://example.org/adapter")?;
    match url.scheme() {
        "https" => {}
        "http" if policy.allow_http => {}
        "http" => return Err("must be https; plain http has to be allowed by the configuration"),
        _ => return Err("must be an https URL"),
    }
    if !url.username().is_empty() || url.password().is_some() || authority(text).contains('@') {
        return Err("must not contain a user name or password");
    }
    if url.fragment().is_some() {
        return Err("must not have a fragment");
    }
    if url.port() == Some(0) {
        return Err("must not have the port 0");
    }
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or("must have a host")?;
    if literal(host).is_some_and(|address| !is_allowed(policy, address)) {
        return Err("must not have an address that is private, reserved or this machine's own");
    }
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if (name == "localhost" || name.ends_with(".localhost")) && !is_allowed(policy, loopback) {
        return Err("must not have an address that is private, reserved or this machine's own");
    }
    Ok(url)
}

/// What stands between the slashes and the path: an empty user name is one too.
fn authority(text: &str) -> &str {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// The address that a host is, where it is none to be asked for. The parser has brought all the odd
/// forms (decimal, octal, hexadecimal, short, with a trailing dot) to one.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    inner.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Network;

    fn public(text: &str) -> bool {
        is_public(text.parse().unwrap())
    }

    #[test]
    fn only_plain_public_addresses_are_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "169.253.0.1",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450:4001:800::200e",
            "2003::1",
        ] {
            assert!(public(address), "{address}");
        }
    }

    #[test]
    fn all_others_are_forbidden_in_whatever_clothes() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "169.254.170.2",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            // The same in other clothes, with public addresses too.
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::a00:1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "2001:0:53aa:64c:0:0:80ff:fffe",
            "2606:4700::5efe:127.0.0.1",
            "2606:4700::200:5efe:10.0.0.1",
            "100::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ] {
            assert!(!public(address), "{address}");
        }
    }

    #[test]
    fn networks_of_the_configuration_are_allowed_and_nothing_beside_them() {
        let policy = AdapterPolicy {
            allow_http: false,
            allow_networks: vec![Network::parse("10.1.0.0/16").unwrap(), Network::parse("fd00::/8").unwrap()],
        };
        let allowed = |text: &str| is_allowed(&policy, text.parse().unwrap());
        assert!(allowed("10.1.2.3") && allowed("::ffff:10.1.2.3") && allowed("fd12::1") && allowed("8.8.8.8"));
        assert!(!allowed("10.2.0.1") && !allowed("127.0.0.1") && !allowed("fe80::1") && !allowed("64:ff9b::a01:203"));
    }

    #[test]
    fn urls_are_judged_by_what_they_mean() {
        let policy = AdapterPolicy::default();
        for url in
            ["https://example.org", "https://example.org:8443/a?b=c", "https://8.8.8.8/", "https://EXAMPLE.org./"]
        {
            assert!(check_url(&policy, url).is_ok(), "{url}");
        }
        for url in [
            "",
            "example.org",
            "/a",
            "https://",
            "https:///",
            "ftp://example.org",
            "file:///etc/passwd",
            "javascript:x",
            "http://example.org",
            "https://user@example.org",
            "https://user:word@example.org",
            "https://@example.org",
            "https://:@example.org/",
            "https://example.org/#part",
            "https://example.org:0/",
            "https://example.org:65536/",
            "https:// example.org",
            "https://exa\tmple.org",
            "https://example.org\n",
            "https:\\\\example.org\\a",
            "https:example.org",
            "https:/example.org",
            "https://localhost",
            "https://LOCALHOST./",
            "https://a.localhost/",
            "https://127.0.0.1/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f000001/",
            "https://017700000001/",
            "https://0x7f.1/",
            "https://0177.0.0.1/",
            "https://127.0.0.1./",
            "https://0/",
            "https://0x0/",
            "https://①②⑦.0.0.1/",
            "https://127。0。0。1/",
            "https://%31%32%37.0.0.1/",
            "https://169.254.169.254/latest/meta-data",
            "https://2852039166/",
            "https://0xA9FEA9FE/",
            "https://[::1]/",
            "https://[::]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:7f00:1]/",
            "https://[::127.0.0.1]/",
            "https://[64:ff9b::7f00:1]/",
            "https://[2002:7f00:1::]/",
            "https://[fe80::1]/",
            "https://[fe80::1%25eth0]/",
            "https://[fd00:ec2::254]/",
            "https://256.1.1.1/",
            "https://1.2.3.4.5/",
        ] {
            assert!(check_url(&policy, url).is_err(), "{url}");
        }
        let open = AdapterPolicy { allow_http: true, allow_networks: vec![Network::parse("127.0.0.0/8").unwrap()] };
        for url in ["http://127.0.0.1:8080/", "http://2130706433/", "https://127.1/", "http://localhost:1/"] {
            assert!(check_url(&open, url).is_ok(), "{url}");
        }
        assert!(check_url(&open, "http://10.0.0.1/").is_err());
        let long = format!("https://example.org/{}", "a".repeat(limits::URL_BYTES));
        assert!(check_url(&policy, &long).is_err());
    }
}
