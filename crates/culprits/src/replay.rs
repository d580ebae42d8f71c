//! Tells a recording to the discovery, as a running front-end tells what it sees.
//!
//! ```text
//! scale     = the usual length of a reading / 100 ms, at least 1
//! scaled time = (time - start) / scale          an interval of the recording is one of its bins
//! asked     every 2.5 s of scaled time, or less often where that makes too many
//! ```
//!
//! A second of a recording that was made each second is handed over as 100 ms, so that the windows of
//! 30 s hold 300 intervals there too. Then times and costs that come back are `scale` times as long.
//! What requests cost stands in the same relation to a core either way. What is lost: a request that is
//! over in a tenth of an interval looks much like any other that came in the same one.
//!
//! Inputs: requests with the order of their starts and ends, and one series of a busy resource. A
//! request is known as unfinished until it ended, as it would be live. Failure case: intervals of very
//! different lengths; holes are holes.

use std::time::Duration;

use tidegate_core::culprits::{
    Discovery, EVERY, Limits, Request, ResourceId, UNFINISHED_MAX, UsagePoint, Verdicts,
};
use tidegate_core::time::Timestamp;

use super::evidence::Lived;
use super::resource::{Series, Unit};
use super::time::SECOND;

/// A bin of the discovery, nanoseconds.
const BIN: f64 = 1e8;
/// Longest usual interval that is handed over.
pub(super) const LENGTH_MAX: i64 = 10 * SECOND;
/// Scaled time before the recording, so that windows can reach back, nanoseconds.
const BEFORE: f64 = 10e9;
/// Most evaluations of a resource, unless they would then lie further apart than [`APART_MAX`].
const EVALUATIONS_MAX: f64 = 2000.0;
/// Windows of 30 s must overlap.
const APART_MAX: f64 = 10e9;
/// The counter's first value: it goes back by one at each hole, which says that there is one.
const COUNTER: u64 = 1 << 40;
/// The only resource of a discovery.
const RESOURCE: ResourceId = ResourceId(0);

/// Requests in the orders in which they are handed over.
pub(super) struct RequestsInOrder<'a> {
    requests: &'a [Lived],
    by_end: Vec<u32>,
    by_start: Vec<u32>,
}

impl<'a> RequestsInOrder<'a> {
    pub(super) fn of(requests: &'a [Lived]) -> Self {
        let mut by_end: Vec<u32> = (0..requests.len() as u32).collect();
        let mut by_start = by_end.clone();
        by_end.sort_unstable_by_key(|place| requests[*place as usize].ended);
        by_start.sort_unstable_by_key(|place| requests[*place as usize].sent);
        Self {
            requests,
            by_end,
            by_start,
        }
    }

    fn first_start(&self) -> Option<i64> {
        let place = self.by_start.first()?;
        Some(self.requests[*place as usize].sent.nanos() as i64)
    }

    fn last_end(&self) -> Option<i64> {
        let place = self.by_end.last()?;
        Some(self.requests[*place as usize].ended.nanos() as i64)
    }
}

/// One resource on its way to the discovery; gives what is said at each evaluation.
pub(super) struct Replay<'a> {
    order: &'a RequestsInOrder<'a>,
    series: &'a Series,
    capacity: f64,
    discovery: Discovery,
    /// When the recording begins, and how much longer its time is than scaled time.
    start: i64,
    scale: f64,
    /// Scaled time: of the first request or reading, between evaluations, of the last one and the next.
    first: f64,
    every: f64,
    end: f64,
    next: f64,
    ended: usize,
    sent: usize,
    open: Vec<u32>,
    spans: usize,
    counter: u64,
}

