//! How far an experiment is: a bar with the time left on a terminal, otherwise a plain line per
//! step. All of it on stderr, so that results on stdout stay clean.
//!
//! The time left is what the steps still to come were estimated at, times how much longer or
//! shorter than estimated the steps so far took. `PRIOR` keeps the first steps from deciding.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

/// The estimate counts as much as so much experience.
const PRIOR: Duration = Duration::from_secs(10);
/// How often the bar moves while a step lasts.
const TICK: Duration = Duration::from_millis(200);
/// The bar's resolution.
const PARTS: u64 = 1000;

/// See the module. Dropping it takes the bar away.
#[derive(Debug)]
pub struct Progress {
    out: Out,
    state: Mutex<ProgressState>,
}

#[derive(Debug)]
enum Out {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

/// Pure: it is given the time.
#[derive(Clone, Copy, Debug)]
struct ProgressState {
    begin: Timestamp,
    /// Of all steps, as estimated.
    total: Duration,
    /// Of the steps that have ended, as estimated.
    done: Duration,
    /// When the current step began, and its estimate.
    step: (Timestamp, Duration),
}

impl Progress {
    /// An experiment that begins now and takes about `total`.
    pub fn new(name: &str, total: Duration) -> Self {
        let out = if io::stderr().is_terminal() {
            Out::Bar(bar(name))
        } else {
            Out::Lines
        };
        let progress = Self::with(out, total);
        progress.line(&format!("{name}: about {}", spoken(total)));
        progress
    }

    /// Shows nothing.
    pub fn silent() -> Self {
        Self::with(Out::Nothing, Duration::ZERO)
    }

    fn with(out: Out, total: Duration) -> Self {
        let now = clock::now();
        let state = ProgressState {
            begin: now,
            total,
            done: Duration::ZERO,
            step: (now, Duration::ZERO),
        };
        Self {
            out,
            state: Mutex::new(state),
        }
    }

    /// A step begins that was estimated at so long; the one before it has ended.
    pub fn step(&self, text: &str, estimate: Duration) {
        let now = clock::now();
        self.state().begin_step(now, estimate);
        self.message(text);
    }

    /// The current step is done once more, which takes about so much longer.
    pub fn again(&self, text: &str, estimate: Duration) {
        let mut state = self.state();
        state.total += estimate;
        state.step.1 += estimate;
        drop(state);
        self.message(text);
    }

    /// What is being done now.
    pub fn message(&self, text: &str) {
        let now = clock::now();
        let state = *self.state();
        match &self.out {
            Out::Bar(bar) => {
                bar.set_position((state.share(now) * PARTS as f64) as u64);
                bar.set_message(format!("{text}, {} left", spoken(state.left(now))));
            }
            Out::Lines => self.line(&format!("{} {text}", spoken(now.since(state.begin)))),
            Out::Nothing => {}
        }
    }

    /// It is done: the bar goes away.
    pub fn finish(&self) {
        if let Out::Bar(bar) = &self.out {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        if matches!(self.out, Out::Lines) {
            // A reader that is gone is no reason to stop.
            writeln!(io::stderr(), "{text}").ok();
        }
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        // What panicked had nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

impl ProgressState {
    fn begin_step(&mut self, now: Timestamp, estimate: Duration) {
        self.done += self.step.1;
        self.step = (now, estimate);
    }

    /// Estimated time of everything that is done: ended steps, and as much of the current one as
    /// its estimate covers.
    fn covered(&self, now: Timestamp) -> Duration {
        let current = now.since(self.step.0);
        let covered = if self.done + self.step.1 == Duration::ZERO {
            current // nobody tells of steps: time itself is all that is known
        } else {
            self.done + current.min(self.step.1)
        };
        covered.min(self.total)
    }

    fn share(&self, now: Timestamp) -> f64 {
        let total = self.total.as_secs_f64().max(f64::MIN_POSITIVE);
        self.covered(now).as_secs_f64() / total
    }

    fn left(&self, now: Timestamp) -> Duration {
        let covered = self.covered(now);
        let took = now.since(self.begin) + PRIOR;
        let factor = took.as_secs_f64() / (covered + PRIOR).as_secs_f64();
        (self.total - covered).mul_f64(factor)
    }
}

fn bar(name: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3} % {spinner} {wide_msg}");
    let bar = ProgressBar::with_draw_target(Some(PARTS), ProgressDrawTarget::stderr());
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> ").tick_chars("|/-\\ "));
    }
    bar.set_prefix(name.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}

/// A duration to the second.
fn spoken(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} min {seconds:02} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(total: u64) -> ProgressState {
        let begin = Timestamp::from_millis(1000);
        ProgressState {
            begin,
            total: Duration::from_secs(total),
            done: Duration::ZERO,
            step: (begin, Duration::ZERO),
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1000 + seconds * 1000)
    }

    #[test]
    fn steps_as_estimated_leave_what_was_estimated() {
        let mut state = state(100);
        assert_eq!(state.left(at(0)), Duration::from_secs(100));
        state.begin_step(at(0), Duration::from_secs(40));
        assert_eq!(state.left(at(10)), Duration::from_secs(90));
        state.begin_step(at(40), Duration::from_secs(60));
        assert_eq!(state.left(at(40)), Duration::from_secs(60));
        assert!((state.share(at(70)) - 0.7).abs() < 1e-9);
    }

    #[test]
    fn slower_steps_make_the_rest_longer() {
        let mut state = state(100);
        state.begin_step(at(0), Duration::from_secs(40));
        // Took 90 s instead of 40: what is left takes twice as long as estimated.
        state.begin_step(at(90), Duration::from_secs(60));
        assert_eq!(state.left(at(90)), Duration::from_secs(120));
        // A step that overruns stands still.
        assert_eq!(state.share(at(150)), 1.0);
        assert_eq!(state.share(at(1000)), 1.0);
    }

    #[test]
    fn without_steps_the_time_itself_is_the_progress() {
        let state = state(100);
        assert_eq!(state.left(at(30)), Duration::from_secs(70));
        assert!((state.share(at(30)) - 0.3).abs() < 1e-9);
        assert_eq!(state.left(at(200)), Duration::ZERO);
    }

    #[test]
    fn nobody_is_told_where_nobody_listens() {
        let progress = Progress::silent();
        progress.step("one", Duration::from_secs(1));
        progress.message("two");
        progress.finish();
        assert_eq!(spoken(Duration::from_secs(61)), "1 min 01 s");
        assert_eq!(spoken(Duration::from_millis(400)), "0 s");
    }
}
