//! Requests that wait for the answer of a node that is ejected: which of them are answered by another
//! node, and which stay.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use common::{Bench, Node, Peer, ask, clock, ok, until};
use tidegate_core::topology::{Cause, Ejection, Health, NodeId};
use tidegate_proxy::{NodeError, ProxyConfig, Reason};

/// A node that answers at the signal, and one that answers at once. Only the first gets requests.
struct Pair {
    hung: Node,
    open: Sender<()>,
    _well: Node,
    bench: Bench,
}

/// Answers at the signal; to `/hinted` with an interim response before.
fn gated(gate: Receiver<()>) -> Node {
    let gate = Mutex::new(gate);
    Node::start(move |peer| {
        while let Some(request) = peer.read_message() {
            if request.start.contains("/hinted") {
                peer.send("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
            }
            gate.lock().unwrap().recv().ok();
            // Its client may be somewhere else by now.
            if peer.write(&ok("served")).is_err() {
                break;
            }
        }
    })
}

impl Pair {
    fn new(change: impl FnOnce(&mut ProxyConfig)) -> Self {
        let (open, gate) = channel();
        let (hung, well) = (gated(gate), Node::answering(|_| ok("rescued")));
        let bench = Bench::with(&[hung.address, well.address], |config| {
            config.workers = 1;
            config.sites[0].retry.min_per_second = 1000.0;
            change(config);
        });
        let pair = Self {
            hung,
            open,
            _well: well,
            bench,
        };
        pair.candidates(&[0], None);
        pair
    }

    /// From now on these nodes get requests, and the first one is ejected for this cause.
    fn candidates(&self, nodes: &[u32], cause: Option<Cause>) {
        let shared = &self.bench.shared;
        let mut topology = (*shared.topology.load_full()).clone();
        topology.version += 1;
        topology.sites[0].candidates = nodes.iter().copied().map(NodeId).collect();
        let node = &mut topology.nodes[0];
        node.health = if cause.is_some() {
            Health::Ejected
        } else {
            Health::Up
        };
        node.ejection = cause.map(|cause| Ejection {
            cause,
            since: clock(),
            until: clock(),
        });
        shared.topology.store(Arc::new(topology));
    }

    /// Clients whose requests wait at the first node.
    fn waiting(&self, count: u64, mut send: impl FnMut(&mut Peer)) -> Vec<Peer> {
        let before = self.bench.shared.table.in_flight(NodeId(0));
        let clients = (0..count).map(|_| {
            let mut client = self.bench.client();
            send(&mut client);
            client
        });
        let clients = clients.collect();
        until("all wait at the first node", || {
            let seen = self.bench.snapshot();
            assert_eq!(seen.requests, seen.ended() + seen.in_flight());
            self.bench.shared.table.in_flight(NodeId(0)) == before + count
                && self.hung.connections() as u64 >= before + count
        });
        clients
    }

    /// The first node answers so many requests.
    fn wake(&self, requests: usize) {
        (0..requests).for_each(|_| self.open.send(()).unwrap());
    }
}

fn get(client: &mut Peer) {
    ask(client, "/hung");
}

#[test]
fn requests_at_a_node_that_is_ejected_for_silence_are_answered_by_another() {
    for cause in [Cause::Silence, Cause::Failures] {
        let pair = Pair::new(|_| ());
        let mut clients = pair.waiting(5, get);
        pair.candidates(&[1], Some(cause));
        for client in &mut clients {
            assert_eq!(client.read_response(false).text(), "rescued", "{cause:?}");
        }
        // The connection is as good as before.
        assert_eq!(clients[0].get("/").text(), "rescued");
        let seen = pair.bench.settled();
        assert_eq!(
            (seen.completed, seen.retries, seen.retries_denied),
            (6, 5, 0)
        );
        assert_eq!((seen.nodes[0].tries, seen.nodes[0].failures), (5, 5));
        let error = seen.nodes[0].last_error.unwrap();
        assert_eq!(error.what, NodeError::Reason(Reason::ResponseTimeout));
        assert_eq!((seen.nodes[1].tries, seen.nodes[1].failures), (6, 0));
        // The ejection has judged the node already.
        assert_eq!(pair.bench.shared.table.outcomes(NodeId(0)).failures, 0);
    }
}

#[test]
fn requests_that_may_have_been_done_stay_where_they_are() {
    let pair = Pair::new(|_| ());
    let mut clients = pair.waiting(1, |client| {
        client.send("POST /hung HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 0\r\n\r\n");
    });
    clients.append(&mut pair.waiting(1, |client| {
        client.send("PUT /hung HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 5\r\n\r\nhello");
    }));
    let mut rescued = pair.waiting(1, get);
    pair.candidates(&[1], Some(Cause::Silence));
    assert_eq!(rescued[0].read_response(false).text(), "rescued");
    assert_eq!(pair.bench.shared.table.in_flight(NodeId(0)), 2);
    // One goes to the request whose client is not there any more.
    pair.wake(3);
    for client in &mut clients {
        assert_eq!(client.read_response(false).text(), "served");
    }
    assert_eq!(pair.bench.settled().retries, 1);
}

#[test]
fn what_has_begun_to_be_answered_stays_too() {
    let pair = Pair::new(|_| ());
    let mut clients = pair.waiting(1, |client| {
        ask(client, "/hinted");
        let hint = client.read_head().unwrap();
        assert_eq!(hint.status(), 103);
    });
    let mut rescued = pair.waiting(1, get);
    pair.candidates(&[1], Some(Cause::Silence));
    assert_eq!(rescued[0].read_response(false).text(), "rescued");
    pair.wake(2);
    assert_eq!(clients[0].read_response(false).text(), "served");
    assert_eq!(pair.bench.settled().retries, 1);
}

#[test]
fn the_retry_budget_holds_and_requests_ask_again_as_it_fills() {
    let pair = Pair::new(|config| {
        config.sites[0].retry.ratio = 0.0;
        config.sites[0].retry.min_per_second = 2.0;
    });
    let mut clients = pair.waiting(5, get);
    pair.candidates(&[1], Some(Cause::Silence));
    for client in &mut clients {
        assert_eq!(client.read_response(false).text(), "rescued");
    }
    let seen = pair.bench.settled();
    assert_eq!(seen.retries, 5);
    assert!(
        seen.retries_denied <= 3,
        "{} for 5 requests",
        seen.retries_denied
    );
}

#[test]
fn without_a_budget_requests_wait_for_their_node() {
    let pair = Pair::new(|config| {
        config.sites[0].retry.ratio = 0.0;
        config.sites[0].retry.min_per_second = 0.0;
    });
    let mut clients = pair.waiting(1, get);
    pair.candidates(&[1], Some(Cause::Silence));
    until("it asks", || pair.bench.snapshot().retries_denied > 0);
    pair.wake(1);
    assert_eq!(clients[0].read_response(false).text(), "served");
    let seen = pair.bench.settled();
    assert_eq!((seen.retries, seen.retries_denied), (0, 1));
}

#[test]
fn a_node_that_answers_with_errors_keeps_its_requests() {
    let pair = Pair::new(|_| ());
    let mut clients = pair.waiting(1, get);
    pair.candidates(&[1], Some(Cause::Errors));
    let mut second = pair.bench.client();
    assert_eq!(second.get("/").text(), "rescued");
    pair.wake(1);
    assert_eq!(clients[0].read_response(false).text(), "served");
    assert_eq!(pair.bench.settled().retries, 0);
}

#[test]
fn where_no_other_node_is_up_requests_wait_for_theirs() {
    let pair = Pair::new(|_| ());
    let mut clients = pair.waiting(2, get);
    pair.candidates(&[0, 1], Some(Cause::Silence));
    let shared = &pair.bench.shared;
    let mut topology = (*shared.topology.load_full()).clone();
    topology.version += 1;
    topology.sites[0].fail_open = true;
    topology.nodes[1].health = Health::Ejected;
    shared.topology.store(Arc::new(topology));
    pair.wake(2);
    for client in &mut clients {
        assert_eq!(client.read_response(false).text(), "served");
    }
    assert_eq!(pair.bench.settled().retries, 0);
}
