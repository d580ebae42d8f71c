//! What steering knows of HAProxy's servers, and what it is to set there: pure, from what HAProxy says and what the loads are.
//!
//! A server is steered while its weight is the configured one or the one that was set here last. Any other weight is an
//! operator's order: the server is left alone until its weight is the configured one again. So a restart of HAProxy, which
//! goes back to the configured weights, needs no word.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use tidegate_core::steer::{ServerWork, SteeredServer, weights};

use super::changes::{Change, Keeper, Key, Plan, Weight};
use super::servers::ServerState;

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeDemand {
    pub(super) demand: Option<f64>,
    pub(super) at_limit: bool,
    /// What it is at work on, if that is known.
    pub(super) work: Option<ServerWork>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Weights that are not the configured ones at first are steered too.
    takes_over: bool,
    servers: BTreeMap<Key, Held>,
    /// Backends with servers that are no nodes.
    strange: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// The weight that was set here last.
    set: Option<u32>,
    left_alone: bool,
    /// HAProxy sets no weights of it.
    refused: bool,
}

impl Book {
    pub(super) fn new(takes_over: bool) -> Self {
        Self {
            takes_over,
            ..Self::default()
        }
    }

    /// Compares what HAProxy has with what the loads want.
    pub(super) fn plan(
        &mut self,
        servers: &[ServerState],
        nodes: &BTreeMap<SocketAddr, NodeDemand>,
    ) -> Plan<Weight> {
        let mut plan = Plan::default();
        let mut backends: BTreeMap<&str, Vec<&ServerState>> = BTreeMap::new();
        for server in servers {
            backends.entry(&server.backend).or_default().push(server);
        }
        for (backend, servers) in backends {
            let node = |server: &ServerState| Some(*nodes.get(&server.address?)?);
            let known: Option<Vec<_>> = servers.iter().map(|it| node(it)).collect();
            match known {
                Some(known) => self.plan_backend(&servers, &known, &mut plan),
                None if servers.iter().any(|it| node(it).is_some()) => {
                    let stranger = servers.iter().find(|it| node(it).is_none());
                    self.note_strange(backend, stranger, &mut plan);
                }
                None => {}
            }
        }
        plan
    }

    fn note_strange(
        &mut self,
        backend: &str,
        stranger: Option<&&ServerState>,
        plan: &mut Plan<Weight>,
    ) {
        if !self.strange.insert(backend.to_owned()) {
            return;
        }
        let server = stranger.map_or("", |it| &it.server);
        let address = stranger.and_then(|it| it.address);
        let address = address.map_or("without an address".into(), |it| format!("at {it}"));
        let text = format!(
            "backend {backend} is left alone: its server {server} {address} is no node of the configuration, and a weight \
             means something beside all others only"
        );
        plan.events.push(("left_alone", text));
    }

    fn plan_backend(
        &mut self,
        servers: &[&ServerState],
        nodes: &[NodeDemand],
        plan: &mut Plan<Weight>,
    ) {
        let mut steered = Vec::new();
        for (server, node) in servers.iter().zip(nodes) {
            if self.is_steered(server, plan) {
                let asked = SteeredServer {
                    base: server.configured,
                    weight: server.weight,
                    demand: node.demand,
                    at_limit: node.at_limit,
                };
                steered.push((server, asked));
            }
        }
        let asked: Vec<_> = steered.iter().map(|(_, asked)| *asked).collect();
        for ((server, _), weight) in steered.iter().zip(weights(&asked)) {
            if weight != server.weight {
                plan.changes.push(Change {
                    key: server.key(),
                    from: Weight(server.weight),
                    to: Weight(weight),
                });
            }
        }
    }

    /// Whether a server's weight is for us to set, and what is to be said of that.
    fn is_steered(&mut self, server: &ServerState, plan: &mut Plan<Weight>) -> bool {
        let key = server.key();
        let is_new = !self.servers.contains_key(&key);
        let held = self.servers.entry(key).or_default();
        let is_ours = server.weight == server.configured || held.set == Some(server.weight);
        let taken_over = is_new && self.takes_over && !is_ours;
        if taken_over {
            held.set = Some(server.weight);
        }
        let left_alone = !is_ours && !taken_over;
        if left_alone != std::mem::replace(&mut held.left_alone, left_alone) {
            plan.events
                .push(left_alone_event(server, left_alone, is_new));
        }
        if left_alone {
            held.set = None;
        }
        !left_alone && !held.refused
    }

    /// What puts the configured weights back, of servers that still have what was set here.
    pub(super) fn restore(&self, servers: &[ServerState]) -> Vec<Change<Weight>> {
        let set_here = |it: &&ServerState| {
            let held = self.servers.get(&it.key());
            let set = held.and_then(|it| it.set);
            set == Some(it.weight) && it.weight != it.configured
        };
        let change = |it: &ServerState| Change {
            key: it.key(),
            from: Weight(it.weight),
            to: Weight(it.configured),
        };
        servers.iter().filter(set_here).map(change).collect()
    }

    fn held(&mut self, change: &Change<Weight>) -> &mut Held {
        self.servers.entry(change.key.clone()).or_default()
    }
}

impl Keeper<Weight> for Book {
    fn on_set(&mut self, change: &Change<Weight>) {
        self.held(change).set = Some(change.to.0);
    }

    /// The server is not tried again.
    fn on_refused(&mut self, change: &Change<Weight>) {
        self.held(change).refused = true;
    }
}

