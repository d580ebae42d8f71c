//! What one director has learned another goes on with, and what makes no sense is left out.

use super::*;
use crate::admission::{AdmissionConfig, AdmissionKind};
use crate::policy::{PolicyConfig, PolicyKind};
use crate::prng::Prng;
use crate::testing::cluster;
use crate::topology::{
    AdminState, AgentAnswer, AgentHealth, AgentNews, AgentWeight, BytesCheck, CheckConfig,
    CheckRequest, ClusterSpec, Health,
};

const NODES: u32 = 4;
const SITE: SiteId = SiteId(0);

fn spec() -> ClusterSpec {
    let mut spec = cluster(NODES, PolicyConfig::new(PolicyKind::Auto));
    spec.sites[0].admission = AdmissionConfig {
        kind: AdmissionKind::Adaptive,
        ..AdmissionConfig::default()
    };
    spec.sites[0].health.slow_start = Duration::from_secs(60);
    spec.sites[0].health.checks = vec![CheckConfig {
        label: "tcp".into(),
        request: CheckRequest::Tcp(BytesCheck::NOTHING),
        port: None,
        tls: false,
        interval: Duration::from_secs(2),
        timeout: Duration::from_secs(1),
        rise: 2,
        fall: 3,
    }];
    for (number, node) in (1..).zip(&mut spec.nodes) {
        node.address = ([10, 0, 0, number], 80).into();
    }
    spec
}

struct World {
    director: Director,
    table: LoadTable,
    now: Timestamp,
}

impl World {
    fn new(millis: u64) -> Self {
        Self {
            director: Director::new(spec(), 1),
            table: LoadTable::new(NODES as usize, 1),
            now: Timestamp::from_millis(millis),
        }
    }

    fn tick(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        self.director.handle_tick(&self.table, self.now);
    }

    /// Requests come and go, some nodes fail, are probed, checked and return.
    fn live(&mut self, prng: &mut Prng, millis: u32) {
        for _ in 0..millis {
            for node in (0..NODES).map(NodeId) {
                if prng.unit() < 0.4 {
                    self.table.dispatch(node, None);
                    let millis = (node.0 + 1) * 10;
                    let took = Duration::from_millis(millis.into());
                    self.table.succeeded(node, took, 1.0 + prng.unit() as f32);
                    self.table.complete(node, None);
                }
                if prng.unit() < 0.0005 {
                    (0..3).for_each(|_| self.table.unreachable(node));
                }
            }
            while let Some(node) = self.director.poll_probe(self.now) {
                let answered = prng.unit() < 0.3;
                self.director.handle_probe(node, answered, self.now);
            }
            while let Some(due) = self.director.poll_check(self.now) {
                let result = match prng.unit() < 0.6 {
                    true => crate::topology::CheckResult::Passed,
                    false => {
                        crate::topology::CheckResult::Failed(crate::topology::CheckFailure::Timeout)
                    }
                };
                self.director.handle_check(due, result, self.now);
            }
            self.tick();
        }
    }

    /// Requests come and go, and take so many times longer at the last node.
    fn learn(&mut self, millis: u32, slow: f64) {
        let mut prng = Prng::new(1);
        for _ in 0..millis {
            for node in (0..NODES).map(NodeId) {
                self.table.dispatch(node, None);
                let slow = if node.0 == NODES - 1 { slow } else { 1.0 };
                let took = Duration::from_secs_f64(0.01 * slow * (0.8 + 0.4 * prng.unit()));
                self.table.succeeded(node, took, 1.0);
                self.table.complete(node, None);
            }
            self.tick();
        }
    }

    fn learned(&self) -> LearnedCluster {
        self.director.learned(self.now)
    }

    fn recall(&mut self, learned: &LearnedCluster) -> Recalled {
        let (elapsed, now) = (Duration::ZERO, self.now);
        self.director.recall(learned, elapsed, &self.table, now)
    }
}

#[test]
fn what_one_has_learned_another_knows_and_hands_on_the_same() {
    let mut out = 0;
    for seed in 0..20 {
        let mut prng = Prng::new(seed);
        let mut before = World::new(1);
        before.live(&mut prng, 3000 + 500 * seed as u32);
        let wanted = AdminState::ALL[seed as usize % AdminState::ALL.len()].0;
        before.director.handle_override(NodeId(1), wanted);
        before.tick();
        let learned = before.learned();
        assert_eq!(learned.nodes.len(), NODES as usize);
        // Its clock is another one.
        let mut after = World::new(7_000_000);
        let recalled = after.recall(&learned);
        assert_eq!(recalled.nodes, NODES as usize);
        let mut again = after.learned();
        // The limits are known to the laws once there is something to go by.
        for (again, known) in again.nodes.iter_mut().zip(&learned.nodes) {
            again.limit = known.limit;
        }
        assert_eq!(again, learned, "seed {seed}");
        for node in (0..NODES).map(NodeId) {
            let (was, is) = (before.director.topology(), after.director.topology());
            assert_eq!(is.node(node).health, was.node(node).health);
            assert_eq!(is.node(node).fails_check(), was.node(node).fails_check());
            assert_eq!(is.node(node).admin, was.node(node).admin);
        }
        out += recalled.ejected;
    }
    assert!(out > 10, "some were out: {out}");
}

