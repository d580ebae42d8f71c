//! The director's terms with plain values.

use std::time::Duration;

use super::*;
use crate::director::Director;
use crate::policy::{PolicyConfig, PolicyKind};
use crate::testing::cluster;
use crate::topology::{AdminState, NodeId};

const SITE: SiteId = SiteId(0);

struct World {
    director: Director,
    table: LoadTable,
    now: Timestamp,
}

fn world(front_ends: u32) -> World {
    let mut director = Director::new(cluster(2, PolicyConfig::new(PolicyKind::Auto)), 1);
    director.handle_front_ends(front_ends);
    World {
        director,
        table: LoadTable::new(2, 1),
        now: Timestamp::from_millis(1),
    }
}

impl World {
    fn tick(&mut self) -> [NodeTerms; 2] {
        self.now = self.now + Duration::from_millis(1);
        self.director.handle_tick(&self.table, self.now);
        [self.table.terms(NodeId(0)), self.table.terms(NodeId(1))]
    }

    fn load(&self, node: u32, capacity: f32, runnable: f32) {
        let load = NodeLoad {
            observed_at: self.now,
            capacity,
            runnable,
            ..NodeLoad::UNKNOWN
        };
        self.table.store(NodeId(node), &load);
    }
}

#[test]
fn alone_an_own_request_speaks_for_itself_only() {
    let mut world = world(1);
    let [first, _] = world.tick();
    assert_eq!(
        (first.arrival_inflation, first.inflight_inflation),
        (1.0, 1.0)
    );
}

#[test]
fn among_many_an_own_request_speaks_for_others_but_not_for_more_than_there_can_be() {
    let mut world = world(64);
    for _ in 0..4 {
        world.table.dispatch(NodeId(0), None);
    }
    let [first, _] = world.tick();
    assert!(
        first.inflight_inflation > 1.5 && first.inflight_inflation < 64.0,
        "h = {}",
        first.inflight_inflation
    );
}

#[test]
fn a_node_without_a_record_is_taken_for_an_average_one() {
    let mut world = world(1);
    world.load(0, 4.0, 8.0);
    let [_, second] = world.tick();
    assert_eq!(second.per_core, 0.25);
    assert_eq!(second.prior_runnable, 8.0);
}

#[test]
fn the_slower_node_costs_more_after_enough_responses() {
    let mut world = world(1);
    for _ in 0..500 {
        world
            .table
            .succeeded(NodeId(0), Duration::from_millis(10), 1.0);
        world
            .table
            .succeeded(NodeId(1), Duration::from_millis(20), 1.0);
    }
    let [fast, slow] = world.tick();
    assert!(
        slow.factor / fast.factor > 1.8,
        "{} against {}",
        slow.factor,
        fast.factor
    );
}

#[test]
fn a_few_responses_prove_little() {
    let mut world = world(1);
    world
        .table
        .succeeded(NodeId(0), Duration::from_millis(10), 1.0);
    world
        .table
        .succeeded(NodeId(1), Duration::from_millis(20), 1.0);
    let [fast, slow] = world.tick();
    assert!(
        slow.factor / fast.factor < 1.3,
        "{} against {}",
        slow.factor,
        fast.factor
    );
}

/// For so many seconds both nodes are sent and answer five requests in each 100 ms, which take so
/// long in milliseconds; the second node only in every `every`-th 100 ms.
fn answered(world: &mut World, seconds: u32, every: u32, millis: [f64; 2]) -> [NodeTerms; 2] {
    let mut terms = world.tick();
    for step in 0..seconds * 10 {
        for (node, millis) in [NodeId(0), NodeId(1)].into_iter().zip(millis) {
            if node == NodeId(1) && step % every != 0 {
                continue;
            }
            for spread in [0.8, 0.9, 1.0, 1.1, 1.2] {
                let latency = Duration::from_secs_f64(millis * spread * 1e-3);
                world.table.dispatch(node, None);
                world.table.complete(node, None);
                world.table.succeeded(node, latency, 1.0);
            }
        }
        for _ in 0..100 {
            terms = world.tick();
        }
    }
    terms
}

#[test]
fn a_node_that_has_its_share_is_proven_dear() {
    let mut world = world(1);
    let [fast, slow] = answered(&mut world, 10, 1, [1.0, 1.6]);
    assert!(slow.factor / fast.factor > 1.5, "{}", slow.factor);
}

