//! When requests are due: all intended starts of an open loop, drawn before it begins.
//!
//! Drawn beforehand, so that every arm of an experiment meets the same arrivals and the pacer
//! only has to look at a clock. The mean rate is over the whole run, warm-up included.
//!
//! Traces are replayed by their count: if a trace has N arrivals and n are wanted, the next
//! request is due where the recorded count has grown by an exponential step of mean N/n. That
//! keeps the recorded course of the rate and thins or thickens it at random; it does not keep single
//! recorded gaps.

use std::time::Duration;

use tidegate_core::prng::Prng;

use super::plan::Arrivals;
use super::traces::Trace;

/// One intended start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrival {
    /// After the run's beginning.
    pub(super) at: Duration,
    /// Which stream's.
    pub(super) stream: usize,
    /// The trace's request that came then, if a trace says.
    pub(super) record: Option<u32>,
}

/// The intended starts of one stream within `total`, ascending. `trace` is needed for the
/// arrivals that are named after one.
pub(super) fn draw(
    arrivals: Arrivals,
    rate: f64,
    total: Duration,
    trace: Option<&Trace>,
    prng: &mut Prng,
) -> Vec<(Duration, Option<u32>)> {
    let seconds = total.as_secs_f64();
    let plain = |times: Vec<f64>| {
        times
            .into_iter()
            .map(|at| (Duration::from_secs_f64(at), None))
            .collect()
    };
    match arrivals {
        Arrivals::Poisson => plain(poisson(rate, seconds, prng)),
        Arrivals::Paced => plain(paced(rate, seconds, prng)),
        Arrivals::Bursts { length, turn, of } => plain(bursts(
            rate,
            seconds,
            length,
            f64::from(turn),
            f64::from(of),
            prng,
        )),
        Arrivals::Steps { low, high, percent } => {
            let phases = [
                (low.as_secs_f64(), rate),
                (high.as_secs_f64(), rate * f64::from(percent) / 100.0),
            ];
            plain(steps(phases, seconds, prng))
        }
        Arrivals::WorldCup | Arrivals::Nasa => {
            trace.map_or_else(Vec::new, |trace| replay(rate, seconds, trace, prng))
        }
    }
}

/// Streams into one, by time.
pub(super) fn merge(streams: Vec<Vec<(Duration, Option<u32>)>>) -> Vec<Arrival> {
    let mut all = Vec::with_capacity(streams.iter().map(Vec::len).sum());
    for (stream, times) in streams.into_iter().enumerate() {
        all.extend(
            times
                .into_iter()
                .map(|(at, record)| Arrival { at, stream, record }),
        );
    }
    all.sort_by_key(|arrival| arrival.at);
    all
}

fn poisson(rate: f64, seconds: f64, prng: &mut Prng) -> Vec<f64> {
    let mut at = 0.0;
    let next = || {
        at += prng.exponential(1.0 / rate);
        Some(at)
    };
    std::iter::from_fn(next)
        .take_while(|at| *at < seconds)
        .collect()
}

/// One phase after the other, each of a length and at a rate. Exponential gaps have no memory: each
/// phase begins anew.
fn steps(phases: [(f64, f64); 2], seconds: f64, prng: &mut Prng) -> Vec<f64> {
    let mut times = Vec::new();
    let mut begin = 0.0;
    for (length, rate) in phases.into_iter().cycle() {
        if begin >= seconds {
            break;
        }
        let left = f64::min(length, seconds - begin);
        times.extend(poisson(rate, left, prng).into_iter().map(|at| begin + at));
        begin += length;
    }
    times
}

/// The first one at a random point of its gap: streams of one rate are not in step.
fn paced(rate: f64, seconds: f64, prng: &mut Prng) -> Vec<f64> {
    let phase = prng.unit();
    (0_u64..)
        .map(|number| (number as f64 + phase) / rate)
        .take_while(|at| *at < seconds)
        .collect()
}

/// Exactly `length` requests in each slot, at independent uniform times.
fn bursts(rate: f64, seconds: f64, length: u32, turn: f64, of: f64, prng: &mut Prng) -> Vec<f64> {
    let cycle = f64::from(length) / rate;
    let slot = cycle / of;
    let mut times = Vec::new();
    for number in 0_u64.. {
        let begin = number as f64 * cycle + turn * slot;
        if begin >= seconds {
            break;
        }
        let mut burst: Vec<_> = (0..length).map(|_| begin + slot * prng.unit()).collect();
        burst.sort_by(f64::total_cmp);
        times.extend(burst.into_iter().take_while(|at| *at < seconds));
    }
    times
}

