//! Routes of a site: what becomes of a request before its policy is asked. The first whose conditions all hold counts.
//!
//! ```text
//! request ──> site ──> route ──┬─ answer or redirect ──> client
//!                              └─ forward: rewritten path, changed heads ──> throttle, admission, policy ──> node
//! ```
//!
//! Pure functions over heads. A site without routes costs a look at an empty list.
//!
//! Failure case: conditions on fields and on the query compare what the client sent; a server that reads them otherwise
//! (a second value, another letter case) sees something else.

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, TE, TRAILER};
use http::header::{TRANSFER_ENCODING, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use tidegate_core::topology::routes::bare_host;

use crate::config::ForwardedConfig;
use crate::config::route::template::RequestParts;
use crate::config::route::{
    HeaderChanges, RouteAction, RouteConditions, RouteConfig, Wanted, path,
};
use crate::head::{ends_unless_kept, fold, is_claim};
use crate::record::reason::Reason;

/// Bytes of a path that stay as they are when a path is written anew (RFC 3986 §3.3), beside letters and digits.
const PATH_BYTES: &[u8] = b"/-._~!$&'()*+,;=:@";

/// The field that says which certificate a client has shown.
const CLIENT_CERTIFICATE: &str = "x-forwarded-client-cert";

/// Fields that frame messages or belong to one connection: no route changes them.
pub fn is_framing(name: &HeaderName) -> bool {
    [
        CONNECTION,
        CONTENT_LENGTH,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ]
    .contains(name)
        || ["keep-alive", "proxy-connection"].contains(&name.as_str())
}

/// The route that a request is of.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    routes: Arc<[RouteConfig]>,
    place: usize,
}

impl Route {
    /// Its place among its site's.
    pub(crate) fn place(&self) -> usize {
        self.place
    }
}

impl Deref for Route {
    type Target = RouteConfig;

    fn deref(&self) -> &RouteConfig {
        &self.routes[self.place]
    }
}

/// What of a request's head counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking<'a> {
    /// The host that it is for.
    pub(crate) host: &'a str,
    pub(crate) client: IpAddr,
    /// Whose claims are believed.
    pub(crate) config: &'a ForwardedConfig,
    /// What is claimed of a certificate means nothing: it is seen here.
    pub(crate) asks_certificate: bool,
}

impl Asking<'_> {
    /// Whether a field of this name is what the client may say. Those that end here hold in no condition.
    fn may_say(&self, name: &HeaderName) -> bool {
        let is_trusted = || {
            self.config
                .trusted
                .iter()
                .any(|it| it.contains(self.client))
        };
        match name.as_str() {
            CLIENT_CERTIFICATE if self.asks_certificate => false,
            _ if !ends_unless_kept(name) || self.config.keeps(name.as_str()) => true,
            text => is_claim(text) && is_trusted(),
        }
    }
}

/// The first of the routes that a request is of.
#[cold]
pub(crate) fn find<B>(
    routes: &Arc<[RouteConfig]>,
    asking: &Asking<'_>,
    request: &Request<B>,
) -> Option<Route> {
    let path = path::normal(request.uri().path());
    let holds = |route: &RouteConfig| route.conditions.hold(asking, &path, request);
    let place = routes.iter().position(holds)?;
    Some(Route {
        routes: Arc::clone(routes),
        place,
    })
}

impl RouteConditions {
    fn hold<B>(&self, asking: &Asking<'_>, path: &[u8], request: &Request<B>) -> bool {
        let host = bare_host(asking.host);
        let is_host = |it: &String| it.eq_ignore_ascii_case(host);
        (self.hosts.is_empty() || self.hosts.iter().any(is_host))
            && (self.methods.is_empty() || self.methods.contains(request.method()))
            && self.path.as_ref().is_none_or(|pattern| pattern.fits(path))
            && self.headers.iter().all(|(name, wanted)| {
                asking.may_say(name) && has_field(request.headers(), name, wanted)
            })
            && self
                .query
                .iter()
                .all(|(name, wanted)| has_query(request.uri().query(), name, wanted))
    }
}