/// It is asked with cold caches and connections; taken at its word it would stay out for ever.
#[test]
fn a_node_that_hardly_gets_requests_is_not_dear_for_being_slow_then() {
    let mut world = world(1);
    let terms = answered(&mut world, 60, 40, [1.0, 1.6]);
    assert_eq!(terms.map(|terms| terms.factor), [1.0, 1.0]);
}

#[test]
fn a_node_that_gets_nothing_any_more_is_asked_again_within_ten_seconds() {
    let mut world = world(1);
    let [_, slow] = answered(&mut world, 20, 1, [1.0, 1.6]);
    assert!(slow.factor > 1.1, "{}", slow.factor);
    let [_, slow] = answered(&mut world, 10, u32::MAX, [1.0, 1.6]);
    assert_eq!(slow.factor, 1.0);
}

#[test]
fn a_node_that_comes_back_is_judged_by_neither_what_it_did_before_nor_by_what_hung_meanwhile() {
    let mut world = world(1);
    let [_, slow] = answered(&mut world, 20, 1, [1.0, 5.0]);
    assert!(slow.factor > 1.5, "{}", slow.factor);
    for (state, millis) in [(AdminState::Drain, 4000), (AdminState::Ready, 1)] {
        world.director.handle_override(NodeId(1), state);
        world.tick();
        for _ in 0..100 {
            world
                .table
                .succeeded(NodeId(0), Duration::from_millis(1), 1.0);
            world
                .table
                .succeeded(NodeId(1), Duration::from_millis(millis), 1.0);
            world.tick();
        }
    }
    let terms = world.tick();
    assert_eq!(terms.map(|terms| terms.factor), [1.0, 1.0]);
}

/// What the two nodes tell of how long requests take, and how long own ones took there, milliseconds.
struct Windows {
    base_ms: [f32; 2],
    latency_ms: [f32; 2],
    /// Own responses of each node in every fifth window of 100 ms.
    own: usize,
}

/// Ten windows of 100 ms in which requests took this long at the two nodes, milliseconds, and
/// never waited for a CPU; the front-end itself sees two of them.
fn claimed(front_ends: u32, base_ms: [f32; 2]) -> [NodeTerms; 2] {
    let windows = Windows {
        base_ms,
        latency_ms: base_ms,
        own: 1,
    };
    after(front_ends, &windows)
}

/// Ten such windows.
fn after(front_ends: u32, windows: &Windows) -> [NodeTerms; 2] {
    let mut world = world(front_ends);
    let mut terms = world.tick();
    for window in 0..10 {
        for node in [0, 1] {
            let base_time = windows.base_ms[node as usize] * 1e-3;
            if window % 5 == 0 {
                let latency = Duration::from_secs_f32(windows.latency_ms[node as usize] * 1e-3);
                for _ in 0..windows.own {
                    world.table.succeeded(NodeId(node), latency, 1.0);
                }
            }
            let load = NodeLoad {
                observed_at: world.now,
                capacity: 4.0,
                runnable: 1.0,
                base_time,
                completions: 200.0,
                ..NodeLoad::UNKNOWN
            };
            world.table.store(NodeId(node), &load);
        }
        for _ in 0..100 {
            terms = world.tick();
        }
    }
    terms
}

#[test]
fn the_nodes_own_counters_tell_of_slow_io_before_responses_do() {
    let [fast, slow] = claimed(64, [20.0, 60.0]);
    let ratio = slow.factor / fast.factor;
    assert!(ratio > 2.0, "{} against {}", slow.factor, fast.factor);
    let [one, other] = claimed(64, [20.0, 22.0]);
    assert_eq!((one.factor, other.factor), (1.0, 1.0), "within the error");
}

#[test]
fn no_node_is_cheaper_by_its_own_account_than_own_responses_allow() {
    let honest = after(
        4,
        &Windows {
            base_ms: [20.0, 100.0],
            latency_ms: [20.0, 100.0],
            own: 100,
        },
    );
    for invented in [10.0, 1.0, 1e-6] {
        let [fast, slow] = after(
            4,
            &Windows {
                base_ms: [20.0, invented],
                latency_ms: [20.0, 100.0],
                own: 100,
            },
        );
        let (lie, truth) = (
            slow.factor / fast.factor,
            honest[1].factor / honest[0].factor,
        );
        assert!(lie > 0.6 * truth, "{invented}: {lie} instead of {truth}");
    }
}

