//! The causal test at work: each request of one class is tossed for, and held for a moment or not.
//!
//! ```text
//! behind the throttle ── no test: a flag ────────────────────────> picker
//!         │ of the class, idempotent, room
//!         v
//!       coin ── not held ────────────────────────────────────────> picker
//!         │ └── held for h, or until the test or the front-end ends ─^
//!         └── Toss ── bounded queue ──> Tosses, with whoever runs the test
//! ```
//!
//! No request is refused for it, and a worker never waits for its owner: a request whose toss finds
//! no room in the queue is not held. Whether a request takes part is decided before its coin is
//! tossed, or without looking at it, so that both halves are alike. A request whose client leaves
//! while it is held stays in its half for the same reason.
//!
//! Failure case: a request that a throttle let on keeps its place there while it is held, so the next
//! one goes on later too.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::Method;
use tidegate_core::culprits::dither::{Refusal, Toss, coin, may_hold};
use tidegate_core::prng::Prng;
use tidegate_core::throttle::ClassPattern;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::SiteId;
use tokio::sync::Notify;

use crate::base::WorkerBase;
use crate::head::is_idempotent;

/// Most tosses that wait to be read.
const TOSSES_MAX: usize = 4096;

/// So that coins are other numbers than the picker's: else which requests are held would go with where they go.
const COINS: u64 = 0x636f_696e_735f_6f66;

/// The causal test of a front-end, one class at a time; see the module.
#[derive(Debug)]
pub struct Dithering {
    running: AtomicBool,
    test: ArcSwapOption<Test>,
    /// Most requests that are held at once.
    held_max: usize,
    held_now: AtomicUsize,
    /// Of those that were not held, and of those that were.
    tossed: [AtomicU64; 2],
    left_out: AtomicU64,
}

/// What all tests together have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DitherCounters {
    /// Requests that were held.
    pub held: u64,
    /// Requests that were tossed for and not held.
    pub not_held: u64,
    /// Requests of the class that took no part: too many were held, or the tosses were not read.
    pub left_out: u64,
    /// Requests that are held now.
    pub waiting: u64,
}

/// Why no test was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DitherError {
    /// There is one already.
    #[error("another class is being tested")]
    Running,
    /// The class must not be held.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

#[derive(Debug)]
struct Test {
    pattern: ClassPattern,
    hold: Duration,
    until: Timestamp,
    queue: SyncSender<Toss>,
    over: AtomicBool,
    /// Notified when it is over.
    ended: Notify,
}

/// A test that runs, and what was tossed. Dropping it ends the test: held requests go on at once.
#[derive(Debug)]
pub struct Tosses {
    dithering: Arc<Dithering>,
    test: Arc<Test>,
    queue: Receiver<Toss>,
}

impl Tosses {
    /// What was tossed since it was last asked, each worker's in order.
    pub fn take(&mut self) -> impl Iterator<Item = Toss> {
        self.queue.try_iter()
    }
}

impl Drop for Tosses {
    fn drop(&mut self) {
        self.dithering.test.store(None);
        self.test.over.store(true, Ordering::Release);
        self.test.ended.notify_waiters();
        self.dithering.running.store(false, Ordering::Release);
    }
}

impl Dithering {
    /// No test. In one at most so many requests will be held at once, or a few more; each of them has
    /// a client connection, so this leaves the others to all other requests.
    pub fn new(held_max: usize) -> Self {
        Self {
            running: AtomicBool::new(false),
            test: ArcSwapOption::empty(),
            held_max,
            held_now: AtomicUsize::new(0),
            tossed: Default::default(),
            left_out: AtomicU64::new(0),
        }
    }

    /// From now on requests of the class are tossed for, until the time is over or the result is
    /// dropped. Requests whose method is not idempotent never are. Whether the site can bear a test is
    /// for the caller to look at, before and while it runs
    /// ([`may_hold`]).
    ///
    /// # Errors
    /// There is a test already, or all requests of the class have a method that is not idempotent.
    pub fn begin(
        self: &Arc<Self>,
        pattern: ClassPattern,
        hold: Duration,
        until: Timestamp,
    ) -> Result<Tosses, DitherError> {
        if let Some(method) = pattern.method() {
            let method = Method::from_bytes(method.as_bytes());
            may_hold(method.is_ok_and(|method| is_idempotent(&method)), false)?;
        }
        if self.running.swap(true, Ordering::AcqRel) {
            return Err(DitherError::Running);
        }
        let (sender, queue) = sync_channel(TOSSES_MAX);
        let test = Arc::new(Test {
            pattern,
            hold,
            until,
            queue: sender,
            over: AtomicBool::new(false),
            ended: Notify::new(),
        });
        self.test.store(Some(Arc::clone(&test)));
        Ok(Tosses {
            dithering: Arc::clone(self),
            test,
            queue,
        })
    }

