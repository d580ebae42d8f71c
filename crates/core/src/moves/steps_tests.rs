//! Each way that a move goes, on words in memory: by its owner, by helpers, with lost answers and silent nodes.

use super::super::numbering::{MovableNode, SiteRules};
use super::super::plan::{EventWindow, MoveView, MoveWish, NodeReading, SiteReading};
use super::super::words::{AssignmentState, Count24, MoveCause};
use super::*;

const X: SiteNumber = SiteNumber(0);
const Y: SiteNumber = SiteNumber(1);
const N: NodeNumber = NodeNumber(1);

/// A home with two sites, and three nodes, the last two of site y.
struct World {
    constitution: Constitution,
    locks: [u64; 2],
    updates: [u64; 2],
    nodes: [u64; 3],
    silent: bool,
    millis: u64,
}

fn world() -> World {
    let site = |name: &str| SiteRules {
        name: name.into(),
        floor: 1,
        ceiling: 9,
        priority: 0,
    };
    let node = |name: &str, home: &str| MovableNode {
        name: name.into(),
        home: home.into(),
    };
    let nodes = vec![node("n0", "x"), node("n1", "y"), node("n2", "y")];
    let serves = |site| Assignment::first(Count24::FIRST, site, false).pack();
    World {
        constitution: Constitution::new(vec![site("x"), site("y")], nodes, true, 1).unwrap(),
        locks: [SiteLock::idle(Count24::new(10)).pack(); 2],
        updates: [0; 2],
        nodes: [X, Y, Y].map(serves),
        silent: false,
        millis: 100,
    }
}

impl World {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis)
    }

    fn plan(&self) -> MovePlan {
        let reading = |site: usize| {
            Some(SiteReading {
                lock: self.lock(site),
                updates: self.updates[site],
                at: self.now(),
            })
        };
        let node = |word: &u64| NodeReading::Read {
            assignment: Assignment::unpack(*word).unwrap().unwrap(),
            asked_at: self.now(),
        };
        let (sites, nodes) = ([reading(0), reading(1)], self.nodes.each_ref().map(node));
        let view = MoveView::new(&self.constitution, &sites, &nodes);
        let window = EventWindow {
            lock: self.lock(0),
            updates: self.updates[0],
            began_at: Timestamp::ZERO,
        };
        let wish = MoveWish {
            node: N,
            receiver: X,
            cause: MoveCause::Load,
            owner: 3,
            force: false,
        };
        view.plan(&window, wish).expect("nothing is in its way")
    }

    fn lock(&self, site: usize) -> SiteLock {
        SiteLock::unpack(self.locks[site]).unwrap().unwrap()
    }

    fn node(&self) -> Assignment {
        Assignment::unpack(self.nodes[N.index()]).unwrap().unwrap()
    }

    fn swap(word: &mut u64, expected: u64, new: u64) -> MoveReply {
        let held = *word;
        if held == expected {
            *word = new;
        }
        MoveReply::Held(held)
    }

    fn carry_out(&mut self, op: MoveOp) -> MoveReply {
        match op {
            MoveOp::ReadLock(site) => MoveReply::Held(self.locks[site.index()]),
            MoveOp::SwapLock {
                site,
                expected,
                new,
            } => Self::swap(&mut self.locks[site.index()], expected.pack(), new.pack()),
            MoveOp::CountUpdate(site) => {
                self.updates[site.index()] += 1;
                MoveReply::Held(self.updates[site.index()] - 1)
            }
            MoveOp::ReadNode(_) | MoveOp::SwapNode { .. } if self.silent => MoveReply::Silent,
            MoveOp::ReadNode(node) => MoveReply::Held(self.nodes[node.index()]),
            MoveOp::SwapNode {
                node,
                expected,
                new,
                ..
            } => Self::swap(&mut self.nodes[node.index()], expected.pack(), new.pack()),
        }
    }

    /// One step.
    fn step(&mut self, attempt: Attempt) -> Result<Attempt, AttemptEnd> {
        let reply = self.carry_out(attempt.op(&self.constitution));
        self.millis += 1;
        attempt.on_reply(reply, self.now())
    }

    /// So many steps, none of them the last one.
    fn steps(&mut self, attempt: Attempt, count: usize) -> Attempt {
        (0..count).fold(attempt, |it, _| self.step(it).expect("it goes on"))
    }

    /// All steps that are left.
    fn run(&mut self, mut attempt: Attempt) -> AttemptEnd {
        for _ in 0..20 {
            match self.step(attempt) {
                Ok(next) => attempt = next,
                Err(end) => return end,
            }
        }
        panic!("it does not end: {attempt:?}")
    }

    fn begin(&self) -> Attempt {
        Attempt::begin(self.plan(), self.now())
    }

    /// The move has begun and its owner is gone after so many steps.
    fn left_after(steps: usize) -> Self {
        let mut world = world();
        let attempt = world.begin();
        world.steps(attempt, steps);
        world
    }

    fn help(&mut self, site: SiteNumber) -> AttemptEnd {
        let attempt = Attempt::help(site, self.lock(site.index()), self.now());
        self.run(attempt)
    }

    fn is_at_rest(&self) -> bool {
        (0..2).all(|site| self.lock(site).state == LockState::Idle)
    }
}

