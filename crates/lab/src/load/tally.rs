//! What is counted while a load runs, one [`Tally`] per stream. Pure: time comes in.
//!
//! A request belongs to the measurement if it was due in the measured length, however late it
//! ends; requests due in the warm-up are counted nowhere but in throughput and windows, which are
//! about what ends in a stretch of time.
//!
//! Limits: [`KINDS_MAX`] kinds of errors and values of the counted header; the rest is "other".

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use tidegate_core::stats::quantile_of_ordered;

use super::client::ExchangeOutcome;
use super::plan::Stream;
use super::result::{LATENCY_MAX_US, StreamResult, Window, latencies};
use super::visits::Visits;

/// Begun so much after it was due, a request is late,
pub(super) const LATE: Duration = Duration::from_millis(1);
/// if that was more than this part of all that it took: less decides nothing.
const LATE_PART: u32 = 20;
/// Different errors, and different values of the counted header, that are distinguished.
const KINDS_MAX: usize = 64;

/// The measured stretch of time, from the run's beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) from: Duration,
    pub(super) to: Duration,
}

impl Stretch {
    fn has(self, at: Duration) -> bool {
        (self.from..self.to).contains(&at)
    }
}

/// A request that ended.
#[derive(Debug)]
pub(super) struct EndedRequest {
    /// When it was due (open loop) or sent (closed loop), from the run's beginning.
    pub(super) due: Duration,
    /// When it was begun.
    pub(super) begun: Duration,
    /// When its answer was complete or it failed.
    pub(super) ended: Duration,
    /// Which page of a walk it was.
    pub(super) page: Option<usize>,
    /// Whether a session was over with it.
    pub(super) ends: bool,
    pub(super) outcome: ExchangeOutcome,
}

/// What came of the requests of one stream so far.
#[derive(Debug)]
pub(super) struct Tally {
    stretch: Stretch,
    result: StreamResult,
    latencies: Histogram<u64>,
    /// Completed within the stretch, whenever due.
    in_time: u64,
    windows: Option<Windows>,
    visits: Option<Visits>,
}

impl Tally {
    /// `windows` is the length of one, if a series is wanted, and the time within which answers are
    /// counted there.
    pub(super) fn new(
        stream: &Stream,
        stretch: Stretch,
        (windows, slo): (Option<Duration>, Option<Duration>),
    ) -> Self {
        Self {
            stretch,
            result: StreamResult {
                site: stream.site.clone(),
                ..StreamResult::default()
            },
            latencies: latencies(),
            in_time: 0,
            windows: windows.map(|length| Windows::new(stretch, length, slo)),
            visits: Visits::of(stream),
        }
    }

    pub(super) fn request(&mut self, ended: &EndedRequest) {
        let latency = ended.ended.saturating_sub(ended.due);
        let micros = u64::try_from(latency.as_micros()).unwrap_or(LATENCY_MAX_US);
        if let Some(windows) = &mut self.windows {
            windows.request(ended, micros);
        }
        if matches!(ended.outcome, ExchangeOutcome::Completed(_)) && self.stretch.has(ended.ended) {
            self.in_time += 1;
        }
        if let Some(visits) = &mut self.visits
            && ended.ends
            && self.stretch.has(ended.ended)
        {
            visits.session_ended();
        }
        if !self.stretch.has(ended.due) {
            return;
        }
        if let Some(visits) = &mut self.visits {
            visits.request(ended, micros);
        }
        let result = &mut self.result;
        result.offered += 1;
        let late = ended.begun.saturating_sub(ended.due);
        result.late += u64::from(late > LATE.max(latency / LATE_PART));
        match &ended.outcome {
            ExchangeOutcome::Completed(headers) => {
                result.completed += 1;
                self.latencies.saturating_record(micros);
                if let Some(value) = &headers.counted {
                    count(&mut result.counts, value);
                }
            }
            ExchangeOutcome::Refused => result.refused += 1,
            ExchangeOutcome::Failed(kind) => {
                result.failed += 1;
                count(&mut result.errors, kind);
            }
        }
    }

    pub(super) fn finish(mut self) -> StreamResult {
        let length = self.stretch.to - self.stretch.from;
        self.result.throughput_rps = self.in_time as f64 / length.as_secs_f64();
        self.result.latencies_are(&self.latencies);
        self.result.series = self.windows.map_or_else(Vec::new, Windows::finish);
        if let Some(visits) = self.visits {
            (self.result.pages, self.result.sessions) = visits.finish(length);
        }
        self.result
    }
}

fn count(counts: &mut BTreeMap<String, u64>, key: &str) {
    let key = if counts.len() < KINDS_MAX || counts.contains_key(key) {
        key
    } else {
        "other"
    };
    if let Some(count) = counts.get_mut(key) {
        *count += 1;
    } else {
        counts.insert(key.to_owned(), 1);
    }
}

/// The time series. Requests end in the order of time, so only one window is open, and only its
/// latencies are kept one by one.
#[derive(Debug)]
struct Windows {
    stretch: Stretch,
    length: Duration,
    /// Microseconds.
    slo: Option<u64>,
    done: Vec<Window>,
    open: Window,
    latencies: Vec<u64>,
}

impl Windows {
    fn new(stretch: Stretch, length: Duration, slo: Option<Duration>) -> Self {
        Self {
            stretch,
            length,
            slo: slo.map(|slo| u64::try_from(slo.as_micros()).unwrap_or(u64::MAX)),
            done: Vec::new(),
            open: Window::default(),
            latencies: Vec::new(),
        }
    }

