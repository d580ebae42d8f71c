//! What reads at 1 kHz cost the node, as the kernel counts it, while nothing else goes on there.
//!
//! ```text
//! program_us_per_read   run time of the program that answers / reads
//! switch_ns             run time of a program that counts task switches / switches
//! softirq_pct           time in soft interrupts on the node's CPU while it is read, less before: the
//!                       network's own work for the packets
//! ```
//!
//! Failure case: soft interrupts are counted at ticks, 250 times a second here, so two tenths of a
//! per cent are noise. Reads in step with the ticks would all be seen or none: they are a little
//! slower than that.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_remote::clock;
use tidegate_remote::kernel::{Cost, Costs};

use crate::cluster::Cluster;

use super::super::ExperimentError;
use super::super::judge::Table;
use super::schemes::Scheme;
use super::watch::only;

/// The program that counts task switches.
const SWITCHES: &str = "on_switch";
/// The kernel's unit of CPU time in `/proc/stat`.
const TICKS_PER_SECOND: f64 = 100.0;
/// Between two reads.
const READ: Duration = Duration::from_micros(1013);

/// Adds what a scheme with a program costs, read for so long.
pub(super) fn measure(
    cluster: &Cluster,
    node_cpu: u32,
    scheme: &Scheme,
    length: Duration,
    table: &mut Table,
) -> Result<(), ExperimentError> {
    let Some(program) = scheme.program else {
        return Ok(());
    };
    let costs = Costs::count().map_err(|error| ExperimentError::Read(error.to_string()))?;
    let quiet = Softirq::now(node_cpu);
    clock::sleep_until(quiet.at + length);
    let quiet = quiet.percent();
    let (before, busy) = (costs.so_far(), Softirq::now(node_cpu));
    let reads = only(cluster, scheme, READ, length)?;
    let (busy, after) = (busy.percent(), costs.so_far());
    let cost = |name: &str| {
        let of = |costs: &BTreeMap<String, Cost>| costs.get(name).copied().unwrap_or_default();
        of(&after).since(of(&before))
    };
    let per_read = cost(program).time.as_secs_f64() * 1e6 / (reads.max(1) as f64);
    let switch = cost(SWITCHES).mean().map(|it| it.as_secs_f64() * 1e9);
    let metrics = table.entry(scheme.agent.name.into()).or_default();
    for (name, value) in [
        ("program_us_per_read", per_read),
        ("switch_ns", switch.unwrap_or(f64::NAN)),
        ("softirq_pct", busy - quiet),
    ] {
        metrics.entry(name.into()).or_default().push(value);
    }
    Ok(())
}

/// Time in soft interrupts so far.
struct Softirq {
    cpu: u32,
    at: Timestamp,
    seconds: f64,
}

impl Softirq {
    fn now(cpu: u32) -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Self {
            cpu,
            at: clock::now(),
            seconds: softirq_of(&stat, cpu).unwrap_or(f64::NAN),
        }
    }

    /// Of the CPU, since.
    fn percent(&self) -> f64 {
        let now = Self::now(self.cpu);
        (now.seconds - self.seconds) / now.at.seconds_since(self.at) * 100.0
    }
}

/// The seventh counter of a CPU's line.
fn softirq_of(stat: &str, cpu: u32) -> Option<f64> {
    let name = format!("cpu{cpu} ");
    let line = stat.lines().find(|line| line.starts_with(&name))?;
    let ticks: f64 = line.split_whitespace().nth(7)?.parse().ok()?;
    Some(ticks / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::softirq_of;

    #[test]
    fn soft_interrupts_are_the_seventh_counter() {
        let stat = "cpu  1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 250 8 0 0\ncpu10 9";
        assert_eq!(softirq_of(stat, 1), Some(2.5));
        assert_eq!(softirq_of(stat, 2), None);
    }
}