fn left_alone_event(
    server: &ServerState,
    left_alone: bool,
    is_new: bool,
) -> (&'static str, String) {
    let ServerState {
        backend,
        server,
        weight,
        configured,
        ..
    } = server;
    let text = match (left_alone, is_new) {
        (true, true) => format!(
            "{backend}/{server} is left alone: its weight is {weight}, not the configured {configured}; by an operator, or by \
             a `steer` that was killed: with --take-over it is steered all the same"
        ),
        (true, false) => format!(
            "{backend}/{server} is left alone: its weight was set to {weight}; it is steered again once that is the \
             configured {configured}"
        ),
        (false, _) => format!("{backend}/{server} is steered again"),
    };
    (
        if left_alone {
            "left_alone"
        } else {
            "steered_again"
        },
        text,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 80))
    }

    fn server(last: u8, weight: u32) -> ServerState {
        ServerState {
            backend: "shop".into(),
            server: format!("n{last}"),
            address: Some(address(last)),
            weight,
            ..ServerState::running(100)
        }
    }

    /// Two nodes, the second one with more to do.
    fn nodes() -> BTreeMap<SocketAddr, NodeDemand> {
        let node = |last, demand| {
            let known = NodeDemand {
                demand: Some(demand),
                ..NodeDemand::default()
            };
            (address(last), known)
        };
        [node(1, 0.1), node(2, 0.3)].into()
    }

    fn change(last: u8, from: u32, to: u32) -> Change<Weight> {
        Change {
            key: ("shop".into(), format!("n{last}")),
            from: Weight(from),
            to: Weight(to),
        }
    }

    fn names(plan: &Plan<Weight>) -> Vec<&'static str> {
        plan.events.iter().map(|it| it.0).collect()
    }

    #[test]
    fn weights_follow_the_loads_and_are_set_once() {
        let mut book = Book::default();
        let plan = book.plan(&[server(1, 100), server(2, 100)], &nodes());
        assert_eq!(plan.changes, [change(1, 100, 256), change(2, 100, 64)]);
        assert_eq!(plan.events, []);
        plan.changes.iter().for_each(|it| book.on_set(it));
        let has = [server(1, 256), server(2, 64)];
        assert_eq!(book.plan(&has, &nodes()), Plan::default());
        assert_eq!(
            book.restore(&has),
            [change(1, 256, 100), change(2, 64, 100)]
        );
    }

    #[test]
    fn an_operators_weight_is_left_alone_until_it_is_the_configured_one() {
        let mut book = Book::default();
        let plan = book.plan(&[server(1, 100), server(2, 100)], &nodes());
        plan.changes.iter().for_each(|it| book.on_set(it));
        let drained = [server(1, 256), server(2, 0)];
        let plan = book.plan(&drained, &nodes());
        assert_eq!(
            (names(&plan), &plan.changes[..]),
            (vec!["left_alone"], &[][..])
        );
        assert_eq!(book.plan(&drained, &nodes()), Plan::default());
        // It is not what was set here last, either.
        assert_eq!(
            book.plan(&[server(1, 256), server(2, 64)], &nodes()),
            Plan::default()
        );
        assert_eq!(
            book.restore(&[server(1, 256), server(2, 64)]),
            [change(1, 256, 100)]
        );
        let plan = book.plan(&[server(1, 256), server(2, 100)], &nodes());
        assert_eq!(names(&plan), ["steered_again"]);
        assert_eq!(plan.changes, [change(2, 100, 64)]);
    }

    #[test]
    fn a_restarted_haproxy_is_steered_again_without_a_word() {
        let mut book = Book::default();
        let fresh = [server(1, 100), server(2, 100)];
        let plan = book.plan(&fresh, &nodes());
        plan.changes.iter().for_each(|it| book.on_set(it));
        assert_eq!(book.plan(&fresh, &nodes()), plan);
        // Those have the configured weights already.
        assert_eq!(book.restore(&fresh), []);
    }

    #[test]
    fn weights_of_before_are_left_alone_unless_they_are_to_be_taken_over() {
        let before = [server(1, 100), server(2, 7)];
        let mut book = Book::default();
        let plan = book.plan(&before, &nodes());
        assert_eq!(
            (names(&plan), plan.changes),
            (vec!["left_alone"], vec![change(1, 100, 256)])
        );
        let mut book = Book::new(true);
        let plan = book.plan(&before, &nodes());
        assert_eq!(plan.events, []);
        assert_eq!(plan.changes, [change(1, 100, 256), change(2, 7, 64)]);
        assert_eq!(book.restore(&before), [change(2, 7, 100)]);
    }

    #[test]
    fn a_backend_with_a_server_that_is_no_node_is_left_alone() {
        let mut book = Book::default();
        let mut other = server(9, 100);
        let plan = book.plan(&[server(1, 100), other.clone()], &nodes());
        assert_eq!(
            (names(&plan), &plan.changes[..]),
            (vec!["left_alone"], &[][..])
        );
        assert!(plan.events[0].1.contains("n9 at 10.0.0.9:80"), "{plan:?}");
        assert_eq!(
            book.plan(&[server(1, 100), other.clone()], &nodes()),
            Plan::default()
        );
        // One without any node is none of our business.
        other.backend = "other".into();
        assert_eq!(Book::default().plan(&[other], &nodes()), Plan::default());
    }

    #[test]
    fn what_haproxy_refuses_is_not_tried_again() {
        let mut book = Book::default();
        let servers = [server(1, 100), server(2, 100)];
        let plan = book.plan(&servers, &nodes());
        book.on_refused(&plan.changes[0]);
        assert_eq!(book.plan(&servers, &nodes()).changes, [change(2, 100, 256)]);
    }
}
