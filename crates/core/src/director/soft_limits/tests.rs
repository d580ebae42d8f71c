//! Soft limits with plain values: one resource under ramps, steps and noise; and sites whose nodes run out.

use super::*;
use crate::policy::{PolicyConfig, PolicyKind};
use crate::prng::Prng;
use crate::testing::cluster;
use crate::topology::{AdminState, ClusterChange, Edit};

const LIMIT: f32 = 0.9;

/// One resource, read each so many milliseconds.
struct Watched {
    watch: ResourceWatch,
    spacing: u64,
    millis: u64,
}

fn watched(spacing: u64) -> Watched {
    Watched {
        watch: ResourceWatch::default(),
        spacing,
        millis: 1000,
    }
}

impl Watched {
    /// The next sample; whether it is over the limit now.
    fn next(&mut self, used: f32) -> bool {
        self.millis += self.spacing;
        let at = Timestamp::from_millis(self.millis);
        let watch = &mut self.watch;
        watch.on_sample(NodeResource::Files, LIMIT, (at, used), COUNT_AGE);
        watch.over.is_some()
    }

    /// The same share again and again; the seconds until it is over, or is not any more.
    fn until(&mut self, over: bool, used: f32) -> f64 {
        let from = self.millis;
        for _ in 0..100_000 {
            if self.next(used) == over {
                return (self.millis - from) as f64 / 1e3;
            }
        }
        panic!("nothing changes at {used}");
    }
}

#[test]
fn a_ramp_is_out_before_it_arrives_at_any_polling_interval() {
    for spacing in [10, 100, 500, 1000, 2000, 5000] {
        // From nothing to the end in eight samples, or in two seconds.
        let samples = (2000 / spacing).max(8);
        for begins in 0..10 {
            let mut node = watched(spacing);
            (0..5).for_each(|_| assert!(!node.next(0.0)));
            // The ramp begins between two samples.
            let used = |index: u64| (index as f32 + begins as f32 / 10.0) / samples as f32;
            let mut out = (0..samples).filter(|index| node.next(used(*index)));
            let out = out.next().expect("it is seen");
            assert!(used(out) < 1.0, "{spacing}, {begins}: {}", used(out));
            let crossing = node.watch.over.unwrap().crossing;
            assert_eq!(crossing.used, used(out));
            assert_eq!(crossing.full_in.is_some(), crossing.used < LIMIT);
        }
    }
}

#[test]
fn far_ahead_or_far_below_a_ramp_is_none() {
    // The end is near, but less than half of the limit is used.
    let mut steep = watched(5000);
    assert!(!steep.next(0.0) && !steep.next(0.2) && !steep.next(0.4));
    assert!(steep.next(0.6));
    // More than half is used, but the end is a minute away.
    let mut flat = watched(500);
    assert!((0..40).all(|index| !flat.next(0.5 + 0.005 * index as f32)));
}

#[test]
fn a_step_over_the_limit_counts_at_once_and_one_below_it_for_a_moment_at_most() {
    let mut node = watched(10);
    assert!(!node.next(0.2));
    assert!(node.next(0.9));
    let mut below = watched(10);
    assert!(!below.next(0.5));
    assert!((0..500).all(|_| !below.next(0.75)), "nothing is wrong");
    let mut slow = watched(5000);
    (0..3).for_each(|_| assert!(!slow.next(0.3)));
    if slow.next(0.8) {
        assert!(slow.until(false, 0.8) <= 25.0);
    }
}

#[test]
fn it_is_back_when_it_was_calm_for_a_while() {
    for (spacing, wait) in [(10, 1.0), (100, 1.0), (500, 1.0), (5000, 10.0)] {
        let mut node = watched(spacing);
        assert!(node.next(0.95));
        assert!((0..1000).all(|_| node.next(0.86)), "not below enough");
        let back = node.until(false, 0.5);
        let late = 3.0 * spacing as f64 / 1e3;
        assert!(
            (wait..=wait + late).contains(&back),
            "{spacing} ms: after {back}"
        );
    }
}

#[test]
fn it_is_not_back_while_it_rises_to_the_limit_again() {
    let mut node = watched(1000);
    assert!(node.next(0.95));
    assert!([0.5, 0.6, 0.7, 0.8].into_iter().all(|used| node.next(used)));
    assert!((0..5).any(|_| !node.next(0.8)), "it rises no more");
}

