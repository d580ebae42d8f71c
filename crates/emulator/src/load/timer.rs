//! A timer of microseconds for an asynchronous task: tokio's own wheel turns in milliseconds,
//! which would make every second request late.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;
use tokio::io::unix::AsyncFd;

const SECOND_NS: u64 = 1_000_000_000;

/// Wakes its task at points of CLOCK_MONOTONIC.
#[derive(Debug)]
pub struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    /// A timer of the runtime around the caller.
    ///
    /// # Errors
    /// If the system gives none.
    #[expect(
        deprecated,
        reason = "the replacement is unsafe, for types that may change their descriptor; OwnedFd does not"
    )]
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self(AsyncFd::new(timer)?))
    }

    /// Returns at `deadline`, or at once if it has passed.
    ///
    /// # Errors
    /// If the system does not wake it.
    pub async fn sleep_until(&self, deadline: Timestamp) -> io::Result<()> {
        if clock::now() >= deadline {
            return Ok(());
        }
        let nanos = deadline.nanos();
        let wanted = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: (nanos / SECOND_NS) as i64,
                tv_nsec: (nanos % SECOND_NS) as i64,
            },
        };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &wanted)?;
        loop {
            let mut ready = self.0.readable().await?;
            let expirations =
                ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut [0; 8])?));
            match expirations {
                Ok(read) => return read.map(drop),
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_sleep_ends_after_its_deadline_and_the_timer_can_be_used_again() {
        let timer = Timer::new().unwrap();
        for _ in 0..3 {
            let deadline = clock::now() + Duration::from_micros(300);
            timer.sleep_until(deadline).await.unwrap();
            assert!(clock::now() >= deadline);
        }
        timer.sleep_until(Timestamp::ZERO).await.unwrap();
    }
}
