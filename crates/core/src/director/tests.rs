//! The director with plain values: health, orders, snapshots.

use super::*;
use crate::policy::{PolicyConfig, PolicyKind};
use crate::testing::cluster;

const NODE: NodeId = NodeId(0);
const SITE: SiteId = SiteId(0);

struct World {
    director: Director,
    table: LoadTable,
    now: Timestamp,
}

fn world(nodes: u32) -> World {
    let director = Director::new(cluster(nodes, PolicyConfig::new(PolicyKind::Auto)), 1);
    World {
        director,
        table: LoadTable::new(nodes as usize, 1),
        now: Timestamp::from_millis(1),
    }
}

impl World {
    fn tick(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
        self.director.handle_tick(&self.table, self.now);
    }

    /// So many ticks of a millisecond.
    fn ticks(&mut self, count: u32) {
        (0..count).for_each(|_| self.tick(1));
    }

    fn fail(&self, node: NodeId, times: u32) {
        for _ in 0..times {
            self.table.failed(node, false);
        }
    }

    fn candidates(&self) -> Vec<u32> {
        self.director
            .topology()
            .site(SITE)
            .candidates
            .iter()
            .map(|node| node.0)
            .collect()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.director.poll_event()).collect()
    }
}

#[test]
fn three_failures_in_a_row_eject_and_an_answered_probe_returns() {
    let mut world = world(3);
    world.fail(NODE, 2);
    world.tick(1);
    assert_eq!(world.candidates(), [0, 1, 2]);
    world.fail(NODE, 1);
    world.tick(1);
    assert_eq!(world.candidates(), [1, 2]);
    assert_eq!(
        world.director.poll_probe(world.now),
        None,
        "not before the first wait"
    );
    world.tick(250);
    assert_eq!(world.director.poll_probe(world.now), Some(NODE));
    assert_eq!(
        world.director.poll_probe(world.now),
        None,
        "one probe at a time"
    );
    world.director.handle_probe(NODE, true, world.now);
    world.tick(1);
    assert_eq!(world.candidates(), [0, 1, 2]);
    assert_eq!(
        world.events(),
        [Event::Ejected(NODE, Cause::Failures), Event::Returned(NODE)]
    );
}

