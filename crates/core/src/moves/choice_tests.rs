//! Which node moves, on clusters of plain numbers.

use super::super::numbering::{Constitution, MovableNode, SiteRules};
use super::super::plan::SiteReading;
use super::super::words::{AssignmentState, Count24, SiteLock};
use super::*;

/// Names, floors and priorities of sites, and what they want of their CPUs; nodes by site with CPUs.
struct World {
    constitution: Constitution,
    readings: Vec<Option<SiteReading>>,
    nodes: Vec<NodeReading>,
    loads: Vec<SiteLoad>,
    keeps: Vec<KeptCpus>,
    offers: Vec<NodeOffer>,
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

const NOW: u64 = 100_000;

/// Sites as (floor, priority, demand), nodes as (site, CPUs).
fn world(sites: &[(u16, u8, f64)], nodes: &[(usize, f64)]) -> World {
    let name = |number: usize| ["a", "b", "c"][number].to_owned();
    let rules = sites.iter().enumerate();
    let rules = rules.map(|(number, (floor, priority, _))| SiteRules {
        name: name(number),
        floor: *floor,
        ceiling: 99,
        priority: *priority,
    });
    let movable = nodes
        .iter()
        .enumerate()
        .map(|(number, (home, _))| MovableNode {
            name: format!("n{number}"),
            home: name(*home),
        });
    let constitution = Constitution::new(rules.collect(), movable.collect(), true, 1).unwrap();
    let reading = SiteReading {
        lock: SiteLock::idle(Count24::FIRST),
        updates: 0,
        at: at(NOW - 1),
    };
    let word = |site: usize| NodeReading::Read {
        assignment: Assignment::first(Count24::FIRST, SiteNumber(site as u8), false),
        asked_at: at(NOW),
    };
    let cpus_of = |number: usize| {
        let of = nodes.iter().filter(|(site, _)| *site == number);
        of.map(|(_, cpus)| *cpus).sum()
    };
    World {
        constitution,
        readings: vec![Some(reading); sites.len()],
        nodes: nodes.iter().map(|(site, _)| word(*site)).collect(),
        loads: (0..sites.len())
            .map(|number| SiteLoad {
                demand: sites[number].2,
                cpus: cpus_of(number),
            })
            .collect(),
        keeps: vec![KeptCpus::default(); sites.len()],
        offers: nodes
            .iter()
            .map(|(_, cpus)| NodeOffer {
                cpus: *cpus,
                load: 0.0,
                fresh: true,
                moved_at: at(0),
                suits: u128::MAX,
                barred_until: at(0),
            })
            .collect(),
    }
}

impl World {
    fn offers(&self) -> Offers<'_> {
        Offers {
            view: MoveView::new(&self.constitution, &self.readings, &self.nodes),
            sites: &self.loads,
            keeps: &self.keeps,
            nodes: &self.offers,
            dwell: Duration::from_secs(1),
            owner: 0,
        }
    }

    fn choose(&self, choice: MoveChoice) -> Result<ChosenMove, NothingChosen> {
        let reading = self.readings[0].unwrap();
        let window = EventWindow {
            lock: reading.lock,
            updates: reading.updates,
            began_at: at(NOW - 50),
        };
        self.offers()
            .choose(&window, SiteNumber(0), choice, at(NOW))
    }

    fn node(&self) -> Option<u16> {
        let chosen = self.choose(MoveChoice::BestOff);
        chosen.ok().map(|it| it.plan.intention.node.0)
    }

    fn why(&self) -> NothingChosen {
        self.choose(MoveChoice::BestOff).unwrap_err()
    }

    fn set(&mut self, node: usize, edit: impl FnOnce(&mut Assignment)) {
        if let NodeReading::Read { assignment, .. } = &mut self.nodes[node] {
            edit(assignment);
        }
    }
}

#[test]
fn the_node_comes_from_the_site_that_can_spare_it() {
    let nodes = [(0, 2.0), (1, 2.0), (1, 2.0), (2, 2.0), (2, 2.0)];
    let it = world(&[(1, 0, 8.0), (1, 0, 3.0), (1, 0, 1.0)], &nodes);
    let chosen = it.choose(MoveChoice::BestOff).unwrap();
    assert_eq!(chosen.plan.intention.donor, SiteNumber(2));
    assert_eq!(
        (chosen.before, chosen.after, chosen.donor_after),
        (4.0, 2.0, 0.5)
    );
    assert_eq!(chosen.plan.intention.cause, MoveCause::Load);
}

#[test]
fn of_nodes_of_one_site_the_one_that_leaves_both_best_off_moves() {
    let nodes = [(0, 2.0), (1, 8.0), (1, 2.0), (1, 4.0)];
    let it = world(&[(1, 0, 12.0), (1, 0, 7.0)], &nodes);
    // 8 CPUs: 1.2 and 1.17; 2 CPUs: 3 and 0.58; 4 CPUs: 2 and 0.7.
    assert_eq!(it.node(), Some(1));
}

