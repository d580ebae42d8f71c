//! What discovery reads of requests: when each goes to a server and when the server is done with it.

mod common;

use common::{Bench, Gated, Node, ask, until};
use tidegate_core::culprits::RequestEvent;
use tidegate_core::topology::SiteId;
use tidegate_proxy::{Observed, ProxyConfig};

fn observing(config: &mut ProxyConfig) {
    config.workers = 1;
    config.events = 64;
}

fn drained(observed: &mut Observed) -> Vec<RequestEvent> {
    let mut events = Vec::new();
    assert!(!observed.drain(|event| events.push(event)));
    events
}

/// Method, target and number of a request that was sent.
fn sent(event: &RequestEvent) -> (&str, &str, u64) {
    match event {
        RequestEvent::Sent {
            id, words, site, ..
        } => {
            assert_eq!(*site, SiteId(0));
            (words.method(), words.target(), *id)
        }
        RequestEvent::Ended { .. } | RequestEvent::Refused { .. } => {
            panic!("{event:?} was not sent")
        }
    }
}

#[test]
fn a_request_is_told_when_it_is_sent_and_when_it_has_ended() {
    let gated = Gated::new();
    let mut bench = Bench::with(&[gated.node.address], observing);
    let mut observed = bench.proxy.as_mut().unwrap().observed();
    let mut client = bench.client();
    ask(&mut client, "/search?q=secret&page=2");
    let mut events = Vec::new();
    until("it is sent", || {
        events.extend(drained(&mut observed));
        !events.is_empty()
    });
    assert_eq!(events.len(), 1);
    let (method, target, id) = sent(&events[0]);
    assert_eq!((method, target), ("GET", "/search?q=secret&page=2"));
    gated.open();
    assert_eq!(client.read_response(false).status(), 200);
    bench.settled();
    let ended = drained(&mut observed);
    let [RequestEvent::Ended { id: other, at }] = ended[..] else {
        panic!("{ended:?}");
    };
    let RequestEvent::Sent { at: sent_at, .. } = events[0] else {
        panic!("{events:?}");
    };
    assert_eq!(other, id);
    assert!(at >= sent_at);
}

#[test]
fn what_goes_to_no_server_is_not_told_and_what_is_tried_again_is_told_once() {
    let node = Node::ok();
    let mut bench = Bench::with(&[Node::nobody(), node.address], observing);
    let mut observed = bench.proxy.as_mut().unwrap().observed();
    let mut client = bench.client();
    client.send("GET / HTTP/1.1\r\nhost: elsewhere.example\r\n\r\n");
    assert_eq!(client.read_response(false).status(), 404);
    assert_eq!(drained(&mut observed), []);
    // Some of these meet the node that is not there first.
    for _ in 0..16 {
        assert_eq!(bench.client().get("/").status(), 200);
    }
    let seen = bench.settled();
    let events = drained(&mut observed);
    assert_eq!(events.len(), 32, "{events:?}");
    let tries: u64 = seen.nodes.iter().map(|node| node.tries).sum();
    assert!(tries > 16, "none was tried again: {tries}");
}

#[test]
fn a_client_that_leaves_ends_its_request() {
    let gated = Gated::new();
    let mut bench = Bench::with(&[gated.node.address], observing);
    let mut observed = bench.proxy.as_mut().unwrap().observed();
    let mut client = bench.client();
    ask(&mut client, "/");
    until("it is sent", || bench.in_flight() == 1);
    drop(client);
    bench.settled();
    let events = drained(&mut observed);
    assert!(
        matches!(events[..], [RequestEvent::Sent { id, .. }, RequestEvent::Ended { id: end, .. }] if id == end),
        "{events:?}"
    );
}
