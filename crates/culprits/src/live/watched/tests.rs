//! Whose use counts for which resource while sites, nodes and resources come, go, move and get each other's places.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use tidegate_core::admission::AdmissionConfig;
use tidegate_core::culprits::{Limits, Request};
use tidegate_core::director::Director;
use tidegate_core::load::LoadTable;
use tidegate_core::policy::PolicyConfig;
use tidegate_core::prng::Prng;
use tidegate_core::topology::{
    Capacity, ClusterChange, ClusterSpec, NodeId, NodeSpec, SiteId, SiteSpec, Topology,
};

use super::*;
use crate::live::front_end::{ResourceNode, ResourceNodes, ResourceSet};
use crate::live::testing::at;

/// Time between two readings, ms.
const STEP: u64 = 20;

/// Resources whose places are given again at once.
#[derive(Debug, Default)]
struct Fake(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    set: Arc<ResourceSet>,
    counters: BTreeMap<u32, Counters>,
}

impl Fake {
    fn follow(&self, names: &[&str]) {
        let mut state = self.0.lock().unwrap();
        let before = Arc::clone(&state.set);
        let mut nodes: Vec<ResourceNode> = before.nodes.clone();
        nodes.retain(|it| names.contains(&it.name.as_str()));
        for name in names {
            if nodes.iter().any(|it| it.name == *name) {
                continue;
            }
            let place = (0..).find(|place| nodes.iter().all(|it| it.place != *place));
            nodes.push(ResourceNode {
                name: (*name).into(),
                address: ([10, 9, 0, 1], 0).into(),
                place: place.unwrap(),
                generation: before.version as u32 + 1,
            });
        }
        state.set = Arc::new(ResourceSet {
            version: before.version + 1,
            nodes,
        });
    }
}

impl ResourceNodes for Fake {
    fn nodes(&self) -> Arc<ResourceSet> {
        Arc::clone(&self.0.lock().unwrap().set)
    }

    fn counters(&self, place: u32) -> Option<Counters> {
        self.0.lock().unwrap().counters.get(&place).copied()
    }

    fn unread(&self) -> Vec<UnreadNode> {
        Vec::new()
    }
}

/// Sites, and nodes with the site and the variant of the address of each.
fn spec(sites: &[&str], nodes: &[(u8, &str, u8)]) -> ClusterSpec {
    let place = |name: &str| sites.iter().position(|it| *it == name).unwrap() as u32;
    let site = |name: &&str| SiteSpec {
        name: (*name).into(),
        hosts: vec![format!("{name}.example")],
        paths: Vec::new(),
        policy: PolicyConfig::default(),
        admission: AdmissionConfig::default(),
        health: Default::default(),
    };
    let node = |(number, site, variant): &(u8, &str, u8)| NodeSpec {
        name: format!("n{number}"),
        address: ([10, 0, *variant, *number], 80).into(),
        site: SiteId(place(site)),
        weight: 1.0,
        capacity: Capacity::default(),
    };
    ClusterSpec {
        sites: sites.iter().map(site).collect(),
        nodes: nodes.iter().map(node).collect(),
        groups: Vec::new(),
        front_ends: 1,
    }
}

/// A cluster that changes, what its machines use, and what is watched of it.
struct Scene {
    spec: ClusterSpec,
    director: Director,
    cluster: Cluster,
    resources: Arc<Fake>,
    watched: WatchedAll,
    discovery: Discovery,
    now_ms: u64,
    /// Since when each owner has had which part of a CPU, by the owner's name.
    truth: BTreeMap<String, Vec<(u64, f64)>>,
}

impl Scene {
    fn new(spec: ClusterSpec) -> Self {
        let director = Director::new(spec.clone(), 1);
        let resources = Arc::new(Fake::default());
        let cluster = Cluster {
            topology: Arc::new(ArcSwap::new(director.topology())),
            table: Arc::new(LoadTable::new(spec.nodes.len(), spec.sites.len())),
            resources: Arc::<Fake>::clone(&resources),
        };
        let mut scene = Self {
            spec,
            director,
            cluster,
            resources,
            watched: WatchedAll::default(),
            discovery: Discovery::new(Limits::default()),
            now_ms: 0,
            truth: BTreeMap::new(),
        };
        scene.note_truth();
        scene
    }

    fn change(&mut self, spec: ClusterSpec) {
        let change = ClusterChange::between(&self.spec, &spec);
        self.director
            .handle_change(&change, &self.cluster.table)
            .unwrap();
        self.spec = spec;
        self.publish();
        self.note_truth();
    }

    fn publish(&mut self) {
        if let Some(topology) = self.director.poll_topology() {
            self.cluster.topology.store(topology);
        }
    }

