//! The clocks of the process: CLOCK_MONOTONIC, which is never set and every thread shares, and the time of day for
//! what is shown or outlives the process. `clippy.toml` bans reading either elsewhere.
//!
//! Records of processes on one host are on this clock too, so that a region in shared memory
//! needs no conversion (unless its owner lives in a time namespace of its own).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;
use tidegate_core::time::Timestamp;

/// Nanoseconds of one second.
const SECOND_NS: u64 = 1_000_000_000;

/// Now.
pub fn now() -> Timestamp {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    // The kernel never gives a negative monotonic time.
    Timestamp::from_nanos(now.tv_sec as u64 * SECOND_NS + now.tv_nsec as u64)
}

/// The time of day, since 1970; zero before that.
#[expect(clippy::disallowed_methods, reason = "this is the clock's home")]
pub fn unix() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Sleeps until `deadline`. Absolute, so that the time spent before the call and a signal in
/// between add no drift.
pub fn sleep_until(deadline: Timestamp) {
    let nanos = deadline.nanos();
    let request = Timespec {
        tv_sec: (nanos / SECOND_NS) as i64,
        tv_nsec: (nanos % SECOND_NS) as i64,
    };
    while clock_nanosleep_absolute(ClockId::Monotonic, &request) == Err(Errno::INTR) {}
}

/// CPU time that the calling thread has used so far.
pub fn thread_time() -> Duration {
    let used = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

/// CPU time that a process has used so far, all of its threads and what runs just now included;
/// nothing if it is gone.
pub fn process_time(process: u32) -> Option<Duration> {
    /// The kernel's name of a process's clock: its number inverted, and which clock, here that
    /// of the scheduler.
    const SCHEDULER: i32 = 2;
    let process = i32::try_from(process).ok()?;
    let mut used = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a number that the kernel looks up, and a live structure that it fills in.
    let done = unsafe { libc::clock_gettime((!process << 3) | SCHEDULER, &raw mut used) };
    (done == 0).then(|| Duration::new(used.tv_sec as u64, used.tv_nsec as u32))
}

/// CPU time that this process has used so far.
pub fn process_cpu() -> Duration {
    let used = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

/// CPU time of the calling thread outside the kernel and in it.
pub(crate) fn thread_cpu() -> (Duration, Duration) {
    // SAFETY: a structure of integers, for which all zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live rusage, which the call fills in. It fails only for a
    // wrong `who` or pointer; then the zeros stay.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    (duration(usage.ru_utime), duration(usage.ru_stime))
}

/// A duration as the kernel takes it.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_uses_time_and_one_that_sleeps_does_not() {
        let before = thread_time();
        while thread_time() == before {}
        let (used, start) = (thread_time(), now());
        sleep_until(start + Duration::from_millis(5));
        assert!(thread_time() - used < now().since(start));
    }

    #[test]
    fn the_clock_runs_and_a_sleep_ends_after_its_deadline() {
        let start = now();
        let deadline = start + Duration::from_millis(2);
        sleep_until(deadline);
        assert!(now() >= deadline);
        // A deadline in the past is no sleep at all; nothing to assert but that it returns.
        sleep_until(start);
    }
}
