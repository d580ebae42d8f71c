//! Everything that was read, in the core's terms: what discovery is given.
//!
//! It takes requests one after the other, and readings of one busy counter per resource. Where
//! readings are a second apart its bins of 100 ms are too fine; a second of the recording is
//! then handed over as 100 ms, and costs and times that come back are ten times as long.

use tidegate_core::classes::ClassId;
use tidegate_core::culprits::{Alignment, Binned, align};
use tidegate_core::stats::quantile_of_ordered;
use tidegate_core::time::Timestamp;

use super::resource::{Series, Span, Unit, usual_length};
use super::time::SECOND;

/// Clocks may be this far apart, seconds.
const SHIFT_SECONDS_MAX: i64 = 300;
/// Longest bin by which clocks are compared, seconds.
const ALIGN_BIN_MAX: i64 = 60;
/// Most bins by which clocks are compared.
const ALIGN_BINS_MAX: i64 = 1_000_000;
/// What of a request's life counts there, nanoseconds.
const LIFE_MAX: i64 = 600 * SECOND;
/// Zones lie up to so far from UTC, in quarters of an hour.
const ZONE_QUARTERS: i64 = 14 * 4;

/// A class and what was seen of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Class {
    pub(super) name: String,
    /// What a throttle of its requests would call it.
    pub(super) pattern: Option<String>,
    pub(super) requests: u64,
    /// Time at servers.
    pub(super) seconds: f64,
}

/// When a request was at a server; nanoseconds of the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lived {
    /// Its class.
    pub class: ClassId,
    /// When it was sent to a server.
    pub sent: Timestamp,
    /// When it was over.
    pub ended: Timestamp,
}

/// What is known of one resource.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) name: String,
    pub(super) series: Series,
    /// How far its clock was ahead of the logs' and has been set back, if that was looked for.
    pub(super) alignment: Option<Aligned>,
}

/// What came of comparing clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Aligned {
    /// Seconds that were taken off the resource's times.
    pub(super) ahead_seconds: f64,
    pub(super) found: Alignment,
}

/// Requests and resources.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    /// By number; number 0 is all without a name.
    pub(super) classes: Vec<Class>,
    /// By class, and in order of their ends within it.
    pub(super) requests: Vec<Lived>,
    pub(super) resources: Vec<Resource>,
    /// Hosts of which it is not known how many CPUs they have.
    pub(super) unknown_cpus: Vec<String>,
}

impl Evidence {
    /// Sets the resources' clocks by the logs' where a shift is certain. All series of one host
    /// have one clock.
    pub(super) fn align(&mut self, offset_given: bool, logs_zoned: bool) {
        let mut hosts: Vec<String> = self.resources.iter().map(|it| host(&it.name)).collect();
        hosts.dedup();
        for name in hosts {
            let own = self.resources.iter().filter(|it| host(&it.name) == name);
            let busy = |it: &&Resource| matches!(it.series.unit, Unit::Busy { .. });
            // CPUs follow requests more closely than disks do.
            let first = own
                .clone()
                .filter(busy)
                .find(|it| it.name.ends_with(" cpu"));
            let Some(leader) = first.or_else(|| own.clone().find(busy)) else {
                continue;
            };
            let known = offset_given || (logs_zoned && leader.series.zoned);
            let Some((found, width)) = self.compare(&leader.series, known) else {
                continue;
            };
            let ahead = if found.certain {
                found.shift * width
            } else {
                0
            };
            for resource in &mut self.resources {
                if host(&resource.name) == name {
                    resource.set_back(ahead, found);
                }
            }
        }
    }

    /// How far a series is ahead of the logs, in bins; and how long they are.
    fn compare(&self, series: &Series, zones_known: bool) -> Option<(Alignment, i64)> {
        let width = series.usual_length().max(SECOND) / SECOND * SECOND;
        if width > ALIGN_BIN_MAX * SECOND {
            return None;
        }
        let load = self.load(width)?;
        let used = used(series, width)?;
        let shift_max = (SHIFT_SECONDS_MAX * SECOND / width) as u32;
        let here = align(&load, &used, &[0], shift_max);
        let enough = here.is_some_and(|found| found.certain);
        if zones_known || enough {
            return here.map(|found| (found, width));
        }
        let quarter = 900 * SECOND / width;
        let offsets: Vec<i64> = (-ZONE_QUARTERS..=ZONE_QUARTERS)
            .map(|it| it * quarter)
            .collect();
        let found = align(&load, &used, &offsets, shift_max);
        found.or(here).map(|found| (found, width))
    }

