//! The director with plain values: health, orders, snapshots.

use std::time::Duration;

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

    /// So many connections in a row cannot be made.
    fn fail(&self, node: NodeId, times: u32) {
        for _ in 0..times {
            self.table.unreachable(node);
        }
    }

    /// Requests end at a node: so many well, and so many with an error.
    fn answer(&self, node: NodeId, well: u32, errors: u32) {
        for _ in 0..well {
            self.table.succeeded(node, Duration::from_millis(10), 1.0);
        }
        for _ in 0..errors {
            self.table.failed(node, true);
        }
    }

    /// Time passes until a probe is due; it is answered or not.
    fn probe(&mut self, answered: bool) -> NodeId {
        for _ in 0..400_000 {
            if let Some(node) = self.director.poll_probe(self.now) {
                self.director.handle_probe(node, answered, self.now);
                self.tick(1);
                return node;
            }
            self.tick(1);
        }
        panic!("no probe is due");
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
fn three_connections_in_a_row_that_fail_eject_and_an_answered_probe_returns() {
    let mut world = world(3);
    world.fail(NODE, 2);
    world.tick(1);
    assert_eq!(world.candidates(), [0, 1, 2]);
    assert_eq!(world.director.poll_probe(world.now), Some(NODE), "it asks");
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
    world.table.dispatch(NODE, None);
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
    world.table.dispatch(NODE, None);
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
    world.table.dispatch(NODE, None);
    world.ticks(400);
    world.table.failed(NODE, true);
    world.ticks(400);
    assert_eq!(world.director.poll_probe(world.now), None, "it answered");
    world.table.complete(NODE, None);
    world.ticks(5000);
    world.table.dispatch(NODE, None);
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
fn requests_that_break_ask_and_the_probe_decides() {
    let mut world = world(3);
    world.tick(1);
    // A URL that crashes its handler: the node answers everything else.
    let mut asked = 0;
    for _ in 0..5000 {
        world.table.failed(NODE, false);
        world.tick(1);
        if world.director.poll_probe(world.now).is_some() {
            world.director.handle_probe(NODE, true, world.now);
            asked += 1;
        }
    }
    assert_eq!(world.candidates(), [0, 1, 2]);
    assert_eq!(asked, 5, "once a second at most");
    world.ticks(1000);
    world.table.failed(NODE, false);
    world.tick(1);
    assert_eq!(world.probe(false), NODE);
    assert_eq!(world.candidates(), [1, 2]);
    let last = world.events().pop();
    assert_eq!(last, Some(Event::Ejected(NODE, Cause::Failures)));
}

#[test]
fn one_failure_that_nobody_repeats_is_asked_about_once() {
    let mut world = world(3);
    world.tick(1);
    world.fail(NODE, 1);
    world.tick(1);
    assert_eq!(world.probe(true), NODE);
    world.ticks(5000);
    assert_eq!(world.director.probing(), 0);
    assert_eq!(world.candidates(), [0, 1, 2]);
}

#[test]
fn a_node_that_answers_with_errors_while_the_others_do_not_is_ejected() {
    let mut world = world(4);
    world.tick(1);
    // It fails fast, so it has most of the requests.
    world.answer(NODE, 0, 30);
    for other in 1..4 {
        world.answer(NodeId(other), 2, 0);
    }
    world.ticks(1000);
    assert_eq!(world.candidates(), [0, 1, 2, 3], "not at once");
    world.ticks(200);
    assert_eq!(world.candidates(), [1, 2, 3]);
    let out = world.director.topology().node(NODE).ejection.unwrap();
    assert_eq!(out.cause, Cause::Errors);
    let waits = out.until.since(out.since).as_secs();
    assert!((5..=10).contains(&waits), "{waits}");
    assert_eq!(world.probe(true), NODE);
    assert_eq!(world.candidates(), [0, 1, 2, 3], "it begins anew");
    world.ticks(5000);
    assert_eq!(world.candidates(), [0, 1, 2, 3]);
    // The same again: it is out for longer.
    for other in 0..4 {
        world.answer(NodeId(other), 10, if other == 0 { 90 } else { 0 });
    }
    world.ticks(1200);
    let out = world.director.topology().node(NODE).ejection.unwrap();
    let waits = out.until.since(out.since).as_secs();
    assert!((10..=20).contains(&waits), "{waits}");
}

#[test]
fn errors_that_all_nodes_have_eject_none() {
    for (nodes, errors) in [(1, 100), (2, 100), (3, 60), (5, 100)] {
        let mut world = world(nodes);
        for round in 0..200 {
            for node in 0..nodes {
                // Not all at the same time.
                let failed = if (round + node) % 3 == 0 {
                    errors
                } else {
                    errors / 2
                };
                world.answer(NodeId(node), 100 - failed, failed);
            }
            world.ticks(100);
        }
        assert_eq!(
            world.candidates().len() as u32,
            nodes,
            "{nodes} nodes, {errors} %"
        );
        assert_eq!(world.events(), []);
    }
}

#[test]
fn errors_eject_half_of_the_nodes_at_most() {
    for nodes in 1..=6 {
        let mut world = world(nodes);
        for _ in 0..100 {
            for node in 0..nodes {
                // The last one is well, and the others are not.
                match node + 1 == nodes {
                    true => world.answer(NodeId(node), 10, 0),
                    false => world.answer(NodeId(node), 0, 10),
                }
            }
            world.ticks(50);
        }
        let left = world.candidates().len() as u32;
        assert!(left >= nodes.div_ceil(2), "{left} of {nodes}");
    }
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
fn while_any_node_is_up_requests_go_there() {
    let mut world = world(4);
    for node in 0..3 {
        world.fail(NodeId(node), 3);
    }
    world.tick(1);
    assert_eq!(world.candidates(), [3]);
    assert!(!world.director.topology().site(SITE).fail_open);
    world.fail(NodeId(3), 3);
    world.tick(1);
    assert_eq!(world.candidates(), [0, 1, 2, 3], "none is, so all are used");
    assert!(world.director.topology().site(SITE).fail_open);
    assert!(world.events().contains(&Event::FailOpen(SITE)));
}

#[test]
fn two_of_three_that_hang_are_out_after_a_probe_each_and_asked_for_as_long() {
    let mut world = world(3);
    world.tick(1);
    for node in 0..2 {
        world.table.dispatch(NodeId(node), None);
    }
    // The third one answers ten requests a second.
    let mut out_after = None;
    let mut asked = [0; 3];
    for millis in 0..10_000 {
        if millis % 100 == 0 {
            world.answer(NodeId(2), 1, 0);
        }
        world.tick(1);
        while let Some(node) = world.director.poll_probe(world.now) {
            asked[node.index()] += 1;
            world.director.handle_probe(node, false, world.now);
        }
        if out_after.is_none() && world.candidates() == [2] {
            out_after = Some(millis);
        }
        if out_after.is_some() {
            assert_eq!(world.candidates(), [2]);
        }
    }
    assert!(
        out_after.is_some_and(|millis| millis < 600),
        "{out_after:?}"
    );
    assert!(asked[0] > 5 && asked[1] > 5, "{asked:?}");
    assert_eq!(asked[2], 0);
}

#[test]
fn nodes_that_answer_with_errors_serve_before_those_that_do_not_answer() {
    let mut world = world(2);
    world.tick(1);
    world.answer(NodeId(0), 0, 50);
    world.answer(NodeId(1), 50, 0);
    world.ticks(1200);
    assert_eq!(world.candidates(), [1]);
    world.fail(NodeId(1), 3);
    world.tick(1);
    assert_eq!(world.candidates(), [0]);
    assert!(world.director.topology().site(SITE).fail_open);
}

#[test]
fn the_first_node_that_returns_is_not_alone_for_long() {
    let mut world = world(10);
    for node in 0..10 {
        world.fail(NodeId(node), 3);
    }
    world.tick(1);
    // All are asked in vain until their waits are long.
    (0..100).for_each(|_| {
        world.probe(false);
    });
    assert_eq!(world.candidates().len(), 10);
    let first = world.probe(true);
    assert_eq!(world.candidates(), [first.0]);
    for _ in 0..9 {
        assert_ne!(world.probe(true), first);
    }
    let before = world.now;
    assert_eq!(world.candidates().len(), 10);
    assert!(world.now.since(before) < Duration::from_millis(20));
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
    world.director.handle_override(NodeId(0), AdminState::Drain);
    world.director.handle_override(NodeId(1), AdminState::Maint);
    world.fail(NodeId(2), 3);
    world.tick(1);
    assert_eq!(world.candidates(), [2]);
    world.director.handle_override(NodeId(0), AdminState::Ready);
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
    world.director.handle_override(NODE, AdminState::Drain);
    world.tick(1);
    assert_eq!(
        world
            .director
            .poll_topology()
            .map(|topology| topology.version),
        Some(2)
    );
    world.director.handle_override(NODE, AdminState::Drain);
    world.tick(1);
    assert_eq!(world.director.poll_topology(), None);
}

#[test]
fn events_have_a_limit() {
    for (orders, dropped) in [(1024, 0), (1025, 1)] {
        let mut world = world(1);
        for round in 0..orders {
            let state = if round % 2 == 0 {
                AdminState::Drain
            } else {
                AdminState::Ready
            };
            world.director.handle_override(NODE, state);
        }
        assert_eq!(world.events().len(), 1024);
        assert_eq!(world.director.events_dropped(), dropped);
    }
}

mod members {
    use super::*;
    use crate::topology::{Capacity, ChangeError, Edit, Membership, Named, NodeWanted};

    fn wanted(name: &str, port: u16) -> NodeWanted {
        NodeWanted {
            name: name.into(),
            address: ([127, 0, 0, 1], port).into(),
            site: "site".into(),
            weight: 1.0,
            capacity: Capacity::default(),
        }
    }

    impl World {
        fn change(&mut self, edits: &[Edit]) -> Result<(), ChangeError> {
            let edits = edits.to_vec();
            let change = crate::topology::ClusterChange { edits };
            self.director.handle_change(&change, &self.table)
        }

        /// All workers take the newest topology over, and the director looks again.
        fn follow(&mut self) {
            self.director
                .handle_followed(self.director.topology().version);
            self.tick(1);
        }

        fn node(&self, name: &str) -> NodeId {
            self.director.topology().node_named(name).unwrap()
        }
    }

    #[test]
    fn a_node_is_gone_when_no_worker_knows_it_and_no_request_has_it() {
        let mut world = world(2);
        world.table.dispatch(NODE, None);
        world.change(&[Edit::RemoveNode("n0".into())]).unwrap();
        assert_eq!(world.candidates(), [1]);
        let membership = |world: &World| world.director.topology().node(NODE).membership;
        world.follow();
        assert_eq!(membership(&world), Membership::Leaving);
        world.table.complete(NODE, None);
        world.tick(1);
        assert_eq!(membership(&world), Membership::Gone);
        assert_eq!(world.events(), [Event::Left(NODE)]);
        // Another one gets its place, and nothing of what was known of it.
        world.change(&[Edit::AddNode(wanted("new", 1))]).unwrap();
        assert_eq!((world.node("new"), world.candidates()), (NODE, vec![0, 1]));
        assert_eq!(world.director.topology().node(NODE).generation, 1);
    }

    #[test]
    fn a_place_is_kept_while_a_worker_may_send_there() {
        let mut world = world(1);
        world.change(&[Edit::RemoveNode("n0".into())]).unwrap();
        world.tick(1);
        world.change(&[Edit::AddNode(wanted("new", 1))]).unwrap();
        assert_eq!(world.node("new"), NodeId(1));
        assert!(world.table.nodes() > 1);
    }

    #[test]
    fn a_node_that_comes_back_while_it_leaves_stays_what_it_was() {
        let mut world = world(2);
        world.table.dispatch(NODE, None);
        world.change(&[Edit::RemoveNode("n0".into())]).unwrap();
        world.follow();
        world.change(&[Edit::AddNode(wanted("n0", 9))]).unwrap();
        world.table.complete(NODE, None);
        world.follow();
        assert_eq!((world.node("n0"), world.candidates()), (NODE, vec![0, 1]));
        assert_eq!(world.director.topology().node(NODE).generation, 0);
        assert_eq!(world.events(), []);
    }

    #[test]
    fn an_ejected_node_with_another_address_is_up_until_that_fails() {
        let mut world = world(2);
        world.fail(NODE, 3);
        world.tick(1);
        assert_eq!(world.candidates(), [1]);
        world.change(&[Edit::ChangeNode(wanted("n0", 9))]).unwrap();
        world.tick(1);
        assert_eq!(world.candidates(), [0, 1]);
        world.fail(NODE, 3);
        world.tick(1);
        assert_eq!(world.candidates(), [1]);
    }

    #[test]
    fn a_new_node_is_not_judged_by_what_another_one_answered_from_its_place() {
        let mut world = world(3);
        world.tick(1);
        world.answer(NODE, 0, 100);
        world.change(&[Edit::RemoveNode("n0".into())]).unwrap();
        world.tick(1);
        world.follow();
        world.change(&[Edit::AddNode(wanted("new", 1))]).unwrap();
        assert_eq!(world.node("new"), NODE);
        for _ in 0..30 {
            for node in 0..3 {
                world.answer(NodeId(node), 1, 0);
            }
            world.tick(100);
        }
        assert_eq!(world.candidates(), [0, 1, 2]);
    }

    #[test]
    fn a_change_with_a_mistake_changes_nothing() {
        let mut world = world(1);
        let before = world.director.topology();
        let node = |name: &str, site: &str| NodeWanted {
            site: site.into(),
            ..wanted(name, 1)
        };
        let unknown = |what, name: &str| ChangeError::Unknown(what, name.into());
        let cases = [
            (
                Edit::AddNode(node("n0", "site")),
                ChangeError::Exists(Named::Node, "n0".into()),
            ),
            (
                Edit::AddNode(node("x", "none")),
                unknown(Named::Site, "none"),
            ),
            (
                Edit::ChangeNode(node("x", "site")),
                unknown(Named::Node, "x"),
            ),
            (Edit::RemoveNode("x".into()), unknown(Named::Node, "x")),
            (
                Edit::RemoveSite("site".into()),
                ChangeError::HasNode("site".into(), "n0".into()),
            ),
        ];
        for (edit, error) in cases {
            let good = Edit::AddNode(node("good", "site"));
            assert_eq!(world.change(&[good, edit]), Err(error));
            world.tick(1);
            assert_eq!(*world.director.topology(), *before);
        }
    }
}
