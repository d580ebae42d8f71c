//! Step 6b: do a class's arrivals alone say what its requests' lives said?
//!
//! ```text
//! h_c(k) = mean over requests of c of one unit of work, spread evenly over its life, k bins after it was sent
//! q_c    = cost of c x (arrivals of c * h_c)
//! y      = sum over classes of a_c q_c + e           with Newey and West's errors
//! cost of c <= (a_c + 2 errors) x what the fit says, and the same with lives 800 ms longer: one of them
//! ```
//!
//! Two things make a class look dearer than it is. Eleven atoms for each of twenty classes follow what wanders
//! for seconds, and with blocks of 2.5 s cross-fitting does not see it. And work that no request asked for slows all requests
//! down while it runs: there are then more of them in progress, which is the effect taken for the cause. When
//! requests are sent is no effect of it, and one slope on a shape that is not fitted follows nothing: if
//! arrivals are at random it is the work that lies within the shape, wherever in it.
//!
//! Inputs: arrivals, lives, and what the fit says of costs. Failure case: few requests whose work differs much say
//! little by their arrivals; then the error is great, and nothing is taken from them.
//! Source: arrivals as an instrument for time in progress, as in Instrument-1928; measured on sites without
//! heavy classes, where wandering work that no request asked for made the busiest class look four times as dear as it was.

use super::bins::{BIN_NS, ClassSeries, LIFE_MIN_NS, MARGIN, Window, spread};
use super::recent::Life;

/// Lives that a mean is taken of.
const LIVES_MAX: usize = 200;
/// Bins that a request's work may take; of what takes longer the rest is left out.
const RESPONSE: usize = 64;
/// So much longer than a life work may take, nanoseconds: one of these.
pub(super) const LONGER: [i64; 2] = [0, 8 * BIN_NS];

/// The window, and before it what requests that were sent there may reach into it.
pub(super) fn reaching_into(window: Window) -> Window {
    Window {
        first: window.first - RESPONSE as i64,
        bins: window.bins + RESPONSE,
    }
}

/// What a class would use in each bin of a window by its arrivals, seconds; zeros if no lives are known.
/// `series` is of [`reaching_into`] the window, `cost` that of a request, seconds.
pub(super) fn by_arrivals(
    series: &ClassSeries,
    window: Window,
    lives: &[Life],
    longer: i64,
    cost: f64,
) -> Vec<f32> {
    let mut expected = vec![0.0f32; window.bins];
    let response = response(lives, longer);
    // Arrivals are spread over the 100 ms after a request was sent: its part lies in the next bin.
    let came = series.arrivals.iter().enumerate();
    for (place, came) in came.filter(|(_, came)| **came > 0.0) {
        let weight = *came * cost as f32;
        // Where in the window it was sent, or how much of its work lies before.
        let sent = place.saturating_sub(MARGIN + RESPONSE);
        let before = (MARGIN + RESPONSE).saturating_sub(place);
        let within = expected.iter_mut().skip(sent);
        let pairs = within.zip(response.iter().skip(before));
        pairs.for_each(|(sum, part)| *sum += weight * part);
    }
    expected
}

/// What part of one request's work lies in each bin from the one on in which it was sent.
fn response(lives: &[Life], longer: i64) -> Vec<f32> {
    let (mut response, mut many) = (vec![0.0; RESPONSE], 0.0f32);
    for (sent, ended) in lives.iter().step_by(lives.len().div_ceil(LIVES_MAX).max(1)) {
        let life = ((ended - sent).max(0) + longer).max(LIFE_MIN_NS);
        spread(0, life, 1.0, &mut response);
        many += 1.0;
    }
    // No request works in the bins after the longest life.
    while response.last().is_some_and(|part| *part == 0.0) {
        response.pop();
    }
    response.iter_mut().for_each(|part| *part /= many.max(1.0));
    response
}

#[cfg(test)]
mod tests {
    use super::super::bins::Bins;
    use super::*;
    use crate::time::Timestamp;

    const MS: i64 = 1_000_000;

    #[test]
    fn a_response_is_one_unit_over_the_life() {
        let lives = [(0, 200 * MS), (50 * MS, 450 * MS)];
        let found = response(&lives, 0);
        let near = |found: &[f32], wanted: &[f32]| {
            let pairs = found.iter().zip(wanted);
            assert_eq!(found.len(), wanted.len());
            pairs.for_each(|(x, y)| assert!((x - y).abs() < 1e-6, "{found:?}"));
        };
        near(&found, &[0.375, 0.375, 0.125, 0.125]);
        near(&response(&lives[..1], 200 * MS), &[0.25; 4]);
        assert!(response(&[], 0).is_empty());
        // One that lives for an hour takes nothing from the others.
        let hour = response(&[(0, 200 * MS), (0, 3_600_000 * MS)], 0);
        assert_eq!(hour.len(), RESPONSE);
        assert!((hour[0] - 0.25).abs() < 1e-3 && hour[2] < 1e-3, "{hour:?}");
    }

    #[test]
    fn arrivals_in_and_before_the_window_use_it() {
        let window = Window {
            first: 100,
            bins: 20,
        };
        let mut bins = Bins::new(1);
        let life = (0, 300 * MS);
        for sent in [9_900, 10_500] {
            let sent = Timestamp::from_millis(sent);
            bins.add(
                0,
                sent,
                Timestamp::from_nanos(sent.nanos() + 300 * MS as u64),
            );
        }
        let series = bins.read(0, reaching_into(window));
        let found = by_arrivals(&series, window, &[life], 0, 0.3);
        let used: Vec<_> = (0..20).filter(|bin| found[*bin] > 0.05).collect();
        assert_eq!(used, [0, 1, 5, 6, 7]);
        assert!((found.iter().sum::<f32>() - 0.5).abs() < 1e-4);
    }
}
