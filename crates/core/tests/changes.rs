//! Random histories of a cluster that changes while requests are in flight: nodes and sites come, go, come back, and
//! change address, site and weight, while workers follow late. The books balance, and a place means one node at a time.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::admission::AdmissionConfig;
use tidegate_core::director::{Director, Event};
use tidegate_core::load::{Group, LoadTable};
use tidegate_core::picker::{Arrival, Decision, Outcome, Picker, Ticket};
use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{
    BytesCheck, Capacity, CheckConfig, CheckFailure, CheckRequest, CheckResult, ClusterChange,
    ClusterSpec, GroupId, HealthConfig, Membership, NodeId, NodeSpec, SiteId, SiteSpec, Topology,
};

const WORKERS: usize = 3;
const STEPS: u32 = 3000;
const CHECK: CheckConfig = CheckConfig {
    label: String::new(),
    request: CheckRequest::Tcp(BytesCheck::NOTHING),
    port: None,
    tls: false,
    interval: Duration::from_millis(20),
    timeout: Duration::from_millis(10),
    rise: 2,
    fall: 2,
};

fn site(name: &str, kind: PolicyKind) -> SiteSpec {
    SiteSpec {
        name: name.into(),
        hosts: vec![name.into()],
        paths: Vec::new(),
        policy: PolicyConfig::new(kind),
        admission: AdmissionConfig::default(),
        health: Default::default(),
    }
}

/// A request on its way, and what it knows of its node by its name.
struct InFlight {
    worker: usize,
    ticket: Ticket,
    node: String,
    generation: u32,
}

struct World {
    prng: Prng,
    spec: ClusterSpec,
    groups: BTreeSet<&'static str>,
    director: Director,
    table: Arc<LoadTable>,
    latest: Arc<Topology>,
    workers: Vec<Picker>,
    in_flight: Vec<InFlight>,
    now: Timestamp,
    /// Requests by the name and the generation of their node.
    sent: BTreeMap<(String, u32, NodeId), u64>,
    named: u32,
    left: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let spec = ClusterSpec {
            sites: vec![site("a", PolicyKind::Auto), site("b", PolicyKind::Prequal)],
            nodes: Vec::new(),
            groups: Vec::new(),
            front_ends: 1,
        };
        let mut director = Director::new(spec.clone(), seed);
        let table = Arc::new(LoadTable::new(0, 2));
        let latest = director.poll_topology().unwrap();
        let picker = |worker| Picker::new(Arc::clone(&table), Arc::clone(&latest), seed + worker);
        Self {
            prng: Prng::new(seed),
            workers: (0..WORKERS as u64).map(picker).collect(),
            spec,
            groups: BTreeSet::new(),
            director,
            table,
            latest,
            in_flight: Vec::new(),
            now: Timestamp::from_millis(1000),
            sent: BTreeMap::new(),
            named: 0,
            left: 0,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.prng.below(bound)
    }

    /// One random edit of what is wanted.
    fn edit(&mut self) {
        let (sites, nodes) = (self.spec.sites.len(), self.spec.nodes.len());
        match self.below(10) {
            0..=3 if nodes < 150 => {
                // Sometimes a name that was there before.
                self.named += 1;
                let named = self.named as usize;
                let name = match self.below(4) {
                    0 => format!("n{}", self.below(named)),
                    _ => format!("n{named}"),
                };
                if self.spec.nodes.iter().all(|node| node.name != name) {
                    let node = NodeSpec {
                        name,
                        address: self.address(),
                        site: SiteId(self.below(sites) as u32),
                        weight: 1.0,
                        capacity: Capacity::default(),
                    };
                    self.spec.nodes.push(node);
                }
            }
            4..=6 if nodes > 0 => {
                let place = self.below(nodes);
                self.spec.nodes.swap_remove(place);
            }
            7 if nodes > 0 => {
                let place = self.below(nodes);
                let address = self.address();
                let site = SiteId(self.below(sites) as u32);
                let weight = 1.0 + self.below(3) as f32;
                let node = &mut self.spec.nodes[place];
                (node.address, node.site, node.weight) = (address, site, weight);
            }
            8 if self.below(2) == 0 => self.edit_groups(),
            8 if self.below(2) == 0 => {
                let (place, slow, checked) = (self.below(sites), self.below(2), self.below(3));
                self.spec.sites[place].health = HealthConfig {
                    slow_start: Duration::from_millis(100 * slow as u64),
                    warm_up: Duration::from_millis(100 * self.below(2) as u64),
                    checks: vec![CHECK; checked],
                    ..HealthConfig::default()
                };
            }
            8 => {
                let kinds = PolicyKind::ALL;
                let kind = kinds[self.below(kinds.len())];
                let place = self.below(sites);
                self.spec.sites[place].policy = PolicyConfig::new(kind);
            }
            9 => self.edit_sites(),
            _ => {}
        }
    }

