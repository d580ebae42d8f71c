//! Passive ejection: nodes that fail in a row get no requests until they answer a probe.
//!
//! ```text
//!           3 transport failures in a row              probe answered
//!   Up ───────────────────────────────────> Ejected ───────────────────> Up
//!                                             │  ^
//!                                             └──┘ probe failed: wait twice as long
//! ```
//!
//! A server error is an answer and ejects nobody. Ejection **fails open**: if more than half
//! of a site's ready nodes are out, experience is not believed (the fault is likely ours, or the
//! network's) and all of them are used. One of two may be out: many sites have two nodes. Waits are jittered by up to a half so that many
//! front-ends do not probe in step.

use std::time::Duration;

use crate::prng::Prng;
use crate::time::Timestamp;

/// Failures in a row that eject. Two happen by chance when a server is restarted.
const STREAK: u64 = 3;
/// First wait before a probe, and the longest one.
const WAIT_FIRST: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(15);
/// A shell that never answers a probe is asked again after this.
const PROBE_LOST: Duration = Duration::from_secs(30);

/// Whether ejections are ignored: with more than half of the ready nodes out.
pub(super) fn fail_open(up: usize, ready: usize) -> bool {
    up * 2 < ready
}

/// What is remembered of one node.
#[derive(Debug, Default)]
pub(super) struct NodeHealth {
    ejected: Option<Ejected>,
    /// Streak at the last return: only failures since then count.
    forgiven: u64,
}

#[derive(Debug)]
struct Ejected {
    streak: u64,
    wait: Duration,
    probe_at: Timestamp,
}

impl NodeHealth {
    /// The node has failed `streak` times in a row. True if that ejects it now.
    pub(super) fn on_streak(&mut self, streak: u64, now: Timestamp, prng: &mut Prng) -> bool {
        if streak < self.forgiven {
            self.forgiven = 0;
        }
        if let Some(ejected) = &mut self.ejected {
            // Failures of requests that were under way when it was ejected.
            ejected.streak = streak;
            return false;
        }
        if streak < self.forgiven + STREAK {
            return false;
        }
        let probe_at = now + jittered(WAIT_FIRST, prng);
        self.ejected = Some(Ejected {
            streak,
            wait: WAIT_FIRST,
            probe_at,
        });
        true
    }

    /// Whether a probe is due; it is then under way.
    pub(super) fn poll_probe(&mut self, now: Timestamp) -> bool {
        match &mut self.ejected {
            Some(ejected) if ejected.probe_at <= now => {
                ejected.probe_at = now + PROBE_LOST;
                true
            }
            _ => false,
        }
    }

    /// A probe has ended. True if the node is back.
    pub(super) fn on_probe(&mut self, answered: bool, now: Timestamp, prng: &mut Prng) -> bool {
        let Some(ejected) = &mut self.ejected else {
            return false;
        };
        if answered {
            self.forgiven = ejected.streak;
            self.ejected = None;
            return true;
        }
        ejected.wait = (ejected.wait * 2).min(WAIT_MAX);
        ejected.probe_at = now + jittered(ejected.wait, prng);
        false
    }
}

/// The wait, shortened by up to a half.
fn jittered(wait: Duration, prng: &mut Prng) -> Duration {
    wait.mul_f64(1.0 - 0.5 * prng.unit())
}
