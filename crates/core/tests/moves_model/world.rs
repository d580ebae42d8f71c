//! What the model is made of: words at a home and at nodes, front-ends, datagrams that are late, and what has happened.

use std::hash::{DefaultHasher, Hash, Hasher};

use tidegate_core::moves::numbering::{Constitution, MovableNode, SiteRules};
use tidegate_core::moves::plan::{
    EventWindow, MovePlan, MoveView, MoveWish, NodeReading, SiteReading,
};
use tidegate_core::moves::steps::{Attempt, MoveOp, MoveReply};
use tidegate_core::moves::words::{
    Assignment, AssignmentState, Count24, LockPhase, LockState, MoveCause, NodeNumber, SiteLock,
    SiteNumber,
};
use tidegate_core::time::Timestamp;

use crate::paper::PaperAttempt;

pub(crate) const SITES: usize = 3;
pub(crate) const NODES: usize = 4;
/// All locks begin at this sequence.
const FIRST: Count24 = Count24::FIRST;

/// Which protocol front-ends follow: ours, or one that must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Ours,
    /// The paper's lock; one that stands is left alone.
    Paper,
    /// The paper's lock; one that stands is taken over, as by a lease.
    PaperWithLease,
    /// TAKE and GIVE, and then the node at once.
    NoCommit,
    /// A void move is over although nodes refuse nothing for its age.
    NoAgeLimit,
    /// Swaps of nodes are as old as they were sent, and not as old as what was known of COMMIT.
    LateBirth,
    /// Floors count nodes that are still on their way.
    CountsAwaited,
}

/// One configuration of the model.
#[derive(Clone, Debug)]
pub(crate) struct Moves {
    pub(crate) protocol: Protocol,
    pub(crate) front_ends: usize,
    /// The site of each node at the beginning.
    pub(crate) nodes: &'static [u8],
    /// Of each site: floor, ceiling, and how many nodes its load asks for.
    pub(crate) sites: &'static [(u16, u16, usize)],
    /// No lock is taken at this sequence.
    pub(crate) sequence_max: u32,
    pub(crate) limits: Budget,
    /// Update counters are words of their own, and windows are read twice.
    pub(crate) counters: bool,
    pub(crate) constitution: Constitution,
}

/// How often each fault happens, at most or so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) crashes: u8,
    pub(crate) losses: u8,
    pub(crate) copies: u8,
    pub(crate) outages: u8,
    pub(crate) restarts: u8,
    pub(crate) reverts: u8,
}

/// What a front-end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FrontEnd {
    Rests,
    /// It reads the locks one after the other; nodes are asked when all are there.
    Reads {
        site: SiteNumber,
        window: EventWindow,
        sites: [Option<SiteReading>; SITES],
        /// A node was moved to its site since the window began.
        overtaken: bool,
    },
    Acts {
        attempt: Attempt,
        overtaken: bool,
    },
    ActsLikeThePaper(PaperAttempt),
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) locks: [u64; SITES],
    pub(crate) updates: [u8; SITES],
    pub(crate) nodes: [u64; NODES],
    /// Bits of nodes that do not answer, and of those that did not at some time since they were last moved.
    pub(crate) down: u8,
    pub(crate) away: u8,
    pub(crate) front_ends: Vec<FrontEnd>,
    /// Operations that may still arrive.
    pub(crate) late: Vec<MoveOp>,
    /// By site, bits of sequences whose swaps of nodes are too old by now.
    pub(crate) too_old: [u32; SITES],
    /// By site, bits of sequences that have moved a node.
    pub(crate) moved: [u32; SITES],
    pub(crate) used: Budget,
    pub(crate) broken: Broken,
}

/// What must never happen, and is no property of the words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Broken {
    pub(crate) lock_moved_twice: bool,
    pub(crate) word_came_back: bool,
    pub(crate) took_on_old_evidence: bool,
}

/// A number that stands for a value; the same in each run.
pub(crate) fn key<T: Hash>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

pub(crate) fn site(number: usize) -> SiteNumber {
    SiteNumber(number as u8)
}

