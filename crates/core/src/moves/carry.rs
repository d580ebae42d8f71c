//! What carries a moved node forward: it ends the requests of its old site, its servers are set up, it serves the new one.
//!
//! ```text
//! DRAINING   drained: the agent says so for this generation; without an agent: all front-ends' requests in flight at
//!            the node are 0 for 1.25 s (a slot's life, and a quarter; `quiet.rs`);  -> SWITCHING, without a hook -> SERVING
//!            older than `drain`: -> (gen + 1, SERVING, back)
//! SWITCHING  the agent's hook ended well -> SERVING;  failed, or silent for the hook's limit + 5 s -> back, barred 60 s
//! SERVING    the node joins its site and ramps over `warm_up` from when this front-end has it there (`director/slow_start.rs`)
//! turn       the front-end that moved it at once, any other after a lease: all swap from the same word, so one does
//! ```
//!
//! A node never serves its old site less well than before until it is drained, and a move that cannot be carried through is
//! taken back: it costs the move, never a request. The hook adds the new site before anything of the old one goes.
//!
//! Inputs: the node's word and when this front-end first saw it, the agent's word, requests in flight. Failure case: a
//! connection that is never closed (a tunnel) costs each move of its node, by the deadline. An agent that dies after its hook
//! and before it said so has the move taken back although the node could serve.
//! Source: not in Reconfiguration-2004, whose nodes serve any site at once; HAProxy drains and ramps likewise.

use std::time::Duration;

use super::numbering::Constitution;
use super::words::{AgentStatus, AgentStep, Assignment, AssignmentState, NodeNumber, SiteNumber};
use crate::time::Timestamp;

/// Without an agent, a node is drained when no front-end has had a request there for so long.
pub const QUIET: Duration = Duration::from_millis(1250);
/// How much longer than the hook may run its agent is waited for.
const HOOK_GRACE: Duration = Duration::from_secs(5);
/// How long a node is not moved after its hook failed.
pub const BARRED: Duration = Duration::from_secs(60);

/// How moved nodes are carried forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarryConfig {
    /// How long a node may take to end its old site's requests.
    pub drain: Duration,
    /// How long a hook may run; `None`: there is none.
    pub hook: Option<Duration>,
    /// How long a front-end that did not move the node waits for the one that did.
    pub lease: Duration,
}

/// What a front-end sees of a node that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarryView {
    /// Its word.
    pub assignment: Assignment,
    /// When the word was first seen like that.
    pub since: Timestamp,
    /// Whether this front-end moved it.
    pub is_mover: bool,
    /// The agent's word, if the node has an agent that writes one.
    pub agent: Option<AgentStatus>,
    /// Since when all front-ends have had no request there, as far as is known.
    pub quiet_since: Option<Timestamp>,
}

/// Why a node's word changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarryCause {
    /// It is drained.
    Drained,
    /// Its servers are set up, or needed nothing.
    Ready,
    /// It did not drain in time.
    DrainTooLong,
    /// Its hook failed.
    HookFailed,
    /// Its agent does not say what became of the hook.
    HookSilent,
}

/// A swap of a node's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// What it becomes.
    pub new: Assignment,
    /// Why.
    pub cause: CarryCause,
    /// Until then it is not moved again by load.
    pub barred_until: Option<Timestamp>,
}

/// What becomes of a node on its way, if anything does now.
pub fn carry(
    view: &CarryView,
    node: NodeNumber,
    constitution: &Constitution,
    config: &CarryConfig,
    now: Timestamp,
) -> Option<Carried> {
    let age = now.since(view.since);
    if !view.is_mover && age < config.lease {
        return None;
    }
    let cause = match view.assignment.state {
        AssignmentState::Serving => return None,
        AssignmentState::Draining { .. } => draining(view, config, age, now)?,
        AssignmentState::Switching { .. } => switching(view, config, age)?,
    };
    let reverted = || view.assignment.reverted(constitution.home(node));
    let (new, barred_until) = match cause {
        CarryCause::Drained => (view.assignment.switching(), None),
        CarryCause::Ready => (view.assignment.served(), None),
        CarryCause::DrainTooLong => (reverted(), None),
        CarryCause::HookFailed | CarryCause::HookSilent => (reverted(), Some(now + BARRED)),
    };
    Some(Carried {
        new,
        cause,
        barred_until,
    })
}

