//! All that ask a demo's sites for something, and what became of each request. Requests are of one of two kinds: the
//! elephant's demo has heavy requests and all others, the demo of moves has those of one site and of the other.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Request;
use tidegate_core::prng::Prng;
use tidegate_core::stats::quantile_of_sorted;
use tidegate_core::time::Timestamp;
use tidegate_emulator::load::NoBody;
use tidegate_remote::clock;
use tidegate_sim::model::Demand;

use super::open_loop::{Arrivals, ExchangeOutcome};

/// Kinds of requests.
const KINDS: usize = 2;

/// A request that will be sent.
pub(super) trait Visit: Send + Sync + 'static {
    /// When it is due, since the start.
    fn at(&self) -> Duration;
    /// Its kind, 0 or 1.
    fn kind(&self) -> usize;
    /// What is sent.
    fn request(&self) -> http::Result<Request<NoBody>>;
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EndedRequest {
    /// When, since the start.
    pub(super) at: Duration,
    /// From the moment at which it was due.
    pub(super) latency: Duration,
    pub(super) kind: usize,
    pub(super) outcome: ExchangeOutcome,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Visitors<V> {
    arrivals: Vec<V>,
    start: Timestamp,
    book: Mutex<Book>,
}

/// What is known by now.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// In the order in which they ended; as many as there are arrivals at most.
    pub(super) ended: Vec<EndedRequest>,
    /// Of requests that were sent: when they were due, and how much later they were sent.
    sent: Vec<(Duration, Duration)>,
    /// Requests that were sent and have not ended, by kind.
    pub(super) under_way: [u64; KINDS],
}

/// What became of requests that ended in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    /// Answered by a node.
    pub(super) completed: u64,
    /// Answered with 4xx or 5xx.
    pub(super) refused: u64,
    /// Not answered.
    pub(super) failed: u64,
    /// Completed requests per second.
    pub(super) per_second: f64,
    /// Latency of completed requests; none where there are none.
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

impl<V> Visitors<V> {
    /// They begin at `start`.
    pub(super) fn new(arrivals: Vec<V>, start: Timestamp) -> Self {
        Self {
            arrivals,
            start,
            book: Mutex::default(),
        }
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        // A thread that panicked has said so; what was counted is still worth showing.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: Visit> Arrivals for Visitors<V> {
    fn due(&self, number: usize) -> Option<Duration> {
        self.arrivals.get(number).map(V::at)
    }

    fn front_end(&self, _: usize) -> usize {
        0
    }

    fn request(&self, number: usize) -> http::Result<Request<NoBody>> {
        self.arrivals[number].request()
    }

    fn on_sent(&self, number: usize) {
        let arrival = &self.arrivals[number];
        let late = clock::now().since(self.start + arrival.at());
        let mut book = self.book();
        book.sent.push((arrival.at(), late));
        book.under_way[arrival.kind()] += 1;
    }

    fn on_ended(&self, number: usize, outcome: ExchangeOutcome, now: Timestamp) {
        let arrival = &self.arrivals[number];
        let ended = EndedRequest {
            at: now.since(self.start),
            latency: now.since(self.start + arrival.at()),
            kind: arrival.kind(),
            outcome,
        };
        let mut book = self.book();
        book.under_way[arrival.kind()] -= 1;
        book.ended.push(ended);
    }

    /// Those that are still there are counted as such.
    fn on_cut(&self, _: bool) {}
}

impl Book {
    /// Requests that were sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent.len() as u64
    }

    /// How late 99 of 100 requests were sent at most that were due between two moments: what this machine
    /// itself adds, whatever is sent.
    pub(super) fn late_ms(&self, from: Duration, to: Duration) -> Option<f64> {
        let due = self.sent.iter().filter(|(at, _)| (from..to).contains(at));
        let mut late: Vec<_> = due.map(|(_, late)| *late).collect();
        late.sort_unstable();
        quantile_ms(&late, 0.99)
    }

