//! What one decision costs with a thousand nodes whose records are fresh.
//!
//! ```text
//! cargo bench --package tidegate-core --bench pick                   all policies, a table
//! cargo bench --package tidegate-core --bench pick -- auto 1000000   one policy, for perf stat:
//! perf stat -e instructions:u target/release/deps/pick-* auto 1000000
//! ```
//!
//! `request`: the picker's whole `handle_request` (admission, policy, counting, ticket), while
//! four requests are in flight per node. `pick`: the policy alone. Both are medians over batches,
//! and beside them the lowest twentieth, which is what a busy machine shows in its quiet moments.
//! Below, `auto` under `adaptive` admission: with room at every node, and with room at none, where a
//! request looks at all of them, begins to wait and leaves again.
//! `end`: `handle_outcome` and dropping the ticket, mean. One thread does all of
//! it, so the table's lines are in its own cache; with a reader on another core each compared
//! node may cost a transfer between cores more.
#![expect(clippy::print_stdout, reason = "printing is what a benchmark is for")]
#![expect(
    clippy::disallowed_types,
    reason = "a benchmark reads the clock; the core does not"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::admission::{AdmissionConfig, AdmissionKind, Rank, WithoutRecords};
use tidegate_core::director::Director;
use tidegate_core::load::{LoadTable, NodeLoad};
use tidegate_core::picker::{Arrival, Decision, Outcome, Picker, Ticket};
use tidegate_core::policy::{PolicyConfig, PolicyKind, View};
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{
    Capacity, ClusterSpec, NodeId, NodeSpec, Share, SiteId, SiteSpec, Topology,
};

const NODES: usize = 1000;
const IN_FLIGHT: usize = 4 * NODES;
const BATCH: usize = 32;
const SITE: SiteId = SiteId(0);
/// Time that passes between two batches; after this many of them the records are read anew.
const BATCH_TIME: Duration = Duration::from_micros(100);
const BATCHES_PER_READ: usize = 10;

struct World {
    now: Timestamp,
    director: Director,
    table: Arc<LoadTable>,
    picker: Picker,
    config: PolicyConfig,
    tickets: Vec<Ticket>,
    prng: Prng,
}

impl World {
    fn new(kind: PolicyKind, admission: AdmissionConfig) -> Self {
        let config = PolicyConfig::new(kind);
        let director = Director::new(cluster(config, admission), 1);
        let table = Arc::new(LoadTable::new(NODES, 1));
        let picker = Picker::new(Arc::clone(&table), director.topology(), 1);
        let mut world = Self {
            now: Timestamp::from_millis(1000),
            director,
            table,
            picker,
            config,
            tickets: Vec::with_capacity(IN_FLIGHT + BATCH),
            prng: Prng::new(1),
        };
        world.read();
        while world.tickets.len() < IN_FLIGHT {
            world.request();
        }
        // What policies learn from.
        for _ in 0..1000 {
            world.step();
        }
        world
    }

    /// A record of every node, and the director's terms.
    fn read(&mut self) {
        for node in 0..NODES {
            let node = NodeId(node as u32);
            let runnable = self.prng.below(8) as f32;
            let load = NodeLoad {
                observed_at: self.now,
                capacity: 4.0,
                runnable,
                utilization: (runnable / 4.0).min(1.0),
                utilization_ulm: 0.5,
                in_flight: self.table.in_flight(node) as f32,
                memory: 0.5,
                files: 0.1,
                softirqs: 0.0,
                unseen_from: self.table.own(node),
                ..NodeLoad::UNKNOWN
            };
            self.table.store(node, &load);
        }
        self.director.handle_tick(&self.table, self.now);
    }

    /// What the control plane spends on this each millisecond: median of a director's tick.
    #[expect(clippy::disallowed_methods, reason = "it measures real time")]
    fn tick(&mut self) -> Duration {
        let mut ticks = Vec::new();
        for _ in 0..300 {
            self.now = self.now + Duration::from_millis(1);
            self.step();
            let start = Instant::now();
            self.director.handle_tick(&self.table, self.now);
            ticks.push(start.elapsed());
        }
        ticks.sort_unstable();
        ticks[ticks.len() / 2]
    }

    fn request(&mut self) {
        if let Decision::Forward(ticket) = self.picker.handle_request(&Arrival::at(SITE), self.now)
        {
            self.tickets.push(ticket);
        }
    }

    /// A request that finds no room anywhere, and goes away; nanoseconds each.
    #[expect(clippy::disallowed_methods, reason = "it measures real time")]
    fn refuse(&mut self, batches: usize) -> [f64; 2] {
        for node in 0..NODES {
            let none = [0.0; Rank::COUNT];
            self.table.set_limits(NodeId(node as u32), none);
        }
        let arrival = Arrival::at(SITE);
        let batch = |_| {
            let start = Instant::now();
            for _ in 0..BATCH {
                black_box(self.picker.handle_request(&arrival, self.now));
                self.picker.handle_left(SITE, arrival.id);
            }
            start.elapsed()
        };
        quantiles((0..batches).map(batch).collect())
    }

