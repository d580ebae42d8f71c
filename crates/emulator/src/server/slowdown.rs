//! A server that becomes slow by itself: `GET /slow?times=3` makes each request that comes from then
//! on cost three times the CPU time that it asks for, and `times=1` undoes it.
//!
//! As a server does whose cache was emptied, or whose data grew. Nothing announces it: the CPUs and the
//! quota stay as they are.

use std::sync::atomic::{AtomicU32, Ordering};

use http::StatusCode;

use super::http::{Answer, text};
use super::work::Work;

/// Most that `times` may be.
const TIMES_MAX: u32 = 1000;

/// See the module.
#[derive(Debug)]
pub struct Slowdown(AtomicU32);

impl Default for Slowdown {
    fn default() -> Self {
        Self(AtomicU32::new(1))
    }
}

impl Slowdown {
    /// Does what the part of a URL behind the question mark says.
    pub fn set(&self, query: &str) -> Answer {
        let times = query.strip_prefix("times=").and_then(|it| it.parse().ok());
        match times.filter(|times| (1..=TIMES_MAX).contains(times)) {
            Some(times) => {
                self.0.store(times, Ordering::Relaxed);
                text(StatusCode::OK, "fine\n")
            }
            None => text(
                StatusCode::BAD_REQUEST,
                &format!("`{query}`: times=N is needed, N from 1 to {TIMES_MAX}\n"),
            ),
        }
    }

    /// Makes a request as dear as requests are now.
    pub fn apply(&self, work: &mut Work) {
        work.cpu = work.cpu.saturating_mul(self.0.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn requests_cost_so_many_times_as_much_until_it_is_undone() {
        let slowdown = Slowdown::default();
        let cost = || {
            let mut work = Work {
                cpu: Duration::from_millis(4),
                ..Work::default()
            };
            slowdown.apply(&mut work);
            work.cpu.as_millis()
        };
        assert_eq!(cost(), 4);
        assert_eq!(slowdown.set("times=3").status(), StatusCode::OK);
        assert_eq!(cost(), 12);
        for wrong in ["", "times=", "times=0", "times=1001", "times=-1", "3"] {
            let answer = slowdown.set(wrong);
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{wrong}");
        }
        assert_eq!(cost(), 12);
        slowdown.set("times=1");
        assert_eq!(cost(), 4);
    }
}
