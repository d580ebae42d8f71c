//! What a server reports of its own load: the numbers of ORCA's `OrcaLoadReport`, and the load that they make.
//!
//! ```text
//! u        used share of the CPUs: cpu_utilization, or else application_utilization; at most 1
//! a        application_utilization: more than 1 where work waits
//! memory   mem_utilization;   files   utilization["files"];   in flight   named_metrics["rif"]
//! run queue, where a is known: max(n(max(u, a)), a), with n as in `reported`, of one CPU
//! ```
//!
//! Inputs: one report. Numbers that are missing, negative or not finite are unknown. Of the rest of a report (rates, errors,
//! costs of requests) nothing is used: the front-end sees its own requests.
//!
//! Failure case: a report says nothing of how many CPUs there are, so nodes that report so are taken for equally large, but for their
//! configured weights. Servers mean different things by `application_utilization`.
//! Source: ORCA-2023; that this number goes before the used share, GrpcA58-2023.

use std::time::Duration;

use super::{ReportedMetric, ReportedValue, expected_runnable};
use crate::protobuf::{FieldValue, Fields};

/// Longest report that is read, bytes.
pub const ORCA_BYTES_MAX: usize = 4096;

/// One report; a number that it lacks is NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrcaReport {
    /// Used share of the CPUs; it may be above 1.
    pub cpu: f32,
    /// Used share of the memory.
    pub memory: f32,
    /// How much of what the server can do it does; it may be above 1.
    pub application: f32,
    /// Used share of the file descriptors.
    pub files: f32,
    /// Requests in flight there.
    pub in_flight: f32,
    /// Its estimate of a request's latency, seconds.
    pub latency: f32,
}

impl OrcaReport {
    /// Nothing known.
    pub const UNKNOWN: Self = Self {
        cpu: f32::NAN,
        memory: f32::NAN,
        application: f32::NAN,
        files: f32::NAN,
        in_flight: f32::NAN,
        latency: f32::NAN,
    };

    /// Reads the binary form.
    pub fn from_binary(message: &[u8]) -> Option<Self> {
        if message.len() > ORCA_BYTES_MAX {
            return None;
        }
        let mut report = Self::UNKNOWN;
        let mut fields = Fields::of(message);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, FieldValue::Double(value)) => report.set("cpu_utilization", value),
                (2, FieldValue::Double(value)) => report.set("mem_utilization", value),
                (9, FieldValue::Double(value)) => report.set("application_utilization", value),
                (5, FieldValue::Bytes(entry)) => report.entry("utilization", entry)?,
                (8, FieldValue::Bytes(entry)) => report.entry("named_metrics", entry)?,
                _ => {}
            }
        }
        Some(report)
    }

    /// An entry of a map of that name.
    fn entry(&mut self, map: &str, entry: &[u8]) -> Option<()> {
        let (mut key, mut number) = (&[][..], 0.0);
        let mut fields = Fields::of(entry);
        while let Some((place, value)) = fields.next()? {
            match (place, value) {
                (1, FieldValue::Bytes(bytes)) => key = bytes,
                (2, FieldValue::Double(value)) => number = value,
                _ => {}
            }
        }
        // A map's key is a text.
        let key = std::str::from_utf8(key).ok()?;
        self.set_in(map, key, number);
        Some(())
    }

    /// Takes a number in by its name in reports; other names are left out of account.
    pub fn set(&mut self, name: &str, value: f64) {
        match name.split_once('.') {
            Some((map, key)) => self.set_in(map, key, value),
            None => {
                let field = match name {
                    "cpu_utilization" => &mut self.cpu,
                    "mem_utilization" => &mut self.memory,
                    "application_utilization" => &mut self.application,
                    // Some servers give these without the map's name.
                    "rif" => &mut self.in_flight,
                    "latency" => &mut self.latency,
                    _ => return,
                };
                *field = known(value);
            }
        }
    }

    /// The same of a map's entry.
    pub fn set_in(&mut self, map: &str, key: &str, value: f64) {
        let field = match (map, key) {
            ("utilization", "files") => &mut self.files,
            ("named_metrics", "rif") => &mut self.in_flight,
            ("named_metrics", "latency") => &mut self.latency,
            _ => return,
        };
        *field = known(value);
    }

    /// What is known of the load, each number measured as often as that.
    pub fn values(&self, period: Duration) -> impl Iterator<Item = ReportedValue> {
        // `min` and `max` of a number and NaN are the number.
        let used = match self.cpu.is_nan() {
            true => self.application,
            false => self.cpu,
        };
        let busy = used.max(self.application).min(1.0);
        let runnable = match self.application.is_nan() {
            true => f32::NAN,
            false => expected_runnable(busy, 1.0).max(self.application),
        };
        let all = [
            (ReportedMetric::Cpu, at_most_one(used)),
            (ReportedMetric::Memory, at_most_one(self.memory)),
            (ReportedMetric::Files, at_most_one(self.files)),
            (ReportedMetric::Runnable, runnable),
            (ReportedMetric::InFlight, self.in_flight),
        ];
        let known = all.into_iter().filter(|(_, value)| !value.is_nan());
        known.map(move |(metric, value)| ReportedValue {
            metric,
            value,
            period,
            age: Duration::ZERO,
        })
    }
}

