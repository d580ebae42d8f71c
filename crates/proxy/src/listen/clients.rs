//! The client connections of a worker, and what it takes to accept more of them.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use tidegate_core::admission::AcceptGate;
use tidegate_core::time::{Timestamp, nanos};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::linger::Lingering;
use crate::base::Removal;
use crate::config::{FIELDS, Limits};
use crate::connection::eviction::{self, Reserve};
use crate::request::Client;
use crate::worker::seats::{Seat, Seats};
use crate::worker::{Worker, head_and_buffer_bytes};

/// How a rest of the worker's clock has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rested {
    /// A connection has come.
    Called,
    /// There is something new to follow.
    News,
    /// The time was over.
    Until(Instant),
}

impl Rested {
    /// When the clock was to go on, if that was known.
    pub(crate) fn due(self) -> Option<Instant> {
        match self {
            Self::Until(due) => Some(due),
            Self::Called | Self::News => None,
        }
    }
}

/// See the module.
pub(crate) struct Clients {
    pub(crate) worker: Rc<Worker>,
    /// Makes connections to clients.
    pub(super) builder: RefCell<Builder>,
    /// The settings that it was made by.
    followed: Cell<u64>,
    pub(super) seats: Arc<Seats>,
    pub(super) lingering: RefCell<Lingering>,
    /// Refused connections that take their answer slowly, in tasks of their own.
    pub(super) refused_slowly: Cell<usize>,
    /// Listeners that were taken out, and at which tick their connections are cut off.
    removed: RefCell<Vec<(Rc<Removal>, u64)>>,
    open: RefCell<Open>,
    /// Those that give way next.
    reserve: Reserve,
    /// Gives back what is free, and whether some of it is new.
    give_back: fn(),
    emptied: Cell<bool>,
    /// Those that have given way and are not closed yet.
    evicted_now: Cell<usize>,
    /// Wakes what waits for the end of the last one.
    wake_idle: Notify,
    gate: RefCell<AcceptGate>,
    /// The worker's clock rests, and what wakes it.
    resting: Cell<bool>,
    wake_clock: Notify,
    /// Wakes the listeners when it accepts again.
    wake_listeners: Notify,
}

/// The connections that are open.
#[derive(Default)]
struct Open {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    count: usize,
}

/// One of them, or a stream of one.
struct Slot {
    client: Rc<Client>,
    /// A stream has none of its own, nor has a connection that has given way.
    seat: Option<Seat>,
}

impl Clients {
    pub(crate) fn new(worker: Rc<Worker>, seats: Arc<Seats>, give_back: fn()) -> Rc<Self> {
        Rc::new(Self {
            builder: RefCell::new(builder(&worker.base.settings.limits())),
            followed: Cell::new(worker.base.settings.version()),
            worker,
            seats,
            lingering: RefCell::default(),
            refused_slowly: Cell::new(0),
            removed: RefCell::default(),
            open: RefCell::default(),
            reserve: Reserve::default(),
            give_back,
            emptied: Cell::new(false),
            evicted_now: Cell::new(0),
            wake_idle: Notify::new(),
            gate: RefCell::default(),
            resting: Cell::new(false),
            wake_clock: Notify::new(),
            wake_listeners: Notify::new(),
        })
    }

    /// The worker takes over what is newer, and connections that are made from now on.
    pub(crate) fn follow(&self) {
        self.worker.follow();
        let settings = &self.worker.base.settings;
        if self.followed.replace(settings.version()) != settings.version() {
            self.builder.replace(builder(&settings.limits()));
        }
    }

    /// Each of them.
    pub(crate) fn for_each(&self, act: impl FnMut(&Client)) {
        let open = self.open.borrow();
        (open.slots.iter().flatten())
            .map(|it| &*it.client)
            .for_each(act);
    }

    /// One has freed its buffers.
    pub(super) fn on_emptied(&self) {
        self.emptied.set(true);
    }

