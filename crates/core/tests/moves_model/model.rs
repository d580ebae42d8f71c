//! What can happen next, what comes of it, and what must never be the case.

use stateright::{Model, Property};
use tidegate_core::moves::lease::first_assignment;
use tidegate_core::moves::steps::{Attempt, MoveOp, MoveReply};
use tidegate_core::moves::words::{LockPhase, LockState};
use tidegate_core::time::Timestamp;

use crate::paper::PaperAttempt;
use crate::world::{FrontEnd, Moves, Protocol, World, assignment_of, lock_of, site, takes};

/// One thing that happens. Numbers are those of front-ends, sites, nodes and late datagrams. A front-end pauses
/// while others act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A front-end begins to look at a site.
    Look(u8, u8),
    /// It reads the next lock.
    Read(u8),
    /// It has read all locks, reads all nodes and wants one of them.
    Begin(u8, u8),
    /// It sees no reason to move one.
    Leave(u8),
    /// It has seen the lock of a site stand still for long enough.
    Help(u8, u8),
    /// Its operation is carried out, and the answer arrives.
    Act(u8),
    /// As before, and a copy of the operation is still under way.
    ActTwice(u8),
    /// Its operation is under way, and the answer does not come.
    Lose(u8),
    /// The node that it asks is silent; the operation may still arrive.
    Silence(u8),
    /// It dies, before its operation was sent or after.
    Crash(u8, bool),
    /// A late operation arrives.
    Arrive(u8),
    /// A node serves its new site.
    Serve(u8),
    /// A node goes back to the site that it was to leave.
    Revert(u8),
    /// A node cannot be reached.
    Down(u8),
    /// It can be again.
    Up(u8),
    /// It is back with words begun anew.
    Restart(u8),
}

impl Event {
    /// Whether it is a fault: from every state, rest must be within reach without one.
    pub(crate) fn is_fault(self) -> bool {
        match self {
            Self::ActTwice(_)
            | Self::Lose(_)
            | Self::Crash(..)
            | Self::Down(_)
            | Self::Restart(_) => true,
            Self::Look(..)
            | Self::Read(_)
            | Self::Begin(..)
            | Self::Leave(_)
            | Self::Help(..)
            | Self::Act(_)
            | Self::Silence(_)
            | Self::Arrive(_)
            | Self::Serve(_)
            | Self::Revert(_)
            | Self::Up(_) => false,
        }
    }
}

/// Where a front-end is after the reply to its operation.
fn after(front_end: FrontEnd, reply: MoveReply) -> FrontEnd {
    match front_end {
        FrontEnd::Acts { attempt, overtaken } => match attempt.on_reply(reply, Timestamp::ZERO) {
            Ok(attempt) => FrontEnd::Acts { attempt, overtaken },
            Err(_) => FrontEnd::Rests,
        },
        FrontEnd::ActsLikeThePaper(attempt) => attempt
            .on_reply(reply)
            .map_or(FrontEnd::Rests, FrontEnd::ActsLikeThePaper),
        FrontEnd::Rests | FrontEnd::Reads { .. } => FrontEnd::Rests,
    }
}

impl Moves {
    fn op(&self, front_end: &FrontEnd) -> Option<MoveOp> {
        match front_end {
            FrontEnd::Acts { attempt, .. } => Some(attempt.op(&self.constitution)),
            FrontEnd::ActsLikeThePaper(attempt) => Some(attempt.op(&self.constitution)),
            FrontEnd::Rests | FrontEnd::Reads { .. } => None,
        }
    }

