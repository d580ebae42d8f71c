//! What must hold for any value of the headers in which nodes report their load. Shared by the fuzz target and by the test that
//! replays its corpus.
//!
//! 1. Reading never panics.
//! 2. All numbers that are read are finite and not negative, and shares are at most 1.

use std::time::Duration;

use tidegate_core::load::ReportedMetric;

/// Takes all for the value, of one header and of the other.
pub(crate) fn check(bytes: &[u8]) {
    let reports = [super::parse(bytes), super::from_base64(bytes)];
    for report in reports.into_iter().flatten() {
        for value in report.values(Duration::from_secs(1)) {
            let most = match value.metric {
                ReportedMetric::Cpu | ReportedMetric::Memory | ReportedMetric::Files => 1.0,
                ReportedMetric::Capacity
                | ReportedMetric::Runnable
                | ReportedMetric::LoadAverage
                | ReportedMetric::InFlight => f32::MAX,
            };
            assert!((0.0..=most).contains(&value.value), "{value:?}");
        }
    }
}
