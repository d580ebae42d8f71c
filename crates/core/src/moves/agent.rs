//! A node's agent in a move: it says when no connection is left, has its servers set up once, and says what came of it.
//!
//! ```text
//! A DRAINING    connections = 0 at two looks in a row -> drained; it stays so for this generation
//! A SWITCHING   drained first, as above; then the hook runs, once per generation -> done | failed with its exit code
//! A SERVING s   servers set up for another site than s: the hook runs for s, once per generation (a move was taken back)
//! B             generation, step, connections, exit code, whether it has hooks: written when it changes, after what must outlive
//!               the agent
//! kept          generation, site, whether it is lent, and the hook that was ordered last, on the disk before B says anything of it
//! start         A blank: kept generation + 1, serving the kept site; without a file front-ends say where it begins
//! began behind  A SERVING in the very generation whose hook an agent before this one ordered, and servers set up otherwise:
//!               A -> generation + 1, for which the hook runs
//! unsure        a hook was cut off, or could not be undone: whatever site the node serves next, the hook runs for it
//! ```
//!
//! An older generation than the last one is an old value and changes nothing. Steps only grow within a generation.
//!
//! Inputs: the node's word A, connections on the service's port, the end of a hook, what was kept. What it does not know:
//! sockets, processes, files. Failure case: connections that cannot be counted leave the node undrained, so each move of it is
//! taken back. A hook that was under way when the agent ended counts as cut off, and the front-end takes the move back.
//! Source: not in Reconfiguration-2004, whose load balancer configures the server by itself.

use super::words::{
    AgentStatus, AgentStep, Assignment, AssignmentState, CONNECTIONS_MAX, Count24, MoveCause,
    SiteNumber,
};

/// Looks in a row without a connection after which a node is drained: a request between two of them leaves its
/// connection in one.
const DRAINED_LOOKS: u32 = 2;

/// What of an assignment outlives its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptAssignment {
    /// Its generation.
    pub generation: Count24,
    /// The site that the node's servers are set up for.
    pub site: SiteNumber,
    /// Whether that is another one's node.
    pub lent: bool,
    /// Of which generation the hook was that was ordered last; zero: none was.
    pub hook: Count24,
    /// Whether the servers are known to be set up for the site: not while a hook runs, nor after one that was cut off.
    pub is_sure: bool,
}

impl KeptAssignment {
    /// What a blank word A becomes: no generation comes back.
    pub fn republished(self) -> Assignment {
        Assignment {
            cause: MoveCause::Start,
            ..Assignment::first(self.generation.next(), self.site, self.lent)
        }
    }
}

/// What an agent sees at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentView {
    /// A; none while it is blank.
    pub assignment: Option<Assignment>,
    /// Established connections on the service's port; none if they cannot be counted.
    pub connections: Option<u32>,
    /// The hook that was ordered has ended.
    pub ended: Option<HookEnd>,
}

/// How a hook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookEnd {
    /// Its exit code, 0 if all is well; none if it did not start, ran out of time or was killed.
    pub exit_code: Option<u8>,
    /// Whether what it had changed is undone, of one that failed.
    pub is_undone: bool,
}

/// A hook that is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookOrder {
    /// For which generation.
    pub generation: Count24,
    /// The site that the servers are to serve.
    pub site: SiteNumber,
    /// The one that they have served, as far as is known.
    pub from: Option<SiteNumber>,
}

/// What an agent does after a look, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentTurn {
    /// What A becomes, if it still holds what was looked at. There is nothing else to do then.
    pub renumbered: Option<Assignment>,
    /// What is to be on the disk first.
    pub keep: Option<KeptAssignment>,
    /// What B becomes.
    pub status: Option<AgentStatus>,
    /// The hook that begins.
    pub run: Option<HookOrder>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct AgentPart {
    has_hook: bool,
    kept: Option<KeptAssignment>,
    /// The site that the servers are set up for.
    set_up: Option<SiteNumber>,
    /// They may be set up otherwise.
    is_unsure: bool,
    /// Of the hook that was ordered last.
    ordered: Count24,
    /// The newest generation that was seen.
    generation: Count24,
    quiet_looks: u32,
    /// The hook that was ordered and has not ended.
    running: Option<HookOrder>,
    step: AgentStep,
    exit_code: u8,
    told: Option<AgentStatus>,
}