    fn events_of(&self, world: &World, place: u8, events: &mut Vec<Event>) {
        let (used, limits) = (&world.used, &self.limits);
        let front_end = &world.front_ends[usize::from(place)];
        match front_end {
            FrontEnd::Rests => {
                for number in 0..self.sites.len() {
                    let lock = lock_of(world.locks[number]);
                    let hot = self.sites[number].2 > 0;
                    match lock.state {
                        LockState::Idle if hot && lock.sequence.get() < self.sequence_max => {
                            events.push(Event::Look(place, number as u8));
                        }
                        LockState::Idle | LockState::Frozen => {}
                        LockState::Receives(..) | LockState::Gives(_) => {
                            if self.protocol != Protocol::Paper {
                                events.push(Event::Help(place, number as u8));
                            }
                        }
                    }
                }
                return;
            }
            FrontEnd::Reads { sites, .. } => {
                match sites[..self.sites.len()].iter().all(Option::is_some) {
                    false => events.push(Event::Read(place)),
                    true => {
                        let nodes = 0..self.nodes.len() as u8;
                        events.extend(nodes.map(|node| Event::Begin(place, node)));
                    }
                }
                events.push(Event::Leave(place));
                return;
            }
            FrontEnd::Acts { .. } | FrontEnd::ActsLikeThePaper(_) => {}
        }
        let op = self.op(front_end).expect("one that acts has an operation");
        let node = match op {
            MoveOp::ReadNode(node) | MoveOp::SwapNode { node, .. } => Some(node.index()),
            MoveOp::ReadLock(_) | MoveOp::SwapLock { .. } | MoveOp::CountUpdate(_) => None,
        };
        match node.is_some_and(|node| !world.is_up(node)) {
            true => events.push(Event::Silence(place)),
            false => events.push(Event::Act(place)),
        }
        let is_read = matches!(op, MoveOp::ReadNode(_) | MoveOp::ReadLock(_));
        if used.copies < limits.copies && !is_read {
            events.push(Event::ActTwice(place));
        }
        if used.losses < limits.losses {
            events.push(Event::Lose(place));
            if node.is_some_and(|node| world.is_up(node)) {
                events.push(Event::Silence(place));
            }
        }
        if used.crashes < limits.crashes {
            events.push(Event::Crash(place, false));
            if !is_read {
                events.push(Event::Crash(place, true));
            }
        }
    }

    fn events_of_node(&self, world: &World, node: u8, events: &mut Vec<Event>) {
        let (used, limits) = (&world.used, &self.limits);
        let assignment = assignment_of(world.nodes[usize::from(node)]);
        if !world.is_up(usize::from(node)) {
            events.push(Event::Up(node));
            if used.restarts < limits.restarts {
                events.push(Event::Restart(node));
            }
            return;
        }
        if !assignment.is_serving() {
            events.push(Event::Serve(node));
            if used.reverts < limits.reverts {
                events.push(Event::Revert(node));
            }
        }
        if used.outages < limits.outages {
            events.push(Event::Down(node));
        }
    }

    fn begin_move(&self, world: &World, place: usize, node: usize) -> Option<FrontEnd> {
        let FrontEnd::Reads {
            site,
            window,
            sites,
            overtaken,
        } = world.front_ends[place]
        else {
            return None;
        };
        let plan = self.plan(world, &window, &sites, site, node)?;
        Some(match self.protocol {
            Protocol::Paper | Protocol::PaperWithLease => {
                FrontEnd::ActsLikeThePaper(PaperAttempt::Lock(plan))
            }
            Protocol::Ours
            | Protocol::NoCommit
            | Protocol::NoAgeLimit
            | Protocol::LateBirth
            | Protocol::CountsAwaited => FrontEnd::Acts {
                attempt: Attempt::begin(plan, Timestamp::ZERO),
                overtaken,
            },
        })
    }

    /// A lock has stood still for its lease, or for the fence: then no swap for it is young enough any more.
    fn help(&self, world: &mut World, number: usize) -> FrontEnd {
        let stood = lock_of(world.locks[number]);
        if self.protocol == Protocol::PaperWithLease {
            return FrontEnd::ActsLikeThePaper(PaperAttempt::TakeOver(site(number), stood));
        }
        if matches!(stood.state, LockState::Receives(LockPhase::Void, _)) {
            world.too_old[number] |= 1 << stood.sequence.get();
        }
        let attempt = Attempt::help(site(number), stood, Timestamp::ZERO);
        let acts = FrontEnd::Acts {
            attempt,
            overtaken: false,
        };
        after(acts, MoveReply::Held(world.locks[number]))
    }

    fn is_done(&self, op: MoveOp, reply: MoveReply) -> bool {
        matches!(op, MoveOp::SwapLock { expected, .. } if reply == MoveReply::Held(expected.pack()))
    }

    /// Carries out what a front-end wants; whether it was done on evidence from before a move.
    fn act(&self, world: &mut World, place: usize) {
        let front_end = world.front_ends[place];
        let op = self.op(&front_end).expect("one that acts has an operation");
        let reply = world.carry_out(self, op, false);
        let is_overtaken = matches!(
            front_end,
            FrontEnd::Acts {
                overtaken: true,
                ..
            }
        );
        let is_done = self.is_done(op, reply);
        world.broken.took_on_old_evidence |= is_overtaken && takes(&op) && is_done;
        // What was carried out may have been noted in the others; this one goes on from where it was.
        world.set_front_end(place, after(front_end, reply));
    }
}