#[test]
fn noise_at_the_limit_does_not_make_it_come_and_go() {
    for (spacing, seed) in [(10, 1), (10, 2), (100, 3), (500, 4), (5000, 5)] {
        let mut node = watched(spacing);
        let mut prng = Prng::new(seed);
        let seconds = 600;
        let (mut turns, mut was) = (0, false);
        for _ in 0..seconds * 1000 / spacing {
            let is = node.next(LIMIT + 0.04 * (2.0 * prng.unit() as f32 - 1.0));
            turns += u32::from(is != was);
            was = is;
        }
        assert_eq!(turns, 1, "{spacing} ms");
        // With more noise than the hysteresis it waits longer and longer.
        let mut turns = 0;
        for _ in 0..seconds * 1000 / spacing {
            let is = node.next(LIMIT + 0.2 * (2.0 * prng.unit() as f32 - 1.0));
            turns += u32::from(is != was);
            was = is;
        }
        assert!(turns < 30, "{spacing} ms: {turns} in ten minutes");
    }
}

#[test]
fn out_again_soon_after_it_came_back_it_waits_twice_as_long() {
    let mut node = watched(10);
    let mut waits = Vec::new();
    for _ in 0..9 {
        assert!(node.next(0.95));
        waits.push(node.until(false, 0.5).round());
    }
    assert_eq!(waits, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]);
    (0..6001).for_each(|_| assert!(!node.next(0.5)));
    assert!(node.next(0.95));
    assert_eq!(
        node.until(false, 0.5).round(),
        1.0,
        "it was in for a minute"
    );
}

#[test]
fn after_a_minute_of_silence_nothing_is_known() {
    let mut node = watched(1000);
    assert!(node.next(0.95));
    let last = Timestamp::from_millis(node.millis);
    node.watch.on_silence(last + KNOWN_FOR);
    assert!(node.watch.over.is_some());
    node.watch
        .on_silence(last + KNOWN_FOR + Duration::from_millis(1));
    assert!(node.watch.over.is_none());
}

fn usable(severities: &[Option<f32>]) -> Vec<Usable> {
    let nodes = severities.iter().enumerate();
    let nodes = nodes.map(|(index, severity)| Usable {
        node: NodeId(index as u32),
        severity: *severity,
        out: false,
    });
    nodes.collect()
}

#[test]
fn at_most_half_of_a_site_is_out_and_the_worst_of_it() {
    let places = |usable: &[Usable], ready| -> Vec<u32> {
        let outs = outs(usable, ready).into_iter();
        outs.map(|node| node.0).collect()
    };
    let all = |count| vec![Some(1.0); count];
    for (nodes, most) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)] {
        assert_eq!(outs(&usable(&all(nodes)), nodes).len(), most, "{nodes}");
    }
    let some = usable(&[Some(1.0), None, Some(1.1), Some(1.05), None]);
    assert_eq!(places(&some, 5), [2, 3]);
    // Others are out already: one less, or none.
    assert_eq!(places(&some, 6), [2, 3]);
    assert_eq!(places(&some, 7), [2]);
    assert_eq!(places(&some, 9), [0; 0]);
    assert_eq!(outs(&[], 3), []);
    let mut places_change = usable(&[Some(1.0), Some(1.04)]);
    places_change[0].out = true;
    assert_eq!(places(&places_change, 2), [0], "a little worse is no worse");
    places_change[1].severity = Some(1.06);
    assert_eq!(places(&places_change, 2), [1]);
}

struct World {
    director: Director,
    table: LoadTable,
    now: Timestamp,
}

fn world(nodes: u32) -> World {
    let spec = cluster(nodes, PolicyConfig::new(PolicyKind::RoundRobin));
    World {
        director: Director::new(spec, 1),
        table: LoadTable::new(nodes as usize, 1),
        now: Timestamp::from_millis(1000),
    }
}

impl World {
    /// A new record of each node, with so much of the descriptors used; and a look.
    fn records(&mut self, files: &[f32]) {
        self.now = self.now + Duration::from_millis(20);
        for (node, files) in files.iter().enumerate() {
            let load = NodeLoad {
                observed_at: self.now - Duration::from_millis(1),
                files: *files,
                memory: 0.99,
                utilization: 1.0,
                interval: Duration::from_millis(1),
                ..NodeLoad::UNKNOWN
            };
            self.table.store(NodeId(node as u32), &load);
        }
        self.director.handle_tick(&self.table, self.now);
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.director.handle_tick(&self.table, self.now);
    }

