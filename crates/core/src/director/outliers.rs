//! Ejection by success rate: a node most of whose answers are errors, while the others' are not.
//!
//! ```text
//! n, f   = answers and failures of a node, sums that decay with 30 s
//! p      = f / n
//! others = of the other nodes that are up and were asked, the better half, summed
//! out if for a second n >= 10, p - p_others >= 0.5, and
//!        p - p_others > 4 sqrt(q (1 - q) (1/n + 1/n_others)),   q = (f + f_others) / (n + n_others)
//! ```
//!
//! A failure is a server error, a malformed answer, one that did not come, or one that broke off.
//! Each may be the request's doing, and then it strikes all nodes alike, whatever chooses: a site
//! whose application is down answers 503 everywhere, and a URL that crashes its handler does so at
//! every node. Hence the comparison. It is with the better half of the others, because two bad nodes
//! of four would excuse each other, more so where they fail fast and attract most requests. And it
//! is for a second, because nodes do not notice at the same moment that their database is gone.
//!
//! Limits: half of a site's ready nodes stay in whatever they answer, a site of one node has no
//! others, and one node at a time is judged, the worst. A node that returns begins anew.
//! Failure case: a site with fewer than a request each three seconds per node is not judged.
//! Source: the two-proportion z-test; the idea from Envoy's outlier detection by success rate,
//! which compares with the mean of at least five hosts.

use std::cmp::Ordering;
use std::time::Duration;

use crate::load::{LoadTable, Outcomes};
use crate::time::Timestamp;
use crate::topology::{Health, NodeId, Site, Topology};

const KEEP_SECONDS: f64 = 30.0;
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a node stands out before it is out.
const FOR: Duration = Duration::from_secs(1);
/// Fewest answers of a node that is judged.
const ANSWERS_MIN: f64 = 10.0;
/// By how much it must be worse than the others.
const WORSE: f64 = 0.5;
/// Standard deviations that prove it.
const PROVEN: f64 = 4.0;
/// What is left of an answer that has decayed to less is nothing.
const ANSWER_MIN: f64 = 1e-3;

/// Memory of one site.
#[derive(Debug, Default)]
pub(super) struct Outliers {
    nodes: Vec<(NodeId, NodeAnswers)>,
    looked_at: Timestamp,
    /// The worst node, and since when it stands out.
    worst: Option<(NodeId, Timestamp)>,
}

/// How one node answered lately.
#[derive(Clone, Copy, Debug)]
struct NodeAnswers {
    /// Which of the nodes that had its place.
    generation: u32,
    /// Answers and failures at the last look.
    seen: (u64, u64),
    answers: f64,
    failures: f64,
    up: bool,
}

impl Outliers {
    /// Takes in how requests ended. The node that is to be ejected, if there is one.
    pub(super) fn on_tick(
        &mut self,
        site: &Site,
        topology: &Topology,
        table: &LoadTable,
        now: Timestamp,
    ) -> Option<NodeId> {
        self.on_members(&site.nodes, topology, table);
        if now.since(self.looked_at) < LOOK_EVERY {
            return None;
        }
        let keep = (-now.seconds_since(self.looked_at) / KEEP_SECONDS).exp();
        self.looked_at = now;
        let (mut ready, mut up) = (0, 0);
        for (id, tally) in &mut self.nodes {
            let node = topology.node(*id);
            let is_ready = node.is_ready();
            let is_up = is_ready && node.health == Health::Up;
            ready += usize::from(is_ready);
            up += usize::from(is_up);
            tally.on_look(&table.outcomes(*id), is_up, keep);
        }
        // With another one too many would be out.
        let worst = match (ready - up + 1) * 2 > ready {
            true => None,
            false => self.outlier(),
        };
        let before = self.worst.filter(|before| worst == Some(before.0));
        self.worst = worst.map(|node| before.unwrap_or((node, now)));
        let (node, since) = self.worst?;
        (now.since(since) >= FOR).then(|| {
            self.worst = None;
            node
        })
    }

