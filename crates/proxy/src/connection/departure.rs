//! Whether a client that waits for its answer has left.
//!
//! A reset says so. The end of what it sends does not: a client may close its sending side and go on
//! reading (half-close), and to us that looks the same. Only something that is sent tells: a machine that
//! has closed answers it with a reset. So a client of HTTP/1.1 is sent an interim response, which every such
//! client must be able to read and may ignore (RFC 9110 §15.2).
//!
//! | the client has ended its sending, and its request | then |
//! |---|---|
//! | waits for its turn, HTTP/1.1 | a `100 (Continue)` is sent at once |
//! | waits for its turn, HTTP/1.0 | it has left: the turn is better spent on a client that is there |
//! | is at a node, HTTP/1.1 | the same interim response is sent, once the answer is slow |
//! | is at a node, HTTP/1.0 | it is answered |
//! | gets its answer, which had begun before the end | it has left, if nothing moves for a while: what is sent finds out otherwise |
//! | gets its answer, which had not | it is answered |
//!
//! A client that leaves says nothing of the node, but where that has stood still in the middle of an answer of known length
//! for as long as [`QUIET_TICKS`] by then: then it is the node that failed (`left_stalled`). An answer of unknown length may be a
//! stream of events, and rest.

use std::cell::Cell;

use super::{ClientConnection, Phase};
use crate::record::reason::Reason;

/// The interim response that finds out.
pub(crate) const PROBE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Ticks that a node may take before its client is asked. Most answers are there before.
const SLOW_TICKS: u64 = 50;
/// Ticks without a byte after which a client that left in the middle of its answer is given up.
const QUIET_TICKS: u64 = 100;
/// Ticks between two looks at a client that has sent more than its request.
pub(crate) const LOOK_TICKS: u64 = 5;

/// What becomes of the request meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestStage {
    /// It waits for its turn.
    Queued,
    /// It is at a node.
    Sent,
    /// Its answer is on its way.
    Answered {
        /// Ticks since something moved.
        quiet: u64,
    },
}

/// What is known of a client that has ended its sending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedSending {
    pub(crate) stage: RequestStage,
    /// It reads interim responses.
    pub(crate) reads_interim: bool,
    /// It was sent one.
    pub(crate) probed: bool,
    /// The answer had begun before.
    pub(crate) late: bool,
    /// Ticks since the end was seen.
    pub(crate) ticks: u64,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DepartureVerdict {
    Answer,
    Probe,
    Gone,
}

impl ClientConnection {
    /// Why the present request ends, if it is dropped now; `of_known_length` is its answer, if there is one.
    pub(crate) fn abandoned_for(&self, of_known_length: bool) -> Reason {
        let reason = self.abandon.get();
        let left_at = self.ended.get().map(|(since, _)| since);
        let left_at = left_at.unwrap_or_else(|| self.base.tick());
        let quiet = left_at.saturating_sub(self.moved.get());
        // Where no time runs a throttle has the answer wait.
        let stalls = self.phase() == Phase::Body
            && self.due.get() != NEVER
            && self.node_stands_still()
            && quiet >= QUIET_TICKS;
        match reason == Reason::ClientGone && of_known_length && stalls {
            true => Reason::LeftStalled,
            false => reason,
        }
    }
}

pub(crate) fn verdict(ended: EndedSending) -> DepartureVerdict {
    let asks = ended.reads_interim && !ended.probed;
    match ended.stage {
        RequestStage::Queued if !ended.reads_interim => DepartureVerdict::Gone,
        RequestStage::Queued if asks => DepartureVerdict::Probe,
        RequestStage::Sent if asks && ended.ticks >= SLOW_TICKS => DepartureVerdict::Probe,
        RequestStage::Answered { quiet } if ended.late && quiet.min(ended.ticks) >= QUIET_TICKS => {
            DepartureVerdict::Gone
        }
        RequestStage::Queued | RequestStage::Sent | RequestStage::Answered { .. } => {
            DepartureVerdict::Answer
        }
    }
}

/// Since when a client's answer is awaited of whose socket the reactor does not know, and so cannot say that the client leaves.
/// The reactor is to know of it once the answer takes longer than a tick: most are there before.
#[derive(Debug)]
pub(crate) struct Unseen(Cell<u64>);

impl Default for Unseen {
    fn default() -> Self {
        Self(Cell::new(NEVER))
    }
}

/// A tick that never comes.
const NEVER: u64 = u64::MAX;

impl Unseen {
    /// Whether it is so for longer than a tick; it begins with the first look.
    pub(crate) fn look(&self, tick: u64) -> bool {
        self.0.set(self.0.get().min(tick));
        self.is_long(tick)
    }

    /// The same, without a look.
    #[inline]
    pub(crate) fn is_long(&self, tick: u64) -> bool {
        self.0.get() < tick
    }

    /// It is so no longer.
    pub(crate) fn end(&self) {
        self.0.set(NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_unseen_for_a_tick_and_no_longer() {
        let unseen = Unseen::default();
        assert!(!unseen.is_long(7), "nothing is awaited");
        assert!(!unseen.look(7) && !unseen.look(7) && !unseen.is_long(7));
        assert!(unseen.is_long(8) && unseen.look(8));
        unseen.end();
        assert!(!unseen.is_long(9) && !unseen.look(9));
    }

    #[test]
    fn whoever_waits_is_asked_and_whoever_is_served_is_answered() {
        let queued = EndedSending {
            stage: RequestStage::Queued,
            reads_interim: true,
            probed: false,
            late: false,
            ticks: 0,
        };
        let stage = |stage| EndedSending { stage, ..queued };
        let sent = stage(RequestStage::Sent);
        let old = |ended| EndedSending {
            reads_interim: false,
            ..ended
        };
        let asked = |ended| EndedSending {
            probed: true,
            ..ended
        };
        let after = |ticks, ended| EndedSending { ticks, ..ended };
        let answered = |quiet, late| EndedSending {
            late,
            ..after(1000, stage(RequestStage::Answered { quiet }))
        };
        let cases = [
            (queued, DepartureVerdict::Probe),
            (asked(after(SLOW_TICKS, queued)), DepartureVerdict::Answer),
            (old(queued), DepartureVerdict::Gone),
            (sent, DepartureVerdict::Answer),
            (after(SLOW_TICKS, sent), DepartureVerdict::Probe),
            (asked(after(SLOW_TICKS, sent)), DepartureVerdict::Answer),
            (old(after(SLOW_TICKS, sent)), DepartureVerdict::Answer),
            (answered(QUIET_TICKS, false), DepartureVerdict::Answer),
            (answered(QUIET_TICKS - 1, true), DepartureVerdict::Answer),
            (answered(QUIET_TICKS, true), DepartureVerdict::Gone),
            (
                after(1, answered(QUIET_TICKS, true)),
                DepartureVerdict::Answer,
            ),
        ];
        for (ended, expected) in cases {
            assert_eq!(verdict(ended), expected, "{ended:?}");
        }
    }
}
