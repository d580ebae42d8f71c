//! Requests that wait for room at a node, and what becomes of them.
//!
//! The picker keeps numbers, in its order; here each number has the task that waits for it. The
//! worker asks the picker after each request that ends or begins to wait, when time is up for
//! one of them, and when it is notified of room that another worker left: by that worker, where the turn is one of this
//! worker's requests ([`Heads`]), else by the director ([`Shared::room_freed`]), which [`Shared::wake_up`] wakes for that.
//!
//! [`Shared::wake_up`]: crate::Shared::wake_up
//! [`Shared::room_freed`]: crate::Shared::room_freed

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::admission::RejectReason;
use tidegate_core::picker::{Decision, Heads, Ticket, WaitId};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::SiteId;
use tokio::sync::{Notify, oneshot};

use crate::base::{WakeUp, WorkerBase};
use crate::record::reason::Reason;

/// Shortest time between two looks that nothing but a clock asks for.
const LOOK_MIN: Duration = Duration::from_millis(1);

/// What becomes of one that waited.
type QueueResult = Result<Ticket, RejectReason>;

/// What the queues of all workers have in common.
#[derive(Debug)]
pub(crate) struct SharedQueues {
    pub(crate) heads: Arc<Heads>,
    /// By worker: wakes its queue.
    wake: Box<[Notify]>,
}

impl SharedQueues {
    /// For so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            heads: Arc::new(Heads::new(workers)),
            wake: (0..workers).map(|_| Notify::new()).collect(),
        }
    }
}

/// See the module.
pub(crate) struct Queue {
    base: Rc<WorkerBase>,
    shared: Arc<SharedQueues>,
    /// The worker's number.
    worker: usize,
    /// Wakes it when there may be room that another worker left.
    room_freed: Arc<Notify>,
    /// Wakes what sees such room.
    wake_up: Arc<WakeUp>,
    last: Cell<u64>,
    /// To the tasks of requests that wait.
    senders: RefCell<HashMap<WaitId, oneshot::Sender<QueueResult>>>,
}

/// A request that waits. Dropping it takes it out of the queue.
pub(crate) struct InQueue {
    queue: Rc<Queue>,
    site: SiteId,
    id: WaitId,
    since: Timestamp,
    result: oneshot::Receiver<QueueResult>,
}

impl Queue {
    pub(crate) fn new(
        base: Rc<WorkerBase>,
        shared: Arc<SharedQueues>,
        worker: usize,
        room_freed: Arc<Notify>,
        wake_up: Arc<WakeUp>,
    ) -> Rc<Self> {
        Rc::new(Self {
            base,
            shared,
            worker,
            room_freed,
            wake_up,
            last: Cell::new(0),
            senders: RefCell::default(),
        })
    }

    /// Wakes the timers, here and from other workers.
    fn wake(&self) -> &Notify {
        &self.shared.wake[self.worker]
    }

    /// A number for a request, should it have to wait.
    pub(crate) fn number(&self) -> WaitId {
        self.last.set(self.last.get() + 1);
        WaitId(self.last.get())
    }

    /// A request has come: what the control plane knows may be of before.
    #[inline]
    pub(crate) fn on_request(&self) {
        self.wake_up.on_request();
    }

    /// A request has failed at its node: the next one should know.
    #[cold]
    pub(crate) fn on_failure(&self) {
        self.wake_up.on_trouble();
    }

    /// The request of this number waits from now on.
    pub(crate) fn wait(self: &Rc<Self>, site: SiteId, id: WaitId) -> InQueue {
        let (sender, result) = oneshot::channel();
        self.senders.borrow_mut().insert(id, sender);
        self.wake().notify_one();
        self.wake_up.on_trouble();
        if let Some(stats) = self.base.stats().site(site) {
            stats.queued.add(1);
        }
        InQueue {
            queue: Rc::clone(self),
            site,
            id,
            since: self.base.now(),
            result,
        }
    }

    /// A request of the site has ended, or rests: those that wait may have its room, here or in another worker.
    #[inline]
    pub(crate) fn handle_room(&self, site: Option<SiteId>) {
        if self.is_empty() && !self.shared.heads.any() {
            return;
        }
        if let Some(site) = site {
            self.base.cluster.picker.borrow_mut().handle_room(site);
        }
        self.serve_waiters();
    }

    /// Decides on all that can be decided, and wakes other workers whose turn it is.
    pub(crate) fn serve_waiters(&self) {
        if !self.is_empty() {
            self.decide();
        }
        self.wake_elders();
    }

    /// Wakes other workers for which there is room.
    fn wake_elders(&self) {
        if !self.shared.heads.any() {
            return;
        }
        let now = self.base.now();
        let mut picker = self.base.cluster.picker.borrow_mut();
        while let Some(worker) = picker.poll_elder(now) {
            if let Some(wake) = self.shared.wake.get(worker) {
                wake.notify_one();
            }
        }
    }

    /// A ticket for a request that has just left is for the next one.
    fn decide(&self) {
        loop {
            let mut picker = self.base.cluster.picker.borrow_mut();
            let decided = picker.poll_waiting(self.base.now());
            drop(picker);
            let Some((id, decision)) = decided else {
                return;
            };
            let sender = self.senders.borrow_mut().remove(&id);
            let result = match decision {
                Decision::Forward(ticket) => Ok(ticket),
                Decision::Reject(reason) => Err(reason),
                Decision::Wait => continue,
            };
            if let Some(sender) = sender {
                // What is not taken comes back, and is dropped.
                drop(sender.send(result));
            }
        }
    }

    /// Looks after the requests that wait; for ever.
    pub(crate) async fn run_timers(self: Rc<Self>) {
        loop {
            let is_waited_in = !self.is_empty();
            tokio::select! {
                () = self.wake().notified() => {}
                () = self.room_freed.notified(), if is_waited_in => {}
                () = self.base.room_made.notified() => {}
                () = self.until_due(), if is_waited_in => {}
            }
            self.base.cluster.refresh();
            self.serve_waiters();
        }
    }

    /// A product timer, not a wait for something else to be ready: a deadline makes no sound.
    async fn until_due(&self) {
        let due = self.base.cluster.picker.borrow().due();
        match due {
            Some(due) => tokio::time::sleep(due.since(self.base.now()).max(LOOK_MIN)).await,
            None => std::future::pending().await,
        }
    }

    fn is_empty(&self) -> bool {
        self.senders.borrow().is_empty()
    }
}

impl InQueue {
    /// Waits until there is room, or no sense in waiting.
    pub(crate) async fn ended(mut self) -> Result<Ticket, Reason> {
        match (&mut self.result).await {
            Ok(Ok(ticket)) => Ok(ticket),
            Ok(Err(reason)) => Err(reason.into()),
            // The worker is gone, and with it all that waited.
            Err(_) => Err(Reason::Drained),
        }
    }
}

impl Drop for InQueue {
    fn drop(&mut self) {
        let base = &self.queue.base;
        if let Some(stats) = base.stats().site(self.site) {
            let waited = base.now().since(self.since);
            stats.queueing.record(waited.as_micros() as u64);
        }
        // What it was given and has not taken is for the next one.
        if let Ok(Ok(ticket)) = self.result.try_recv() {
            drop(ticket);
            self.queue.handle_room(Some(self.site));
        }
        let left = self.queue.senders.borrow_mut().remove(&self.id);
        if left.is_some() {
            let mut picker = base.cluster.picker.borrow_mut();
            picker.handle_left(self.site, self.id);
            drop(picker);
            self.queue.wake_elders();
        }
    }
}
