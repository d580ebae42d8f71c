//! Whether the use of a resource has just changed: then ten seconds of what is new tell more than
//! thirty of which most is old.
//!
//! ```text
//! alarm   |mean of the last 5 s - mean of the 20 s before| > max(4 sd / sqrt 5, 5 % of the capacity)
//!         sd of the means of the 20 seconds before
//! ```
//!
//! Inputs: use by the second. Failure case: a change that takes longer than ten seconds gives no
//! alarm; the window of 30 s finds its reason then.

/// Seconds that are new, and old.
const NEW: usize = 5;
const OLD: usize = 20;
const SIGMAS: f64 = 4.0;
/// Least change, as a part of the capacity.
const LEAST: f64 = 0.05;

/// The last seconds' use in cores, oldest first.
pub(super) fn is_onset(seconds: &[f64], cores: f64) -> bool {
    let Some(start) = seconds.len().checked_sub(NEW + OLD) else {
        return false;
    };
    let (old, new) = seconds[start..].split_at(OLD);
    let mean = |seconds: &[f64]| seconds.iter().sum::<f64>() / seconds.len() as f64;
    let before = mean(old);
    let variance = old.iter().map(|x| (x - before).powi(2)).sum::<f64>() / (OLD - 1) as f64;
    let least = SIGMAS * (variance / NEW as f64).sqrt();
    (mean(new) - before).abs() > least.max(LEAST * cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_and_noise_is_none() {
        let mut seconds: Vec<f64> = (0..25u32).map(|k| 0.2 + 0.02 * f64::from(k % 3)).collect();
        assert!(!is_onset(&seconds, 1.0));
        seconds[20..].iter_mut().for_each(|x| *x += 0.2);
        assert!(is_onset(&seconds, 1.0));
        assert!(!is_onset(&seconds[1..], 1.0), "too little is known");
        assert!(!is_onset(&seconds, 8.0), "a small part of the capacity");
    }
}
