//! Pearson's r and p for a class and a resource: the first view.
//!
//! Bins are the resource's own intervals, of a second or more: so nothing is interpolated. What is
//! compared is how many requests of the class ended per second, as Elephants-2005 does, and the mean use.

use tidegate_core::culprits::Pearson;

use super::resource::{Span, seconds};
use super::time::SECOND;

/// Least intervals that tell anything.
pub(super) const INTERVALS_MIN: usize = 3;

/// The intervals that requests are compared in: those in which any request may have ended.
pub(super) fn intervals(spans: &[Span], first_end: i64, last_end: i64) -> Vec<Span> {
    let mut spans = seconds(spans);
    spans.retain(|span| span.to > first_end && span.from <= last_end);
    spans
}

/// How ends of requests, in order of time, go with the use; none if no request ended there.
pub(super) fn pearson(ends: &[i64], spans: &[Span]) -> Option<Pearson> {
    let counts = counts(ends, spans);
    if counts.iter().all(|count| *count == 0) || spans.len() < INTERVALS_MIN {
        return None;
    }
    let length = |span: &Span| (span.to - span.from) as f64 / SECOND as f64;
    let rates = counts.iter().zip(spans);
    let rates: Vec<f64> = rates
        .map(|(count, span)| *count as f64 / length(span))
        .collect();
    let used: Vec<f64> = spans.iter().map(|span| span.mean).collect();
    Some(Pearson::of(&rates, &used))
}

/// How many ended in each interval.
fn counts(ends: &[i64], spans: &[Span]) -> Vec<u64> {
    let mut counts = vec![0; spans.len()];
    let mut at = 0;
    for ended in ends {
        while spans.get(at).is_some_and(|span| span.to <= *ended) {
            at += 1;
        }
        match spans.get(at) {
            Some(span) if span.from <= *ended => counts[at] += 1,
            Some(_) => {}
            None => break,
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: i64, to: i64, mean: f64) -> Span {
        let (from, to) = (from * SECOND / 10, to * SECOND / 10);
        Span { from, to, mean }
    }

    #[test]
    fn who_ends_when_the_use_is_high_goes_with_it() {
        let spans = [
            span(0, 10, 0.1),
            span(10, 20, 0.9),
            span(20, 30, 0.1),
            span(40, 50, 0.5),
        ];
        let at = |tenths: &[i64]| tenths.iter().map(|it| it * SECOND / 10).collect::<Vec<_>>();
        // One ended in the hole.
        let ends = at(&[11, 12, 19, 35, 41]);
        assert_eq!(counts(&ends, &spans), [0, 3, 0, 1]);
        assert!(pearson(&ends, &spans).unwrap().r > 0.9);
        assert!(pearson(&at(&[1, 2, 21, 22]), &spans).unwrap().r < -0.5);
        assert_eq!(pearson(&at(&[35, 70]), &spans), None);
        assert_eq!(
            intervals(&spans, 15 * SECOND / 10, 25 * SECOND / 10),
            spans[1..3]
        );
    }

    #[test]
    fn short_readings_are_put_together_to_seconds() {
        let spans: Vec<Span> = (0..40).map(|it| span(it, it + 1, it as f64)).collect();
        let seconds = intervals(&spans, 0, 4 * SECOND);
        assert_eq!(seconds.len(), 4);
        assert!((seconds[1].mean - 14.5).abs() < 1e-9, "{seconds:?}");
    }
}
