//! Recordings of what resources did: a series per resource, however it was recorded.
//!
//! | recording | recognised by | time |
//! |---|---|---|
//! | `sadf -d`, `sadf -p`, `sadf -j` | header, tabs, an object | end of the interval; UTC unless `-t` |
//! | `sar` as text | its first line | end of the interval, no zone, date in the first line |
//! | `vmstat -t` | its headers | end of the interval, no zone unless the header says UTC |
//! | node_exporter, OpenMetrics | comments and names | of the sample, or `node_time_seconds` |
//! | Tidegate's own CSV | `time,busy_seconds,capacity` | of the reading |
//!
//! CPU is busy when it is neither idle nor waiting for a disk nor stolen; a disk by its `%util`.
//! Context switches and network traffic have no capacity: they are compared, and nothing is shared
//! out from them.

mod exporter;
mod json;
mod records;
mod sysstat;
#[cfg(test)]
mod tests;
mod vmstat;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use tidegate_core::stats::quantile_of_ordered;

use super::files::FileReport;
use super::input::{Line, Lines};
use super::time::{SECOND, Stamp};

/// Most series of all files.
const SERIES_MAX: usize = 512;
/// Most intervals of all series.
const SPANS_MAX: usize = 4_000_000;
/// Longest interval that counts as one: longer ones are holes, nanoseconds.
const SPAN_MAX: i64 = 2 * 3600 * SECOND;

/// What a resource did.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) unit: Unit,
    /// In order of time, without overlap.
    pub(super) spans: Vec<Span>,
    /// Whether the recording says which zone its times are of.
    pub(super) zoned: bool,
}

/// What a series tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// Busy out of so many; one if the recording does not say how many.
    Busy {
        /// How many there are.
        capacity: f64,
    },
    /// So many per second of what has no limit.
    Rate,
}

/// The mean over some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Nanoseconds of the Unix epoch.
    pub from: i64,
    /// Its end.
    pub to: i64,
    /// Of capacity, from 0 to it, or per second.
    pub mean: f64,
}

/// The median length of intervals, nanoseconds; zero if there is none.
pub(super) fn usual_length(spans: &[Span]) -> i64 {
    let mut lengths: Vec<i64> = spans.iter().map(|span| span.to - span.from).collect();
    quantile_of_ordered(&mut lengths, 0.5).unwrap_or(0)
}

/// Intervals of a second or more: shorter ones that follow each other become one.
pub(super) fn seconds(spans: &[Span]) -> Vec<Span> {
    // What is rounded to a second may be a bit less.
    const SHORT: i64 = SECOND - SECOND / 20;
    let mut merged: Vec<Span> = Vec::new();
    for span in spans {
        match merged.last_mut() {
            Some(last) if last.to == span.from && last.to - last.from < SHORT => {
                let (one, other) = (last.to - last.from, span.to - span.from);
                let sum = last.mean * one as f64 + span.mean * other as f64;
                last.mean = sum / (one + other) as f64;
                last.to = span.to;
            }
            Some(_) | None => merged.push(*span),
        }
    }
    merged.retain(|span| span.to - span.from >= SHORT);
    merged
}

/// What a format's reader is given and puts together.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) series: BTreeMap<String, Series>,
    spans: usize,
    /// Intervals and series that found no room.
    pub(super) left_out: u64,
    /// How far times without a zone are ahead of UTC, nanoseconds.
    ahead_of_utc: i64,
    /// Hosts whose CPU use came as a part of all CPUs.
    cpus: BTreeMap<String, Cpus>,
}

/// How many CPUs a host has.
#[derive(Clone, Copy, Debug, Default)]
struct Cpus {
    /// As its recording says.
    told: Option<f64>,
    /// As many as have rows of their own.
    rows: u32,
}

impl Recording {
    /// An empty one.
    pub(super) fn new(ahead_of_utc: i64) -> Self {
        Self {
            ahead_of_utc,
            ..Self::default()
        }
    }

