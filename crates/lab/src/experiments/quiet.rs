//! Whether the machine is quiet right now: every CPU spins for a moment, and what a spinning
//! thread does not get, somebody else took.
//!
//! ```text
//! share taken = sum of gaps over GAP between two looks at the clock / LENGTH      worst CPU
//! ```
//!
//! Steal time is counted only while a CPU is wanted, so an idle machine cannot just be looked at.
//! Short gaps are interrupts and agents that measure; a hypervisor takes milliseconds at a time.

use std::thread;
use std::time::Duration;

use tidegate_remote::clock;

use super::usage::STOLEN_MAX;
use crate::awake::{cpus, pin};

/// How long a look takes.
const LENGTH: Duration = Duration::from_millis(300);
/// Shorter gaps are the machine's own.
const GAP: Duration = Duration::from_millis(1);

/// Whether less was taken of every CPU than disturbs a run.
pub(super) fn is_quiet() -> bool {
    let worst = thread::scope(|scope| {
        let spins: Vec<_> = cpus()
            .into_iter()
            .map(|cpu| scope.spawn(move || spin(cpu)))
            .collect();
        let taken = spins.into_iter().filter_map(|it| it.join().ok());
        taken.fold(0.0, f64::max)
    });
    worst <= STOLEN_MAX
}

/// The share of a CPU's time that others took.
fn spin(cpu: usize) -> f64 {
    // If that is refused the system puts the threads on CPUs of their own.
    pin(cpu);
    let start = clock::now();
    let (mut last, mut taken) = (start, Duration::ZERO);
    while last.since(start) < LENGTH {
        let now = clock::now();
        let gap = now.since(last);
        if gap >= GAP {
            taken += gap;
        }
        last = now;
    }
    taken.as_secs_f64() / last.since(start).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one() {
        assert!((0.0..=1.0).contains(&spin(0)));
    }
}