fn replay(rate: f64, seconds: f64, trace: &Trace, prng: &mut Prng) -> Vec<(Duration, Option<u32>)> {
    let recorded = trace.times.len() as f64;
    let step = recorded / (rate * seconds);
    let mut count = 0.0;
    let mut all = Vec::new();
    loop {
        count += prng.exponential(step);
        if count >= recorded {
            return all;
        }
        let index = count as usize;
        let before = index.checked_sub(1).map_or(0.0, |index| trace.times[index]);
        let at = before + (trace.times[index] - before) * count.fract();
        let record = (!trace.requests.is_empty()).then_some(index as u32);
        all.push((Duration::from_secs_f64(at * seconds), record));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::traces;

    const TOTAL: Duration = Duration::from_secs(100);

    fn gaps(times: &[(Duration, Option<u32>)]) -> Vec<f64> {
        times
            .windows(2)
            .map(|pair| (pair[1].0 - pair[0].0).as_secs_f64())
            .collect()
    }

    fn mean_and_cv(values: &[f64]) -> (f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / count;
        (mean, variance.sqrt() / mean)
    }

    fn drawn(arrivals: Arrivals, rate: f64) -> Vec<(Duration, Option<u32>)> {
        let nowhere = std::path::Path::new("/nonexistent");
        let trace = match arrivals {
            Arrivals::WorldCup => Some(traces::world_cup(nowhere).unwrap()),
            Arrivals::Nasa => Some(traces::nasa(nowhere).unwrap()),
            Arrivals::Poisson
            | Arrivals::Paced
            | Arrivals::Bursts { .. }
            | Arrivals::Steps { .. } => None,
        };
        draw(arrivals, rate, TOTAL, trace.as_ref(), &mut Prng::new(11))
    }

    #[test]
    fn every_kind_has_the_rate_asked_for_and_ascends() {
        let burst = Arrivals::Bursts {
            length: 512,
            turn: 1,
            of: 3,
        };
        for kind in [
            Arrivals::Poisson,
            Arrivals::Paced,
            burst,
            Arrivals::WorldCup,
            Arrivals::Nasa,
        ] {
            for rate in [50.0, 1000.0] {
                let times = drawn(kind, rate);
                let wanted = rate * TOTAL.as_secs_f64();
                let deviation = times.len() as f64 / wanted - 1.0;
                // Four standard deviations of a Poisson count, or a burst that was cut off.
                let allowed = (4.0 / wanted.sqrt()).max(513.0 / wanted);
                assert!(deviation.abs() < allowed, "{kind:?} {rate}: {deviation}");
                assert!(times.is_sorted(), "{kind:?}");
                assert!(times.iter().all(|(at, _)| *at <= TOTAL));
                assert_eq!(times, drawn(kind, rate), "the same seed draws the same");
            }
        }
    }

    #[test]
    fn gaps_scatter_as_their_kind_says() {
        let (mean, cv) = mean_and_cv(&gaps(&drawn(Arrivals::Poisson, 500.0)));
        assert!((mean * 500.0 - 1.0).abs() < 0.02 && (cv - 1.0).abs() < 0.02);
        let (mean, cv) = mean_and_cv(&gaps(&drawn(Arrivals::Paced, 500.0)));
        assert!((mean * 500.0 - 1.0).abs() < 1e-3 && cv < 1e-3);
    }

    #[test]
    fn steps_go_up_and_down_again() {
        let kind = Arrivals::Steps {
            low: Duration::from_secs(3),
            high: Duration::from_secs(2),
            percent: 200,
        };
        let times = drawn(kind, 500.0);
        assert!(times.is_sorted() && times.iter().all(|(at, _)| *at <= TOTAL));
        let is_high = |at: &Duration| at.as_secs_f64() % 5.0 >= 3.0;
        let high = times.iter().filter(|(at, _)| is_high(at)).count() as f64;
        let low = times.len() as f64 - high;
        assert!((high / 40_000.0 - 1.0).abs() < 0.02, "{high}");
        assert!((low / 30_000.0 - 1.0).abs() < 0.03, "{low}");
    }

    #[test]
    fn bursts_go_to_one_site_after_the_other() {
        let sites: Vec<_> = (0..3)
            .map(|turn| {
                let kind = Arrivals::Bursts {
                    length: 64,
                    turn,
                    of: 3,
                };
                draw(kind, 100.0, TOTAL, None, &mut Prng::new(turn.into()))
            })
            .collect();
        let all = merge(sites);
        let runs: Vec<_> = all.chunk_by(|a, b| a.stream == b.stream).collect();
        for (number, run) in runs.iter().enumerate().take(runs.len() - 1) {
            assert_eq!(run[0].stream, number % 3);
            assert_eq!(run.len(), 64);
        }
    }

    #[test]
    fn an_evening_before_a_match_grows_and_a_night_falls() {
        let half = |times: &[(Duration, Option<u32>)]| {
            let late = times.iter().filter(|(at, _)| *at > TOTAL / 2).count();
            late as f64 / times.len() as f64
        };
        assert!(half(&drawn(Arrivals::WorldCup, 500.0)) > 0.75);
        let night = drawn(Arrivals::Nasa, 500.0);
        assert!(half(&night) < 0.45);
        assert!(night.iter().all(|(_, record)| record.is_some()));
    }
}