#[test]
fn a_failed_probe_doubles_the_wait() {
    let mut world = world(3);
    world.fail(NODE, 3);
    world.tick(1);
    let mut waits = Vec::new();
    for _ in 0..10 {
        let mut waited = 0;
        while world.director.poll_probe(world.now).is_none() {
            world.tick(1);
            waited += 1;
        }
        waits.push(waited);
        world.director.handle_probe(NODE, false, world.now);
    }
    assert!(waits[5] > 3 * waits[0], "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 2000), "{waits:?}");
}

#[test]
fn a_silent_node_is_probed_while_in_use_and_ejected_if_that_is_not_answered() {
    let mut world = world(3);
    world.tick(1);
    world.table.dispatch(NODE);
    world.ticks(490);
    assert_eq!(world.director.poll_probe(world.now), None);
    world.ticks(20);
    assert_eq!(world.director.poll_probe(world.now), Some(NODE));
    world.tick(29_000);
    assert_eq!(
        world.director.poll_probe(world.now),
        None,
        "one probe at a time"
    );
    world.tick(1000);
    let again = world.director.poll_probe(world.now);
    assert_eq!(again, Some(NODE), "one whose answer is lost is sent again");
    assert_eq!(world.candidates(), [0, 1, 2], "silence is no proof");
    world.director.handle_probe(NODE, false, world.now);
    world.tick(1);
    assert_eq!(world.candidates(), [1, 2]);
    world.tick(250);
    assert_eq!(world.director.poll_probe(world.now), Some(NODE));
    world.director.handle_probe(NODE, true, world.now);
    world.tick(1);
    assert_eq!(world.candidates(), [0, 1, 2]);
    assert_eq!(
        world.events(),
        [Event::Ejected(NODE, Cause::Silence), Event::Returned(NODE)]
    );
}

#[test]
fn a_node_with_one_long_request_is_asked_ever_more_seldom() {
    let mut world = world(3);
    world.tick(1);
    world.table.dispatch(NODE);
    let mut asked = Vec::new();
    for millis in 0..20_000 {
        world.tick(1);
        if world.director.poll_probe(world.now).is_some() {
            asked.push((millis + 1) / 100);
            world.director.handle_probe(NODE, true, world.now);
        }
    }
    assert_eq!(asked, [5, 15, 35, 75, 155], "tenths of a second");
    assert_eq!(world.candidates(), [0, 1, 2]);
}

#[test]
fn an_answer_an_idle_node_and_a_probe_unsent_are_no_silence() {
    let mut world = world(3);
    world.tick(1);
    world.table.dispatch(NODE);
    world.ticks(400);
    world.table.failed(NODE, true);
    world.ticks(400);
    assert_eq!(world.director.poll_probe(world.now), None, "it answered");
    world.table.complete(NODE);
    world.ticks(5000);
    world.table.dispatch(NODE);
    world.tick(1);
    assert_eq!(world.director.poll_probe(world.now), None, "it was idle");
    world.ticks(510);
    assert_eq!(world.director.poll_probe(world.now), Some(NODE));
    world.director.handle_unsent_probe(NODE, world.now);
    world.tick(1);
    assert_eq!(world.candidates(), [0, 1, 2], "nobody asked");
    world.ticks(510);
    assert_eq!(world.director.poll_probe(world.now), Some(NODE));
    world.table.failed(NODE, true);
    world.tick(1);
    world.director.handle_probe(NODE, false, world.now);
    world.tick(1);
    assert_eq!(world.candidates(), [0, 1, 2], "it answered meanwhile");
}

#[test]
fn a_server_error_is_an_answer() {
    let mut world = world(3);
    world.fail(NODE, 2);
    world.table.failed(NODE, true);
    world.fail(NODE, 2);
    world.tick(1);
    assert_eq!(world.candidates(), [0, 1, 2]);
}

#[test]
fn a_returned_node_is_judged_by_what_comes_after() {
    let mut world = world(3);
    world.fail(NODE, 5);
    world.tick(300);
    world.tick(300);
    assert_eq!(world.director.poll_probe(world.now), Some(NODE));
    world.director.handle_probe(NODE, true, world.now);
    world.tick(1);
    assert_eq!(world.candidates(), [0, 1, 2], "the old streak is forgiven");
    world.fail(NODE, 3);
    world.tick(1);
    assert_eq!(world.candidates(), [1, 2]);
}

#[test]
fn with_more_than_half_of_the_nodes_out_all_are_used() {
    let mut world = world(4);
    for node in 0..2 {
        world.fail(NodeId(node), 3);
    }
    world.tick(1);
    assert_eq!(world.candidates(), [2, 3], "half may be out");
    world.fail(NodeId(2), 3);
    world.tick(1);
    assert_eq!(world.candidates(), [0, 1, 2, 3]);
    assert!(world.director.topology().site(SITE).fail_open);
    assert!(world.events().contains(&Event::FailOpen(SITE)));
}

#[test]
fn a_single_node_is_never_left_out() {
    let mut world = world(1);
    world.fail(NODE, 10);
    world.tick(1);
    assert_eq!(world.candidates(), [0]);
}

#[test]
fn drained_and_maint_nodes_are_no_candidates_even_when_failing_open() {
    let mut world = world(3);
    world.director.handle_order(NodeId(0), AdminState::Drain);
    world.director.handle_order(NodeId(1), AdminState::Maint);
    world.fail(NodeId(2), 3);
    world.tick(1);
    assert_eq!(world.candidates(), [2]);
    world.director.handle_order(NodeId(0), AdminState::Ready);
    world.tick(1);
    assert!(world.candidates().contains(&0));
}

#[test]
fn a_snapshot_is_given_once_and_only_when_something_changed() {
    let mut world = world(2);
    assert_eq!(
        world
            .director
            .poll_topology()
            .map(|topology| topology.version),
        Some(1)
    );
    world.tick(1);
    assert_eq!(world.director.poll_topology(), None);
    world.director.handle_order(NODE, AdminState::Drain);
    world.tick(1);
    assert_eq!(
        world
            .director
            .poll_topology()
            .map(|topology| topology.version),
        Some(2)
    );
    world.director.handle_order(NODE, AdminState::Drain);
    world.tick(1);
    assert_eq!(world.director.poll_topology(), None);
}

#[test]
fn events_have_a_limit() {
    let mut world = world(1);
    for round in 0..2 * EVENTS_MAX {
        let state = if round % 2 == 0 {
            AdminState::Drain
        } else {
            AdminState::Ready
        };
        world.director.handle_order(NODE, state);
    }
    assert_eq!(world.events().len(), EVENTS_MAX);
    assert_eq!(world.director.events_dropped(), EVENTS_MAX as u64);
}