fn has_field(headers: &HeaderMap, name: &HeaderName, wanted: &Wanted) -> bool {
    headers.get_all(name).iter().any(|value| match wanted {
        Wanted::Any => true,
        Wanted::Value(wanted) => value.as_bytes() == wanted.as_bytes(),
    })
}

fn has_query(query: Option<&str>, name: &str, wanted: &Wanted) -> bool {
    let pairs = query.unwrap_or_default().split('&');
    pairs.filter(|pair| !pair.is_empty()).any(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        form_decoded(key) == name.as_bytes()
            && match wanted {
                Wanted::Any => true,
                Wanted::Value(wanted) => form_decoded(value) == wanted.as_bytes(),
            }
    })
}

/// A name or a value of a query as forms send it, where `+` is a blank.
fn form_decoded(text: &str) -> Vec<u8> {
    path::decode(text.replace('+', " ").as_bytes())
}

impl RouteConfig {
    /// The answer to a request that goes to no node.
    pub(crate) fn answer<B>(&self, host: &str, request: &Request<B>) -> Option<Response<Bytes>> {
        let mut response = Response::new(Bytes::new());
        match &self.action {
            RouteAction::Forward { .. } => return None,
            RouteAction::Answer { status, body } => {
                *response.status_mut() = *status;
                if let Some(body) = body {
                    let kind = HeaderValue::from_static(body.content_type);
                    response.headers_mut().insert(CONTENT_TYPE, kind);
                    *response.body_mut() = body.bytes.clone();
                }
                if *status == StatusCode::METHOD_NOT_ALLOWED {
                    // RFC 9110 §15.5.6 wants it, and an empty one is in order.
                    response
                        .headers_mut()
                        .insert(ALLOW, HeaderValue::from_static(""));
                }
            }
            RouteAction::Redirect { status, to } => {
                *response.status_mut() = *status;
                let rest = self.rest(request);
                let parts = RequestParts {
                    host: bare_host(host),
                    // OPTIONS for the whole server has no path.
                    path: match request.uri().path() {
                        "*" => "/",
                        path => path,
                    },
                    rest: &rest,
                    query: request.uri().query(),
                };
                // All of it was in a head that was read.
                if let Ok(location) = HeaderValue::try_from(to.fill(&parts)) {
                    response.headers_mut().insert(LOCATION, location);
                }
            }
        }
        self.response_headers.apply(response.headers_mut());
        Some(response)
    }

    /// Whether a node is asked for another path.
    pub(crate) fn rewrites(&self) -> bool {
        matches!(self.action, RouteAction::Forward { rewrite: Some(_) })
    }

    /// The request as it goes to a node.
    ///
    /// # Errors
    /// The path that it would have is none.
    pub(crate) fn change<B>(
        &self,
        request: &mut Request<B>,
        config: &ForwardedConfig,
    ) -> Result<(), Reason> {
        if let RouteAction::Forward {
            rewrite: Some(template),
        } = &self.action
        {
            let path = written(&path::normal(request.uri().path())).into_owned();
            let rest = self.rest(request);
            let parts = RequestParts {
                host: "",
                path: &path,
                rest: &rest,
                query: None,
            };
            let mut target = template.fill(&parts);
            if let Some(query) = request.uri().query() {
                target.push('?');
                target.push_str(query);
            }
            let target = PathAndQuery::try_from(target).map_err(|_| Reason::BadTarget)?;
            *request.uri_mut() = Uri::from(target);
        }
        if !config.underscores {
            self.request_headers.drop_spellings(request.headers_mut());
        }
        self.request_headers.apply(request.headers_mut());
        Ok(())
    }

    /// What the path has below the route's, in normal form.
    fn rest<B>(&self, request: &Request<B>) -> String {
        let path = path::normal(request.uri().path());
        let pattern = self.conditions.path.as_ref();
        let rest = pattern.map_or(Some(&*path), |pattern| pattern.rest(&path));
        written(rest.unwrap_or_default()).into_owned()
    }
}

