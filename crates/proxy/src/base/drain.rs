//! Whether a worker is about to end, for whatever waits for that.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

use tokio::sync::Notify;

use crate::record::reason::Reason;

/// See the module.
pub(crate) struct Drain {
    begun: Cell<bool>,
    wake_waiting: Notify,
    /// Why requests end that are cut off.
    pub(crate) cut_for: Cell<Reason>,
    /// Where another process accepts from now on.
    taken_over: RefCell<Vec<SocketAddr>>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            begun: Cell::new(false),
            wake_waiting: Notify::new(),
            cut_for: Cell::new(Reason::Drained),
            taken_over: RefCell::default(),
        }
    }
}

impl Drain {
    /// Nothing new is taken in from now on.
    pub(crate) fn begin(&self) {
        self.begun.set(true);
        self.wake_waiting.notify_waiters();
    }

    /// Another process has the sockets at these addresses as well.
    pub(crate) fn leave(&self, taken_over: &[SocketAddr]) {
        self.taken_over.replace(taken_over.to_vec());
    }

    /// Whether another process accepts at this address.
    pub(crate) fn is_taken_over(&self, address: SocketAddr) -> bool {
        self.taken_over.borrow().contains(&address)
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