impl AgentPart {
    /// An agent that begins with what the one before it has kept.
    pub fn new(has_hook: bool, kept: Option<KeptAssignment>) -> Self {
        Self {
            has_hook,
            kept,
            set_up: kept.filter(|it| it.is_sure).map(|it| it.site),
            is_unsure: kept.is_some_and(|it| !it.is_sure),
            ordered: kept.map_or(Count24::ZERO, |it| it.hook),
            generation: Count24::ZERO,
            quiet_looks: 0,
            running: None,
            step: AgentStep::Begun,
            exit_code: 0,
            told: None,
        }
    }

    /// Takes in a look; says what is to be done.
    pub fn look(&mut self, view: &AgentView) -> AgentTurn {
        if let Some(end) = view.ended {
            self.on_end(end);
        }
        let Some(assignment) = view.assignment else {
            return AgentTurn::default();
        };
        if !self.follows(assignment.generation) {
            return AgentTurn::default();
        }
        if self.was_begun_before(assignment) {
            return AgentTurn {
                renumbered: Some(assignment.renumbered()),
                ..AgentTurn::default()
            };
        }
        let run = match assignment.state {
            AssignmentState::Serving => self.serves(assignment),
            AssignmentState::Draining { .. } => {
                self.drain(view.connections);
                None
            }
            AssignmentState::Switching { from } => {
                self.drain(view.connections);
                self.switch(assignment, from)
            }
        };
        AgentTurn {
            renumbered: None,
            keep: self.keep(assignment),
            status: self.tell(view.connections),
            run,
        }
    }

    /// Whether it is of the newest generation.
    fn follows(&mut self, generation: Count24) -> bool {
        if generation == self.generation {
            return true;
        }
        if self.generation != Count24::ZERO && !generation.is_after(self.generation) {
            return false;
        }
        self.generation = generation;
        // What takes the move back shows why, to front-ends that have not looked since.
        let kept = match self.step {
            AgentStep::HookFailed => self.exit_code,
            AgentStep::Begun | AgentStep::Drained | AgentStep::HookRuns | AgentStep::HookDone => 0,
        };
        (self.quiet_looks, self.step, self.exit_code) = (0, AgentStep::Begun, kept);
        true
    }

    fn drain(&mut self, connections: Option<u32>) {
        if self.step != AgentStep::Begun {
            return;
        }
        self.quiet_looks = match connections {
            Some(0) => self.quiet_looks + 1,
            Some(_) | None => 0,
        };
        if self.quiet_looks >= DRAINED_LOOKS {
            self.step = AgentStep::Drained;
        }
    }

    fn switch(&mut self, assignment: Assignment, from: SiteNumber) -> Option<HookOrder> {
        match self.step {
            AgentStep::Drained if self.has_hook => self.order(assignment.site, Some(from)),
            AgentStep::Begun
            | AgentStep::Drained
            | AgentStep::HookRuns
            | AgentStep::HookDone
            | AgentStep::HookFailed => None,
        }
    }

    /// A node that serves: its servers are set up for that site, or are to be.
    fn serves(&mut self, assignment: Assignment) -> Option<HookOrder> {
        let site = assignment.site;
        if !self.is_unsure {
            self.set_up.get_or_insert(site);
        }
        match self.wants_hook(site) {
            true => self.order(site, self.set_up),
            false => None,
        }
    }

    fn wants_hook(&self, site: SiteNumber) -> bool {
        let is_set_up = self.set_up == Some(site) || (self.set_up.is_none() && !self.is_unsure);
        !is_set_up && self.has_hook && self.step == AgentStep::Begun
    }