/// What the agent says of this generation.
fn step_of(view: &CarryView) -> Option<AgentStep> {
    let agent = view.agent?;
    (agent.generation == view.assignment.generation).then_some(agent.step)
}

fn draining(
    view: &CarryView,
    config: &CarryConfig,
    age: Duration,
    now: Timestamp,
) -> Option<CarryCause> {
    let is_drained = match view.agent {
        Some(_) => step_of(view).is_some_and(|it| it != AgentStep::Begun),
        None => view.quiet_since.is_some_and(|since| {
            // What was quiet before the drain began may have been asked since.
            now.since(since.max(view.since)) >= QUIET
        }),
    };
    match is_drained {
        true if config.hook.is_some() => Some(CarryCause::Drained),
        true => Some(CarryCause::Ready),
        false => (age >= config.drain).then_some(CarryCause::DrainTooLong),
    }
}

fn switching(view: &CarryView, config: &CarryConfig, age: Duration) -> Option<CarryCause> {
    let limit = config.hook.unwrap_or_default() + HOOK_GRACE;
    match step_of(view) {
        Some(AgentStep::HookDone) => Some(CarryCause::Ready),
        Some(AgentStep::HookFailed) => Some(CarryCause::HookFailed),
        Some(AgentStep::Begun | AgentStep::Drained | AgentStep::HookRuns) | None => {
            (age >= limit).then_some(CarryCause::HookSilent)
        }
    }
}

/// What a front-end does with a node whose word it sees change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeTurn {
    /// No new requests of this site, whatever its other nodes do; idle connections are closed.
    Leaves(SiteNumber),
    /// It serves this site and ramps, from now on.
    Joins(SiteNumber),
}

/// What follows from a node's word, after the word that was known before.
pub fn turns(before: Option<Assignment>, after: Assignment) -> [Option<NodeTurn>; 2] {
    let served = before.filter(|it| it.is_serving()).map(|it| it.site);
    let serves = after.is_serving().then_some(after.site);
    if served == serves {
        return [None, None];
    }
    [served.map(NodeTurn::Leaves), serves.map(NodeTurn::Joins)]
}

#[cfg(test)]
mod tests {
    use super::super::numbering::{MovableNode, SiteRules};
    use super::super::words::{Count24, MoveCause};
    use super::*;

    const X: SiteNumber = SiteNumber(0);
    const Y: SiteNumber = SiteNumber(1);
    const N: NodeNumber = NodeNumber(0);

    fn constitution() -> Constitution {
        let site = |name: &str| SiteRules {
            name: name.into(),
            floor: 0,
            ceiling: 9,
            priority: 0,
        };
        let node = MovableNode {
            name: "n".into(),
            home: "y".into(),
        };
        Constitution::new(vec![site("x"), site("y")], vec![node], true, 1).unwrap()
    }

