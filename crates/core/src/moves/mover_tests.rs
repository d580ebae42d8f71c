//! Nodes that follow the load of two sites, with the words of one process.

use super::super::memory::MemoryWords;
use super::super::numbering::{MovableNode, SiteRules};
use super::super::steps::{Attempt, AttemptEnd, MoveOp};
use super::*;

const X: SiteNumber = SiteNumber(0);
const Y: SiteNumber = SiteNumber(1);

/// Front-end and words in one process; the test says what each node's load is.
struct Bench {
    mover: Mover,
    words: MemoryWords,
    /// By node: runnable tasks, of one CPU each.
    loads: Vec<f64>,
    /// Nodes that take no requests of x.
    unfit: Vec<usize>,
    /// Those of them that may not go back, as of the last look.
    held: Vec<HeldBack>,
    /// No move begins by load.
    paused: bool,
    now: Timestamp,
    joined: Vec<(NodeNumber, SiteNumber)>,
}

fn rules(name: &str, floor: u16, ceiling: u16) -> SiteRules {
    SiteRules {
        name: name.into(),
        floor,
        ceiling,
        priority: 0,
    }
}

fn config() -> MoverConfig {
    MoverConfig {
        history: History::Fixed(Duration::from_millis(100)),
        high: 2.0,
        choice: MoveChoice::BestOff,
        flap_budget: 10,
        carry: CarryConfig {
            drain: Duration::from_secs(5),
            hook: None,
            lease: Duration::from_millis(30),
        },
        warm_up: Duration::ZERO,
        front_ends: 1,
        patience: Patience::new(Duration::ZERO, 0.0, Duration::ZERO),
        owner: 0,
    }
}

impl Bench {
    /// Two sites, `x` and `y`, with two and four nodes.
    fn new(drain: bool, config: MoverConfig) -> Self {
        let nodes = (0..6).map(|number| MovableNode {
            name: format!("n{number}"),
            home: if number < 2 { "x" } else { "y" }.into(),
        });
        let sites = vec![rules("x", 1, 5), rules("y", 1, 6)];
        let constitution = Constitution::new(sites, nodes.collect(), drain, 1).unwrap();
        let home = |node| constitution.home(node).unwrap();
        Self {
            words: MemoryWords::new(&constitution, home),
            mover: Mover::new(constitution, config, 7),
            loads: vec![0.0; 6],
            unfit: Vec::new(),
            held: Vec::new(),
            paused: false,
            now: Timestamp::from_millis(10_000),
            joined: Vec::new(),
        }
    }

    fn site_of(&self, node: usize) -> SiteNumber {
        let known = self.mover.assignment(NodeNumber(node as u16));
        known.unwrap().site
    }

    fn count(&self, site: SiteNumber) -> usize {
        (0..6).filter(|node| self.site_of(*node) == site).count()
    }

