//! Traces as a collector gets them from a real front-end: spans and what they say, collectors that refuse, stand still or are not there.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs::Permissions;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use support::collector::{Collector, Reply, Span};
use support::mirror::Mirror;
use support::server::server_that;
use support::tls::Authority;
use support::{FrontEnd, Process, Response, eventually, folder, free_address, request, tidegate};

const SERVER: u64 = 2;
const CLIENT: u64 = 3;
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn traces(collector: &Collector, more: &str) -> String {
    format!(
        "[traces]\notlp = \"http://{}\"\n{more}\n",
        collector.address
    )
}

fn site(nodes: &[std::net::SocketAddr]) -> String {
    let mut text = "[[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\n".to_owned();
    for (number, address) in nodes.iter().enumerate() {
        let node =
            format!("[[node]]\nname = \"n{number}\"\naddress = \"{address}\"\nsite = \"shop\"\n");
        text.push_str(&node);
    }
    text
}

/// Asks as part of a recorded trace.
fn ask(front_end: &FrontEnd, path: &str) -> Response {
    ask_with(front_end, path, &format!("00-{TRACE}-{CALLER}-01"))
}

fn ask_with(front_end: &FrontEnd, path: &str, parent: &str) -> Response {
    let text = format!(
        "GET {path} HTTP/1.1\r\nHost: shop.example\r\ntraceparent: {parent}\r\ntracestate: a=1\r\n\
         Connection: close\r\n\r\n"
    );
    request(front_end.address, &text).unwrap()
}

fn server_of(collector: &Collector, path: &str) -> Span {
    eventually("the request is exported", || {
        collector.find(SERVER, "url.path", path)
    })
}

/// The spans of a request's nodes, in their order.
fn clients_of(collector: &Collector, server: &Span) -> Vec<Span> {
    let spans = collector.spans().into_iter();
    let own = spans.filter(|it| it.kind == CLIENT && it.parent == server.id);
    own.collect()
}

fn of<'a>(span: &'a Span, key: &str) -> &'a str {
    span.attributes.get(key).map_or("", String::as_str)
}

fn metric(front_end: &FrontEnd, start: &str) -> f64 {
    front_end.metric(start).unwrap()
}

/// Spans of `GET /cart?token=secret`, without the query.
fn has_attributes(server: &Span, client: &Span, node: std::net::SocketAddr) {
    let port = node.port().to_string();
    for (span, key, value) in [
        (server, "http.request.method", "GET"),
        (server, "http.response.status_code", "200"),
        (server, "url.scheme", "http"),
        (server, "url.query", ""),
        (server, "server.address", "shop.example"),
        (server, "client.address", "127.0.0.1"),
        (server, "network.protocol.version", "1.1"),
        (server, "tidegate.site", "shop"),
        (server, "tidegate.node", "n0"),
        (server, "error.type", ""),
        (client, "http.request.method", "GET"),
        (client, "http.response.status_code", "200"),
        (client, "server.address", "127.0.0.1"),
        (client, "server.port", &port),
        (client, "url.full", &format!("http://{}/cart", node)),
        (client, "http.request.resend_count", ""),
    ] {
        assert_eq!(of(span, key), value, "{key}: {span:?}");
    }
}

