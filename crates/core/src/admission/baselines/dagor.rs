//! `dagor`: a threshold of priority and user that falls while requests wait too long, and rises again by
//! little.
//!
//! ```text
//! window     1 s or 2000 requests
//! wait       mean latency of the window - base; base: the least mean of a window of ten answers
//! overload   wait > 20 ms
//! expected   0.95 admitted in overload, else admitted + max(1, 0.01 arrived)
//! level      the most levels, from the highest priority and user on, of which no more than
//!            `expected` arrived in the window; requests beyond are refused
//! ```
//!
//! Inputs: arrivals by priority; latencies; a clock; chance.
//!
//! Failure case: at a proxy it is not known how long requests wait at servers: it shows in latencies only
//! when they end, and a base that was first seen in overload hides it. A twentieth less per second is
//! too little for servers that get twice what they can do (study: 0 to 1 % of the capacity).
//!
//! Source: DAGOR-2018, algorithm 1.
//! There each user has one of 128 levels for an hour; here requests have no user and draw one each. There
//! nothing sees to it that at least one request more comes in: a quiet site would never recover.

use std::time::Duration;

use super::{
    Admission, AdmissionVerdict, Priority, Prng, Sample, Timestamp, View, admit_if, seconds,
};

const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_REQUESTS: u32 = 2000;
/// Longest mean wait without overload, seconds.
const WAIT_MAX: f64 = 0.02;
const ALPHA: f64 = 0.05;
const BETA: f64 = 0.01;
/// Levels within a priority.
const USERS: usize = 128;
const LEVELS: usize = USERS * Priority::COUNT;
/// Answers that make a base.
const ANSWERS_MIN: u32 = 10;

/// What a window has seen.
#[derive(Debug)]
struct Window {
    since: Timestamp,
    arrived: [u32; LEVELS],
    arrivals: u32,
    admitted: u32,
    answers: u32,
    /// Of their latencies, seconds.
    sum: f64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Dagor {
    window: Window,
    base: Option<f64>,
    /// So many levels are let in.
    level: usize,
}

impl Window {
    fn new(since: Timestamp) -> Self {
        Self {
            since,
            arrived: [0; LEVELS],
            arrivals: 0,
            admitted: 0,
            answers: 0,
            sum: 0.0,
        }
    }

    /// How many levels are no more than so many requests.
    fn levels(&self, expected: f64) -> usize {
        let mut sum = 0.0;
        let beyond = self.arrived.iter().position(|arrived| {
            sum += f64::from(*arrived);
            sum > expected
        });
        beyond.unwrap_or(LEVELS)
    }
}

impl Default for Dagor {
    fn default() -> Self {
        Self {
            window: Window::new(Timestamp::ZERO),
            base: None,
            level: LEVELS,
        }
    }
}

impl Dagor {
    /// Ends the window if it is time.
    fn look(&mut self, now: Timestamp) {
        if now.since(self.window.since) < WINDOW && self.window.arrivals < WINDOW_REQUESTS {
            return;
        }
        let window = std::mem::replace(&mut self.window, Window::new(now));
        let admitted = f64::from(window.admitted);
        let expected = match self.is_overload(&window) {
            true => admitted * (1.0 - ALPHA),
            false => admitted + (BETA * f64::from(window.arrivals)).max(1.0),
        };
        self.level = window.levels(expected);
    }

    /// Whether requests waited for too long; learns what they need without.
    fn is_overload(&mut self, window: &Window) -> bool {
        if window.answers == 0 {
            return false;
        }
        let mean = window.sum / f64::from(window.answers);
        if window.answers >= ANSWERS_MIN {
            self.base = Some(self.base.map_or(mean, |base| base.min(mean)));
        }
        self.base.is_some_and(|base| mean - base > WAIT_MAX)
    }
}

impl Admission for Dagor {
    fn on_request(
        &mut self,
        view: &View<'_>,
        priority: Priority,
        prng: &mut Prng,
    ) -> AdmissionVerdict {
        self.look(view.now);
        let level = priority.index() * USERS + prng.below(USERS);
        let may = level < self.level;
        self.window.arrived[level] += 1;
        self.window.arrivals += 1;
        self.window.admitted += u32::from(may);
        admit_if(may)
    }

    fn refuses_all(&self) -> bool {
        false
    }

    fn on_sample(&mut self, sample: &Sample, now: Timestamp, _: &mut Prng) {
        self.look(now);
        self.window.answers += 1;
        self.window.sum += seconds(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(arrived_each: u32, admitted: u32, answers: u32, mean: f64) -> Window {
        Window {
            arrived: [arrived_each; LEVELS],
            arrivals: arrived_each * LEVELS as u32,
            admitted,
            answers,
            sum: mean * f64::from(answers),
            ..Window::new(Timestamp::ZERO)
        }
    }

    #[test]
    fn the_level_falls_by_a_twentieth_in_overload_and_rises_by_a_hundredth() {
        let mut dagor = Dagor {
            base: Some(0.01),
            ..Dagor::default()
        };
        let mut after = |window| {
            dagor.window = window;
            dagor.look(Timestamp::from_millis(1000));
            dagor.level
        };
        assert_eq!(after(window(2, 1024, 100, 0.03)), 512, "20 ms are none");
        assert_eq!(after(window(2, 1024, 100, 0.031)), 486, "0.95 of 512");
        assert_eq!(after(window(2, 972, 100, 0.01)), 491, "486 and 5.12");
        assert_eq!(after(window(2, 0, 0, 0.0)), 5, "even from nothing");
        assert_eq!(after(window(0, 0, 0, 0.0)), 512, "nobody asks");
    }

    #[test]
    fn a_quiet_site_comes_back_too() {
        let mut quiet = window(0, 0, 0, 0.0);
        quiet.arrived[300] = 1;
        quiet.arrived[400] = 1;
        quiet.arrivals = 2;
        assert_eq!(quiet.levels(0.0), 300);
        let mut dagor = Dagor {
            window: quiet,
            level: 0,
            ..Dagor::default()
        };
        dagor.look(Timestamp::from_millis(1000));
        assert_eq!(dagor.level, 400, "one of two");
    }

    #[test]
    fn the_base_is_the_least_mean_of_enough_answers() {
        let mut dagor = Dagor::default();
        assert!(!dagor.is_overload(&window(0, 0, 9, 1.0)));
        assert_eq!(dagor.base, None);
        for (mean, base) in [(0.2, 0.2), (0.1, 0.1), (0.3, 0.1)] {
            dagor.is_overload(&window(0, 0, 10, mean));
            assert_eq!(dagor.base, Some(base));
        }
    }
}
