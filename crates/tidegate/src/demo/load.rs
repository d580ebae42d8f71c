//! The load: the same arrivals for every policy, and every latency counts from the moment at which the
//! request was *meant* to be sent (no coordinated omission).

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use http::Request;
use http::header::HOST;
use tidegate_core::time::Timestamp;
use tidegate_emulator::load::NoBody;

use super::cluster::Arrival;
use super::open_loop::{Arrivals, ExchangeOutcome, OpenLoop};

/// Longest latency that is recorded, microseconds.
const LATENCY_MAX: u64 = 600_000_000;
/// Digits of a latency that are right.
const DIGITS: u8 = 3;

/// What came of the requests. Those that were due before the warm-up ended are counted as sent
/// and ended, and measured in nothing else.
#[derive(Debug)]
pub(super) struct LoadTally {
    /// Requests sent so far.
    pub(super) sent: u64,
    /// Requests ended so far: answered, failed or cut off.
    pub(super) ended: u64,
    /// Measured requests that were answered.
    pub(super) completed: u64,
    /// Of these, before the last one was due.
    pub(super) in_time: u64,
    /// Measured requests that were not answered, or with an error.
    pub(super) failed: u64,
    /// Requests cut off because the demo was interrupted.
    pub(super) interrupted: u64,
    /// From the moment due to the whole answer, microseconds; answered requests.
    pub(super) latencies: Histogram<u64>,
    /// The part of it that was not spent at the node: what the machine itself takes, with
    /// the front-end's work and everything that came late.
    pub(super) overheads: Histogram<u64>,
}

impl LoadTally {
    pub(super) fn new() -> Self {
        let histogram = || {
            let histogram = Histogram::new_with_bounds(1, LATENCY_MAX, DIGITS);
            histogram.expect("the bounds are constant and valid")
        };
        Self {
            sent: 0,
            ended: 0,
            completed: 0,
            in_time: 0,
            failed: 0,
            interrupted: 0,
            latencies: histogram(),
            overheads: histogram(),
        }
    }

    /// Adds another run's.
    pub(super) fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.ended += other.ended;
        self.completed += other.completed;
        self.in_time += other.in_time;
        self.failed += other.failed;
        self.interrupted += other.interrupted;
        // All have the same bounds.
        self.latencies.add(&other.latencies).ok();
        self.overheads.add(&other.overheads).ok();
    }

    /// What 99 of 100 answered requests did not exceed outside the nodes, milliseconds.
    pub(super) fn overhead_ms(&self) -> f64 {
        self.overheads.value_at_quantile(0.99) as f64 * 1e-3
    }

    /// A quantile of the latencies in milliseconds.
    pub(super) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 * 1e-3
    }
}

/// What is sent, and where to.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) arrivals: Arc<[Arrival]>,
    /// Of the front-ends.
    pub(super) addresses: Arc<[SocketAddr]>,
    /// Of the sites.
    pub(super) hosts: Arc<[&'static str]>,
    pub(super) start: Timestamp,
    /// Requests due before this much of the run are not measured.
    pub(super) warm_up: Duration,
    /// When the last request is due.
    pub(super) length: Duration,
}

/// A load that is being applied.
#[derive(Debug)]
pub(super) struct Load {
    sent: Arc<Sent>,
    requests: OpenLoop,
}

impl Load {
    /// Begins to send.
    pub(super) fn start(plan: Plan) -> io::Result<Self> {
        let (addresses, start) = (Arc::clone(&plan.addresses), plan.start);
        let sent = Arc::new(Sent {
            plan,
            tally: Mutex::new(LoadTally::new()),
        });
        Ok(Self {
            requests: OpenLoop::start(Arc::clone(&sent), &addresses, start)?,
            sent,
        })
    }

    /// Whether all requests have ended.
    pub(super) fn is_done(&self) -> bool {
        self.requests.is_done()
    }

    /// What came of it so far.
    pub(super) fn tally(&self) -> MutexGuard<'_, LoadTally> {
        self.sent.tally()
    }

    /// Sends no more, and gives what came of it.
    pub(super) fn finish(mut self) -> LoadTally {
        self.requests.end();
        std::mem::replace(&mut *self.sent.tally(), LoadTally::new())
    }
}

/// What is sent, and what has come of it.
#[derive(Debug)]
struct Sent {
    plan: Plan,
    tally: Mutex<LoadTally>,
}

impl Sent {
    fn tally(&self) -> MutexGuard<'_, LoadTally> {
        // A thread that panicked has said so; what was counted is still worth showing.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arrivals for Sent {
    fn due(&self, number: usize) -> Option<Duration> {
        self.plan.arrivals.get(number).map(|arrival| arrival.at)
    }

    fn front_end(&self, number: usize) -> usize {
        self.plan.arrivals[number].front_end as usize
    }

    fn request(&self, number: usize) -> http::Result<Request<NoBody>> {
        let arrival = &self.plan.arrivals[number];
        Request::builder()
            .uri(format!("/work?cpu={}us", arrival.demand.as_micros()))
            .header(HOST, self.plan.hosts[arrival.site.index()])
            .body(NoBody::new())
    }

    fn on_sent(&self, _: usize) {
        self.tally().sent += 1;
    }

    fn on_ended(&self, number: usize, outcome: ExchangeOutcome, now: Timestamp) {
        let arrival = &self.plan.arrivals[number];
        let mut tally = self.tally();
        tally.ended += 1;
        if arrival.at < self.plan.warm_up {
            return;
        }
        match outcome {
            ExchangeOutcome::Answered(took) => {
                tally.completed += 1;
                tally.in_time += u64::from(now <= self.plan.start + self.plan.length);
                let latency = now.since(self.plan.start + arrival.at).as_micros();
                let micros = u64::try_from(latency).unwrap_or(LATENCY_MAX);
                tally.latencies.saturating_record(micros);
                tally
                    .overheads
                    .saturating_record(micros.saturating_sub(took));
            }
            ExchangeOutcome::Refused(_) | ExchangeOutcome::Broken => tally.failed += 1,
        }
    }

    /// Counts the requests that have not ended.
    fn on_cut(&self, stopped: bool) {
        let mut tally = self.tally();
        let cut = tally.sent - tally.ended;
        tally.ended += cut;
        if stopped {
            tally.interrupted += cut;
        } else {
            tally.failed += cut;
        }
    }
}