#[test]
fn a_recorded_request_is_a_span_and_its_node_another() {
    let folder = folder("traces");
    let (mirror, collector) = (Mirror::start(), Collector::start());
    let text = traces(&collector, "instance = \"gate-1\"") + &site(&[mirror.address]);
    let front_end = FrontEnd::start(&folder, &text);
    let unrecorded = format!("00-{TRACE}-{CALLER}-00");
    let told = ask_with(&front_end, "/unrecorded", &unrecorded).body;
    assert!(
        told.contains(&format!("traceparent: {unrecorded}\r\n")),
        "{told}"
    );
    assert!(
        !front_end
            .get("shop.example", "/none")
            .body
            .contains("traceparent")
    );
    let told = ask(&front_end, "/cart?token=secret").body;
    let server = server_of(&collector, "/cart");
    let [client] = &clients_of(&collector, &server)[..] else {
        panic!("one node was asked");
    };
    assert_eq!(
        (server.trace.as_str(), server.parent.as_str()),
        (TRACE, CALLER)
    );
    assert_eq!(
        (client.trace.as_str(), server.state.as_str()),
        (TRACE, "a=1")
    );
    // The node gets its own span as the caller.
    let parent = format!("traceparent: 00-{TRACE}-{}-01\r\n", client.id);
    assert!(
        told.contains(&parent) && told.contains("tracestate: a=1\r\n"),
        "{told}"
    );
    let times = [server.begun, client.begun, client.ended, server.ended];
    assert!(
        times.is_sorted() && client.begun < client.ended,
        "{times:?}"
    );
    has_attributes(&server, client, mirror.address);
    assert_eq!((server.name.as_str(), server.is_error), ("GET", false));
    assert_eq!(server.resource["service.name"], "tidegate");
    assert_eq!(server.resource["service.instance.id"], "gate-1");
    let all = collector.spans();
    assert_eq!(
        all.len(),
        2,
        "what is not recorded is not exported: {all:?}"
    );
    let head = &collector.heads()[0];
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("content-type: application/x-protobuf\r\n"),
        "{head}"
    );
    eventually("it is counted", || {
        (metric(&front_end, "tidegate_trace_spans_exported_total") == 2.0).then_some(())
    });
}

#[test]
fn a_refusal_and_a_node_that_fails_say_why() {
    let folder = folder("traces-failures");
    let (mirror, collector) = (Mirror::start(), Collector::start());
    let text = traces(&collector, "query = true") + &site(&[free_address(), mirror.address]);
    let front_end = FrontEnd::start(&folder, &text);
    let text = format!(
        "GET /nowhere?a=b HTTP/1.1\r\nHost: other.example\r\ntraceparent: 00-{TRACE}-{CALLER}-01\r\n\
         Connection: close\r\n\r\n"
    );
    assert_eq!(request(front_end.address, &text).unwrap().status, 404);
    let refused = server_of(&collector, "/nowhere");
    assert_eq!(of(&refused, "tidegate.reason"), "no_site");
    assert_eq!(of(&refused, "url.query"), "a=b");
    assert_eq!(of(&refused, "http.response.status_code"), "404");
    assert!(!refused.is_error && clients_of(&collector, &refused).is_empty());
    // Either node is asked first, until one of them has failed too often.
    let mut asked = 0;
    let (told, server) = eventually("a node was asked after another", || {
        asked += 1;
        let path = format!("/{asked}");
        let told = ask(&front_end, &path);
        assert_eq!(told.status, 200);
        let server = server_of(&collector, &path);
        (of(&server, "tidegate.tries") == "2").then_some((told.body, server))
    });
    let [first, second] = &clients_of(&collector, &server)[..] else {
        panic!("two nodes were asked");
    };
    assert_eq!(
        (of(first, "error.type"), first.is_error),
        ("connect_failed", true)
    );
    assert_eq!(of(first, "tidegate.node"), "n0");
    assert_eq!(of(first, "url.full"), "", "nothing was sent there");
    assert_eq!(of(second, "http.request.resend_count"), "1");
    assert_eq!(
        (of(second, "tidegate.node"), second.is_error),
        ("n1", false)
    );
    assert_eq!(
        (of(&server, "tidegate.node"), server.is_error),
        ("n1", false)
    );
    assert!(told.contains(&format!("-{}-01\r\n", second.id)), "{told}");
    assert!(first.ended <= second.begun);
}

