//! Passive ejection: nodes that cannot be reached, fall silent, or answer far worse than the
//! others get no requests until they answer a probe.
//!
//! ```text
//!        3 connections in a row fail, or            probe answered
//!        far more errors than the others
//!   Up ────────────────────────────────────> Ejected ───────────────────> Up
//!   │ ^                                       ^  ^ │
//!   │ │ anything answered                     │  └─┘ probe failed: wait twice as long
//!   v │                          probe failed │
//!   Suspected ────────────────────────────────┘
//!
//! Up -> Suspected: a request failed, and nothing was answered since;
//!                  or requests are under way, and nothing came back for max(500 ms, 10 mean latencies)
//! ```
//!
//! Only a connection that cannot be made is the node's fault for sure. An answer that does not
//! come, breaks off or is malformed may be the request's: one URL that crashes its handler would
//! eject node after node. And a process that hangs fails nothing: its kernel accepts connections
//! and no answer comes. What clients give up is no proof either, they may have been impatient. So
//! failures and silence only *ask*: the node is probed while it is in use, and is out if it does
//! not answer the probe. A node that answers probes and little else stands out among the others:
//! `outliers`.
//!
//! Ejection **fails open**: while any node is up, requests go there, with the limits of what it
//! bears. If none is, those serve that answer with errors, and if there are none of these either,
//! all do. When the first node returns to a site like that, all others are asked at once, so that
//! it is not alone for long.
//!
//! Waits are jittered by up to a half so that many front-ends do not probe in step, and end at two
//! seconds: a dead node costs each front-end a refused connection a second, and one that is back
//! is waited for no longer. A node that is out for errors answers probes, so it is tried again
//! after ten seconds, and each time that it fails again soon after, after twice as long, five
//! minutes at most.

use std::time::Duration;

use super::learned::{LearnedEjection, LearnedTrial};
use crate::load::Outcomes;
use crate::prng::Prng;
use crate::time::Timestamp;
use crate::topology::{Cause, Ejection};

/// Connections in a row that eject. Two fail by chance when a server is restarted.
const STREAK: u32 = 3;
/// First wait before a probe, and the longest one.
const WAIT_FIRST: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(2);
/// The same for nodes that answer with errors.
const TRIAL_FIRST: Duration = Duration::from_secs(10);
const TRIAL_MAX: Duration = Duration::from_secs(300);
/// A shell that never answers a probe is asked again after this.
const PROBE_LOST: Duration = Duration::from_secs(30);
/// Silence that is suspicious: so long, and so many times what a request takes.
const PATIENCE_MIN: Duration = Duration::from_millis(500);
const PATIENCE_LATENCIES: u32 = 10;
/// Longest silence between two probes of a node in use.
const PATIENCE_MAX: Duration = Duration::from_secs(15);
/// Time between two probes of a node in use because requests fail there.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long the answer to a probe may take, at least, and of a node that is slow by nature.
const PROBE_MIN: Duration = Duration::from_secs(1);
const PROBE_MAX: Duration = Duration::from_secs(5);

/// How long a probe of a node waits for an answer, by what its requests take.
pub fn probe_patience(outcomes: &Outcomes) -> Duration {
    let usual = latency(outcomes).saturating_mul(PATIENCE_LATENCIES);
    usual.clamp(PROBE_MIN, PROBE_MAX)
}

/// Mean latency of the answers.
pub(super) fn latency(outcomes: &Outcomes) -> Duration {
    let mean = outcomes.sum_seconds / (outcomes.successes as f64).max(1.0);
    Duration::try_from_secs_f64(mean).unwrap_or_default()
}

/// What has become of a node's requests by now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeSigns {
    /// Requests in a row without a whole answer.
    pub(super) streak: u32,
    /// Connections in a row that could not be made.
    pub(super) unreachable: u32,
    /// Signs of life so far.
    pub(super) answers: u64,
    /// Own requests under way.
    pub(super) in_flight: u64,
    /// Mean latency of the answers.
    pub(super) latency: Duration,
}

/// What is remembered of one node.
#[derive(Debug, Default)]
pub(super) struct NodeHealth {
    ejected: Option<Ejected>,
    /// It has returned, and its streaks are to begin anew.
    forgiving: bool,
    doubt: Doubt,
    /// The last wait of a node that was out for errors, and when it returned.
    trial: Option<(Duration, Timestamp)>,
}

#[derive(Debug)]
struct Ejected {
    cause: Cause,
    since: Timestamp,
    wait: Duration,
    probe_at: Timestamp,
    /// A probe is under way since then.
    asked: Option<Timestamp>,
}

