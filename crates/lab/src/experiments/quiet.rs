//! Whether the machine is quiet right now: every CPU spins for a moment, and what a spinning
//! thread does not get, another task took.
//!
//! ```text
//! share taken = sum of gaps over GAP between two looks at the clock / LENGTH      worst CPU
//! ```
//!
//! Steal time is counted only while a CPU is wanted, so an idle machine cannot just be looked at.
//! Short gaps are interrupts and agents that measure; a hypervisor takes milliseconds at a time.

use std::thread;
use std::time::Duration;

use tidegate_core::time::Timestamp;
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
    // The first look after the end belongs to it: all before it may have been one gap.
    let mut over = false;
    let looks = std::iter::repeat_with(clock::now)
        .take_while(|now| !std::mem::replace(&mut over, now.since(start) >= LENGTH));
    share(start, looks)
}

/// The share of the time between looks that was in gaps.
fn share(start: Timestamp, looks: impl Iterator<Item = Timestamp>) -> f64 {
    let (mut last, mut taken) = (start, Duration::ZERO);
    for now in looks {
        let gap = now.since(last);
        if gap >= GAP {
            taken += gap;
        }
        last = now;
    }
    let all = last.since(start).max(GAP);
    taken.as_secs_f64() / all.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gaps_count() {
        let look = |millis: &[f64]| {
            let at = |ms: &f64| Timestamp::ZERO + Duration::from_secs_f64(ms * 1e-3);
            share(Timestamp::ZERO, millis.iter().map(at))
        };
        assert_eq!(look(&[0.5, 1.0, 1.5, 2.0]), 0.0);
        assert!((look(&[0.5, 3.0, 3.5, 4.0, 4.5, 5.0]) - 0.5).abs() < 1e-9);
        assert_eq!(look(&[300.0]), 1.0, "nothing was ours");
        assert_eq!(look(&[]), 0.0);
    }
}
