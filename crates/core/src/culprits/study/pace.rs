//! Whether a class's requests come or take as chance has it, or as something sets their pace.
//!
//! Inputs: a class's time in progress, its lives. Failure case: too few requests say nothing, and then chance is
//! assumed. Source: Poisson arrivals.

use super::super::bins::BIN_SECONDS;
use super::super::recent::Life;

/// Requests whose lives scatter by less than this part of their mean are paced; so many tell.
const PACED: f64 = 0.1;
const PACED_MIN: usize = 5;
/// Part of the variance that chance gives to the requests in progress below which they are steady.
const STEADY: f64 = 0.3;

/// Whether hardly more or fewer requests are in progress at one time than at another, far less than chance has it: a
/// throttle does that, and then the use tells little of what one of them costs.
pub(super) fn is_steady(progress: &[f32], life: f64) -> bool {
    let in_flight = progress.iter().map(|it| f64::from(*it) / BIN_SECONDS);
    let many = progress.len().max(1) as f64;
    let mean = in_flight.clone().sum::<f64>() / many;
    let squares: f64 = in_flight.map(|it| (it - mean).powi(2)).sum();
    let by_chance = mean * (life / BIN_SECONDS).min(1.0);
    squares / many < STEADY * by_chance
}

/// Whether a class's requests all take as long as each other: at a set pace, or until a timer ends them. One that
/// shares a full resource with others does not.
pub(super) fn is_paced(lives: &[Life]) -> bool {
    let lives: Vec<_> = lives.iter().map(|(from, to)| (to - from) as f64).collect();
    let many = lives.len() as f64;
    let mean = lives.iter().sum::<f64>() / many.max(1.0);
    let squares: f64 = lives.iter().map(|life| (life - mean).powi(2)).sum();
    lives.len() >= PACED_MIN && (squares / many).sqrt() < PACED * mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn a_throttle_is_seen_by_requests_that_are_as_many_all_the_time() {
        // Two at once, all the time, of 70 ms each; and as many by chance, in bins of 100 ms.
        let throttled = [0.2f32; 300];
        assert!(is_steady(&throttled, 0.07));
        let mut prng = Prng::new(4);
        let mut by_chance = [0.0f32; 300];
        for _ in 0..857 {
            by_chance[prng.below(300)] += 0.07;
        }
        assert!(!is_steady(&by_chance, 0.07));
        assert!(!is_steady(&[0.0; 300], 0.0));
    }

    #[test]
    fn requests_of_one_length_are_paced() {
        let lives = |longest: i64| -> Vec<Life> {
            (0..8)
                .map(|it| (it, it + 1000 + it * longest / 8))
                .collect()
        };
        assert!(is_paced(&lives(100)) && !is_paced(&lives(1000)));
        assert!(!is_paced(&lives(100)[..4]) && !is_paced(&[]));
    }
}