    /// Keeps one entry per node of the site. What a new one did before, elsewhere, does not count.
    fn on_members(&mut self, nodes: &[NodeId], topology: &Topology, table: &LoadTable) {
        let generation = |node: &NodeId| topology.node(*node).generation;
        let same = |(one, node): (&(NodeId, NodeAnswers), &NodeId)| {
            one.0 == *node && one.1.generation == generation(node)
        };
        if self.nodes.len() == nodes.len() && self.nodes.iter().zip(nodes).all(same) {
            return;
        }
        let first = self.nodes.is_empty();
        let entry = |node: &NodeId| {
            let kept = self.nodes.iter().find(|it| same((it, node)));
            let new = NodeAnswers {
                generation: generation(node),
                ..NodeAnswers::NEW
            };
            let new = match first {
                true => new,
                false => new.since(&table.outcomes(*node)),
            };
            kept.copied().unwrap_or((*node, new))
        };
        self.nodes = nodes.iter().map(entry).collect();
    }

    /// The worst node, if it stands out.
    fn outlier(&self) -> Option<NodeId> {
        let asked = |it: &&(NodeId, NodeAnswers)| it.1.up && it.1.answers > ANSWER_MIN;
        let asked: Vec<_> = self.nodes.iter().filter(asked).copied().collect();
        let (worst, tally) = asked
            .iter()
            .max_by(|one, other| one.1.compared(&other.1))
            .copied()?;
        let mut others: Vec<NodeAnswers> = asked
            .iter()
            .filter(|(node, _)| *node != worst)
            .map(|(_, tally)| *tally)
            .collect();
        others.sort_unstable_by(NodeAnswers::compared);
        others.truncate(others.len().div_ceil(2));
        let others = others.into_iter().reduce(NodeAnswers::with)?;
        tally.stands_out(&others).then_some(worst)
    }
}

impl NodeAnswers {
    /// Of a node that nothing was seen of.
    const NEW: Self = Self {
        generation: 0,
        seen: (0, 0),
        answers: 0.0,
        failures: 0.0,
        up: true,
    };

    fn since(self, outcomes: &Outcomes) -> Self {
        Self {
            seen: (outcomes.successes, outcomes.failures),
            ..self
        }
    }

    fn on_look(&mut self, outcomes: &Outcomes, up: bool, keep: f64) {
        let (successes, failures) = self.seen;
        if up && self.up {
            let failed = outcomes.failures.saturating_sub(failures) as f64;
            let answered = outcomes.successes.saturating_sub(successes) as f64 + failed;
            self.answers = self.answers * keep + answered;
            self.failures = self.failures * keep + failed;
        } else {
            (self.answers, self.failures) = (0.0, 0.0);
        }
        self.seen = (outcomes.successes, outcomes.failures);
        self.up = up;
    }

    fn share(&self) -> f64 {
        self.failures / self.answers
    }

    /// The better one first; of equals the one that is less sure.
    fn compared(&self, other: &Self) -> Ordering {
        let shares = self.share().total_cmp(&other.share());
        shares.then(self.answers.total_cmp(&other.answers))
    }

    fn with(self, other: Self) -> Self {
        Self {
            answers: self.answers + other.answers,
            failures: self.failures + other.failures,
            ..self
        }
    }

    fn stands_out(&self, others: &Self) -> bool {
        let worse = self.share() - others.share();
        let both = self.with(*others).share();
        let variance = both * (1.0 - both) * (1.0 / self.answers + 1.0 / others.answers);
        self.answers >= ANSWERS_MIN && worse >= WORSE && worse > PROVEN * variance.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(answers: u32, failures: u32) -> NodeAnswers {
        NodeAnswers {
            answers: answers.into(),
            failures: failures.into(),
            ..NodeAnswers::NEW
        }
    }

    #[test]
    fn it_takes_a_large_difference_and_enough_answers() {
        assert!(tally(20, 20).stands_out(&tally(20, 0)));
        assert!(tally(100, 60).stands_out(&tally(100, 5)));
        assert!(!tally(9, 9).stands_out(&tally(1000, 0)), "too few answers");
        assert!(
            !tally(1000, 400).stands_out(&tally(1000, 0)),
            "not much worse"
        );
        assert!(
            !tally(1000, 1000).stands_out(&tally(1000, 600)),
            "all are bad"
        );
        assert!(!tally(10, 10).stands_out(&tally(1, 0)), "may be chance");
    }
}
