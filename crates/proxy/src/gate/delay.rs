//! The delay experiment on requests: each request of one class is assigned to a half, and one half is delayed.
//!
//! ```text
//! behind the throttle ── no experiment ──────────────────────────> picker
//!         │ of the class, idempotent, room
//!         v
//!       even chances ── not delayed ────────────────────────────────────> picker
//!         │ └── delayed for h, or until the experiment or the front-end ends ─^
//!         └── Assignment ── bounded queue ──> Assignments, read by the experiment's thread
//! ```
//!
//! No request is refused for it, and a worker never waits for its owner: a request whose assignment finds
//! no room in the queue is not delayed. Whether a request takes part is decided before its half is
//! assigned, or without looking at it, so that both halves are alike. A request whose client leaves
//! while it is delayed stays in its half for the same reason.
//!
//! Failure case: a request that a throttle let on keeps its place there while it is delayed, so the next
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
use tidegate_core::culprits::delay_experiment::{Assignment, DelayRefusal, is_delayed, may_delay};
use tidegate_core::prng::Prng;
use tidegate_core::throttle::ClassPattern;
use tidegate_core::time::Timestamp;
use tokio::sync::Notify;

use super::RequestTarget;
use crate::base::WorkerBase;
use crate::head::is_idempotent;

/// Most assignments that wait to be read.
const ASSIGNMENTS_MAX: usize = 4096;

/// So that its numbers are others than the picker's: else which requests are delayed would go with where they go.
const ASSIGNMENT_SEED: u64 = 0x636f_696e_735f_6f66;

/// The delay experiment of a front-end, one class at a time; see the module.
#[derive(Debug)]
pub struct DelayExperiments {
    running: AtomicBool,
    active: ArcSwapOption<ActiveExperiment>,
    /// Most requests that are delayed at once.
    delayed_max: AtomicUsize,
    delayed_now: AtomicUsize,
    /// Of those that were not delayed, and of those that were.
    assigned: [AtomicU64; 2],
    left_out: AtomicU64,
}

/// What all experiments together have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayExperimentCounters {
    /// Requests that were delayed.
    pub delayed: u64,
    /// Requests that were assigned to the half that is not delayed.
    pub not_delayed: u64,
    /// Requests of the class that took no part: too many were delayed, or the assignments were not read.
    pub left_out: u64,
    /// Requests that are delayed now.
    pub delayed_now: u64,
}

/// Why no experiment was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DelayExperimentError {
    /// There is one already.
    #[error("an experiment on another class runs")]
    Running,
    /// The class must not be delayed.
    #[error(transparent)]
    Refused(#[from] DelayRefusal),
}

#[derive(Debug)]
struct ActiveExperiment {
    pattern: ClassPattern,
    delay: Duration,
    until: Timestamp,
    queue: SyncSender<Assignment>,
    over: AtomicBool,
    /// Notified when it is over.
    ended: Notify,
}

/// An experiment that runs, and its assignments. Dropping it ends the experiment: delayed requests go on at once.
#[derive(Debug)]
pub struct Assignments {
    delay_experiments: Arc<DelayExperiments>,
    active: Arc<ActiveExperiment>,
    queue: Receiver<Assignment>,
}

impl Assignments {
    /// What was assigned since it was last asked, each worker's in order.
    pub fn take(&mut self) -> impl Iterator<Item = Assignment> {
        self.queue.try_iter()
    }
}

impl Drop for Assignments {
    fn drop(&mut self) {
        self.delay_experiments.active.store(None);
        self.active.over.store(true, Ordering::Release);
        self.active.ended.notify_waiters();
        self.delay_experiments
            .running
            .store(false, Ordering::Release);
    }
}

impl DelayExperiments {
    /// No experiment. In one, at most so many requests will be delayed at once, or a few more; each of them has
    /// a client connection, so this leaves the others to all other requests.
    pub fn new(delayed_max: usize) -> Self {
        Self {
            running: AtomicBool::new(false),
            active: ArcSwapOption::empty(),
            delayed_max: AtomicUsize::new(delayed_max),
            delayed_now: AtomicUsize::new(0),
            assigned: Default::default(),
            left_out: AtomicU64::new(0),
        }
    }

    /// So many are delayed at most from now on.
    pub fn set_delayed_max(&self, delayed_max: usize) {
        self.delayed_max.store(delayed_max, Ordering::Relaxed);
    }

    /// From now on requests of the class are assigned, until the time is over or the result is
    /// dropped. Requests whose method is not idempotent never are. Whether the site can bear an experiment is
    /// for the caller to look at, before and while it runs
    /// ([`may_delay`]).
    ///
    /// # Errors
    /// There is an experiment already, or all requests of the class have a method that is not idempotent.
    pub fn begin(
        self: &Arc<Self>,
        pattern: ClassPattern,
        delay: Duration,
        until: Timestamp,
    ) -> Result<Assignments, DelayExperimentError> {
        if let Some(method) = pattern.method() {
            let method = Method::from_bytes(method.as_bytes());
            may_delay(method.is_ok_and(|method| is_idempotent(&method)), false)?;
        }
        if self.running.swap(true, Ordering::AcqRel) {
            return Err(DelayExperimentError::Running);
        }
        let (sender, queue) = sync_channel(ASSIGNMENTS_MAX);
        let active = Arc::new(ActiveExperiment {
            pattern,
            delay,
            until,
            queue: sender,
            over: AtomicBool::new(false),
            ended: Notify::new(),
        });
        self.active.store(Some(Arc::clone(&active)));
        Ok(Assignments {
            delay_experiments: Arc::clone(self),
            active,
            queue,
        })
    }

