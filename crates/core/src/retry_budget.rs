//! How often failed requests may be tried again, as a token bucket.
//!
//! ```text
//! a request   pays `ratio` tokens in
//! a second    pays `min_per_second` in
//! a retry     takes one out, and is denied if there is none
//! saved up    at most 100
//! ```
//!
//! So when a whole site fails, retries add at most `ratio` to its load, and a site with little
//! traffic still gets its retries. A request that is denied one gets the failure at once.
//!
//! Inputs: requests, retries, a clock.
//!
//! Failure case: several proxies, or a proxy before a proxy: each has its budget, and the ratios
//! multiply down a chain.
//!
//! Source: the budget of retries per client in SRE-2016, chapter 21; ratio and minimum are the defaults
//! of Finagle's `RetryBudget`.

use crate::time::Timestamp;

/// Retries that can be saved up for a bad moment.
const TOKENS_MAX: f64 = 100.0;

/// How many requests may be tried again: a share of all, and some per second besides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryConfig {
    /// Retries per request.
    pub ratio: f64,
    /// Retries per second that are allowed whatever the rate of requests.
    pub min_per_second: f64,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            ratio: 0.2,
            min_per_second: 10.0,
        }
    }
}

impl RetryConfig {
    /// The part of one of so many that share it.
    pub fn share(self, of: usize) -> Self {
        Self {
            min_per_second: self.min_per_second / of.max(1) as f64,
            ..self
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct RetryBudget {
    config: RetryConfig,
    tokens: f64,
    refilled_at: Timestamp,
}

impl RetryBudget {
    /// With a second's worth saved up, and at least one, so that a first request may be tried again.
    pub fn new(config: RetryConfig, now: Timestamp) -> Self {
        let least = if config.min_per_second > 0.0 {
            1.0
        } else {
            0.0
        };
        Self {
            config,
            tokens: config.min_per_second.max(least).min(TOKENS_MAX),
            refilled_at: now,
        }
    }

    /// A request has come.
    pub fn on_request(&mut self) {
        self.tokens = (self.tokens + self.config.ratio).min(TOKENS_MAX);
    }

    /// Whether a request may be tried again now; if so, it is paid for.
    pub fn try_take(&mut self, now: Timestamp) -> bool {
        let passed = now.seconds_since(self.refilled_at);
        self.refilled_at = self.refilled_at.max(now);
        self.tokens = (self.tokens + passed * self.config.min_per_second).min(TOKENS_MAX);
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(ratio: f64, min_per_second: f64) -> RetryBudget {
        let config = RetryConfig {
            ratio,
            min_per_second,
        };
        RetryBudget::new(config, Timestamp::ZERO)
    }

    fn taken(budget: &mut RetryBudget, tries: u32, now: Timestamp) -> u32 {
        (0..tries).filter(|_| budget.try_take(now)).count() as u32
    }

    #[test]
    fn requests_pay_for_a_share_of_retries() {
        let mut budget = budget(0.2, 0.0);
        assert_eq!(taken(&mut budget, 10, Timestamp::ZERO), 0);
        for _ in 0..101 {
            budget.on_request();
        }
        assert_eq!(taken(&mut budget, 100, Timestamp::ZERO), 20);
    }

    #[test]
    fn seconds_pay_for_some_whatever_the_rate() {
        let mut budget = budget(0.2, 3.0);
        assert_eq!(taken(&mut budget, 10, Timestamp::ZERO), 3);
        assert_eq!(taken(&mut budget, 10, Timestamp::from_millis(1000)), 3);
        // A clock that steps back gives nothing, and takes nothing.
        assert_eq!(taken(&mut budget, 10, Timestamp::from_millis(500)), 0);
        assert_eq!(taken(&mut budget, 10, Timestamp::from_millis(2000)), 3);
    }

    #[test]
    fn savings_are_bounded() {
        let mut budget = budget(1.0, 1000.0);
        for _ in 0..1000 {
            budget.on_request();
        }
        let later = Timestamp::from_millis(1_000_000);
        assert_eq!(taken(&mut budget, 1000, later), TOKENS_MAX as u32);
    }

    #[test]
    fn a_budget_of_nothing_allows_nothing() {
        let mut budget = budget(0.0, 0.0);
        budget.on_request();
        assert_eq!(taken(&mut budget, 3, Timestamp::from_millis(1_000_000)), 0);
    }

    #[test]
    fn a_small_share_still_has_its_first_retry() {
        let whole = RetryConfig {
            ratio: 0.0,
            min_per_second: 10.0,
        };
        let mut budget = RetryBudget::new(whole.share(64), Timestamp::ZERO);
        assert_eq!(taken(&mut budget, 3, Timestamp::ZERO), 1);
        assert_eq!(taken(&mut budget, 3, Timestamp::from_millis(6400)), 1);
        assert_eq!(whole.share(0), whole);
    }
}
