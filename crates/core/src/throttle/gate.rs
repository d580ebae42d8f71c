//! The throttle of one class: which requests go, which are held, and the books.
//!
//! ```text
//! arrived = passed + rejected + left + waiting
//! passed  = ended + in flight + lent
//! ```
//!
//! A request goes at once if none waits and concurrency and rate have room; else it is held.
//!
//! A request that waits for its client lends its place to the next one. Before its node does more for it,
//! it takes a place again, ahead of all that are held: it had its turn.
//!
//! The place of a request that admission has refused stays taken for a pause ([`super::pause`]): all that are held
//! would else go and be refused at once.

use std::collections::BTreeSet;
use std::time::Duration;

use super::ThrottleLimits;
use super::bandwidth::{Bandwidth, Piece};
use super::concurrency::Concurrency;
use super::held::{Held, HeldId};
use super::pause::Pauses;
use super::rate::Rate;
use super::stillness::{Stillness, Stood};
use crate::time::Timestamp;

/// What a request of a throttled class finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It goes on; its end must be reported.
    Passed,
    /// It is held; [`Throttles::poll`](super::Throttles::poll) will name it.
    Held(HeldId),
    /// Too many are held.
    Full,
    /// The throttle has been released meanwhile: it goes on, and its end need not be reported.
    Free,
}

/// What becomes of one that was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldOutcome {
    /// It goes on; its end must be reported.
    Pass,
    /// It has waited for as long as it may.
    Late,
}

/// What a throttle has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThrottleCounters {
    /// Requests of the class.
    pub arrived: u64,
    /// Those that went on.
    pub passed: u64,
    /// Those that were held first, whatever became of them.
    pub held: u64,
    /// Those that were answered 429.
    pub rejected: u64,
    /// Those that left while they were held.
    pub left: u64,
    /// Those that went on and have ended.
    pub ended: u64,
    /// Time that requests were held, added up.
    pub delayed: Duration,
    /// Bytes of bodies that were sent piece by piece.
    pub paced_bytes: u64,
    /// Time that their pieces waited, added up.
    pub paced: Duration,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    limits: ThrottleLimits,
    concurrency: Concurrency,
    rate: Rate,
    bandwidth: Bandwidth,
    held: Held,
    stillness: Stillness,
    /// Requests that have lent their places.
    lent: u64,
    /// Those of them that need a place again.
    returning: BTreeSet<HeldId>,
    /// Places of requests that admission has refused; they count as in flight.
    pauses: Pauses,
    counters: ThrottleCounters,
}

impl Gate {
    pub(super) fn new(limits: ThrottleLimits, now: Timestamp) -> Self {
        Self {
            limits,
            concurrency: Concurrency::default(),
            rate: Rate::new(now),
            bandwidth: Bandwidth::default(),
            held: Held::default(),
            stillness: Stillness::new(now),
            lent: 0,
            returning: BTreeSet::new(),
            pauses: Pauses::default(),
            counters: ThrottleCounters::default(),
        }
    }

    pub(super) fn limits(&self) -> &ThrottleLimits {
        &self.limits
    }

    pub(super) fn counters(&self) -> ThrottleCounters {
        self.counters
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.concurrency.in_flight()
    }

    pub(super) fn waiting(&self) -> usize {
        self.held.len()
    }

    pub(super) fn lent(&self) -> u64 {
        self.lent
    }