    /// Reads a file.
    pub(super) fn read(&mut self, path: &Path, report: &mut FileReport) -> io::Result<()> {
        let mut lines = Lines::open(path)?;
        let mut reader: Option<Box<dyn Reader>> = None;
        while let Some(line) = lines.next()? {
            let (number, text) = match line {
                Line::Text(_, text) if text.trim().is_empty() => continue,
                Line::Text(number, text) => (number, text.into_owned()),
                Line::Long(number, text) => {
                    report.bad(number, "a line of at most 64 KiB", &text);
                    continue;
                }
            };
            if reader.is_none() && text.trim_start().starts_with('{') {
                report.format = "sadf -j".into();
                return self.read_json(&text, &mut lines, report);
            }
            if reader.is_none() {
                reader = detect(&text);
            }
            let Some(known) = &mut reader else {
                report.bad(number, KNOWN, &text);
                if report.bad_lines >= HEADLESS_MAX {
                    return Ok(());
                }
                continue;
            };
            if report.format.is_empty() {
                report.format = known.name().into();
            }
            let mut read = known.line(&text, self);
            if let (Err(_), Some(mut other)) = (read, detect(&text))
                && other.name() != known.name()
            {
                known.end(self);
                let name = other.name();
                report.notes.push(format!("from line {number} on: {name}"));
                read = other.line(&text, self);
                *known = other;
            }
            match read {
                Ok(true) => report.lines += 1,
                Ok(false) => {}
                Err(expected) => report.bad(number, expected, &text),
            }
        }
        if let Some(reader) = &mut reader {
            reader.end(self);
        }
        report.notes.extend(lines.broken());
        Ok(())
    }

    fn read_json(
        &mut self,
        first: &str,
        lines: &mut Lines,
        report: &mut FileReport,
    ) -> io::Result<()> {
        let Some(rest) = lines.rest(JSON_BYTES_MAX)? else {
            report.bad(1, "an object of at most 256 MiB", first);
            return Ok(());
        };
        report.notes.extend(lines.broken());
        match json::read(&format!("{first}\n{rest}"), self) {
            Ok(records) => report.lines += records,
            Err((line, expected)) => report.bad(line, expected, first),
        }
        Ok(())
    }

    /// Adds an interval that ends at a time.
    fn add(&mut self, name: &str, unit: Unit, end: Stamp, length: i64, mean: f64) {
        let to = end.in_zone(self.ahead_of_utc).nanos;
        if !mean.is_finite() || length <= 0 || length > SPAN_MAX {
            return;
        }
        if self.spans >= SPANS_MAX
            || (self.series.len() >= SERIES_MAX && !self.series.contains_key(name))
        {
            self.left_out += 1;
            return;
        }
        let series = self
            .series
            .entry(name.to_owned())
            .or_insert_with(|| Series {
                unit,
                spans: Vec::new(),
                zoned: end.zoned,
            });
        series.unit = unit;
        series.zoned &= end.zoned;
        series.spans.push(Span {
            from: to - length,
            to,
            mean,
        });
        self.spans += 1;
    }

    /// Gives series of CPUs their capacity; the user may say how many there are where a recording does not.
    /// Hosts that are not known to be parts come back: their use is a part of one.
    pub(super) fn count_cpus(&mut self, told: Option<u32>) -> Vec<String> {
        let mut unknown = Vec::new();
        for (host, cpus) in &self.cpus {
            let rows = (cpus.rows > 0).then(|| f64::from(cpus.rows));
            let capacity = cpus.told.or(rows).or(told.map(f64::from));
            if capacity.is_none() {
                unknown.push(host.clone());
            }
            let capacity = capacity.unwrap_or(1.0);
            if let Some(series) = self.series.get_mut(&format!("{host} cpu")) {
                series.unit = Unit::Busy { capacity };
                series
                    .spans
                    .iter_mut()
                    .for_each(|span| span.mean *= capacity);
            }
        }
        self.cpus.clear();
        unknown
    }

