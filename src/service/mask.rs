//! Masks what looks like a secret in free text (law 11). Failure details are typed by programs that
//! paste what they have at hand.

/// What stands in the place of a secret.
pub(super) const MASK: &str = "[masked]";

/// Prefixes of well-known credentials.
const PREFIXES: [&str; 14] = [
    "sk_",
    "pk_",
    "rk_",
    "sk-",
    "whsec_",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xox",
    "AKIA",
    "eyJ",
    "ya29.",
];

/// Names whose value is a secret.
const NAMES: [&str; 9] =
    ["password", "passwd", "secret", "token", "api_key", "apikey", "api-key", "authorization", "credential"];

/// Replaces words that look like credentials: known prefixes, values of secret-sounding names, what
/// follows `Bearer` or `Basic`, user information in URLs, and long runs of letters mixed with digits.
#[must_use]
pub fn mask(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut mask_next = false;
    for word in text.split_inclusive(char::is_whitespace) {
        let bare = word.trim_end();
        let space = &word[bare.len()..];
        if bare.is_empty() {
            out.push_str(space);
            continue;
        }
        let lower = bare.to_ascii_lowercase();
        if mask_next {
            out.push_str(MASK);
        } else {
            out.push_str(&mask_word(bare, &lower));
        }
        let end = lower.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        mask_next = end == "bearer" || end == "basic" || (names_secret(end) && lower.ends_with([':', '=']));
        out.push_str(space);
    }
    out
}

fn names_secret(text: &str) -> bool {
    NAMES.iter().any(|name| text.ends_with(name))
}

fn mask_word(word: &str, lower: &str) -> String {
    for (index, _) in word.match_indices([':', '=']) {
        let name = lower[..index].trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let value = &word[index..][1..];
        if names_secret(name) && !value.is_empty() {
            return format!("{}{MASK}", &word[..=index]);
        }
    }
    if let Some(scheme) = word.find("://")
        && let Some(at) = word[scheme..].find('@')
    {
        return format!("{}{MASK}{}", &word[..scheme.saturating_add(3)], &word[scheme.saturating_add(at)..]);
    }
    let core = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '_' | '-' | '.' | '=');
    let mut out = String::new();
    let mut run = String::new();
    for c in word.chars().chain(std::iter::once(' ')) {
        if core(c) {
            run.push(c);
            continue;
        }
        if is_secret(&run) {
            out.push_str(MASK);
        } else {
            out.push_str(&run);
        }
        run.clear();
        out.push(c);
    }
    out.pop();
    out
}

fn is_secret(run: &str) -> bool {
    let long_mixed = run.len() >= 32
        && run.bytes().any(|b| b.is_ascii_digit())
        && run.bytes().any(|b| b.is_ascii_alphabetic())
        && !run.contains('/');
    long_mixed || (run.len() >= 12 && PREFIXES.iter().any(|prefix| run.starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_and_words_stay() {
        for (text, kept) in [
            ("read timeout after 30 s on GET /refunds/re_77", "read timeout after 30 s on GET /refunds/re_77"),
            ("Authorization: Bearer abc.def", "Authorization: [masked] [masked]"),
            ("key sk_live_4242424242424242 refused", "key [masked] refused"),
            ("password=hunter2; user=x", "password=[masked] user=x"),
            ("postgres://u:p@db.example/x down", "postgres://[masked]@db.example/x down"),
            ("id 0123456789abcdef0123456789abcdef gone", "id [masked] gone"),
        ] {
            assert_eq!(mask(text), kept, "{text}");
        }
    }
}
