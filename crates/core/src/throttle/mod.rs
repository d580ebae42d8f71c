//! Throttles slow the requests of one class down: they wait, and still complete. Requests of
//! other classes are never refused for them.
//!
//! | kind | what it does to requests of the class | file |
//! |---|---|---|
//! | concurrency | at most N in flight, the others wait | `concurrency`; `pause` for those that admission refuses |
//! | rate | at most so many a second begin, the others wait | `rate` |
//! | queue | how long one waits at most: then 429; without it for as long as it takes | `held` |
//! | bandwidth | their response bodies share so many bytes a second | `bandwidth` |
//! | priority | admission takes them for the lowest priority | `priority` |
//! | marks | their connections to nodes are marked, for the network to slow | `marks` |
//!
//! [`ThrottleLimits`] may have several of them. Held requests go in the order of arrival, over all workers
//! of a front-end: [`Throttles`] is one table that they share. What counts is what this front-end
//! has: with several of them, each gives its own class so much.
//!
//! What it does not know: sockets, locks, how requests wait; the shell gives each arrival a place and
//! learns which may go on ([`Throttles::poll`]).

mod automatic;
mod bandwidth;
mod concurrency;
mod gate;
mod held;
mod marks;
mod pattern;
mod pause;
mod priority;
mod rate;
mod rules;
mod stillness;
mod table;

use std::fmt;
use std::time::Duration;

pub use automatic::{
    AutoConfig, Automatic, Before, Culprit, Done, Eased, Heard, LearnedAutomatic, LearnedThrottle,
    Others, Passing, Present, Pressure, Standing, Step, UsedPart, WhyReleased, steps,
};
pub use bandwidth::Piece;
pub use gate::{Entry, HeldOutcome, ThrottleCounters};
pub use held::HeldId;
pub use marks::Marks;
pub use pattern::{ClassPattern, PatternError};
pub use priority::lowered;
pub use rules::{Rule, Rules};
pub use stillness::Stood;
pub use table::{SetError, Throttle, ThrottleId, Throttles};

use crate::units::{Size, format_duration, format_size};

/// What is done to requests of a class. By default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThrottleLimits {
    /// Most requests in flight.
    pub concurrency: Option<u32>,
    /// Most requests per second.
    pub rate: Option<f64>,
    /// Bytes per second of all their response bodies together.
    pub bandwidth: Option<u64>,
    /// How long one that is held waits at most; none: as long as it takes.
    pub queue: Option<Duration>,
    /// Admission takes them for the lowest priority.
    pub lowest_priority: bool,
    /// Marks of their connections to nodes.
    pub marks: Marks,
}

/// Why such limits make no sense.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ThrottleLimitsError {
    /// It does nothing.
    #[error("the throttle does nothing: it needs concurrency, rate, bandwidth, priority or a mark")]
    Nothing,
    /// Out of range.
    #[error(
        "concurrency must be from 1 to {}, so that requests still complete",
        ThrottleLimits::CONCURRENCY_MAX
    )]
    Concurrency,
    /// Out of range.
    #[error(
        "rate must be from {} to {} requests per second",
        ThrottleLimits::RATE_MIN,
        ThrottleLimits::RATE_MAX
    )]
    Rate,
    /// Out of range.
    #[error("bandwidth must be from 1KiB to 1024GiB per second")]
    Bandwidth,
    /// A deadline without a queue.
    #[error(
        "queue says how long requests wait: it needs concurrency or rate, which make them wait"
    )]
    Queue,
    /// Out of range.
    #[error("dscp must be from 0 to {}", Marks::DSCP_MAX)]
    Dscp,
}

impl ThrottleLimits {
    /// Greatest concurrency.
    pub const CONCURRENCY_MAX: u32 = 1_000_000;
    /// Least rate: a request in a quarter of an hour.
    pub const RATE_MIN: f64 = 0.001;
    /// Greatest rate.
    pub const RATE_MAX: f64 = 1_000_000.0;
    /// Least bandwidth, bytes per second.
    pub const BANDWIDTH_MIN: u64 = 1 << 10;
    /// Greatest bandwidth, bytes per second.
    pub const BANDWIDTH_MAX: u64 = 1 << 40;