    /// All machines go on; whatever has a place is read there.
    fn step(&mut self, is_followed: bool) {
        self.now_ms += STEP;
        let now = at(self.now_ms);
        if is_followed {
            let version = self.cluster.topology.load().version;
            self.director.handle_followed(version);
        }
        self.director.handle_tick(&self.cluster.table, now);
        self.publish();
        let topology = self.cluster.topology.load_full();
        for (place, node) in (0..).zip(&topology.nodes) {
            // Also of those that leave or are gone: a reader may be late.
            let counters = self.run(&node.address.to_string());
            self.cluster.table.store_counters(NodeId(place), &counters);
        }
        for node in &self.resources.nodes().nodes {
            let counters = self.run(&node.name);
            let mut state = self.resources.0.lock().unwrap();
            state.counters.insert(node.place, counters);
        }
        let members = self.cluster.members();
        let discovery = &mut self.discovery;
        self.watched
            .follow(&members, |gone| discovery.forget_resource(gone.id));
        self.watched.read(&self.cluster, discovery, now);
    }

    /// A machine's counters now.
    fn run(&self, machine: &str) -> Counters {
        let generation = machine.bytes().map(u64::from).sum();
        let busy = (rate(machine) * (self.now_ms * 1_000_000) as f64) as u64;
        Counters {
            at: at(self.now_ms),
            generation,
            cores: 1.0,
            busy_ns: Some(busy),
            fine: true,
            disk_ns: None,
            network: None,
            context_switches: None,
        }
    }

    fn note_truth(&mut self) {
        let topology = Arc::clone(&self.cluster.topology.load());
        let mut uses = uses(&topology);
        for node in &self.resources.nodes().nodes {
            uses.insert(format!("{} cpu", node.name), rate(&node.name));
        }
        let names: Vec<_> = self.truth.keys().chain(uses.keys()).cloned().collect();
        for name in names {
            let used = uses.get(&name).copied().unwrap_or_default();
            self.truth
                .entry(name)
                .or_default()
                .push((self.now_ms, used));
        }
    }

    /// Each known step of each CPU is the use of its members then; around a change, of one before or after it at most.
    fn check(&self) -> usize {
        let mut checked = 0;
        let (ms, zero) = (1_000_000, at(0).nanos() as i64);
        for (watched, spans) in self.watched.iter().zip(self.watched.spans(0)) {
            let Some(truth) = self.truth.get(&watched.name) else {
                continue;
            };
            for span in spans {
                let from = (span.from - zero) / ms - 2 * STEP as i64;
                let to = (span.to - zero) / ms + 2 * STEP as i64;
                let mut within = Vec::new();
                for (at, used) in truth {
                    let at = *at as i64;
                    if at <= from {
                        within.clear();
                    }
                    if at <= to {
                        within.push(*used);
                    }
                }
                let most = within.iter().copied().fold(0.0, f64::max);
                assert!(
                    span.mean <= most + 1e-3,
                    "{}: {span:?} {within:?}",
                    watched.name
                );
                if let [used] = within[..] {
                    assert!(span.mean > used - 1e-3, "{}: {span:?} {used}", watched.name);
                    checked += 1;
                }
            }
        }
        checked
    }

    fn watched(&self, name: &str) -> Option<&Watched> {
        self.watched.iter().find(|it| it.name == name)
    }
}

/// What each site's nodes use together.
fn uses(topology: &Topology) -> BTreeMap<String, f64> {
    let mut uses = BTreeMap::new();
    for (id, site) in topology.served() {
        let nodes = topology.members().filter(|(_, node)| node.site == id);
        let used = nodes.map(|(_, node)| rate(&node.address.to_string())).sum();
        uses.insert(format!("{} cpu", site.name), used);
    }
    uses
}

