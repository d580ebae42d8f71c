//! What operators do and what breaks during a run. Plain data.

use std::time::Duration;

use tidegate_core::topology::{AdminState, NodeId};

use crate::node::Condition;

/// The operator changes a node's state at every front-end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeOverride {
    /// When, since the start.
    pub at: Duration,
    /// Which node.
    pub node: NodeId,
    /// Its new state.
    pub state: AdminState,
}

/// A node is taken out of the cluster for a while, at every front-end at once. Those of one node may not overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leave {
    /// Which node.
    pub node: NodeId,
    /// Since when.
    pub from: Duration,
    /// When it is added again.
    pub to: Duration,
}

/// Something is wrong with a node for a while. Faults of one node may not overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// Which node.
    pub node: NodeId,
    /// What.
    pub kind: FaultKind,
    /// Since when.
    pub from: Duration,
    /// Until when.
    pub to: Duration,
}

/// What can be wrong with a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// It crashed: its requests are lost, connections are refused, reads go unanswered. It
    /// comes back empty, as another generation.
    Dead,
    /// It stands still: it answers nothing, neither requests nor reads, and afterwards goes on
    /// with its old work. Requests that reach it meanwhile wait. Antagonists stand still too.
    Paused,
    /// It answers each new request at once with a server error, and looks idle: a sinkhole.
    Failing,
    /// It answers each new request at once with a head and breaks off behind it.
    Breaking,
    /// Its CPUs are so many times as slow; nothing tells but how long requests take.
    Slow {
        /// How many times.
        times: u32,
    },
    /// It is dead for the first part of every period.
    Flapping {
        /// One outage and one stretch of health together.
        period: Duration,
        /// The outage's share of it, 0 to 1.
        down: f64,
    },
}

/// A fault without its pattern: the node is in this condition from here to there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spell {
    pub(crate) node: NodeId,
    pub(crate) condition: Condition,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

/// The spells that faults consist of.
pub(crate) fn spells(faults: &[Fault]) -> Vec<Spell> {
    let mut spells = Vec::new();
    for fault in faults {
        let Fault { node, from, to, .. } = *fault;
        let mut spell = |condition, from, to| {
            spells.push(Spell {
                node,
                condition,
                from,
                to,
            });
        };
        match fault.kind {
            FaultKind::Dead => spell(Condition::Dead, from, to),
            FaultKind::Paused => spell(Condition::Paused, from, to),
            FaultKind::Failing => spell(Condition::Failing, from, to),
            FaultKind::Breaking => spell(Condition::Breaking, from, to),
            FaultKind::Slow { times } => spell(Condition::Slow { times }, from, to),
            FaultKind::Flapping { period, down } => {
                let period = period.max(Duration::from_micros(1));
                let outage = period.mul_f64(down.clamp(0.0, 1.0));
                let mut start = from;
                while start < to {
                    spell(Condition::Dead, start, (start + outage).min(to));
                    start += period;
                }
            }
        }
    }
    spells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flapping_node_is_dead_for_the_first_part_of_every_period() {
        let at = Duration::from_millis;
        let flapping = Fault {
            node: NodeId(3),
            kind: FaultKind::Flapping {
                period: at(100),
                down: 0.3,
            },
            from: at(1000),
            to: at(1220),
        };
        let times: Vec<_> = spells(&[flapping])
            .iter()
            .map(|spell| (spell.from, spell.to))
            .collect();
        let wanted = [(1000, 1030), (1100, 1130), (1200, 1220)];
        assert_eq!(times, wanted.map(|(from, to)| (at(from), at(to))));
    }
}
