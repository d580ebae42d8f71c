//! Real-time priority for the calling thread, or the reason why not; and the opposite.
//!
//! Under 32 hogs a responder or reader at normal priority waits milliseconds for its turn; at
//! SCHED_FIFO it waits some tens of microseconds. It is worth having wherever it is permitted,
//! and never required.

use std::io;

use crate::privilege::{self, CapabilitySet};

/// Priority of threads that answer or read: above anything that is merely greedy, below the
/// kernel's own threads (50 and more).
pub const PRIORITY: u8 = 10;

/// Why a thread stays at normal priority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RealtimeRefused {
    /// It was not asked for.
    #[error("not asked for")]
    Unwanted,
    /// No privilege.
    #[error(
        "not permitted: needs CAP_SYS_NICE or RLIMIT_RTPRIO of at least {priority} (now {limit})"
    )]
    Privilege {
        /// What was asked for.
        priority: u8,
        /// What the limit allows.
        limit: u64,
    },
    /// The privilege is there, but the control group has no real-time budget.
    #[error("not permitted: the cpu control group has no real-time budget (cpu.rt_runtime_us)")]
    Budget,
    /// Something else.
    #[error("the system refused: {0}")]
    Other(String),
}

/// Puts the calling thread under SCHED_FIFO at this priority, 1 to 99. Threads and processes
/// that it starts later are at normal priority again.
pub fn try_fifo(priority: u8) -> Result<(), RealtimeRefused> {
    let parameters = libc::sched_param {
        sched_priority: i32::from(priority),
    };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to a live sched_param, which the call only reads; pid 0 is the
    // calling thread.
    let refused = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } != 0;
    if !refused {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EPERM) {
        return Err(RealtimeRefused::Other(error.to_string()));
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Rtprio);
    // No limit at all is given as none.
    let limit = limit.current.unwrap_or(u64::MAX);
    if limit >= u64::from(priority) || may_nice() {
        return Err(RealtimeRefused::Budget);
    }
    Err(RealtimeRefused::Privilege { priority, limit })
}

/// Puts the calling thread under SCHED_IDLE: it runs while no other task in its control group wants
/// to.
///
/// # Errors
/// If the system refuses.
pub fn try_idle() -> io::Result<()> {
    try_without_priority(libc::SCHED_IDLE)
}

/// Puts the calling thread at normal priority.
///
/// # Errors
/// If the system refuses.
pub fn try_normal() -> io::Result<()> {
    try_without_priority(libc::SCHED_OTHER)
}

fn try_without_priority(policy: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live sched_param, which the call only reads; pid 0 is the
    // calling thread.
    let refused = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } != 0;
    if refused {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The same as [`try_fifo`] at [`PRIORITY`] for a thread of ours, if it is wanted.
pub(crate) fn ask(wanted: bool) -> Result<(), RealtimeRefused> {
    if wanted {
        try_fifo(PRIORITY)
    } else {
        Err(RealtimeRefused::Unwanted)
    }
}

/// Sets up a thread of ours that speaks to the network: real-time priority if it is wanted, and then no capability but
/// these, which it needs later.
///
/// # Errors
/// If the system keeps the capabilities where they are.
pub(crate) fn ask_and_settle(
    wanted: bool,
    kept: CapabilitySet,
) -> io::Result<Result<(), RealtimeRefused>> {
    let realtime = ask(wanted);
    privilege::keep(kept)?;
    Ok(realtime)
}

/// Whether this thread holds CAP_SYS_NICE.
fn may_nice() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_real_time_afterwards_or_the_reason_is_said() {
        // A thread of its own: the priority must not stay with the test runner's.
        let ended = std::thread::spawn(|| {
            let tried = try_fifo(PRIORITY);
            // SAFETY: takes no pointer; pid 0 is the calling thread.
            let policy = unsafe { libc::sched_getscheduler(0) };
            (tried, policy & !libc::SCHED_RESET_ON_FORK)
        });
        match ended.join().unwrap() {
            (Ok(()), policy) => assert_eq!(policy, libc::SCHED_FIFO),
            (Err(why), policy) => {
                println!("SKIPPED real-time priority: {why}");
                assert_eq!(policy, libc::SCHED_OTHER);
            }
        }
    }

    #[test]
    fn a_thread_can_give_way_to_all_others() {
        let ended = std::thread::spawn(|| {
            try_idle().unwrap();
            // SAFETY: takes no pointer; pid 0 is the calling thread.
            unsafe { libc::sched_getscheduler(0) }
        });
        assert_eq!(ended.join().unwrap(), libc::SCHED_IDLE);
    }

    #[test]
    fn a_priority_that_does_not_exist_is_refused() {
        assert!(matches!(try_fifo(100), Err(RealtimeRefused::Other(_))));
    }
}