    /// Whether a node that serves has to be set up in a generation whose hook an agent before this one ordered. A front-end that
    /// had not seen the move, or had lost its words too, begins a blank word like that; and no front-end takes it back.
    fn was_begun_before(&self, assignment: Assignment) -> bool {
        let is_ordered = self.ordered == self.generation && self.running.is_none();
        assignment.is_serving() && is_ordered && self.wants_hook(assignment.site)
    }

    /// One hook at a time: one of an older generation ends first. One that an agent before this one has begun is not
    /// begun again.
    fn order(&mut self, site: SiteNumber, from: Option<SiteNumber>) -> Option<HookOrder> {
        if self.running.is_some() {
            return None;
        }
        if self.ordered == self.generation {
            (self.step, self.exit_code) = (AgentStep::HookFailed, u8::MAX);
            return None;
        }
        self.ordered = self.generation;
        self.step = AgentStep::HookRuns;
        self.running = Some(HookOrder {
            generation: self.generation,
            site,
            from,
        });
        self.running
    }

    /// What a hook has set up is set up, whatever the generation is by now.
    fn on_end(&mut self, end: HookEnd) {
        let Some(order) = self.running.take() else {
            return;
        };
        let is_well = end.exit_code == Some(0);
        if is_well {
            (self.set_up, self.is_unsure) = (Some(order.site), false);
        } else if !end.is_undone {
            (self.set_up, self.is_unsure) = (None, true);
        }
        if order.generation == self.generation {
            self.exit_code = end.exit_code.unwrap_or(u8::MAX);
            self.step = match is_well {
                true => AgentStep::HookDone,
                false => AgentStep::HookFailed,
            };
        }
    }

    /// What is to be on the disk, if it is not: the generation, and what the servers serve.
    fn keep(&mut self, assignment: Assignment) -> Option<KeptAssignment> {
        let old = assignment.from().unwrap_or(assignment.site);
        let site = match self.has_hook {
            true => self.set_up.unwrap_or(old),
            false => old,
        };
        let before = self.kept.filter(|it| it.site == site);
        let lent = match site == assignment.site {
            true => assignment.lent,
            false => before.is_some_and(|it| it.lent),
        };
        let keep = KeptAssignment {
            generation: self.generation,
            site,
            lent,
            hook: self.ordered,
            is_sure: !self.is_unsure && self.running.is_none(),
        };
        (self.kept.replace(keep) != Some(keep)).then_some(keep)
    }

