//! Throttles at work: the table of the core behind a lock, shared by the workers, and requests that
//! are held by it.
//!
//! ```text
//! head ── rules (no lock) ── none fits ──────────────────────────────> picker
//!             │ one fits            ┌── passed ── Passed guard ──────> picker
//!             v                     │                │ dropped at the end of the request
//!           table (lock) ── entry ──┼── held ── let on when there is room
//!                                   └── full, late: 429
//! ```
//!
//! Only requests of throttled classes touch the lock, and none waits while it has it. A held
//! request is a task that waits for its outcome, which comes from the end of a request of the class, on
//! whichever worker, from a change of its limits, or from [`Throttles::run_timers`], which each worker runs for
//! what a clock alone decides.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arc_swap::{ArcSwap, Cache};
use tidegate_core::throttle::{
    ClassPattern, Entry, HeldId, HeldOutcome, Piece, Rule, Rules, SetBy, SetError, Stood, Throttle,
    ThrottleId, ThrottleLimits, Throttles as ThrottleTable,
};
use tidegate_core::time::Timestamp;
use tokio::sync::{Notify, oneshot};

use super::RequestTarget;
use crate::base::WorkerBase;
use crate::record::reason::Reason;

/// Shortest time between two looks that nothing but a clock asks for.
const LOOK_MIN: Duration = Duration::from_millis(1);
/// Most throttles whose time is over that are remembered until they are asked for.
const ENDED_MAX: usize = 64;

/// The throttles of a front-end; see the module.
#[derive(Debug)]
pub struct Throttling {
    table: Mutex<Table>,
    /// What the table says of which class meets which throttle.
    rules: ArcSwap<Rules>,
    /// Notified when the table may have another due time.
    due_changed: Notify,
    /// Notified when limits have changed: a request that waits by the old ones asks again.
    limits_changed: Notify,
    /// Why a connection was not marked, the first time.
    unmarked: OnceLock<String>,
}

#[derive(Debug)]
struct Table {
    throttles: ThrottleTable,
    /// To the tasks of requests that are held.
    senders: HashMap<HeldId, oneshot::Sender<HeldOutcome>>,
    ended: VecDeque<Throttle>,
}

impl Table {
    /// Decides on all that can be decided.
    fn tell(&mut self, now: Timestamp) {
        while let Some((id, outcome)) = self.throttles.poll(now) {
            if let Some(sender) = self.senders.remove(&id) {
                // A request that has just left gives its place back.
                sender.send(outcome).ok();
            }
        }
    }
}

impl Throttling {
    /// No throttles; at most so many requests will be held by all of them together. Each of them has a
    /// client connection, so this leaves the others to all other classes.
    pub fn new(held_max: usize) -> Self {
        Self {
            table: Mutex::new(Table {
                throttles: ThrottleTable::new(held_max),
                senders: HashMap::new(),
                ended: VecDeque::new(),
            }),
            rules: ArcSwap::default(),
            due_changed: Notify::new(),
            limits_changed: Notify::new(),
            unmarked: OnceLock::new(),
        }
    }

    /// So many are held at most from now on; those that are stay.
    pub fn set_held_max(&self, held_max: usize) {
        self.table().throttles.set_held_max(held_max);
    }

    /// Throttles a class from now on, or changes how it is throttled.
    ///
    /// # Errors
    /// The limits make no sense, or there are too many throttles; then nothing has changed.
    pub fn set(
        &self,
        pattern: ClassPattern,
        limits: ThrottleLimits,
        set_by: SetBy,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), SetError> {
        let mut table = self.table();
        table.throttles.set(pattern, limits, set_by, until, now)?;
        self.publish(&mut table, now);
        Ok(())
    }

    /// Releases the class of this name; what its throttle has done, if there was one. Held requests go on.
    pub fn release(&self, name: &str, now: Timestamp) -> Option<Throttle> {
        let mut table = self.table();
        let released = table.throttles.release(name)?;
        self.publish(&mut table, now);
        Some(released)
    }

    /// All throttles.
    pub fn all(&self) -> Vec<Throttle> {
        self.table().throttles.all().collect()
    }

    /// Releases those whose time is over; the next of them that was not asked for yet.
    pub fn poll_ended(&self, now: Timestamp) -> Option<Throttle> {
        let mut table = self.table();
        self.expire(&mut table, now);
        table.ended.pop_front()
    }

    /// Why connections are not marked as ordered, where they are not.
    pub fn unmarked(&self) -> Option<&str> {
        self.unmarked.get().map(String::as_str)
    }

