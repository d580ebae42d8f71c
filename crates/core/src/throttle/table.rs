//! All throttles of a front-end: their limits, from where, until when, and what it has done.
//!
//! One table for all workers. It is small and everything in it is quick, so the shell keeps it behind
//! one lock, which only requests of throttled classes ever touch; which those are is said by
//! [`Rules`], without it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::bandwidth::Piece;
use super::gate::{Entry, Gate, HeldOutcome, ThrottleCounters};
use super::held::HeldId;
use super::rules::{Rule, Rules};
use super::stillness::Stood;
use super::{ClassPattern, SetBy, ThrottleLimits, ThrottleLimitsError};
use crate::time::Timestamp;

/// One throttle; the same for as long as its class is throttled, whatever the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThrottleId(u64);

/// Why a class was not throttled.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SetError {
    /// The limits make no sense.
    #[error(transparent)]
    Limits(#[from] ThrottleLimitsError),
    /// There are as many as there may be.
    #[error("{} classes are throttled already: release one", Throttles::MAX)]
    Many,
}

/// A throttle, to be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Throttle {
    /// Its number.
    pub id: ThrottleId,
    /// Whose requests.
    pub pattern: ClassPattern,
    /// What is done to them.
    pub limits: ThrottleLimits,
    /// Where it came from.
    pub set_by: SetBy,
    /// Since when.
    pub since: Timestamp,
    /// Until when; none: until it is released.
    pub until: Option<Timestamp>,
    /// Requests of the class that were let on and have not ended, less those whose place is lent.
    pub in_flight: u64,
    /// Requests that have lent their places while they wait for their clients.
    pub lent: u64,
    /// Requests that are held.
    pub waiting: u64,
    /// What it has done.
    pub counters: ThrottleCounters,
}

#[derive(Clone, Debug)]
struct Row {
    pattern: ClassPattern,
    set_by: SetBy,
    since: Timestamp,
    until: Option<Timestamp>,
    /// Grows with every change of the limits.
    version: u64,
    gate: Gate,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Throttles {
    rows: BTreeMap<ThrottleId, Row>,
    /// Requests that were held by a throttle that is no more, and do not know it yet.
    freed: VecDeque<HeldId>,
    last_throttle: u64,
    last_place: u64,
    versions: u64,
    held_max: usize,
}

impl Throttles {
    /// Most classes that can be throttled: each request is compared with all of them.
    pub const MAX: usize = 64;

    /// No throttles; at most so many requests will be held by all of them together.
    pub fn new(held_max: usize) -> Self {
        Self {
            rows: BTreeMap::new(),
            freed: VecDeque::new(),
            last_throttle: 0,
            last_place: 0,
            versions: 0,
            held_max,
        }
    }

    /// So many are held at most from now on; those that are stay.
    pub fn set_held_max(&mut self, held_max: usize) {
        self.held_max = held_max;
    }

