//! What reads at 1 kHz cost the node, as the kernel counts it, while nothing else goes on there.
//!
//! ```text
//! program_us_per_read   run time of the program that answers / reads
//! switch_ns             run time of a program that counts task switches / switches
//! softirq_pct           time in soft interrupts on all CPUs while it is read, less before: the
//!                       network's own work for the packets, the reader's as well as the node's
//! ```
//!
//! Failure case: soft interrupts are counted by ticks, so half a per cent is their resolution here.

use std::time::Duration;

use tidegate_remote::clock;
use tidegate_remote::kernel::Costs;

use crate::cluster::Cluster;

use super::super::ExperimentError;
use super::super::judge::Table;
use super::schemes::Scheme;
use super::watch::only;

/// The program that counts task switches.
const SWITCHES: &str = "on_switch";
/// The kernel's unit of CPU time in `/proc/stat`.
const TICKS_PER_SECOND: f64 = 100.0;

/// Adds what each scheme with a program costs, read for so long.
pub(super) fn measure(
    cluster: &Cluster,
    schemes: &[Scheme],
    length: Duration,
    table: &mut Table,
) -> Result<(), ExperimentError> {
    let costs = Costs::count().map_err(|error| ExperimentError::Read(error.to_string()))?;
    let (start, quiet) = (clock::now(), softirq_seconds());
    clock::sleep_until(start + length);
    let quiet = (softirq_seconds() - quiet) / clock::now().seconds_since(start);
    for scheme in schemes {
        let Some(program) = scheme.program else {
            continue;
        };
        let (start, before, softirq) = (clock::now(), costs.so_far(), softirq_seconds());
        let reads = only(cluster, scheme, length)?;
        let (after, seconds) = (costs.so_far(), clock::now().seconds_since(start));
        let softirq = (softirq_seconds() - softirq) / seconds;
        let cost = |name: &str| {
            let of = |costs: &std::collections::BTreeMap<String, _>| {
                costs.get(name).copied().unwrap_or_default()
            };
            of(&after).since(of(&before))
        };
        let metrics = table.entry(scheme.agent.name.into()).or_default();
        let mut add = |name: &str, value: f64| metrics.entry(name.into()).or_default().push(value);
        add(
            "program_us_per_read",
            cost(program).time.as_secs_f64() * 1e6 / (reads.max(1) as f64),
        );
        if let Some(switch) = cost(SWITCHES).mean() {
            add("switch_ns", switch.as_secs_f64() * 1e9);
        }
        add("softirq_pct", (softirq - quiet) * 100.0);
    }
    Ok(())
}

fn softirq_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    softirq_of(&stat).unwrap_or(f64::NAN)
}

/// The seventh counter of the first line.
fn softirq_of(stat: &str) -> Option<f64> {
    let ticks: f64 = stat
        .lines()
        .next()?
        .split_whitespace()
        .nth(7)?
        .parse()
        .ok()?;
    Some(ticks / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::softirq_of;

    #[test]
    fn soft_interrupts_are_the_seventh_counter() {
        assert_eq!(softirq_of("cpu  1 2 3 4 5 6 250 8 0 0\ncpu0 9"), Some(2.5));
        assert_eq!(softirq_of(""), None);
    }
}
