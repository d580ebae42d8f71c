//! Requests that want to be understood differently by different servers: what of them reaches a
//! node that records the raw bytes, and what is refused, by which name.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::Read;
use std::sync::{Arc, Mutex, mpsc};

use common::{Bench, Node, ok, until};
use tidegate_proxy::{Ending, Network};

/// What becomes of a request.
enum Fate {
    /// It is refused with this status and reason, and the node never sees it.
    Refused(u16, &'static str),
    /// The node gets exactly one request; it has these fields and bytes, and none of those.
    Forwarded {
        has: &'static [&'static str],
        lacks: &'static [&'static str],
    },
}

use Fate::{Forwarded, Refused};

struct Case {
    what: &'static str,
    raw: &'static [u8],
    fate: Fate,
}

const fn case(what: &'static str, raw: &'static [u8], fate: Fate) -> Case {
    Case { what, raw, fate }
}

const CASES: &[Case] = &[
    case(
        "Content-Length twice, different",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        Refused(400, "bad_request"),
    ),
    case(
        "Content-Length twice, the same",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        Forwarded {
            has: &["content-length: 5", "hello"],
            lacks: &["content-length: 5\r\ncontent-length"],
        },
    ),
    case(
        "Content-Length with a sign",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: +5\r\n\r\nhello",
        Refused(400, "bad_request"),
    ),
    case(
        "Content-Length as a list",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5, 5\r\n\r\nhello",
        Refused(400, "bad_request"),
    ),
    case(
        "Content-Length beyond all numbers",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 99999999999999999999\r\n\r\n",
        Refused(413, "body_too_large"),
    ),
    case(
        "Content-Length of 2^64",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 18446744073709551616\r\n\r\n",
        Refused(413, "body_too_large"),
    ),
    case(
        "Content-Length of 2^64 - 1",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 18446744073709551615\r\n\r\n",
        Refused(413, "body_too_large"),
    ),
    case(
        "Content-Length of 2^64 - 2",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length:18446744073709551614\r\n\r\n",
        Refused(413, "body_too_large"),
    ),
    case(
        "Content-Length of 2^63",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 9223372036854775808\r\n\r\nhello",
        Refused(413, "body_too_large"),
    ),
    case(
        "Content-Length with a zero in front",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 05\r\n\r\nhello",
        Forwarded {
            has: &["content-length: 5\r\n", "hello"],
            lacks: &["content-length: 05"],
        },
    ),
    case(
        "a chunk of 2^64 - 1 bytes",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nhello",
        Refused(413, "body_too_large"),
    ),
    case(
        "a URL with a query and no path",
        b"GET http://shop.example?x=1 HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        Forwarded {
            has: &["GET /?x=1 HTTP/1.1\r\n", "host: shop.example\r\n"],
            lacks: &[],
        },
    ),
    case(
        "OPTIONS for a URL without a path",
        b"OPTIONS http://shop.example HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        Forwarded {
            has: &["OPTIONS * HTTP/1.1\r\n", "host: shop.example\r\n"],
            lacks: &[],
        },
    ),
    case(
        "OPTIONS for a URL that is a root",
        b"OPTIONS http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        Forwarded {
            has: &["OPTIONS / HTTP/1.1\r\n"],
            lacks: &[],
        },
    ),
    case(
        "OPTIONS for a URL with a query and no path",
        b"OPTIONS http://shop.example?x HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        Forwarded {
            has: &["OPTIONS /?x HTTP/1.1\r\n"],
            lacks: &[],
        },
    ),
    case(
        "names of trailers before a body that can have none",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nTrailer: x-sum\r\nContent-Length: 5\r\n\r\nhello",
        Forwarded {
            has: &["content-length: 5\r\n"],
            lacks: &["trailer:"],
        },
    ),
    case(
        "Content-Length before Transfer-Encoding",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused(400, "length_and_encoding"),
    ),
    case(
        "Content-Length behind Transfer-Encoding",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        Refused(400, "length_and_encoding"),
    ),
    case(
        "Transfer-Encoding that is none",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        Refused(400, "bad_encoding"),
    ),
    case(
        "Transfer-Encoding in quotes",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
        Refused(400, "bad_encoding"),
    ),
    case(
        "Transfer-Encoding without chunks",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: gzip\r\n\r\n",
        Refused(400, "bad_encoding"),
    ),
    case(
        "TLS",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        Refused(400, "tls"),
    ),
    case(
        "TLS with what ends a head",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x0a\x0a\x01",
        Refused(400, "tls"),
    ),
    case(
        "Transfer-Encoding twice",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused(400, "bad_encoding"),
    ),
    case(
        "Transfer-Encoding twice, one of them unknown",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused(400, "bad_encoding"),
    ),
    case(
        "Transfer-Encoding that ends in something else",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        Refused(400, "bad_encoding"),
    ),
    case(
        "Transfer-Encoding in HTTP/1.0",
        b"POST / HTTP/1.0\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused(400, "bad_request"),
    ),
    case(
        "Transfer-Encoding with a vertical tab",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        Refused(400, "bad_encoding"),
    ),
    case(
        "a folded field",
        b"GET / HTTP/1.1\r\nHost: shop.example\r\nX-A: b\r\n c\r\n\r\n",
        Refused(400, "bad_request"),
    ),
    case(
        "a space before the colon",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        Refused(400, "bad_request"),
    ),
    case(
        "a field without a name",
        b"GET / HTTP/1.1\r\nHost: shop.example\r\n: x\r\n\r\n",
        Refused(400, "bad_request"),
    ),
    case(
        "a NUL in a value",
        b"GET / HTTP/1.1\r\nHost: shop.example\r\nX-A: b\x00c\r\n\r\n",
        Refused(400, "bad_request"),
    ),
    case(
        "a lone CR in a value",
        b"GET / HTTP/1.1\r\nHost: shop.example\r\nX-A: b\rX-B: c\r\n\r\n",
        Refused(400, "bad_request"),
    ),
    case(
        "two Hosts",
        b"GET / HTTP/1.1\r\nHost: shop.example\r\nHost: other.example\r\n\r\n",
        Refused(400, "duplicate_host"),
    ),
    case(
        "no Host",
        b"GET / HTTP/1.1\r\nX-A: b\r\n\r\n",
        Refused(400, "missing_host"),
    ),
    case(
        "a Host that is a list",
        b"GET / HTTP/1.1\r\nHost: shop.example, other.example\r\n\r\n",
        Refused(400, "bad_host"),
    ),
    case(
        "an Upgrade that Connection does not name",
        b"GET / HTTP/1.1\r\nHost: shop.example\r\nUpgrade: foo\r\n\r\n",
        Forwarded {
            has: &["GET / HTTP/1.1"],
            lacks: &["upgrade"],
        },
    ),
    case(
        "an upgrade to HTTP/2",
        b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n",
        Forwarded {
            has: &["GET / HTTP/1.1"],
            lacks: &["upgrade", "http2-settings", "connection"],
        },
    ),
    case(
        "fields that Connection names",
        b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close, X-Secret, Host\r\nX-Secret: 1\r\nX-Kept: 2\r\n\r\n",
        Forwarded {
            has: &["x-kept: 2", "host: shop.example"],
            lacks: &["x-secret", "connection"],
        },
    ),
    case(
        "claims about the client",
        b"GET / HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 10.0.0.1\r\nForwarded: for=10.0.0.1\r\n\r\n",
        Forwarded {
            has: &["x-forwarded-for: 127.0.0.1"],
            lacks: &["10.0.0.1", "\r\nforwarded"],
        },
    ),
    case(
        "names that some servers take for others",
        b"POST / HTTP/1.1\r\nHost: shop.example\r\nX_Forwarded_For: 10.0.0.1\r\nX-Forwarded_For: 10.0.0.1\r\nx_forwarded_host: evil.example\r\nTransfer_Encoding: chunked\r\nContent_Length: 5\r\nProxy_Connection: x\r\nX_Kept: 1\r\nX_Forward_Fox: 2\r\n\r\n",
        Forwarded {
            has: &["x-forwarded-for: 127.0.0.1", "x_kept: 1", "x_forward_fox: 2"],
            lacks: &["10.0.0.1", "evil", "x_forwarded", "transfer", "content_length", "proxy"],
        },
    ),
    case(
        "absolute form against another Host",
        b"GET http://shop.example/a?b HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        Forwarded {
            has: &["GET /a?b HTTP/1.1", "host: shop.example"],
            lacks: &["evil", "http://"],
        },
    ),
    case(
        "absolute form of no site, Host of one",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        Refused(404, "no_site"),
    ),
    case(
        "absolute form with a user",
        b"GET http://shop.example@evil.example/ HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        Refused(400, "bad_target"),
    ),
    case(
        "a target that is no path",
        b"GET shop.example HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        Refused(400, "bad_target"),
    ),
    case(
        "CONNECT",
        b"CONNECT shop.example:443 HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        Refused(405, "method_refused"),
    ),
    case(
        "TRACE",
        b"TRACE / HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        Refused(405, "method_refused"),
    ),
    case(
        "a request line with a space too many",
        b"GET / /b HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        Refused(400, "bad_request"),
    ),
    case(
        "an unknown version",
        b"GET / HTTP/3.7\r\nHost: shop.example\r\n\r\n",
        Refused(400, "bad_request"),
    ),
    case(
        "a preface of a version that there is not",
        b"PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n",
        Refused(400, "bad_request"),
    ),
    case(
        "chunked in capitals, with a GET",
        b"GET / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: CHUNKED\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        Forwarded {
            has: &["transfer-encoding: CHUNKED", "3\r\nabc\r\n", "0\r\n\r\n"],
            lacks: &["content-length"],
        },
    ),
    case(
        "no Host in HTTP/1.0",
        b"GET http://shop.example/ HTTP/1.0\r\n\r\n",
        Forwarded {
            has: &["GET / HTTP/1.1", "host: shop.example"],
            lacks: &["connection"],
        },
    ),
];

