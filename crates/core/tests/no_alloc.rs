//! Picking and admitting allocate nothing, whatever the policy and the mode: proved by counting
//! every allocation.
#![expect(
    unsafe_code,
    reason = "an allocator can only be implemented with it; this one hands all to the system's and counts"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::admission::{AdmissionConfig, AdmissionKind, Rank, StaticLimits};
use tidegate_core::director::Director;
use tidegate_core::load::{LoadTable, NodeLoad, Recent};
use tidegate_core::picker::{Arrival, Decision, Outcome, Picker, Retried, Ticket, WaitId};
use tidegate_core::policy::{LoadIndex, Parameters, PolicyConfig, PolicyKind, Probe};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{
    AdminState, Capacity, ClusterSpec, NodeId, NodeSpec, SiteId, SiteSpec,
};

thread_local! {
    /// Allocations of this thread; other tests and the harness have their own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps GlobalAlloc's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps GlobalAlloc's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps GlobalAlloc's contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NODES: usize = 1000;
const SITE: SiteId = SiteId(0);

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
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

fn read(table: &LoadTable, now: Timestamp) {
    for node in 0..NODES {
        // Every tenth node tells nothing.
        if node % 10 != 0 {
            let load = NodeLoad {
                observed_at: now,
                capacity: 4.0,
                runnable: (node % 7) as f32,
                utilization: (node % 7) as f32 / 7.0,
                utilization_ulm: 0.5,
                in_flight: (node % 5) as f32,
                memory: 0.5,
                files: 0.1,
                ..NodeLoad::UNKNOWN
            };
            table.store(NodeId(node as u32), &load);
        }
    }
}

/// The life of some requests: picked, tried again, answered, ended, with news in between.
fn requests(picker: &mut Picker, tickets: &mut Vec<Ticket>, now: &mut Timestamp) {
    for round in 0..500 {
        *now = *now + Duration::from_micros(100);
        if round % 100 == 0 {
            read(picker.table(), *now);
        }
        if round >= 250 {
            // As where nodes are read in turn.
            let first = round as u32 % 90 * 10;
            let recent = Recent::new(NodeId(first), NodeId(first + 9));
            picker.table().set_recent(Some(recent));
        }
        let Decision::Forward(first) = picker.handle_request(&Arrival::at(SITE), *now) else {
            panic!("there are nodes");
        };
        let tried = [first.node];
        let Ok(second) = picker.handle_retry(SITE, &tried, Retried::Failure, *now) else {
            panic!("there are other nodes");
        };
        picker.handle_outcome(&first, Outcome::Broken, *now);
        drop(first);
        let probe = Probe {
            node: second.node,
            in_flight: 3.0,
            latency: 0.01,
        };
        picker.handle_probe(SITE, &probe, *now);
        tickets.push(second);
        if tickets.len() == tickets.capacity() {
            let ticket = tickets.swap_remove(round % tickets.len());
            picker.handle_outcome(&ticket, Outcome::Success, *now);
            drop(ticket);
        }
    }
}

#[test]
fn the_counter_counts() {
    let before = allocations();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(allocations(), before + 1);
}

#[test]
fn no_policy_allocates_while_it_picks() {
    let indices = LoadIndex::ALL.iter().map(|(index, _)| PolicyConfig {
        kind: PolicyKind::KLeastLoaded,
        parameters: Parameters {
            index: *index,
            ..Parameters::default()
        },
    });
    let kinds = PolicyKind::ALL.iter().map(|kind| PolicyConfig::new(*kind));
    for config in kinds.chain(indices) {
        let admission = AdmissionConfig::default();
        let mut director = Director::new(cluster(config, admission), 1);
        let table = Arc::new(LoadTable::new(NODES, 1));
        let mut now = Timestamp::from_millis(1000);
        read(&table, now);
        director.handle_tick(&table, now);
        let mut picker = Picker::new(table, director.topology(), 1);
        let mut tickets = Vec::with_capacity(200);
        // From the very first request on: what a policy needs, it has made before.
        let before = allocations();
        requests(&mut picker, &mut tickets, &mut now);
        let counted = allocations() - before;
        assert_eq!(counted, 0, "{}", config.kind.name());
    }
}

#[test]
fn no_policy_allocates_while_a_node_starts_slowly() {
    for kind in PolicyKind::ALL {
        let mut spec = cluster(PolicyConfig::new(*kind), AdmissionConfig::default());
        spec.sites[0].health.slow_start = Duration::from_secs(60);
        let mut director = Director::new(spec, 1);
        let table = Arc::new(LoadTable::new(NODES, 1));
        let mut now = Timestamp::from_millis(1000);
        read(&table, now);
        director.handle_tick(&table, now);
        for state in [AdminState::Drain, AdminState::Ready] {
            director.handle_override(NodeId(7), state);
            director.handle_tick(&table, now);
        }
        assert_eq!(director.topology().site(SITE).ramping, [NodeId(7)]);
        let mut picker = Picker::new(table, director.topology(), 1);
        let mut tickets = Vec::with_capacity(200);
        let before = allocations();
        requests(&mut picker, &mut tickets, &mut now);
        assert_eq!(allocations() - before, 0, "{}", kind.name());
    }
}

/// More requests than come in, and their ends: all that a mode gets to know. Gives how many were refused
/// or had to wait.
fn crowd(picker: &mut Picker, tickets: &mut Vec<Ticket>, now: &mut Timestamp) -> u32 {
    let mut held_up = 0;
    for round in 0..2000 {
        *now = *now + Duration::from_micros(100);
        for id in 0..4 {
            let arrival = Arrival {
                id: WaitId(round * 4 + id),
                ..Arrival::at(SITE)
            };
            match picker.handle_request(&arrival, *now) {
                Decision::Forward(ticket) if tickets.len() < tickets.capacity() => {
                    tickets.push(ticket);
                }
                Decision::Forward(ticket) => drop(ticket),
                Decision::Reject(_) | Decision::Wait => held_up += 1,
            }
        }
        while let Some((_, decision)) = picker.poll_waiting(*now) {
            drop(decision);
        }
        if round % 2 == 0 && !tickets.is_empty() {
            let ticket = tickets.swap_remove(round as usize % tickets.len());
            let failed = round % 10 == 0;
            let outcome = if failed {
                Outcome::ServerError
            } else {
                Outcome::Success
            };
            picker.handle_outcome(&ticket, outcome, *now);
        }
    }
    held_up
}

#[test]
fn no_admission_mode_allocates_while_it_decides() {
    for (kind, name) in AdmissionKind::ALL {
        let admission = AdmissionConfig {
            slo: Duration::from_millis(20),
            queue: 64,
            limits: StaticLimits {
                connections: Some(1),
                ..StaticLimits::default()
            },
            ..AdmissionConfig::new(*kind)
        };
        let policy = PolicyConfig::new(PolicyKind::LeastRequest);
        let director = Director::new(cluster(policy, admission), 1);
        let table = Arc::new(LoadTable::new(NODES, 1));
        for node in 0..NODES as u32 {
            table.set_limits(NodeId(node), [1.0; Rank::COUNT]);
        }
        let mut now = Timestamp::from_millis(1000);
        let mut picker = Picker::new(table, director.topology(), 1);
        let mut tickets = Vec::with_capacity(2 * NODES);
        // The queue grows to its length once.
        crowd(&mut picker, &mut tickets, &mut now);
        let before = allocations();
        let held_up = crowd(&mut picker, &mut tickets, &mut now);
        let counted = allocations() - before;
        assert_eq!(counted, 0, "{name}");
        assert_eq!(held_up > 0, *kind != AdmissionKind::Off, "{name}");
    }
}