pub(crate) fn lock_of(word: u64) -> SiteLock {
    let lock = SiteLock::unpack(word).expect("front-ends write no other words");
    lock.expect("no lock of the model is blank")
}

pub(crate) fn assignment_of(word: u64) -> Assignment {
    let assignment = Assignment::unpack(word).expect("front-ends write no other words");
    assignment.expect("no node of the model is blank")
}

impl Moves {
    pub(crate) fn new(
        protocol: Protocol,
        nodes: &'static [u8],
        sites: &'static [(u16, u16, usize)],
    ) -> Self {
        let rules = sites.iter().zip(["a", "b", "c"]);
        let rules = rules.map(|((floor, ceiling, _), name)| SiteRules {
            name: name.into(),
            floor: *floor,
            ceiling: *ceiling,
            priority: 0,
        });
        let movable = nodes.iter().zip(["n0", "n1", "n2", "n3"]);
        let movable = movable.map(|(home, name)| MovableNode {
            name: name.into(),
            home: ["a", "b", "c"][usize::from(*home)].into(),
        });
        let constitution = Constitution::new(rules.collect(), movable.collect(), true, 1);
        Self {
            protocol,
            front_ends: 2,
            nodes,
            sites,
            sequence_max: 6,
            limits: Budget::default(),
            counters: false,
            constitution: constitution.expect("the model's configuration is a good one"),
        }
    }

    pub(crate) fn begin(&self) -> World {
        let mut nodes = [0; NODES];
        for (word, home) in nodes.iter_mut().zip(self.nodes) {
            *word = Assignment::first(Count24::FIRST, SiteNumber(*home), false).pack();
        }
        let mut locks = [0; SITES];
        locks[..self.sites.len()].fill(SiteLock::idle(FIRST).pack());
        World {
            locks,
            updates: [0; SITES],
            nodes,
            down: 0,
            away: 0,
            front_ends: vec![FrontEnd::Rests; self.front_ends],
            late: Vec::new(),
            too_old: [0; SITES],
            moved: [0; SITES],
            used: Budget::default(),
            broken: Broken::default(),
        }
    }

    fn reading(&self, world: &World, number: usize) -> SiteReading {
        SiteReading {
            lock: lock_of(world.locks[number]),
            updates: u64::from(world.updates[number]),
            at: Timestamp::from_millis(1),
        }
    }

    /// A front-end that begins to look at a site.
    pub(crate) fn look(&self, world: &World, number: usize) -> FrontEnd {
        let reading = self.reading(world, number);
        let mut sites = [None; SITES];
        if !self.counters {
            sites[number] = Some(reading);
        }
        FrontEnd::Reads {
            site: site(number),
            window: EventWindow {
                lock: reading.lock,
                updates: reading.updates,
                began_at: Timestamp::ZERO,
            },
            sites,
            overtaken: false,
        }
    }

    /// It reads the next lock.
    pub(crate) fn read_next(&self, world: &World, sites: &mut [Option<SiteReading>; SITES]) {
        let next = (0..self.sites.len()).find(|number| sites[*number].is_none());
        if let Some(number) = next {
            sites[number] = Some(self.reading(world, number));
        }
    }

    /// The plan of a move for a front-end that has read all locks, and asks all nodes now.
    pub(crate) fn plan(
        &self,
        world: &World,
        window: &EventWindow,
        sites: &[Option<SiteReading>; SITES],
        receiver: SiteNumber,
        node: usize,
    ) -> Option<MovePlan> {
        let read = |(number, word): (usize, &u64)| match world.down & 1 << number {
            0 => NodeReading::Read {
                assignment: self.as_counted(assignment_of(*word), receiver),
                asked_at: Timestamp::from_millis(2),
            },
            _ => NodeReading::Silent,
        };
        let words = &world.nodes[..self.nodes.len()];
        let nodes: Vec<_> = words.iter().enumerate().map(read).collect();
        let view = MoveView::new(&self.constitution, sites, &nodes);
        if view.serving(receiver) >= self.sites[receiver.index()].2 {
            return None;
        }
        let wish = MoveWish {
            node: NodeNumber(node as u16),
            receiver,
            cause: MoveCause::Load,
            owner: 0,
            force: false,
        };
        let plan = view.plan(window, wish);
        let is_within = |plan: &MovePlan| {
            let locks = [plan.receiver_lock, plan.donor_lock];
            locks.iter().all(|it| it.sequence.get() < self.sequence_max)
        };
        plan.ok().filter(is_within)
    }