#[test]
fn a_length_of_one_request_is_none_of_the_next() {
    let node = Node::answering(|request| ok(request.text()));
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    let empty = "POST /a HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\n\r\n";
    let chunked = "POST /a HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5\r\nhello\r\n0\r\n\r\n";
    let sized = "POST /a HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 3\r\n\r\nyes";
    client.send(&[empty, chunked, sized, chunked, empty, empty, chunked].concat());
    for expected in ["", "hello", "yes", "hello", "", "", "hello"] {
        let answer = client.read_response(false);
        assert_eq!((answer.status(), answer.text()), (200, expected));
    }
    // What is behind a body is looked at as well.
    let both = "POST /a HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\n\
                Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    client.send(&[sized, both].concat());
    assert_eq!(client.read_response(false).text(), "yes");
    assert_eq!(
        client.read_response(false).reason(),
        Some("length_and_encoding")
    );
    assert!(client.is_closed());
    bench.settled();
}

/// A node that keeps every byte that it is sent.
fn recorder() -> (Node, Arc<Mutex<Vec<u8>>>) {
    let record = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&record);
    let node = Node::start(move |peer| {
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = peer.reader.read(&mut buffer) {
            seen.extend_from_slice(&buffer[..read]);
            kept.lock().unwrap().extend_from_slice(&buffer[..read]);
            // Heads end with an empty line, and so do chunked bodies; a body with a length here
            // is `hello`.
            if seen.ends_with(b"\r\n\r\n") || seen.ends_with(b"hello") {
                let waits =
                    seen.windows(9).any(|it| it == b"encoding:") && !seen.ends_with(b"0\r\n\r\n");
                let length = seen.windows(17).any(|it| it == b"content-length: 5");
                if !waits && (!length || seen.ends_with(b"hello")) {
                    seen.clear();
                    peer.write(&ok("done")).unwrap();
                }
            }
        }
    });
    (node, record)
}

