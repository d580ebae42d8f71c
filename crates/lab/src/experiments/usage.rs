//! What used the CPUs during a run: the nodes, the front-ends, all else, and the hypervisor.
//!
//! What it is for: a throughput means little if the nodes did not get what their shares promise,
//! or if a front-end had no CPU left. What a hypervisor takes for other machines (steal time, in
//! spells of seconds) stops everything at once, and is no property of any arm.

use std::collections::BTreeMap;

use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use crate::awake::Awake;
use crate::cluster::{Cluster, Mode};
use crate::front::FrontEnd;

/// Share of a CPU that the hypervisor may take before a run is disturbed.
pub(super) const STOLEN_MAX: f64 = 0.05;
/// Share of the nodes' CPU that others may take before a run is disturbed: agents beside the
/// quotas and the nodes' network stacks take about a tenth.
pub(super) const OTHERS_MAX: f64 = 0.2;

/// CPU seconds so far.
#[derive(Clone, Debug)]
pub(super) struct CpuCounters {
    at: Timestamp,
    /// Of all nodes, and of all of them in units of their shares.
    nodes: f64,
    nodes_shares: f64,
    fronts: f64,
    /// That threads of front-ends waited for a CPU.
    fronts_waited: f64,
    /// That the nodes' CPU worked; unknown where nodes do not burn CPU time.
    worked: f64,
    /// That the hypervisor took of each CPU.
    stolen: BTreeMap<u32, f64>,
    node_cpu: u32,
}

/// How much each used between two looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// All nodes, as a share of what they may use.
    pub(super) nodes: f64,
    /// The front-ends, as a share of one CPU.
    pub(super) front: f64,
    /// Threads of front-ends that waited for a CPU, on the average.
    pub(super) front_waits: f64,
    /// All else on the nodes' CPU, as a share of it.
    pub(super) others: f64,
    /// The hypervisor, of the CPU of which it took most, as a share of it.
    pub(super) stolen: f64,
    /// The hypervisor, of the nodes' CPU.
    pub(super) stolen_from_nodes: f64,
}

impl CpuCounters {
    pub(super) fn of(cluster: &Cluster, fronts: &[FrontEnd], node_cpu: u32, awake: &Awake) -> Self {
        let nodes = cluster.nodes();
        let used = |index: usize| cluster.cpu_time(index).as_secs_f64();
        let shares: f64 = nodes.iter().map(|node| node.share).sum();
        let used: f64 = (0..nodes.len()).map(used).sum();
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let (at, stolen) = (clock::now(), stolen_seconds(&stat));
        // The kernel's own count is coarse: by ticks, which small quotas often fall between.
        let worked = match awake.time_on(node_cpu) {
            Some(idle) => Some(
                at.seconds_since(Timestamp::ZERO)
                    - idle.as_secs_f64()
                    - stolen.get(&node_cpu).copied().unwrap_or(0.0),
            ),
            None => cpu_seconds(&stat, node_cpu),
        };
        Self {
            at,
            nodes: used,
            nodes_shares: used / shares,
            fronts: fronts.iter().map(|it| it.cpu_time().as_secs_f64()).sum(),
            fronts_waited: fronts.iter().map(|it| it.waited().as_secs_f64()).sum(),
            worked: match cluster.mode() {
                Mode::Namespaces => worked.unwrap_or(f64::NAN),
                Mode::Loopback => f64::NAN,
            },
            stolen,
            node_cpu,
        }
    }

    /// Shares of the time since.
    pub(super) fn since(&self, before: &Self) -> Usage {
        let seconds = self.at.seconds_since(before.at).max(f64::MIN_POSITIVE);
        let share = |of: &dyn Fn(&Self) -> f64| (of(self) - of(before)) / seconds;
        let stolen = |cpu| share(&|it| it.stolen.get(&cpu).copied().unwrap_or(0.0));
        Usage {
            nodes: share(&|it| it.nodes_shares),
            front: share(&|it| it.fronts),
            front_waits: share(&|it| it.fronts_waited),
            others: at_least_nothing(share(&|it| it.worked - it.nodes)),
            stolen: self
                .stolen
                .keys()
                .map(|cpu| stolen(*cpu))
                .fold(0.0, f64::max),
            stolen_from_nodes: stolen(self.node_cpu),
        }
    }
}

impl Usage {
    /// Whether foreign work may have decided what was measured.
    pub(super) fn is_disturbed(&self) -> bool {
        self.stolen > STOLEN_MAX || self.others > OTHERS_MAX
    }
}

/// Ticks are coarse: less than nothing is nothing. What is unknown stays so.
fn at_least_nothing(share: f64) -> f64 {
    if share < 0.0 { 0.0 } else { share }
}

/// Ticks of `/proc/stat`, a hundredth of a second each: user, nice, system, idle, iowait, irq,
/// softirq, steal.
fn ticks(fields: &str) -> Vec<f64> {
    let numbers = fields.split_whitespace();
    numbers.filter_map(|it| it.parse().ok()).collect()
}

/// Seconds that a CPU has worked.
fn cpu_seconds(stat: &str, cpu: u32) -> Option<f64> {
    let name = format!("cpu{cpu} ");
    let ticks = ticks(stat.lines().find_map(|line| line.strip_prefix(&name))?);
    let busy = [0, 1, 2, 5, 6].into_iter().filter_map(|it| ticks.get(it));
    Some(busy.sum::<f64>() / 100.0)
}

/// Seconds that the hypervisor has taken of each CPU.
fn stolen_seconds(stat: &str) -> BTreeMap<u32, f64> {
    let cpus = stat.lines().filter_map(|line| line.strip_prefix("cpu"));
    let stolen = |line: &str| {
        let (cpu, fields) = line.split_once(' ')?;
        Some((cpu.parse().ok()?, ticks(fields).get(7)? / 100.0))
    };
    cpus.filter_map(stolen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_busy_with_all_but_idling_and_waiting() {
        let stat = "cpu  9 9 9 9\ncpu0 1 1 1 1 1 1 1 1\ncpu1 100 50 25 999 999 10 10 5 7 7\n";
        assert_eq!(cpu_seconds(stat, 1), Some(1.95));
        assert_eq!(cpu_seconds(stat, 2), None);
        assert_eq!(stolen_seconds(stat), [(0, 0.01), (1, 0.05)].into());
    }
}
