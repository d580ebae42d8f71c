//! How many requests may have a second node asked while the first one has not answered, as a token bucket.
//!
//! ```text
//! a request        pays `most` tokens in
//! a second node    takes one out, and is not asked if there is less than one
//! saved up         at most 10; none at the start
//!
//! so of any n requests in a row   second nodes <= most n + 10
//! ```
//!
//! So when all nodes stall at once, the load that comes of it is `most` more and no twofold: every request would have a second node
//! otherwise, and nothing would be gained.
//!
//! Inputs: requests, second nodes.
//!
//! Failure case: `most` below the share of slow requests leaves some of them slow. A route of few requests saves up slowly: with 0.05
//! each second node takes twenty requests.
//!
//! Source: Dean-2013: requests that are hedged behind the 95th percentile add 5 % of load.

/// Second nodes that can be saved up for a bad moment.
const TOKENS_MAX: f64 = 10.0;

/// See the module.
#[derive(Clone, Debug)]
pub struct HedgeBudget {
    most: f64,
    tokens: f64,
}

impl HedgeBudget {
    /// With nothing saved up. So many second nodes per request, 0 to 1.
    pub fn new(most: f64) -> Self {
        Self { most, tokens: 0.0 }
    }

    /// A request has come that may have one.
    pub fn on_request(&mut self) {
        self.tokens = (self.tokens + self.most).min(TOKENS_MAX);
    }

    /// Whether a second node can be asked now.
    pub fn has_one(&self) -> bool {
        self.tokens >= 1.0
    }

    /// Whether a second node is asked; if so, it is paid for.
    pub fn try_take(&mut self) -> bool {
        let has_one = self.has_one();
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Second nodes of so many requests, each of which wants one.
    fn asked(budget: &mut HedgeBudget, requests: u32) -> u32 {
        let mut wants = || {
            budget.on_request();
            budget.try_take()
        };
        (0..requests).filter(|_| wants()).count() as u32
    }

    #[test]
    fn requests_pay_for_a_share() {
        // Fractions that are none of two's powers: the last one may be due with the next request.
        for (most, requests, wanted) in [
            (0.0, 1000, 0..=0),
            (0.05, 19, 0..=0),
            (0.05, 1000, 49..=50),
            (0.25, 1000, 250..=250),
            (0.5, 3, 1..=1),
            (1.0, 1000, 1000..=1000),
        ] {
            let found = asked(&mut HedgeBudget::new(most), requests);
            assert!(wanted.contains(&found), "{most}: {found} of {requests}");
        }
    }

    #[test]
    fn so_many_are_saved_up() {
        let mut budget = HedgeBudget::new(0.5);
        assert!(!budget.has_one());
        for _ in 0..1000 {
            budget.on_request();
        }
        assert!(budget.has_one());
        assert_eq!((0..100).filter(|_| budget.try_take()).count(), 10);
        assert!(!budget.has_one());
    }

    #[test]
    fn of_any_requests_in_a_row_no_more_have_one() {
        let mut budget = HedgeBudget::new(0.05);
        for _ in 0..5000 {
            budget.on_request();
        }
        assert!(asked(&mut budget, 400) <= 20 + 10);
    }
}