    /// The last site ends, with its nodes, or comes (back).
    fn edit_sites(&mut self) {
        if self.spec.sites.len() > 2 {
            let last = SiteId(self.spec.sites.len() as u32 - 1);
            self.spec.nodes.retain(|node| node.site != last);
            self.spec.sites.pop();
        } else {
            let name = ["c", "d", "e"][self.below(3)];
            self.spec.sites.push(site(name, PolicyKind::LeastRequest));
        }
    }

    /// A group begins, or ends.
    fn edit_groups(&mut self) {
        let name = ["x", "y", "z"][self.below(3)];
        if !self.groups.remove(name) {
            self.groups.insert(name);
        }
    }

    /// What is wanted now: each group has its part of the first site's nodes, and a limit that is never reached.
    fn wanted(&self) -> ClusterSpec {
        let count = self.groups.len() as u32;
        let nodes = || (0..).map(NodeId).zip(&self.spec.nodes);
        let part = |number: u32| {
            let of_first = nodes().filter(|(_, node)| node.site == SiteId(0));
            let of_it = of_first.filter(|(id, _)| id.0 % (count + 1) == number);
            of_it.map(|(id, _)| id).collect()
        };
        let groups = (0..).zip(&self.groups).map(|(number, name)| Group {
            name: (*name).into(),
            limit: 1_000_000,
            members: vec![(SiteId(0), 1.0)],
            nodes: part(number),
        });
        ClusterSpec {
            groups: groups.collect(),
            ..self.spec.clone()
        }
    }

    fn address(&mut self) -> SocketAddr {
        let port = 1 + self.below(60_000) as u16;
        ([127, 0, 0, 1], port).into()
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        match self.below(20) {
            0 => {
                let before = self.wanted();
                for _ in 0..=self.below(6) {
                    self.edit();
                }
                let change = ClusterChange::between(&before, &self.wanted());
                self.director.handle_change(&change, &self.table).unwrap();
            }
            1..=2 => self.tick(),
            3 => {
                let worker = self.below(WORKERS);
                let latest = Arc::clone(&self.latest);
                self.workers[worker].handle_topology(latest);
            }
            4..=12 => self.send(),
            _ => self.finish(),
        }
        self.check();
    }

    fn tick(&mut self) {
        let versions = self.workers.iter().map(|it| it.topology().version);
        self.director.handle_followed(versions.min().unwrap());
        self.director.handle_tick(&self.table, self.now);
        while let Some(due) = self.director.poll_check(self.now) {
            let result = match self.prng.below(3) {
                0 => CheckResult::Failed(CheckFailure::Timeout),
                _ => CheckResult::Passed,
            };
            self.director.handle_check(due, result, self.now);
        }
        if let Some(latest) = self.director.poll_topology() {
            self.latest = latest;
        }
        while let Some(event) = self.director.poll_event() {
            self.left += u32::from(matches!(event, Event::Left(_)));
        }
    }