    /// A connection could not be marked. It is used as it is.
    pub(crate) fn note_unmarked(&self, why: impl FnOnce() -> String) {
        self.unmarked.get_or_init(why);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in there panics half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what the table says now.
    fn publish(&self, table: &mut Table, now: Timestamp) {
        self.rules.store(Arc::new(table.throttles.rules()));
        self.limits_changed.notify_waiters();
        self.tell(table, now);
        self.due_changed.notify_waiters();
    }

    fn expire(&self, table: &mut Table, now: Timestamp) {
        let mut any = false;
        while let Some(ended) = table.throttles.expire(now) {
            if table.ended.len() < ENDED_MAX {
                table.ended.push_back(ended);
            }
            any = true;
        }
        if any {
            self.publish(table, now);
        }
    }

    /// Decides on all that can be decided, and notifies those that look of when the next one may be.
    fn tell(&self, table: &mut Table, now: Timestamp) {
        table.tell(now);
        if table.throttles.due().is_some() {
            self.due_changed.notify_waiters();
        }
    }

    fn enter(&self, throttle: ThrottleId, now: Timestamp) -> (Entry, Option<OutcomeReceiver>) {
        let mut table = self.table();
        let entry = table.throttles.handle_arrival(throttle, now);
        let Entry::Held(id) = entry else {
            return (entry, None);
        };
        let (sender, outcome) = oneshot::channel();
        table.senders.insert(id, sender);
        self.due_changed.notify_waiters();
        (entry, Some(outcome))
    }

    fn leave(
        &self,
        throttle: ThrottleId,
        id: HeldId,
        outcome: &mut OutcomeReceiver,
        now: Timestamp,
    ) {
        let mut table = self.table();
        if table.senders.remove(&id).is_some() {
            table.throttles.handle_left(throttle, id, now);
        } else if outcome.try_recv() == Ok(HeldOutcome::Pass) {
            table.throttles.handle_end(throttle);
        }
        self.tell(&mut table, now);
    }

    fn end(&self, throttle: ThrottleId, turn: &mut ThrottlePlace, end: End, now: Timestamp) {
        let mut table = self.table();
        match turn {
            ThrottlePlace::Has => match end {
                End::Answered(took) => table.throttles.handle_answer(throttle, took),
                End::Refused => table.throttles.handle_refused(throttle, now),
                End::Other => table.throttles.handle_end(throttle),
            },
            ThrottlePlace::Lent => table.throttles.handle_lent_end(throttle, None),
            ThrottlePlace::Returns(id, outcome) => match table.senders.remove(id) {
                Some(_) => table.throttles.handle_lent_end(throttle, Some(*id)),
                None if outcome.try_recv() == Ok(HeldOutcome::Pass) => {
                    table.throttles.handle_end(throttle)
                }
                None => {}
            },
        }
        self.tell(&mut table, now);
    }

    /// Whether a throttle stands, and bounds how many of its class are in flight.
    fn bounds(&self, throttle: ThrottleId) -> bool {
        self.table().throttles.bounds(throttle)
    }

    fn stand_still(
        &self,
        throttle: ThrottleId,
        stood: Stood,
        idle: Duration,
        now: Timestamp,
    ) -> bool {
        let throttles = &mut self.table().throttles;
        throttles.handle_still(throttle, stood, idle, now)
    }

    fn lend(&self, throttle: ThrottleId, now: Timestamp) {
        let mut table = self.table();
        table.throttles.handle_lent(throttle);
        self.tell(&mut table, now);
    }

    fn take_back(&self, throttle: ThrottleId) -> ThrottlePlace {
        let mut table = self.table();
        let Entry::Held(id) = table.throttles.handle_return(throttle) else {
            return ThrottlePlace::Has;
        };
        let (sender, outcome) = oneshot::channel();
        table.senders.insert(id, sender);
        ThrottlePlace::Returns(id, outcome)
    }

    /// When the next bytes of a response body may go, and by which version of the limits; nothing: now,
    /// and all of them.
    pub(crate) fn pace(
        &self,
        throttle: ThrottleId,
        bytes: u64,
        now: Timestamp,
    ) -> Option<(Piece, u64)> {
        let mut table = self.table();
        let piece = table.throttles.pace(throttle, bytes, now)?;
        Some((piece, table.throttles.version(throttle)?))
    }

    /// Whether the throttle still has this version of its limits.
    pub(crate) fn is_current(&self, throttle: ThrottleId, version: u64) -> bool {
        self.table().throttles.version(throttle) == Some(version)
    }

    /// Waits until it has not.
    pub(crate) async fn outdated(&self, throttle: ThrottleId, version: u64) {
        loop {
            let mut limits_changed = pin!(self.limits_changed.notified());
            limits_changed.as_mut().enable();
            if !self.is_current(throttle, version) {
                return;
            }
            limits_changed.await;
        }
    }
}

/// Where the task of a held request waits for its outcome.
type OutcomeReceiver = oneshot::Receiver<HeldOutcome>;

struct RulesOf(Arc<Throttling>);

impl Deref for RulesOf {
    type Target = ArcSwap<Rules>;
    fn deref(&self) -> &Self::Target {
        &self.0.rules
    }
}

/// The throttles as one worker meets them.
pub(crate) struct Throttles {
    base: Rc<WorkerBase>,
    shared: Arc<Throttling>,
    rules: RefCell<Cache<RulesOf, Arc<Rules>>>,
    /// Requests of this worker that are held.
    held: Cell<usize>,
    /// Wakes the timers when the first of them is.
    wake_timers: Notify,
}

impl Throttles {
    pub(crate) fn new(base: Rc<WorkerBase>, shared: Arc<Throttling>) -> Rc<Self> {
        Rc::new(Self {
            base,
            rules: RefCell::new(Cache::new(RulesOf(Arc::clone(&shared)))),
            shared,
            held: Cell::new(0),
            wake_timers: Notify::new(),
        })
    }

