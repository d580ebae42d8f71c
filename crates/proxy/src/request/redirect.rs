//! The answer of a listener that sends each request to the same URL by `https`.

use bytes::Bytes;
use http::header::{HeaderValue, LOCATION};
use http::{Request, Response, StatusCode};
use tidegate_core::topology::routes::bare_host;

/// The usual port of `https`, which a URL does not name.
const HTTPS: u16 = 443;

/// A `308` (RFC 9110 §15.4.9), so that method and body stay the same. `host` is one that was checked; without one
/// (HTTP/1.0) there is nowhere to send the client: `400`.
pub(super) fn to_https<B>(request: &Request<B>, host: &str, port: u16) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let target = request.uri().path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let target = if target == "*" { "/" } else { target };
    let url = match port {
        HTTPS => format!("https://{}{target}", bare_host(host)),
        port => format!("https://{}:{port}{target}", bare_host(host)),
    };
    match HeaderValue::try_from(url) {
        Ok(url) if !host.is_empty() => {
            *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
            response.headers_mut().insert(LOCATION, url);
        }
        Ok(_) | Err(_) => *response.status_mut() = StatusCode::BAD_REQUEST,
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_stays_but_for_scheme_and_port() {
        for (host, target, port, expected) in [
            ("a.example", "/x?y=1", 443, "https://a.example/x?y=1"),
            ("a.example:80", "/", 443, "https://a.example/"),
            ("a.example.:80", "/", 443, "https://a.example/"),
            ("a.example:80", "/", 8443, "https://a.example:8443/"),
            ("[::1]", "/", 443, "https://[::1]/"),
            ("[::1]:8080", "*", 8443, "https://[::1]:8443/"),
        ] {
            let request = Request::builder().uri(target).body(()).unwrap();
            let response = to_https(&request, host, port);
            assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
            assert_eq!(response.headers()[LOCATION], expected);
        }
        let response = to_https(&Request::new(()), "", 443);
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    }
}