#[test]
fn an_owner_takes_gives_commits_moves_counts_and_releases() {
    let mut world = world();
    let attempt = world.begin();
    assert_eq!(world.run(attempt), AttemptEnd::Finished);
    assert!(world.is_at_rest());
    assert_eq!(
        (world.lock(0).sequence.get(), world.lock(1).sequence.get()),
        (12, 12)
    );
    assert_eq!(world.updates, [1, 1]);
    let node = world.node();
    assert_eq!((node.site, node.generation.get()), (X, 2));
    assert_eq!(node.state, AssignmentState::Draining { from: Y });
}

#[test]
fn whatever_the_owner_has_left_is_finished_or_ended_by_helpers() {
    for steps in 0..8 {
        let mut world = World::left_after(steps);
        let first = world.help(X);
        let second = world.help(Y);
        assert!(world.is_at_rest(), "{steps}: {first:?}, {second:?}");
        let moved = world.node().site == X;
        assert_eq!(moved, steps >= 2, "{steps}: decided once the donor gives");
        if moved {
            assert_eq!(world.node().generation.get(), 2, "{steps}: once");
        }
    }
}

#[test]
fn a_lock_that_another_one_takes_first_ends_the_move() {
    let mut world = world();
    let (first, second) = (world.begin(), world.begin());
    world.step(first).unwrap();
    assert_eq!(world.step(second), Err(AttemptEnd::Overtaken));
}

#[test]
fn a_donor_that_is_taken_ends_the_move_and_frees_the_receiver() {
    let mut world = world();
    let attempt = world.begin();
    let attempt = world.steps(attempt, 1);
    world.locks[1] = SiteLock::idle(Count24::new(12)).pack();
    assert_eq!(world.run(attempt), AttemptEnd::Finished);
    assert!(world.is_at_rest());
    assert_eq!(world.node().site, Y);
}

#[test]
fn a_helper_that_ends_a_take_leaves_its_late_gift_to_rule_c() {
    let mut world = world();
    let attempt = world.begin();
    let owner = world.steps(attempt, 1);
    assert_eq!(world.help(X), AttemptEnd::Finished);
    // The owner wakes up, gives, and finds that there is nothing to commit.
    assert_eq!(world.run(owner), AttemptEnd::Finished);
    assert!(world.is_at_rest());
    assert_eq!(world.node().site, Y);
}

#[test]
fn a_gift_to_a_lock_that_stands_is_helped_at_the_receiver() {
    let mut world = World::left_after(2);
    assert_eq!(world.help(Y), AttemptEnd::HelpFirst(X));
    assert_eq!(world.help(X), AttemptEnd::Finished);
    assert!(world.is_at_rest());
}

#[test]
fn an_owner_that_was_helped_to_commit_goes_on() {
    let mut world = world();
    let attempt = world.begin();
    let owner = world.steps(attempt, 2);
    let commit = Attempt::help(X, world.lock(0), world.now());
    world.steps(commit, 3);
    assert_eq!(world.run(owner), AttemptEnd::Finished);
    assert!(world.is_at_rest());
    assert_eq!(world.node().generation.get(), 2);
}

