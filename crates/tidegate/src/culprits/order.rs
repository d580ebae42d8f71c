//! Where in its second a request ended, when the log tells seconds only.
//!
//! ```text
//! end(i) in [low(i), low(i) + width)      low: the logged time, plus the duration if it is the start
//! logs are written in the order of ends:  end(i) <= end(i + 1)
//! from(i) = max(from(i - 1), low(i))      to(i) = min(to(i + 1), low(i) + width)
//! end(i)  = the middle of both; n with the same both: spread evenly, (k + 1/2) / n
//! ```
//!
//! Inputs: the lines of one file in their order. So a hundred lines of one second are 10 ms apart
//! and not all at once, and durations narrow things down further. It stays an estimate: within a
//! second, what happens together is spread. Failure case: logs written through buffers of several
//! processes are in no order; where more than one line in fifty contradicts its neighbours all
//! go to the middle of what is possible, and [`Placed::Middle`] says so.
//! Source: order statistics of uniform times; monotone interval constraints.

/// One line in this many may contradict the order.
const CONTRADICTIONS: usize = 50;

/// How ends were placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// By the order of lines.
    Ordered,
    /// In the middle of what is possible, since lines are in no order.
    Middle,
}

/// Times between 0 and `width` to add to each of the lowest possible ends.
pub(super) fn place(lows: &[i64], width: i64) -> (Vec<i64>, Placed) {
    let mut from = Vec::with_capacity(lows.len());
    let mut contradictions = 0;
    let mut least = i64::MIN;
    for low in lows {
        if least >= low + width {
            contradictions += 1;
        }
        // A line that comes too late says nothing about those after it.
        let place = if least < low + width {
            least.max(*low)
        } else {
            *low
        };
        least = least.max(*low);
        from.push(place);
    }
    if contradictions * CONTRADICTIONS > lows.len() {
        return (vec![width / 2; lows.len()], Placed::Middle);
    }
    let mut to = vec![0; lows.len()];
    let mut most = i64::MAX;
    for (index, low) in lows.iter().enumerate().rev() {
        let high = low + width;
        most = if most > from[index] {
            most.min(high)
        } else {
            high
        };
        to[index] = most;
    }
    let mut ends = Vec::with_capacity(lows.len());
    let mut start = 0;
    while start < lows.len() {
        let same = |at: &usize| from[*at] == from[start] && to[*at] == to[start];
        let count = (start..lows.len()).take_while(same).count();
        let room = (to[start] - from[start]).max(0);
        for index in 0..count {
            let part = (2 * index as i128 + 1) * i128::from(room) / (2 * count as i128);
            let end = from[start] + part as i64;
            ends.push((end - lows[start + index]).clamp(0, width));
        }
        start += count;
    }
    (ends, Placed::Ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: i64 = 1000;

    fn ends(lows: &[i64]) -> Vec<i64> {
        let (add, placed) = place(lows, WIDTH);
        assert_eq!(placed, Placed::Ordered);
        lows.iter().zip(add).map(|(low, add)| low + add).collect()
    }

    #[test]
    fn lines_of_one_second_are_spread() {
        assert_eq!(ends(&[0, 0, 0, 0]), [125, 375, 625, 875]);
        assert_eq!(ends(&[0, 1000, 1000]), [500, 1250, 1750]);
        assert!(ends(&[]).is_empty());
    }

    #[test]
    fn durations_narrow_things_down() {
        // The second one ended after 900 at least, and the third one before 1000.
        let found = ends(&[0, 900, 0]);
        assert!(
            found[0] < 900 && (900..1000).contains(&found[1]) && (900..1000).contains(&found[2])
        );
        assert!(found.is_sorted());
    }

    #[test]
    fn a_line_that_comes_late_does_not_move_the_others() {
        let mut lows: Vec<i64> = (0..200).map(|second| 1000 * second).collect();
        lows[100] = 20_000;
        let found = ends(&lows);
        assert_eq!(found[50], 50_500);
        assert_eq!(found[150], 150_500);
        assert_eq!(found[100], 20_500);
    }

    #[test]
    fn what_is_in_no_order_goes_to_the_middle() {
        let lows: Vec<i64> = (0..100).map(|line| 1000 * (line * 37 % 100)).collect();
        let (add, placed) = place(&lows, WIDTH);
        assert_eq!(placed, Placed::Middle);
        assert!(add.iter().all(|add| *add == 500));
    }

    #[test]
    fn true_ends_of_a_log_are_met_better_than_by_the_middle() {
        let mut prng = tidegate_core::prng::Prng::new(4);
        let mut at = 0.0;
        let truth: Vec<i64> = (0..5000)
            .map(|_| {
                at += prng.exponential(5.0);
                at as i64
            })
            .collect();
        let lows: Vec<i64> = truth.iter().map(|end| end / WIDTH * WIDTH).collect();
        let error = |found: &[i64]| {
            let off = found
                .iter()
                .zip(&truth)
                .map(|(found, truth)| (found - truth).abs());
            off.sum::<i64>() as f64 / truth.len() as f64
        };
        let middle: Vec<i64> = lows.iter().map(|low| low + WIDTH / 2).collect();
        assert!(error(&ends(&lows)) < 0.2 * error(&middle));
    }
}