    fn config() -> CarryConfig {
        CarryConfig {
            drain: Duration::from_secs(5),
            hook: Some(Duration::from_secs(10)),
            lease: Duration::from_millis(30),
        }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1000 + millis)
    }

    fn drains() -> CarryView {
        CarryView {
            assignment: Assignment {
                state: AssignmentState::Draining { from: Y },
                cause: MoveCause::Load,
                lent: true,
                ..Assignment::first(Count24::new(5), X, false)
            },
            since: at(0),
            is_mover: true,
            agent: None,
            quiet_since: None,
        }
    }

    fn switches() -> CarryView {
        CarryView {
            assignment: drains().assignment.switching(),
            ..drains()
        }
    }

    fn agent(generation: u32, step: AgentStep) -> Option<AgentStatus> {
        Some(AgentStatus {
            generation: Count24::new(generation),
            step,
            connections: 0,
            exit_code: 0,
            has_hooks: true,
        })
    }

    fn cause(view: CarryView, millis: u64) -> Option<CarryCause> {
        let carried = carry(&view, N, &constitution(), &config(), at(millis));
        carried.map(|it| it.cause)
    }

    #[test]
    fn an_agent_says_when_its_node_is_drained() {
        let with = |agent| CarryView { agent, ..drains() };
        assert_eq!(cause(with(agent(5, AgentStep::Begun)), 100), None);
        assert_eq!(cause(with(agent(4, AgentStep::Drained)), 100), None);
        let drained = with(agent(5, AgentStep::Drained));
        assert_eq!(cause(drained, 100), Some(CarryCause::Drained));
        let quiet = CarryView {
            quiet_since: Some(at(0)),
            ..with(agent(5, AgentStep::Begun))
        };
        assert_eq!(cause(quiet, 4000), None, "the agent counts more than we do");
    }

    #[test]
    fn without_an_agent_no_request_for_a_slots_life_is_drained() {
        let quiet = |since| CarryView {
            quiet_since: Some(since),
            ..drains()
        };
        assert_eq!(cause(quiet(at(100)), 1349), None);
        assert_eq!(cause(quiet(at(100)), 1350), Some(CarryCause::Drained));
        let before = Timestamp::from_millis(1);
        assert_eq!(cause(quiet(before), 1249), None, "since the drain began");
        assert_eq!(cause(quiet(before), 1250), Some(CarryCause::Drained));
    }

    #[test]
    fn a_drain_that_lasts_too_long_costs_the_move() {
        assert_eq!(cause(drains(), 4999), None);
        let carried = carry(&drains(), N, &constitution(), &config(), at(5000)).unwrap();
        assert_eq!(carried.cause, CarryCause::DrainTooLong);
        let new = carried.new;
        assert_eq!((new.site, new.generation.get()), (Y, 6));
        assert!(new.is_serving() && !new.lent);
        assert_eq!(new.cause, MoveCause::Revert);
        assert_eq!(carried.barred_until, None);
    }

    #[test]
    fn without_a_hook_a_drained_node_serves() {
        let view = CarryView {
            agent: agent(5, AgentStep::Drained),
            ..drains()
        };
        let without = CarryConfig {
            hook: None,
            ..config()
        };
        let carried = carry(&view, N, &constitution(), &without, at(10)).unwrap();
        assert_eq!(carried.cause, CarryCause::Ready);
        assert_eq!(carried.new, view.assignment.served());
        assert_eq!(carried.new.generation.get(), 5, "the same move");
    }

    #[test]
    fn a_hook_ends_well_fails_or_is_silent() {
        let with = |step| CarryView {
            agent: agent(5, step),
            ..switches()
        };
        assert_eq!(cause(with(AgentStep::HookRuns), 14_999), None);
        assert_eq!(
            cause(with(AgentStep::HookRuns), 15_000),
            Some(CarryCause::HookSilent)
        );
        assert_eq!(cause(switches(), 15_000), Some(CarryCause::HookSilent));
        assert_eq!(
            cause(with(AgentStep::HookDone), 50),
            Some(CarryCause::Ready)
        );
        let failed = with(AgentStep::HookFailed);
        let carried = carry(&failed, N, &constitution(), &config(), at(50)).unwrap();
        assert_eq!(carried.cause, CarryCause::HookFailed);
        assert_eq!(carried.new.site, Y);
        assert_eq!(carried.barred_until, Some(at(50) + BARRED));
    }

    #[test]
    fn others_wait_for_the_front_end_that_moved_the_node() {
        let other = CarryView {
            is_mover: false,
            agent: agent(5, AgentStep::Drained),
            ..drains()
        };
        assert_eq!(cause(other, 29), None);
        assert_eq!(cause(other, 30), Some(CarryCause::Drained));
        let serves = CarryView {
            assignment: drains().assignment.served(),
            ..drains()
        };
        assert_eq!(cause(serves, 60_000), None);
    }

    #[test]
    fn a_node_leaves_one_site_and_joins_the_other_once() {
        let on_its_way = drains().assignment;
        let serves_y = Assignment::first(Count24::new(4), Y, false);
        let of = |before: Option<Assignment>, after| turns(before, after);
        let leaves = Some(NodeTurn::Leaves(Y));
        assert_eq!(of(Some(serves_y), on_its_way), [leaves, None]);
        assert_eq!(of(Some(on_its_way), on_its_way.switching()), [None, None]);
        let joins = Some(NodeTurn::Joins(X));
        assert_eq!(of(Some(on_its_way), on_its_way.served()), [None, joins]);
        assert_eq!(of(Some(serves_y), on_its_way.served()), [leaves, joins]);
        assert_eq!(of(None, serves_y), [None, Some(NodeTurn::Joins(Y))]);
        assert_eq!(of(Some(serves_y), serves_y), [None, None]);
        let back = on_its_way.reverted(Some(Y));
        assert_eq!(of(Some(on_its_way), back), [None, Some(NodeTurn::Joins(Y))]);
        assert_eq!(of(Some(serves_y), back), [None, None], "it was never away");
    }
}