#[test]
fn claimed_cpus_count_as_far_as_own_responses_bear_them_out() {
    let cpus = |millis: [f64; 2], claims: f32| {
        let mut world = world(1);
        world.load(0, 4.0, 0.0);
        world.load(1, claims, 0.0);
        let begin = world.tick()[1].per_core;
        assert_eq!(begin, 0.125, "twice the other one");
        let [other, its] = answered(&mut world, 10, 1, millis).map(|terms| 1.0 / terms.per_core);
        assert_eq!(other, 4.0);
        its
    };
    // Fifty requests a second.
    assert_eq!(cpus([10.0, 10.0], 64.0), 4.0);
    assert_eq!(
        cpus([10.0, 1000.0], 8192.0),
        4.0,
        "as slow as that it does no more"
    );
    let ten = cpus([200.0, 200.0], 64.0);
    assert!((36.0..44.0).contains(&ten), "{ten}");
    assert_eq!(cpus([200.0, 200.0], 16.0), 16.0);
    assert_eq!(
        cpus([2000.0, 2000.0], 8192.0),
        64.0,
        "sixteen times the others'"
    );
}

#[test]
fn errors_cost_and_are_forgotten() {
    let mut world = world(1);
    for _ in 0..10 {
        world.table.failed(NodeId(0), true);
    }
    let [failing, _] = world.tick();
    assert!(failing.factor > 10.0 && failing.penalty > 0.0);
    for _ in 0..15_000 {
        world.tick();
    }
    let [healed, _] = world.tick();
    assert!(healed.factor < 1.01 && healed.penalty == 0.0);
}

#[test]
fn what_was_learned_fades_to_nothing_and_not_to_a_bias() {
    let mut world = world(1);
    for _ in 0..3 {
        world
            .table
            .succeeded(NodeId(0), Duration::from_millis(10), 1.0);
    }
    // Half a minute of silence: less than one response is left of the three.
    for _ in 0..30 {
        world.now = world.now + Duration::from_secs(1);
        let [asked, silent] = world.tick();
        let ratio = asked.factor / silent.factor;
        assert!((0.99..1.01).contains(&ratio), "{ratio}");
    }
}

#[test]
fn drained_nodes_do_not_make_an_unknown_one_look_idle() {
    let mut world = world(1);
    world.director = Director::new(cluster(3, PolicyConfig::new(PolicyKind::Auto)), 1);
    world.table = LoadTable::new(3, 1);
    world.load(0, 4.0, 8.0);
    world.load(2, 4.0, 0.0);
    world.director.handle_override(NodeId(2), AdminState::Drain);
    world.tick();
    let [_, unknown] = world.tick();
    assert_eq!(unknown.prior_runnable, 8.0);
}

#[test]
fn nonsense_in_records_and_weights_poisons_nobody() {
    let bad = [f32::NAN, 0.0, -1.0, f32::INFINITY];
    for (bad, front_ends) in bad.into_iter().flat_map(|bad| [(bad, 1), (bad, 64)]) {
        let mut spec = cluster(3, PolicyConfig::new(PolicyKind::Auto));
        spec.nodes[0].weight = bad;
        spec.front_ends = front_ends;
        let mut director = Director::new(spec, 1);
        let table = LoadTable::new(3, 1);
        let mut now = Timestamp::from_millis(1);
        for round in 0..10 {
            now = now + Duration::from_millis(1);
            let nonsense = NodeLoad {
                observed_at: now,
                capacity: bad,
                runnable: if bad < 1.0 { f32::NAN } else { bad },
                in_flight: bad,
                one_way: bad,
                ..NodeLoad::UNKNOWN
            };
            table.store(NodeId(1), &nonsense);
            if round > 5 {
                let good = NodeLoad {
                    observed_at: now,
                    capacity: 4.0,
                    runnable: 2.0,
                    ..NodeLoad::UNKNOWN
                };
                table.store(NodeId(2), &good);
            }
            table.dispatch(NodeId(2), None);
            director.handle_tick(&table, now);
            for node in 0..3 {
                let terms = table.terms(NodeId(node));
                let all = [
                    terms.factor,
                    terms.penalty,
                    terms.arrival_inflation,
                    terms.inflight_inflation,
                    terms.prior_runnable,
                    terms.prior_in_flight,
                    terms.per_core,
                ];
                assert!(all.iter().all(|term| term.is_finite()), "{bad}: {terms:?}");
                assert!(
                    terms.per_core > 0.0
                        && terms.arrival_inflation >= 1.0
                        && terms.inflight_inflation >= 1.0
                );
            }
            assert!(table.site_terms(SITE).draws >= 5);
        }
    }
}

