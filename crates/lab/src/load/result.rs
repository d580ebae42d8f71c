//! What came of a load: numbers per stream, and how well the generator itself did.
//!
//! Latencies are of completed requests: from the intended start (open loop) or from the sending
//! (closed loop) to the last byte of the answer. Requests that failed or were refused have no
//! latency; compare arms only together with their failures.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};

use super::visits::{PageResult, Sessions};

/// Longest latency that is distinguished, microseconds.
pub(super) const LATENCY_MAX_US: u64 = 3_600_000_000;
/// Digits of a latency that are right.
pub(super) const DIGITS: u8 = 3;
/// More than this share of late requests: the generator was not what it claims to be.
const LATE_SHARE: f64 = 0.01;
/// Running or waiting for a CPU for more than this share of the time: it had no room left.
const CPU_SHARE: f64 = 0.9;

/// What came of a whole plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// In the plan's order.
    pub streams: Vec<StreamResult>,
    /// How the generator itself did.
    pub generator: Generator,
    /// The plan's time zero on CLOCK_MONOTONIC, nanoseconds: what happened elsewhere on this host
    /// can be laid beside the windows.
    pub started_ns: u64,
    /// Sentences for the report: which traces were real, and whether the generator kept up.
    pub said: Vec<String>,
}

/// How the generator itself did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// CPU time it took, as a share of one CPU.
    pub cpu: f64,
    /// Time that it wanted a CPU and had none, as a share of the time; where the kernel says.
    pub waited: Option<f64>,
    /// Whether results should not be trusted: it had no CPU left, or was late too often.
    pub saturated: bool,
}

/// What came of one stream. Requests due in the warm-up are in none of the counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamResult {
    /// The site.
    pub site: String,
    /// Requests that were due.
    pub offered: u64,
    /// Answered as wanted.
    pub completed: u64,
    /// No answer, or a wrong one; by kind in `errors`.
    pub failed: u64,
    /// Answered with 503 or 429.
    pub refused: u64,
    /// Begun more than a millisecond, and more than a twentieth of all that they took, after they
    /// were due: the generator's own fault.
    pub late: u64,
    /// Completed within the measured length, per second of it.
    pub throughput_rps: f64,
    /// Mean latency.
    pub mean_ms: f64,
    /// Median latency.
    pub p50_ms: f64,
    /// 90 of 100 were no slower.
    pub p90_ms: f64,
    /// 99 of 100.
    pub p99_ms: f64,
    /// 999 of 1000.
    pub p999_ms: f64,
    /// The slowest.
    pub max_ms: f64,
    /// All latencies in microseconds: HdrHistogram V2, base64.
    pub histogram: String,
    /// The time series, if windows were asked for.
    pub series: Vec<Window>,
    /// Failures by kind.
    pub errors: BTreeMap<String, u64>,
    /// Completed by the value of the header in the plan's `count_by`.
    pub counts: BTreeMap<String, u64>,
    /// Page by page in the order of the walk, where clients walk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<PageResult>,
    /// The clients' sessions, where they walk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Sessions>,
}

/// What ended in one window of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Its start, seconds after the warm-up.
    pub at: f64,
    /// Completed in it.
    pub completed: u64,
    /// Of these, within the plan's `slo`.
    pub within: u64,
    /// Failed or refused in it.
    pub failed: u64,
    /// Mean latency of what completed in it; zero if nothing did.
    pub mean_ms: f64,
    /// Latency of 99 of 100 that completed in it; zero if none did.
    pub p99_ms: f64,
    /// Completed in it, by the value of the header in the plan's `count_by`.
    pub counts: BTreeMap<String, u64>,
}

impl LoadResult {
    /// All streams as one.
    pub fn total(&self) -> StreamResult {
        let mut total = StreamResult::default();
        let mut latencies = latencies();
        for stream in &self.streams {
            total.offered += stream.offered;
            total.completed += stream.completed;
            total.failed += stream.failed;
            total.refused += stream.refused;
            total.late += stream.late;
            total.throughput_rps += stream.throughput_rps;
            add(&mut total.errors, &stream.errors);
            add(&mut total.counts, &stream.counts);
            if let Some(more) = decode(&stream.histogram) {
                // All have the same bounds.
                latencies.add(&more).ok();
            }
        }
        total.latencies_are(&latencies);
        total
    }

