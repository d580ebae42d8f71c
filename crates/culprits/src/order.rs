//! Where in its second a request ended, when the log tells seconds only.
//!
//! ```text
//! end(i) in [low(i), low(i) + width)      low: the logged time, plus the duration if it is the start
//! logs are written in the order of ends:  end(i) <= end(i + 1)
//! from(i) = max(from(i - 1), low(i))      to(i) = min(to(i + 1), low(i) + width)
//! a run   = neighbours with to(i) > from(i + 1)
//! end(i)  = the shortest way from (0, from of the first) to (n, to of the last) that keeps within
//!           from and to of each line of the run, read at i + 1/2
//! ```
//!
//! Inputs: the lines of one file in their order. A hundred lines of one second are 10 ms apart and not
//! all at once; durations narrow things down further, and the way bends only where a bound makes it, so
//! lines come at an even rate as far as the bounds allow. It stays an estimate: within a second, what
//! happens together is spread. Failure case: logs written through buffers of several processes are in no
//! order; where more than one line in fifty contradicts its neighbours all go to the middle of what is
//! possible, and [`Placed::Middle`] says so. One of a few that contradict goes to its own middle.
//! Source: monotone interval constraints; the taut string of TautString-2001.

use std::collections::VecDeque;

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

/// A line that fits its neighbours: its place, and the bounds of its end.
struct Bound {
    line: usize,
    from: i64,
    to: i64,
}

/// Times between 0 and `width` to add to each of the lowest possible ends.
pub(super) fn place(lows: &[i64], width: i64) -> (Vec<i64>, Placed) {
    let mut adds = vec![width / 2; lows.len()];
    let bounds = bounds(lows, width);
    if (lows.len() - bounds.len()) * CONTRADICTIONS > lows.len() {
        return (adds, Placed::Middle);
    }
    for run in bounds.chunk_by(|one, next| one.to > next.from) {
        for (bound, end) in run.iter().zip(shortest_way(run)) {
            let end = end.clamp(bound.from, bound.to);
            adds[bound.line] = (end - lows[bound.line]).clamp(0, width);
        }
    }
    (adds, Placed::Ordered)
}

/// Bounds of all lines that do not contradict those before; both go up from line to line.
fn bounds(lows: &[i64], width: i64) -> Vec<Bound> {
    let mut bounds = Vec::with_capacity(lows.len());
    let mut from = i64::MIN;
    for (line, low) in lows.iter().enumerate() {
        let to = low.saturating_add(width);
        // A line that comes too late says nothing about those after it.
        if from < to {
            from = from.max(*low);
            bounds.push(Bound { line, from, to });
        }
    }
    let mut most = i64::MAX;
    for bound in bounds.iter_mut().rev() {
        most = most.min(bound.to);
        bound.to = most;
    }
    bounds
}

/// A place in the file, in lines of the run, and a time since its first bound.
#[derive(Clone, Copy)]
struct Point(f64, f64);

impl Point {
    fn slope(self, to: Self) -> f64 {
        (to.1 - self.1) / (to.0 - self.0)
    }
}

/// The way so far, and the bounds ahead that it may have to bend at: those below as a hull from above, those
/// above as a hull from below.
struct Way {
    knots: Vec<Point>,
    ahead: [VecDeque<Point>; 2],
}

impl Way {
    fn apex(&self) -> Point {
        self.knots.last().copied().unwrap_or(Point(0.0, 0.0))
    }

    /// Takes in a bound, of those below (0) or above (1).
    fn keep(&mut self, side: usize, point: Point) {
        let steeper = |one: f64, other: f64| match side {
            0 => one > other,
            _ => one < other,
        };
        let mut apex = self.apex();
        let own = &mut self.ahead[side];
        while let Some(last) = own.back() {
            let before = own.len().checked_sub(2).map_or(apex, |place| own[place]);
            if steeper(before.slope(*last), before.slope(point)) {
                break;
            }
            own.pop_back();
        }
        if own.is_empty() {
            let other = &mut self.ahead[1 - side];
            while let Some(first) = other.front().copied() {
                if !steeper(apex.slope(point), apex.slope(first)) {
                    break;
                }
                other.pop_front();
                self.knots.push(first);
                apex = first;
            }
        }
        self.ahead[side].push_back(point);
    }
}

/// Ends of a run's lines, by the shortest way through its bounds.
fn shortest_way(run: &[Bound]) -> Vec<i64> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else {
        return Vec::new();
    };
    let since = |time: i64| (time - first.from) as f64;
    let mut way = Way {
        knots: vec![Point(0.0, 0.0)],
        ahead: [VecDeque::new(), VecDeque::new()],
    };
    for (line, bound) in run.iter().enumerate() {
        let line = line as f64 + 0.5;
        way.keep(0, Point(line, since(bound.from)));
        way.keep(1, Point(line, since(bound.to)));
    }
    let end = Point(run.len() as f64, since(last.to));
    way.keep(0, end);
    way.keep(1, end);
    way.knots.push(end);
    let mut pieces = way.knots.windows(2).peekable();
    let at = |line: usize| {
        let line = line as f64 + 0.5;
        while pieces.peek().is_some_and(|piece| piece[1].0 < line) {
            pieces.next();
        }
        let piece = pieces.peek()?;
        let time = piece[0].1 + piece[0].slope(piece[1]) * (line - piece[0].0);
        Some(first.from + time as i64)
    };
    (0..run.len()).map_while(at).collect()
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

    /// Mean error of the ends of 200 requests a second that last up to so long; the log has the second in which
    /// each began, and its duration.
    fn error_with_durations(longest: f64) -> f64 {
        let mut prng = tidegate_core::prng::Prng::new(5);
        let mut at = 0.0;
        let mut all: Vec<(i64, i64)> = (0..5000)
            .map(|_| {
                at += prng.exponential(5.0);
                let life = 1 + (longest * prng.unit()) as i64;
                (at as i64 + life, life)
            })
            .collect();
        all.sort_by_key(|(end, _)| *end);
        let low = |(end, life): &(i64, i64)| (end - life) / WIDTH * WIDTH + life;
        let lows: Vec<i64> = all.iter().map(low).collect();
        let found = ends(&lows);
        assert!(found.is_sorted());
        let mut bounds = lows.iter().zip(&found);
        assert!(bounds.all(|(low, end)| (*low..=low + WIDTH).contains(end)));
        let off = found.iter().zip(&all);
        let off: i64 = off.map(|(found, (end, _))| (found - end).abs()).sum();
        off as f64 / all.len() as f64
    }

    #[test]
    fn durations_make_ends_better_known_and_not_worse() {
        for longest in [0.0, 5.0, 50.0, 400.0, 3000.0] {
            let error = error_with_durations(longest);
            assert!(error < 30.0, "up to {longest} ms: {error} ms");
        }
    }

    #[test]
    fn the_way_bends_only_at_bounds() {
        // Three lines of one second and thirty of the next, which reach into it by their durations.
        let mut lows = vec![0, 0, 300];
        lows.extend([1000; 30]);
        let found = ends(&lows);
        assert!(found[2] > 300 && found[2] <= 1000 && found[3] >= 1000);
        let gaps: Vec<i64> = found[3..].windows(2).map(|two| two[1] - two[0]).collect();
        assert!(gaps.iter().all(|gap| (32..=34).contains(gap)), "{gaps:?}");
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
