//! What a refused client reads: status, fields, body; in HTTP and in gRPC.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::collections::BTreeSet;

use bytes::Bytes;
use common::{Bench, Message, Node, Peer, until};
use tidegate_core::admission::{AdmissionConfig, AdmissionKind, StaticLimits};
use tidegate_core::time::Timestamp;
use tidegate_proxy::{AnswerConfig, CustomBody, LimitStatus, ProxyConfig, Quota, Reason};

/// A proxy that lets nothing in.
fn closed(change: impl FnOnce(&mut ProxyConfig)) -> Bench {
    let admission = AdmissionConfig {
        limits: StaticLimits {
            connections: Some(0),
            ..StaticLimits::default()
        },
        ..AdmissionConfig::new(AdmissionKind::Static)
    };
    Bench::admitting_with(&[Node::nobody()], admission, change)
}

fn post(client: &mut Peer, content_type: &str) -> Message {
    client.send(&format!(
        "POST /svc/Method HTTP/1.1\r\nhost: shop.example\r\ncontent-type: {content_type}\r\n\
         content-length: 5\r\n\r\nhello"
    ));
    client.read_response(false)
}

#[test]
fn overload_is_503_with_a_time_to_come_again_that_differs() {
    let bench = closed(|_| ());
    let mut client = bench.client();
    let mut told = BTreeSet::new();
    until("all times were told", || {
        let answer = client.get("/");
        assert_eq!((answer.status(), answer.reason()), (503, Some("overload")));
        assert_eq!(answer.text(), "an admission limit was reached");
        assert_eq!(answer.get("ratelimit"), None, "no number is known");
        told.insert(answer.get("retry-after").unwrap().to_owned());
        told.len() == 3
    });
    assert_eq!(told.into_iter().collect::<Vec<_>>(), ["1", "2", "3"]);
    bench.settled();
}

#[test]
fn a_limit_of_ones_own_may_be_429_with_numbers_and_a_body() {
    let bench = closed(|config| {
        config.sites[0].answers = AnswerConfig {
            limit_status: LimitStatus::TooManyRequests,
            retry_after: 7..=7,
            quota: Some(Quota {
                name: "shop".into(),
                requests: 20,
            }),
            body: Some(CustomBody {
                content_type: "application/json",
                bytes: Bytes::from_static(b"{\"busy\":true}"),
            }),
        };
    });
    let mut client = bench.client();
    let answer = client.get("/");
    assert_eq!((answer.status(), answer.reason()), (429, Some("overload")));
    for (name, value) in [
        ("retry-after", "7"),
        (
            "ratelimit-policy",
            "\"shop\";q=20;qu=\"concurrent-requests\"",
        ),
        ("ratelimit", "\"shop\";r=0;t=7"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(answer.all(name), [value], "{name}");
    }
    assert_eq!(answer.text(), "{\"busy\":true}");
    client.send("HEAD / HTTP/1.1\r\nhost: shop.example\r\n\r\n");
    let head = client.read_response(true);
    assert_eq!(
        (head.status(), head.get("content-length")),
        (429, Some("13"))
    );
    // The connection stays in step.
    assert_eq!(client.get("/").status(), 429);
    let seen = bench.settled();
    assert_eq!(
        (
            seen.reason(Reason::Overload),
            seen.sites[0].status_classes[3]
        ),
        (3, 3)
    );
}

#[test]
fn grpc_clients_get_their_status_in_the_head() {
    let bench = closed(|config| config.sites[0].answers.retry_after = 2..=2);
    let mut client = bench.client();
    for (sent, answered) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc-web+proto", "application/grpc-web"),
        ("application/grpc-web-text", "application/grpc-web-text"),
    ] {
        let answer = post(&mut client, sent);
        assert_eq!((answer.status(), answer.reason()), (200, Some("overload")));
        for (name, value) in [
            ("content-type", answered),
            ("grpc-status", "8"),
            ("grpc-message", "an admission limit was reached"),
            ("grpc-retry-pushback-ms", "2000"),
            ("retry-after", "2"),
            ("content-length", "0"),
        ] {
            assert_eq!(answer.get(name), Some(value), "{name}");
        }
    }
    let plain = post(&mut client, "application/json");
    assert_eq!((plain.status(), plain.get("grpc-status")), (503, None));
    let seen = bench.settled();
    assert_eq!(
        seen.reason(Reason::Overload),
        4,
        "the books know it as refused"
    );
}

#[test]
fn a_site_without_nodes_is_unavailable_to_grpc_clients() {
    let bench = Bench::new(&[]);
    let answer = post(&mut bench.client(), "application/grpc");
    assert_eq!(answer.get("grpc-status"), Some("14"));
    assert_eq!(answer.reason(), Some("no_node"));
}

/// A clock that stands still: what was refused a moment ago is refused for ever.
fn standing_clock() -> Timestamp {
    Timestamp::from_nanos(1)
}

#[test]
fn an_unread_connection_gets_a_long_answer_whole() {
    let body = Bytes::from(vec![b'x'; CustomBody::BYTES_MAX]);
    let bench = closed(|config| {
        config.clock = standing_clock;
        config.sites[0].answers.body = Some(CustomBody {
            content_type: "text/html; charset=utf-8",
            bytes: body.clone(),
        });
    });
    assert_eq!(bench.client().get("/").body, body);
    // From here on no connection is read.
    for _ in 0..20 {
        let mut client = bench.client();
        let answer = client.get("/");
        assert_eq!((answer.status(), answer.body.len()), (503, body.len()));
        assert!(client.is_closed());
    }
    let seen = bench.snapshot();
    assert_eq!(seen.refused.iter().sum::<u64>(), 20);
    assert_eq!((seen.requests, seen.accepted), (1, 1));
}
