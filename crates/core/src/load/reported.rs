//! A node's load as another program reports it: some numbers, each with a period of its own, and no counters.
//!
//! ```text
//! known      a number is known until it is older than 4 of its own periods
//! observed   when the known number with the shortest period was measured; of two, the newer
//! runnable   as reported, or else expected from the used share u of C CPUs:
//!            n = C u + min(Lq, C),   Lq = u^sqrt(2 (C + 1)) / (1 - u)
//!            or else the load average, at most 2 C
//! ```
//!
//! Inputs: used shares of CPU, memory and files, CPUs, run queue or load average, requests in flight; all of them may be
//! missing. Own traffic up to the moment of the answer is taken as seen, as by the reader of records.
//!
//! Lq is the approximation of the mean queue of M/M/C of Sakasegawa-1977. It grows without bound as u nears 1, but a used share is
//! a mean over a period and rounded to a percent: at 0.99 it does not tell ten tasks that wait from a hundred. So no more than
//! one task per CPU is believed to wait. Beyond that, what separates full nodes is own requests in flight and learned
//! latencies. Without that bound, all front-ends would leave a node for a whole period because of one busy second.
//!
//! Such an n is the mean of a period and not the state of an instant, so it does not lose its worth as fast as a record
//! does: `director::learn` makes it the node's own prior, as far as reports come true. The mean run queue that admission measures with stays unknown: a server whose
//! load is reported counts as one without records there.
//!
//! Failure case: a mean over a minute (`laLoad`, `hrProcessorLoad`) follows load so late that a node which was
//! busy is avoided when it is idle again.
//! Source: Sakasegawa-1977 for Lq; its bound and its use as a prior are ours.

use std::time::Duration;

use super::{Measured, NodeLoad, OwnTraffic, Rung};
use crate::time::Timestamp;

/// A number is unknown once it is older than so many of its periods.
const KNOWN_PERIODS: u32 = 4;
/// Longest period: after four of them no load is believed, whatever its source says.
const PERIOD_MAX: Duration = Duration::from_secs(15);
/// Rounding of a source may put a full share so far above 1.
const SHARE_MAX: f32 = 1.05;
/// Most CPUs of a node, and the least part of one.
const CAPACITY_MAX: f32 = 65_536.0;
const CAPACITY_MIN: f32 = 0.001;
/// Most tasks or requests at a node.
const COUNT_MAX: f32 = 1e7;
/// Used shares above this are full: what is missing is rounding.
const FULL: f32 = 0.999;

/// What a number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ReportedMetric {
    /// Used share of the CPUs.
    Cpu,
    /// Used share of the memory.
    Memory,
    /// Used share of the file descriptors.
    Files,
    /// CPUs that the node has.
    Capacity,
    /// Tasks that run or wait for a CPU, now.
    Runnable,
    /// The mean of the same over a minute or so.
    LoadAverage,
    /// Requests in flight at the node.
    InFlight,
}

impl ReportedMetric {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Each with its name in configurations.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Cpu, "cpu"),
        (Self::Memory, "memory"),
        (Self::Files, "files"),
        (Self::Capacity, "capacity"),
        (Self::Runnable, "runnable"),
        (Self::LoadAverage, "load_average"),
        (Self::InFlight, "in_flight"),
    ];

    /// Its name.
    pub fn label(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The value as it is kept; nothing for one that cannot be true.
    fn plausible(self, value: f32) -> Option<f32> {
        let range = match self {
            Self::Cpu | Self::Memory | Self::Files => 0.0..=SHARE_MAX,
            Self::Capacity => CAPACITY_MIN..=CAPACITY_MAX,
            Self::Runnable | Self::LoadAverage | Self::InFlight => 0.0..=COUNT_MAX,
        };
        let value = range.contains(&value).then_some(value)?;
        Some(match self {
            Self::Cpu | Self::Memory | Self::Files => value.min(1.0),
            Self::Capacity | Self::Runnable | Self::LoadAverage | Self::InFlight => value,
        })
    }
}

/// When a source was asked and when it answered, with own traffic at both moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// When the first question was sent.
    pub sent_at: Timestamp,
    /// When the last answer came.
    pub received_at: Timestamp,
    /// Own traffic when it was sent.
    pub own_sent: OwnTraffic,
    /// Own traffic when it came.
    pub own_received: OwnTraffic,
}

