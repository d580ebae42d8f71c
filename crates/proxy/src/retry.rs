//! How often failed requests may be tried again, as a token bucket.
//!
//! Every request pays `ratio` tokens in, every second pays `per_second` in, a retry takes one
//! out, and no more than [`TOKENS_MAX`] are saved up. So when a whole site fails, retries add at
//! most `ratio` to its load, and a site with little traffic still gets its retries.

use tidegate_core::time::Timestamp;

use crate::config::RetryConfig;

/// Retries that can be saved up for a bad moment.
const TOKENS_MAX: f64 = 100.0;

/// See the module.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    config: RetryConfig,
    tokens: f64,
    refilled_at: Timestamp,
}

impl RetryBudget {
    pub(crate) fn new(config: RetryConfig, now: Timestamp) -> Self {
        Self {
            config,
            // One second's worth, so that a first request may be tried again.
            tokens: config.per_second.min(TOKENS_MAX),
            refilled_at: now,
        }
    }

    /// A request has come.
    pub(crate) fn on_request(&mut self) {
        self.tokens = (self.tokens + self.config.ratio).min(TOKENS_MAX);
    }

    /// Whether a request may be tried again now; if so, it is paid for.
    pub(crate) fn try_take(&mut self, now: Timestamp) -> bool {
        let passed = now.seconds_since(self.refilled_at);
        self.refilled_at = self.refilled_at.max(now);
        self.tokens = (self.tokens + passed * self.config.per_second).min(TOKENS_MAX);
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

    fn budget(ratio: f64, per_second: f64) -> RetryBudget {
        let config = RetryConfig { ratio, per_second };
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
}
