//! How one kind of node is read: the scenario's records as numbers of nanoseconds.

use std::time::Duration;

use tidegate_core::record::Sources;
use tidegate_core::time::nanos;

use crate::node_model::{Answer, Records};
use crate::scenario::Scenario;

/// Nodes whose records are read in the same way.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) records: Records,
    pub(crate) sources: Sources,
    pub(crate) interval_ns: u64,
    pub(crate) one_way_ns: u64,
    pub(crate) jitter_ns: u64,
    pub(crate) published_ns: u64,
    pub(crate) age_ns: u64,
    /// Whether each read takes as long as any other and none is lost.
    pub(crate) regular: bool,
}

impl Class {
    pub(crate) fn new(records: Records, scenario: &Scenario) -> Self {
        let jitter_ns = nanos(scenario.network.jitter);
        Self {
            sources: if scenario.nodes.iter().any(|node| node.allocation.is_some()) {
                records.sources().with(Sources::QUOTA)
            } else {
                records.sources()
            },
            interval_ns: nanos(records.interval).max(1000),
            one_way_ns: nanos(scenario.network.delay + records.delay),
            jitter_ns,
            published_ns: nanos(records.published),
            age_ns: nanos(records.age),
            regular: jitter_ns == 0 && records.loss <= 0.0 && records.answer == Answer::Kernel,
            records,
        }
    }

    /// How old the oldest record is that may still be asked for.
    pub(crate) fn look_back(&self) -> Duration {
        let period = self.interval_ns.max(self.published_ns);
        let under_way = 4 * (self.one_way_ns + 10 * self.jitter_ns);
        let waited = match self.records.answer {
            Answer::Kernel => Duration::ZERO,
            Answer::Process { .. } => Duration::from_secs(1),
        };
        let lost = self.interval_ns * lost_in_a_row(self.records.loss);
        let mean = match self.records.rung.is_mean() {
            true => self.mean_over(),
            false => Duration::ZERO,
        };
        Duration::from_nanos(2 * period + self.age_ns + under_way + lost) + waited + mean
    }

    /// Over what time a rung that reads means takes them.
    pub(crate) fn mean_over(&self) -> Duration {
        Duration::from_nanos(self.interval_ns.max(self.published_ns))
    }
}

/// So many reads in a row are lost once in a million times.
fn lost_in_a_row(loss: f64) -> u64 {
    if loss <= 0.0 {
        return 0;
    }
    // A reader that hears nothing for longer knows nothing fresh anyway.
    (1e-6f64.ln() / loss.min(0.99).ln()).ceil() as u64
}