    fn candidates(&self) -> Vec<u32> {
        let topology = self.director.topology();
        let candidates = topology.site(SiteId(0)).candidates.iter();
        candidates.map(|node| node.0).collect()
    }

    /// Those of soft limits.
    fn events(&mut self) -> Vec<String> {
        let events = std::iter::from_fn(|| self.director.poll_event());
        let name = |event| {
            if let Event::SoftLimitCrossed(node, _) = event {
                Some(format!("{} out", node.0))
            } else if let Event::SoftLimitIgnored(node, _) = event {
                Some(format!("{} used", node.0))
            } else if let Event::SoftLimitCleared(node) = event {
                Some(format!("{} clear", node.0))
            } else {
                None
            }
        };
        events.filter_map(name).collect()
    }

    fn set_limits(&mut self, soft_limits: SoftLimits) {
        let mut spec = self.director.known[0].spec.clone();
        spec.health.soft_limits = soft_limits;
        let change = ClusterChange {
            edits: vec![Edit::ChangeSite(spec)],
        };
        self.director.handle_change(&change, &self.table).unwrap();
    }
}

#[test]
fn a_node_whose_descriptors_run_out_is_no_candidate_until_it_has_some_again() {
    let mut world = world(3);
    world.records(&[0.1, 0.2, 0.3]);
    assert_eq!(world.candidates(), [0, 1, 2]);
    world.records(&[0.1, 0.95, 0.3]);
    assert_eq!(world.candidates(), [0, 2]);
    let topology = world.director.topology();
    let node = topology.node(NodeId(1));
    let crossing = node.soft_limit.unwrap();
    assert_eq!(
        (crossing.resource, crossing.used),
        (NodeResource::Files, 0.95)
    );
    let ejection = node.ejection.unwrap();
    assert_eq!(
        (ejection.cause, ejection.since),
        (Cause::SoftLimit, world.now)
    );
    assert_eq!(node.ejections, 1);
    assert!(!node.is_unresponsive(), "its requests stay where they are");
    for _ in 0..40 {
        world.records(&[0.1, 0.3, 0.3]);
        assert_eq!(world.candidates(), [0, 2]);
    }
    for _ in 0..40 {
        world.records(&[0.1, 0.3, 0.3]);
    }
    assert_eq!(world.candidates(), [0, 1, 2]);
    assert_eq!(world.director.topology().node(NodeId(1)).soft_limit, None);
    assert_eq!(world.events(), ["1 out", "1 clear"]);
    assert_eq!(world.director.poll_probe(world.now), None);
}

#[test]
fn memory_and_cpu_have_no_limit_unless_it_is_set() {
    let mut world = world(3);
    world.records(&[0.1; 3]);
    assert_eq!(world.candidates(), [0, 1, 2]);
    world.set_limits(SoftLimits {
        memory: Some(0.95),
        ..SoftLimits::NONE
    });
    world.records(&[0.99; 3]);
    assert_eq!(world.candidates().len(), 2);
    let topology = world.director.topology();
    let crossings = topology.members().map(|(_, node)| node.soft_limit.unwrap());
    assert!(
        crossings
            .into_iter()
            .all(|it| it.resource == NodeResource::Memory)
    );
    world.set_limits(SoftLimits::NONE);
    world.records(&[0.99; 3]);
    assert_eq!(world.candidates(), [0, 1, 2], "the limit is gone");
}

#[test]
fn a_limit_that_was_withdrawn_keeps_nothing_out() {
    let mut world = world(4);
    world.set_limits(SoftLimits {
        files: Some(0.1),
        ..SoftLimits::NONE
    });
    world.records(&[0.2, 0.3, 0.19, 0.18]);
    assert_eq!(world.candidates(), [2, 3], "the others are over it, too");
    world.events();
    world.set_limits(SoftLimits::default());
    world.wait(LOOK_EVERY);
    assert_eq!(world.candidates(), [0, 1, 2, 3]);
    for _ in 0..20 {
        world.records(&[0.2, 0.3, 0.19, 0.18]);
    }
    assert_eq!(world.candidates(), [0, 1, 2, 3]);
    let events = world.events();
    assert!(events.iter().all(|it| it.ends_with("clear")), "{events:?}");
    assert!(
        world
            .director
            .topology()
            .nodes
            .iter()
            .all(|it| it.soft_limit.is_none())
    );
}