#[test]
fn a_move_that_gains_little_is_not_made() {
    let it = world(&[(1, 0, 4.0), (1, 0, 4.0)], &[(0, 2.0), (1, 2.0), (1, 2.0)]);
    // From 2 to 1 and 2: the other one would be as badly off.
    assert_eq!(it.node(), None);
    assert_eq!(it.why().no_gain, 2);
    let it = world(&[(1, 0, 4.0), (1, 0, 3.0)], &[(0, 2.0), (1, 2.0), (1, 2.0)]);
    assert_eq!(it.node(), Some(1));
    let chosen = it.choose(MoveChoice::BestOff).unwrap();
    assert_eq!(chosen.donor_after, 1.5);
}

#[test]
fn a_donor_that_is_idle_at_the_moment_keeps_what_it_usually_uses() {
    let nodes = [(0, 2.0), (1, 2.0), (1, 2.0)];
    let mut it = world(&[(1, 0, 6.0), (1, 0, 0.0)], &nodes);
    assert_eq!(it.node(), Some(1));
    // Of the two CPUs that it is left with 1.2 make queues of 1.5, and 1.6 of 4.
    it.keeps[1].own = 1.2;
    assert_eq!(
        it.choose(MoveChoice::BestOff).unwrap().donor_after,
        1.2 / 0.8
    );
    it.keeps[1].own = 1.6;
    assert_eq!(it.why().no_gain, 2);
    it.keeps[1].own = 2.0;
    it.loads[0].demand = 1e9;
    assert_eq!(it.node(), None, "it would be overloaded for ever");
    assert_eq!(
        it.choose(MoveChoice::LeastLoaded).unwrap().donor_after,
        f64::INFINITY
    );
}

#[test]
fn a_lent_node_goes_home_although_its_borrower_has_used_it_until_a_moment_ago() {
    // Two nodes of b, the second of which is a's.
    let nodes = [(0, 2.0), (1, 2.0), (0, 2.0)];
    let mut it = world(&[(1, 0, 6.0), (1, 0, 0.5)], &nodes);
    it.set(2, |word| (word.site, word.lent) = (SiteNumber(1), true));
    for load in &mut it.loads {
        load.cpus = 4.0;
    }
    it.loads[0].cpus = 2.0;
    it.keeps[1] = KeptCpus {
        own: 3.5,
        lent: 0.5,
    };
    assert_eq!(it.node(), Some(2));
    it.keeps[1].lent = 3.5;
    assert_eq!(it.node(), None, "it uses it now");
}

#[test]
fn a_site_of_many_nodes_gets_one_more() {
    let nodes = [[(0, 2.0); 50], [(1, 2.0); 50]].concat();
    // From 2 to 1.96: little, and as much as one node can do.
    let it = world(&[(1, 0, 200.0), (1, 0, 20.0)], &nodes);
    let chosen = it.choose(MoveChoice::BestOff).unwrap();
    assert!(chosen.after > 1.9 && chosen.after < chosen.before);
    let it = world(&[(1, 0, 200.0), (1, 0, 160.0)], &nodes);
    assert_eq!(it.why().no_gain, 50, "they would soon be wanted back");
}

#[test]
fn a_site_without_a_node_takes_none_that_leaves_the_other_without() {
    let it = world(&[(0, 0, 8.0), (0, 0, 8.0)], &[(1, 2.0)]);
    assert_eq!(it.node(), None);
}

#[test]
fn the_papers_choice_is_the_idlest_node_whatever_comes_of_it() {
    let mut it = world(&[(1, 0, 4.0), (1, 0, 4.0)], &[(0, 2.0), (1, 2.0), (1, 2.0)]);
    it.offers[1].load = 3.0;
    it.offers[2].load = 1.0;
    let chosen = it.choose(MoveChoice::LeastLoaded).unwrap();
    assert_eq!(chosen.plan.intention.node, NodeNumber(2));
}

#[test]
fn a_site_of_a_higher_priority_gives_nothing_and_one_of_a_lower_bears_more() {
    let nodes = [(0, 2.0), (1, 2.0), (1, 2.0)];
    let higher = world(&[(1, 1, 8.0), (1, 0, 0.0)], &nodes);
    assert_eq!(higher.node(), None);
    assert_eq!(higher.why().priority, 2);
    assert_eq!(world(&[(1, 0, 4.0), (1, 0, 4.0)], &nodes).node(), None);
    assert_eq!(world(&[(1, 0, 4.0), (1, 1, 4.0)], &nodes).node(), Some(1));
}