    /// The class that is tested, if one is.
    pub fn class(&self) -> Option<String> {
        let test = self.test.load();
        test.as_ref().map(|test| test.pattern.name().to_owned())
    }

    /// What all tests together have done.
    pub fn counters(&self) -> DitherCounters {
        let [not_held, held] = &self.tossed;
        DitherCounters {
            held: held.load(Ordering::Relaxed),
            not_held: not_held.load(Ordering::Relaxed),
            left_out: self.left_out.load(Ordering::Relaxed),
            waiting: self.held_now.load(Ordering::Relaxed) as u64,
        }
    }
}

/// A request that a test has held, as its books know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delayed {
    since: Timestamp,
    until: Option<Timestamp>,
}

impl Delayed {
    /// How long it was held, or has been so far.
    pub(crate) fn held(&self, now: Timestamp) -> Duration {
        self.until.unwrap_or(now).since(self.since)
    }

    /// It goes on.
    pub(crate) fn pass(&mut self, now: Timestamp) {
        self.until = Some(now);
    }
}

/// The test as one worker meets it.
pub(crate) struct Delays {
    base: Rc<WorkerBase>,
    shared: Arc<Dithering>,
    /// For the requests of a class that is tested.
    coins: RefCell<Prng>,
}

/// A request that is held. Dropping it ends that.
pub(crate) struct InDelay {
    delays: Rc<Delays>,
    test: Arc<Test>,
    until: Timestamp,
}

impl InDelay {
    /// Waits until it may go on.
    pub(crate) async fn over(self) {
        let mut ended = pin!(self.test.ended.notified());
        ended.as_mut().enable();
        let base = &self.delays.base;
        let left = self.until.since(base.now());
        if left.is_zero() || self.test.over.load(Ordering::Acquire) {
            return;
        }
        // A product timer: the end of a hold makes no sound.
        let hold = tokio::time::sleep(left);
        tokio::select! {
            () = hold => {}
            () = ended => {}
            () = base.drain.begun() => {}
        }
    }
}

impl Drop for InDelay {
    fn drop(&mut self) {
        let held_now = &self.delays.shared.held_now;
        held_now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Delays {
    pub(crate) fn new(base: Rc<WorkerBase>, shared: Arc<Dithering>, seed: u64) -> Rc<Self> {
        Rc::new(Self {
            base,
            shared,
            coins: RefCell::new(Prng::new(seed ^ COINS)),
        })
    }

    /// The request goes on now, unless it is of the class that is tested and its coin says otherwise.
    pub(crate) fn toss(
        self: &Rc<Self>,
        site: SiteId,
        target: (&Method, &str),
        now: Timestamp,
    ) -> Option<(Delayed, InDelay)> {
        if !self.shared.running.load(Ordering::Relaxed) {
            return None;
        }
        self.toss_in_test(site, target, now)
    }

    #[cold]
    fn toss_in_test(
        self: &Rc<Self>,
        site: SiteId,
        target: (&Method, &str),
        now: Timestamp,
    ) -> Option<(Delayed, InDelay)> {
        let dithering = &self.shared;
        let test = dithering.test.load_full()?;
        if !self.takes_part(&test, site, target, now) {
            return None;
        }
        if dithering.held_now.load(Ordering::Relaxed) >= dithering.held_max {
            dithering.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let held = coin(&mut self.coins.borrow_mut());
        match test.queue.try_send(Toss { at: now, held }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                dithering.left_out.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            Err(TrySendError::Disconnected(_)) => return None,
        }
        dithering.tossed[usize::from(held)].fetch_add(1, Ordering::Relaxed);
        if !held {
            return None;
        }
        dithering.held_now.fetch_add(1, Ordering::Relaxed);
        let delayed = Delayed {
            since: now,
            until: None,
        };
        let hold = InDelay {
            delays: Rc::clone(self),
            until: now + test.hold,
            test,
        };
        Some((delayed, hold))
    }

    fn takes_part(
        &self,
        test: &Test,
        site: SiteId,
        (method, target): (&Method, &str),
        now: Timestamp,
    ) -> bool {
        // What drains is not slowed down, and would not be held for as long as it was tossed for.
        if now >= test.until || self.base.drain.has_begun() {
            return false;
        }
        if may_hold(is_idempotent(method), false).is_err() {
            return false;
        }
        let picker = self.base.cluster.picker.borrow();
        let site = picker.topology().sites.get(site.index());
        site.is_some_and(|site| test.pattern.matches(&site.name, method.as_str(), target))
    }
}
