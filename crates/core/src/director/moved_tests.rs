//! The director with nodes that go from one site to another.

use std::time::Duration;

use super::*;
use crate::policy::{PolicyConfig, PolicyKind};
use crate::testing::cluster;
use crate::topology::{
    BytesCheck, Capacity, CheckRequest, ClusterChange, Edit, HealthConfig, NodeWanted, SiteSpec,
};

const NODE: NodeId = NodeId(0);
const OTHER: SiteId = SiteId(1);
const CHECK: CheckConfig = CheckConfig {
    label: String::new(),
    request: CheckRequest::Tcp(BytesCheck::NOTHING),
    port: None,
    tls: false,
    interval: Duration::from_secs(1),
    timeout: Duration::from_secs(1),
    rise: 2,
    fall: 3,
};

struct World {
    director: Director,
    table: LoadTable,
    now: Timestamp,
}

/// Two sites of three nodes each; those that move warm up for a second.
fn world(slow_start: u64, checks: &[CheckConfig]) -> World {
    let mut spec = cluster(6, PolicyConfig::new(PolicyKind::Auto));
    spec.sites.push(SiteSpec {
        name: "other".into(),
        hosts: vec!["other.example".into()],
        ..spec.sites[0].clone()
    });
    for site in &mut spec.sites {
        site.health = HealthConfig {
            slow_start: Duration::from_millis(slow_start),
            warm_up: Duration::from_secs(1),
            checks: checks.to_vec(),
            ..HealthConfig::default()
        };
    }
    for node in &mut spec.nodes[3..] {
        node.site = OTHER;
    }
    let mut world = World {
        director: Director::new(spec, 1),
        table: LoadTable::new(7, 2),
        now: Timestamp::from_millis(1000),
    };
    world.ticks(1);
    world
}

impl World {
    /// So many ticks of a millisecond.
    fn ticks(&mut self, count: u32) {
        for _ in 0..count {
            self.now = self.now + Duration::from_millis(1);
            self.director.handle_tick(&self.table, self.now);
        }
    }

    fn change(&mut self, edit: Edit) {
        let change = ClusterChange { edits: vec![edit] };
        assert_eq!(self.director.handle_change(&change, &self.table), Ok(()));
    }

    /// Node 0 as another site has it.
    fn of_other(&self) -> NodeWanted {
        let topology = self.director.topology();
        let node = topology.node(NODE);
        NodeWanted {
            name: node.name.clone(),
            address: node.address,
            site: "other".into(),
            weight: node.weight,
            capacity: Capacity::default(),
        }
    }

    fn ramping(&self) -> usize {
        self.director.topology().site(OTHER).ramping.len()
    }
}

#[test]
fn a_node_that_comes_from_another_site_warms_up_and_a_new_one_does_not() {
    for (slow_start, full_after) in [(0, 1000), (500, 1000), (2000, 2000)] {
        let mut world = world(slow_start, &[]);
        let moved = world.of_other();
        world.change(Edit::ChangeNode(moved.clone()));
        world.ticks(2);
        assert_eq!(world.ramping(), 1, "{slow_start}");
        assert!(world.table.ramp(NODE).factor < 0.2, "{slow_start}");
        world.ticks(full_after - 100);
        assert_eq!(world.ramping(), 1, "{slow_start}");
        world.ticks(200);
        assert_eq!(world.ramping(), 0, "{slow_start}");
        world.change(Edit::AddNode(NodeWanted {
            name: "new".into(),
            ..moved
        }));
        world.ticks(2);
        let slowly = usize::from(slow_start > 0);
        assert_eq!(world.ramping(), slowly, "as the site wants of new ones");
    }
}

#[test]
fn a_node_that_moves_warms_up_once_its_check_has_passed() {
    let mut world = world(0, &[CHECK]);
    world.change(Edit::ChangeNode(world.of_other()));
    world.ticks(5000);
    assert_eq!(world.ramping(), 0, "it has no requests yet");
    let now = world.now;
    let mut all = std::iter::from_fn(|| world.director.poll_check(now));
    let due = all.find(|due| due.node == NODE).unwrap();
    let passed = CheckResult::Passed;
    world.director.handle_check(due, passed, now);
    world.ticks(2);
    assert_eq!(world.ramping(), 1);
}

#[test]
fn a_withheld_node_is_no_candidate_even_when_failing_open_and_is_back_once_released() {
    let mut world = world(0, &[]);
    let candidates = |world: &World, site: SiteId| {
        let topology = world.director.topology();
        let nodes = topology.site(site).candidates.clone();
        nodes.into_iter().map(|node| node.0).collect::<Vec<_>>()
    };
    let name = world.of_other().name;
    world.change(Edit::WithholdNode(name.clone()));
    assert_eq!(candidates(&world, SiteId(0)), [1, 2]);
    for node in [1, 2] {
        for _ in 0..10 {
            world.table.unreachable(NodeId(node));
        }
    }
    world.ticks(5);
    assert!(world.director.topology().site(SiteId(0)).fail_open);
    assert_eq!(candidates(&world, SiteId(0)), [1, 2]);
    // It stays so whatever else changes.
    let weighed = NodeWanted {
        weight: 2.0,
        capacity: Capacity::default(),
        site: "site".into(),
        ..world.of_other()
    };
    world.change(Edit::ChangeNode(weighed));
    assert_eq!(candidates(&world, SiteId(0)), [1, 2]);
    world.change(Edit::ReleaseNode(name));
    assert_eq!(candidates(&world, SiteId(0)), [0], "it alone is up");
}

#[test]
fn a_withheld_node_that_is_released_at_another_site_warms_up_from_then_on() {
    let mut world = world(0, &[]);
    let moved = world.of_other();
    let name = moved.name.clone();
    world.change(Edit::WithholdNode(name.clone()));
    world.change(Edit::ChangeNode(moved));
    world.ticks(2000);
    assert_eq!(world.ramping(), 0);
    assert_eq!(world.director.topology().site(OTHER).candidates.len(), 3);
    world.change(Edit::ReleaseNode(name));
    world.ticks(2);
    assert_eq!(world.ramping(), 1);
    assert_eq!(world.director.topology().site(OTHER).candidates.len(), 4);
}
