//! Whether a node gets enough of its site's requests for its responses to be compared with others'.
//!
//! ```text
//! recent  = own dispatches, decaying with 1 s
//! fair    = sum(recent over candidates) * C / sum(C)
//! apart   = a candidate with recent < 0.2 fair, where fair >= 1
//! ```
//!
//! A node that gets next to nothing is asked with cold caches and connections, and when the
//! others are busy. Its responses are slow for that reason alone: taken at their word they confirm
//! what keeps the node out, for ever (three equal nodes on a busy host, one of which had
//! hung: 97 % at one of them a minute later). So of the responses of a node apart only what is
//! beyond three times the site's mean counts; those to requests that it had in flight when it
//! fell behind count in full. Once it has been apart for 2 s * rel^2, what it taught is forgotten
//! (rel: its relative cost in `learn`, the highest meanwhile): it is asked like any other, and
//! has its share from then on or is soon proven dear again. Then it is left alone for twice as
//! long, a minute at most. Ten seconds with its share, and it is two seconds again. The dearer a
//! node is, the more it costs to ask and the less a cold cache explains: hence rel^2 (2 s for
//! all, and nothing but silence taught by a node apart: one that is ten times slower and claims
//! to be idle drew 0.14 of its fair share, with this 0.06).
//!
//! Failure case: a node that is really slow costs more, since it is asked again from time to time
//! (slow IO on a fifth of 20 nodes, 8 front-ends: p99 109.9 ms instead of 107.6); the most for one
//! front-end at a low rate without counters of requests.

use super::learn::Keep;

/// Part of its fair share that a node must have to be compared.
const COMPARABLE: f64 = 0.2;
/// A fair share of fewer requests a second says nothing.
const FAIR_MIN: f64 = 1.0;
/// By how much cold caches and connections may slow a response: the logarithm of three.
const COLD_LN: f64 = 1.1;
/// How long a node is left alone, seconds: the first time, and at most.
const PATIENCE_FIRST: f64 = 2.0;
const PATIENCE_MAX: f64 = 60.0;
/// After so long with its share a node is as good as new, seconds.
const RECOVERED: f64 = 10.0;

/// How much of the mean of `count` responses' ln y - mu, whose sum this is, is forgiven to a node
/// apart: up to [`COLD_LN`] of what is above zero.
pub(super) fn forgiven(sum_ln: f64, count: f64) -> f64 {
    match count > 0.0 {
        true => (sum_ln / count).clamp(0.0, COLD_LN),
        false => 0.0,
    }
}

/// What a node's share of the site's requests makes of its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// They teach.
    Compared,
    /// They teach what cold caches do not explain.
    Apart,
    /// They teach nothing: it is no candidate, or has not had its share yet since it came.
    Away,
    /// Nor do those from before.
    BeginsAnew,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Share {
    recent: f64,
    /// For how long it has been apart, or has had its share, seconds; the other is zero.
    apart: f64,
    compared: f64,
    patience: f64,
    /// Its highest relative cost since it is apart.
    dear: f64,
    /// Requests from when it had its share that have not ended.
    owed: u64,
    /// Whether it had its share once.
    arrived: bool,
}

/// What a node did between two ticks, and what it is at the second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tick {
    /// Requests per second that would be its share.
    pub(super) fair: f64,
    /// Its relative cost, as `learn` knows it.
    pub(super) rel: f64,
    /// Own requests that ended, and own requests in flight.
    pub(super) ended: u64,
    pub(super) in_flight: u64,
    pub(super) seconds: f64,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            recent: 0.0,
            apart: 0.0,
            compared: 0.0,
            patience: PATIENCE_FIRST,
            dear: 1.0,
            owed: 0,
            arrived: false,
        }
    }
}

impl Share {
    /// For the next process: recent requests, seconds apart and with its share, patience, the highest cost, and whether it
    /// had its share once.
    pub(super) fn learned(&self) -> [f64; 6] {
        let arrived = f64::from(u8::from(self.arrived));
        [
            self.recent,
            self.apart,
            self.compared,
            self.patience,
            self.dear,
            arrived,
        ]
    }

    /// Of what was known before. Requests that it had then are another process's.
    pub(super) fn recalled([recent, apart, compared, patience, dear, arrived]: [f64; 6]) -> Self {
        Self {
            recent,
            apart,
            compared,
            patience: patience.clamp(PATIENCE_FIRST, PATIENCE_MAX),
            dear: dear.max(1.0),
            owed: 0,
            arrived: arrived > 0.5,
        }
    }

    pub(super) fn on_dispatches(&mut self, dispatched: u64, keep: &Keep) {
        self.recent = self.recent * keep.share + dispatched as f64;
    }

    /// Requests of the last second.
    pub(super) fn recent(&self) -> f64 {
        self.recent
    }