impl Exchange {
    fn observed_at(&self) -> Timestamp {
        self.sent_at + self.one_way()
    }

    fn one_way(&self) -> Duration {
        self.received_at.since(self.sent_at) / 2
    }

    /// A load of which nothing is known but that its source was heard.
    pub fn unmeasured(&self, rung: Rung, period: Duration) -> NodeLoad {
        NodeLoad {
            observed_at: self.observed_at(),
            interval: period.min(PERIOD_MAX),
            one_way: self.one_way().as_secs_f32(),
            unseen_from: self.seen(),
            rung,
            ..NodeLoad::UNKNOWN
        }
    }

    /// What was on its way to the node is not seen yet, and what was on its way back is seen.
    fn seen(&self) -> OwnTraffic {
        OwnTraffic {
            dispatched: self.own_sent.dispatched,
            completed: self.own_received.completed,
        }
    }
}

/// One number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportedValue {
    /// What it says.
    pub metric: ReportedMetric,
    /// How much.
    pub value: f32,
    /// How often it is measured.
    pub period: Duration,
    /// How long ago it was measured, where the source tells; zero at the answer.
    pub age: Duration,
}

/// The newest of each number of one node.
#[derive(Clone, Debug, Default)]
pub struct ReportedLoad {
    newest: [Option<Known>; ReportedMetric::COUNT],
}

#[derive(Clone, Copy, Debug)]
struct Known {
    value: f32,
    period: Duration,
    observed_at: Timestamp,
    one_way: Duration,
    seen: OwnTraffic,
}

impl Known {
    fn is_known(&self, now: Timestamp) -> bool {
        now.since(self.observed_at) <= self.period * KNOWN_PERIODS
    }
}

impl ReportedLoad {
    /// Takes a number in. One that cannot be true changes nothing; whether it could.
    pub fn note(&mut self, reported: &ReportedValue, exchange: &Exchange) -> bool {
        let metric = reported.metric;
        let Some(value) = metric.plausible(reported.value) else {
            return false;
        };
        self.newest[metric as usize] = Some(Known {
            value,
            period: reported.period.min(PERIOD_MAX),
            observed_at: exchange.observed_at() - reported.age,
            one_way: exchange.one_way(),
            seen: exchange.seen(),
        });
        true
    }

    /// The load that they make, with this rung; [`NodeLoad::UNKNOWN`] if nothing is known any more.
    pub fn load(&self, rung: Rung, now: Timestamp) -> NodeLoad {
        let Some(lead) = self.lead(now) else {
            return NodeLoad::UNKNOWN;
        };
        let value = |metric| self.known(metric, now).map_or(f32::NAN, |it| it.value);
        let utilization = value(ReportedMetric::Cpu);
        let capacity = value(ReportedMetric::Capacity);
        NodeLoad {
            observed_at: lead.observed_at,
            interval: lead.period,
            one_way: lead.one_way.as_secs_f32(),
            unseen_from: lead.seen,
            rung,
            capacity,
            runnable: self.runnable(now),
            utilization,
            utilization_ulm: utilization,
            in_flight: value(ReportedMetric::InFlight),
            memory: value(ReportedMetric::Memory),
            files: value(ReportedMetric::Files),
            ..NodeLoad::UNKNOWN
        }
    }

    /// When the numbers of that load were measured.
    pub fn measured(&self, now: Timestamp) -> Measured {
        let at = |metric| self.known(metric, now).map(|it| it.observed_at);
        Measured {
            cpu: at(ReportedMetric::Cpu),
            memory: at(ReportedMetric::Memory),
            files: at(ReportedMetric::Files),
            capacity: at(ReportedMetric::Capacity),
            runnable: self.run_queue(now).map(|(_, known)| known.observed_at),
            in_flight: at(ReportedMetric::InFlight),
        }
    }

    fn known(&self, metric: ReportedMetric, now: Timestamp) -> Option<&Known> {
        let newest = self.newest[metric as usize].as_ref();
        newest.filter(|it| it.is_known(now))
    }

