//! The front page: what hurts, and the hand on it.
//!
//! One file, made by `cargo xtask web` from the sources in `web/src/front/`, that needs nothing from elsewhere.
//! Script and style run by their hashes, which stand in the page itself, and no text can become markup
//! (trusted types), so nothing that ever gets into the page by mistake runs.

use http::StatusCode;
use http::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use tidegate_culprits::page::policy_of;

use super::api::{self, Answer};

const PAGE: &str = include_str!("page.html");

/// The page.
pub(super) fn answer() -> Answer {
    guarded(PAGE, policy_of(PAGE))
}

/// A page with the policy that it has for itself, which forbids frames besides: a page by itself cannot.
pub(super) fn guarded(page: &'static str, policy: Option<&str>) -> Answer {
    let policy = policy.map(|policy| format!("{policy}; frame-ancestors 'none'"));
    match policy.and_then(|policy| HeaderValue::from_str(&policy).ok()) {
        Some(policy) => {
            let mut answer = api::body(StatusCode::OK, "text/html; charset=utf-8", page);
            answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
            answer
        }
        // Without the policy the page would run without its guard, so it is not sent at all.
        None => api::body(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain",
            "no policy\n",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_has_a_policy_for_all_of_it() {
        // The name of a namespace is all that may look like an address.
        let code = PAGE.replace("http://www.w3.org/", "");
        for elsewhere in [
            "http:",
            "https:",
            "//cdn",
            "src=",
            "@import",
            "innerHTML",
            "eval(",
        ] {
            assert!(!code.contains(elsewhere), "{elsewhere}");
        }
        let answer = answer();
        let policy = answer.headers()["content-security-policy"]
            .to_str()
            .unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"));
        assert!(policy.ends_with("trusted-types 'none'; frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe"));
    }
}