#[test]
fn hostile_requests_are_refused_or_made_harmless() {
    let (node, record) = recorder();
    let bench = Bench::new(&[node.address]);
    for case in CASES {
        record.lock().unwrap().clear();
        let mut client = bench.client();
        client.write(case.raw).unwrap();
        let answer = client.read_response(false);
        let seen = String::from_utf8(record.lock().unwrap().clone()).unwrap();
        match &case.fate {
            Refused(status, reason) => {
                assert_eq!(answer.reason(), Some(*reason), "{}", case.what);
                assert_eq!(answer.status(), *status, "{}", case.what);
                assert_eq!(seen, "", "{}", case.what);
            }
            Forwarded { has, lacks } => {
                assert_eq!(answer.text(), "done", "{}: {seen}", case.what);
                let lower = seen.to_lowercase();
                assert_eq!(lower.matches(" http/1.1\r\n").count(), 1, "{}", case.what);
                for text in *has {
                    assert!(seen.contains(text), "{}: no `{text}` in {seen}", case.what);
                }
                for text in *lacks {
                    assert!(!lower.contains(text), "{}: `{text}` in {seen}", case.what);
                }
            }
        }
    }
    until("all are in the books", || {
        bench.snapshot().requests == CASES.len() as u64
    });
    let seen = bench.settled();
    let refused = CASES.iter().filter(|it| matches!(it.fate, Refused(..)));
    assert_eq!(seen.ended_as(Ending::Rejected), refused.count() as u64);
}