/// Both nodes have a span, from their own begin on; one was given up.
#[test]
fn a_second_node_of_a_slow_request_has_a_span_beside_the_first() {
    let folder = folder("traces-hedge");
    let (mirror, collector) = (Mirror::start(), Collector::start());
    let still = server_that(Ipv4Addr::LOCALHOST.into(), |mut stream| {
        // An error is an end as well.
        stream.read_to_end(&mut Vec::new()).unwrap_or_default();
        None
    });
    let hedge =
        "policy = \"round_robin\"\n[[site.route]]\nhedge = { after = \"20ms\", most = 1.0 }\n";
    let text = site(&[still, mirror.address]).replacen("[[node]]", &format!("{hedge}[[node]]"), 1);
    let front_end = FrontEnd::start(&folder, &(traces(&collector, "") + &text));
    let mut asked = 0;
    let (told, server) = eventually("the still node was asked first", || {
        asked += 1;
        let path = format!("/{asked}");
        let told = ask(&front_end, &path);
        assert_eq!(told.status, 200);
        let server = server_of(&collector, &path);
        (of(&server, "tidegate.hedged") == "won").then_some((told.body, server))
    });
    let [first, second] = &clients_of(&collector, &server)[..] else {
        panic!("two nodes were asked");
    };
    assert_eq!(
        (of(first, "tidegate.lost"), of(first, "tidegate.hedge")),
        ("true", "")
    );
    assert_eq!(
        (of(second, "tidegate.lost"), of(second, "tidegate.hedge")),
        ("", "true")
    );
    assert_eq!(of(second, "http.response.status_code"), "200");
    assert!(!first.is_error && !second.is_error && !server.is_error);
    assert!(first.begun < second.begun && second.begun < first.ended);
    assert!(first.ended <= second.ended);
    assert!(told.contains(&format!("-{}-01\r\n", second.id)), "{told}");
}

/// The example's share of requests without a trace, made larger, and a service of its own.
#[test]
fn the_example_begins_traces_of_its_own() {
    let folder = folder("traces-example");
    let (mirror, collector) = (Mirror::start(), Collector::start());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces.toml");
    let (web, admin) = (free_address(), free_address());
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("trace_sampled = 0.01"));
    let text = text
        .replace("127.0.0.1:8081", &mirror.address.to_string())
        .replace("0.0.0.0:8080", &web.to_string())
        .replace("127.0.0.1:4318", &collector.address.to_string())
        .replace("trace_sampled = 0.01", "trace_sampled = 0.5");
    let file = folder.join("tidegate.toml");
    std::fs::write(&file, format!("{text}\n[admin]\naddress = \"{admin}\"\n")).unwrap();
    let mut process = Process::start(tidegate().arg("run").arg(&file));
    eventually("it is ready", || {
        (support::ask(admin, "/readyz")?.status == 200).then_some(())
    });
    let mut recorded = Vec::new();
    for number in 0..64 {
        let text = format!("GET /{number} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let told = request(web, &text).unwrap().body;
        let parent = told.lines().find_map(|it| it.strip_prefix("traceparent: "));
        if let Some(parent) = parent.unwrap().strip_suffix("-01") {
            recorded.push((format!("/{number}"), parent.to_owned()));
        }
    }
    assert!((1..64).contains(&recorded.len()), "{recorded:?}");
    // The last ones are sent at the end.
    process.signal("TERM");
    assert_eq!(process.wait(), Some(0));
    let spans = collector.spans();
    assert_eq!(spans.len(), 2 * recorded.len());
    for (path, parent) in recorded {
        let server = collector.find(SERVER, "url.path", &path).unwrap();
        assert_eq!((server.parent.as_str(), server.state.as_str()), ("", ""));
        assert_eq!(server.resource["service.name"], "shop-front");
        let clients = clients_of(&collector, &server);
        let told = format!("00-{}-{}", server.trace, clients[0].id);
        assert_eq!(parent, told);
    }
}