#[test]
fn a_lent_node_goes_home_although_the_borrower_is_one_step_higher() {
    let nodes = [(0, 2.0), (0, 2.0), (1, 2.0)];
    let mut it = world(&[(1, 1, 8.0), (1, 0, 0.0)], &nodes);
    it.loads[0].cpus = 2.0;
    it.set(1, |node| {
        node.site = SiteNumber(1);
        node.lent = true;
    });
    let chosen = it.choose(MoveChoice::BestOff).unwrap();
    assert_eq!(chosen.plan.intention.node, NodeNumber(1));
    assert_eq!(chosen.plan.intention.cause, MoveCause::HomeComing);
    let mut two = world(&[(1, 2, 8.0), (1, 0, 0.0)], &nodes);
    two.set(1, |node| {
        node.site = SiteNumber(1);
        node.lent = true;
    });
    assert_eq!(two.node(), None, "two steps are too many");
}

#[test]
fn nodes_that_rest_do_not_suit_or_are_not_seen_stay() {
    let nodes = [(0, 2.0), (1, 2.0), (1, 2.0)];
    let fresh = || world(&[(1, 0, 8.0), (1, 0, 0.0)], &nodes);
    let after = |edit: &dyn Fn(&mut NodeOffer)| {
        let mut it = fresh();
        it.offers.iter_mut().for_each(edit);
        assert_eq!(it.node(), None);
        it.why()
    };
    assert_eq!(after(&|it| it.moved_at = at(NOW - 999)).resting, 2);
    assert_eq!(after(&|it| it.barred_until = at(NOW + 1)).resting, 2);
    assert_eq!(after(&|it| it.fresh = false).resting, 2);
    assert_eq!(after(&|it| it.suits = 0b10).unsuited, 2);
    let mut it = fresh();
    it.offers[1].moved_at = at(NOW - 999);
    assert_eq!(it.node(), Some(2));
}

#[test]
fn what_the_plan_forbids_is_said() {
    let it = world(&[(1, 0, 8.0), (2, 0, 0.0)], &[(0, 2.0), (1, 2.0), (1, 2.0)]);
    let why = it.why();
    assert_eq!((why.not_allowed, why.last_rule), (2, Some(NoMove::AtFloor)));
}

#[test]
fn a_site_without_demand_gives_its_last_node_if_its_floor_lets_it() {
    let it = world(&[(1, 0, 8.0), (0, 0, 0.0)], &[(0, 2.0), (1, 2.0)]);
    assert_eq!(it.choose(MoveChoice::BestOff).unwrap().donor_after, 0.0);
    let busy = world(&[(1, 0, 8.0), (0, 0, 0.1)], &[(0, 2.0), (1, 2.0)]);
    assert_eq!(busy.node(), None, "nothing would serve what is left");
}

/// a is hot, b is at its floor and suits it, c has nodes that only suit b.
fn chained() -> World {
    let nodes = [(0, 2.0), (1, 2.0), (2, 2.0), (2, 2.0)];
    let mut it = world(&[(1, 0, 8.0), (1, 0, 0.5), (1, 0, 0.5)], &nodes);
    it.offers[2].suits = 0b110;
    it.offers[3].suits = 0b110;
    it
}

#[test]
fn two_steps_where_one_is_not_enough() {
    let it = chained();
    assert_eq!(it.node(), None);
    let chosen = it.offers().chain(SiteNumber(0), at(NOW)).unwrap();
    let plan = chosen.plan;
    assert_eq!(
        (plan.receiver, plan.intention.donor),
        (SiteNumber(1), SiteNumber(2))
    );
    assert_eq!(plan.intention.cause, MoveCause::Chain);
    assert_eq!((chosen.before, chosen.after), (4.0, 2.0));
}

#[test]
fn a_chain_waits_for_its_first_step_and_goes_on_with_the_second() {
    let mut it = chained();
    it.set(2, |node| {
        node.site = SiteNumber(1);
        node.cause = MoveCause::Chain;
        node.state = AssignmentState::Draining {
            from: SiteNumber(2),
        };
    });
    assert_eq!(it.offers().chain(SiteNumber(0), at(NOW)), None);
    assert_eq!(it.node(), None, "b has one that serves");
    it.set(2, |node| *node = node.served());
    it.loads[1].cpus = 4.0;
    assert_eq!(it.node(), Some(1));
}

#[test]
fn a_chain_that_gains_little_is_not_begun() {
    let mut it = chained();
    it.loads[2].demand = 7.0;
    assert_eq!(it.offers().chain(SiteNumber(0), at(NOW)), None);
    let mut it = chained();
    it.offers[1].suits = 0b110;
    assert_eq!(
        it.offers().chain(SiteNumber(0), at(NOW)),
        None,
        "nothing of b suits a"
    );
}
