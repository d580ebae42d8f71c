//! Who used the CPUs during a run: the nodes, the front-ends, and everybody else.
//!
//! What it is for: a throughput means little if the nodes did not get what their shares promise,
//! or if a front-end had no CPU left.

use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use crate::cluster::{Cluster, Mode};
use crate::front::FrontEnd;

/// Share of the nodes' CPU that others may take before a run is told to be disturbed.
pub(super) const OTHERS_MAX: f64 = 0.1;

/// How much CPU time was used, and when that was looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    at: Timestamp,
    /// Of all nodes, as a share of what they may use.
    pub(super) nodes: f64,
    /// Of the front-ends, as a share of one CPU.
    pub(super) front: f64,
    /// Of everybody else on the nodes' CPU, as a share of it.
    pub(super) others: f64,
}

impl Usage {
    /// CPU seconds so far, the nodes' in units of their shares.
    pub(super) fn of(cluster: &Cluster, fronts: &[FrontEnd], node_cpu: u32) -> Self {
        let nodes = cluster.nodes();
        let used = |index: usize| cluster.cpu_time(index).as_secs_f64();
        let shares: f64 = nodes.iter().map(|node| node.share).sum();
        let used: f64 = (0..nodes.len()).map(used).sum();
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Self {
            at: clock::now(),
            nodes: used / shares,
            front: fronts.iter().map(|it| it.cpu_time().as_secs_f64()).sum(),
            others: match cluster.mode() {
                Mode::Namespaces => cpu_seconds(&stat, node_cpu).unwrap_or(f64::NAN) - used,
                // The nodes compute there, and use nothing.
                Mode::Loopback => f64::NAN,
            },
        }
    }

    /// Shares of the time between.
    pub(super) fn since(&self, before: &Self) -> Self {
        let seconds = self.at.seconds_since(before.at).max(f64::MIN_POSITIVE);
        Self {
            at: self.at,
            nodes: (self.nodes - before.nodes) / seconds,
            front: (self.front - before.front) / seconds,
            others: (self.others - before.others) / seconds,
        }
    }
}

/// Seconds that a CPU was not idle, by `/proc/stat` (hundredths; what a hypervisor took counts).
fn cpu_seconds(stat: &str, cpu: u32) -> Option<f64> {
    let name = format!("cpu{cpu} ");
    let fields = stat.lines().find_map(|line| line.strip_prefix(&name))?;
    let ticks: Vec<f64> = fields
        .split_whitespace()
        .filter_map(|it| it.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let busy = [0, 1, 2, 5, 6, 7]
        .into_iter()
        .filter_map(|field| ticks.get(field));
    Some(busy.sum::<f64>() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_busy_with_all_but_idling_and_waiting() {
        let stat = "cpu  9 9 9 9\ncpu0 1 1 1 1 1 1 1 1\ncpu1 100 50 25 999 999 10 10 5 7 7\n";
        assert_eq!(cpu_seconds(stat, 1), Some(2.0));
        assert_eq!(cpu_seconds(stat, 2), None);
    }
}