    /// Requests in progress, or those that ended where no durations are known.
    fn load(&self, width: i64) -> Option<Binned> {
        let ended = |lived: &Lived| lived.ended.nanos() as i64;
        let mut ends: Vec<i64> = self.requests.iter().map(ended).collect();
        // A line with a time of its own does not make a million bins.
        let middle = quantile_of_ordered(&mut ends, 0.5)?;
        let (low, high) = (
            middle / width - ALIGN_BINS_MAX / 2,
            middle / width + ALIGN_BINS_MAX / 2,
        );
        let within = ends
            .iter()
            .map(|end| end / width)
            .filter(|bin| (low..high).contains(bin));
        let (first, last) = within.fold((high, low), |(a, b), bin| (a.min(bin), b.max(bin)));
        let mut values = vec![0.0; usize::try_from(last - first + 1).ok()?];
        for lived in &self.requests {
            let (from, to) = (lived.sent.nanos() as i64, lived.ended.nanos() as i64);
            // One without a duration counts like one of a millisecond; what lasts for hours tells
            // nothing about seconds.
            let from = from.min(to - SECOND / 1000).max(to - LIFE_MAX);
            let seconds = (to - from) as f64 / SECOND as f64;
            spread((from, to), seconds, (first * width, width), &mut values);
        }
        Some(Binned { first, values })
    }
}

/// A resource's use in bins of whole seconds.
fn used(series: &Series, width: i64) -> Option<Binned> {
    let first = series.spans.first()?.from.div_euclid(width);
    let last = (series.spans.last()?.to - 1).div_euclid(width);
    let bins = usize::try_from((last - first + 1).min(ALIGN_BINS_MAX)).ok()?;
    let values = mean_use(&series.spans, first * width, width, bins);
    Some(Binned { first, values })
}

/// Mean use in bins from a moment on; not a number where less than half of a bin is known.
pub(super) fn mean_use(spans: &[Span], start: i64, width: i64, bins: usize) -> Vec<f64> {
    let (mut sums, mut known) = (vec![0.0; bins], vec![0.0; bins]);
    for span in spans {
        let seconds = (span.to - span.from) as f64 / SECOND as f64;
        let amount = span.mean * seconds;
        spread((span.from, span.to), amount, (start, width), &mut sums);
        spread((span.from, span.to), seconds, (start, width), &mut known);
    }
    let half = width as f64 / SECOND as f64 / 2.0;
    let mean = |(sum, known): (f64, f64)| if known > half { sum / known } else { f64::NAN };
    sums.into_iter().zip(known).map(mean).collect()
}

/// Spreads an amount evenly over a time, into bins of a width from a start on.
pub(super) fn spread(
    (from, to): (i64, i64),
    amount: f64,
    (start, width): (i64, i64),
    bins: &mut [f64],
) {
    let end = start + bins.len() as i64 * width;
    let per_nano = amount / (to - from).max(1) as f64;
    let mut at = from.max(start);
    while at < to.min(end) {
        let bin = (at - start) / width;
        let next = (start + (bin + 1) * width).min(to);
        bins[bin as usize] += (next - at) as f64 * per_nano;
        at = next;
    }
}

/// Resources of one host begin with its name.
fn host(name: &str) -> String {
    name.split(' ').next().unwrap_or_default().to_owned()
}

impl Resource {
    fn set_back(&mut self, ahead: i64, found: Alignment) {
        for span in &mut self.series.spans {
            span.from -= ahead;
            span.to -= ahead;
        }
        self.alignment = Some(Aligned {
            ahead_seconds: ahead as f64 / SECOND as f64,
            found,
        });
    }
}

impl Series {
    /// The median length of an interval, nanoseconds.
    pub(super) fn usual_length(&self) -> i64 {
        usual_length(&self.spans)
    }

    /// Mean use of all that is known.
    pub(super) fn mean(&self) -> f64 {
        let seconds = |span: &Span| (span.to - span.from) as f64 / SECOND as f64;
        let used: f64 = self.spans.iter().map(|it| it.mean * seconds(it)).sum();
        used / self.spans.iter().map(seconds).sum::<f64>().max(1e-9)
    }
}