    /// One look, and what follows from it.
    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(10);
        let nodes = self.words.nodes(self.now).unwrap();
        let mut sites = [SiteSight::default(); 2];
        for (node, reading) in nodes.iter().enumerate() {
            if let NodeReading::Read { assignment, .. } = reading {
                let load = &mut sites[assignment.site.index()].load;
                load.demand += self.loads[node];
                load.cpus += 1.0;
            }
        }
        let site = |node| {
            let known = self.mover.assignment(NodeNumber(node as u16));
            known.map(|it| it.site)
        };
        let sight = |(node, load): (usize, &f64)| NodeSight {
            cpus: 1.0,
            load: *load,
            fresh: true,
            ready: site(node).map(|site| ReadyNode {
                site,
                is_up: site == Y || !self.unfit.contains(&node),
            }),
            agent: None,
            quiet_since: Some(Timestamp::ZERO),
        };
        let seen: Vec<_> = self.loads.iter().enumerate().map(sight).collect();
        let site_words = self.words.sites(self.now).unwrap();
        let sight = MoverSight {
            site_words: &site_words,
            node_words: &nodes,
            sites: &sites,
            nodes: &seen,
        };
        let look = self.mover.look(&sight, self.now);
        assert_eq!(look.help, []);
        self.held = look.held;
        for (node, turn) in look.turns {
            if let NodeTurn::Joins(site) = turn {
                self.joined.push((node, site));
            }
        }
        for (node, before, carried) in look.carried {
            let swap = MoveOp::SwapNode {
                node,
                expected: before,
                new: carried.new,
                born: self.now,
            };
            self.words.carry_out(swap);
        }
        if let Some(chosen) = look.begin.filter(|_| !self.paused) {
            self.mover.on_begun(chosen.plan.intention.node, self.now);
            self.carry_out(chosen.plan);
        }
        if let Some(plan) = look.back {
            self.carry_out(plan);
        }
    }

    /// The plan of what an operator asks for.
    fn ordered(&self, node: u16, site: SiteNumber, force: bool) -> Result<MovePlan, NoMove> {
        let site_words = self.words.sites(self.now).unwrap();
        let node_words = self.words.nodes(self.now).unwrap();
        let sight = MoverSight {
            site_words: &site_words,
            node_words: &node_words,
            sites: &[],
            nodes: &[],
        };
        self.mover.ordered(&sight, NodeNumber(node), site, force)
    }

    fn carry_out(&mut self, plan: MovePlan) {
        let mut attempt = Attempt::begin(plan, self.now);
        loop {
            let reply = self.words.carry_out(attempt.op(self.mover.constitution()));
            match attempt.on_reply(reply, self.now) {
                Ok(next) => attempt = next,
                Err(end) => return assert_eq!(end, AttemptEnd::Finished),
            }
        }
    }

    fn run(&mut self, looks: usize) {
        (0..looks).for_each(|_| self.step());
    }

    /// The demand of a site is spread over its nodes.
    fn demand(&mut self, of_x: f64, of_y: f64) {
        for node in 0..6 {
            let (site, demand) = match self.site_of(node) {
                X => (X, of_x),
                _ => (Y, of_y),
            };
            self.loads[node] = demand / self.count(site) as f64;
        }
    }
}

#[test]
fn nodes_follow_the_load_and_come_back() {
    let mut bench = Bench::new(false, config());
    bench.run(150);
    assert_eq!((bench.count(X), bench.count(Y)), (2, 4), "nothing to do");
    for _ in 0..400 {
        bench.demand(20.0, 0.2);
        bench.step();
    }
    // Up to the ceiling of x and the floor of y.
    assert_eq!((bench.count(X), bench.count(Y)), (5, 1));
    for _ in 0..600 {
        bench.demand(0.2, 20.0);
        bench.step();
    }
    assert_eq!((bench.count(X), bench.count(Y)), (1, 5));
}

#[test]
fn a_move_waits_for_its_history_and_one_node_moves_at_a_time() {
    let mut bench = Bench::new(false, config());
    // Nodes that were just seen stay for their dwell.
    bench.run(120);
    bench.joined.clear();
    bench.demand(20.0, 1.0);
    bench.run(10);
    assert_eq!(bench.joined, [], "T is not over");
    bench.run(3);
    assert_eq!(bench.joined.len(), 1);
    // The window begins anew: T once more, behind the time in which the node settles.
    bench.run(10);
    assert_eq!(bench.joined.len(), 1);
    bench.run(10);
    assert_eq!(bench.joined.len(), 2);
}

#[test]
fn load_that_comes_and_goes_within_the_history_moves_nothing() {
    let mut bench = Bench::new(false, config());
    bench.run(120);
    bench.joined.clear();
    for _ in 0..50 {
        bench.demand(20.0, 1.0);
        bench.run(8);
        bench.demand(1.0, 1.0);
        bench.run(2);
    }
    assert_eq!(bench.joined, []);
}

#[test]
fn a_site_has_no_more_moves_in_a_minute_than_its_budget() {
    let tight = MoverConfig {
        flap_budget: 2,
        ..config()
    };
    let mut bench = Bench::new(false, tight);
    bench.run(120);
    bench.joined.clear();
    for _ in 0..400 {
        bench.demand(30.0, 1.0);
        bench.step();
    }
    assert_eq!(bench.joined.len(), 2);
}

#[test]
fn a_node_that_drains_serves_the_new_site_once_it_is_quiet() {
    let mut bench = Bench::new(true, config());
    bench.run(120);
    bench.joined.clear();
    bench.demand(20.0, 1.0);
    bench.run(13);
    let moved = (0..6).find(|node| bench.site_of(*node) == X && *node > 1);
    let moved = NodeNumber(moved.unwrap() as u16);
    let on_its_way = bench.mover.assignment(moved).unwrap();
    assert_eq!(on_its_way.from(), Some(Y));
    assert_eq!(bench.joined, [], "it drains");
    bench.run(130);
    assert_eq!(bench.joined.first(), Some(&(moved, X)));
}