    /// Puts all series in order; what overlaps with what was there goes.
    pub(super) fn finish(&mut self) {
        for series in self.series.values_mut() {
            series.spans.sort_by_key(|span| (span.to, span.from));
            let mut last = i64::MIN;
            series.spans.retain_mut(|span| {
                // Recorders' intervals overlap a bit, as their clocks are rounded.
                span.from = span.from.max(last);
                let good = span.from < span.to;
                if good {
                    last = span.to;
                }
                good
            });
        }
        self.series.retain(|_, series| !series.spans.is_empty());
    }
}

/// What may stand at the beginning of a file.
const KNOWN: &str =
    "sadf -d, sadf -j, sadf -p, sar, vmstat -t, node_exporter's text or time,busy_seconds,capacity";
/// Lines of an unknown file that are looked at.
const HEADLESS_MAX: u64 = 20;
/// Longest file of JSON, bytes.
const JSON_BYTES_MAX: u64 = 256 << 20;

/// Reads one format, line by line.
trait Reader {
    fn name(&self) -> &'static str;
    /// Takes a line; whether it had values. An error says what was expected.
    fn line(&mut self, line: &str, recording: &mut Recording) -> Result<bool, &'static str>;
    /// No line follows.
    fn end(&mut self, _recording: &mut Recording) {}
}

fn detect(line: &str) -> Option<Box<dyn Reader>> {
    if line.starts_with("# hostname;") {
        Some(Box::new(sysstat::Table::new("sadf -d", ";")))
    } else if line.starts_with("Linux ") && line.contains('(') {
        Some(Box::new(sysstat::Sar::new()))
    } else if (5..=6).contains(&line.split('\t').count()) {
        Some(Box::new(sysstat::Pairs::default()))
    } else if line.starts_with("procs ") || line.trim_start().starts_with("r  b ") {
        Some(Box::new(vmstat::Vmstat::default()))
    } else if records::is_header(line) {
        Some(Box::new(records::Records::default()))
    } else if exporter::is_exposition(line) {
        Some(Box::new(exporter::Exporter::default()))
    } else {
        None
    }
}

/// A row of sysstat, by the names of its columns.
fn row<'a>(
    recording: &mut Recording,
    (host, cpus): (&str, Option<f64>),
    (end, length): (Stamp, i64),
    device: &str,
    value: impl Fn(&'a str) -> Option<f64>,
) -> bool {
    let all_cpus = matches!(device, "all" | "-1" | "-" | "");
    let idle = value("%idle");
    if idle.is_some() {
        // The number of CPUs may stand behind the first values: parts become cores at the end.
        let known = recording.cpus.entry(host.to_owned()).or_default();
        known.told = cpus.or(known.told);
        if let Ok(own) = device.parse::<u16>() {
            known.rows = known.rows.max(u32::from(own) + 1);
        }
    }
    let mut add = |name: String, unit, mean| {
        recording.add(&name, unit, end, length, mean);
        true
    };
    if let Some(idle) = idle {
        let away = value("%iowait").unwrap_or(0.0) + value("%steal").unwrap_or(0.0);
        let part = ((100.0 - idle - away) / 100.0).clamp(0.0, 1.0);
        let unit = Unit::Busy { capacity: 1.0 };
        return all_cpus && add(format!("{host} cpu"), unit, part);
    }
    if let Some(util) = value("%util") {
        let unit = Unit::Busy { capacity: 1.0 };
        return add(
            format!("{host} disk {device}"),
            unit,
            (util / 100.0).clamp(0.0, 1.0),
        );
    }
    if let (Some(received), Some(sent)) = (value("rxkB/s"), value("txkB/s")) {
        return device != "lo"
            && add(
                format!("{host} net {device} kB/s"),
                Unit::Rate,
                received + sent,
            );
    }
    if let Some(switches) = value("cswch/s") {
        return all_cpus && add(format!("{host} context switches/s"), Unit::Rate, switches);
    }
    false
}