    /// Requests begun late, of those offered.
    pub fn late_share(&self) -> f64 {
        let (late, offered) = self
            .streams
            .iter()
            .fold((0, 0), |sum, it| (sum.0 + it.late, sum.1 + it.offered));
        late as f64 / (offered as f64).max(1.0)
    }

    /// Judges the generator, and says so where it did not keep up.
    pub(super) fn judge(&mut self) {
        let late = self.late_share();
        let wanted = self.generator.cpu + self.generator.waited.unwrap_or(0.0);
        self.generator.saturated = late > LATE_SHARE || wanted > CPU_SHARE;
        if self.generator.saturated {
            let waited = self.generator.waited.map_or_else(String::new, |share| {
                format!(", waited for one {:.0} % of the time", share * 100.0)
            });
            self.said.push(format!(
                "the load generator did not keep up: {:.1} % of the requests began over 1 ms and a twentieth of what they took late, \
                 it took {:.0} % of a CPU{waited}",
                late * 100.0,
                self.generator.cpu * 100.0
            ));
        }
    }
}

impl StreamResult {
    /// A quantile of the latencies, milliseconds; none if nothing completed.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let latencies = decode(&self.histogram).filter(|it| !it.is_empty())?;
        Some(latencies.value_at_quantile(quantile) as f64 * 1e-3)
    }

    /// How many completed after more than so long, to three digits.
    pub fn slower_than(&self, ms: f64) -> u64 {
        let Some(latencies) = decode(&self.histogram) else {
            return 0;
        };
        let all = latencies.len();
        all - latencies.count_between(0, (ms * 1e3) as u64)
    }

    pub(super) fn latencies_are(&mut self, latencies: &Histogram<u64>) {
        let ms = |quantile| latencies.value_at_quantile(quantile) as f64 * 1e-3;
        self.mean_ms = latencies.mean() * 1e-3;
        self.p50_ms = ms(0.5);
        self.p90_ms = ms(0.9);
        self.p99_ms = ms(0.99);
        self.p999_ms = ms(0.999);
        self.max_ms = latencies.max() as f64 * 1e-3;
        self.histogram = encode(latencies);
    }
}

/// An empty histogram of latencies in microseconds.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_US, DIGITS)
        .expect("the bounds are constant and valid")
}

/// As HdrHistogram's V2 format in base64.
pub fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2Serializer::new()
        .serialize(histogram, &mut bytes)
        .expect("a vector takes everything");
    STANDARD.encode(bytes)
}

/// From HdrHistogram's V2 format in base64; nothing if it is not that.
pub fn decode(text: &str) -> Option<Histogram<u64>> {
    let bytes = STANDARD.decode(text).ok()?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

fn add(sum: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (key, count) in more {
        *sum.entry(key.clone()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(values: &[u64]) -> StreamResult {
        let mut latencies = latencies();
        for value in values {
            latencies.record(*value).unwrap();
        }
        let mut stream = StreamResult {
            offered: values.len() as u64,
            completed: values.len() as u64,
            ..StreamResult::default()
        };
        stream.latencies_are(&latencies);
        stream
    }

    #[test]
    fn histograms_come_back_and_add_up() {
        let one = stream(&[1000, 2000, 3000]);
        let other = stream(&[50_000]);
        let result = LoadResult {
            streams: vec![one, other],
            ..LoadResult::default()
        };
        let text = serde_json::to_string(&result).unwrap();
        let back: LoadResult = serde_json::from_str(&text).unwrap();
        assert_eq!(back, result);
        let total = back.total();
        assert_eq!(total.completed, 4);
        assert_eq!(total.slower_than(10.0), 1);
        assert!((total.max_ms - 50.0).abs() < 0.1);
        assert!((total.quantile_ms(0.5).unwrap() - 2.0).abs() < 0.01);
    }

    #[test]
    fn a_generator_that_was_late_says_so() {
        let mut result = LoadResult {
            streams: vec![StreamResult {
                offered: 1000,
                late: 11,
                ..StreamResult::default()
            }],
            ..LoadResult::default()
        };
        result.judge();
        assert!(result.generator.saturated);
        assert!(result.said[0].contains("1.1 %"), "{:?}", result.said);
        result.streams[0].late = 9;
        result.said.clear();
        result.judge();
        assert!(!result.generator.saturated && result.said.is_empty());
        (result.generator.cpu, result.generator.waited) = (0.4, Some(0.55));
        result.judge();
        assert!(result.generator.saturated);
        assert!(result.said[0].contains("55 %"), "{:?}", result.said);
    }
}
