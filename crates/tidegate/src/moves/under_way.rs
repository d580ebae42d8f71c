//! Moves that were begun and are not over: what each will say, and nodes that get no requests meanwhile.
//!
//! ```text
//! begun ──> the node leaves: withheld ──> drains, switches ──> serves: at the new site, or back at the old one
//! ```
//!
//! Failure case: the cluster cannot be changed when a node is to be released; that is tried again at each look.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_core::moves::carry::CarryCause;
use tidegate_core::moves::words::{AgentStatus, Count24, MoveCause, NodeNumber};
use tidegate_core::time::Timestamp;
use tidegate_core::units::format_duration;

use super::models::{MoveRecord, WaitingNode};

/// A move that is not over.
#[derive(Clone, Debug)]
pub(super) struct BegunMove {
    pub(super) record: MoveRecord,
    /// The generation of the node's word before it.
    pub(super) before: Count24,
    pub(super) since: Timestamp,
    /// Whether its node gets no requests.
    pub(super) withheld: bool,
    /// Why it is taken back, if it is.
    pub(super) back: Option<CarryCause>,
    /// What its hook ended with, if it failed.
    pub(super) exit_code: Option<u8>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct MovesUnderWay {
    /// Of the last move.
    number: u64,
    pub(super) by_node: BTreeMap<NodeNumber, BegunMove>,
    /// Nodes that are to be released, by name.
    pub(super) to_release: BTreeSet<String>,
    /// Those of them that could not be, and why, which was said.
    pub(super) kept_back: BTreeMap<String, String>,
    /// Nodes on their way that could not be withheld, which was said.
    pub(super) kept_in: BTreeSet<String>,
}

impl MovesUnderWay {
    /// The number of the next move.
    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// A move has begun.
    pub(super) fn begin(
        &mut self,
        node: NodeNumber,
        before: Count24,
        record: MoveRecord,
        now: Timestamp,
    ) {
        let begun = BegunMove {
            record,
            before,
            since: now,
            withheld: false,
            back: None,
            exit_code: None,
        };
        self.by_node.insert(node, begun);
    }

    /// A node's word is swapped for this reason.
    pub(super) fn on_carried(
        &mut self,
        node: NodeNumber,
        cause: CarryCause,
        agent: Option<AgentStatus>,
    ) {
        if let Some(begun) = self.by_node.get_mut(&node).filter(|_| is_back(cause)) {
            begun.back = Some(cause);
            begun.exit_code = agent.map(|it| it.exit_code);
        }
    }

    /// What agents say of moves under way: whichever front-end takes one back, this is why.
    pub(super) fn note_agents(&mut self, status: impl Fn(NodeNumber) -> Option<AgentStatus>) {
        for (node, begun) in &mut self.by_node {
            let said = status(*node).and_then(|it| it.failed(begun.before.next()));
            if let Some(exit_code) = said {
                begun.back = Some(CarryCause::HookFailed);
                begun.exit_code = Some(exit_code);
            }
        }
    }

    /// Nodes that are to be released and could not be.
    pub(super) fn waiting(&self) -> Vec<WaitingNode> {
        let kept = self.kept_back.iter();
        let kept = kept.filter(|(node, _)| self.to_release.contains(*node));
        let waiting = kept.map(|(node, why)| WaitingNode {
            node: node.clone(),
            why: why.clone(),
        });
        waiting.collect()
    }

    /// Whether the move of this number is not over.
    pub(super) fn has(&self, number: u64) -> bool {
        self.by_node.values().any(|it| it.record.number == number)
    }