/// A number of a report, unless it cannot be one.
fn known(value: f64) -> f32 {
    let value = value as f32;
    let is_one = value.is_finite() && value >= 0.0;
    if is_one { value } else { f32::NAN }
}

/// A share; NaN stays.
fn at_most_one(share: f32) -> f32 {
    if share > 1.0 { 1.0 } else { share }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of type `double`.
    fn double(number: u8, value: f64) -> Vec<u8> {
        [&[number << 3 | 1], &value.to_le_bytes()[..]].concat()
    }

    fn entry(number: u8, key: &str, value: f64) -> Vec<u8> {
        let within = [
            &[0x0a, key.len() as u8],
            key.as_bytes(),
            &double(2, value)[..],
        ]
        .concat();
        [&[number << 3 | 2, within.len() as u8], &within[..]].concat()
    }

    #[test]
    fn the_binary_form_is_read() {
        let message = [
            double(1, 0.5),
            double(2, 0.25),
            vec![0x18, 7],
            entry(4, "rif", 99.0),
            entry(5, "files", 0.125),
            double(6, 100.0),
            entry(8, "rif", 12.0),
            entry(8, "other", 3.0),
            double(9, 1.5),
        ]
        .concat();
        let report = OrcaReport::from_binary(&message).unwrap();
        let wanted = OrcaReport {
            cpu: 0.5,
            memory: 0.25,
            application: 1.5,
            files: 0.125,
            in_flight: 12.0,
            ..OrcaReport::UNKNOWN
        };
        assert_eq!(
            format!("{report:?}"),
            format!("{wanted:?}"),
            "NaN is no number"
        );
        for length in 0..message.len() {
            // A start is malformed, or a shorter report.
            OrcaReport::from_binary(&message[..length]);
        }
        assert!(OrcaReport::from_binary(&[0x2a, 200]).is_none());
        assert!(OrcaReport::from_binary(&[0; ORCA_BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn what_cannot_be_a_number_is_unknown() {
        let mut report = OrcaReport::UNKNOWN;
        for value in [f64::NAN, f64::INFINITY, -0.1] {
            report.set("cpu_utilization", value);
            report.set("named_metrics.rif", value);
        }
        assert_eq!(report.values(Duration::from_secs(1)).count(), 0);
    }

    fn runnable(cpu: f64, application: f64) -> f32 {
        let mut report = OrcaReport::UNKNOWN;
        report.set("cpu_utilization", cpu);
        report.set("application_utilization", application);
        let mut values = report.values(Duration::from_secs(1));
        let found = values.find(|it| it.metric == ReportedMetric::Runnable);
        found.map_or(f32::NAN, |it| it.value)
    }

    #[test]
    fn the_run_queue_rises_with_what_the_server_says_of_itself() {
        assert!(
            runnable(0.5, f64::NAN).is_nan(),
            "it follows from the share"
        );
        assert_eq!(runnable(0.5, 0.25), expected_runnable(0.5, 1.0));
        assert_eq!(runnable(f64::NAN, 0.5), expected_runnable(0.5, 1.0));
        assert_eq!(runnable(0.5, 7.5), 7.5);
        let mut last = 0.0;
        for percent in 1..=400_u16 {
            let tasks = runnable(0.3, f64::from(percent) / 100.0);
            assert!(tasks >= last, "{percent}");
            last = tasks;
        }
    }
}
