//! Wakes the control plane from a sleep that is longer than what happens can wait.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// What wakes a thread that rests until something happens. While it is awake this costs a look.
#[derive(Default)]
pub struct WakeUp {
    /// How deep it sleeps, as a [`Sleep`].
    sleep: AtomicU8,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// How deep a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Sleep {
    /// A request that waits or fails wakes it.
    Light = 1,
    /// Each request does.
    Deep = 2,
}

impl WakeUp {
    /// This wakes it from now on; the first one to say how is heard.
    pub fn set(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.wake.set(Box::new(wake)).ok();
    }

    /// The thread is about to sleep, and wants to be woken once.
    pub fn arm(&self, sleep: Sleep) {
        self.sleep.store(sleep as u8, Ordering::SeqCst);
    }

    /// A request waits, or has failed.
    pub(crate) fn on_trouble(&self) {
        self.wake_from(Sleep::Light);
    }

    /// A request has come.
    #[inline]
    pub(crate) fn on_request(&self) {
        self.wake_from(Sleep::Deep);
    }

    #[inline]
    fn wake_from(&self, least: Sleep) {
        if self.sleep.load(Ordering::Relaxed) >= least as u8 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.sleep.swap(0, Ordering::SeqCst) > 0
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }
}

impl fmt::Debug for WakeUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeUp").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn a_thread_is_woken_once_by_what_its_sleep_lets_through() {
        let wake_up = WakeUp::default();
        // Nothing is woken before something says how.
        wake_up.arm(Sleep::Deep);
        wake_up.on_request();
        let woken = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&woken);
        wake_up.set(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let woken = || woken.load(Ordering::Relaxed);
        wake_up.on_trouble();
        assert_eq!(woken(), 0, "it is awake");
        wake_up.arm(Sleep::Light);
        wake_up.on_request();
        assert_eq!(woken(), 0, "a request alone does not wake it");
        wake_up.on_trouble();
        wake_up.on_trouble();
        assert_eq!(woken(), 1);
        wake_up.arm(Sleep::Deep);
        wake_up.on_request();
        wake_up.on_request();
        assert_eq!(woken(), 2);
        wake_up.arm(Sleep::Deep);
        wake_up.on_trouble();
        assert_eq!(woken(), 3);
    }
}
