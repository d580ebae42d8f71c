//! Loads of nodes that report them with their responses, in ORCA's header: which nodes do, and what becomes of a report.
//!
//! ```text
//! response with the header, of a node that is read so ──> ReportedLoad ──> LoadTable
//! ```
//!
//! A worker that has such a response takes the report in at once, one at a time of a node: the table has one writer per node, and
//! that is whatever worker is at it. Nodes that are not read so cost nothing: their heads lack the header, or it is passed on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::load::{Exchange, LoadTable, OrcaReport, ReportedLoad, Rung};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;

/// A node whose load is read from its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportingNode {
    /// Its place in the load table.
    pub node: NodeId,
    /// Which of the nodes that have its place.
    pub generation: u32,
    /// A number is believed for four of these.
    pub period: Duration,
}

/// How the reports of a node do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportCounts {
    /// Reports that were read.
    pub reports: u64,
    /// Those that could not be.
    pub malformed: u64,
    /// Those with a number that cannot be true.
    pub implausible: u64,
}

/// See the module.
#[derive(Debug)]
pub struct LoadReports {
    table: Arc<LoadTable>,
    nodes: ArcSwap<BTreeMap<u32, Arc<Reporting>>>,
}

#[derive(Debug)]
struct Reporting {
    node: ReportingNode,
    known: Mutex<Known>,
}

/// What a node has reported.
#[derive(Debug, Default)]
struct Known {
    load: ReportedLoad,
    counts: ReportCounts,
    /// The node is not read so any more, or otherwise.
    is_over: bool,
}

impl LoadReports {
    /// None is read so, at first.
    pub fn new(table: Arc<LoadTable>) -> Self {
        Self {
            table,
            nodes: ArcSwap::default(),
        }
    }

    /// These nodes are read from now on, in place of those before; what is known of those that stay is kept. Nothing is written
    /// any more for the others once this returns. One thread calls it.
    pub fn set_nodes(&self, wanted: &[ReportingNode]) {
        let before = self.nodes.load();
        let reporting = |wanted: &ReportingNode| {
            let kept = before.get(&wanted.node.0);
            let now = match kept.filter(|it| it.node.is_same(wanted)) {
                Some(kept) if kept.node == *wanted => Arc::clone(kept),
                Some(kept) => Arc::new(kept.handed_over(*wanted)),
                None => Arc::new(Reporting::new(*wanted)),
            };
            (wanted.node.0, now)
        };
        let nodes: BTreeMap<_, _> = wanted.iter().map(reporting).collect();
        for (place, reporting) in before.iter() {
            if nodes
                .get(place)
                .is_none_or(|now| now.node != reporting.node)
            {
                reporting.known().is_over = true;
            }
        }
        self.nodes.store(Arc::new(nodes));
    }

    /// How the reports of a node do; nothing for one that is not read so.
    pub fn counts(&self, node: NodeId) -> Option<ReportCounts> {
        let nodes = self.nodes.load();
        let reporting = nodes.get(&node.0)?;
        let counts = reporting.known().counts;
        Some(counts)
    }

    /// Whether a node's load is read from its responses.
    pub(crate) fn reads(&self, node: NodeId) -> bool {
        self.nodes.load().contains_key(&node.0)
    }

    /// Takes in what came with a response of a node; nothing if it could not be read.
    pub(crate) fn take(&self, node: NodeId, report: Option<&OrcaReport>, now: Timestamp) {
        let nodes = self.nodes.load();
        let Some(reporting) = nodes.get(&node.0) else {
            return;
        };
        let mut known = reporting.known();
        if known.is_over {
            return;
        }
        let Some(report) = report else {
            known.counts.malformed += 1;
            return;
        };
        let own = self.table.own(node);
        let exchange = Exchange {
            sent_at: now,
            received_at: now,
            own_sent: own,
            own_received: own,
        };
        known.note(report, reporting.node.period, &exchange);
        let load = known.load.load(Rung::Orca, now);
        // What is not known any more stays in the table and grows old.
        if load.observed_at != Timestamp::ZERO {
            // The lock is held: one writer at a time.
            let measured = known.load.measured(now);
            self.table.store_reported(node, &load, &measured);
        }
    }
}

impl ReportingNode {
    /// Whether it is the same node, however it is read.
    fn is_same(&self, other: &Self) -> bool {
        (self.node, self.generation) == (other.node, other.generation)
    }
}

impl Reporting {
    fn new(node: ReportingNode) -> Self {
        Self {
            node,
            known: Mutex::default(),
        }
    }

    /// The same node, which is to be read otherwise.
    fn handed_over(&self, node: ReportingNode) -> Self {
        let known = self.known();
        let kept = Known {
            load: known.load.clone(),
            counts: known.counts,
            is_over: false,
        };
        Self {
            node,
            known: Mutex::new(kept),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn note(&mut self, report: &OrcaReport, period: Duration, exchange: &Exchange) {
        self.counts.reports += 1;
        let mut is_plausible = true;
        for value in report.values(period) {
            is_plausible &= self.load.note(&value, exchange);
        }
        self.counts.implausible += u64::from(!is_plausible);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);

    fn reporting(generation: u32) -> ReportingNode {
        ReportingNode {
            node: NODE,
            generation,
            period: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_report_is_in_the_table_at_once_where_it_is_wanted() {
        let table = Arc::new(LoadTable::new(2, 1));
        let reports = LoadReports::new(Arc::clone(&table));
        let now = Timestamp::from_millis(1000);
        let mut report = OrcaReport::UNKNOWN;
        report.set("cpu_utilization", 0.5);
        report.set("named_metrics.rif", 7.0);
        reports.take(NODE, Some(&report), now);
        assert_eq!(table.last(NODE).rung, Rung::None, "it is not wanted");
        reports.set_nodes(&[reporting(0)]);
        assert!(reports.reads(NODE) && !reports.reads(NodeId(0)));
        reports.take(NODE, Some(&report), now);
        reports.take(NODE, None, now);
        let load = table.last(NODE);
        assert_eq!(
            (load.rung, load.utilization, load.in_flight),
            (Rung::Orca, 0.5, 7.0)
        );
        assert!(load.is_fresh(now + Duration::from_secs(4)));
        assert!(!load.is_fresh(now + Duration::from_millis(4001)));
        let counts = reports.counts(NODE).unwrap();
        assert_eq!(
            (counts.reports, counts.malformed, counts.implausible),
            (1, 1, 0)
        );
        report.set("named_metrics.rif", 1e9);
        reports.take(NODE, Some(&report), now);
        assert_eq!(reports.counts(NODE).unwrap().implausible, 1);
        assert_eq!(table.last(NODE).in_flight, 7.0);
        let slower = ReportingNode {
            period: Duration::from_secs(2),
            ..reporting(0)
        };
        reports.set_nodes(&[slower]);
        assert_eq!(reports.counts(NODE).unwrap().reports, 2, "it stays");
        reports.set_nodes(&[reporting(1)]);
        assert_eq!(
            reports.counts(NODE),
            Some(ReportCounts::default()),
            "another node"
        );
        reports.set_nodes(&[]);
        assert_eq!(reports.counts(NODE), None);
    }
}
