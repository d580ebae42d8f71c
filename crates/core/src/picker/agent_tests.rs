//! The director, and pickers that follow it, with nodes whose agents say what becomes of them.

use std::sync::Arc;
use std::time::Duration;

use crate::admission::{AdmissionConfig, AdmissionKind};
use crate::director::{Director, Event};
use crate::load::LoadTable;
use crate::picker::{Arrival, Decision, Picker};
use crate::policy::{PolicyConfig, PolicyKind};
use crate::testing::cluster;
use crate::time::Timestamp;
use crate::topology::{
    AdminState, AgentAnswer, AgentHealth, AgentNews, AgentWeight, Cause, ClusterChange, Edit,
    NodeId, SiteId,
};

const SITE: SiteId = SiteId(0);

struct World {
    director: Director,
    table: Arc<LoadTable>,
    now: Timestamp,
}

fn world(nodes: u32) -> World {
    let mut spec = cluster(nodes, PolicyConfig::new(PolicyKind::WeightedRoundRobin));
    spec.sites[0].admission = AdmissionConfig::new(AdmissionKind::Off);
    World {
        director: Director::new(spec, 1),
        table: Arc::new(LoadTable::new(nodes as usize, 1)),
        now: Timestamp::from_millis(1000),
    }
}

fn news(answer: &AgentAnswer, at: Timestamp) -> AgentNews {
    AgentNews {
        answer: answer.clone(),
        at,
        ..AgentNews::default()
    }
}

impl World {
    fn say(&mut self, node: u32, answer: &AgentAnswer) {
        self.now = self.now + Duration::from_millis(1);
        let (id, table) = (NodeId(node), &self.table);
        let news = news(answer, self.now);
        self.director.handle_agent(id, 0, &news, table, self.now);
        self.director.handle_tick(&self.table, self.now);
    }

    fn candidates(&self) -> Vec<u32> {
        let topology = self.director.topology();
        let candidates = &topology.site(SITE).candidates;
        candidates.iter().map(|node| node.0).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.director.poll_event()).collect()
    }

    fn picker(&self) -> Picker {
        Picker::new(Arc::clone(&self.table), self.director.topology(), 1)
    }
}

fn health(up: bool) -> AgentAnswer {
    let down = AgentHealth::Down {
        word: "down",
        reason: "disk".into(),
    };
    AgentAnswer {
        health: Some(if up { AgentHealth::Up } else { down }),
        ..AgentAnswer::default()
    }
}

fn state(state: AdminState) -> AgentAnswer {
    AgentAnswer {
        state: Some(state),
        ..AgentAnswer::default()
    }
}

fn weight(weight: AgentWeight) -> AgentAnswer {
    AgentAnswer {
        weight: Some(weight),
        ..AgentAnswer::default()
    }
}

fn most(most: u32) -> AgentAnswer {
    AgentAnswer {
        most: Some(most),
        ..AgentAnswer::default()
    }
}

#[test]
fn a_node_is_out_while_its_agent_says_so_and_the_last_ones_are_used() {
    let mut world = world(2);
    world.say(0, &health(false));
    assert_eq!(world.candidates(), [1]);
    let ejection = world.director.topology().node(NodeId(0)).ejection;
    assert_eq!(ejection.map(|it| it.cause), Some(Cause::Agent));
    world.say(1, &health(false));
    assert_eq!(world.candidates(), [0, 1], "it fails open");
    world.say(0, &health(true));
    assert_eq!(world.candidates(), [0]);
    let (first, second) = (NodeId(0), NodeId(1));
    assert_eq!(
        world.events(),
        [
            Event::AgentDown(first),
            Event::AgentDown(second),
            Event::FailOpen(SITE),
            Event::AgentUp(first),
            Event::FailClosed(SITE),
        ]
    );
}

#[test]
fn an_operator_and_an_agent_take_back_their_own_word_alone() {
    let mut world = world(2);
    let node = NodeId(0);
    world.say(0, &state(AdminState::Drain));
    assert_eq!(world.candidates(), [1]);
    world.director.handle_override(node, AdminState::Maint);
    world.say(0, &state(AdminState::Ready));
    assert_eq!(world.candidates(), [1], "the operator's word stands");
    assert_eq!(
        world.director.topology().node(node).admin,
        AdminState::Maint
    );
    world.say(0, &state(AdminState::Maint));
    world.director.handle_override(node, AdminState::Ready);
    world.say(0, &AgentAnswer::default());
    world.director.handle_tick(&world.table, world.now);
    assert_eq!(world.candidates(), [1], "and so does the agent's");
    world.say(0, &state(AdminState::Ready));
    assert_eq!(world.candidates(), [0, 1]);
    let own = world.events().into_iter();
    let own: Vec<_> = own
        .filter(|it| matches!(it, Event::AgentState(..)))
        .collect();
    let turns = [
        AdminState::Drain,
        AdminState::Ready,
        AdminState::Maint,
        AdminState::Ready,
    ];
    assert_eq!(own, turns.map(|state| Event::AgentState(node, state)));
}