    /// Whether it can make requests wait before they go on.
    pub fn holds(&self) -> bool {
        self.concurrency.is_some() || self.rate.is_some()
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), ThrottleLimitsError> {
        let concurrency = 1..=Self::CONCURRENCY_MAX;
        let rate = Self::RATE_MIN..=Self::RATE_MAX;
        let bandwidth = Self::BANDWIDTH_MIN..=Self::BANDWIDTH_MAX;
        if self
            .concurrency
            .is_some_and(|it| !concurrency.contains(&it))
        {
            return Err(ThrottleLimitsError::Concurrency);
        }
        // A NaN is in no range.
        if self.rate.is_some_and(|it| !rate.contains(&it)) {
            return Err(ThrottleLimitsError::Rate);
        }
        if self.bandwidth.is_some_and(|it| !bandwidth.contains(&it)) {
            return Err(ThrottleLimitsError::Bandwidth);
        }
        if self.queue.is_some() && !self.holds() {
            return Err(ThrottleLimitsError::Queue);
        }
        if self.marks.dscp.is_some_and(|dscp| dscp > Marks::DSCP_MAX) {
            return Err(ThrottleLimitsError::Dscp);
        }
        let slows = self.holds() || self.bandwidth.is_some() || self.lowest_priority;
        match slows || !self.marks.is_none() {
            true => Ok(()),
            false => Err(ThrottleLimitsError::Nothing),
        }
    }
}

/// In words: `2 in flight, 5 per second, 64KiB/s`.
impl fmt::Display for ThrottleLimits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Marks {
            mark,
            priority,
            dscp,
        } = self.marks;
        let parts = [
            self.concurrency.map(|most| format!("{most} in flight")),
            self.rate.map(|rate| format!("{rate} per second")),
            self.bandwidth
                .map(|bytes| format!("{}/s", format_size(Size(bytes)))),
            self.queue
                .map(|queue| format!("{} of waiting", format_duration(queue))),
            self.lowest_priority.then(|| "lowest priority".into()),
            mark.map(|mark| format!("mark {mark}")),
            dscp.map(|dscp| format!("dscp {dscp}")),
            priority.map(|priority| format!("socket priority {priority}")),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        out.write_str(&parts.join(", "))
    }
}

/// Where a throttle came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetBy {
    /// The configuration file.
    Config,
    /// An operator.
    Operator,
    /// The policy that follows verdicts.
    Policy,
}

impl SetBy {
    /// Every one with its label.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Config, "config"),
        (Self::Operator, "operator"),
        (Self::Policy, "policy"),
    ];

    /// Its label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Operator => "operator",
            Self::Policy => "policy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(change: impl FnOnce(&mut ThrottleLimits)) -> Result<(), ThrottleLimitsError> {
        let mut limits = ThrottleLimits::default();
        change(&mut limits);
        limits.check()
    }

    #[test]
    fn an_order_makes_sense_or_says_why_not() {
        assert_eq!(changed(|_| ()), Err(ThrottleLimitsError::Nothing));
        for (most, expected) in [(0, Err(ThrottleLimitsError::Concurrency)), (1, Ok(()))] {
            assert_eq!(changed(|it| it.concurrency = Some(most)), expected);
        }
        let wrong = Err(ThrottleLimitsError::Rate);
        for (rate, expected) in [(f64::NAN, wrong), (0.0, wrong), (0.001, Ok(()))] {
            assert_eq!(changed(|it| it.rate = Some(rate)), expected);
        }
        for (bytes, expected) in [(10, Err(ThrottleLimitsError::Bandwidth)), (1024, Ok(()))] {
            assert_eq!(changed(|it| it.bandwidth = Some(bytes)), expected);
        }
        let queue = changed(|it| {
            it.queue = Some(Duration::ZERO);
            it.lowest_priority = true;
        });
        assert_eq!(queue, Err(ThrottleLimitsError::Queue));
        assert_eq!(
            changed(|it| it.marks.dscp = Some(64)),
            Err(ThrottleLimitsError::Dscp)
        );
        assert_eq!(changed(|it| it.marks.mark = Some(0)), Ok(()));
        assert_eq!(changed(|it| it.lowest_priority = true), Ok(()));
    }

    #[test]
    fn an_order_reads_well() {
        let limits = ThrottleLimits {
            concurrency: Some(2),
            rate: Some(0.5),
            bandwidth: Some(64 << 10),
            queue: Some(Duration::from_secs(10)),
            lowest_priority: true,
            marks: Marks {
                mark: Some(7),
                priority: Some(1),
                dscp: Some(8),
            },
        };
        assert_eq!(
            limits.to_string(),
            "2 in flight, 0.5 per second, 64KiB/s, 10s of waiting, lowest priority, mark 7, dscp 8, \
             socket priority 1"
        );
        for (by, label) in SetBy::ALL {
            assert_eq!(by.label(), *label);
        }
    }
}
