//! When a source that fails is asked again.
//!
//! Formula: after the n-th failure in a row, `min(first * 2^(n-1), most) * u` with u uniform in [0.5, 1). Inputs: failures
//! and answers in order. Failure case: a source that fails for a moment just after a long failure is asked again only
//! after `most`; an answer in between starts from `first`. Source: exponential backoff with jitter, as gRPC has it for
//! connections.

use std::time::Duration;

use tidegate_core::prng::Prng;

#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
    prng: Prng,
}

impl Backoff {
    pub(crate) fn new(first: Duration, most: Duration, seed: u64) -> Self {
        Self {
            first,
            most,
            failures: 0,
            prng: Prng::new(seed),
        }
    }

    /// The source has failed once more: how long it is left alone.
    pub(crate) fn failed(&mut self) -> Duration {
        let doubled = self.first * 2_u32.pow(self.failures.min(16));
        self.failures += 1;
        doubled.min(self.most).mul_f64(0.5 + self.prng.unit() / 2.0)
    }

    /// It has answered.
    pub(crate) fn answered(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_double_up_to_the_most_and_begin_anew() {
        let (first, most) = (Duration::from_secs(1), Duration::from_secs(20));
        let mut backoff = Backoff::new(first, most, 7);
        for wanted in [1, 2, 4, 8, 16, 20, 20] {
            let wanted = Duration::from_secs(wanted);
            let found = backoff.failed();
            assert!(found >= wanted / 2 && found <= wanted, "{found:?}");
        }
        for _ in 0..100 {
            assert!(backoff.failed() <= most);
        }
        backoff.answered();
        assert!(backoff.failed() <= first);
    }
}