#[test]
fn a_slow_node_is_known_to_be_slow_from_the_first_tick_on() {
    let mut before = World::new(1);
    before.learn(3000, 4.0);
    let factor = |world: &World| {
        let of = |node| world.table.terms(NodeId(node)).factor;
        of(3) / of(0)
    };
    let known = factor(&before);
    assert!(known > 2.0, "{known}");
    let mut fresh = World::new(1);
    fresh.tick();
    assert_eq!(factor(&fresh), 1.0);
    let mut after = World::new(1);
    after.recall(&before.learned());
    after.tick();
    let recalled = factor(&after);
    assert!((recalled / known - 1.0).abs() < 0.05, "{recalled} {known}");
    // It gives way to what is seen.
    after.learn(20_000, 1.0);
    assert!(factor(&after) < 1.5, "{}", factor(&after));
}

#[test]
fn another_address_or_site_is_another_past() {
    let mut before = World::new(1);
    before.learn(100, 1.0);
    let mut learned = before.learned();
    learned.nodes[0].address = ([10, 9, 9, 9], 80).into();
    learned.nodes[1].site = "other".into();
    learned.nodes[1].ejected = Some(LearnedEjection {
        cause: Cause::Failures,
        age: Duration::from_secs(1),
        wait: Duration::from_secs(1),
        left: Duration::from_secs(1),
    });
    learned.nodes[2].name = "gone".into();
    learned.nodes[3].site = "other".into();
    let mut after = World::new(1);
    assert_eq!(after.recall(&learned).nodes, 2);
    let known = after.learned();
    let count = |node: &LearnedNode| node.costs.map_or(0.0, |it| it.numbers().next().unwrap());
    for place in [0, 3] {
        assert!(count(&learned.nodes[place]) > 10.0);
        assert_eq!(count(&known.nodes[place]), 0.0);
    }
    let topology = after.director.topology();
    assert_eq!(topology.node(NodeId(1)).health, Health::Ejected);
    assert_eq!(topology.node(NodeId(2)).health, Health::Up);
    assert!(!topology.site(SITE).candidates.contains(&NodeId(1)));
}

#[test]
fn hostile_numbers_are_left_out_and_waits_are_bounded() {
    let numbers = |set: &[(usize, f64)]| {
        let mut numbers = vec![1.0; 17];
        for (place, value) in set {
            numbers[*place] = *value;
        }
        LearnedCosts::of_numbers(&numbers)
    };
    assert!(numbers(&[]).is_some());
    for bad in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
        for place in (0..17).filter(|place| *place != 1) {
            assert_eq!(numbers(&[(place, bad)]), None, "{place} {bad}");
        }
    }
    // A mean that no such squares can have, and a part of errors above one.
    assert_eq!(numbers(&[(1, -40.0)]), None);
    assert_eq!(numbers(&[(4, 1.5)]), None);
    assert_eq!(LearnedCosts::of_numbers(&[1.0; 16]), None);
    let day = Duration::from_secs(24 * 3600);
    let mut learned = World::new(1).learned();
    for node in &mut learned.nodes {
        node.limit = Some(f64::NAN);
        node.ramp = Some(f64::INFINITY);
        node.check_failing = Some(Duration::MAX);
        node.trial = Some(LearnedTrial {
            wait: Duration::MAX,
            age: Duration::MAX,
        });
        node.ejected = Some(LearnedEjection {
            cause: Cause::Errors,
            age: Duration::MAX,
            wait: Duration::MAX,
            left: Duration::MAX,
        });
    }
    learned.sites[0].admission = Some(LearnedAdmission {
        alone: [f64::NAN, -1.0, 1.0],
        unloaded: Some(f64::NEG_INFINITY),
    });
    let mut after = World::new(1);
    after.now = Timestamp::from_nanos(10 * day.as_nanos() as u64);
    after.recall(&learned);
    // All are out, so all are used; and all are probed within minutes.
    assert!(after.director.topology().site(SITE).fail_open);
    after.tick();
    let later = after.now + Duration::from_secs(301);
    assert!(after.director.poll_probe(later).is_some());
    let control = after.director.controls[0].as_ref().unwrap();
    assert_eq!(control.learned(), LearnedAdmission::default());
}