    /// The number by which the load's age is judged. How many CPUs there are says nothing of load.
    fn lead(&self, now: Timestamp) -> Option<&Known> {
        let of_load = ReportedMetric::ALL.iter().map(|(metric, _)| *metric);
        let of_load = of_load.filter(|metric| *metric != ReportedMetric::Capacity);
        let known = of_load.filter_map(|metric| self.known(metric, now));
        known.min_by_key(|it| (it.period, std::cmp::Reverse(it.observed_at)))
    }

    fn runnable(&self, now: Timestamp) -> f32 {
        // Where it is not said how many CPUs there are, one is the least that it can have.
        let capacity = self.known(ReportedMetric::Capacity, now);
        let capacity = capacity.map_or(1.0, |it| it.value);
        match self.run_queue(now) {
            Some((RunQueueBasis::Reported, known)) => known.value,
            Some((RunQueueBasis::UsedShare, known)) => expected_runnable(known.value, capacity),
            Some((RunQueueBasis::LoadAverage, known)) => known.value.min(2.0 * capacity),
            None => f32::NAN,
        }
    }

    /// The number that the run queue is taken from.
    fn run_queue(&self, now: Timestamp) -> Option<(RunQueueBasis, &Known)> {
        let bases = [
            (RunQueueBasis::Reported, ReportedMetric::Runnable),
            (RunQueueBasis::UsedShare, ReportedMetric::Cpu),
            (RunQueueBasis::LoadAverage, ReportedMetric::LoadAverage),
        ];
        let mut bases = bases.into_iter();
        bases.find_map(|(basis, metric)| Some((basis, self.known(metric, now)?)))
    }
}

/// What the run queue is taken from, the best first.
#[derive(Clone, Copy, Debug)]
enum RunQueueBasis {
    Reported,
    UsedShare,
    LoadAverage,
}

