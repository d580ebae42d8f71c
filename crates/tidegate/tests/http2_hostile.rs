//! Clients of HTTP/2 that ask for more than they may, take nothing, or do not keep the protocol: each is ended by itself, and what it
//! can make the front-end hold has a bound.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use support::http2::{
    Answer, CANCEL, Connection, ENHANCE_YOUR_CALM, GOAWAY, RST_STREAM, Raw, frame, get,
    headers_frame, run,
};
use support::scene::Cluster;
use support::server::server;
use support::{FrontEnd, Nginx, eventually, folder, nginx};

fn front_end(folder: &Path, node: SocketAddr, more: &str) -> FrontEnd {
    let text = Cluster::default()
        .site("shop", "*")
        .node("n1", node, "shop");
    FrontEnd::start(folder, &text.more(more).text())
}

/// The front-end serves others, and has ended so many connections for excess.
#[track_caller]
fn others_are_served(front_end: &FrontEnd, excesses: f64) {
    let text = run(async {
        let mut connection = Connection::open(front_end.address).await;
        connection.get("/").await.text().to_owned()
    });
    assert!(!text.is_empty());
    eventually("it is counted", || {
        (front_end.metric("tidegate_http2_excesses_total")? == excesses).then_some(())
    });
}

/// Writes this again and again until the connection ends; how often at most.
fn flood(raw: &mut Raw, piece: &[u8], most: usize) {
    // It is cut in the middle.
    let _cut = (0..most).try_for_each(|_| raw.0.write_all(piece));
}

#[test]
fn frames_that_ask_for_nothing_have_an_end() {
    let folder = folder("http2-floods");
    let front_end = front_end(&folder, server("a"), "");
    let ping = frame(6, 1, 0, &[0; 8]);
    let settings = frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]);
    let window = frame(8, 0, 0, &[0, 0, 0, 1]);
    let priority = frame(2, 0, 3, &[0, 0, 0, 0, 1]);
    for (index, piece) in [ping, settings, window, priority].iter().enumerate() {
        let mut raw = Raw::open(front_end.address);
        // What comes back is read by nothing: the flood must end all the same.
        let many = piece.repeat(1000);
        flood(&mut raw, &many, 200);
        let code = raw.goodbye();
        assert!(code.is_none_or(|it| it == ENHANCE_YOUR_CALM), "{code:?}");
        others_are_served(&front_end, (index + 1) as f64);
    }
}

#[test]
fn requests_that_are_reset_at_once_have_an_end() {
    let folder = folder("http2-rapid-reset");
    // A node that takes connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let front_end = front_end(&folder, silent.local_addr().unwrap(), "");
    let mut raw = Raw::open(front_end.address);
    let mut pieces = Vec::new();
    for request in 0..2000 {
        let stream = 2 * request + 1;
        pieces.extend(headers_frame(stream));
        pieces.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    }
    flood(&mut raw, &pieces, 1);
    let code = raw.goodbye();
    assert!(code.is_none_or(|it| it == ENHANCE_YOUR_CALM), "{code:?}");
    let requests = front_end
        .metric("tidegate_requests_received_total")
        .unwrap();
    assert!(requests < 600.0, "{requests} requests came through");
    eventually("all have ended", || {
        (front_end.metric("tidegate_requests_in_flight")? == 0.0).then_some(())
    });
}

#[test]
fn a_head_without_an_end_is_cut() {
    let folder = folder("http2-continuation");
    let front_end = front_end(&folder, server("a"), "");
    let mut raw = Raw::open(front_end.address);
    // HEADERS without END_HEADERS, and CONTINUATION for ever: a literal field each.
    raw.0
        .write_all(&frame(1, 1, 1, &[0x82, 0x86, 0x84]))
        .unwrap();
    let field = [&[0_u8, 1, b'x', 127, 129, 124][..], &[b'y'; 16000]].concat();
    flood(&mut raw, &frame(9, 0, 1, &field), 1000);
    assert!(raw.goodbye().is_none_or(|code| code != 0));
    others_are_served(&front_end, 0.0);
}

#[test]
fn a_connection_that_does_not_keep_the_protocol_is_ended_and_counted() {
    let folder = folder("http2-violations");
    let front_end = front_end(&folder, server("a"), "");
    let violations = || front_end.metric("tidegate_http2_violations_total").unwrap();
    // A field by an index that there is not; DATA of a stream that there is not.
    let field = frame(1, 5, 1, &[0x82, 0x86, 0x84, 0xff, 0xff, 0x7f]);
    let data = frame(0, 0, 1, b"x");
    for (index, piece) in [field, data].iter().enumerate() {
        let mut raw = Raw::open(front_end.address);
        raw.0.write_all(piece).unwrap();
        assert!(raw.goodbye().is_some_and(|code| code != 0), "{piece:?}");
        drop(raw);
        eventually("it is counted", || {
            (violations() == (index + 1) as f64).then_some(())
        });
        others_are_served(&front_end, 0.0);
    }
}

