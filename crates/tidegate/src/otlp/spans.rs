//! From a request to its spans, with OpenTelemetry's names for what is known of it.
//!
//! ```text
//! SERVER  the request: from its head to the last byte; parent: the span that `traceparent` names
//!   └─ CLIENT  a node that was asked: from its choice to the end of its answer; one for each
//! ```
//!
//! Names without `tidegate.` are stable ones of the conventions for HTTP. A span is an error by their rules: a server's from
//! status 500 on, a client's from 400 on, and where the answer broke off.
//! Source: OTEL-HTTP.

use tidegate_proxy::{Ending, Reason, SpanId, TraceId, TracedRequest, TracedTry};

use super::message::{KeyValue, Span, SpanKind, Status, StatusCode, Value, attribute};

/// The methods that the conventions know.
const METHODS: [&str; 9] = [
    "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE",
];
/// In the place of any other.
const OTHER_METHOD: &str = "_OTHER";
/// The status of a request whose client left before there was an answer: none was sent.
const NOT_SENT: u16 = 499;
/// Least status of a server that is an error.
const SERVER_ERROR: u16 = 500;
/// The same of a node's answer.
const CLIENT_ERROR: u16 = 400;

/// All spans of a request, its own first.
pub(crate) fn spans(request: &TracedRequest) -> Vec<Span> {
    let mut spans = Vec::with_capacity(1 + request.tries.len());
    spans.push(server(request));
    for (resends, asked) in request.tries.iter().enumerate() {
        spans.push(client(request, asked, resends as u64));
    }
    spans
}

/// How many spans it has.
pub(crate) fn count(request: &TracedRequest) -> u64 {
    1 + request.tries.len() as u64
}

/// Attributes that are made one by one.
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.0.push(attribute(key, value));
    }

    fn put_some<T: Into<Value>>(&mut self, key: &str, value: Option<T>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    fn put_method(&mut self, method: &str) {
        match METHODS.contains(&method) {
            true => self.put("http.request.method", method),
            false => {
                self.put("http.request.method", OTHER_METHOD);
                self.put("http.request.method_original", method);
            }
        }
    }
}

fn server(request: &TracedRequest) -> Span {
    let mut all = Attributes(Vec::with_capacity(24));
    all.put_method(&request.method);
    all.put("url.scheme", request.scheme);
    all.put("url.path", request.path.as_str());
    all.put_some("url.query", request.query.as_deref());
    if let Some((host, port)) = request.host.as_deref().map(host_and_port) {
        let usual = if request.scheme == "https" { 443 } else { 80 };
        all.put("server.address", host);
        all.put("server.port", port.unwrap_or(usual));
    }
    let client = request.client.to_string();
    all.put("client.address", client.as_str());
    all.put("network.peer.address", client.as_str());
    all.put("network.protocol.version", request.version);
    all.put_some("user_agent.original", request.user_agent.as_deref());
    let status = (request.status != NOT_SENT).then_some(request.status);
    all.put_some("http.response.status_code", status.map(u64::from));
    all.put_some("tidegate.site", request.site.as_deref());
    let node = request.tries.iter().rfind(|it| !it.lost);
    all.put_some("tidegate.node", node.map(|it| it.node.as_str()));
    all.put("tidegate.tries", request.tries.len() as u64);
    all.put(
        "tidegate.queue_us",
        (request.queued_until - request.begun) / 1000,
    );
    all.put("tidegate.request_bytes", request.bytes_in);
    all.put("tidegate.response_bytes", request.bytes);
    all.put_some("tidegate.throttle", request.throttle.as_deref());
    all.put_some("tidegate.hedged", request.hedged.map(|it| it.label()));
    all.put_some(
        "tidegate.retry_denied",
        request.retry_denied.then_some(true),
    );
    all.put_some("tidegate.reason", request.reason.map(Reason::label));
    let error = error_of(request);
    all.put_some("error.type", error.as_deref());
    Span {
        parent_span_id: request.parent.map(span_bytes).unwrap_or_default(),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: request.begun,
        end_time_unix_nano: request.ended,
        ..span(request, request.span, all, error.is_some())
    }
}

