//! Pearson's r and p for every class and resource: the first view.
//!
//! Bins are the resource's own intervals, of a second or more: so nothing is interpolated. What is
//! compared is how many requests of the class ended per second, as paper 004 does, and the mean use.

use serde::Serialize;
use tidegate_core::culprits::Pearson;

use super::evidence::{Evidence, Lived, Resource};
use super::resource::Span;
use super::time::SECOND;

/// How a class goes with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Correlation {
    /// Index of the class.
    #[serde(skip)]
    pub(super) class: usize,
    pub(super) r: f64,
    /// Two-sided, as if intervals were independent of each other.
    pub(super) p: f64,
    /// Requests that ended within the intervals.
    pub(super) requests: u64,
}

/// A resource beside all classes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct View {
    /// Intervals that both logs and resource cover.
    pub(super) intervals: usize,
    /// Their median length.
    pub(super) interval_seconds: f64,
    /// Mean use, in units of the capacity or per second.
    pub(super) mean: f64,
    /// Classes with requests in the intervals, greatest r first.
    pub(super) correlations: Vec<Correlation>,
}

/// Compares a resource with every class.
pub(super) fn view(evidence: &Evidence, resource: &Resource) -> View {
    let spans = shared(evidence, resource.series.seconds());
    let length = |span: &Span| (span.to - span.from) as f64 / SECOND as f64;
    let used: Vec<f64> = spans.iter().map(|span| span.mean).collect();
    let mut correlations = Vec::new();
    for requests in evidence
        .requests
        .chunk_by(|one, other| one.class == other.class)
    {
        let counts = counts(requests, &spans);
        let ended: u64 = counts.iter().sum();
        if ended == 0 {
            continue;
        }
        let rates = counts
            .iter()
            .zip(&spans)
            .map(|(count, span)| *count as f64 / length(span));
        let Pearson { r, p } = Pearson::of(&rates.collect::<Vec<_>>(), &used);
        correlations.push(Correlation {
            class: requests[0].class.index(),
            r,
            p,
            requests: ended,
        });
    }
    correlations.sort_by(|one, other| other.r.total_cmp(&one.r));
    let seconds: f64 = spans.iter().map(length).sum();
    let sum: f64 = spans.iter().map(|span| span.mean * length(span)).sum();
    let mut lengths: Vec<f64> = spans.iter().map(length).collect();
    lengths.sort_by(f64::total_cmp);
    View {
        intervals: spans.len(),
        interval_seconds: lengths.get(lengths.len() / 2).copied().unwrap_or(0.0),
        mean: if seconds > 0.0 { sum / seconds } else { 0.0 },
        correlations,
    }
}

/// Intervals between the first and the last end of a request.
fn shared(evidence: &Evidence, mut spans: Vec<Span>) -> Vec<Span> {
    let ends = || {
        evidence
            .requests
            .iter()
            .map(|lived| lived.ended.nanos() as i64)
    };
    let (Some(first), Some(last)) = (ends().min(), ends().max()) else {
        return Vec::new();
    };
    spans.retain(|span| span.to > first && span.from <= last);
    spans
}

/// How many of these, in order of their ends, ended in each interval.
fn counts(requests: &[Lived], spans: &[Span]) -> Vec<u64> {
    let mut counts = vec![0; spans.len()];
    let mut at = 0;
    for lived in requests {
        let ended = lived.ended.nanos() as i64;
        while spans.get(at).is_some_and(|span| span.to <= ended) {
            at += 1;
        }
        match spans.get(at) {
            Some(span) if span.from <= ended => counts[at] += 1,
            Some(_) => {}
            None => break,
        }
    }
    counts
}
