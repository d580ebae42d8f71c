//! Requests that wait for room at a node: who is told what becomes of them.
//!
//! The picker keeps numbers, in its order; here each number has the task that waits for it. The
//! worker asks the picker after each request that ends or begins to wait, when time is up for
//! somebody, and when it is told of room that another worker left ([`Shared::room`]).
//!
//! [`Shared::room`]: crate::Shared::room

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tidegate_core::admission::RejectReason;
use tidegate_core::picker::{Decision, Ticket, WaitId};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::SiteId;
use tokio::sync::{Notify, oneshot};

use crate::reason::Reason;
use crate::worker::Worker;

/// Shortest time between two looks that nothing but a clock asks for.
const LOOK_MIN: Duration = Duration::from_millis(1);

/// What becomes of one that waited.
type Told = Result<Ticket, RejectReason>;

/// See the module.
#[derive(Default)]
pub(crate) struct Waiters {
    last: Cell<u64>,
    told: RefCell<HashMap<WaitId, oneshot::Sender<Told>>>,
    /// Told when somebody begins to wait.
    some: Notify,
}

/// A request that waits. Dropping it takes it out of the queue.
pub(crate) struct Waiting {
    worker: Rc<Worker>,
    site: SiteId,
    id: WaitId,
    since: Timestamp,
    told: oneshot::Receiver<Told>,
}

impl Waiters {
    /// A number for a request, should it have to wait.
    pub(crate) fn number(&self) -> WaitId {
        self.last.set(self.last.get() + 1);
        WaitId(self.last.get())
    }

    fn is_empty(&self) -> bool {
        self.told.borrow().is_empty()
    }
}

impl Waiting {
    /// The request of this number waits from now on.
    pub(crate) fn begin(worker: &Rc<Worker>, site: SiteId, id: WaitId) -> Self {
        let (sender, told) = oneshot::channel();
        let waiters = &worker.waiters;
        waiters.told.borrow_mut().insert(id, sender);
        waiters.some.notify_one();
        if let Some(stats) = worker.stats().site(site) {
            stats.queued.add(1);
        }
        Self {
            worker: Rc::clone(worker),
            site,
            id,
            since: worker.now(),
            told,
        }
    }

    /// Waits until there is room, or no sense in waiting.
    pub(crate) async fn ended(mut self) -> Result<Ticket, Reason> {
        match (&mut self.told).await {
            Ok(Ok(ticket)) => Ok(ticket),
            Ok(Err(reason)) => Err(reason.into()),
            // The worker is gone, and with it everybody who could be told.
            Err(_) => Err(Reason::Drained),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(stats) = self.worker.stats().site(self.site) {
            let waited = self.worker.now().since(self.since);
            stats.queueing.record(waited.as_micros() as u64);
        }
        let left = self.worker.waiters.told.borrow_mut().remove(&self.id);
        if left.is_some() {
            let mut picker = self.worker.picker.borrow_mut();
            picker.handle_left(self.site, self.id);
        }
    }
}

/// Tells whoever can be told. A ticket for somebody who has just left is for the next one.
pub(crate) fn serve(worker: &Worker) {
    if worker.waiters.is_empty() {
        return;
    }
    loop {
        let told = worker.picker.borrow_mut().poll_waiting(worker.now());
        let Some((id, decision)) = told else { return };
        let sender = worker.waiters.told.borrow_mut().remove(&id);
        let told = match decision {
            Decision::Forward(ticket) => Ok(ticket),
            Decision::Reject(reason) => Err(reason),
            Decision::Wait => continue,
        };
        if let Some(sender) = sender {
            // What is not taken comes back, and is dropped.
            drop(sender.send(told));
        }
    }
}

/// Looks after those who wait; for ever.
pub(crate) async fn look(worker: Rc<Worker>) {
    loop {
        let somebody_waits = !worker.waiters.is_empty();
        tokio::select! {
            () = worker.waiters.some.notified() => {}
            () = worker.room(), if somebody_waits => {}
            () = until_due(&worker), if somebody_waits => {}
        }
        worker.refresh();
        serve(&worker);
    }
}

/// A product timer, not a wait for something else to be ready: a deadline makes no sound.
async fn until_due(worker: &Worker) {
    let due = worker.picker.borrow().due();
    match due {
        Some(due) => tokio::time::sleep(due.since(worker.now()).max(LOOK_MIN)).await,
        None => std::future::pending().await,
    }
}
