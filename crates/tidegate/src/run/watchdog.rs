//! The service manager's watchdog (`sd_watchdog_enabled(3)`): a unit with `WatchdogSec=` has a front-end killed and
//! started anew that says nothing for so long.
//!
//! Four times in that time it is looked whether each worker's clock and the director have gone on since the last look, and
//! only then a word goes out: one worker that hangs, while all others serve, keeps the word back. A worker's clock is served by
//! the loop that serves its connections, so it stands still with them. The look itself needs the thread that serves
//! operators. While a front-end drains, its workers end one by one, and only that last part is left: `[timeouts] drain` and
//! `TimeoutStopSec=` bound a drain.
//!
//! | variable | what |
//! |---|---|
//! | `WATCHDOG_USEC` | the time, microseconds; without it, or with what is no number above 0, there is no watchdog |
//! | `WATCHDOG_PID` | the process that is watched; without it this one. A process that took over has the variable of the first one, and is watched in its place |

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::units::format_duration;
use tokio::time::MissedTickBehavior;

use crate::admin::plane::Plane;
use crate::output::Output;
use crate::upgrade::notify;

/// Looks in the time of the watchdog.
const LOOKS: u32 = 4;

/// Begins to send words, if the service manager waits for them.
pub(super) fn begin(plane: &Arc<Plane>, is_successor: bool, output: Output) {
    let variable = |name| std::env::var(name).ok();
    let watched = watched(
        variable("WATCHDOG_USEC").as_deref(),
        variable("WATCHDOG_PID").as_deref(),
        std::process::id(),
        is_successor,
    );
    if let Some(time) = watched {
        tokio::spawn(run(Arc::clone(plane), time / LOOKS, output));
    }
}

/// How long this process may say nothing, if it is watched.
fn watched(
    micros: Option<&str>,
    process: Option<&str>,
    own: u32,
    is_successor: bool,
) -> Option<Duration> {
    let micros = micros?.parse().ok().filter(|micros| *micros > 0)?;
    let is_meant = process.is_none_or(|it| it.parse() == Ok(own));
    (is_meant || is_successor).then(|| Duration::from_micros(micros))
}

async fn run(plane: Arc<Plane>, every: Duration, output: Output) {
    let mut looks = tokio::time::interval(every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first one comes at once.
    looks.tick().await;
    let mut before = Progress::of(&plane);
    plane.shared.news.notify_waiters();
    let mut stood_still = None;
    loop {
        looks.tick().await;
        let now = Progress::of(&plane);
        let still = match plane.is_draining() || plane.is_succeeded.load(Ordering::Relaxed) {
            true => None,
            false => now.stands_still_since(&before),
        };
        match &still {
            None => notify::alive(),
            // Each is named once, also where one follows another.
            Some(what) if still != stood_still => {
                let text = format!(
                    "{what} has stood still for {}: the service manager's watchdog hears nothing",
                    format_duration(every)
                );
                output.event("stands_still", &text);
            }
            Some(_) => {}
        }
        stood_still = still;
        before = now;
        // A worker that rests goes on before the next look.
        plane.shared.news.notify_waiters();
    }
}

/// How far the clocks of workers and director have come.
#[derive(Clone, Debug)]
struct Progress {
    workers: Vec<u64>,
    director: u64,
}

impl Progress {
    fn of(plane: &Plane) -> Self {
        Self {
            workers: plane.shared.stats.ticks(),
            director: plane.driver.ticks.load(Ordering::Relaxed),
        }
    }

    /// What has not gone on, if anything has not.
    fn stands_still_since(&self, before: &Self) -> Option<String> {
        let mut pairs = self.workers.iter().zip(&before.workers);
        match pairs.position(|(now, before)| now <= before) {
            Some(worker) => Some(format!("worker {worker}")),
            None => (self.director <= before.director).then(|| "the director".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_watched_that_the_service_manager_means() {
        let second = Some(Duration::from_secs(1));
        let micros = Some("1000000");
        assert_eq!(watched(micros, None, 7, false), second);
        assert_eq!(watched(micros, Some("7"), 7, false), second);
        assert_eq!(watched(micros, Some("7"), 9, false), None);
        assert_eq!(watched(micros, Some("7"), 9, true), second);
        for nonsense in [None, Some("0"), Some("-1"), Some("1s"), Some("")] {
            assert_eq!(watched(nonsense, None, 7, false), None, "{nonsense:?}");
        }
    }

    #[test]
    fn one_clock_that_stands_still_is_named() {
        let at = |workers: [u64; 2], director| Progress {
            workers: workers.into(),
            director,
        };
        let before = at([5, 9], 100);
        let still = |now: Progress| now.stands_still_since(&before);
        assert_eq!(still(at([6, 10], 101)), None);
        assert_eq!(still(at([6, 9], 101)), Some("worker 1".into()));
        assert_eq!(still(at([5, 10], 100)), Some("worker 0".into()));
        assert_eq!(still(at([6, 10], 100)), Some("the director".into()));
    }
}