/// What went wrong with a request, if that is an error of ours or on the way.
fn error_of(request: &TracedRequest) -> Option<String> {
    let by_status = request.status >= SERVER_ERROR;
    let Some(reason) = request.reason else {
        return by_status.then(|| request.status.to_string());
    };
    let is_error = match reason.ending() {
        Ending::Failed => true,
        // A tunnel that rests has served.
        Ending::Cancelled => reason != Reason::TunnelIdle,
        Ending::Rejected | Ending::Completed => by_status,
    };
    is_error.then(|| reason.label().to_owned())
}

fn client(request: &TracedRequest, asked: &TracedTry, resends: u64) -> Span {
    let mut all = Attributes(Vec::with_capacity(16));
    all.put_method(&request.method);
    let (ip, port) = (asked.address.ip().to_string(), asked.address.port());
    let scheme = if asked.tls { "https" } else { "http" };
    if !asked.target.is_empty() {
        let url = format!("{scheme}://{}{}", asked.address, asked.target);
        all.put("url.full", url);
    }
    all.put("url.scheme", scheme);
    all.put("server.address", ip.as_str());
    all.put("server.port", u64::from(port));
    all.put("network.peer.address", ip);
    all.put("network.peer.port", u64::from(port));
    let version = if asked.http2 { "2" } else { "1.1" };
    all.put("network.protocol.version", version);
    all.put_some("http.response.status_code", asked.status.map(u64::from));
    all.put_some(
        "http.request.resend_count",
        (resends > 0).then_some(resends),
    );
    all.put_some("tidegate.site", request.site.as_deref());
    all.put("tidegate.node", asked.node.as_str());
    let head_us = asked
        .head
        .map(|head| head.saturating_sub(asked.begun) / 1000);
    all.put_some("tidegate.head_us", head_us);
    all.put_some("tidegate.hedge", asked.hedge.then_some(true));
    all.put_some("tidegate.lost", asked.lost.then_some(true));
    let by_status = asked.status.filter(|status| *status >= CLIENT_ERROR);
    let error = asked.error.map(|it| it.label().to_owned());
    let error = error.or_else(|| by_status.map(|it| it.to_string()));
    all.put_some("error.type", error.as_deref());
    Span {
        parent_span_id: span_bytes(request.span),
        kind: SpanKind::Client.into(),
        start_time_unix_nano: asked.begun,
        end_time_unix_nano: asked.ended,
        ..span(request, asked.span, all, error.is_some())
    }
}

fn span(request: &TracedRequest, id: SpanId, attributes: Attributes, is_error: bool) -> Span {
    let method = request.method.as_str();
    Span {
        trace_id: trace_bytes(request.trace),
        span_id: span_bytes(id),
        trace_state: request.state.clone().unwrap_or_default(),
        name: if METHODS.contains(&method) {
            method
        } else {
            "HTTP"
        }
        .to_owned(),
        attributes: attributes.0,
        status: is_error.then(|| Status {
            message: String::new(),
            code: StatusCode::Error.into(),
        }),
        // The trace is recorded.
        flags: 1,
        ..Span::default()
    }
}

fn trace_bytes(id: TraceId) -> Vec<u8> {
    id.get().to_be_bytes().to_vec()
}

fn span_bytes(id: SpanId) -> Vec<u8> {
    id.get().to_be_bytes().to_vec()
}