#[test]
fn too_many_are_over_so_the_worst_are_out_and_they_change_places() {
    let mut world = world(4);
    world.records(&[0.91, 0.97, 0.95, 0.1]);
    assert_eq!(world.candidates(), [0, 3]);
    world.records(&[0.93, 0.96, 0.94, 0.92]);
    assert_eq!(world.candidates(), [0, 3]);
    world.records(&[1.0, 0.96, 0.91, 0.92]);
    assert_eq!(world.candidates(), [2, 3]);
    assert_eq!(
        world.events(),
        ["0 used", "1 out", "2 out", "3 used", "0 out", "2 used"]
    );
}

#[test]
fn others_that_are_out_bring_nodes_back_that_are_over_a_limit() {
    let mut world = world(4);
    world.records(&[0.95, 0.99, 0.1, 0.1]);
    assert_eq!(world.candidates(), [2, 3]);
    for _ in 0..3 {
        world.table.unreachable(NodeId(2));
    }
    world.wait(Duration::from_millis(1));
    assert_eq!(world.candidates(), [0, 3]);
    for _ in 0..3 {
        world.table.unreachable(NodeId(3));
    }
    world.wait(Duration::from_millis(1));
    assert_eq!(world.candidates(), [0, 1]);
    let topology = world.director.topology();
    assert!(!topology.site(SiteId(0)).fail_open);
    assert!(topology.node(NodeId(0)).soft_limit.is_some());
}

#[test]
fn an_ejected_or_drained_node_is_judged_when_it_could_serve() {
    let mut world = world(3);
    world.director.handle_override(NodeId(0), AdminState::Drain);
    (0..3).for_each(|_| world.table.unreachable(NodeId(1)));
    world.wait(Duration::from_millis(1));
    world.events();
    world.records(&[0.95, 0.95, 0.1]);
    assert_eq!(world.candidates(), [2]);
    assert_eq!(world.events(), [""; 0], "nothing is new");
    world.director.handle_override(NodeId(0), AdminState::Ready);
    world.wait(Duration::from_millis(1));
    assert_eq!(world.candidates(), [0, 2], "one of three is out already");
    world.director.handle_probe(NodeId(1), true, world.now);
    world.wait(Duration::from_millis(1));
    assert_eq!(world.candidates().len(), 2);
    assert!(world.candidates().contains(&2));
}

#[test]
fn records_that_are_old_or_know_no_capacity_change_nothing() {
    let mut world = world(3);
    world.records(&[f32::NAN, 0.1, 0.1]);
    assert_eq!(world.candidates(), [0, 1, 2]);
    let load = NodeLoad {
        observed_at: world.now + Duration::from_millis(1),
        files: 1.0,
        ..NodeLoad::UNKNOWN
    };
    world.table.store(NodeId(0), &load);
    world.wait(Duration::from_secs(1));
    assert_eq!(world.candidates(), [0, 1, 2], "it was old when it was seen");
    world.records(&[0.95, 0.1, 0.1]);
    assert_eq!(world.candidates(), [1, 2]);
    world.wait(Duration::from_secs(59));
    assert_eq!(world.candidates(), [1, 2], "silence is no room");
    world.wait(Duration::from_secs(2));
    assert_eq!(world.candidates(), [0, 1, 2], "nothing is known any more");
}

#[test]
fn what_was_true_a_while_ago_takes_no_other_node_out() {
    let mut world = world(3);
    world.records(&[0.99, 0.95, 0.95]);
    assert_eq!(world.candidates(), [1, 2], "one of three may be out");
    world.wait(Duration::from_secs(2));
    world.records(&[f32::NAN, 0.95, 0.95]);
    assert_eq!(world.candidates(), [1, 2]);
    world.wait(Duration::from_millis(58_500));
    assert_eq!(world.candidates(), [0, 1, 2], "it is in after a minute");
    world.records(&[f32::NAN, 0.95, 0.97]);
    assert_eq!(world.candidates(), [0, 1], "a new record counts");
}