#[test]
fn an_operator_moves_a_node_whatever_the_load_is_but_not_below_a_floor() {
    let mut bench = Bench::new(false, config());
    bench.run(2);
    assert_eq!(bench.ordered(2, Y, false), Err(NoMove::OwnSite));
    assert_eq!(bench.ordered(99, Y, false), Err(NoMove::Unknown));
    let plan = bench.ordered(2, X, false).unwrap();
    assert_eq!(plan.intention.cause, MoveCause::Operator);
    bench.carry_out(plan);
    bench.step();
    assert_eq!(bench.count(X), 3);
    // x gives two of its three; the last one only by force.
    for node in [0, 1] {
        let plan = bench.ordered(node, Y, false).unwrap();
        bench.carry_out(plan);
        bench.step();
    }
    assert_eq!(bench.ordered(2, Y, false), Err(NoMove::AtFloor));
    assert!(bench.ordered(2, Y, true).is_ok());
}

#[test]
fn a_node_that_cannot_serve_its_new_site_goes_back_and_one_that_could_once_stays() {
    let mut bench = Bench::new(false, config());
    bench.run(120);
    bench.joined.clear();
    bench.unfit = (2..6).collect();
    let come = |bench: &mut Bench| {
        bench.demand(20.0, 1.0);
        while bench.count(X) == 2 {
            bench.step();
        }
        bench.loads = vec![0.0; 6];
        (2..6).find(|node| bench.site_of(*node) == X).unwrap()
    };
    let moved = come(&mut bench);
    bench.run(990);
    assert_eq!(bench.site_of(moved), X);
    bench.run(20);
    assert_eq!(bench.site_of(moved), Y);
    let back = bench.mover.assignment(NodeNumber(moved as u16)).unwrap();
    assert_eq!((back.cause, back.lent), (MoveCause::Revert, false));
    bench.unfit.clear();
    let moved = come(&mut bench);
    bench.run(1);
    bench.unfit.push(moved);
    bench.run(1100);
    assert_eq!(bench.site_of(moved), X, "it fails as any node may");
}

#[test]
fn a_lent_node_that_a_front_end_finds_out_of_service_goes_home() {
    let mut bench = Bench::new(false, config());
    bench.run(1);
    let plan = bench.ordered(2, X, false).unwrap();
    bench.carry_out(plan);
    bench.run(1);
    let constitution = bench.mover.constitution().clone();
    bench.mover = Mover::new(constitution, config(), 8);
    bench.unfit = vec![2];
    bench.run(2);
    assert_eq!(bench.site_of(2), X);
    bench.run(1010);
    assert_eq!(bench.site_of(2), Y);
}

#[test]
fn a_way_back_that_a_rule_forbids_is_held_and_says_which() {
    let mut bench = Bench::new(false, config());
    bench.run(1);
    let plan = bench.ordered(2, X, false).unwrap();
    bench.carry_out(plan);
    bench.run(1);
    // The site that it came from takes no more.
    let nodes = (0..6).map(|number| MovableNode {
        name: format!("n{number}"),
        home: if number < 2 { "x" } else { "y" }.into(),
    });
    let sites = vec![rules("x", 1, 5), rules("y", 1, 3)];
    let full = Constitution::new(sites, nodes.collect(), false, 1).unwrap();
    bench.mover = Mover::new(full, config(), 8);
    bench.unfit = vec![2];
    bench.run(900);
    assert_eq!(bench.held, []);
    bench.run(200);
    let held = HeldBack {
        node: NodeNumber(2),
        site: X,
        back: Y,
        why: NoMove::AtCeiling,
    };
    assert_eq!((bench.held.clone(), bench.site_of(2)), (vec![held], X));
    assert!(held.why.is_rule() && !NoMove::OldView(2).is_rule());
    bench.unfit.clear();
    bench.run(10);
    assert_eq!(bench.held, [], "it takes requests");
}

#[test]
fn a_node_goes_back_although_a_move_that_load_asks_for_is_held_back() {
    let mut bench = Bench::new(false, config());
    bench.run(120);
    bench.unfit = (2..6).collect();
    bench.demand(20.0, 1.0);
    while bench.count(X) == 2 {
        bench.step();
    }
    bench.paused = true;
    for _ in 0..1010 {
        bench.demand(20.0, 1.0);
        bench.step();
    }
    assert_eq!(bench.count(X), 2);
}