#[test]
fn what_a_collector_refuses_is_dropped_and_what_it_delays_comes_later() {
    let folder = folder("traces-refused");
    let mirror = Mirror::start();
    // A part of an answer: one rejected span, and why.
    let partial = b"\x0a\x09\x08\x01\x12\x05stale".to_vec();
    let collector = Collector::start_at(
        ([127, 0, 0, 1], 0).into(),
        &[
            Reply::Now(400, "", Vec::new()),
            Reply::Now(503, "retry-after: 0\r\n", Vec::new()),
            Reply::Now(429, "", Vec::new()),
            Reply::Now(200, "", Vec::new()),
            Reply::Now(200, "", partial),
        ],
    );
    let front_end = FrontEnd::start(
        &folder,
        &(traces(&collector, "") + &site(&[mirror.address])),
    );
    assert_eq!(ask(&front_end, "/refused").status, 200);
    let dropped = "tidegate_trace_requests_dropped_total{reason=\"refused\"}";
    eventually("the batch is refused", || {
        (metric(&front_end, dropped) == 1.0).then_some(())
    });
    assert_eq!(ask(&front_end, "/later").status, 200);
    let later = server_of(&collector, "/later");
    assert_eq!(collector.heads().len(), 4, "it was sent until it was taken");
    assert_eq!(clients_of(&collector, &later).len(), 1);
    let outcome = |name: &str| {
        let start = format!("tidegate_trace_exports_total{{outcome=\"{name}\"}}");
        metric(&front_end, &start)
    };
    eventually("it is counted", || (outcome("taken") == 1.0).then_some(()));
    assert_eq!((outcome("refused"), outcome("failed")), (1.0, 2.0));
    assert_eq!(ask(&front_end, "/partial").status, 200);
    eventually("a span is rejected", || {
        (outcome("partial") == 1.0).then_some(())
    });
    let rejected = metric(&front_end, "tidegate_trace_spans_rejected_total");
    let exported = metric(&front_end, "tidegate_trace_spans_exported_total");
    assert_eq!((rejected, exported), (1.0, 3.0));
    assert!(collector.find(SERVER, "url.path", "/refused").is_none());
    let log = std::fs::read_to_string(folder.join("front-end.log")).unwrap();
    for said in [
        "it answers 400",
        "takes them again",
        "rejects some (1 spans): stale",
    ] {
        assert_eq!(log.matches(said).count(), 1, "{said}: {log}");
    }
}

#[test]
fn a_collector_that_is_gone_or_stands_still_holds_nothing_up() {
    let folder = folder("traces-gone");
    let mirror = Mirror::start();
    let address = free_address();
    let text = format!("[traces]\notlp = \"http://{address}\"\n") + &site(&[mirror.address]);
    let mut front_end = FrontEnd::start(&folder, &text);
    assert_eq!(ask(&front_end, "/early").status, 200);
    let failed = "tidegate_trace_exports_total{outcome=\"failed\"}";
    eventually("it is not there", || {
        (metric(&front_end, failed) > 0.0).then_some(())
    });
    // Once it is there it gets what came before.
    let collector = Collector::start_at(address, &[Reply::Hang]);
    eventually("a batch is under way", || {
        (!collector.heads().is_empty()).then_some(())
    });
    for _ in 0..100 {
        assert_eq!(ask(&front_end, "/late").status, 200);
    }
    // Its answer is not waited for at the end.
    front_end.process.signal("TERM");
    assert_eq!(front_end.process.wait(), Some(0));
    let log = std::fs::read_to_string(folder.join("front-end.log")).unwrap();
    assert!(
        log.contains("the last traces were not exported in time"),
        "{log}"
    );
}

#[test]
fn no_more_requests_are_exported_than_a_second_may_have() {
    let folder = folder("traces-rate");
    let (mirror, collector) = (Mirror::start(), Collector::start());
    let text = traces(&collector, "requests_per_second = 1") + &site(&[mirror.address]);
    let front_end = FrontEnd::start(&folder, &text);
    let dropped = "tidegate_trace_requests_dropped_total{reason=\"rate\"}";
    let own = format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n");
    eventually("there are two within a second", || {
        let told = ask(&front_end, "/").body;
        let is_as_sent = told.contains(&own);
        let dropped = metric(&front_end, dropped);
        assert_eq!(
            is_as_sent,
            dropped > 0.0,
            "one that is not exported goes on as it came"
        );
        is_as_sent.then_some(())
    });
    server_of(&collector, "/");
}