    fn send(&mut self) {
        let index = self.below(WORKERS);
        let worker = &mut self.workers[index];
        let topology = Arc::clone(worker.topology());
        let site = SiteId(self.prng.below(topology.sites.len()) as u32);
        let Decision::Forward(ticket) = worker.handle_request(&Arrival::at(site), self.now) else {
            return;
        };
        let node = topology.node(ticket.node);
        // By what the worker knows: no leaver, and of the site that was asked for.
        assert_eq!((node.membership, node.site), (Membership::Member, site));
        let key = (node.name.clone(), node.generation, ticket.node);
        *self.sent.entry(key).or_default() += 1;
        self.in_flight.push(InFlight {
            worker: index,
            node: node.name.clone(),
            generation: node.generation,
            ticket,
        });
    }

    fn finish(&mut self) {
        let Some(last) = self.in_flight.len().checked_sub(1) else {
            return;
        };
        let ended = self.below(last + 1);
        let mut ended = self.in_flight.swap_remove(ended);
        let picker = &mut self.workers[ended.worker];
        picker.handle_head(&mut ended.ticket, self.now);
        picker.handle_outcome(&ended.ticket, Outcome::Success, self.now);
    }

    /// A place means the node that its requests were sent to until the last of them has ended.
    fn check(&self) {
        let topology = self.director.topology();
        let mut by_place = BTreeMap::<NodeId, u64>::new();
        for request in &self.in_flight {
            let node = topology.node(request.ticket.node);
            assert_eq!(
                (&node.name, node.generation),
                (&request.node, request.generation)
            );
            assert_ne!(node.membership, Membership::Gone);
            *by_place.entry(request.ticket.node).or_default() += 1;
        }
        let groups = (0..topology.groups.len() as u32).map(|it| self.table.group(GroupId(it)).0);
        assert!(groups.sum::<u64>() <= self.in_flight.len() as u64);
        for index in 0..topology.nodes.len() as u32 {
            let node = NodeId(index);
            let expected = by_place.get(&node).copied().unwrap_or_default();
            assert_eq!(self.table.in_flight(node), expected);
        }
    }

    /// Without further changes the topology is what was asked for, and those that left are gone.
    fn settle(&mut self) {
        while !self.in_flight.is_empty() {
            self.finish();
        }
        for _ in 0..3 {
            self.tick();
            for worker in &mut self.workers {
                worker.handle_topology(Arc::clone(&self.latest));
            }
        }
        for group in 0..self.latest.groups.len() as u32 {
            assert_eq!(self.table.group(GroupId(group)).0, 0, "group {group}");
        }
        let members: BTreeMap<_, _> = (self.latest.present())
            .map(|(_, node)| {
                let site = self.latest.site(node.site).name.clone();
                assert_eq!(node.membership, Membership::Member);
                (node.name.clone(), (node.address, site))
            })
            .collect();
        let wanted: BTreeMap<_, _> = (self.spec.nodes.iter())
            .map(|node| {
                let site = self.spec.sites[node.site.index()].name.clone();
                (node.name.clone(), (node.address, site))
            })
            .collect();
        assert_eq!(members, wanted);
        let served: Vec<_> = self
            .latest
            .served()
            .map(|(_, it)| it.name.as_str())
            .collect();
        let mut sites: Vec<_> = self.spec.sites.iter().map(|it| it.name.as_str()).collect();
        sites.sort_unstable();
        assert_eq!(served.len(), sites.len());
        assert!(served.iter().all(|name| sites.contains(name)));
        // What was counted for a place is what was sent to all that had it.
        let mut by_place = BTreeMap::<NodeId, u64>::new();
        for ((_, _, place), count) in &self.sent {
            *by_place.entry(*place).or_default() += count;
        }
        for (place, count) in by_place {
            assert_eq!(self.table.own(place).dispatched, count);
        }
    }
}

#[test]
fn whatever_comes_and_goes_nothing_is_lost_or_sent_to_what_has_left() {
    let (mut left, mut reused) = (0, 0);
    for seed in 0..20 {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.settle();
        left += world.left;
        let generations = world.latest.nodes.iter().map(|it| it.generation);
        reused += generations.sum::<u32>();
        // Nodes that went gave their places to those that came.
        assert!(
            world.latest.nodes.len() < 200,
            "seed {seed}: {}",
            world.latest.nodes.len()
        );
    }
    assert!(
        left > 1000 && reused > 500,
        "{left} left, {reused} places had another node"
    );
}