    /// All end, as what they go by is there no more.
    pub(super) fn give_up(&mut self) -> Vec<MoveRecord> {
        let all = std::mem::take(&mut self.by_node).into_values();
        let ended = all.map(|begun| {
            if begun.withheld {
                self.to_release.insert(begun.record.node.clone());
            }
            begun.record
        });
        ended.collect()
    }
}

fn is_back(cause: CarryCause) -> bool {
    match cause {
        CarryCause::Drained | CarryCause::Ready => false,
        CarryCause::DrainTooLong | CarryCause::HookFailed | CarryCause::HookSilent => true,
    }
}

/// Why a move was taken back, in a sentence; `cause` is what the node's word says.
pub(super) fn why_back(begun: &BegunMove, cause: MoveCause, drain: Duration) -> String {
    let from = &begun.record.from;
    match begun.back {
        Some(CarryCause::DrainTooLong) => format!(
            "requests of {from} were still under way after {}: it stays there",
            format_duration(drain)
        ),
        Some(CarryCause::HookFailed) => match begun.exit_code {
            Some(code) if code != u8::MAX => {
                format!("its hook failed with exit code {code}: it is back at {from}")
            }
            Some(_) | None => {
                format!("its hook did not start, took too long or was killed: it is back at {from}")
            }
        },
        Some(CarryCause::HookSilent) => {
            format!("its agent does not say what became of its hook: it is back at {from}")
        }
        Some(CarryCause::Drained | CarryCause::Ready) | None if cause == MoveCause::Revert => {
            format!(
                "its drain took too long or its hook failed, the agent's log says which: another front-end has brought it \
             back to {from}"
            )
        }
        Some(CarryCause::Drained | CarryCause::Ready) | None => {
            format!("another front-end, or another move, has brought it back to {from}")
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::moves::words::AgentStep;

    use super::*;

    fn record(number: u64, node: &str) -> MoveRecord {
        MoveRecord {
            number,
            own: true,
            at: String::new(),
            node: node.into(),
            from: "blog".into(),
            to: "shop".into(),
            cause: "operator".into(),
            pressure: None,
            expected: None,
            failed: None,
            generation: 2,
            decided_us: None,
            assigned_us: None,
        }
    }

    #[test]
    fn moves_have_numbers_and_say_why_they_are_taken_back() {
        let mut moves = MovesUnderWay::default();
        let (one, other) = (NodeNumber(0), NodeNumber(1));
        let number = moves.next_number();
        moves.begin(one, Count24::FIRST, record(number, "a"), Timestamp::ZERO);
        assert!(moves.has(1) && !moves.has(2));
        moves.on_carried(one, CarryCause::Drained, None);
        assert_eq!(moves.by_node[&one].back, None);
        let why = |cause| why_back(&moves.by_node[&one], cause, Duration::from_secs(5));
        assert!(why(MoveCause::Revert).contains("another front-end has brought it back to blog"));
        assert!(why(MoveCause::Operator).contains("or another move, has brought it back to blog"));
        moves.on_carried(one, CarryCause::DrainTooLong, None);
        let why = why_back(
            &moves.by_node[&one],
            MoveCause::Revert,
            Duration::from_secs(5),
        );
        let expected = "requests of blog were still under way after 5s: it stays there";
        assert_eq!(why, expected);
        let agent = |exit_code| {
            Some(AgentStatus {
                generation: Count24::FIRST,
                step: AgentStep::HookFailed,
                connections: 0,
                exit_code,
                has_hooks: true,
            })
        };
        for (code, expected) in [(7, "with exit code 7"), (255, "took too long")] {
            moves.on_carried(one, CarryCause::HookFailed, agent(code));
            let why = why_back(
                &moves.by_node[&one],
                MoveCause::Revert,
                Duration::from_secs(5),
            );
            assert!(
                why.contains(expected) && why.ends_with("back at blog"),
                "{why}"
            );
        }
        // Another front-end has taken it back meanwhile, and the agent has gone on.
        moves.by_node.get_mut(&one).unwrap().back = None;
        let gone_on = AgentStatus {
            generation: Count24::FIRST.next().next(),
            step: AgentStep::Begun,
            connections: 0,
            exit_code: 3,
            has_hooks: true,
        };
        moves.note_agents(|_| Some(gone_on));
        let why = why_back(
            &moves.by_node[&one],
            MoveCause::Revert,
            Duration::from_secs(5),
        );
        assert!(why.contains("with exit code 3"), "{why}");
        // Those that are given up are released, if they were withheld.
        let number = moves.next_number();
        moves.begin(other, Count24::FIRST, record(number, "b"), Timestamp::ZERO);
        moves.by_node.get_mut(&other).unwrap().withheld = true;
        let ended = moves.give_up();
        assert_eq!(ended.iter().map(|it| it.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(moves.to_release, BTreeSet::from(["b".to_owned()]));
        assert!(!moves.has(1));
    }
}
