//! What a run measured.

use std::fmt;
use std::time::Duration;

use tidegate_core::admission::Priority;
use tidegate_core::stats::quantile_of_sorted;

use crate::checks::Totals;

/// Latencies of requests, kept whole and sorted once: quantiles are exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    sorted_ns: Vec<u64>,
}

impl Latencies {
    /// Of these, in any order.
    pub fn of(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        Self { sorted_ns: nanos }
    }

    /// Of all of these.
    #[must_use]
    pub fn merged<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut parts = parts.into_iter();
        let mut all = parts.next().cloned().unwrap_or_default();
        let before = all.sorted_ns.len();
        parts.for_each(|part| all.sorted_ns.extend(&part.sorted_ns));
        if all.sorted_ns.len() > before {
            all.sorted_ns.sort_unstable();
        }
        all
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.sorted_ns.len()
    }

    /// The quantile `q`, 0 to 1; zero if there is nothing.
    pub fn quantile(&self, q: f64) -> Duration {
        Duration::from_nanos(quantile_of_sorted(&self.sorted_ns, q).unwrap_or(0))
    }

    /// How many are not longer than this.
    pub fn within(&self, most: Duration) -> usize {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        self.sorted_ns.partition_point(|nanos| *nanos <= most)
    }

    /// The mean; zero if there is nothing.
    pub fn mean(&self) -> Duration {
        let sum: u128 = self.sorted_ns.iter().map(|nanos| u128::from(*nanos)).sum();
        let mean = sum / (self.sorted_ns.len() as u128).max(1);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }
}

/// What became of one site.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteReport {
    /// What became of its requests, warm-up included.
    pub totals: Totals,
    /// From arrival at the front-end to the answer there.
    pub latencies: Latencies,
}

/// What became of one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PriorityReport {
    /// Requests that arrived.
    pub offered: u64,
    /// Answered.
    pub completed: u64,
}

/// See the module. Everything but the totals leaves the warm-up out.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Requests that arrived, warm-up included; each was completed, failed or rejected.
    pub offered: u64,
    /// Answered.
    pub completed: u64,
    /// Sent and not answered, or answered with an error.
    pub failed: u64,
    /// Those of the failed that a node refused, because it had too many.
    pub refused: u64,
    /// Connections that a node refused for want of file descriptors, warm-up included; most of their requests were
    /// answered by another node.
    pub out_of_files: u64,
    /// Not sent.
    pub rejected: u64,
    /// From arrival at the front-end to the answer there.
    pub latencies: Latencies,
    /// Nodes that a decision compared, on the average.
    pub compared: f64,
    /// Age of the load record at each decision that had one.
    pub load_ages: Latencies,
    /// Requests sent to each node.
    pub sent: Vec<u64>,
    /// Most over mean of the nodes' mean requests in flight in a window of 100 ms, averaged
    /// over the windows and sites; zero if the run was too short for one.
    pub herding: f64,
    /// The least part of its fair share of its site's requests that a node got in any window
    /// of [`crate::scenario::Expect::SHARE_WINDOW`]; nodes with faults or overrides left out.
    pub least_share: f64,
    /// Virtual time from first arrival to last answer.
    pub lasted: Duration,
    /// Events that the run consisted of.
    pub events: u64,
    /// Site by site.
    pub sites: Vec<SiteReport>,
    /// Requests of all sites by their priority, the highest first.
    pub priorities: [PriorityReport; Priority::COUNT],
    /// Answers in time by window since the start, if [`Scenario::series`] asks for them.
    ///
    /// [`Scenario::series`]: crate::scenario::Scenario::series
    pub series: Vec<u64>,
    /// Requests sent to each node in each second since the start, warm-up included.
    pub sent_by_second: Vec<Vec<u32>>,
    /// A digest of every decision and answer, in order.
    pub digest: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        write!(
            f,
            "p50 {:.1} p99 {:.1} p99.9 {:.1} ms, {} completed, {} failed ({} refused), \
             {} rejected, max/mean RIF {:.2}, least share {:.2}, age p99 {:.2} ms, {} events, \
             digest {:016x}",
            ms(self.latencies.quantile(0.5)),
            ms(self.latencies.quantile(0.99)),
            ms(self.latencies.quantile(0.999)),
            self.completed,
            self.failed,
            self.refused,
            self.rejected,
            self.herding,
            self.least_share,
            ms(self.load_ages.quantile(0.99)),
            self.events,
            self.digest,
        )
    }
}

/// FNV-1a over 64-bit words: not for secrets, for noticing that two runs differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_ranks() {
        let latencies = Latencies::of((1..=1000).rev().collect());
        assert_eq!(latencies.quantile(0.5), Duration::from_nanos(501));
        assert_eq!(latencies.quantile(0.99), Duration::from_nanos(990));
        assert_eq!(latencies.quantile(1.0), Duration::from_nanos(1000));
        assert_eq!(latencies.mean(), Duration::from_nanos(500));
        assert_eq!(Latencies::default().quantile(0.5), Duration::ZERO);
    }
}