#[test]
fn a_servers_limit_goes_on_from_what_it_was() {
    let mut world = World::new(1);
    let mut learned = world.learned();
    for node in &mut learned.nodes {
        node.limit = Some(17.0);
    }
    world.recall(&learned);
    world.tick();
    world.tick();
    let limits: Vec<_> = world.learned().nodes.iter().map(|it| it.limit).collect();
    for limit in limits {
        let limit = limit.unwrap();
        assert!((limit - 17.0).abs() < 1.0, "{limit}");
    }
}

#[test]
fn a_node_that_joins_within_a_minute_goes_on_from_what_was_known_of_it() {
    let mut before = World::new(1);
    before.learn(3000, 4.0);
    (0..3).for_each(|_| before.table.unreachable(NodeId(2)));
    before.tick();
    let mut learned = before.learned();
    // An operator's word needs nothing else to be known of the node.
    learned.taken_out.push(("n3".into(), AdminState::Drain));
    for (waits, is_known) in [(59, true), (61, false)] {
        let mut few = spec();
        few.nodes.truncate(2);
        let mut after = World {
            director: Director::new(few.clone(), 1),
            table: LoadTable::new(2, 1),
            now: Timestamp::from_millis(1000),
        };
        assert_eq!(after.recall(&learned).nodes, 2);
        after.now = after.now + Duration::from_secs(waits);
        after.tick();
        let change = crate::topology::ClusterChange::between(&few, &spec());
        after.director.handle_change(&change, &after.table).unwrap();
        let topology = after.director.topology();
        let ejection = topology.node(NodeId(2)).ejection;
        let cause = ejection.map(|it| it.cause);
        assert_eq!(cause == Some(Cause::Failures), is_known, "{cause:?}");
        let costs = |world: &World, node: usize| world.learned().nodes[node].costs;
        let same = after.director.sites[0].learned(NodeId(3)) == costs(&before, 3);
        assert_eq!(same, is_known);
        let is_drained = topology.node(NodeId(3)).admin == AdminState::Drain;
        assert_eq!(is_drained, is_known);
    }
}

#[test]
fn what_an_agent_has_said_stands_with_the_next_director_until_the_agent_takes_it_back() {
    let mut before = World::new(1);
    let say = |world: &mut World, node: u32, answer: AgentAnswer| {
        let news = AgentNews {
            anew: false,
            answer,
            at: world.now,
            from: Some(([10, 0, 0, 9], 9).into()),
        };
        let (director, table) = (&mut world.director, &world.table);
        director.handle_agent(NodeId(node), 0, &news, table, world.now);
        world.tick();
    };
    let health = |health| AgentAnswer {
        health: Some(health),
        ..AgentAnswer::default()
    };
    let down = AgentHealth::Down {
        word: "fail",
        reason: "disk".into(),
    };
    say(&mut before, 0, health(down));
    let drained = AgentAnswer {
        state: Some(AdminState::Drain),
        weight: Some(AgentWeight::Share(0.5)),
        most: Some(7),
        health: None,
    };
    say(&mut before, 1, drained);
    let mut after = World::new(60_000);
    after.recall(&before.learned());
    after.tick();
    let topology = after.director.topology();
    assert_eq!(topology.site(SITE).candidates, [NodeId(2), NodeId(3)]);
    assert_eq!(topology.node(NodeId(1)).effective_weight(), 0.5);
    assert_eq!(after.table.most(NodeId(1)), Some(7));
    let ejection = topology.node(NodeId(0)).ejection.unwrap();
    assert_eq!(ejection.cause, Cause::Agent);
    let out_for = after.now.since(ejection.since);
    assert!(out_for >= Duration::from_millis(1), "{out_for:?}");
    assert_eq!(
        after.learned().nodes[1].agent,
        before.learned().nodes[1].agent
    );
    say(&mut after, 0, health(AgentHealth::Up));
    let topology = after.director.topology();
    let candidates = &topology.site(SITE).candidates;
    assert_eq!(*candidates, [NodeId(0), NodeId(2), NodeId(3)]);
    // Asked no more.
    let (news, table) = (AgentNews::anew(), &after.table);
    after
        .director
        .handle_agent(NodeId(1), 0, &news, table, after.now);
    after.tick();
    let topology = after.director.topology();
    assert_eq!(topology.site(SITE).candidates.len(), 4);
    assert_eq!(topology.node(NodeId(1)).effective_weight(), 1.0);
    assert_eq!(after.table.most(NodeId(1)), None);
    assert_eq!(after.learned().nodes[1].agent, None);
}