/// What speaks against a node in use.
#[derive(Debug, Default)]
struct Doubt {
    answers: u64,
    /// When something came last, or nothing was under way, or a probe was answered.
    from: Timestamp,
    /// Probes answered since anything else was.
    answered: u32,
    /// Failures in a row that a probe was asked about, and when.
    streak: u32,
    asked_at: Option<Timestamp>,
    suspected: Option<Suspected>,
}

#[derive(Clone, Copy, Debug)]
struct Suspected {
    cause: Cause,
    /// A probe is under way since then.
    asked: Option<Timestamp>,
}

impl NodeHealth {
    /// Whether the node has returned since this was asked last: its streaks are to begin anew.
    pub(super) fn take_forgiving(&mut self) -> bool {
        std::mem::take(&mut self.forgiving)
    }

    /// Takes in how the node's requests do. The cause, if that ejects it now.
    pub(super) fn on_look(
        &mut self,
        seen: NodeSigns,
        now: Timestamp,
        prng: &mut Prng,
    ) -> Option<Cause> {
        if self.ejected.is_some() {
            return None;
        }
        self.doubt.on_look(seen, now);
        if seen.unreachable < STREAK {
            return None;
        }
        self.eject(Cause::Failures, now, prng);
        Some(Cause::Failures)
    }

    /// It answers far worse than the others.
    pub(super) fn on_outlier(&mut self, now: Timestamp, prng: &mut Prng) {
        self.eject(Cause::Errors, now, prng);
    }

    /// Why it is out and how long it is waited for, for the next process.
    pub(super) fn learned_ejection(&self, now: Timestamp) -> Option<LearnedEjection> {
        self.ejected.as_ref().map(|it| LearnedEjection {
            cause: it.cause,
            age: now.since(it.since),
            wait: it.wait,
            left: it.probe_at.since(now),
        })
    }

    /// The last time that it was tried again, for the next process.
    pub(super) fn learned_trial(&self, now: Timestamp) -> Option<LearnedTrial> {
        let trial = self.trial.map(|(wait, at)| (wait, now.since(at)));
        trial.map(|(wait, age)| LearnedTrial { wait, age })
    }

    /// As it was before; `ago` gives the moment of an age.
    pub(super) fn recall(
        &mut self,
        ejection: Option<&LearnedEjection>,
        trial: Option<&LearnedTrial>,
        ago: impl Fn(Duration) -> Timestamp,
        now: Timestamp,
    ) {
        let wait = |wait: Duration| wait.clamp(WAIT_FIRST, TRIAL_MAX);
        self.trial = trial.map(|it| (wait(it.wait), ago(it.age)));
        // Checks, limits and agents are none of ours.
        let others = [Cause::Check, Cause::SoftLimit, Cause::Agent];
        let ours = |it: &&LearnedEjection| !others.contains(&it.cause);
        let ejection = ejection.filter(ours);
        self.ejected = ejection.map(|it| Ejected {
            cause: it.cause,
            since: ago(it.age),
            wait: wait(it.wait),
            probe_at: now + it.left.min(wait(it.wait)),
            asked: None,
        });
    }

    /// Why it is out, if it is.
    pub(super) fn ejection(&self) -> Option<Ejection> {
        self.ejected.as_ref().map(|ejected| Ejection {
            cause: ejected.cause,
            since: ejected.since,
            until: ejected.probe_at,
        })
    }

    /// Whether a probe is under way or due some time.
    pub(super) fn wants_probe(&self) -> bool {
        self.ejected.is_some() || self.doubt.suspected.is_some()
    }

    /// Whether a probe is due; it is then under way.
    pub(super) fn poll_probe(&mut self, now: Timestamp) -> bool {
        let (due, asked) = match (&mut self.ejected, &mut self.doubt.suspected) {
            (Some(ejected), _) => (ejected.probe_at <= now, &mut ejected.asked),
            (None, Some(suspected)) => (true, &mut suspected.asked),
            (None, None) => return false,
        };
        let due = match asked {
            Some(at) => now.since(*at) >= PROBE_LOST,
            None => due,
        };
        if due {
            *asked = Some(now);
        }
        due
    }

    /// Probes it at the next occasion, if it is out and answered nothing before.
    pub(super) fn hurry(&mut self, now: Timestamp) {
        if let Some(ejected) = &mut self.ejected
            && ejected.cause != Cause::Errors
            && ejected.asked.is_none()
        {
            ejected.probe_at = now;
        }
    }