    fn as_counted(&self, assignment: Assignment, receiver: SiteNumber) -> Assignment {
        let counts = self.protocol == Protocol::CountsAwaited && assignment.site != receiver;
        if counts {
            assignment.served()
        } else {
            assignment
        }
    }
}

/// Whether it takes a free lock for a receiver.
pub(crate) fn takes(op: &MoveOp) -> bool {
    let is_take = |it: &SiteLock| matches!(it.state, LockState::Receives(LockPhase::Take, _));
    match op {
        MoveOp::SwapLock { new, .. } => is_take(new),
        MoveOp::ReadLock(_)
        | MoveOp::CountUpdate(_)
        | MoveOp::ReadNode(_)
        | MoveOp::SwapNode { .. } => false,
    }
}

/// How far a lock's move is within its sequence.
fn phase(lock: SiteLock) -> u8 {
    match lock.state {
        LockState::Receives(LockPhase::Take, _) => 1,
        LockState::Receives(LockPhase::Commit, _) => 2,
        LockState::Receives(LockPhase::Void, _) => 3,
        LockState::Idle | LockState::Gives(_) | LockState::Frozen => 0,
    }
}

impl World {
    /// Whether a node answers.
    pub(crate) fn is_up(&self, node: usize) -> bool {
        self.down & 1 << node == 0
    }

    pub(crate) fn set_front_end(&mut self, place: usize, to: FrontEnd) {
        self.front_ends[place] = to;
    }

    /// Front-ends and datagrams in an order that does not tell which is which; what can do nothing any more is left out.
    pub(crate) fn tidy(&mut self, model: &Moves) {
        let mut late = std::mem::take(&mut self.late);
        // No value of a word comes back, so a swap that would fail now fails for ever.
        late.retain(|op| match op {
            MoveOp::SwapLock { site, expected, .. } => self.is_held(model, *site, *expected),
            MoveOp::SwapNode { node, expected, .. } => {
                self.nodes[node.index()] == expected.pack() && !self.is_refused(model, *op, true)
            }
            MoveOp::CountUpdate(_) => model.counters,
            MoveOp::ReadLock(_) | MoveOp::ReadNode(_) => false,
        });
        late.sort_by_cached_key(key);
        self.late = late;
        self.front_ends.sort_by_cached_key(key);
    }

    fn is_held(&self, model: &Moves, site: SiteNumber, expected: SiteLock) -> bool {
        self.locks[site.index()] == model.as_written(expected).pack()
    }

    /// Whether a node refuses a swap for its age. `sent`: it is under way, not only wanted.
    fn is_refused(&self, model: &Moves, op: MoveOp, sent: bool) -> bool {
        let MoveOp::SwapNode { new, .. } = op else {
            return false;
        };
        let old = self.too_old[new.site.index()] & 1 << new.by != 0;
        let is_limited = model.protocol != Protocol::NoAgeLimit;
        old && is_limited && (sent || model.protocol != Protocol::LateBirth)
    }

