//! The live page of culprits, as an answer.

#[cfg(test)]
pub(in crate::admin) mod browser;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use tidegate_culprits::page::{PAGE, policy};

use super::api;

/// The live page.
pub(super) fn answer() -> Response<Full<Bytes>> {
    let mut answer = api::body(StatusCode::OK, "text/html; charset=utf-8", PAGE);
    // A header can forbid frames, which a page by itself cannot.
    let policy = policy().map(|policy| format!("{policy}; frame-ancestors 'none'"));
    match policy.and_then(|policy| HeaderValue::from_str(&policy).ok()) {
        Some(policy) => {
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
