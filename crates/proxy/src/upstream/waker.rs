//! The waker of an upstream connection. Such a connection is no task of its own: its owner
//! polls it. The gate gives it one waker for life, and passes wake-ups on to its present owner.
//!
//! While the owner itself polls, wake-ups are only noted: they would schedule the very task
//! that is running. An idle connection has no owner, and its wake-ups go nowhere; the pool's
//! sweep looks at it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};

/// Polls in a row that a connection may ask for by waking itself.
const TURNS_MAX: u32 = 4;

/// See the module. All of it happens on one thread; atomics and mutex are what the type asks for.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    quiet: AtomicBool,
    woken: AtomicBool,
    owner: Mutex<Option<Waker>>,
}

impl Gate {
    /// Wake-ups go to `owner` from now on; nowhere, if there is none.
    pub(crate) fn set_owner(&self, owner: Option<Waker>) {
        let former = std::mem::replace(
            &mut *self.owner.lock().unwrap_or_else(PoisonError::into_inner),
            owner,
        );
        drop(former);
    }

    /// Runs `work` with wake-ups noted only.
    pub(crate) fn quietly<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.hush();
        let done = work();
        self.unhush(before);
        done
    }

    /// Wake-ups are noted only from now on. Says how it was before, for [`Gate::unhush`]: what is large goes to work without
    /// a closure that it would have to move into.
    pub(crate) fn hush(&self) -> bool {
        self.quiet.swap_relaxed(true)
    }

    /// It is as before.
    pub(crate) fn unhush(&self, before: bool) {
        self.quiet.store(before, Ordering::Relaxed);
    }

    /// Whether a wake-up was noted since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap_relaxed(false)
    }

    /// Polls what wakes itself through this gate for as long as it does, but not for ever: after
    /// [`TURNS_MAX`] polls the owner is woken instead, so that others have their turn.
    pub(crate) fn poll_in_turns<T>(&self, mut poll: impl FnMut() -> Poll<T>) -> Poll<T> {
        // What woke it before, a request that was handed over, is served by the first poll.
        self.take_woken();
        for _ in 0..TURNS_MAX {
            match self.quietly(&mut poll) {
                Poll::Pending if self.take_woken() => {}
                polled @ (Poll::Ready(_) | Poll::Pending) => return polled,
            }
        }
        self.wake_owner();
        Poll::Pending
    }

    /// Wakes the owner.
    pub(crate) fn wake_owner(&self) {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = &*owner {
            owner.wake_by_ref();
        }
    }
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.quiet.load(Ordering::Relaxed) {
            self.woken.store(true, Ordering::Relaxed);
        } else {
            self.wake_owner();
        }
    }
}

/// A swap that need not lock the bus: there is only one thread.
trait SwapRelaxed {
    fn swap_relaxed(&self, value: bool) -> bool;
}

impl SwapRelaxed for AtomicBool {
    fn swap_relaxed(&self, value: bool) -> bool {
        let before = self.load(Ordering::Relaxed);
        self.store(value, Ordering::Relaxed);
        before
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[derive(Default)]
    struct Owner(AtomicU32);

    impl Wake for Owner {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wake_ups_go_to_the_owner_unless_it_is_polling() {
        let gate = Arc::new(Gate::default());
        let waker = Waker::from(Arc::clone(&gate));
        let owner = Arc::new(Owner::default());
        waker.wake_by_ref();
        gate.set_owner(Some(Waker::from(Arc::clone(&owner))));
        waker.wake_by_ref();
        assert_eq!(owner.0.load(Ordering::Relaxed), 1);
        gate.quietly(|| waker.wake_by_ref());
        assert_eq!(owner.0.load(Ordering::Relaxed), 1);
        assert!(gate.take_woken());
        assert!(!gate.take_woken());
        gate.set_owner(None);
        waker.wake();
        assert_eq!(owner.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_wakes_itself_is_polled_so_often_and_then_leaves_others_their_turn() {
        // How often it wakes itself, how often it is polled, and whether its owner is to poll it again.
        for (wakes, polls, again) in [
            (0, 1, 0),
            (1, 2, 0),
            (TURNS_MAX - 1, TURNS_MAX, 0),
            (TURNS_MAX, TURNS_MAX, 1),
            (u32::MAX, TURNS_MAX, 1),
        ] {
            let gate = Arc::new(Gate::default());
            let waker = Waker::from(Arc::clone(&gate));
            let owner = Arc::new(Owner::default());
            gate.set_owner(Some(Waker::from(Arc::clone(&owner))));
            // From before it is polled: no reason for a second poll.
            gate.quietly(|| waker.wake_by_ref());
            let mut polled = 0;
            let poll = || {
                polled += 1;
                if polled <= wakes {
                    waker.wake_by_ref();
                }
                Poll::<()>::Pending
            };
            assert!(gate.poll_in_turns(poll).is_pending());
            assert_eq!((polled, owner.0.load(Ordering::Relaxed)), (polls, again));
            let mut polled = 0;
            let poll = || {
                polled += 1;
                waker.wake_by_ref();
                Poll::Ready(polled)
            };
            assert_eq!(gate.poll_in_turns(poll), Poll::Ready(1));
        }
    }
}
