//! The live page: one file without anything from elsewhere.
//!
//! Its script and style run by a nonce that is drawn for each answer, so that nothing that ever
//! gets into the page by mistake runs.

use std::hash::{BuildHasher, Hasher, RandomState};

use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;

use super::api;

const PAGE: &str = include_str!("page.html");
/// Stands in the page where the nonce goes.
const NONCE: &str = "NONCE";

/// The page.
pub(super) fn answer() -> Response<Full<Bytes>> {
    let nonce = nonce();
    let page = PAGE.replace(NONCE, &nonce);
    let mut answer = api::body(StatusCode::OK, "text/html; charset=utf-8", page);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    // Without the policy the page would run without its guard, so it is not sent at all.
    match HeaderValue::from_str(&policy) {
        Ok(policy) => {
            answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
            answer
        }
        Err(_) => api::body(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain",
            "no policy\n",
        ),
    }
}

/// 128 bits that cannot be guessed: the standard library keys its hashers from the system.
fn nonce() -> String {
    let draw = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", draw(), draw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_its_nonce_is_new_each_time() {
        for elsewhere in ["http:", "https:", "//cdn", "src=", "@import", "innerHTML"] {
            assert!(!PAGE.contains(elsewhere), "{elsewhere}");
        }
        let policy = |answer: &Response<Full<Bytes>>| {
            answer.headers()[CONTENT_SECURITY_POLICY]
                .to_str()
                .unwrap()
                .to_owned()
        };
        assert_ne!(policy(&answer()), policy(&answer()));
        assert!(!policy(&answer()).contains("unsafe"));
    }
}