    /// The system has what idle connections have freed.
    pub(crate) fn give_back(&self) {
        if self.emptied.take() {
            (self.give_back)();
        }
    }

    /// Waits until there is none.
    pub(crate) async fn idle(&self) {
        loop {
            let changed = self.wake_idle.notified();
            if self.open.borrow().count == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Refused connections that are still open, and those that have given way.
    pub(super) fn refused_now(&self) -> usize {
        self.lingering.borrow().len() + self.refused_slowly.get() + self.evicted_now.get()
    }

    /// The seat of a connection that gives way to a new one ([`eviction`]), if one does.
    #[cold]
    pub(super) fn evict(&self) -> Option<Seat> {
        let base = &self.worker.base;
        if self.evicted_now.get() >= base.settings.limits().lingering {
            return None;
        }
        let mut open = self.open.borrow_mut();
        let tick = base.tick();
        let rank_at = |place: usize| {
            let slot = open.slots[place].as_ref()?;
            slot.seat.as_ref()?;
            eviction::rank(slot.client.connection.standing(), tick)
        };
        let place = self.reserve.next(tick, open.slots.len(), rank_at)?;
        let slot = open.slots[place].as_mut()?;
        let seat = slot.seat.take()?;
        slot.client.connection.expire();
        self.evicted_now.set(self.evicted_now.get() + 1);
        base.stats().evicted.add(1);
        Some(seat)
    }

    /// Closes the refused connection that lingers longest. False if there is none.
    pub(super) fn evict_lingering(&self) -> bool {
        let mut scratch = self.worker.base.scratch.raw.borrow_mut();
        self.lingering.borrow_mut().evict(&mut scratch)
    }

    /// Whether there is nothing here that the worker's clock must look at.
    pub(crate) fn are_at_rest(&self) -> bool {
        self.open.borrow().count == 0
            && self.refused_now() == 0
            && self.removed.borrow().is_empty()
            && !self.gate.borrow().is_paused()
    }

    /// The clock rests until a connection comes or there is something new to follow, for so long at most.
    pub(crate) async fn rest(&self, limit: Duration) -> Rested {
        let mut news = pin!(self.worker.news.notified());
        news.as_mut().enable();
        // What came before that is followed already, what comes from now on ends the rest.
        self.follow();
        let mut over = pin!(tokio::time::sleep(limit));
        self.resting.set(true);
        let rested = tokio::select! {
            () = self.wake_clock.notified() => Rested::Called,
            () = news => Rested::News,
            () = over.as_mut() => Rested::Until(over.deadline()),
        };
        self.resting.set(false);
        rested
    }

    /// Connections come: it is what time it is, and the clock goes on.
    pub(super) fn on_accept(&self) {
        if self.resting.replace(false) {
            self.worker.base.clock.on_tick();
            self.wake_clock.notify_one();
        }
    }

    /// Waits while the worker does not keep up with what it has.
    pub(super) async fn accepting(&self) {
        while self.gate.borrow().is_paused() {
            self.wake_listeners.notified().await;
        }
    }

    /// A listener is taken out: its connections close behind their next answer, and are cut off at the deadline.
    pub(crate) fn remove(&self, listener: Rc<Removal>) {
        listener.begin();
        let base = &self.worker.base;
        let until = base.due(base.settings.ticks().leaving);
        self.removed.borrow_mut().push((listener, until));
    }

    /// Cuts off connections whose listener was taken out long ago.
    pub(crate) fn cut_removed(&self, tick: u64) {
        let mut removed = self.removed.borrow_mut();
        let due: Vec<_> = removed.extract_if(.., |it| it.1 <= tick).collect();
        drop(removed);
        if due.is_empty() {
            return;
        }
        self.for_each(|client| {
            let listener = &client.connection.listener;
            if due.iter().any(|(it, _)| Rc::ptr_eq(it, listener)) {
                client.connection.cut.set(true);
                client.connection.wake();
            }
        });
    }

    /// The worker's clock looks at them. True if there may be room at a node that was taken before.
    pub(crate) fn on_tick(&self, tick: u64) -> bool {
        let mut room = false;
        self.for_each(|client| room |= client.connection.on_tick(tick));
        room
    }

    /// The worker's clock looks at those that were refused.
    pub(crate) fn linger(&self, tick: u64) {
        let mut scratch = self.worker.base.scratch.raw.borrow_mut();
        self.lingering.borrow_mut().on_tick(tick, &mut scratch);
    }

    /// The clock was served so late: it shows whether the worker keeps up.
    pub(crate) fn watch_lag(&self, lag: Duration, since: Duration, now: Timestamp) {
        let micros = |duration| nanos(duration) / 1000;
        let stats = self.worker.base.stats();
        stats.lag.record(micros(lag));
        let mut gate = self.gate.borrow_mut();
        let before = gate.is_paused();
        gate.on_lag(lag, now);
        if before {
            stats.accept_paused_micros.add(micros(since));
        }
        match (before, gate.is_paused()) {
            (false, true) => stats.accept_pauses.add(1),
            (true, false) => {
                stats.accept_pauses_ended.add(1);
                self.wake_listeners.notify_waiters();
            }
            (false, false) | (true, true) => {}
        }
    }
}

/// A connection's place among the others, or that of a stream of one. Dropping it ends its record.
pub(super) struct Registered {
    clients: Rc<Clients>,
    client: Rc<Client>,
    slot: usize,
    /// It is one of a connection's streams.
    is_stream: bool,
}

impl Registered {
    pub(super) fn new(clients: &Rc<Clients>, client: &Rc<Client>, seat: Seat) -> Self {
        clients.worker.base.stats().accepted.add(1);
        Self::with_seat(clients, client, Some(seat))
    }

    /// Of a stream.
    pub(super) fn of_stream(clients: &Rc<Clients>, client: &Rc<Client>) -> Self {
        Self::with_seat(clients, client, None)
    }

    fn with_seat(clients: &Rc<Clients>, client: &Rc<Client>, seat: Option<Seat>) -> Self {
        clients.on_accept();
        let mut open = clients.open.borrow_mut();
        open.count += 1;
        let slot = match open.free.pop() {
            Some(slot) => slot,
            None => {
                open.slots.push(None);
                open.slots.len() - 1
            }
        };
        let is_stream = seat.is_none();
        open.slots[slot] = Some(Slot {
            client: Rc::clone(client),
            seat,
        });
        drop(open);
        Self {
            clients: Rc::clone(clients),
            client: Rc::clone(client),
            slot,
            is_stream,
        }
    }

    /// The connection is this client's, as it turns out.
    pub(super) fn become_of(&mut self, client: &Rc<Client>) {
        self.client.close();
        self.client = Rc::clone(client);
        if let Some(slot) = &mut self.clients.open.borrow_mut().slots[self.slot] {
            slot.client = Rc::clone(client);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.client.close();
        let clients = &self.clients;
        if !self.is_stream {
            clients.worker.base.stats().closed.add(1);
            clients.worker.end_introduction(&self.client.connection);
        }
        let mut open = clients.open.borrow_mut();
        open.count -= 1;
        open.free.push(self.slot);
        let left = open.count;
        let slot = open.slots[self.slot].take();
        drop(open);
        if !self.is_stream && slot.as_ref().is_some_and(|it| it.seat.is_none()) {
            clients.evicted_now.set(clients.evicted_now.get() - 1);
        }
        drop(slot);
        if left == 0 {
            clients.wake_idle.notify_waiters();
        }
    }
}

fn builder(limits: &Limits) -> Builder {
    let (head_bytes, buffer_bytes) = head_and_buffer_bytes(limits);
    let mut builder = Builder::new();
    builder
        .half_close(true)
        .header_read_timeout(None)
        .max_header_size(head_bytes)
        .max_buf_size(buffer_bytes);
    if limits.fields != FIELDS {
        builder.max_headers(limits.fields);
    }
    builder
}