    /// Carries an operation out. `sent`: it has been under way for some time.
    pub(crate) fn carry_out(&mut self, model: &Moves, op: MoveOp, sent: bool) -> MoveReply {
        match op {
            MoveOp::ReadLock(site) => MoveReply::Held(self.locks[site.index()]),
            MoveOp::ReadNode(node) if self.is_up(node.index()) => {
                MoveReply::Held(self.nodes[node.index()])
            }
            MoveOp::CountUpdate(site) => {
                let counter = &mut self.updates[site.index()];
                *counter += u8::from(model.counters);
                MoveReply::Held(u64::from(*counter))
            }
            MoveOp::SwapLock {
                site,
                expected,
                new,
            } => {
                let held = self.locks[site.index()];
                if !self.is_held(model, site, expected) {
                    return MoveReply::Held(held);
                }
                let is_later = new.sequence.is_after(expected.sequence)
                    || new.sequence == expected.sequence && phase(new) > phase(expected);
                self.broken.word_came_back |= !is_later;
                self.locks[site.index()] = model.as_written(new).pack();
                MoveReply::Held(expected.pack())
            }
            MoveOp::SwapNode { node, .. } | MoveOp::ReadNode(node) if !self.is_up(node.index()) => {
                MoveReply::Silent
            }
            MoveOp::ReadNode(_) => unreachable!("answered above, up or not"),
            MoveOp::SwapNode { .. } if self.is_refused(model, op, sent) => MoveReply::TooOld,
            MoveOp::SwapNode {
                node,
                expected,
                new,
                ..
            } => {
                let held = self.nodes[node.index()];
                if held == expected.pack() {
                    self.move_node(model, node.index(), new);
                }
                MoveReply::Held(held)
            }
        }
    }

    fn move_node(&mut self, model: &Moves, node: usize, new: Assignment) {
        let (site, bit) = (new.site.index(), 1 << new.by);
        self.broken.lock_moved_twice |= self.moved[site] & bit != 0;
        self.moved[site] |= bit;
        self.away &= !(1 << node);
        self.assign(node, new);
        for front_end in &mut self.front_ends {
            match front_end {
                FrontEnd::Reads {
                    site, overtaken, ..
                } => *overtaken |= *site == new.site,
                FrontEnd::Acts { attempt, overtaken } => {
                    // Evidence counts until the lock is taken.
                    let op = attempt.op(&model.constitution);
                    *overtaken |= attempt.site() == new.site && takes(&op);
                }
                FrontEnd::Rests | FrontEnd::ActsLikeThePaper(_) => {}
            }
        }
    }

    /// A node's word changes.
    pub(crate) fn assign(&mut self, node: usize, new: Assignment) {
        let before = assignment_of(self.nodes[node]);
        let is_later = new.generation.is_after(before.generation)
            || new.generation == before.generation && new.is_serving() && !before.is_serving();
        self.broken.word_came_back |= !is_later;
        self.nodes[node] = new.pack();
    }

    /// Nodes that are a site's.
    pub(crate) fn owned(&self, model: &Moves, number: usize) -> usize {
        let words = &self.nodes[..model.nodes.len()];
        let of = |word: &&u64| assignment_of(**word).site == site(number);
        words.iter().filter(of).count()
    }

    /// Nodes that are on their way to a site and have answered ever since they were moved.
    pub(crate) fn awaited(&self, model: &Moves, number: usize) -> usize {
        let words = self.nodes[..model.nodes.len()].iter().enumerate();
        let of = |(node, word): &(usize, &u64)| {
            let it = assignment_of(**word);
            it.site == site(number) && !it.is_serving() && self.away & 1 << node == 0
        };
        words.filter(of).count()
    }

    /// Every lock is free, and every node serves.
    pub(crate) fn is_at_rest(&self, model: &Moves) -> bool {
        let locks = self.locks[..model.sites.len()].iter();
        let mut nodes = self.nodes[..model.nodes.len()].iter();
        locks
            .copied()
            .all(|it| lock_of(it).state == LockState::Idle)
            && nodes.all(|it| assignment_of(*it).state == AssignmentState::Serving)
    }
}

impl Moves {
    /// Without a commit step, a lock is still at TAKE when a front-end believes it at COMMIT.
    fn as_written(&self, lock: SiteLock) -> SiteLock {
        let is_commit = matches!(lock.state, LockState::Receives(LockPhase::Commit, _));
        match is_commit && self.protocol == Protocol::NoCommit {
            true => lock.in_phase(LockPhase::Take),
            false => lock,
        }
    }
}