    fn request(&mut self, ended: &EndedRequest, micros: u64) {
        if !self.stretch.has(ended.ended) {
            return;
        }
        let since = ended.ended - self.stretch.from;
        let number = (since.as_nanos() / self.length.as_nanos()) as usize;
        self.close_before(number);
        match &ended.outcome {
            ExchangeOutcome::Completed(headers) => {
                self.open.completed += 1;
                self.open.within += u64::from(self.slo.is_some_and(|slo| micros <= slo));
                self.latencies.push(micros);
                if let Some(value) = &headers.counted {
                    count(&mut self.open.counts, value);
                }
            }
            ExchangeOutcome::Refused | ExchangeOutcome::Failed(_) => self.open.failed += 1,
        }
    }

    /// Closes windows until that of this number is the open one; those between are empty.
    fn close_before(&mut self, number: usize) {
        while self.done.len() < number {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Some(micros) = quantile_of_ordered(&mut self.latencies, 0.99) {
            let all = self.latencies.iter().sum::<u64>() as f64;
            self.open.mean_ms = all / self.latencies.len() as f64 * 1e-3;
            self.open.p99_ms = micros as f64 * 1e-3;
        }
        self.latencies.clear();
        let mut closed = std::mem::take(&mut self.open);
        closed.at = self.done.len() as f64 * self.length.as_secs_f64();
        self.done.push(closed);
    }

    /// All windows of the stretch, the last one perhaps shorter than the others.
    fn finish(mut self) -> Vec<Window> {
        let stretch = self.stretch.to - self.stretch.from;
        let all = stretch.as_nanos().div_ceil(self.length.as_nanos()) as usize;
        self.close_before(all);
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::client::AnswerHeaders;
    use crate::load::plan::{Pacing, Requests};

    const STRETCH: Stretch = Stretch {
        from: Duration::from_secs(1),
        to: Duration::from_secs(3),
    };

    fn ended(due_ms: u64, ended_ms: u64, outcome: ExchangeOutcome) -> EndedRequest {
        EndedRequest {
            due: Duration::from_millis(due_ms),
            begun: Duration::from_millis(due_ms),
            ended: Duration::from_millis(ended_ms),
            page: None,
            ends: false,
            outcome,
        }
    }

    fn stream() -> Stream {
        Stream {
            site: "shop".to_owned(),
            pacing: Pacing::Closed {
                clients: 1,
                think: Duration::ZERO,
            },
            requests: Requests::Single {
                path: "/".to_owned(),
            },
            header: None,
        }
    }

    #[test]
    fn what_was_due_counts_and_what_ended_is_throughput() {
        let mut tally = Tally::new(&stream(), STRETCH, (None, None));
        let done = || ExchangeOutcome::Completed(AnswerHeaders::default());
        tally.request(&ended(900, 1100, done())); // due in the warm-up
        tally.request(&ended(1000, 1500, done()));
        tally.request(&ended(1500, 2500, ExchangeOutcome::Refused));
        tally.request(&ended(
            1600,
            2600,
            ExchangeOutcome::Failed("status 500".to_owned()),
        ));
        tally.request(&ended(2900, 3400, done())); // ends after the stretch
        let result = tally.finish();
        assert_eq!((result.offered, result.completed), (4, 2));
        assert_eq!((result.refused, result.failed), (1, 1));
        assert_eq!(result.errors["status 500"], 1);
        assert!((result.throughput_rps - 1.0).abs() < 1e-9);
        assert!((result.max_ms - 500.0).abs() < 1.0);
    }

    #[test]
    fn a_request_is_late_by_over_a_millisecond_and_a_twentieth_of_what_it_took() {
        let mut tally = Tally::new(&stream(), STRETCH, (None, None));
        for (begun_us, ended_ms) in [
            (1_001_000, 1010),
            (1_001_100, 1010),
            (1_024_900, 1500),
            (1_025_100, 1500),
        ] {
            let mut request = ended(
                1000,
                ended_ms,
                ExchangeOutcome::Completed(AnswerHeaders::default()),
            );
            request.begun = Duration::from_micros(begun_us);
            tally.request(&request);
        }
        assert_eq!(tally.finish().late, 2);
    }

    #[test]
    fn windows_cover_the_stretch_and_the_empty_ones_are_there() {
        let windows = Some(Duration::from_millis(500));
        let slo = Some(Duration::from_millis(300));
        let mut tally = Tally::new(&stream(), STRETCH, (windows, slo));
        let by = |node: &str| {
            ExchangeOutcome::Completed(AnswerHeaders {
                counted: Some(node.to_owned()),
                amount: None,
            })
        };
        tally.request(&ended(900, 1100, by("n1")));
        tally.request(&ended(1000, 1400, by("n2")));
        tally.request(&ended(2000, 2100, ExchangeOutcome::Refused));
        tally.request(&ended(2000, 3100, by("n1")));
        let series = tally.finish().series;
        let counts: Vec<_> = series.iter().map(|it| (it.completed, it.failed)).collect();
        assert_eq!(counts, [(2, 0), (0, 0), (0, 1), (0, 0)]);
        assert!((series[0].p99_ms - 400.0).abs() < 1e-9 && series[3].at == 1.5);
        assert_eq!(series[0].counts["n1"], 1);
        assert!((series[0].mean_ms - 300.0).abs() < 1e-9, "{series:?}");
        assert_eq!((series[0].within, series[2].within), (1, 0));
    }

    #[test]
    fn kinds_are_bounded() {
        let mut counts = BTreeMap::new();
        for number in 0..1000 {
            count(&mut counts, &number.to_string());
        }
        assert!(counts.len() <= KINDS_MAX + 1);
        assert_eq!(counts.values().sum::<u64>(), 1000);
    }
}
