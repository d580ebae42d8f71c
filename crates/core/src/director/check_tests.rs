//! The director with sites that check their nodes and start them slowly.

use std::time::Duration;

use super::*;
use crate::policy::{PolicyConfig, PolicyKind};
use crate::testing::cluster;
use crate::topology::{BytesCheck, Capacity, CheckRequest, ClusterChange, HealthConfig, NodeSpec};

const SITE: SiteId = SiteId(0);
const FAILED: CheckResult = CheckResult::Failed(CheckFailure::Status(503));

struct World {
    spec: ClusterSpec,
    director: Director,
    table: LoadTable,
    now: Timestamp,
}

fn check() -> CheckConfig {
    CheckConfig {
        label: "tcp".into(),
        request: CheckRequest::Tcp(BytesCheck::NOTHING),
        port: None,
        tls: false,
        interval: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        rise: 2,
        fall: 3,
    }
}

fn world(nodes: u32, health: HealthConfig) -> World {
    let mut spec = cluster(nodes, PolicyConfig::new(PolicyKind::Auto));
    spec.sites[0].health = health;
    World {
        director: Director::new(spec.clone(), 1),
        spec,
        table: LoadTable::new(nodes as usize, 1),
        now: Timestamp::from_millis(1000),
    }
}

fn checked(nodes: u32) -> World {
    world(
        nodes,
        HealthConfig {
            checks: vec![check()],
            ..HealthConfig::default()
        },
    )
}

fn slow(nodes: u32) -> World {
    world(
        nodes,
        HealthConfig {
            slow_start: Duration::from_secs(10),
            ..HealthConfig::default()
        },
    )
}

impl World {
    fn ticks(&mut self, count: u32) {
        for _ in 0..count {
            self.now = self.now + Duration::from_millis(1);
            self.director.handle_tick(&self.table, self.now);
        }
    }

    /// Time passes, and checks end so by node.
    fn run(&mut self, millis: u32, result: impl Fn(NodeId) -> CheckResult) {
        self.run_each(millis, |due| result(due.node));
    }

    /// The same by check.
    fn run_each(&mut self, millis: u32, mut result: impl FnMut(CheckDue) -> CheckResult) {
        for _ in 0..millis {
            self.ticks(1);
            while let Some(due) = self.director.poll_check(self.now) {
                self.director.handle_check(due, result(due), self.now);
            }
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut ClusterSpec)) {
        let before = self.spec.clone();
        change(&mut self.spec);
        let change = ClusterChange::between(&before, &self.spec);
        self.director.handle_change(&change, &self.table).unwrap();
    }

    fn join(&mut self, name: &str) {
        self.change(|spec| {
            spec.nodes.push(NodeSpec {
                name: name.into(),
                address: ([127, 0, 0, 1], 8000).into(),
                site: SITE,
                weight: 1.0,
                capacity: Capacity::default(),
            });
        });
    }

    fn candidates(&self) -> Vec<u32> {
        let topology = self.director.topology();
        let candidates = &topology.site(SITE).candidates;
        candidates.iter().map(|node| node.0).collect()
    }

    fn ramping(&self) -> Vec<u32> {
        let topology = self.director.topology();
        let ramping = &topology.site(SITE).ramping;
        ramping.iter().map(|node| node.0).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.director.poll_event()).collect()
    }
}

fn all_pass(_: NodeId) -> CheckResult {
    CheckResult::Passed
}

fn fails(node: u32) -> impl Fn(NodeId) -> CheckResult {
    move |it| match it.0 == node {
        true => FAILED,
        false => CheckResult::Passed,
    }
}

#[test]
fn a_node_whose_check_fails_is_out_until_it_passes() {
    let mut world = checked(3);
    world.run(1500, all_pass);
    world.run(1500, fails(1));
    assert_eq!(world.candidates(), [0, 1, 2], "not after so few");
    world.run(2000, fails(1));
    assert_eq!(world.candidates(), [0, 2]);
    let node = NodeId(1);
    let ejection = world.director.topology().node(node).ejection.unwrap();
    assert_eq!(ejection.cause, Cause::Check);
    assert!(!world.director.topology().node(node).is_unresponsive());
    world.run(3000, all_pass);
    assert_eq!(world.candidates(), [0, 1, 2]);
    let failed = Event::CheckFailed(node, CheckId(0), CheckFailure::Status(503));
    assert_eq!(
        world.events(),
        [failed, Event::CheckPassed(node, CheckId(0))]
    );
}

/// A node of which these checks fail.
fn fails_of(node: u32, failing: &'static [u8]) -> impl Fn(CheckDue) -> CheckResult {
    move |due| match due.node.0 == node && failing.contains(&due.check.0) {
        true => FAILED,
        false => CheckResult::Passed,
    }
}