impl<'a> Replay<'a> {
    /// None where the series has no capacity, its intervals are too long, or it shares no time with
    /// the requests.
    pub(super) fn new(order: &'a RequestsInOrder<'a>, series: &'a Series) -> Option<Self> {
        let Unit::Busy { capacity } = series.unit else {
            return None;
        };
        let length = series.usual_length();
        if length > LENGTH_MAX {
            return None;
        }
        let scale = (length as f64 / BIN).max(1.0);
        let start = series.spans.first()?.from;
        let told = |at: i64| (at - start) as f64 / scale + BEFORE;
        let first = told(order.first_start()?.max(start));
        let end = told(order.last_end()?.min(series.spans.last()?.to));
        let every = EVERY.as_nanos() as f64;
        let apart = ((end - first) / EVALUATIONS_MAX).clamp(every, APART_MAX);
        let classes = order.requests.iter().map(|lived| lived.class.0).max()?;
        (end > first).then(|| Self {
            order,
            series,
            capacity,
            discovery: Discovery::of_recording(Limits {
                classes: classes.saturating_add(1),
                resources: 1,
            }),
            start,
            scale,
            first,
            every: apart,
            end,
            next: first + apart,
            ended: 0,
            sent: 0,
            open: Vec::new(),
            spans: 0,
            counter: COUNTER,
        })
    }

    /// How much longer times and costs of the recording are than those of the verdicts.
    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// A moment of scaled time, in nanoseconds of the Unix epoch.
    pub(super) fn at(&self, told: Timestamp) -> i64 {
        self.start + ((told.nanos() as f64 - BEFORE) * self.scale) as i64
    }

    /// How long what is evaluated is, in scaled time.
    pub(super) fn length(&self) -> Duration {
        Duration::from_nanos((self.end - self.first) as u64)
    }

    fn told(&self, at: i64) -> f64 {
        (at - self.start) as f64 / self.scale + BEFORE
    }

    fn tell_requests(&mut self, now: f64) {
        let requests = self.order.requests;
        let request = |place: u32, start: i64, scale: f64| {
            let lived = requests[place as usize];
            let at = |at: Timestamp| (at.nanos() as i64 - start) as f64 / scale + BEFORE;
            (lived.class, at(lived.sent), at(lived.ended))
        };
        let (start, scale) = (self.start, self.scale);
        while let Some(place) = self.order.by_end.get(self.ended) {
            let (class, sent, ended) = request(*place, start, scale);
            if ended > now {
                break;
            }
            self.ended += 1;
            if ended > 0.0 {
                let (sent, ended) = (moment(sent), Some(moment(ended)));
                self.discovery.on_request(&Request { class, sent, ended });
            }
        }
        while let Some(place) = self.order.by_start.get(self.sent) {
            if request(*place, start, scale).1 > now {
                break;
            }
            self.open.push(*place);
            self.sent += 1;
        }
        self.open
            .retain(|place| request(*place, start, scale).2 > now);
        self.discovery.forget_unfinished();
        for place in self.open.iter().take(UNFINISHED_MAX) {
            let (class, sent, _) = request(*place, start, scale);
            let (sent, ended) = (moment(sent), None);
            self.discovery.on_request(&Request { class, sent, ended });
        }
    }

    fn tell_use(&mut self, now: f64) {
        while let Some(span) = self.series.spans.get(self.spans) {
            let (from, to) = (self.told(span.from), self.told(span.to));
            if to > now + 1.0 {
                break;
            }
            let before = self.spans.checked_sub(1).map(|it| self.series.spans[it].to);
            if before != Some(span.from) {
                self.counter -= 1;
                self.read(from);
            }
            self.counter += (span.mean.max(0.0) * (to - from)) as u64;
            self.read(to);
            self.spans += 1;
        }
    }

    fn read(&mut self, at: f64) {
        let point = UsagePoint {
            at: moment(at),
            busy_ns: self.counter,
            cores: self.capacity,
        };
        self.discovery.on_usage(RESOURCE, point);
    }
}

impl Iterator for Replay<'_> {
    type Item = Verdicts;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next > self.end + 1.0 {
            return None;
        }
        let now = self.next;
        self.next += self.every;
        self.tell_requests(now);
        self.tell_use(now);
        Some(self.discovery.evaluate(moment(now), RESOURCE))
    }
}