/// What a machine uses of its CPU, another part each.
fn rate(machine: &str) -> f64 {
    let number = machine.bytes().fold(7_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    0.05 + f64::from(number % 1000) * 1e-4
}

#[test]
fn a_nodes_use_counts_for_the_site_that_has_it_and_for_no_other_whatever_changes() {
    const SITES: [&str; 3] = ["a", "b", "c"];
    let mut checked = 0;
    for seed in 0..12 {
        let mut prng = Prng::new(seed);
        let mut scene = Scene::new(spec(&["a", "b"], &[(0, "a", 0), (1, "b", 0)]));
        for _ in 0..40 {
            let mut sites: Vec<&str> = SITES.into_iter().filter(|_| prng.unit() < 0.7).collect();
            if sites.is_empty() {
                sites.push("a");
            }
            let mut nodes = Vec::new();
            for number in 0..5 {
                let site = sites[(prng.unit() * sites.len() as f64) as usize];
                if prng.unit() < 0.7 {
                    nodes.push((number, site, u8::from(prng.unit() < 0.3)));
                }
            }
            let resources = ["r0", "r1"].into_iter().filter(|_| prng.unit() < 0.6);
            let resources: Vec<_> = resources.collect();
            scene.resources.follow(&resources);
            scene.change(spec(&sites, &nodes));
            let steps = 1 + (prng.unit() * 60.0) as u64;
            for _ in 0..steps {
                scene.step(prng.unit() < 0.2);
            }
            checked += scene.check();
        }
    }
    assert!(checked > 10_000, "{checked}");
}

/// Requests of a class that loads `shop`, and the use that they make.
fn learn(scene: &mut Scene, seconds: u64) {
    let Some(shop) = scene.watched("shop cpu").map(|it| it.id) else {
        return;
    };
    let mut prng = Prng::new(3);
    let mut busy = 0;
    let from = scene.now_ms;
    for ms in (from..from + 1000 * seconds).step_by(20) {
        if prng.unit() < 0.3 {
            busy += 10_000_000;
            let (sent, ended) = (at(ms), Some(at(ms + 20)));
            let class = ClassId(1);
            scene.discovery.on_request(&Request { class, sent, ended });
        }
        let point = tidegate_core::culprits::UsagePoint {
            at: at(ms + 20),
            busy_ns: busy,
            cores: 1.0,
        };
        scene.discovery.on_usage(shop, point);
        if (ms - from).is_multiple_of(2500) {
            scene.discovery.evaluate(at(ms), shop);
        }
    }
    scene.now_ms = from + 1000 * seconds;
}

#[test]
fn what_stays_keeps_its_number_and_what_was_learned_and_what_goes_leaves_nothing_to_the_next() {
    let shop = [(0, "shop", 0), (1, "shop", 0)];
    let mut scene = Scene::new(spec(&["shop"], &shop));
    scene.step(true);
    learn(&mut scene, 60);
    let id = scene.watched("shop cpu").unwrap().id;
    let learned = scene.discovery.learned(id);
    assert!(!learned.is_empty());
    // Nodes come and go, another site and a database begin.
    let blog = [(1, "shop", 1), (2, "shop", 0), (3, "blog", 0)];
    scene.resources.follow(&["db"]);
    scene.change(spec(&["blog", "shop"], &blog));
    scene.step(true);
    let names = |scene: &Scene| -> Vec<(String, u16)> {
        let all = scene.watched.iter().filter(|it| it.name.ends_with("cpu"));
        all.map(|it| (it.name.clone(), it.id.0)).collect()
    };
    let before = names(&scene);
    assert_eq!(before.len(), 3);
    assert_eq!(scene.watched("shop cpu").unwrap().id, id);
    assert_eq!(scene.discovery.learned(id), learned);
    // The site that goes leaves its numbers to others, and nothing that belongs to them.
    scene.change(spec(&["blog"], &[(3, "blog", 0)]));
    scene.step(true);
    assert!(scene.watched("shop cpu").is_none());
    assert_eq!(scene.discovery.learned(id), BTreeMap::new());
    scene.change(spec(&["blog", "wiki"], &[(3, "blog", 0), (0, "wiki", 0)]));
    scene.step(true);
    assert_eq!(scene.watched("wiki cpu").unwrap().id, id);
    assert_eq!(scene.discovery.learned(id), BTreeMap::new());
    // What has stayed has its own.
    for (name, number) in before.iter().filter(|(name, _)| name != "shop cpu") {
        assert_eq!(scene.watched(name).unwrap().id.0, *number);
    }
}

#[test]
fn where_there_is_no_room_for_all_each_has_its_cpu_first() {
    let all: Vec<String> = (0..20).map(|it| format!("s{it}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut scene = Scene::new(spec(&all[..4], &[]));
    scene.step(true);
    assert_eq!(scene.watched.iter().len(), RESOURCES_MAX);
    assert!(scene.watched("s3 context switches").is_some());
    scene.change(spec(&all[..5], &[]));
    scene.step(true);
    assert_eq!(scene.watched.iter().len(), RESOURCES_MAX);
    assert!(scene.watched("s4 cpu").is_some() && scene.watched("s4 network").is_some());
    assert_eq!(scene.watched.left_out, 4);
    scene.change(spec(&all, &[]));
    scene.step(true);
    let kinds = scene.watched.iter().map(|it| it.series.kind());
    assert!(kinds.eq([Kind::Cpu; RESOURCES_MAX]));
    let mut ids: Vec<_> = scene.watched.iter().map(|it| it.id.0).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..RESOURCES_MAX as u16));
}
