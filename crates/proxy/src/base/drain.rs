//! Whether a worker is about to end, for whatever waits for that.

use std::cell::Cell;

use tokio::sync::Notify;

use crate::record::reason::Reason;

/// See the module.
pub(crate) struct Drain {
    begun: Cell<bool>,
    wake_waiting: Notify,
    /// Why requests end that are cut off.
    pub(crate) cut_for: Cell<Reason>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            begun: Cell::new(false),
            wake_waiting: Notify::new(),
            cut_for: Cell::new(Reason::Drained),
        }
    }
}

impl Drain {
    /// Nothing new is taken in from now on.
    pub(crate) fn begin(&self) {
        self.begun.set(true);
        self.wake_waiting.notify_waiters();
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.get()
    }

    /// Waits until it has begun.
    pub(crate) async fn begun(&self) {
        while !self.begun.get() {
            self.wake_waiting.notified().await;
        }
    }
}