fn moment(told: f64) -> Timestamp {
    Timestamp::from_nanos(told.round().max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use tidegate_core::classes::ClassId;
    use tidegate_core::prng::Prng;

    use super::*;
    use crate::resource::Span;

    const START: i64 = 1_717_149_600 * SECOND;

    /// Class 1 uses a second of one of two cores per request, class 2 nothing.
    fn recording(seconds: i64) -> (Vec<Lived>, Vec<Span>) {
        let mut prng = Prng::new(3);
        let mut busy = vec![0.1; seconds as usize];
        let mut requests = Vec::new();
        for class in [1, 2] {
            let mut at = prng.exponential(2.0);
            while at < seconds as f64 - 2.0 {
                let sent = START + (at * 1e9) as i64;
                let moment = |nanos: i64| Timestamp::from_nanos(nanos as u64);
                requests.push(Lived {
                    class: ClassId(class),
                    sent: moment(sent),
                    ended: moment(sent + SECOND),
                });
                if class == 1 {
                    let part = at.fract();
                    busy[at as usize] += 1.0 - part;
                    busy[at as usize + 1] += part;
                }
                at += prng.exponential(if class == 1 { 4.0 } else { 2.0 });
            }
        }
        let span = |(place, mean): (usize, f64)| {
            let from = START + place as i64 * SECOND;
            let to = from + SECOND;
            Span { from, to, mean }
        };
        (requests, busy.into_iter().enumerate().map(span).collect())
    }

    fn series(spans: Vec<Span>) -> Series {
        let (unit, zoned) = (Unit::Busy { capacity: 2.0 }, true);
        Series { unit, spans, zoned }
    }

    #[test]
    fn a_second_of_a_recording_is_a_bin_and_costs_come_back() {
        let (requests, spans) = recording(400);
        let (order, series) = (RequestsInOrder::of(&requests), series(spans));
        let mut replay = Replay::new(&order, &series).unwrap();
        assert_eq!(replay.scale(), 10.0);
        let verdicts: Vec<Verdicts> = (&mut replay).collect();
        let length = replay.length().as_secs_f64();
        assert!((39.0..=40.0).contains(&length), "{length}");
        assert_eq!(verdicts.len(), (length / 2.5) as usize);
        let last = verdicts.last().unwrap();
        let at = replay.at(last.at);
        assert!((at - START - 400 * SECOND).abs() < 30 * SECOND, "{at}");
        let flagged: Vec<_> = last.flagged().map(|it| it.class).collect();
        assert_eq!(flagged, [ClassId(1)]);
        let cost = last.classes[0].cost_seconds * replay.scale();
        assert!((cost - 1.0).abs() < 0.15, "{cost}");
        let mean = series.mean() / 2.0;
        assert!(
            (last.utilization - mean).abs() < 0.1,
            "{}",
            last.utilization
        );
    }

    #[test]
    fn a_hole_in_the_recording_is_not_idle() {
        let (requests, mut spans) = recording(400);
        let used = series(spans.clone());
        // Five seconds of each ten are unknown, while nothing was used in them.
        let mut place = 0;
        spans.retain(|_| {
            place += 1;
            place % 10 < 5
        });
        let order = RequestsInOrder::of(&requests);
        let holes = series(spans);
        let of = |series: &Series| Replay::new(&order, series).unwrap().last().unwrap();
        let (all, part) = (of(&used), of(&holes));
        assert!(
            (all.utilization - part.utilization).abs() < 0.1,
            "{} {}",
            all.utilization,
            part.utilization
        );
    }

    #[test]
    fn rates_long_intervals_and_other_days_are_not_told() {
        let (requests, spans) = recording(100);
        let order = RequestsInOrder::of(&requests);
        let none = |series: &Series| assert!(Replay::new(&order, series).is_none());
        let unit = Unit::Rate;
        none(&Series {
            unit,
            ..series(spans.clone())
        });
        let long = |it: &Span| Span {
            to: it.from + 600 * SECOND,
            ..*it
        };
        none(&series(spans.iter().step_by(600).map(long).collect()));
        let day = 86_400 * SECOND;
        let later = |it: &Span| Span {
            from: it.from + day,
            to: it.to + day,
            ..*it
        };
        none(&series(spans.iter().map(later).collect()));
        none(&series(Vec::new()));
        assert!(Replay::new(&RequestsInOrder::of(&[]), &series(spans)).is_none());
    }
}