    /// A probe has ended. What changes by it, if anything does.
    pub(super) fn on_probe(
        &mut self,
        answered: bool,
        now: Timestamp,
        prng: &mut Prng,
    ) -> Option<Change> {
        let Some(ejected) = &mut self.ejected else {
            // A node that answers begins anew.
            self.forgiving |= answered;
            let cause = self.doubt.on_probe(answered, now)?;
            self.eject(cause, now, prng);
            return Some(Change::Ejected(cause));
        };
        if answered {
            if ejected.cause == Cause::Errors {
                self.trial = Some((ejected.wait, now));
            }
            self.forgiving = true;
            self.ejected = None;
            self.doubt.from = now;
            return Some(Change::Returned);
        }
        if ejected.cause == Cause::Errors {
            // Now it does not answer at all.
            self.eject(Cause::Failures, now, prng);
            return Some(Change::Ejected(Cause::Failures));
        }
        ejected.asked = None;
        ejected.wait = (ejected.wait * 2).min(WAIT_MAX);
        ejected.probe_at = now + jittered(ejected.wait, prng);
        None
    }

    /// The probe could not be sent. It says nothing, and is due again later.
    pub(super) fn on_unsent(&mut self, now: Timestamp, prng: &mut Prng) {
        match &mut self.ejected {
            Some(ejected) => {
                ejected.asked = None;
                ejected.probe_at = now + jittered(WAIT_MAX, prng);
            }
            None => self.doubt.on_unsent(now),
        }
    }

    fn eject(&mut self, cause: Cause, now: Timestamp, prng: &mut Prng) {
        let wait = match (cause, self.trial) {
            (Cause::Errors, Some((last, returned_at))) if now.since(returned_at) < last * 2 => {
                (last * 2).min(TRIAL_MAX)
            }
            (Cause::Errors, _) => TRIAL_FIRST,
            // Checks, limits and agents are none of ours.
            (
                Cause::Failures | Cause::Silence | Cause::Check | Cause::SoftLimit | Cause::Agent,
                _,
            ) => WAIT_FIRST,
        };
        self.doubt = Doubt::default();
        self.ejected = Some(Ejected {
            cause,
            since: now,
            wait,
            probe_at: now + jittered(wait, prng),
            asked: None,
        });
    }
}

/// What a probe changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Ejected(Cause),
    Returned,
}

impl Doubt {
    fn on_look(&mut self, seen: NodeSigns, now: Timestamp) {
        if seen.answers != self.answers || self.from == Timestamp::ZERO {
            self.answers = seen.answers;
            self.from = now;
            self.answered = 0;
            self.suspected = None;
        }
        self.streak = self.streak.min(seen.streak);
        let silent = seen.in_flight > 0 && now.since(self.from) >= self.patience(seen.latency);
        if seen.in_flight == 0 {
            self.from = now;
            self.suspected = self.suspected.filter(|it| it.cause != Cause::Silence);
        }
        if self.suspected.is_some() {
            return;
        }
        let rested = self.asked_at.is_none_or(|at| now.since(at) >= ASK_EVERY);
        let cause = match (seen.streak > self.streak && rested, silent) {
            (true, _) => Cause::Failures,
            (false, true) => Cause::Silence,
            (false, false) => return,
        };
        if cause == Cause::Failures {
            self.streak = seen.streak;
            self.asked_at = Some(now);
        }
        self.suspected = Some(Suspected { cause, asked: None });
    }

    fn patience(&self, latency: Duration) -> Duration {
        let usual = latency.saturating_mul(PATIENCE_LATENCIES);
        let doubled = usual
            .max(PATIENCE_MIN)
            .saturating_mul(1 << self.answered.min(8));
        doubled.min(PATIENCE_MAX)
    }

    /// The cause, if the node answers nothing indeed.
    fn on_probe(&mut self, answered: bool, now: Timestamp) -> Option<Cause> {
        // If something was answered meanwhile, it is not suspected any more.
        let suspected = self.suspected.take_if(|it| it.asked.is_some())?;
        if answered {
            self.answered += 1;
            self.from = now;
            return None;
        }
        Some(suspected.cause)
    }

    fn on_unsent(&mut self, now: Timestamp) {
        self.suspected = None;
        self.streak = 0;
        self.from = now;
    }
}

/// The wait, shortened by up to a half.
fn jittered(wait: Duration, prng: &mut Prng) -> Duration {
    wait.mul_f64(1.0 - 0.5 * prng.unit())
}