    /// The throttles of all workers.
    pub(crate) fn shared(&self) -> &Arc<Throttling> {
        &self.shared
    }

    fn begin_hold(&self) {
        self.held.set(self.held.get() + 1);
        self.wake_timers.notify_one();
    }

    fn end_hold(&self) {
        self.held.set(self.held.get().saturating_sub(1));
    }

    /// The request meets the throttle of its class, if there is one.
    pub(crate) fn enter(
        self: &Rc<Self>,
        request: RequestTarget<'_>,
        now: Timestamp,
    ) -> Option<(Throttled, Met)> {
        let rule = self.find(request, now)?;
        let throttle = rule.id;
        let (entry, outcome) = self.shared.enter(throttle, now);
        let met = match (entry, outcome) {
            (Entry::Free, _) => Met::Free,
            (Entry::Full, _) | (Entry::Held(_), None) => Met::Full,
            (Entry::Passed, _) => Met::Passed(Passed::new(self, throttle)),
            (Entry::Held(id), Some(outcome)) => {
                self.begin_hold();
                Met::Held(InThrottle {
                    throttles: Rc::clone(self),
                    throttle,
                    id,
                    outcome,
                    is_decided: false,
                })
            }
        };
        let throttled = Throttled {
            rule,
            held_at: matches!(met, Met::Held(_)).then_some(now),
            held: None,
        };
        Some((throttled, met))
    }

    fn find(&self, request: RequestTarget<'_>, now: Timestamp) -> Option<Arc<Rule>> {
        let mut cache = self.rules.borrow_mut();
        let rules = cache.load();
        if rules.is_empty() {
            return None;
        }
        let picker = self.base.cluster.picker.borrow();
        let site = picker.topology().sites.get(request.site.index())?;
        let found = rules.find(&site.name, request.method.as_str(), request.target, now);
        found.cloned()
    }

    /// Looks after the requests that are held while this worker has some; for ever.
    pub(crate) async fn run_timers(self: Rc<Self>) {
        let throttling = &self.shared;
        loop {
            if self.held.get() == 0 {
                self.wake_timers.notified().await;
                continue;
            }
            let mut due_changed = pin!(throttling.due_changed.notified());
            due_changed.as_mut().enable();
            let due = {
                let mut table = throttling.table();
                let now = self.base.now();
                throttling.expire(&mut table, now);
                table.tell(now);
                table.throttles.due().map(|due| due.since(now))
            };
            match due {
                Some(wait) => {
                    // A product timer: a token and a deadline make no sound.
                    tokio::time::timeout(wait.max(LOOK_MIN), due_changed)
                        .await
                        .ok();
                }
                None => due_changed.await,
            }
        }
    }
}

/// What the throttle of its class does with a request.
pub(crate) enum Met {
    /// Nothing: it is not limited.
    Free,
    /// There is no room to be held.
    Full,
    Passed(Passed),
    Held(InThrottle),
}

/// A request of a throttled class, as its books know it.
pub(crate) struct Throttled {
    rule: Arc<Rule>,
    held_at: Option<Timestamp>,
    held: Option<Duration>,
}

impl Throttled {
    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }

    /// How long it was held, if it was, or has been so far.
    pub(crate) fn held(&self, now: Timestamp) -> Option<Duration> {
        self.held.or(self.held_at.map(|since| now.since(since)))
    }

    /// It goes on.
    pub(crate) fn pass(&mut self, now: Timestamp) {
        self.held = self.held(now);
    }
}

/// A request that a throttle has let on. Dropping it ends it there.
pub(crate) struct Passed {
    throttles: Rc<Throttles>,
    throttle: ThrottleId,
    turn: ThrottlePlace,
    since: Timestamp,
    end: End,
}

/// How a request has ended that a throttle let on.
#[derive(Clone, Copy)]
enum End {
    /// It was answered, this long after it was let on.
    Answered(Duration),
    /// Admission has refused it.
    Refused,
    Other,
}