#[test]
fn a_node_is_out_while_any_of_its_checks_fails() {
    let slow = CheckConfig {
        label: "slow".into(),
        interval: Duration::from_secs(5),
        ..check()
    };
    let mut world = world(
        2,
        HealthConfig {
            checks: vec![check(), slow],
            ..HealthConfig::default()
        },
    );
    let mut made = [0; 2];
    world.run_each(20_000, |due| {
        made[due.check.index()] += u32::from(due.node.0 == 0);
        CheckResult::Passed
    });
    assert!((20..=23).contains(&made[0]) && (3..=5).contains(&made[1]));
    let node = |world: &World| world.director.topology().node(NodeId(1)).clone();
    world.run_each(20_000, fails_of(1, &[1]));
    assert_eq!(world.candidates(), [0]);
    let failing = node(&world).failing_checks;
    assert!(failing.has(CheckId(1)) && !failing.has(CheckId(0)));
    world.run_each(5000, fails_of(1, &[0, 1]));
    assert!(node(&world).failing_checks.has(CheckId(0)));
    let ejections = (node(&world).ejections, world.director.ejections());
    assert_eq!(ejections, (1, 1), "it was out already");
    world.run_each(20_000, fails_of(1, &[0]));
    assert_eq!(world.candidates(), [0], "the other one passes");
    world.run_each(4000, fails_of(1, &[]));
    assert_eq!(world.candidates(), [0, 1]);
    // One that joins passes all of them before it has requests.
    world.join("n2");
    world.run_each(100, fails_of(2, &[1]));
    assert_eq!(world.candidates(), [0, 1]);
    world.run_each(20_000, fails_of(2, &[]));
    assert_eq!(world.candidates(), [0, 1, 2]);
}

#[test]
fn where_all_checks_fail_the_site_fails_open() {
    let mut world = checked(2);
    world.run(5000, |_| FAILED);
    assert_eq!(world.candidates(), [0, 1]);
    assert!(world.director.topology().site(SITE).fail_open);
    assert!(world.events().contains(&Event::FailOpen(SITE)));
    // One that can be reached and fails its check goes before one that cannot.
    for _ in 0..3 {
        world.table.unreachable(NodeId(0));
    }
    world.run(10, |_| FAILED);
    assert_eq!(world.candidates(), [1]);
    world.run(3000, fails(0));
    assert_eq!(world.candidates(), [1]);
    assert!(!world.director.topology().site(SITE).fail_open);
}

#[test]
fn a_passed_check_does_not_bring_back_what_requests_cannot_reach() {
    let mut world = checked(3);
    world.run(2000, all_pass);
    for _ in 0..3 {
        world.table.unreachable(NodeId(0));
    }
    world.ticks(2);
    // Probes fail, so they are seldom sent; checks pass.
    for _ in 0..20_000 {
        world.run(1, all_pass);
        while let Some(node) = world.director.poll_probe(world.now) {
            world.director.handle_probe(node, false, world.now);
        }
    }
    assert_eq!(world.candidates(), [1, 2]);
    // A passed check has it probed at once, and the answer brings it back.
    let probed = (0..1100).find_map(|_| {
        world.run(1, all_pass);
        world.director.poll_probe(world.now)
    });
    assert_eq!(probed, Some(NodeId(0)));
    world.director.handle_probe(NodeId(0), true, world.now);
    world.ticks(2);
    assert_eq!(world.candidates(), [0, 1, 2]);
}

#[test]
fn a_node_that_answers_probes_stays_out_while_its_check_fails() {
    let mut world = checked(3);
    world.run(2000, all_pass);
    world.run(4000, fails(0));
    for _ in 0..3 {
        world.table.unreachable(NodeId(0));
    }
    world.ticks(2);
    world.director.handle_probe(NodeId(0), true, world.now);
    world.ticks(2);
    assert_eq!(world.candidates(), [1, 2]);
    world.run(3000, all_pass);
    assert_eq!(world.candidates(), [0, 1, 2]);
}

#[test]
fn a_node_that_joins_is_checked_before_it_has_requests() {
    let mut world = checked(2);
    world.run(2000, all_pass);
    world.join("n2");
    assert_eq!(world.candidates(), [0, 1]);
    assert_eq!(world.events(), [], "nothing is wrong with it yet");
    world.run(3, all_pass);
    assert_eq!(world.candidates(), [0, 1, 2]);
    world.join("n3");
    world.run(3000, fails(3));
    assert_eq!(world.candidates(), [0, 1, 2]);
    // At a site without others it has them at once.
    let mut alone = checked(0);
    alone.ticks(5);
    alone.join("n0");
    assert_eq!(alone.candidates(), [0]);
    assert!(!alone.director.topology().site(SITE).fail_open);
}

