//! The pages of the problem types, so that a `type` can be opened where it was answered.

macro_rules! pages {
    ($($slug:literal),* $(,)?) => {
        /// The page of a problem type, as Markdown.
        #[must_use]
        pub fn page(slug: &str) -> Option<&'static str> {
            match slug {
                $($slug => Some(include_str!(concat!("../../docs/errors/", $slug, ".md"))),)*
                _ => None,
            }
        }
    };
}

pages! {
    "invalid-request", "operation-id-required", "unauthenticated", "insufficient-scope", "not-found",
    "method-not-allowed", "request-timeout", "state-conflict", "stale-fence", "lease-lost", "stale-request",
    "approval-stale", "profile-mismatch", "suspected-duplicate", "stale-revision", "precondition-required",
    "aliases-unavailable", "cursor-gone",
    "too-large", "unsupported-media-type", "operation-reused", "receipt-rejected", "rate-limited", "quota-exceeded", "capacity",
    "store-unavailable", "internal-error",
}

#[cfg(test)]
mod tests {
    use super::page;
    use crate::http::problem::ProblemType;

    #[test]
    fn every_problem_type_has_a_page_that_names_it_and_its_status() {
        for kind in ProblemType::ALL {
            let page = page(kind.slug()).unwrap_or_else(|| panic!("{} has no page", kind.slug()));
            assert!(page.contains(kind.slug()), "{}", kind.slug());
            assert!(page.contains(&kind.code().to_string()), "{}", kind.slug());
        }
    }
}
