//! Each rule of a plan with plain values: it holds, and it does not.

use super::super::numbering::{MovableNode, SiteRules};
use super::super::words::{Count24, LockPhase};
use super::*;

const A: SiteNumber = SiteNumber(0);
const B: SiteNumber = SiteNumber(1);

fn rules(name: &str, floor: u16, ceiling: u16) -> SiteRules {
    SiteRules {
        name: name.into(),
        floor,
        ceiling,
        priority: 0,
    }
}

fn constitution() -> Constitution {
    let nodes = ["n0", "n1", "n2", "n3"].map(|name| MovableNode {
        name: name.into(),
        home: "b".into(),
    });
    let sites = vec![rules("a", 1, 9), rules("b", 1, 9)];
    Constitution::new(sites, nodes.to_vec(), true, 1).unwrap()
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn serves(site: SiteNumber) -> Assignment {
    Assignment::first(Count24::new(7), site, site != B)
}

fn drains(from: SiteNumber, site: SiteNumber) -> Assignment {
    Assignment {
        state: AssignmentState::Draining { from },
        ..serves(site)
    }
}

fn read(assignment: Assignment) -> NodeReading {
    NodeReading::Read {
        assignment,
        asked_at: at(20),
    }
}

struct World {
    constitution: Constitution,
    sites: Vec<Option<SiteReading>>,
    nodes: Vec<NodeReading>,
    window: EventWindow,
}

/// One node of `a`, three of `b`; locks read at 10, nodes asked at 20.
fn world() -> World {
    let lock = SiteLock::idle(Count24::new(4));
    let reading = SiteReading {
        lock,
        updates: 2,
        at: at(10),
    };
    World {
        constitution: constitution(),
        sites: vec![Some(reading); 2],
        nodes: [A, B, B, B].map(|site| read(serves(site))).to_vec(),
        window: EventWindow {
            lock,
            updates: 2,
            began_at: at(0),
        },
    }
}

impl World {
    fn plan(&self, edit: impl FnOnce(&mut MoveWish)) -> Result<MovePlan, NoMove> {
        let mut wish = MoveWish {
            node: NodeNumber(2),
            receiver: A,
            cause: MoveCause::Load,
            owner: 0x15,
            force: false,
        };
        edit(&mut wish);
        let view = MoveView::new(&self.constitution, &self.sites, &self.nodes);
        view.plan(&self.window, wish)
    }

    fn why_not(&self) -> NoMove {
        self.plan(|_| ()).unwrap_err()
    }
}

#[test]
fn a_plan_says_what_its_swaps_expect_and_write() {
    let world = world();
    let plan = world.plan(|_| ()).unwrap();
    let lock = SiteLock::idle(Count24::new(4));
    assert_eq!((plan.receiver_lock, plan.donor_lock), (lock, lock));
    assert_eq!((plan.intention.donor, plan.intention.owner), (B, 5));
    assert_eq!(plan.taken().sequence.get(), 5);
    assert!(plan.given().is_given_to(A, plan.taken()));
    let moved = moved(
        &world.constitution,
        plan.assignment,
        A,
        plan.taken(),
        plan.intention,
    );
    assert_eq!(moved.generation.get(), 8);
    assert_eq!((moved.site, moved.from()), (A, Some(B)));
    assert!(moved.lent && moved.was_moved_by(A, plan.taken()));
    assert!(!moved.was_moved_by(A, plan.taken().released()));
}

#[test]
fn nodes_that_need_no_drain_serve_at_once() {
    let nodes = vec![MovableNode {
        name: "n0".into(),
        home: "a".into(),
    }];
    let sites = vec![rules("a", 1, 3), rules("b", 1, 9)];
    let at_once = Constitution::new(sites, nodes, false, 1).unwrap();
    let plan = world().plan(|_| ()).unwrap();
    let home = Intention {
        node: NodeNumber(0),
        ..plan.intention
    };
    let moved = moved(&at_once, plan.assignment, A, plan.taken(), home);
    assert!(moved.is_serving() && !moved.lent, "home again");
}

#[test]
fn a_window_ends_with_a_move_of_its_site() {
    let mut it = world();
    it.window.updates = 1;
    assert_eq!(it.why_not(), NoMove::WindowOver);
    let mut it = world();
    it.window.lock = SiteLock::idle(Count24::new(3));
    assert_eq!(it.why_not(), NoMove::WindowOver);
}

#[test]
fn locks_must_be_free_and_read() {
    let plan = world().plan(|_| ()).unwrap();
    let taken = plan.taken().in_phase(LockPhase::Commit);
    let mut it = world();
    it.window.lock = taken;
    it.sites[0] = it.sites[0].map(|reading| SiteReading {
        lock: taken,
        ..reading
    });
    assert_eq!(it.why_not(), NoMove::ReceiverTaken);
    let mut it = world();
    it.sites[1] = it.sites[1].map(|reading| SiteReading {
        lock: plan.given(),
        ..reading
    });
    assert_eq!(it.why_not(), NoMove::DonorTaken);
    let mut it = world();
    it.sites[1] = it.sites[1].map(|reading| SiteReading {
        lock: reading.lock.frozen().unwrap(),
        ..reading
    });
    assert_eq!(it.why_not(), NoMove::Frozen);
    for site in 0..2 {
        let mut it = world();
        it.sites[site] = None;
        assert_eq!(it.why_not(), NoMove::NoWords);
    }
}

#[test]
fn nodes_are_asked_after_the_locks_were_read() {
    let mut it = world();
    it.nodes[3] = NodeReading::Read {
        assignment: serves(B),
        asked_at: at(9),
    };
    assert_eq!(it.why_not(), NoMove::OldView(3));
    it.nodes[3] = NodeReading::Unread;
    assert_eq!(it.why_not(), NoMove::OldView(3));
    it.nodes[3] = NodeReading::Silent;
    assert!(it.plan(|_| ()).is_ok(), "a silent node holds up no move");
}

#[test]
fn the_node_serves_another_site_and_is_not_kept_there() {
    let mut it = world();
    it.nodes[2] = NodeReading::Silent;
    assert_eq!(it.why_not(), NoMove::NotRead);
    it.nodes[2] = read(drains(A, B));
    assert_eq!(it.why_not(), NoMove::NotServing);
    it.nodes[2] = read(drains(B, A));
    assert_eq!(it.why_not(), NoMove::ComesAlready);
    it.nodes[2] = read(serves(A));
    assert_eq!(it.why_not(), NoMove::OwnSite);
    it.nodes[2] = read(Assignment {
        pinned: true,
        ..serves(B)
    });
    assert_eq!(it.why_not(), NoMove::Pinned);
    let by_operator = it.plan(|wish| wish.cause = MoveCause::Operator);
    assert!(by_operator.is_ok());
    let unknown = world().plan(|wish| wish.node = NodeNumber(9));
    assert_eq!(unknown, Err(NoMove::Unknown));
}

#[test]
fn one_node_at_a_time_is_on_its_way_to_a_site() {
    let mut it = world();
    it.nodes[1] = read(drains(B, A));
    assert_eq!(it.why_not(), NoMove::OnItsWay);
}

#[test]
fn the_floor_counts_nodes_that_are_seen_to_serve() {
    let mut it = world();
    it.nodes[1] = NodeReading::Silent;
    it.nodes[3] = read(drains(A, B));
    assert_eq!(
        it.why_not(),
        NoMove::AtFloor,
        "one is silent, one may go back"
    );
    assert!(it.plan(|wish| wish.force = true).is_ok());
}

#[test]
fn the_ceiling_counts_what_may_come_back_and_silent_nodes() {
    let mut it = world();
    it.constitution = {
        let nodes = (0..5).map(|it| MovableNode {
            name: format!("n{it}"),
            home: "b".into(),
        });
        let sites = vec![rules("a", 1, 3), rules("b", 1, 9)];
        Constitution::new(sites, nodes.collect(), true, 1).unwrap()
    };
    it.nodes.push(read(serves(B)));
    it.nodes[1] = read(drains(A, B));
    assert!(it.plan(|_| ()).is_ok(), "two may be of a");
    it.nodes[4] = NodeReading::Silent;
    assert_eq!(it.why_not(), NoMove::AtCeiling);
}