    /// What became of requests of a kind that ended between two moments.
    pub(super) fn sum(&self, kind: usize, from: Duration, to: Duration) -> Sum {
        let mut sum = Sum::default();
        let mut latencies = Vec::new();
        let newest = self.ended.iter().rev();
        let between = newest
            .take_while(|it| it.at >= from)
            .filter(|it| it.at < to && it.kind == kind);
        for it in between {
            match it.outcome {
                ExchangeOutcome::Answered(_) => latencies.push(it.latency),
                ExchangeOutcome::Refused(_) => sum.refused += 1,
                ExchangeOutcome::Broken => sum.failed += 1,
            }
        }
        latencies.sort_unstable();
        sum.completed = latencies.len() as u64;
        sum.per_second = sum.completed as f64 / to.saturating_sub(from).as_secs_f64().max(1e-9);
        sum.p50_ms = quantile_ms(&latencies, 0.5);
        sum.p99_ms = quantile_ms(&latencies, 0.99);
        sum
    }

    /// Time that 99 of 100 answered requests did not exceed outside the nodes.
    pub(super) fn overhead(&self, from: Duration) -> Duration {
        let overhead = |it: &EndedRequest| match it.outcome {
            ExchangeOutcome::Answered(took) => {
                Some(it.latency.saturating_sub(Duration::from_micros(took)))
            }
            ExchangeOutcome::Refused(_) | ExchangeOutcome::Broken => None,
        };
        let ended = self.ended.iter().filter(|it| it.at >= from);
        let mut overheads: Vec<_> = ended.filter_map(overhead).collect();
        overheads.sort_unstable();
        let p99 = quantile_ms(&overheads, 0.99).unwrap_or_default();
        Duration::from_secs_f64(p99 * 1e-3)
    }
}

/// A demand around a mean, seconds.
pub(super) fn exponential(mean: f64, prng: &mut Prng) -> Duration {
    Duration::from_secs_f64(Demand::Exponential.draw(mean, prng))
}

/// Times at which requests of such a rate are due.
pub(super) fn poisson(rate: f64, from: Duration, to: Duration, prng: &mut Prng) -> Vec<Duration> {
    let mut times = Vec::new();
    let mut at = from.as_secs_f64() + prng.exponential(1.0 / rate);
    while at < to.as_secs_f64() {
        times.push(Duration::from_secs_f64(at));
        at += prng.exponential(1.0 / rate);
    }
    times
}

/// A quantile of sorted times, milliseconds.
fn quantile_ms(sorted: &[Duration], quantile: f64) -> Option<f64> {
    quantile_of_sorted(sorted, quantile).map(|value| value.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(at_ms: u64, latency_ms: u64, kind: usize, outcome: ExchangeOutcome) -> EndedRequest {
        EndedRequest {
            at: Duration::from_millis(at_ms),
            latency: Duration::from_millis(latency_ms),
            kind,
            outcome,
        }
    }

    #[test]
    fn what_ended_between_two_moments_is_summed_up() {
        let took = ExchangeOutcome::Answered(4000);
        let mut book = Book {
            ended: (1..=100).map(|n| ended(1000 + n, n, 0, took)).collect(),
            ..Book::default()
        };
        book.ended.push(ended(1150, 900, 1, took));
        book.ended.push(ended(1160, 5, 0, ExchangeOutcome::Broken));
        book.ended.push(ended(
            1170,
            5,
            0,
            ExchangeOutcome::Refused(http::StatusCode::TOO_MANY_REQUESTS),
        ));
        book.ended.push(ended(3000, 5, 0, took));
        let (from, to) = (Duration::from_secs(1), Duration::from_secs(3));
        let sum = book.sum(0, from, to);
        assert_eq!((sum.completed, sum.refused, sum.failed), (100, 1, 1));
        assert_eq!((sum.p50_ms, sum.p99_ms), (Some(51.0), Some(99.0)));
        assert_eq!(sum.per_second, 50.0);
        assert_eq!(book.sum(1, from, to).p50_ms, Some(900.0));
        assert_eq!(book.sum(0, to + to, to + to).p50_ms, None);
        assert_eq!(book.overhead(to), Duration::from_millis(1));
        let late = |ms: u64| (from + Duration::from_millis(ms), Duration::from_millis(ms));
        book.sent = (1..=100).map(late).collect();
        assert_eq!(book.late_ms(from, to), Some(99.0));
        assert_eq!(book.late_ms(to, to), None);
    }
}