#[test]
fn what_follows_a_refused_request_is_not_served() {
    let (node, record) = recorder();
    let bench = Bench::new(&[node.address]);
    // The length hides a second request from a reader that believes it.
    let mut client = bench.client();
    client.send(
        "POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 60\r\n\
         Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: shop.example\r\n\r\n",
    );
    assert_eq!(
        client.read_response(false).reason(),
        Some("length_and_encoding")
    );
    assert!(client.is_closed());
    assert!(record.lock().unwrap().is_empty());
    assert_eq!(bench.settled().requests, 1);
}

#[test]
fn heads_and_bodies_are_limited() {
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| {
        config.limits.head_bytes = 8 << 10;
        config.limits.uri_bytes = 100;
        config.limits.body_bytes = Some(10);
    });
    let field = format!("X-Long: {}\r\n", "a".repeat(9000));
    let many = "X-A: b\r\n".repeat(200);
    let path = "a".repeat(200);
    let cases = [
        (
            format!("GET / HTTP/1.1\r\nHost: shop.example\r\n{field}\r\n"),
            431,
            "head_too_large",
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: shop.example\r\n{many}\r\n"),
            431,
            "head_too_large",
        ),
        (
            format!("GET /{path} HTTP/1.1\r\nHost: shop.example\r\n\r\n"),
            414,
            "uri_too_long",
        ),
        (
            "POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 11\r\n\r\nhello world".into(),
            413,
            "body_too_large",
        ),
        (
            "POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n\
             6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n"
                .into(),
            413,
            "body_too_large",
        ),
    ];
    for (raw, status, reason) in cases {
        let mut client = bench.client();
        client.send(&raw);
        let answer = client.read_response(false);
        assert_eq!((answer.status(), answer.reason()), (status, Some(reason)));
    }
    until("all are in the books", || bench.snapshot().requests == 5);
    assert_eq!(bench.settled().ended_as(Ending::Rejected), 5);
}

#[test]
fn a_trusted_client_is_believed() {
    let (node, record) = recorder();
    let bench = Bench::with(&[node.address], |config| {
        config.forwarded.trusted = vec!["127.0.0.0/8".parse::<Network>().unwrap()];
        config.forwarded.via = Some("gate".into());
    });
    let mut client = bench.client();
    client.send("GET / HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n");
    let answer = client.read_response(false);
    assert_eq!(answer.get("via"), Some("1.1 gate"));
    let seen = String::from_utf8(record.lock().unwrap().clone()).unwrap();
    assert!(
        seen.contains("x-forwarded-for: 192.0.2.1, 127.0.0.1\r\n"),
        "{seen}"
    );
    assert!(seen.contains("via: 1.1 gate\r\n"), "{seen}");
}

#[test]
fn a_client_that_is_not_trusted_tells_the_node_nothing_of_itself() {
    let (node, record) = recorder();
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send(
        "GET / HTTP/1.1\r\nHost: shop.example\r\nX-Real-IP: 192.0.2.1\r\nX-FORWARDED-PORT: 443\r\n\
         x_real_ip: 192.0.2.2\r\nX-Forwarded_Prefix: /admin\r\nx-forwarded-server: other\r\n\
         Client-IP: 192.0.2.3\r\nForwarded: for=192.0.2.4\r\nX-Forwarded-For: 192.0.2.5\r\n\
         X-Forwarded: for=192.0.2.6\r\nX.Forwarded.For: 192.0.2.7\r\nCF-Connecting-IP: 192.0.2.8\r\n\
         Forwarded-For: 192.0.2.9\r\nProxy: http://192.0.2.10/\r\nWL-Proxy-Client-IP: 192.0.2.11\r\n\
         Proxy_Client_IP: 192.0.2.12\r\nX-Originating-IP: 192.0.2.13\r\nX-Remote-IP: 192.0.2.14\r\n\
         X-Remote.Addr: 192.0.2.15\r\nX-Azure-ClientIP: 192.0.2.16\r\nX-ProxyUser-Ip: 192.0.2.17\r\n\
         X-ForwardedFor: 192.0.2.18\r\nX-Host: other.example\r\n\r\n",
    );
    assert_eq!(client.read_response(false).text(), "done");
    let seen = String::from_utf8(record.lock().unwrap().clone()).unwrap();
    let expected = "GET / HTTP/1.1\r\nhost: shop.example\r\nx-forwarded-for: 127.0.0.1\r\n\
                    x-forwarded-proto: http\r\nx-forwarded-host: shop.example\r\n\r\n";
    assert_eq!(seen, expected);
}