    /// B, if it is to change.
    fn tell(&mut self, connections: Option<u32>) -> Option<AgentStatus> {
        let status = AgentStatus {
            generation: self.generation,
            step: self.step,
            connections: connections.unwrap_or(0).min(CONNECTIONS_MAX),
            exit_code: self.exit_code,
            has_hooks: self.has_hook,
        };
        (self.told.replace(status) != Some(status)).then_some(status)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lease::first_assignment;
    use super::*;
    use crate::prng::Prng;

    const X: SiteNumber = SiteNumber(0);
    const Y: SiteNumber = SiteNumber(1);

    fn serves(generation: u32, site: SiteNumber) -> Assignment {
        Assignment::first(Count24::new(generation), site, false)
    }

    /// From y to x.
    fn drains(generation: u32) -> Assignment {
        Assignment {
            state: AssignmentState::Draining { from: Y },
            lent: true,
            ..serves(generation, X)
        }
    }

    fn view(assignment: Assignment, connections: u32) -> AgentView {
        AgentView {
            assignment: Some(assignment),
            connections: Some(connections),
            ended: None,
        }
    }

    fn ended(assignment: Assignment, exit_code: Option<u8>) -> AgentView {
        AgentView {
            ended: Some(HookEnd {
                exit_code,
                is_undone: true,
            }),
            ..view(assignment, 0)
        }
    }

    fn step(turn: AgentTurn) -> (u32, AgentStep) {
        let status = turn.status.unwrap();
        (status.generation.get(), status.step)
    }

    fn kept(generation: u32, site: SiteNumber, lent: bool) -> Option<KeptAssignment> {
        Some(KeptAssignment {
            generation: Count24::new(generation),
            site,
            lent,
            hook: Count24::ZERO,
            is_sure: true,
        })
    }

    /// The same after the hook of this generation was ordered.
    fn kept_after(generation: u32, site: SiteNumber, is_sure: bool) -> Option<KeptAssignment> {
        kept(generation, site, false).map(|it| KeptAssignment {
            hook: Count24::new(generation),
            is_sure,
            ..it
        })
    }

    /// An agent whose node drains, and is drained.
    fn drained(has_hook: bool) -> AgentPart {
        let mut agent = AgentPart::new(has_hook, None);
        agent.look(&view(serves(4, Y), 7));
        for connections in [3, 0, 0] {
            agent.look(&view(drains(5), connections));
        }
        agent
    }

    #[test]
    fn a_node_is_drained_after_two_looks_without_a_connection_and_stays_so() {
        let mut agent = AgentPart::new(true, None);
        let turn = agent.look(&view(serves(4, Y), 7));
        assert_eq!(turn.keep, kept(4, Y, false));
        let turn = agent.look(&view(drains(5), 3));
        assert_eq!(turn.status.map(|it| it.connections), Some(3));
        assert_eq!(turn.keep, kept(5, Y, false), "it still serves that");
        for (connections, expected) in [
            (0, AgentStep::Begun),
            (1, AgentStep::Begun),
            (0, AgentStep::Begun),
            (0, AgentStep::Drained),
            (2, AgentStep::Drained),
        ] {
            let turn = agent.look(&view(drains(5), connections));
            assert_eq!(step(turn), (5, expected), "{connections}");
        }
        let unknown = AgentView {
            connections: None,
            ..view(drains(6), 0)
        };
        for _ in 0..5 {
            agent.look(&unknown);
        }
        assert_eq!(agent.step, AgentStep::Begun, "what cannot be counted");
        assert_eq!(agent.look(&unknown), AgentTurn::default(), "nothing new");
    }

    #[test]
    fn the_hook_runs_once_and_its_end_is_said() {
        for (exit_code, expected) in [
            (Some(0), AgentStep::HookDone),
            (Some(3), AgentStep::HookFailed),
            (None, AgentStep::HookFailed),
        ] {
            let mut agent = drained(true);
            let switching = drains(5).switching();
            let turn = agent.look(&view(switching, 0));
            let order = HookOrder {
                generation: Count24::new(5),
                site: X,
                from: Some(Y),
            };
            assert_eq!(turn.run, Some(order));
            assert_eq!(turn.keep, kept_after(5, Y, false), "before it begins");
            assert_eq!(step(turn), (5, AgentStep::HookRuns));
            assert_eq!(agent.look(&view(switching, 0)).run, None);
            let turn = agent.look(&ended(switching, exit_code));
            assert_eq!((turn.run, step(turn)), (None, (5, expected)));
            let code = turn.status.map(|it| it.exit_code);
            assert_eq!(code, Some(exit_code.unwrap_or(255)));
            let site = match exit_code {
                Some(0) => X,
                Some(_) | None => Y,
            };
            let keep = turn.keep.map(|it| (it.site, it.is_sure));
            assert_eq!(keep, Some((site, true)));
            assert_eq!(agent.look(&view(switching, 0)).run, None);
            // Why it failed is said for one generation more, which takes the move back.
            let failed = |turn: AgentTurn| turn.status.and_then(|it| it.failed(Count24::new(5)));
            let expected = exit_code
                .is_none_or(|it| it != 0)
                .then(|| exit_code.unwrap_or(255));
            assert_eq!(failed(agent.look(&view(serves(6, Y), 0))), expected);
            assert_eq!(failed(agent.look(&view(serves(7, Y), 0))), None);
        }
    }

    #[test]
    fn a_switch_that_nobody_has_drained_for_is_drained_first() {
        let mut agent = AgentPart::new(true, None);
        let switching = drains(5).switching();
        assert_eq!(agent.look(&view(switching, 1)).run, None);
        assert_eq!(agent.look(&view(switching, 0)).run, None);
        assert!(agent.look(&view(switching, 0)).run.is_some());
    }

    #[test]
    fn a_move_that_is_taken_back_after_its_hook_is_set_up_again() {
        let mut agent = drained(true);
        let switching = drains(5).switching();
        agent.look(&view(switching, 0));
        // The front-end has waited for too long.
        let back = serves(6, Y);
        assert_eq!(agent.look(&view(back, 0)).run, None, "one at a time");
        let turn = agent.look(&ended(back, Some(0)));
        let run = turn.run.map(|it| (it.generation.get(), it.site, it.from));
        assert_eq!(run, Some((6, Y, Some(X))));
        let turn = agent.look(&ended(back, Some(0)));
        assert_eq!(step(turn), (6, AgentStep::HookDone));
        assert_eq!(turn.keep, kept_after(6, Y, true));
        // One that failed has left all as it was.
        let mut agent = drained(true);
        agent.look(&view(switching, 0));
        agent.look(&ended(switching, Some(1)));
        assert_eq!(agent.look(&view(back, 0)).run, None);
    }

    /// The agent was killed while the hook of generation 5 ran. The blank word is begun by a front-end that had not seen that move.
    #[test]
    fn a_word_that_begins_in_the_generation_of_a_hook_that_was_cut_off_gets_a_later_one() {
        let begun = first_assignment(Some(serves(4, Y)), Y);
        assert_eq!(begun, serves(5, Y));
        let mut agent = AgentPart::new(true, kept_after(5, Y, false));
        let turn = agent.look(&view(begun, 0));
        let renumbered = AgentTurn {
            renumbered: Some(serves(6, Y)),
            ..AgentTurn::default()
        };
        assert_eq!(turn, renumbered);
        assert_eq!(agent.look(&view(begun, 0)), renumbered, "until it has it");
        let turn = agent.look(&view(serves(6, Y), 0));
        let run = turn.run.map(|it| (it.generation.get(), it.site, it.from));
        assert_eq!(run, Some((6, Y, None)));
        let turn = agent.look(&ended(serves(6, Y), Some(0)));
        assert_eq!(step(turn), (6, AgentStep::HookDone));
        // One that fails is not run again by itself.
        let mut agent = AgentPart::new(true, kept_after(5, Y, false));
        agent.look(&view(serves(6, Y), 0));
        let turn = agent.look(&ended(serves(6, Y), Some(1)));
        assert_eq!(step(turn), (6, AgentStep::HookFailed));
        let turn = agent.look(&view(serves(6, Y), 0));
        assert_eq!((turn.renumbered, turn.run), (None, None));
        // What is set up for its site needs none, whichever agent did that.
        let mut agent = AgentPart::new(true, kept_after(5, Y, true));
        let turn = agent.look(&view(begun, 0));
        assert_eq!((turn.renumbered, step(turn)), (None, (5, AgentStep::Begun)));
    }

    #[test]
    fn without_a_hook_a_node_serves_what_its_word_says() {
        for has_hook in [true, false] {
            let turn = AgentPart::new(has_hook, None).look(&view(serves(4, Y), 0));
            assert_eq!(turn.status.map(|it| it.has_hooks), Some(has_hook));
        }
        let mut agent = drained(false);
        let turn = agent.look(&view(drains(5).switching(), 0));
        assert_eq!(turn.run, None);
        let turn = agent.look(&view(drains(5).served(), 0));
        assert_eq!((turn.run, turn.keep), (None, kept(5, X, true)));
    }

    #[test]
    fn what_was_kept_begins_one_generation_later() {
        let of_file = kept(5, X, true).unwrap();
        let word = of_file.republished();
        assert_eq!((word.generation.get(), word.site, word.lent), (6, X, true));
        assert!(word.is_serving());
        // An older value of the word is no news.
        let mut agent = AgentPart::new(true, Some(of_file));
        agent.look(&view(word, 0));
        assert_eq!(agent.look(&view(serves(3, Y), 0)), AgentTurn::default());
        let blank = AgentView {
            assignment: None,
            ..view(word, 0)
        };
        assert_eq!(agent.look(&blank), AgentTurn::default());
        assert_eq!(agent.generation.get(), 6);
    }

    #[test]
    fn after_a_hook_that_was_cut_off_or_not_undone_it_runs_for_whatever_the_node_serves() {
        // The agent ended while the hook of generation 5 ran.
        for site in [X, Y] {
            let mut agent = AgentPart::new(true, kept_after(5, Y, false));
            let turn = agent.look(&view(serves(6, site), 0));
            let run = turn.run.map(|it| (it.generation.get(), it.site, it.from));
            assert_eq!(run, Some((6, site, None)));
            let turn = agent.look(&ended(serves(6, site), Some(0)));
            assert_eq!(turn.keep, kept_after(6, site, true));
        }
        // Its word is still there: the hook of a generation begins once, whichever agent begins it.
        let mut agent = AgentPart::new(true, kept_after(5, Y, false));
        let switching = drains(5).switching();
        agent.look(&view(switching, 0));
        let turn = agent.look(&view(switching, 0));
        assert_eq!((turn.run, step(turn)), (None, (5, AgentStep::HookFailed)));
        // One that could not be undone.
        let mut agent = drained(true);
        agent.look(&view(switching, 0));
        let cut = AgentView {
            ended: Some(HookEnd {
                exit_code: Some(1),
                is_undone: false,
            }),
            ..view(switching, 0)
        };
        agent.look(&cut);
        assert!(agent.look(&view(serves(6, Y), 0)).run.is_some());
    }

    /// A5, under whatever is seen in whatever order.
    #[test]
    fn a_hook_runs_once_per_generation_and_never_before_its_node_is_drained() {
        for seed in 0..300 {
            let mut prng = Prng::new(seed);
            let mut below = |count: u64| (prng.unit() * count as f64) as u64;
            let mut agent = AgentPart::new(true, None);
            let mut word = serves(1, Y);
            let (mut runs, mut orders) = (false, Vec::new());
            for _ in 0..400 {
                let generation = word.generation.get();
                word = match (below(8), word.state) {
                    (0, AssignmentState::Serving) if word.site == Y => drains(generation + 1),
                    (1, AssignmentState::Draining { .. }) => word.switching(),
                    (2, _) => word.reverted(Some(Y)),
                    (3, AssignmentState::Switching { .. }) => word.served(),
                    (4, AssignmentState::Serving) if word.site == X => serves(generation + 1, Y),
                    _ => word,
                };
                let connections = below(3) as u32;
                let ends = runs && below(3) == 0;
                let exit_code = [Some(0), Some(1), None][below(3) as usize];
                let seen = AgentView {
                    ended: ends.then_some(HookEnd {
                        exit_code,
                        is_undone: below(2) == 0,
                    }),
                    ..view(word, connections)
                };
                runs &= !ends;
                if let Some(order) = agent.look(&seen).run {
                    assert!(!runs, "one at a time: seed {seed}");
                    assert_eq!(order.generation, word.generation, "seed {seed}");
                    assert_eq!(order.site, word.site, "seed {seed}");
                    let drained = agent.quiet_looks >= DRAINED_LOOKS || word.is_serving();
                    assert!(drained, "seed {seed}");
                    orders.push(order.generation.get());
                    runs = true;
                }
            }
            let mut once = orders.clone();
            once.dedup();
            assert_eq!(once, orders, "seed {seed}");
            assert!(orders.is_sorted(), "seed {seed}");
        }
    }
}