impl HeaderChanges {
    /// Changes a head.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
    }

    /// Takes out fields of other names that gateways take for those of the changes: they keep letters and digits alone.
    fn drop_spellings(&self, headers: &mut HeaderMap) {
        let changed = || {
            self.remove
                .iter()
                .chain(self.set.iter().map(|(name, _)| name))
        };
        let is_spelling = |name: &HeaderName| {
            let folded = || name.as_str().bytes().map(fold);
            let is_such = |own: &HeaderName| own.as_str().bytes().map(fold).eq(folded());
            changed().any(|own| own != name && is_such(own))
        };
        let such: Vec<_> = headers
            .keys()
            .filter(|name| is_spelling(name))
            .cloned()
            .collect();
        for name in such {
            headers.remove(name);
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty()
    }
}

/// A path in the spelling that all others of the same path are compared by.
pub(crate) struct PlainPath<'a>(Cow<'a, str>);

impl<'a> PlainPath<'a> {
    #[inline]
    pub(crate) fn of(path: &'a str) -> Self {
        Self(match path::normal(path) {
            // It is plain, and mostly the same bytes.
            Cow::Borrowed(_) => Cow::Borrowed(path),
            Cow::Owned(normal) => Cow::Owned(written(&normal).into_owned()),
        })
    }

    /// The same of the target that it is of, which is the path as it was `sent` and perhaps a query, which stays as it is.
    #[inline]
    pub(crate) fn target<'b>(&self, sent: &str, target: &'b str) -> Cow<'b, str> {
        match &self.0 {
            Cow::Borrowed(_) => Cow::Borrowed(target),
            Cow::Owned(plain) => {
                let query = target.get(sent.len()..).unwrap_or_default();
                Cow::Owned(format!("{plain}{query}"))
            }
        }
    }
}

impl Deref for PlainPath<'_> {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        &self.0
    }
}

/// A normal path as it is sent.
fn written(path: &[u8]) -> Cow<'_, str> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || PATH_BYTES.contains(byte);
    match std::str::from_utf8(path) {
        Ok(text) if path.iter().all(is_plain) => Cow::Borrowed(text),
        Ok(_) | Err(_) => {
            let mut out = String::with_capacity(path.len() + 8);
            for byte in path {
                match is_plain(byte) {
                    true => out.push(char::from(*byte)),
                    false => out.push_str(&format!("%{byte:02X}")),
                }
            }
            Cow::Owned(out)
        }
    }
}

/// Whether a method can stand in a condition: those that are refused whatever is configured cannot.
pub fn is_served(method: &Method) -> bool {
    *method != Method::CONNECT && *method != Method::TRACE
}

