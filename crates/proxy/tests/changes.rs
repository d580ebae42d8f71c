//! Nodes that come and go under traffic: requests in flight end where they are, connections of those that have left are
//! closed, and another node in the same place begins anew.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use std::net::SocketAddr;

use common::{Bench, Gated, Node, clock, until};
use tidegate_core::director::{Director, Event};
use tidegate_core::topology::{Capacity, ClusterChange, Edit, NodeId, NodeWanted};

struct Changing {
    bench: Bench,
    director: Director,
}

impl Changing {
    fn new(node: SocketAddr) -> Self {
        let bench = Bench::with(&[node], |config| config.workers = 2);
        let director = Director::new(common::cluster(&[node]), 1);
        Self { bench, director }
    }

    fn change(&mut self, edits: &[Edit]) {
        let edits = edits.to_vec();
        let table = &self.bench.shared.table;
        let change = ClusterChange { edits };
        self.director.handle_change(&change, table).unwrap();
        let topology = self.director.poll_topology().unwrap();
        self.bench.shared.publish(topology);
    }

    /// Whether a node has left by now.
    fn has_left(&mut self) -> bool {
        let shared = &self.bench.shared;
        self.director.handle_followed(shared.stats.followed());
        self.director.handle_tick(&shared.table, clock());
        if let Some(topology) = self.director.poll_topology() {
            shared.publish(topology);
        }
        matches!(self.director.poll_event(), Some(Event::Left(NodeId(0))))
    }
}

fn add(name: &str, node: &Node) -> Edit {
    let site = common::cluster(&[]).sites[0].name.clone();
    Edit::AddNode(NodeWanted {
        name: name.into(),
        address: node.address,
        site,
        weight: 1.0,
        capacity: Capacity::default(),
    })
}

fn remove(name: &str) -> Edit {
    Edit::RemoveNode(name.into())
}

#[test]
fn a_request_in_flight_ends_at_the_node_that_leaves() {
    let gated = Gated::new();
    let mut world = Changing::new(gated.node.address);
    let mut held = world.bench.client();
    common::ask(&mut held, "/held");
    until("it is in flight", || world.bench.in_flight() == 1);
    let other = Node::answering(|_| common::ok("other"));
    world.change(&[add("n1", &other), remove("n0")]);
    // What comes now goes elsewhere.
    let mut client = world.bench.client();
    for _ in 0..5 {
        assert_eq!(client.get("/").body, b"other");
    }
    let followed = world.director.topology().version;
    until("workers follow", || {
        world.bench.shared.stats.followed() == followed
    });
    assert!(!world.has_left());
    gated.open();
    assert_eq!(held.read_response(false).status(), 200);
    until("it has left", || world.has_left());
    let seen = world.bench.settled();
    assert_eq!(
        (seen.completed, seen.nodes[0].tries, seen.nodes[1].tries),
        (6, 1, 5)
    );
}

#[test]
fn connections_of_a_node_that_left_are_closed_and_another_one_in_its_place_begins_anew() {
    let first = Node::answering(|_| common::ok("first"));
    let mut world = Changing::new(first.address);
    let mut client = world.bench.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").body, b"first");
    }
    assert_eq!(first.connections(), 1);
    let second = Node::answering(|_| common::ok("second"));
    world.change(&[add("n1", &second), remove("n0")]);
    until("it has left", || world.has_left());
    let parked = world.bench.snapshot().nodes[0].clone();
    assert_eq!((parked.connects, parked.connections), (1, 0));
    // The third one comes to the first one's place, and even to its address.
    world.change(&[add("n2", &first), remove("n1")]);
    assert_eq!(world.director.topology().node_named("n2"), Some(NodeId(0)));
    for _ in 0..2 {
        assert_eq!(client.get("/").body, b"first");
    }
    assert_eq!(first.connections(), 2);
    let seen = world.bench.settled();
    let node = &seen.nodes[0];
    assert_eq!((node.tries, node.connects, seen.completed), (2, 1, 5));
}

#[test]
fn a_withheld_node_loses_its_connections_as_they_become_idle() {
    let gated = Gated::new();
    let mut world = Changing::new(gated.node.address);
    let mut held = world.bench.client();
    common::ask(&mut held, "/held");
    until("it is in flight", || world.bench.in_flight() == 1);
    let other = Node::answering(|_| common::ok("other"));
    world.change(&[add("n1", &other)]);
    world.change(&[Edit::WithholdNode("n0".into())]);
    let mut client = world.bench.client();
    for _ in 0..5 {
        assert_eq!(client.get("/").body, b"other");
    }
    let connections = |world: &Changing| world.bench.snapshot().nodes[0].connections;
    assert_eq!(connections(&world), 1, "the one in use");
    gated.open();
    assert_eq!(held.read_response(false).status(), 200);
    until("its connection is closed", || connections(&world) == 0);
    // Released it serves again, and keeps what is idle.
    world.change(&[Edit::ReleaseNode("n0".into()), remove("n1")]);
    assert_eq!(client.get("/now").status(), 200);
    assert_eq!(connections(&world), 1);
    // Withheld once more while idle: closed at once, with no request to notice it by.
    world.change(&[add("n1", &other), Edit::WithholdNode("n0".into())]);
    until("the idle one is closed", || connections(&world) == 0);
}
