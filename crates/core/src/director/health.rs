//! Passive ejection: nodes that fail in a row, or fall silent, get no requests until they answer
//! a probe.
//!
//! ```text
//!          3 transport failures in a row               probe answered
//!   Up ────────────────────────────────────> Ejected ───────────────────> Up
//!   │ ^                                       ^  ^ │
//!   │ │ anything answered                     │  └─┘ probe failed: wait twice as long
//!   v │                          probe failed │
//!   Suspected ────────────────────────────────┘
//!
//! Up -> Suspected: requests under way, and nothing came back for max(500 ms, 10 mean latencies)
//! ```
//!
//! A process that hangs fails nothing: its kernel accepts connections and no answer comes. What
//! clients give up is no proof either, they may have been impatient. So silence only *asks*: the
//! node is probed while it is in use, and is out if it does not answer the probe. A node that
//! answers has one long request, and is asked half as often from then on until it answers that.
//!
//! A server error is an answer and ejects nobody. Ejection **fails open**: if more than half
//! of a site's ready nodes are out, experience is not believed (the fault is likely ours, or the
//! network's) and all of them are used. One of two may be out: many sites have two nodes. Waits are jittered by up to a half so that many
//! front-ends do not probe in step, and end at two seconds: a dead node costs each front-end a
//! refused connection a second, and one that is back is waited for no longer.

use std::time::Duration;

use crate::prng::Prng;
use crate::time::Timestamp;

/// Failures in a row that eject. Two happen by chance when a server is restarted.
const STREAK: u64 = 3;
/// First wait before a probe, and the longest one.
const WAIT_FIRST: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(2);
/// A shell that never answers a probe is asked again after this.
const PROBE_LOST: Duration = Duration::from_secs(30);
/// Silence that is suspicious: so long, and so many times what a request takes.
const PATIENCE_MIN: Duration = Duration::from_millis(500);
const PATIENCE_LATENCIES: u32 = 10;
/// Longest silence between two probes of a node in use.
const PATIENCE_MAX: Duration = Duration::from_secs(15);

/// Whether ejections are ignored: with more than half of the ready nodes out.
pub(super) fn fail_open(up: usize, ready: usize) -> bool {
    up * 2 < ready
}

/// Why a node was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Too many transport failures in a row.
    Failures,
    /// Requests were under way, and neither they nor a probe were answered.
    Silence,
}

/// What has become of a node's requests by now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Transport failures in a row.
    pub(super) streak: u64,
    /// Answers and failures so far.
    pub(super) outcomes: u64,
    /// Own requests under way.
    pub(super) in_flight: u64,
    /// Mean latency of the answers.
    pub(super) latency: Duration,
}

/// What is remembered of one node.
#[derive(Debug, Default)]
pub(super) struct NodeHealth {
    ejected: Option<Ejected>,
    /// Streak at the last return: only failures since then count.
    forgiven: u64,
    silence: Silence,
}

#[derive(Debug)]
struct Ejected {
    streak: u64,
    wait: Duration,
    probe_at: Timestamp,
}

/// How long nothing has come back.
#[derive(Debug, Default)]
struct Silence {
    outcomes: u64,
    /// When something came last, or nothing was under way, or a probe was answered.
    from: Timestamp,
    /// Probes answered since anything else was.
    answered: u32,
    suspected: Option<Suspected>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspected {
    Unasked,
    /// A probe is under way since then.
    Asked(Timestamp),
}

impl NodeHealth {
    /// Takes in how the node's requests do. The cause, if that ejects it now.
    pub(super) fn on_look(&mut self, seen: Seen, now: Timestamp, prng: &mut Prng) -> Option<Cause> {
        if seen.streak < self.forgiven {
            self.forgiven = 0;
        }
        if let Some(ejected) = &mut self.ejected {
            // Failures of requests that were under way when it was ejected.
            ejected.streak = seen.streak;
            return None;
        }
        self.silence.on_look(seen, now);
        if seen.streak < self.forgiven + STREAK {
            return None;
        }
        self.eject(seen.streak, now, prng);
        Some(Cause::Failures)
    }

    /// Whether a probe is under way or due some time.
    pub(super) fn wants_probe(&self) -> bool {
        self.ejected.is_some() || self.silence.suspected.is_some()
    }

    /// Whether a probe is due; it is then under way.
    pub(super) fn poll_probe(&mut self, now: Timestamp) -> bool {
        match &mut self.ejected {
            Some(ejected) if ejected.probe_at <= now => {
                ejected.probe_at = now + PROBE_LOST;
                true
            }
            Some(_) => false,
            None => self.silence.poll_probe(now),
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
            let silent = self.silence.on_probe(answered, now);
            return silent.then(|| {
                self.eject(self.forgiven, now, prng);
                Change::Ejected(Cause::Silence)
            });
        };
        if answered {
            self.forgiven = ejected.streak;
            self.ejected = None;
            self.silence.from = now;
            return Some(Change::Returned);
        }
        ejected.wait = (ejected.wait * 2).min(WAIT_MAX);
        ejected.probe_at = now + jittered(ejected.wait, prng);
        None
    }

    /// The probe could not be sent: of an ejected node as good as failed, of one in use nothing.
    pub(super) fn on_unsent(&mut self, now: Timestamp, prng: &mut Prng) {
        if self.ejected.is_some() {
            self.on_probe(false, now, prng);
        } else {
            self.silence.suspected = None;
            self.silence.from = now;
        }
    }

    fn eject(&mut self, streak: u64, now: Timestamp, prng: &mut Prng) {
        self.silence = Silence::default();
        self.ejected = Some(Ejected {
            streak,
            wait: WAIT_FIRST,
            probe_at: now + jittered(WAIT_FIRST, prng),
        });
    }
}

/// What a probe changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Ejected(Cause),
    Returned,
}

impl Silence {
    fn on_look(&mut self, seen: Seen, now: Timestamp) {
        if seen.outcomes != self.outcomes || self.from == Timestamp::ZERO {
            *self = Self {
                outcomes: seen.outcomes,
                from: now,
                ..Self::default()
            };
        } else if seen.in_flight == 0 {
            self.from = now;
            self.suspected = None;
        } else if self.suspected.is_none() && now.since(self.from) >= self.patience(seen.latency) {
            self.suspected = Some(Suspected::Unasked);
        }
    }

    fn patience(&self, latency: Duration) -> Duration {
        let usual = latency.saturating_mul(PATIENCE_LATENCIES);
        let doubled = usual
            .max(PATIENCE_MIN)
            .saturating_mul(1 << self.answered.min(8));
        doubled.min(PATIENCE_MAX)
    }

    fn poll_probe(&mut self, now: Timestamp) -> bool {
        let due = match self.suspected {
            Some(Suspected::Unasked) => true,
            Some(Suspected::Asked(at)) => now.since(at) >= PROBE_LOST,
            None => false,
        };
        if due {
            self.suspected = Some(Suspected::Asked(now));
        }
        due
    }

    /// True if the node is silent indeed.
    fn on_probe(&mut self, answered: bool, now: Timestamp) -> bool {
        let Some(Suspected::Asked(_)) = self.suspected.take() else {
            // Something was answered meanwhile.
            return false;
        };
        if answered {
            self.answered += 1;
            self.from = now;
        }
        !answered
    }
}

/// The wait, shortened by up to a half.
fn jittered(wait: Duration, prng: &mut Prng) -> Duration {
    wait.mul_f64(1.0 - 0.5 * prng.unit())
}