#[test]
fn shares_follow_what_agents_say_of_weights() {
    let mut world = world(3);
    world.say(0, &weight(AgentWeight::Share(0.5)));
    world.say(1, &weight(AgentWeight::Absolute(2.5)));
    let mut picker = world.picker();
    let mut counts = [0; 3];
    for _ in 0..400 {
        let decision = picker.handle_request(&Arrival::at(SITE), world.now);
        let Decision::Forward(ticket) = decision else {
            panic!("refused");
        };
        counts[ticket.node.index()] += 1;
    }
    // Of 0.5 + 2.5 + 1.
    assert!((49..=51).contains(&counts[0]), "{counts:?}");
    assert!((249..=251).contains(&counts[1]), "{counts:?}");
    world.say(1, &weight(AgentWeight::Share(0.0)));
    assert_eq!(world.candidates(), [0, 2], "nothing is no share");
    world.say(1, &weight(AgentWeight::Share(1.0)));
    assert_eq!(world.candidates(), [0, 1, 2]);
}

#[test]
fn what_great_weights_have_left_does_not_outweigh_small_ones() {
    let mut world = world(3);
    let mut picker = world.picker();
    let mut counts = |world: &World| {
        picker.handle_topology(world.director.topology());
        let mut counts = [0; 3];
        for _ in 0..60 {
            let decision = picker.handle_request(&Arrival::at(SITE), world.now);
            let Decision::Forward(ticket) = decision else {
                panic!("refused");
            };
            counts[ticket.node.index()] += 1;
        }
        counts
    };
    let say_all = |world: &mut World, said: AgentWeight| {
        (0..3).for_each(|node| world.say(node, &weight(said)));
    };
    say_all(&mut world, AgentWeight::Absolute(256.0));
    counts(&world);
    say_all(&mut world, AgentWeight::Absolute(1.0));
    for _ in 0..3 {
        let counts = counts(&world);
        assert!(counts.iter().all(|it| (19..=21).contains(it)), "{counts:?}");
    }
    say_all(&mut world, AgentWeight::Share(0.0));
    assert_eq!(world.candidates(), [0, 1, 2], "it fails open");
    let counts = counts(&world);
    assert!(counts.iter().all(|it| (19..=21).contains(it)), "{counts:?}");
}

#[test]
fn requests_beyond_what_an_agent_allows_go_elsewhere_or_wait() {
    let mut world = world(2);
    world.say(0, &most(1));
    world.say(1, &most(2));
    let mut picker = world.picker();
    let ask = |picker: &mut Picker| picker.handle_request(&Arrival::at(SITE), world.now);
    let mut tickets = Vec::new();
    for _ in 0..3 {
        let Decision::Forward(ticket) = ask(&mut picker) else {
            panic!("there is room");
        };
        tickets.push(ticket);
    }
    let at_first = tickets.iter().filter(|it| it.node == NodeId(0)).count();
    assert_eq!(at_first, 1);
    assert!(matches!(ask(&mut picker), Decision::Wait));
    assert!(picker.poll_waiting(world.now).is_none());
    tickets.clear();
    let next = picker.poll_waiting(world.now);
    assert!(matches!(next, Some((_, Decision::Forward(_)))));
    drop(next);
    world.say(0, &most(0));
    assert_eq!(world.table.most(NodeId(0)), None, "as many as come");
}

#[test]
fn what_the_agent_of_another_node_said_changes_nothing() {
    let mut world = world(2);
    let agent = news(&health(false), world.now);
    let (table, now) = (&world.table, world.now);
    for (node, generation) in [(NodeId(0), 1), (NodeId(7), 0)] {
        world
            .director
            .handle_agent(node, generation, &agent, table, now);
    }
    world.director.handle_tick(table, now);
    assert_eq!(world.candidates(), [0, 1]);
    world.say(0, &health(false));
    let name = world.director.topology().node(NodeId(0)).name.clone();
    let change = ClusterChange {
        edits: vec![Edit::RemoveNode(name)],
    };
    world.director.handle_change(&change, &world.table).unwrap();
    world.director.handle_followed(u64::MAX);
    world.director.handle_tick(&world.table, world.now);
    world.events();
    world.say(0, &health(true));
    assert_eq!(world.events(), [], "it is gone");
}