    /// Whether a request waits for its first place, or for one again.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.held.is_empty() || !self.returning.is_empty()
    }

    /// Other limits; held requests stay in order.
    pub(super) fn set_limits(&mut self, limits: ThrottleLimits, now: Timestamp) {
        if limits.rate != self.limits.rate {
            self.rate = Rate::new(now);
        }
        if limits.bandwidth != self.limits.bandwidth {
            self.bandwidth.reset();
        }
        self.limits = limits;
    }

    /// A request comes; `id` is its place should it be held, if there is one left.
    pub(super) fn handle_arrival(&mut self, id: Option<HeldId>, now: Timestamp) -> Entry {
        self.counters.arrived += 1;
        if !self.is_waited_for() && self.has_room(now) {
            self.pass();
            return Entry::Passed;
        }
        let Some(id) = id else {
            self.counters.rejected += 1;
            return Entry::Full;
        };
        self.counters.held += 1;
        self.held.push(id, now);
        Entry::Held(id)
    }

    /// What becomes of the next of those that are held, if anything.
    pub(super) fn poll(&mut self, now: Timestamp) -> Option<(HeldId, HeldOutcome)> {
        self.end_pauses(now);
        if !self.returning.is_empty() && !self.has_place() && self.pauses.pop() {
            self.handle_end();
        }
        if self.has_place()
            && let Some(id) = self.returning.pop_first()
        {
            self.take_back();
            return Some((id, HeldOutcome::Pass));
        }
        let (told, (id, since)) = if !self.held.is_empty() && self.has_room(now) {
            (HeldOutcome::Pass, self.held.pop()?)
        } else {
            (HeldOutcome::Late, self.held.expire(self.limits.queue, now)?)
        };
        match told {
            HeldOutcome::Pass => self.pass(),
            HeldOutcome::Late => self.counters.rejected += 1,
        }
        self.counters.delayed += now.since(since);
        Some((id, told))
    }

    /// When the next of those that are held may go on or be refused, if nothing ends before.
    pub(super) fn due(&self) -> Option<Timestamp> {
        if self.held.is_empty() {
            return None;
        }
        let next = match self.has_place() {
            true => self.rate.due(self.limits.rate),
            false => None,
        };
        let late = self.held.due(self.limits.queue);
        let paused = self.pauses.due();
        next.into_iter().chain(late).chain(paused).min()
    }

    /// One that is held has left. False if it is not held.
    pub(super) fn handle_left(&mut self, id: HeldId, now: Timestamp) -> bool {
        let Some(since) = self.held.remove(id) else {
            return false;
        };
        self.counters.left += 1;
        self.counters.delayed += now.since(since);
        true
    }

    /// One that went on has ended.
    pub(super) fn handle_end(&mut self) {
        self.concurrency.end();
        self.counters.ended += 1;
    }

    /// One that went on was answered, after so long.
    pub(super) fn handle_answer(&mut self, took: Duration) {
        self.pauses.on_answer(took);
        self.handle_end();
    }

    /// One that went on was refused by admission. Its place stays taken for a pause while others wait for it.
    pub(super) fn handle_refused(&mut self, now: Timestamp) {
        match self.limits.concurrency {
            Some(_) if !self.held.is_empty() => self.pauses.begin(now),
            _ => self.handle_end(),
        }
    }

    /// Ends pauses that are over, and all of them once none is held any more.
    fn end_pauses(&mut self, now: Timestamp) {
        let idle = self.held.is_empty() || self.limits.concurrency.is_none();
        while self.pauses.is_over(now) || idle && !self.pauses.is_empty() {
            self.pauses.pop();
            self.handle_end();
        }
    }

    /// One at its place stood still for its client, as each may for `idle`. Whether it may for longer.
    pub(super) fn handle_still(&mut self, stood: Stood, idle: Duration, now: Timestamp) -> bool {
        let limit = self.limits.concurrency;
        self.stillness.on_still(stood, idle, limit, now)
    }

    /// One that went on lends its place to the next.
    pub(super) fn handle_lent(&mut self) {
        self.concurrency.end();
        self.lent += 1;
    }

    /// One that has lent its place needs one again: it has it, or gets it under this number.
    pub(super) fn handle_return(&mut self, id: HeldId) -> Entry {
        if self.returning.is_empty() && self.has_place() {
            self.take_back();
            return Entry::Passed;
        }
        self.returning.insert(id);
        Entry::Held(id)
    }

    /// One that has lent its place has ended, whether it waited for one again or not.
    pub(super) fn handle_lent_end(&mut self, returning: Option<HeldId>) {
        if let Some(id) = returning {
            self.returning.remove(&id);
        }
        self.lent = self.lent.saturating_sub(1);
        self.counters.ended += 1;
    }

    /// The throttle is released: all go.
    pub(super) fn open(&mut self) -> Option<HeldId> {
        let returning = self.returning.pop_first();
        returning.or_else(|| self.held.pop().map(|(id, _)| id))
    }

    /// When the next bytes of a response body may go; nothing: now, and all of them.
    pub(super) fn pace(&mut self, bytes: u64, now: Timestamp) -> Option<Piece> {
        let piece = self.bandwidth.next(bytes, self.limits.bandwidth?, now);
        self.counters.paced_bytes += piece.bytes;
        self.counters.paced += piece.at.since(now);
        Some(piece)
    }

    fn has_room(&mut self, now: Timestamp) -> bool {
        self.rate.refill(self.limits.rate, now);
        self.rate.has_room(self.limits.rate) && self.has_place()
    }

    fn has_place(&self) -> bool {
        self.concurrency.has_room(self.limits.concurrency)
    }

    fn take_back(&mut self) {
        self.lent = self.lent.saturating_sub(1);
        self.concurrency.begin();
    }

    fn pass(&mut self) {
        self.rate.take(self.limits.rate);
        self.concurrency.begin();
        self.counters.passed += 1;
    }
}