#[test]
fn a_client_that_takes_nothing_is_cut_and_holds_little() {
    let Some(_) = nginx() else {
        return println!("SKIPPED: nginx is not installed");
    };
    let folder = folder("http2-stalled");
    let nginx = Nginx::start(&folder, "n1");
    let more = "[timeouts]\nbody_idle = \"500ms\"\n";
    let front_end = front_end(&folder, nginx.address, more);
    // By its windows: another stream goes on beside it.
    run(async {
        let mut wide = h2::client::Builder::new();
        wide.initial_connection_window_size(1 << 20);
        let mut connection = Connection::open_by(front_end.address, &wide).await;
        let (answer, _) = connection.begin(get("/large"), true).await;
        let mut held = answer.await.unwrap().into_body();
        assert_eq!(connection.get("/").await.text(), "n1\n");
        let error = loop {
            match held.data().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("it came whole"),
            }
        };
        assert_eq!(error.reason(), Some(h2::Reason::CANCEL), "{error}");
        assert_eq!(connection.get("/").await.text(), "n1\n");
    });
    // By its socket: large windows, and not a byte is read.
    let mut raw = Raw::open(front_end.address);
    raw.0
        .write_all(&frame(4, 0, 0, &[0, 4, 127, 255, 255, 255]))
        .unwrap();
    raw.0.write_all(&frame(8, 0, 0, &[127, 255, 0, 0])).unwrap();
    for request in 0..100 {
        // `/large`, literally.
        let mut fields = vec![0x82, 0x86, 0x04, 6];
        fields.extend_from_slice(b"/large");
        fields.extend_from_slice(&[0x41, 12]);
        fields.extend_from_slice(b"shop.example");
        raw.0
            .write_all(&frame(1, 0b101, 2 * request + 1, &fields))
            .unwrap();
    }
    let stalled =
        "tidegate_requests_unserved_total{ending=\"cancelled\",reason=\"client_stalled\"}";
    eventually("all are given up", || {
        (front_end.metric(stalled)? >= 90.0).then_some(())
    });
    eventually("none is left", || {
        (front_end.metric("tidegate_requests_in_flight")? == 0.0).then_some(())
    });
}

#[test]
fn a_window_of_nothing_holds_no_connection_for_ever() {
    let folder = folder("http2-no-window");
    let more = "[timeouts]\nclient_idle = \"300ms\"\nbody_idle = \"300ms\"\n";
    let front_end = front_end(&folder, server("a"), more);
    let mut raw = Raw::open(front_end.address);
    raw.0
        .write_all(&frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]))
        .unwrap();
    raw.0.write_all(&headers_frame(1)).unwrap();
    let (stream, code) = raw.until(RST_STREAM).unwrap();
    assert_eq!((stream, code), (1, CANCEL.to_be_bytes().to_vec()));
    raw.until(GOAWAY).unwrap();
    assert!(raw.goodbye().is_none_or(|code| code == 0));
}

#[test]
fn malformed_requests_are_reset_or_refused_and_never_reach_a_node() {
    let folder = folder("http2-malformed");
    let mirror = support::mirror::Mirror::start();
    let front_end = front_end(&folder, mirror.address, "");
    let literal = |name: &str, value: &str| {
        let mut field = vec![0, name.len() as u8];
        field.extend_from_slice(name.as_bytes());
        field.push(value.len() as u8);
        field.extend_from_slice(value.as_bytes());
        field
    };
    let base = [0x82_u8, 0x86, 0x84].to_vec();
    let host = literal(":authority", "shop.example");
    let with = |more: &[(&str, &str)]| {
        let mut fields = [base.clone(), host.clone()].concat();
        for (name, value) in more {
            fields.extend(literal(name, value));
        }
        fields
    };
    let ends = 0b101;
    for (what, flags, fields) in [
        (
            "a length without a body",
            ends,
            with(&[("content-length", "5")]),
        ),
        ("a coding", ends, with(&[("transfer-encoding", "chunked")])),
        ("a connection", ends, with(&[("connection", "close")])),
        ("capitals", ends, with(&[("X-A", "b")])),
        ("a line feed", ends, with(&[("x-a", "b\r\nhost: c")])),
        ("an authority of two hosts", ends, {
            let authority = literal(":authority", "shop.example@other.example");
            [base.clone(), authority].concat()
        }),
        ("another host", ends, with(&[("host", "other.example")])),
        ("no path", ends, [&[0x82_u8, 0x86][..], &host].concat()),
        ("a path that is none", ends, {
            [&[0x82_u8, 0x86][..], &literal(":path", "shop"), &host].concat()
        }),
        ("a space in the path", ends, {
            [&[0x82_u8, 0x86][..], &literal(":path", "/ HTTP/1.1"), &host].concat()
        }),
        ("a response's field", ends, with(&[(":status", "200")])),
        ("no host", ends, base.clone()),
        (
            "two lengths",
            ends,
            with(&[("content-length", "0"), ("content-length", "7")]),
        ),
    ] {
        let mut raw = Raw::open(front_end.address);
        raw.0.write_all(&frame(1, flags, 1, &fields)).unwrap();
        let seen = loop {
            match raw.next() {
                Some((1, 1, head)) => break format!("answered {head:x?}"),
                Some((RST_STREAM, 1, _)) => break "reset".into(),
                Some((GOAWAY, _, _)) | None => break "ended".into(),
                Some(_) => {}
            }
        };
        // An answer of 200 begins with the index of `:status: 200`.
        assert!(!seen.starts_with("answered [88"), "{what}: {seen}");
    }
    assert_eq!(mirror.requests(), 0);
    let served = run(async {
        let mut connection = Connection::open(front_end.address).await;
        let (answer, _) = connection.begin(get("/"), true).await;
        Answer::read(answer).await.unwrap().status
    });
    assert_eq!(served, 200);
}