/// `a:80`, `[::1]:80`, `a`.
fn host_and_port(host: &str) -> (&str, Option<u64>) {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
        Some(_) | None => (host, None),
    };
    (name.trim_matches(['[', ']']), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> TracedRequest {
        TracedRequest {
            trace: TraceId::new(7).unwrap(),
            parent: SpanId::new(1),
            state: Some("a=1".into()),
            span: SpanId::new(2).unwrap(),
            begun: 1_000,
            ended: 9_000,
            queued_until: 4_000,
            method: "GET".into(),
            scheme: "http",
            host: Some("[::1]:8080".into()),
            path: "/cart".into(),
            query: None,
            user_agent: None,
            client: [127, 0, 0, 1].into(),
            version: "1.1",
            status: 200,
            bytes: 5,
            bytes_in: 0,
            site: Some("shop".into()),
            throttle: None,
            retry_denied: false,
            hedged: None,
            reason: None,
            tries: Vec::new(),
        }
    }

    fn asked(status: Option<u16>, error: Option<Reason>) -> TracedTry {
        TracedTry {
            span: SpanId::new(3).unwrap(),
            node: "n1".into(),
            address: ([10, 0, 0, 1], 80).into(),
            hedge: false,
            target: "/cart".into(),
            tls: false,
            http2: false,
            begun: 4_000,
            head: status.map(|_| 6_000),
            ended: 8_000,
            status,
            error,
            lost: false,
        }
    }

    fn of<'a>(span: &'a Span, key: &str) -> Option<&'a Value> {
        let found = span.attributes.iter().find(|it| it.key == key)?;
        found.value.as_ref()?.value.as_ref()
    }

    fn is_error(span: &Span) -> bool {
        span.status.is_some()
    }

    #[test]
    fn a_request_is_a_server_and_each_node_a_client() {
        let mut traced = request();
        traced.tries = vec![asked(None, Some(Reason::Reset)), asked(Some(200), None)];
        let all = spans(&traced);
        assert_eq!(all.len() as u64, count(&traced));
        let [server, first, second] = &all[..] else {
            panic!("three spans");
        };
        assert_eq!(server.parent_span_id, 1u64.to_be_bytes());
        assert_eq!(server.trace_id, 7u128.to_be_bytes());
        assert_eq!(first.parent_span_id, server.span_id);
        assert_eq!(
            (server.kind(), first.kind()),
            (SpanKind::Server, SpanKind::Client)
        );
        assert_eq!(of(server, "server.address"), Some(&"::1".into()));
        assert_eq!(of(server, "server.port"), Some(&8080u64.into()));
        assert_eq!(
            of(server, "http.response.status_code"),
            Some(&200u64.into())
        );
        assert_eq!(of(server, "tidegate.queue_us"), Some(&3u64.into()));
        assert_eq!(of(first, "error.type"), Some(&"reset".into()));
        assert_eq!(of(first, "http.request.resend_count"), None);
        assert_eq!(of(second, "http.request.resend_count"), Some(&1u64.into()));
        assert_eq!(
            of(second, "url.full"),
            Some(&"http://10.0.0.1:80/cart".into())
        );
        assert!(!is_error(server) && is_error(first) && !is_error(second));
    }

    #[test]
    fn what_is_an_error_depends_on_the_side() {
        let server = |status, reason| {
            let traced = TracedRequest {
                status,
                reason,
                ..request()
            };
            let all = spans(&traced);
            let error = of(&all[0], "error.type").cloned();
            assert_eq!(is_error(&all[0]), error.is_some());
            error
        };
        assert_eq!(server(404, None), None);
        assert_eq!(server(429, Some(Reason::Throttled)), None);
        assert_eq!(server(101, Some(Reason::TunnelIdle)), None);
        assert_eq!(server(500, None), Some("500".into()));
        assert_eq!(
            server(503, Some(Reason::QueueFull)),
            Some("queue_full".into())
        );
        assert_eq!(
            server(200, Some(Reason::ResponseBroken)),
            Some("response_broken".into())
        );
        let gone = TracedRequest {
            status: NOT_SENT,
            reason: Some(Reason::ClientGone),
            ..request()
        };
        let gone = &spans(&gone)[0];
        assert_eq!(of(gone, "http.response.status_code"), None);
        assert_eq!(of(gone, "error.type"), Some(&"client_gone".into()));
        let mut traced = request();
        traced.tries = vec![asked(Some(404), None)];
        let all = spans(&traced);
        assert!(is_error(&all[1]));
        assert_eq!(of(&all[1], "error.type"), Some(&"404".into()));
    }

    #[test]
    fn a_method_that_is_none_is_no_name() {
        let traced = TracedRequest {
            method: "BREW".into(),
            ..request()
        };
        let server = &spans(&traced)[0];
        assert_eq!(server.name, "HTTP");
        assert_eq!(of(server, "http.request.method"), Some(&"_OTHER".into()));
        assert_eq!(
            of(server, "http.request.method_original"),
            Some(&"BREW".into())
        );
    }

    #[test]
    fn a_host_may_have_a_port() {
        for (host, parts) in [
            ("shop.example", ("shop.example", None)),
            ("shop.example:81", ("shop.example", Some(81))),
            ("[::1]", ("::1", None)),
            ("[::1]:81", ("::1", Some(81))),
        ] {
            assert_eq!(host_and_port(host), parts, "{host}");
        }
    }
}