    /// Throttles a class, or changes how it is throttled; held requests stay in order.
    ///
    /// # Errors
    /// The limits make no sense, or there are too many; then nothing has changed.
    pub fn set(
        &mut self,
        pattern: ClassPattern,
        limits: ThrottleLimits,
        set_by: SetBy,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<ThrottleId, SetError> {
        limits.check()?;
        self.versions += 1;
        let mut rows = self.rows.iter_mut();
        if let Some((id, row)) = rows.find(|(_, row)| row.pattern == pattern) {
            row.gate.set_limits(limits, now);
            (row.set_by, row.since, row.until) = (set_by, now, until);
            row.version = self.versions;
            return Ok(*id);
        }
        if self.rows.len() >= Self::MAX {
            return Err(SetError::Many);
        }
        self.last_throttle += 1;
        let id = ThrottleId(self.last_throttle);
        let row = Row {
            pattern,
            set_by,
            since: now,
            until,
            version: self.versions,
            gate: Gate::new(limits, now),
        };
        self.rows.insert(id, row);
        Ok(id)
    }

    /// Releases the class of this name; what its throttle has done, if there was one. Held requests go on.
    pub fn release(&mut self, name: &str) -> Option<Throttle> {
        let mut rows = self.rows.iter();
        let id = rows.find(|(_, row)| row.pattern.name() == name)?.0;
        let id = *id;
        self.remove(id)
    }

    /// Releases the next class whose time is over.
    pub fn expire(&mut self, now: Timestamp) -> Option<Throttle> {
        let mut rows = self.rows.iter();
        let over = rows.find(|(_, row)| row.until.is_some_and(|until| until <= now));
        let id = *over?.0;
        self.remove(id)
    }

    fn remove(&mut self, id: ThrottleId) -> Option<Throttle> {
        let mut row = self.rows.remove(&id)?;
        let shown = show(id, &row);
        while let Some(held) = row.gate.open() {
            self.freed.push_back(held);
        }
        Some(shown)
    }

    /// The throttles, as requests meet them.
    pub fn rules(&self) -> Rules {
        Rules::new(self.rows.iter().map(|(id, row)| Rule {
            id: *id,
            pattern: row.pattern.clone(),
            until: row.until,
            lowest_priority: row.gate.limits().lowest_priority,
            marks: row.gate.limits().marks,
        }))
    }

    /// All throttles, in the order in which their classes were first throttled.
    pub fn all(&self) -> impl Iterator<Item = Throttle> {
        self.rows.iter().map(|(id, row)| show(*id, row))
    }

    /// A request of a throttle's class comes.
    pub fn handle_arrival(&mut self, throttle: ThrottleId, now: Timestamp) -> Entry {
        let waiting: usize = self.rows.values().map(|row| row.gate.waiting()).sum();
        let place = HeldId(self.last_place + 1);
        let place = (waiting < self.held_max).then_some(place);
        let Some(row) = self.rows.get_mut(&throttle) else {
            return Entry::Free;
        };
        let entry = row.gate.handle_arrival(place, now);
        if matches!(entry, Entry::Held(_)) {
            self.last_place += 1;
        }
        entry
    }

    /// What becomes of one of those that are held, if anything; to be asked until it says nothing, after
    /// every end and every change, and when [`Throttles::due`] says so.
    pub fn poll(&mut self, now: Timestamp) -> Option<(HeldId, HeldOutcome)> {
        if let Some(id) = self.freed.pop_front() {
            return Some((id, HeldOutcome::Pass));
        }
        self.rows.values_mut().find_map(|row| row.gate.poll(now))
    }

    /// When one of those that are held may go on or be refused, if nothing ends before.
    pub fn due(&self) -> Option<Timestamp> {
        let due = |row: &Row| {
            let until = row.until.filter(|_| row.gate.is_waited_for());
            row.gate.due().into_iter().chain(until).min()
        };
        self.rows.values().filter_map(due).min()
    }

    /// One that is held has left; nothing if it is not held any more.
    pub fn handle_left(&mut self, throttle: ThrottleId, id: HeldId, now: Timestamp) {
        match self.rows.get_mut(&throttle) {
            Some(row) => {
                row.gate.handle_left(id, now);
            }
            None => self.freed.retain(|it| *it != id),
        }
    }

    /// One that a throttle let on has ended.
    pub fn handle_end(&mut self, throttle: ThrottleId) {
        if let Some(row) = self.rows.get_mut(&throttle) {
            row.gate.handle_end();
        }
    }

    /// One that a throttle let on was answered, this long after it was let on.
    pub fn handle_answer(&mut self, throttle: ThrottleId, took: Duration) {
        if let Some(row) = self.rows.get_mut(&throttle) {
            row.gate.handle_answer(took);
        }
    }

    /// One that a throttle let on was refused by admission: its place stays taken for a moment while others wait
    /// for it.
    pub fn handle_refused(&mut self, throttle: ThrottleId, now: Timestamp) {
        if let Some(row) = self.rows.get_mut(&throttle) {
            row.gate.handle_refused(now);
        }
    }

    /// Whether a throttle stands, and bounds how many of its class are in flight.
    pub fn bounds(&self, throttle: ThrottleId) -> bool {
        let row = self.rows.get(&throttle);
        row.is_some_and(|row| row.gate.limits().concurrency.is_some())
    }

    /// One that a throttle let on stood still for its client at its place, as each may for `idle`. Whether it may
    /// for longer: if not, it is to lend its place.
    pub fn handle_still(
        &mut self,
        throttle: ThrottleId,
        stood: Stood,
        idle: Duration,
        now: Timestamp,
    ) -> bool {
        let row = self.rows.get_mut(&throttle);
        row.is_none_or(|row| row.gate.handle_still(stood, idle, now))
    }

    /// One that a throttle let on lends its place to the next: it waits for its client.
    pub fn handle_lent(&mut self, throttle: ThrottleId) {
        if let Some(row) = self.rows.get_mut(&throttle) {
            row.gate.handle_lent();
        }
    }

    /// One that has lent its place needs one again. It is never refused; each has a client connection,
    /// so there are not more of them than of those.
    pub fn handle_return(&mut self, throttle: ThrottleId) -> Entry {
        let Some(row) = self.rows.get_mut(&throttle) else {
            return Entry::Free;
        };
        self.last_place += 1;
        row.gate.handle_return(HeldId(self.last_place))
    }

    /// One that has lent its place has ended, while it waited for one again under this number, or not.
    pub fn handle_lent_end(&mut self, throttle: ThrottleId, returning: Option<HeldId>) {
        match (self.rows.get_mut(&throttle), returning) {
            (Some(row), _) => row.gate.handle_lent_end(returning),
            (None, Some(id)) => self.freed.retain(|it| *it != id),
            (None, None) => {}
        }
    }

    /// When the next bytes of a response body may go; nothing: now, and all of them.
    pub fn pace(&mut self, throttle: ThrottleId, bytes: u64, now: Timestamp) -> Option<Piece> {
        let row = self.rows.get_mut(&throttle)?;
        let is_over = row.until.is_some_and(|until| until <= now);
        row.gate.pace(bytes, now).filter(|_| !is_over)
    }

    /// A number that changes with the throttle's limits; nothing once it is released.
    pub fn version(&self, throttle: ThrottleId) -> Option<u64> {
        self.rows.get(&throttle).map(|row| row.version)
    }
}

fn show(id: ThrottleId, row: &Row) -> Throttle {
    Throttle {
        id,
        pattern: row.pattern.clone(),
        limits: *row.gate.limits(),
        set_by: row.set_by,
        since: row.since,
        until: row.until,
        in_flight: row.gate.in_flight(),
        lent: row.gate.lent(),
        waiting: row.gate.waiting() as u64,
        counters: row.gate.counters(),
    }
}

#[cfg(test)]
mod tests;
