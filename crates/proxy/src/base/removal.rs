//! Whether a listener has been taken out, for what accepts there and for its connections.

use std::cell::Cell;

use tokio::sync::Notify;

/// See the module.
#[derive(Default)]
pub(crate) struct Removal {
    begun: Cell<bool>,
    wake_waiting: Notify,
}

impl Removal {
    /// The listener takes in nothing new from now on.
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
