//! node_exporter's text, and OpenMetrics: scrapes one behind the other in one file.
//!
//! A sample's time is its own, if it has one (seconds with a fraction as OpenMetrics writes them, or
//! milliseconds as Prometheus does), else the scrape's `node_time_seconds`. A scrape is over at
//! `# EOF`, at a sample that was there already, or at the end of the file. CPU is busy in all modes
//! but idle, iowait and steal. Source: the exposition formats of Prometheus and OpenMetrics 1.0.

use std::collections::{BTreeMap, BTreeSet};

use super::{Reader, Recording, Unit};
use crate::time::Stamp;

/// Counters of one scrape and label sets that are kept.
const COUNTERS_MAX: usize = 8192;

/// Whether a line is one of an exposition.
pub(super) fn is_exposition(line: &str) -> bool {
    line.starts_with("# HELP ") || line.starts_with("# TYPE ") || line.starts_with("node_")
}

#[derive(Default)]
pub(super) struct Exporter {
    scrape: Scrape,
    last: BTreeMap<String, Reading>,
}

/// What adds up within a scrape.
#[derive(Default)]
struct Scrape {
    sums: BTreeMap<String, Sum>,
    cpus: BTreeSet<String>,
    seen: BTreeSet<String>,
    time: Option<Stamp>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    value: f64,
    busy: bool,
    time: Option<Stamp>,
}

#[derive(Clone, Copy)]
struct Reading {
    at: i64,
    value: f64,
}

impl Reader for Exporter {
    fn name(&self) -> &'static str {
        "node_exporter"
    }

    fn line(&mut self, line: &str, recording: &mut Recording) -> Result<bool, &'static str> {
        if line.starts_with("# EOF") {
            self.put(recording);
            return Ok(false);
        }
        if line.starts_with('#') {
            return Ok(false);
        }
        let (name, labels, value, time) =
            sample(line).ok_or("a sample: name{labels} value [time]")?;
        let cpu_seconds = name == "node_cpu_seconds_total";
        let (series, busy) = match name {
            "node_cpu_seconds_total" => ("cpu".to_owned(), true),
            "node_disk_io_time_seconds_total" => {
                (format!("disk {}", label(labels, "device")), true)
            }
            "node_context_switches_total" => ("context switches/s".to_owned(), false),
            "node_network_receive_bytes_total" | "node_network_transmit_bytes_total"
                if label(labels, "device") != "lo" =>
            {
                (format!("net {} bytes/s", label(labels, "device")), false)
            }
            "node_time_seconds" => ("time".to_owned(), false),
            _ => return Ok(false),
        };
        let key = format!("{name}{{{labels}}}");
        if self.scrape.seen.contains(&key) {
            self.put(recording);
        }
        if self.scrape.seen.len() >= COUNTERS_MAX {
            return Err("at most 8192 counters in a scrape");
        }
        self.scrape.seen.insert(key);
        if name == "node_time_seconds" {
            self.scrape.time = Stamp::epoch(&format!("{value:.6}"), crate::time::SECOND);
            return Ok(true);
        }
        if cpu_seconds {
            self.scrape.cpus.insert(label(labels, "cpu").to_owned());
            if matches!(label(labels, "mode"), "idle" | "iowait" | "steal") {
                return Ok(true);
            }
        }
        let sum = self.scrape.sums.entry(series).or_default();
        sum.value += value;
        sum.busy = busy;
        sum.time = sum.time.or(time);
        Ok(true)
    }

    fn end(&mut self, recording: &mut Recording) {
        self.put(recording);
    }
}

impl Exporter {
    /// Compares a scrape with the one before.
    fn put(&mut self, recording: &mut Recording) {
        let scrape = std::mem::take(&mut self.scrape);
        for (series, sum) in scrape.sums {
            let Some(time) = sum.time.or(scrape.time) else {
                continue;
            };
            let capacity = if series == "cpu" {
                scrape.cpus.len().max(1)
            } else {
                1
            };
            let unit = match sum.busy {
                true => Unit::Busy {
                    capacity: capacity as f64,
                },
                false => Unit::Rate,
            };
            let reading = Reading {
                at: time.nanos,
                value: sum.value,
            };
            let name = format!("node {series}");
            let Some(last) = self.last.insert(series, reading) else {
                continue;
            };
            let length = reading.at - last.at;
            // A counter that went back began anew.
            if length > 0 && reading.value >= last.value {
                let mean = (reading.value - last.value) / (length as f64 * 1e-9);
                recording.add(&name, unit, time, length, mean);
            }
        }
    }
}

/// Name, labels, value and time.
fn sample(line: &str) -> Option<(&str, &str, f64, Option<Stamp>)> {
    let (name, labels, rest) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, rest) = rest.rsplit_once('}')?;
            (name, labels, rest)
        }
        None => {
            let (name, rest) = line.split_once(' ')?;
            (name, "", rest)
        }
    };
    let mut words = rest.split_ascii_whitespace();
    let value: f64 = words.next()?.parse().ok()?;
    let time = match words.next() {
        // Prometheus has whole milliseconds, OpenMetrics seconds.
        Some("#") | None => None,
        Some(text) => Some(Stamp::epoch_by_size(text)?),
    };
    (value.is_finite() && !name.is_empty()).then_some((name, labels, value, time))
}

/// The value of a label; empty if there is none. Names of devices have no quotes in them.
fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let mut found = labels.split(',').filter_map(|pair| pair.split_once('='));
    let value = found.find(|(own, _)| own.trim() == name);
    value.map_or("", |(_, value)| value.trim().trim_matches('"'))
}