    /// A candidate's standing.
    pub(super) fn on_tick(&mut self, tick: &Tick) -> Standing {
        if tick.fair < FAIR_MIN || self.recent >= COMPARABLE * tick.fair {
            self.apart = 0.0;
            self.dear = 1.0;
            self.owed = tick.in_flight;
            self.arrived = true;
            self.compared += tick.seconds;
            if self.compared >= RECOVERED {
                self.patience = PATIENCE_FIRST;
            }
            return Standing::Compared;
        }
        self.compared = 0.0;
        self.apart += tick.seconds;
        self.dear = self.dear.max(tick.rel);
        if self.apart < (self.patience * self.dear * self.dear).min(PATIENCE_MAX) {
            let owed = self.owed;
            self.owed = owed.saturating_sub(tick.ended);
            return match (owed, self.arrived) {
                (_, false) => Standing::Away,
                (0, true) => Standing::Apart,
                (_, true) => Standing::Compared,
            };
        }
        self.apart = 0.0;
        self.dear = 1.0;
        self.patience = (2.0 * self.patience).min(PATIENCE_MAX);
        Standing::BeginsAnew
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAIR: f64 = 10.0;

    fn tick(fair: f64, rel: f64, seconds: f64) -> Tick {
        Tick {
            fair,
            rel,
            ended: 0,
            in_flight: 0,
            seconds,
        }
    }

    /// A node with this part of its fair share for so many seconds: how often it begins anew.
    fn beginnings(share: &mut Share, part: f64, seconds: u32) -> usize {
        beginnings_at(share, part, seconds, 1.0)
    }

    /// The same, of a node with this relative cost.
    fn beginnings_at(share: &mut Share, part: f64, seconds: u32, rel: f64) -> usize {
        share.recent = part * FAIR;
        let ticks = (0..seconds * 8).map(|_| share.on_tick(&tick(FAIR, rel, 0.125)));
        ticks.filter(|it| *it == Standing::BeginsAnew).count()
    }

    #[test]
    fn a_fifth_of_its_fair_share_is_enough() {
        let with = |recent| Share {
            recent,
            arrived: true,
            ..Share::default()
        };
        assert_eq!(with(2.0).on_tick(&tick(FAIR, 1.0, 0.1)), Standing::Compared);
        assert_eq!(with(1.99).on_tick(&tick(FAIR, 1.0, 0.1)), Standing::Apart);
    }

    #[test]
    fn where_hardly_anything_is_asked_no_node_is_apart() {
        let mut share = Share::default();
        assert_eq!(share.on_tick(&tick(0.99, 1.0, 3600.0)), Standing::Compared);
        assert_eq!(share.on_tick(&tick(1.0, 1.0, 0.1)), Standing::Apart);
    }

    #[test]
    fn each_wait_is_twice_the_one_before_up_to_a_minute() {
        let mut share = Share::default();
        assert_eq!(beginnings(&mut share, 0.0, 3), 1);
        // After 2, 4, 8, 16, 32 and 60 seconds, and then each minute.
        assert_eq!(beginnings(&mut share, 0.0, 2 + 4 + 8 + 16 + 32 + 60 - 3), 5);
        assert_eq!(beginnings(&mut share, 0.0, 600), 10);
    }

    #[test]
    fn a_node_twice_as_dear_is_left_alone_four_times_as_long_but_never_for_more_than_a_minute() {
        let mut share = Share::default();
        assert_eq!(beginnings_at(&mut share, 0.0, 7, 2.0), 0);
        assert_eq!(beginnings_at(&mut share, 0.0, 1, 2.0), 1);
        assert_eq!(beginnings_at(&mut share, 0.0, 59, 4.0), 0);
        assert_eq!(beginnings_at(&mut share, 0.0, 1, 4.0), 1);
        // The highest cost counts: evidence that ages does not shorten the wait.
        let mut share = Share::default();
        assert_eq!(beginnings_at(&mut share, 0.0, 1, 2.0), 0);
        assert_eq!(beginnings_at(&mut share, 0.0, 6, 1.0), 0);
        assert_eq!(beginnings_at(&mut share, 0.0, 1, 1.0), 1);
        // A cheap node waits no less than an equal one.
        assert_eq!(beginnings_at(&mut Share::default(), 0.0, 1, 0.25), 0);
    }

    #[test]
    fn a_node_that_came_teaches_nothing_before_it_had_its_share() {
        let mut share = Share::default();
        assert_eq!(share.on_tick(&tick(FAIR, 1.0, 0.1)), Standing::Away);
        share.recent = FAIR;
        assert_eq!(share.on_tick(&tick(FAIR, 1.0, 0.1)), Standing::Compared);
        share.recent = 0.0;
        assert_eq!(share.on_tick(&tick(FAIR, 1.0, 0.1)), Standing::Apart);
    }

    #[test]
    fn cold_caches_excuse_three_times_the_mean_and_no_more() {
        assert_eq!(forgiven(0.0, 0.0), 0.0);
        assert_eq!(forgiven(-4.0, 2.0), 0.0);
        assert_eq!(forgiven(1.0, 2.0), 0.5);
        assert_eq!(forgiven(8.0, 2.0), COLD_LN);
    }

    #[test]
    fn requests_from_when_it_had_its_share_still_teach() {
        let mut share = Share {
            recent: FAIR,
            ..Share::default()
        };
        let ended = |ended, in_flight| Tick {
            ended,
            in_flight,
            ..tick(FAIR, 1.0, 0.1)
        };
        assert_eq!(share.on_tick(&ended(5, 3)), Standing::Compared);
        share.recent = 0.0;
        for (ends, standing) in [
            (0, Standing::Compared),
            (2, Standing::Compared),
            (1, Standing::Compared),
            (1, Standing::Apart),
        ] {
            assert_eq!(share.on_tick(&ended(ends, 3)), standing);
        }
    }

    #[test]
    fn ten_seconds_with_its_share_make_it_as_good_as_new() {
        let mut share = Share::default();
        assert_eq!(beginnings(&mut share, 0.0, 20), 3);
        assert_eq!(beginnings(&mut share, 1.0, 9), 0);
        assert_eq!(beginnings(&mut share, 0.0, 10), 0);
        assert_eq!(beginnings(&mut share, 1.0, 11), 0);
        assert_eq!(beginnings(&mut share, 0.0, 3), 1);
    }
}