#[test]
fn no_node_is_no_trouble() {
    let mut director = Director::new(cluster(0, PolicyConfig::default()), 1);
    let table = LoadTable::new(0, 1);
    for ms in 1..5 {
        director.handle_tick(&table, Timestamp::from_millis(ms));
    }
    let terms = table.site_terms(SITE);
    assert!(terms.draws == 5 && terms.decay.is_finite());
}

#[test]
fn a_node_that_joins_a_site_brings_nothing_along_and_takes_nothing_away() {
    let topology = Director::new(cluster(3, PolicyConfig::default()), 1).topology();
    let with = |nodes: &[u32]| {
        let mut topology = (*topology).clone();
        topology.sites[0].nodes = nodes.iter().copied().map(NodeId).collect();
        topology.sites[0].candidates = topology.sites[0].nodes.clone();
        topology
    };
    let table = LoadTable::new(3, 1);
    let mut learner = SiteLearner::default();
    let mut now = Timestamp::from_millis(1);
    let mut tick = |topology: &Topology| {
        now = now + Duration::from_millis(1);
        learner.on_tick(SITE, topology, &table, 64, now);
        (
            learner.arrivals,
            [1, 2].map(|node| table.terms(NodeId(node)).factor),
        )
    };
    tick(&with(&[1, 2]));
    // Node 0 works hard for another site, and slowly.
    for _ in 0..1000 {
        table.dispatch(NodeId(0), None);
        table.succeeded(NodeId(0), Duration::from_secs(1), 1.0);
        table.succeeded(NodeId(1), Duration::from_millis(10), 1.0);
        table.succeeded(NodeId(2), Duration::from_millis(20), 1.0);
    }
    let (_, before) = tick(&with(&[1, 2]));
    let (arrivals, after) = tick(&with(&[0, 1, 2]));
    assert_eq!(arrivals, 0.0, "its dispatches were not ours");
    assert_eq!(table.terms(NodeId(0)).factor, 1.0);
    for (before, after) in before.into_iter().zip(after) {
        assert!((before / after - 1.0).abs() < 0.01, "{before} then {after}");
    }
}

#[test]
fn more_unseen_arrivals_mean_fewer_draws() {
    let mut world = world(64);
    world.load(0, 4.0, 1.0);
    world.tick();
    assert_eq!(world.table.site_terms(SITE).draws, 5);
}

#[test]
fn a_node_among_neighbours_is_relieved_and_the_table_has_by_how_much() {
    let mut world = world(1);
    for _ in 0..20_000 {
        world.load(0, 1.0, 8.0);
        world.load(1, 1.0, 0.0);
        world.tick();
    }
    let [loaded, free] = world.tick();
    // Records of 2 ms where a request takes 10, as long as nothing else is known.
    let worth = (-2f32 / 20.0).exp();
    let relief = 9f32.powf(-0.4 * worth);
    assert!((loaded.factor - relief).abs() < 0.01, "{loaded:?}");
    assert_eq!(world.table.relief(NodeId(0)), loaded.factor);
    assert_eq!((free.factor, world.table.relief(NodeId(1))), (1.0, 1.0));
    // Nothing is known of it any more: it is one like others.
    world.now = world.now + Duration::from_secs(60);
    world.load(1, 1.0, 0.0);
    let [unknown, _] = world.tick();
    assert_eq!((unknown.factor, world.table.relief(NodeId(0))), (1.0, 1.0));
}

#[test]
fn a_neighbour_that_old_records_show_relieves_its_node_of_nothing() {
    let mut world = world(1);
    for _ in 0..200 {
        world.load(0, 1.0, 8.0);
        world.load(1, 1.0, 0.0);
        world.now = world.now + Duration::from_millis(99);
        world.tick();
    }
    let relief = world.table.relief(NodeId(0));
    assert!((0.95..=1.0).contains(&relief), "{relief}");
}

#[test]
fn records_are_worth_something_for_longer_where_nodes_have_less_than_a_cpu() {
    let decay = |capacity: f32| {
        let mut world = world(1);
        world.load(0, capacity, 1.0);
        world.load(1, capacity, 1.0);
        world.tick();
        world.table.site_terms(SITE).decay
    };
    let whole = decay(1.0);
    assert_eq!(decay(4.0), whole);
    assert!((whole / decay(0.1) - 10.0).abs() < 1e-3);
    let mut bare = world(1);
    bare.tick();
    assert_eq!(bare.table.site_terms(SITE).decay, whole, "none is known");
}