#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../fuzz/invariants/route.rs"]
pub(crate) mod invariants;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::route::{PathPattern, RouteTimeouts};
    use crate::config::site::CustomBody;

    #[test]
    fn every_spelling_of_a_path_is_one() {
        for (sent, plain) in [
            ("/search", "/search"),
            ("/sea%72ch", "/search"),
            ("//search", "/search"),
            ("/x/../search", "/search"),
            ("/./search/", "/search/"),
            ("/a%20b", "/a%20b"),
            ("/%7bid%7D", "/%7Bid%7D"),
            ("*", "*"),
        ] {
            assert_eq!(&*PlainPath::of(sent), plain, "{sent}");
            let target = format!("{sent}?q=%2F//");
            let of_target = PlainPath::of(sent).target(sent, &target);
            assert_eq!(of_target, format!("{plain}?q=%2F//"));
            assert_eq!(&*PlainPath::of(plain), plain, "{plain}");
        }
    }

    fn request(method: &str, target: &str) -> Request<()> {
        let request = Request::builder().method(method).uri(target);
        request.body(()).unwrap()
    }

    fn forward(rewrite: Option<&str>) -> RouteAction {
        RouteAction::Forward {
            rewrite: rewrite.map(|it| it.parse().unwrap()),
        }
    }

    fn route(path: &str, action: RouteAction) -> RouteConfig {
        RouteConfig {
            conditions: RouteConditions {
                path: Some(PathPattern::parse(path).unwrap()),
                ..RouteConditions::default()
            },
            action,
            request_headers: HeaderChanges::default(),
            response_headers: HeaderChanges::default(),
            timeouts: RouteTimeouts::default(),
            retry_on: None,
            mirror: None,
            hedge: None,
        }
    }

    /// Of an untrusted client.
    fn asking<'a>(host: &'a str, config: &'a ForwardedConfig) -> Asking<'a> {
        Asking {
            host,
            client: "192.0.2.7".parse().unwrap(),
            config,
            asks_certificate: false,
        }
    }

    fn redirect(to: &str) -> RouteAction {
        RouteAction::Redirect {
            status: StatusCode::PERMANENT_REDIRECT,
            to: to.parse().unwrap(),
        }
    }

    #[test]
    fn the_first_route_whose_conditions_all_hold_counts() {
        let mut posts = route("/api/*", forward(None));
        posts.conditions.methods = vec![Method::POST];
        posts.conditions.headers = vec![(HeaderName::from_static("x-beta"), Wanted::Any)];
        let mut asked = route("/api/*", forward(None));
        asked.conditions.query = vec![("v".into(), Wanted::Value("a b".into()))];
        let mut other = route("/api/*", forward(None));
        other.conditions.hosts = vec!["other.example".into()];
        let all = route("/api/*", forward(None));
        let routes: Arc<[_]> = vec![posts, asked, other, all].into();
        let config = ForwardedConfig::default();
        let place = |host: &str, request: &Request<()>| {
            find(&routes, &asking(host, &config), request).map(|found| found.place)
        };
        let mut post = request("POST", "/api/x");
        assert_eq!(place("shop.example", &post), Some(3));
        post.headers_mut()
            .insert("x-beta", HeaderValue::from_static("whatever"));
        assert_eq!(place("shop.example", &post), Some(0));
        assert_eq!(place("", &request("GET", "/api?w=1&%76=a%20b")), Some(1));
        assert_eq!(place("", &request("GET", "/api?v=a+b")), Some(1));
        assert_eq!(place("", &request("GET", "/api?v=a")), Some(3));
        assert_eq!(
            place("Other.example.:8080", &request("GET", "/api")),
            Some(2)
        );
        assert_eq!(
            place("shop.example", &request("GET", "/x/..//%61pi")),
            Some(3)
        );
        assert_eq!(place("shop.example", &request("GET", "/apis")), None);
        let of_any: Arc<[_]> = vec![RouteConfig {
            conditions: RouteConditions::default(),
            ..route("/", forward(None))
        }]
        .into();
        assert!(find(&of_any, &asking("", &config), &request("OPTIONS", "*")).is_some());
    }

    #[test]
    fn what_a_client_may_not_say_holds_in_no_condition() {
        let claims = [
            "x-forwarded-proto",
            "x-real-ip",
            "forwarded",
            "x-forwarded-client-cert",
            "proxy",
        ];
        for name in claims.map(HeaderName::from_static) {
            let mut claimed = route("/*", forward(None));
            claimed.conditions.headers = vec![(name.clone(), Wanted::Any)];
            let routes: Arc<[_]> = vec![claimed].into();
            let mut request = request("GET", "/");
            request
                .headers_mut()
                .insert(&name, HeaderValue::from_static("1"));
            let mut config = ForwardedConfig::default();
            let holds = |config: &ForwardedConfig, asks_certificate| {
                let asking = Asking {
                    asks_certificate,
                    ..asking("", config)
                };
                find(&routes, &asking, &request).is_some()
            };
            assert!(!holds(&config, false), "{name}");
            config.trusted = vec!["192.0.2.0/24".parse().unwrap()];
            assert_eq!(holds(&config, false), name != "proxy", "{name}");
            assert_eq!(
                holds(&config, true),
                !["proxy", "x-forwarded-client-cert"].contains(&name.as_str()),
                "{name}"
            );
            config = ForwardedConfig::default();
            config.keep = vec![name.clone()];
            assert!(holds(&config, false), "{name}");
        }
    }

    #[test]
    fn a_field_that_is_set_has_no_other_spelling_beside_it() {
        let mut route = route("/x", forward(None));
        route.request_headers = HeaderChanges {
            remove: vec![HeaderName::from_static("x-secret")],
            set: vec![(
                HeaderName::from_static("x-user"),
                HeaderValue::from_static("anon"),
            )],
        };
        let mut config = ForwardedConfig::default();
        let names = |config: &ForwardedConfig| {
            let mut request = request("GET", "/x");
            for name in [
                "x-user", "x_user", "x.user", "x_secret", "x-user2", "x_other",
            ] {
                request
                    .headers_mut()
                    .insert(name, HeaderValue::from_static("root"));
            }
            route.change(&mut request, config).unwrap();
            let mut names: Vec<_> = request.headers().keys().map(ToString::to_string).collect();
            names.sort();
            assert_eq!(request.headers()["x-user"], "anon");
            names
        };
        assert_eq!(names(&config), ["x-user", "x-user2", "x_other"]);
        config.underscores = true;
        assert_eq!(names(&config).len(), 6);
    }

    #[test]
    fn a_rewritten_path_stays_below_where_it_is_put() {
        let route = route("/api/*", forward(Some("/v2{rest}")));
        for (sent, expected) in [
            ("/api/x?q=1", "/v2/x?q=1"),
            ("/api", "/v2"),
            ("/api/", "/v2/"),
            ("/x/../api/a%20b", "/v2/a%20b"),
            ("/api/../api/..%2Fapi/z", "/v2/z"),
            ("/api/a%3Fb%23c", "/v2/a%3Fb%23c"),
            ("/api/%ff", "/v2/%FF"),
        ] {
            let mut request = request("GET", sent);
            route
                .change(&mut request, &ForwardedConfig::default())
                .unwrap();
            assert_eq!(request.uri(), expected, "{sent}");
        }
    }

    #[test]
    fn heads_change_as_configured() {
        let mut route = route("/x", forward(None));
        route.request_headers = HeaderChanges {
            remove: vec![HeaderName::from_static("cookie")],
            set: vec![(
                HeaderName::from_static("x-a"),
                HeaderValue::from_static("1"),
            )],
        };
        let mut request = request("GET", "/x");
        for name in ["cookie", "x-a", "x-b"] {
            request
                .headers_mut()
                .append(name, HeaderValue::from_static("client"));
            request
                .headers_mut()
                .append(name, HeaderValue::from_static("again"));
        }
        route
            .change(&mut request, &ForwardedConfig::default())
            .unwrap();
        let headers = request.headers();
        assert!(!headers.contains_key("cookie"));
        assert_eq!(headers.get_all("x-a").iter().count(), 1);
        assert_eq!(headers.get_all("x-b").iter().count(), 2);
        assert_eq!(request.uri(), "/x");
    }

    #[test]
    fn a_redirect_says_where_to_and_keeps_what_was_asked() {
        let route = route("/old/*", redirect("https://{host}/new{rest}{query}"));
        let answer = route.answer("shop.example:8080", &request("GET", "/old/a?q=1"));
        let answer = answer.unwrap();
        assert_eq!(answer.status(), StatusCode::PERMANENT_REDIRECT);
        assert_eq!(answer.headers()[LOCATION], "https://shop.example/new/a?q=1");
    }

    #[test]
    fn an_answer_has_its_body_and_its_headers() {
        let mut route = route(
            "/",
            RouteAction::Answer {
                status: StatusCode::SERVICE_UNAVAILABLE,
                body: Some(CustomBody {
                    content_type: "text/plain",
                    bytes: Bytes::from_static(b"back at noon"),
                }),
            },
        );
        route.response_headers.set = vec![(
            HeaderName::from_static("retry-after"),
            HeaderValue::from_static("3600"),
        )];
        let answer = route.answer("", &request("GET", "/")).unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers()["retry-after"], "3600");
        assert_eq!(answer.headers()[CONTENT_TYPE], "text/plain");
        assert_eq!(answer.body(), "back at noon");
        assert!(
            route
                .change(&mut request("GET", "/"), &ForwardedConfig::default())
                .is_ok()
        );
    }
}