#[test]
fn a_silent_node_makes_the_move_void_and_its_lock_is_free_after_the_fence() {
    for helped in [false, true] {
        let mut world = world();
        let attempt = world.begin();
        let owner = world.steps(attempt, 3);
        world.silent = true;
        let end = if helped {
            world.help(X)
        } else {
            world.run(owner)
        };
        assert_eq!(end, AttemptEnd::Voided);
        let LockState::Receives(phase, _) = world.lock(0).state else {
            panic!("{:?}", world.lock(0));
        };
        assert_eq!(phase, LockPhase::Void);
        assert_eq!(world.help(X), AttemptEnd::Finished);
        assert!(world.is_at_rest());
        world.silent = false;
        assert_eq!(world.node().site, Y);
    }
}

#[test]
fn a_void_move_that_was_made_all_the_same_is_counted() {
    let mut world = world();
    let attempt = world.begin();
    let owner = world.steps(attempt, 3);
    let late = owner.op(&world.constitution);
    world.silent = true;
    assert_eq!(world.run(owner), AttemptEnd::Voided);
    world.silent = false;
    world.carry_out(late);
    assert_eq!(world.help(X), AttemptEnd::Finished);
    assert_eq!((world.node().site, world.updates), (X, [1, 1]));
    assert!(world.is_at_rest());
}

#[test]
fn an_order_to_a_node_is_born_before_commit_was_seen() {
    let mut world = world();
    let attempt = world.begin();
    let owner = world.steps(attempt, 2);
    let asked_at = world.now();
    let reply = world.carry_out(owner.op(&world.constitution));
    // The front-end sleeps on the answer.
    world.millis += 5000;
    let owner = owner.on_reply(reply, world.now()).unwrap();
    let MoveOp::SwapNode { born, .. } = owner.op(&world.constitution) else {
        panic!("{owner:?}");
    };
    assert_eq!(born, asked_at);
    let helper = Attempt::help(X, world.lock(0), world.now());
    let asked_at = world.now();
    let helper = world.steps(helper, 2);
    let MoveOp::SwapNode { born, .. } = helper.op(&world.constitution) else {
        panic!("{helper:?}");
    };
    assert_eq!(born, asked_at);
}

#[test]
fn a_node_that_has_changed_is_left_alone() {
    let mut world = World::left_after(3);
    let pinned = Assignment {
        generation: Count24::new(2),
        pinned: true,
        ..world.node()
    };
    world.nodes[N.index()] = pinned.pack();
    assert_eq!(world.help(X), AttemptEnd::Finished);
    assert!(world.is_at_rest());
    assert_eq!(world.node(), pinned);
}

#[test]
fn lost_late_and_unreadable_answers_end_a_part_and_say_so() {
    let it = world();
    let attempt = it.begin();
    let reply = |reply| attempt.on_reply(reply, it.now()).unwrap_err();
    assert_eq!(reply(MoveReply::Lost), AttemptEnd::Unknown);
    assert_eq!(reply(MoveReply::Silent), AttemptEnd::Unknown);
    let mut it = world();
    let attempt = it.begin();
    let owner = it.steps(attempt, 3);
    let refused = owner.on_reply(MoveReply::TooOld, it.now());
    assert_eq!(refused, Err(AttemptEnd::TooOld));
    let attempt = World::left_after(2);
    let mut helper = Attempt::help(X, attempt.lock(0), attempt.now());
    let mut it = attempt;
    helper = it.steps(helper, 1);
    let garbled = helper.on_reply(MoveReply::Held(7 << 37 | 1 << 40), it.now());
    assert!(matches!(garbled, Err(AttemptEnd::Garbled(error)) if error.field == "phase"));
}

#[test]
fn a_lock_that_has_changed_or_is_free_needs_no_help() {
    let mut world = world();
    assert_eq!(world.help(X), AttemptEnd::Finished);
    let stood = world.lock(0);
    world.locks[0] = stood.released().pack();
    let attempt = Attempt::help(X, stood, world.now());
    assert_eq!(world.run(attempt), AttemptEnd::Overtaken);
}