/// Whether it has its place.
enum ThrottlePlace {
    Has,
    Lent,
    /// It waits until it has one again.
    Returns(HeldId, OutcomeReceiver),
}

impl Passed {
    fn new(throttles: &Rc<Throttles>, throttle: ThrottleId) -> Self {
        Self {
            throttles: Rc::clone(throttles),
            throttle,
            turn: ThrottlePlace::Has,
            since: throttles.base.now(),
            end: End::Other,
        }
    }

    /// Whether it has a place, of which there are so many.
    pub(crate) fn is_bounded(&self) -> bool {
        self.has_place() && self.throttles.shared.bounds(self.throttle)
    }

    /// It ends now, for this reason if it is not answered.
    pub(crate) fn end(mut self, reason: Option<Reason>) {
        self.end = match reason {
            None => End::Answered(self.throttles.base.now().since(self.since)),
            Some(reason) if reason.is_for_lack_of_room() => End::Refused,
            Some(_) => End::Other,
        };
    }

    /// Whether it has its place.
    pub(crate) fn has_place(&self) -> bool {
        matches!(self.turn, ThrottlePlace::Has)
    }

    /// It stood still for its client at its place. Whether it may for longer.
    pub(crate) fn stand_still(&self, stood: Stood) -> bool {
        let Throttles { base, shared, .. } = &*self.throttles;
        let idle = base.settings.timeouts().throttled_idle;
        shared.stand_still(self.throttle, stood, idle, base.now())
    }

    /// Its place goes to the next one.
    pub(crate) fn lend(&mut self) {
        if self.has_place() {
            let Throttles { base, shared, .. } = &*self.throttles;
            shared.lend(self.throttle, base.now());
            self.turn = ThrottlePlace::Lent;
        }
    }

    /// Waits until it has a place again, if it has lent it.
    pub(crate) fn poll_return(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if matches!(self.turn, ThrottlePlace::Lent) {
            self.turn = self.throttles.shared.take_back(self.throttle);
            if matches!(self.turn, ThrottlePlace::Returns(..)) {
                self.throttles.begin_hold();
            }
        }
        if let ThrottlePlace::Returns(_, outcome) = &mut self.turn {
            // Without an outcome the table is gone, and all places with it.
            ready!(Pin::new(outcome).poll(context)).ok();
            self.throttles.end_hold();
            self.turn = ThrottlePlace::Has;
        }
        Poll::Ready(())
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        if matches!(self.turn, ThrottlePlace::Returns(..)) {
            self.throttles.end_hold();
        }
        let Throttles { base, shared, .. } = &*self.throttles;
        shared.end(self.throttle, &mut self.turn, self.end, base.now());
    }
}

/// A request that is held. Dropping it takes it out.
pub(crate) struct InThrottle {
    throttles: Rc<Throttles>,
    throttle: ThrottleId,
    id: HeldId,
    outcome: OutcomeReceiver,
    /// The outcome has been received.
    is_decided: bool,
}

impl InThrottle {
    /// Waits until it may go on, or has waited for as long as it may.
    pub(crate) async fn ended(mut self) -> Result<Passed, Reason> {
        let outcome = (&mut self.outcome).await;
        self.is_decided = outcome.is_ok();
        match outcome {
            Ok(HeldOutcome::Pass) => Ok(Passed::new(&self.throttles, self.throttle)),
            Ok(HeldOutcome::Late) => Err(Reason::Throttled),
            // The table is gone, and with it all that waited.
            Err(_) => Err(Reason::Drained),
        }
    }
}

impl Drop for InThrottle {
    fn drop(&mut self) {
        self.throttles.end_hold();
        if !self.is_decided {
            let Throttles { base, shared, .. } = &*self.throttles;
            shared.leave(self.throttle, self.id, &mut self.outcome, base.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_that_have_ended_are_remembered_and_no_more() {
        let throttling = Throttling::new(1);
        let limits = ThrottleLimits {
            concurrency: Some(1),
            ..ThrottleLimits::default()
        };
        let at = Timestamp::from_millis;
        for number in 0..=ENDED_MAX as u64 {
            let pattern = format!("GET /{number}").parse().unwrap();
            let (now, until) = (at(number), Some(at(number + 1)));
            (throttling.set(pattern, limits, SetBy::Operator, until, now)).unwrap();
            // No request of the class asks; one of another class comes.
            throttling.expire(&mut throttling.table(), at(number + 1));
        }
        assert_eq!(throttling.all(), []);
        let now = at(1000);
        let ended = std::iter::from_fn(|| throttling.poll_ended(now));
        let names: Vec<_> = ended.map(|it| it.pattern.name().to_owned()).collect();
        assert_eq!(names.len(), ENDED_MAX);
        assert_eq!(names.last().map(String::as_str), Some("GET /63"));
    }
}