/// Tasks that run or wait at a node of so many CPUs, of which this share is used; see the module.
pub fn expected_runnable(used: f32, capacity: f32) -> f32 {
    let used = used.clamp(0.0, 1.0);
    let waiting = match used < FULL {
        true => used.powf((2.0 * (capacity + 1.0)).sqrt()) / (1.0 - used),
        false => f32::INFINITY,
    };
    capacity * used + waiting.min(capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: OwnTraffic = OwnTraffic {
        dispatched: 0,
        completed: 0,
    };

    fn exchange(sent_ms: u64) -> Exchange {
        Exchange {
            sent_at: Timestamp::from_millis(sent_ms),
            received_at: Timestamp::from_millis(sent_ms + 4),
            own_sent: NONE,
            own_received: NONE,
        }
    }

    fn value(metric: ReportedMetric, value: f32, period_ms: u64) -> ReportedValue {
        ReportedValue {
            metric,
            value,
            period: Duration::from_millis(period_ms),
            age: Duration::ZERO,
        }
    }

    #[test]
    fn each_number_is_known_for_four_of_its_own_periods() {
        let mut load = ReportedLoad::default();
        assert!(load.note(&value(ReportedMetric::Cpu, 0.5, 500), &exchange(1000)));
        assert!(load.note(&value(ReportedMetric::Memory, 0.25, 5000), &exchange(1000)));
        let at = |ms| load.load(Rung::Snmp, Timestamp::from_millis(ms));
        let early = at(3002);
        assert_eq!((early.utilization, early.memory), (0.5, 0.25));
        assert_eq!(early.interval, Duration::from_millis(500));
        assert_eq!(early.observed_at, Timestamp::from_millis(1002));
        assert_eq!(early.rung, Rung::Snmp);
        assert!(early.is_fresh(Timestamp::from_millis(3002)));
        assert!(!early.is_fresh(Timestamp::from_millis(3003)));
        let measured = |ms| load.measured(Timestamp::from_millis(ms));
        let early = measured(3002);
        assert_eq!(early.cpu, Some(Timestamp::from_millis(1002)));
        assert_eq!((early.runnable, early.files), (early.cpu, None));
        assert_eq!((measured(3003).cpu, measured(3003).runnable), (None, None));
        assert_eq!(measured(3003).memory, Some(Timestamp::from_millis(1002)));
        let late = at(3003);
        assert!(late.utilization.is_nan() && late.runnable.is_nan());
        assert_eq!(late.memory, 0.25);
        assert_eq!(late.interval, Duration::from_secs(5));
        assert!(late.is_fresh(Timestamp::from_millis(21_002)));
        assert_eq!(at(21_003).observed_at, Timestamp::ZERO, "nothing is known");
    }

    #[test]
    fn a_load_without_numbers_is_unknown_and_so_are_cpus_alone() {
        let mut load = ReportedLoad::default();
        let now = Timestamp::from_millis(1010);
        assert_eq!(load.load(Rung::Snmp, now).rung, Rung::None);
        load.note(&value(ReportedMetric::Capacity, 8.0, 500), &exchange(1000));
        assert_eq!(load.load(Rung::Snmp, now).rung, Rung::None);
    }

    #[test]
    fn what_cannot_be_true_is_refused() {
        let mut load = ReportedLoad::default();
        for (metric, bad) in [
            (ReportedMetric::Cpu, 1.06),
            (ReportedMetric::Cpu, -0.01),
            (ReportedMetric::Memory, f32::NAN),
            (ReportedMetric::Files, f32::INFINITY),
            (ReportedMetric::Capacity, 0.0),
            (ReportedMetric::Capacity, 1e6),
            (ReportedMetric::Runnable, -1.0),
            (ReportedMetric::InFlight, 1e8),
        ] {
            assert!(
                !load.note(&value(metric, bad, 500), &exchange(1000)),
                "{bad}"
            );
        }
        assert!(load.newest.iter().all(Option::is_none));
        assert!(load.note(&value(ReportedMetric::Cpu, 1.04, 500), &exchange(1000)));
        let now = Timestamp::from_millis(1010);
        assert_eq!(load.load(Rung::Snmp, now).utilization, 1.0);
    }

    #[test]
    fn own_requests_that_the_answer_cannot_have_seen_are_told_apart() {
        let mut load = ReportedLoad::default();
        let exchange = Exchange {
            own_sent: OwnTraffic {
                dispatched: 10,
                completed: 5,
            },
            own_received: OwnTraffic {
                dispatched: 14,
                completed: 8,
            },
            ..exchange(1000)
        };
        load.note(&value(ReportedMetric::Cpu, 0.5, 500), &exchange);
        let seen = load
            .load(Rung::Snmp, Timestamp::from_millis(1004))
            .unseen_from;
        assert_eq!((seen.dispatched, seen.completed), (10, 8));
    }

    #[test]
    fn a_reported_run_queue_goes_before_a_used_share_and_that_before_an_average() {
        let mut load = ReportedLoad::default();
        let now = Timestamp::from_millis(1010);
        load.note(&value(ReportedMetric::Capacity, 4.0, 500), &exchange(1000));
        load.note(
            &value(ReportedMetric::LoadAverage, 40.0, 500),
            &exchange(1000),
        );
        assert_eq!(load.load(Rung::Snmp, now).runnable, 8.0, "twice the CPUs");
        load.note(&value(ReportedMetric::Cpu, 0.5, 500), &exchange(1000));
        assert_eq!(
            load.load(Rung::Snmp, now).runnable,
            expected_runnable(0.5, 4.0)
        );
        load.note(&value(ReportedMetric::Runnable, 3.0, 500), &exchange(1000));
        assert_eq!(load.load(Rung::Snmp, now).runnable, 3.0);
    }

    #[test]
    fn the_expected_run_queue_rises_with_the_used_share_up_to_one_that_waits_per_cpu() {
        for capacity in [0.5_f32, 1.0, 2.0, 16.0, 256.0] {
            assert_eq!(expected_runnable(0.0, capacity), 0.0);
            assert_eq!(expected_runnable(1.0, capacity), 2.0 * capacity);
            let mut last = 0.0;
            for percent in 1..=100_u8 {
                let tasks = expected_runnable(f32::from(percent) / 100.0, capacity);
                assert!(tasks > last && tasks <= 2.0 * capacity, "{percent}");
                last = tasks;
            }
        }
        // M/M/1: u / (1 - u).
        assert!((expected_runnable(0.4, 1.0) - 0.4 / 0.6).abs() < 1e-6);
    }
}