    /// The class that the experiment is on, if there is one.
    pub fn class(&self) -> Option<String> {
        let active = self.active.load();
        active
            .as_ref()
            .map(|active| active.pattern.name().to_owned())
    }

    /// What all experiments together have done.
    pub fn counters(&self) -> DelayExperimentCounters {
        let [not_delayed, delayed] = &self.assigned;
        DelayExperimentCounters {
            delayed: delayed.load(Ordering::Relaxed),
            not_delayed: not_delayed.load(Ordering::Relaxed),
            left_out: self.left_out.load(Ordering::Relaxed),
            delayed_now: self.delayed_now.load(Ordering::Relaxed) as u64,
        }
    }
}

/// A request that an experiment has delayed, as its books know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delayed {
    since: Timestamp,
    until: Option<Timestamp>,
}

impl Delayed {
    /// How long it was delayed, or has been so far.
    pub(crate) fn delayed(&self, now: Timestamp) -> Duration {
        self.until.unwrap_or(now).since(self.since)
    }

    /// It goes on.
    pub(crate) fn pass(&mut self, now: Timestamp) {
        self.until = Some(now);
    }
}

/// The experiment as one worker meets it.
pub(crate) struct Delays {
    base: Rc<WorkerBase>,
    shared: Arc<DelayExperiments>,
    /// Assigns requests of the experiment's class.
    prng: RefCell<Prng>,
}

/// A request that is delayed. Dropping it ends that.
pub(crate) struct InDelay {
    delays: Rc<Delays>,
    active: Arc<ActiveExperiment>,
    until: Timestamp,
}

impl InDelay {
    /// Waits until it may go on.
    pub(crate) async fn over(self) {
        let mut ended = pin!(self.active.ended.notified());
        ended.as_mut().enable();
        let base = &self.delays.base;
        let left = self.until.since(base.now());
        if left.is_zero() || self.active.over.load(Ordering::Acquire) {
            return;
        }
        // A product timer: the end of a delay has no event of its own.
        let delay = tokio::time::sleep(left);
        tokio::select! {
            () = delay => {}
            () = ended => {}
            () = base.drain.begun() => {}
        }
    }
}

impl Drop for InDelay {
    fn drop(&mut self) {
        let delayed_now = &self.delays.shared.delayed_now;
        delayed_now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Delays {
    pub(crate) fn new(base: Rc<WorkerBase>, shared: Arc<DelayExperiments>, seed: u64) -> Rc<Self> {
        Rc::new(Self {
            base,
            shared,
            prng: RefCell::new(Prng::new(seed ^ ASSIGNMENT_SEED)),
        })
    }

    /// The request goes on now, unless it is of the experiment's class and assigned to the delayed half.
    pub(crate) fn assign(
        self: &Rc<Self>,
        request: RequestTarget<'_>,
        now: Timestamp,
    ) -> Option<(Delayed, InDelay)> {
        if !self.shared.running.load(Ordering::Relaxed) {
            return None;
        }
        self.assign_in_experiment(request, now)
    }

    #[cold]
    fn assign_in_experiment(
        self: &Rc<Self>,
        request: RequestTarget<'_>,
        now: Timestamp,
    ) -> Option<(Delayed, InDelay)> {
        let delay_experiments = &self.shared;
        let active = delay_experiments.active.load_full()?;
        if !self.takes_part(&active, request, now) {
            return None;
        }
        if delay_experiments.delayed_now.load(Ordering::Relaxed)
            >= delay_experiments.delayed_max.load(Ordering::Relaxed)
        {
            delay_experiments.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let delayed = is_delayed(&mut self.prng.borrow_mut());
        match active.queue.try_send(Assignment { at: now, delayed }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                delay_experiments.left_out.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            Err(TrySendError::Disconnected(_)) => return None,
        }
        delay_experiments.assigned[usize::from(delayed)].fetch_add(1, Ordering::Relaxed);
        if !delayed {
            return None;
        }
        delay_experiments
            .delayed_now
            .fetch_add(1, Ordering::Relaxed);
        let delayed = Delayed {
            since: now,
            until: None,
        };
        let delay = InDelay {
            delays: Rc::clone(self),
            until: now + active.delay,
            active,
        };
        Some((delayed, delay))
    }

    fn takes_part(
        &self,
        active: &ActiveExperiment,
        request: RequestTarget<'_>,
        now: Timestamp,
    ) -> bool {
        // What drains is not slowed down, and would not be delayed for as long as it was to be.
        if now >= active.until || self.base.drain.has_begun() {
            return false;
        }
        if may_delay(is_idempotent(request.method), false).is_err() {
            return false;
        }
        let picker = self.base.cluster.picker.borrow();
        let site = picker.topology().sites.get(request.site.index());
        let method = request.method.as_str();
        site.is_some_and(|site| (active.pattern).matches(&site.name, method, request.target))
    }
}