    fn end(&mut self) {
        let ticket = self
            .tickets
            .swap_remove(self.prng.below(self.tickets.len()));
        self.picker
            .handle_outcome(&ticket, Outcome::Success, self.now);
        drop(ticket);
    }

    /// One batch of requests and of ends; how long each took.
    #[expect(clippy::disallowed_methods, reason = "it measures real time")]
    fn step(&mut self) -> (Duration, Duration) {
        self.now = self.now + BATCH_TIME;
        let start = Instant::now();
        for _ in 0..BATCH {
            self.request();
        }
        let requested = start.elapsed();
        let start = Instant::now();
        for _ in 0..BATCH {
            self.end();
        }
        (requested, start.elapsed())
    }

    /// A batch of picks by a policy of its own.
    fn pick(
        &mut self,
        topology: &Topology,
        shares: &[Share],
        policy: &mut dyn tidegate_core::policy::Policy,
    ) {
        let view = View {
            now: self.now,
            site: SITE,
            candidates: &topology.site(SITE).candidates,
            shares,
            table: &self.table,
        };
        for _ in 0..BATCH {
            black_box(policy.pick(&view, &mut self.prng));
        }
    }

    #[expect(clippy::disallowed_methods, reason = "it measures real time")]
    fn measure(&mut self, batches: usize) -> Costs {
        let topology = self.director.topology();
        let shares: Vec<_> = topology.shares().collect();
        let mut policy = self.config.build();
        policy.on_nodes(topology.nodes.len(), &topology.site(SITE).candidates);
        let (mut requests, mut picks, mut ends) = (Vec::new(), Vec::new(), Duration::ZERO);
        for batch in 0..batches {
            if batch % BATCHES_PER_READ == 0 {
                self.read();
            }
            let (requested, ended) = self.step();
            requests.push(requested);
            ends += ended;
            let start = Instant::now();
            self.pick(&topology, &shares, policy.as_mut());
            picks.push(start.elapsed());
        }
        Costs {
            request: quantiles(requests),
            pick: quantiles(picks),
            end: ends.as_nanos() as f64 / (batches * BATCH) as f64,
        }
    }
}

/// Nanoseconds.
struct Costs {
    request: [f64; 2],
    pick: [f64; 2],
    end: f64,
}

/// Median and lowest twentieth of one of a batch.
fn quantiles(mut batches: Vec<Duration>) -> [f64; 2] {
    batches.sort_unstable();
    [2, 20].map(|part| batches[batches.len() / part].as_nanos() as f64 / BATCH as f64)
}

fn cluster(policy: PolicyConfig, admission: AdmissionConfig) -> ClusterSpec {
    ClusterSpec {
        sites: vec![SiteSpec {
            name: "site".into(),
            hosts: vec!["*".into()],
            paths: Vec::new(),
            policy,
            admission,
            health: Default::default(),
        }],
        nodes: (0..NODES)
            .map(|node| NodeSpec {
                name: format!("n{node}"),
                address: ([127, 0, 0, 1], 8000).into(),
                site: SITE,
                weight: 1.0,
                capacity: Capacity::default(),
            })
            .collect(),
        groups: Vec::new(),
        front_ends: 8,
    }
}

fn print(name: &str, costs: &Costs) {
    let ([request, request_low], [pick, pick_low]) = (costs.request, costs.pick);
    println!(
        "{name:22} {request:8.0} {request_low:6.0} {pick:8.0} {pick_low:6.0} {:8.0}",
        costs.end
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let one = arguments.iter().find_map(|name| PolicyKind::named(name));
    let count = arguments.iter().find_map(|number| number.parse().ok());
    if let (Some(kind), Some(count)) = (one, count) {
        // Requests and ends only, for an instruction counter: the set-up is the same for every
        // count, so two counts tell the cost of one.
        let mut world = World::new(kind, AdmissionConfig::default());
        let done: usize = count;
        for _ in 0..done / BATCH {
            world.step();
        }
        return;
    }
    println!("{NODES} nodes, {IN_FLIGHT} requests in flight; ns, median and lowest twentieth");
    println!(
        "{:22} {:>15} {:>15} {:>8}",
        "policy", "request", "pick", "end"
    );
    for kind in PolicyKind::ALL {
        if one.is_none_or(|one| one == *kind) {
            let costs = World::new(*kind, AdmissionConfig::default()).measure(3000);
            print(kind.name(), &costs);
        }
    }
    let adaptive = AdmissionConfig {
        without_records: WithoutRecords::Admit,
        ..AdmissionConfig::new(AdmissionKind::Adaptive)
    };
    let mut world = World::new(PolicyKind::Auto, adaptive);
    print("auto, adaptive", &world.measure(3000));
    let [full, full_low] = world.refuse(3000);
    println!("{:22} {full:8.0} {full_low:6.0}", "auto, adaptive, full");
    let tick = World::new(PolicyKind::Auto, AdmissionConfig::default()).tick();
    println!("director's tick: {:.0} us", tick.as_secs_f64() * 1e6);
}
