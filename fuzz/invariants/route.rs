//! What must hold for any bytes that are taken for a request's target and met by routes. Shared by the fuzz target and by the
//! tests of `tidegate-proxy`.
//!
//! 1. Nothing panics, and each request is of the first route whose conditions hold.
//! 2. A normal path begins with a slash and has no empty segment and no dot segment.
//! 3. A normal path that is written and read again is the same.
//! 4. A path that is rewritten stays below where it is put, and its query stays as it is.
//! 5. A redirect to a path names no other host, and what it says is one line.

use std::net::Ipv4Addr;
use std::sync::Arc;

use http::header::LOCATION;
use http::{Request, StatusCode, Uri};

use super::{Asking, RouteAction, RouteConditions, RouteConfig, find, path, written};
use crate::config::ForwardedConfig;
use crate::config::route::{HeaderChanges, PathPattern, RouteTimeouts};

/// Checks all of them.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(uri) = Uri::try_from(bytes) else {
        return;
    };
    if !uri.path().starts_with('/') {
        return;
    }
    let normal = path::normal(uri.path());
    is_normal(&normal);
    let again = written(&normal).into_owned();
    assert_eq!(path::normal(&again), normal, "{again}");
    let mut request = Request::new(());
    *request.uri_mut() = uri;
    rewritten(&request);
    redirected(&request);
}

fn is_normal(path: &[u8]) {
    let mut segments = path.split(|byte| *byte == b'/').peekable();
    assert_eq!(segments.next(), Some(&b""[..]), "it begins with a slash");
    while let Some(segment) = segments.next() {
        assert!(segment != b"." && segment != b"..", "{path:?}");
        assert!(!segment.is_empty() || segments.peek().is_none(), "{path:?}");
    }
}

fn rewritten(request: &Request<()>) {
    let config = ForwardedConfig::default();
    let routes = routes(RouteAction::Forward {
        rewrite: "/below{rest}".parse().ok(),
    });
    let found = find(&routes, &asking(&config), request);
    let found = found.expect("the last route is for all");
    let mut changed = request.clone();
    if found.change(&mut changed, &config).is_ok() && found.rewrites() {
        let path = path::normal(changed.uri().path());
        assert!(path.starts_with(b"/below"), "{}", changed.uri());
        assert_eq!(changed.uri().query(), request.uri().query());
    }
}

fn redirected(request: &Request<()>) {
    let config = ForwardedConfig::default();
    let to = "{path}{query}".parse().expect("a template");
    let routes = routes(RouteAction::Redirect {
        status: StatusCode::FOUND,
        to,
    });
    let found = find(&routes, &asking(&config), request).expect("a route for all");
    let answer = found.answer("host.example", request).expect("a redirect");
    if let Some(location) = answer.headers().get(LOCATION) {
        let location = location.as_bytes();
        assert!(location.starts_with(b"/"));
        assert!(
            !matches!(location.get(1), Some(b'/' | b'\\')),
            "{location:?}"
        );
    }
}

/// A client of its own.
fn asking(config: &ForwardedConfig) -> Asking<'_> {
    Asking {
        host: "host.example",
        client: Ipv4Addr::LOCALHOST.into(),
        config,
        asks_certificate: false,
    }
}

/// One for each path there is, after one for some.
fn routes(action: RouteAction) -> Arc<[RouteConfig]> {
    let route = |path: Option<PathPattern>, action: &RouteAction| RouteConfig {
        conditions: RouteConditions {
            path,
            ..RouteConditions::default()
        },
        action: action.clone(),
        request_headers: HeaderChanges::default(),
        response_headers: HeaderChanges::default(),
        timeouts: RouteTimeouts::default(),
        retry_on: None,
        mirror: None,
        hedge: None,
    };
    let below = PathPattern::parse("/a/*").expect("a pattern");
    let regex = PathPattern::regex("^/[0-9]+(/|$)").expect("a pattern");
    [Some(below), Some(regex), None]
        .into_iter()
        .map(|path| route(path, &action))
        .collect()
}