/// A node that tells the names of the trailers of each request, in order.
fn trailers_of_requests() -> (Node, mpsc::Receiver<Vec<String>>) {
    let (sender, names) = mpsc::channel();
    let node = Node::answering(move |request| {
        assert_eq!(request.text(), "hello");
        let mut names: Vec<_> = request.trailers.iter().map(|it| it.0.clone()).collect();
        names.sort_unstable();
        sender.send(names).unwrap();
        ok("done")
    });
    (node, names)
}

/// Some servers take trailers for fields of the head.
#[test]
fn trailers_claim_nothing_of_the_client_and_name_no_field_of_one_hop() {
    let (trusted, untrusted) = (Some("127.0.0.0/8"), None);
    for (trust, kept, underscores, passed) in [
        (untrusted, None, false, &["x-sum"][..]),
        // An honest gateway has no cause to say it behind the body.
        (trusted, None, false, &["x-sum"]),
        (untrusted, Some("x-real-ip"), false, &["x-real-ip", "x-sum"]),
        (untrusted, None, true, &["x-sum", "x_forwarded_for"]),
    ] {
        let (node, trailers_seen) = trailers_of_requests();
        let bench = Bench::with(&[node.address], |config| {
            let trust = trust.map(|it| it.parse::<Network>().unwrap());
            config.forwarded.trusted = trust.into_iter().collect();
            config.forwarded.keep = kept.into_iter().map(|it| it.parse().unwrap()).collect();
            config.forwarded.underscores = underscores;
        });
        let names = [
            "X-Forwarded-For",
            "X-Real-IP",
            "x_forwarded_for",
            "X-Remote-Addr",
            "Forwarded",
            "Proxy",
            "Connection",
            "Keep-Alive",
            "Upgrade",
            "Expect",
            "X-Sum",
        ];
        let trailers: String = names.map(|name| format!("{name}: 192.0.2.1\r\n")).concat();
        let mut client = bench.client();
        client.send(&format!(
            "POST / HTTP/1.1\r\nHost: shop.example\r\nTE: trailers\r\nTrailer: {}\r\n\
             Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{trailers}\r\n",
            names.join(", ")
        ));
        assert_eq!(client.read_response(false).text(), "done");
        let found = trailers_seen.recv().unwrap();
        assert_eq!(found, passed, "{trust:?} {kept:?} {underscores}");
    }
}

/// Fields that `Connection` names are of one hop, behind a body as before it (RFC 9110 §7.6.1).
#[test]
fn trailers_that_connection_names_end_here() {
    let (node, trailers_seen) = trailers_of_requests();
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send(
        "POST / HTTP/1.1\r\nHost: shop.example\r\nConnection: X-Hop\r\nTrailer: X-Hop\r\n\
         Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Hop: 1\r\n\r\n",
    );
    assert_eq!(client.read_response(false).text(), "done");
    assert_eq!(trailers_seen.recv().unwrap(), Vec::<String>::new());
}

#[test]
fn names_that_some_servers_take_for_others_may_be_wanted() {
    let (node, record) = recorder();
    let bench = Bench::with(&[node.address], |config| {
        config.forwarded.underscores = true;
    });
    let mut client = bench.client();
    client.send("GET / HTTP/1.1\r\nHost: shop.example\r\nX_Forwarded_For: 192.0.2.1\r\n\r\n");
    assert_eq!(client.read_response(false).text(), "done");
    let seen = String::from_utf8(record.lock().unwrap().clone()).unwrap();
    assert!(seen.contains("x_forwarded_for: 192.0.2.1\r\n"), "{seen}");
    assert!(seen.contains("x-forwarded-for: 127.0.0.1\r\n"), "{seen}");
}

#[test]
fn options_ends_here_when_it_may_go_no_further() {
    let (node, record) = recorder();
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send("OPTIONS * HTTP/1.1\r\nHost: shop.example\r\nMax-Forwards: 0\r\n\r\n");
    let answer = client.read_response(false);
    assert_eq!(answer.status(), 200);
    assert!(answer.get("allow").is_some());
    assert!(record.lock().unwrap().is_empty());
    client.send("OPTIONS * HTTP/1.1\r\nHost: shop.example\r\nMax-Forwards: 1\r\n\r\n");
    assert_eq!(client.read_response(false).text(), "done");
    let seen = String::from_utf8(record.lock().unwrap().clone()).unwrap();
    assert!(seen.starts_with("OPTIONS * HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("max-forwards: 0\r\n"), "{seen}");
}