/// The collector is behind a front-end that speaks TLS.
#[test]
fn a_collector_that_speaks_tls_is_believed_by_its_authority_alone() {
    let folder = folder("traces-tls");
    let Some(authority) = Authority::new(&folder) else {
        return;
    };
    let (mirror, collector) = (Mirror::start(), Collector::start());
    let pair = authority.issue("collector", &["localhost"]);
    let (secure, keys) = (free_address(), pair.keys());
    let before = format!(
        "[[site]]\nname = \"otlp\"\n[[node]]\nname = \"collector\"\naddress = \"{}\"\nsite = \"otlp\"\n\
         [[listener]]\naddress = \"{secure}\"\ntls = {{ {keys} }}\n",
        collector.address
    );
    let gate = folder.join("gate");
    std::fs::create_dir_all(&gate).unwrap();
    let _gate = FrontEnd::start(&gate, &before);
    let other = Authority::named(&folder, "other").unwrap();
    let secret = folder.join("headers");
    std::fs::write(&secret, "authorization: Bearer secret\n").unwrap();
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let text = |authority: &Authority| {
        let (port, file) = (secure.port(), authority.file());
        format!(
            "[traces]\notlp = \"https://localhost:{port}\"\nca_file = \"{}\"\nheaders_file = \"headers\"\n{}",
            file.display(),
            site(&[mirror.address])
        )
    };
    let front_end = FrontEnd::start(&folder, &text(&other));
    assert_eq!(ask(&front_end, "/kept").status, 200);
    let failed = "tidegate_trace_exports_total{outcome=\"failed\"}";
    eventually("its certificate is not believed", || {
        (metric(&front_end, failed) > 0.0).then_some(())
    });
    assert!(collector.heads().is_empty());
    let file = folder.join("tidegate.toml");
    let now = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, now.replace(&text(&other), &text(&authority))).unwrap();
    let admin = front_end.admin.to_string();
    let done = tidegate().args(["reload", "--admin", &admin]).output();
    assert!(done.unwrap().status.success());
    // What waited goes to the new one.
    server_of(&collector, "/kept");
    assert!(collector.heads()[0].contains("authorization: Bearer secret\r\n"));
}

#[test]
fn a_reload_has_another_collector_or_none() {
    let folder = folder("traces-reload");
    let (mirror, first, second) = (Mirror::start(), Collector::start(), Collector::start());
    let site = site(&[mirror.address]);
    let front_end = FrontEnd::start(&folder, &site);
    assert_eq!(ask(&front_end, "/off").status, 200);
    let secret = folder.join("headers");
    std::fs::write(&secret, "authorization: Bearer secret\nx-scope: one\n").unwrap();
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let file = folder.join("tidegate.toml");
    let off = std::fs::read_to_string(&file).unwrap();
    let reload = |traces: &str| {
        std::fs::write(&file, format!("{off}\n{traces}")).unwrap();
        let admin = front_end.admin.to_string();
        let done = tidegate()
            .args(["reload", "--admin", &admin])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(
            done.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&done.stderr)
        );
        said
    };
    // Workers take it over with their next tick.
    let exported = |collector: &Collector, path: &str| {
        eventually("requests are exported there", || {
            assert_eq!(ask(&front_end, path).status, 200);
            collector.find(SERVER, "url.path", path)
        });
    };
    reload(&traces(&first, "headers_file = \"headers\""));
    exported(&first, "/first");
    let head = &first.heads()[0];
    assert!(
        head.contains("authorization: Bearer secret\r\nx-scope: one\r\n"),
        "{head}"
    );
    let said = reload(&traces(&second, ""));
    assert!(said.contains(&second.address.to_string()), "{said}");
    exported(&second, "/second");
    assert!(!second.heads()[0].contains("authorization"));
    reload("");
    eventually("requests go on as they come", || {
        let told = ask(&front_end, "/off").body;
        told.contains(&format!("-{CALLER}-01\r\n")).then_some(())
    });
    assert!(first.find(SERVER, "url.path", "/off").is_none());
}