impl Model for Moves {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![self.begin()]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        for place in 0..world.front_ends.len() {
            // Those at rest are all alike.
            let before = place.checked_sub(1).map(|it| world.front_ends[it]);
            if before != Some(world.front_ends[place]) {
                self.events_of(world, place as u8, events);
            }
        }
        events.extend((0..world.late.len()).map(|it| Event::Arrive(it as u8)));
        for node in 0..self.nodes.len() {
            self.events_of_node(world, node as u8, events);
        }
    }

    fn next_state(&self, last: &World, event: Event) -> Option<World> {
        let mut world = last.clone();
        self.apply(&mut world, event)?;
        world.tidy(self);
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "A1 a taken lock moves one node at most",
                |_, world: &World| !world.broken.lock_moved_twice,
            ),
            Property::always(
                "A2 one node is on its way to a site",
                |model: &Self, world: &World| {
                    (0..model.sites.len()).all(|site| world.awaited(model, site) <= 1)
                },
            ),
            Property::always(
                "A3 floors and ceilings hold",
                |model: &Self, world: &World| {
                    let rules = model.sites.iter().enumerate();
                    rules.into_iter().all(|(site, (floor, ceiling, _))| {
                        let owned = world.owned(model, site);
                        (usize::from(*floor)..=usize::from(*ceiling)).contains(&owned)
                    })
                },
            ),
            Property::always("A4 no word comes back", |_, world: &World| {
                !world.broken.word_came_back
            }),
            Property::always("A7 no lock is taken on old evidence", |_, world: &World| {
                !world.broken.took_on_old_evidence
            }),
        ]
    }
}

impl Moves {
    fn apply(&self, world: &mut World, event: Event) -> Option<()> {
        let place = |it: u8| usize::from(it);
        match event {
            Event::Look(it, number) => {
                let looks = self.look(world, place(number));
                world.set_front_end(place(it), looks);
            }
            Event::Read(it) => self.read(world, place(it))?,
            Event::Begin(it, node) => {
                let begun = self.begin_move(world, place(it), place(node))?;
                world.set_front_end(place(it), begun);
            }
            Event::Leave(it) => world.set_front_end(place(it), FrontEnd::Rests),
            Event::Help(it, number) => {
                let helps = self.help(world, place(number));
                world.set_front_end(place(it), helps);
            }
            Event::Act(it) => self.act(world, place(it)),
            Event::ActTwice(it) => {
                world.used.copies += 1;
                let op = self.op(&world.front_ends[place(it)])?;
                self.act(world, place(it));
                world.late.push(op);
            }
            Event::Lose(it) => {
                world.used.losses += 1;
                world.late.extend(self.op(&world.front_ends[place(it)]));
                world.set_front_end(place(it), FrontEnd::Rests);
            }
            Event::Silence(it) => self.silence(world, place(it))?,
            Event::Crash(it, sent) => {
                world.used.crashes += 1;
                let op = self.op(&world.front_ends[place(it)]).filter(|_| sent);
                world.late.extend(op);
                world.set_front_end(place(it), FrontEnd::Rests);
            }
            Event::Arrive(it) => {
                let op = world.late.remove(place(it));
                world.carry_out(self, op, true);
            }
            Event::Serve(node) => {
                let served = assignment_of(world.nodes[place(node)]).served();
                world.assign(place(node), served);
            }
            Event::Revert(node) => {
                world.used.reverts += 1;
                let before = assignment_of(world.nodes[place(node)]);
                world.assign(place(node), before.reverted(None));
            }
            Event::Down(node) => {
                world.used.outages += 1;
                world.down |= 1 << node;
                world.away |= 1 << node;
            }
            Event::Up(node) => world.down &= !(1 << node),
            Event::Restart(node) => {
                world.used.restarts += 1;
                world.down &= !(1 << node);
                let before = assignment_of(world.nodes[place(node)]);
                let again = first_assignment(Some(before), before.site);
                world.assign(place(node), again);
            }
        }
        Some(())
    }

    fn read(&self, world: &mut World, place: usize) -> Option<()> {
        let mut front_end = world.front_ends[place];
        let FrontEnd::Reads { sites, .. } = &mut front_end else {
            return None;
        };
        self.read_next(world, sites);
        world.set_front_end(place, front_end);
        Some(())
    }

    fn silence(&self, world: &mut World, place: usize) -> Option<()> {
        let front_end = world.front_ends[place];
        let op = self.op(&front_end)?;
        let (MoveOp::ReadNode(node) | MoveOp::SwapNode { node, .. }) = op else {
            return None;
        };
        world.used.losses += u8::from(world.is_up(node.index()));
        world.late.push(op);
        world.set_front_end(place, after(front_end, MoveReply::Silent));
        Some(())
    }
}
