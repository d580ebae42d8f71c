//! How many requests of a class were in flight, in steps of 10 ms: what virtual time and occupancy
//! share.
//!
//! Inputs: from when to when each request lived, and weights for each. What lies before the first
//! step or after the last is left out.

use super::bins::Window;
use super::recent::Life;

/// Length of a step, nanoseconds.
pub(super) const STEP_NS: i64 = 10_000_000;
/// Steps of a bin.
pub(super) const STEPS: usize = 10;

/// Weighted requests in flight, mean of each step of the window.
pub(super) fn in_flight<const N: usize>(
    window: Window,
    lives: impl Iterator<Item = (Life, [f64; N])>,
) -> Vec<[f64; N]> {
    let steps = window.bins * STEPS;
    let mut changes = vec![[0.0; N]; steps + 2];
    let (start, end) = (window.start_ns(), window.end_ns());
    for ((from, to), weights) in lives {
        let (from, to) = (from.max(start) - start, to.min(end) - start);
        if from >= to {
            continue;
        }
        let mut change = |at: i64, sign: f64| {
            let step = (at / STEP_NS) as usize;
            let rest = sign * (at % STEP_NS) as f64 / STEP_NS as f64;
            for (place, weight) in weights.iter().enumerate() {
                changes[step][place] += weight * (sign - rest);
                changes[step + 1][place] += weight * rest;
            }
        };
        change(from, 1.0);
        change(to, -1.0);
    }
    changes.truncate(steps);
    let mut levels = [0.0; N];
    for change in &mut changes {
        for (level, change) in levels.iter_mut().zip(change) {
            *level += *change;
            *change = *level;
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_steps_count_as_parts() {
        let window = Window { first: 10, bins: 1 };
        let ms = |ms: i64| ms * 1_000_000;
        let lives = [((ms(1005), ms(1025)), [1.0]), ((ms(900), ms(1010)), [2.0])];
        let found = in_flight(window, lives.into_iter());
        let expected = [2.5, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let near = found
            .iter()
            .zip(expected)
            .all(|([x], y)| (x - y).abs() < 1e-9);
        assert!(near && found.len() == 10, "{found:?}");
        let outside = in_flight(window, [((ms(0), ms(500)), [1.0])].into_iter());
        assert!(outside.iter().all(|level| *level == [0.0]));
    }
}