#[test]
fn what_checks_have_shown_is_kept_while_they_stay_the_same() {
    let mut world = checked(3);
    world.run(2000, all_pass);
    world.run(4000, fails(1));
    assert_eq!(world.candidates(), [0, 2]);
    world.change(|spec| spec.sites[0].hosts = vec!["b.example".into()]);
    world.ticks(2);
    assert_eq!(world.candidates(), [0, 2]);
    // A first result under new settings is enough.
    world.change(|spec| {
        let wanted = CheckConfig { rise: 5, ..check() };
        spec.sites[0].health.checks = vec![wanted];
    });
    world.ticks(2);
    assert_eq!(world.candidates(), [0, 2]);
    world.run(1100, all_pass);
    assert_eq!(world.candidates(), [0, 1, 2]);
    world.run(4000, fails(1));
    world.change(|spec| spec.sites[0].health.checks.clear());
    world.ticks(2);
    assert_eq!(world.candidates(), [0, 1, 2], "nothing checks it");
    assert_eq!(world.director.poll_check(world.now), None);
}

#[test]
fn an_answer_of_the_node_before_is_not_taken_for_the_new_ones() {
    let mut world = checked(3);
    world.run(2000, all_pass);
    let mut dues = Vec::new();
    while dues.len() < 3 {
        world.ticks(1);
        dues.extend(world.director.poll_check(world.now));
    }
    let old = dues.iter().find(|due| due.node == NodeId(2)).unwrap();
    world.change(|spec| spec.nodes[2].address = ([127, 0, 0, 1], 9000).into());
    let new = world.director.poll_check(world.now).unwrap();
    assert_eq!(new.node, NodeId(2), "it is asked at once");
    world
        .director
        .handle_check(*old, CheckResult::Passed, world.now);
    world.ticks(1);
    assert_eq!(world.candidates(), [0, 1]);
    world
        .director
        .handle_check(new, CheckResult::Passed, world.now);
    world.ticks(1);
    assert_eq!(world.candidates(), [0, 1, 2]);
}

#[test]
fn a_node_out_of_service_is_not_checked() {
    let mut world = checked(1);
    let mut is_checked = |state| {
        world.director.handle_override(NodeId(0), state);
        (0..1100).any(|_| {
            world.ticks(1);
            world.director.poll_check(world.now).is_some()
        })
    };
    assert!(!is_checked(AdminState::Maint));
    assert!(is_checked(AdminState::Drain));
}

#[test]
fn whatever_brings_a_node_makes_it_start_slowly() {
    let mut world = slow(4);
    world.ticks(5);
    assert_eq!(world.ramping(), [], "all have begun together");
    world.director.handle_override(NodeId(1), AdminState::Drain);
    world.ticks(5);
    world.director.handle_override(NodeId(1), AdminState::Ready);
    world.ticks(1);
    assert_eq!(world.ramping(), [1]);
    assert!(world.events().contains(&Event::SlowStart(NodeId(1))));
    for _ in 0..3 {
        world.table.unreachable(NodeId(2));
    }
    world.ticks(2);
    world.director.handle_probe(NodeId(2), true, world.now);
    world.ticks(1);
    assert_eq!(world.ramping(), [1, 2]);
    world.join("n4");
    assert_eq!(world.ramping(), [1, 2, 4]);
    world.change(|spec| spec.nodes[0].address = ([127, 0, 0, 1], 9000).into());
    world.ticks(1);
    assert_eq!(world.ramping(), [0, 1, 2, 4]);
    world.ticks(10_100);
    assert_eq!(world.ramping(), []);
    assert!(world.events().contains(&Event::FullShare(NodeId(4))));
}

#[test]
fn where_all_nodes_are_new_none_starts_slowly() {
    let mut world = slow(0);
    world.ticks(5);
    world.join("n0");
    world.join("n1");
    world.ticks(1);
    assert_eq!(world.ramping(), []);
    assert_eq!(world.events(), []);
    world.join("n2");
    world.ticks(1);
    assert_eq!(world.ramping(), [2]);
}

#[test]
fn a_checked_node_starts_slowly_once_it_passes() {
    let mut world = world(
        3,
        HealthConfig {
            slow_start: Duration::from_secs(10),
            checks: vec![check()],
            ..HealthConfig::default()
        },
    );
    world.run(2000, all_pass);
    world.run(4000, fails(1));
    world.run(3000, all_pass);
    assert_eq!(world.candidates(), [0, 1, 2]);
    assert_eq!(world.ramping(), [1]);
}
