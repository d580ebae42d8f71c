//! Step 5: a clock that runs slower while the resource is crowded.
//!
//! ```text
//! u_c       = use of c / its time in progress, by the clock
//! demand(t) = sum over c of u_c x in flight_c(t) + what none explains
//! phi(t)    = min(1, cores / demand(t))         how fast work goes on, steps of 10 ms
//! V(t)      = integral of phi
//! ```
//!
//! Under processor sharing two in flight use what one does, for twice as long. By V they use twice
//! as much as one: time in progress and mass are then proportional to work again.
//!
//! Inputs: lives of the classes that the fit has found, their rates. Failure case: work that waits
//! for something else meanwhile (a lock, a disk) is taken for crowded.
//! Source: processor sharing; measured: costs 11 % off without it, 4 % with it.

use super::bins::{BIN_SECONDS, Window};
use super::lives::{STEP_NS, STEPS, in_flight};
use super::recent::Life;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct VirtualTime {
    window: Window,
    /// Seconds by the clock at each step's start, and at the end.
    clock: Vec<f64>,
}

impl VirtualTime {
    /// From the demand in cores, for each step of 10 ms.
    pub(super) fn new(window: Window, demand: &[f64], cores: f64) -> Self {
        let step = STEP_NS as f64 * 1e-9;
        let mut clock = Vec::with_capacity(demand.len() + 1);
        clock.push(0.0);
        let mut sum = 0.0;
        for demand in demand {
            sum += step * (cores / demand.max(cores)).min(1.0);
            clock.push(sum);
        }
        Self { window, clock }
    }

    /// The clock at a moment; outside the window it runs as it does on the average inside.
    fn at(&self, at: i64) -> f64 {
        let last = self.clock.len() - 1;
        let steps = (at - self.window.start_ns()) as f64 / STEP_NS as f64;
        let end = self.clock[last];
        if steps <= 0.0 || steps >= last as f64 {
            let rate = end / last.max(1) as f64;
            return if steps <= 0.0 {
                steps * rate
            } else {
                end + (steps - last as f64) * rate
            };
        }
        let step = steps as usize;
        let rest = steps - step as f64;
        self.clock[step] + rest * (self.clock[step + 1] - self.clock[step])
    }

    /// Time in progress and mass in each bin of the window, by this clock.
    pub(super) fn stretch(&self, lives: &[Life]) -> [Vec<f32>; 2] {
        let lives = lives.iter().map(|(from, to)| {
            let life = self.at(*to) - self.at(*from);
            ((*from, *to), [1.0, life.max(1e-4).recip()])
        });
        let levels = in_flight(self.window, lives);
        let mut bins = [vec![0.0; self.window.bins], vec![0.0; self.window.bins]];
        for (step, (levels, clock)) in levels.iter().zip(self.clock.windows(2)).enumerate() {
            let passed = clock[1] - clock[0];
            for (bins, level) in bins.iter_mut().zip(levels) {
                bins[step / STEPS] += level * passed;
            }
        }
        bins.map(|bins| bins.iter().map(|sum| *sum as f32).collect())
    }
}

/// Adds what a class demands: its rate per request in flight times how many are.
pub(super) fn add_demand(demand: &mut [f64], window: Window, lives: &[Life], rate: f64) {
    let levels = in_flight(window, lives.iter().map(|life| (*life, [rate])));
    let pairs = demand.iter_mut().zip(levels);
    pairs.for_each(|(sum, [level])| *sum += level);
}

/// The same for a class of which only its bins are known.
pub(super) fn add_binned_demand(demand: &mut [f64], progress: &[f32], rate: f64) {
    for (steps, seconds) in demand.chunks_exact_mut(STEPS).zip(progress) {
        let level = f64::from(*seconds) / BIN_SECONDS * rate;
        steps.iter_mut().for_each(|sum| *sum += level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn two_at_once_are_worth_one_each() {
        let window = Window { first: 0, bins: 10 };
        // Two of 200 ms of work share one core for 400 ms; one of 200 ms is alone.
        let lives = [(0, 400 * MS), (0, 400 * MS), (600 * MS, 800 * MS)];
        let mut demand = vec![0.0; 100];
        add_demand(&mut demand, window, &lives, 1.0);
        let clock = VirtualTime::new(window, &demand, 1.0);
        let [progress, mass] = clock.stretch(&lives);
        let work: f32 = progress.iter().sum();
        assert!((work - 0.6).abs() < 1e-4, "{work}");
        assert!((mass.iter().sum::<f32>() - 3.0).abs() < 1e-3);
        assert!((progress[0] - 0.1).abs() < 1e-4 && (progress[6] - 0.1).abs() < 1e-4);
    }

    #[test]
    fn what_began_before_the_window_has_its_part_of_the_mass() {
        let window = Window {
            first: 10,
            bins: 10,
        };
        let clock = VirtualTime::new(window, &[0.5; 100], 1.0);
        let [progress, mass] = clock.stretch(&[(500 * MS, 1500 * MS)]);
        assert!((progress.iter().sum::<f32>() - 0.5).abs() < 1e-4);
        assert!((mass.iter().sum::<f32>() - 0.5).abs() < 1e-4);
    }

    #[test]
    fn bins_make_the_same_demand() {
        let mut demand = vec![0.0; 20];
        add_binned_demand(&mut demand, &[0.1, 0.0], 2.0);
        assert!((demand[5] - 2.0).abs() < 1e-6 && demand[15] == 0.0);
    }
}
