//! Which atomics are carried out, exactly once each, and how many front-ends read. Pure: no socket,
//! and time comes in.
//!
//! A datagram may be lost, come twice, come late, or be recorded and sent again by an attacker.
//! An atomic must be carried out once all the same.
//!
//! * An initiator numbers its atomics with the node's clock, in nanoseconds, as it knows it from
//!   earlier answers: numbers grow per initiator and lie in the past of the node.
//! * A number older than [`AGE_MAX`] or more than [`AHEAD_MAX`] ahead is refused: whatever is
//!   recorded is worthless after that time, and no number blocks the ones of the future.
//! * The number and the answer of an initiator's last atomic are kept. The same number gets the
//!   same answer, however old it is; a smaller one is [`Status::Stale`].
//! * When the table is full the initiator with the oldest number makes room, once that number is
//!   older than [`AGE_MAX`]: copies of its atomics are too old from then on. Copies of atomics
//!   that were carried out change nothing in the table.
//! * Of an atomic that a card may or may not have carried out there is no answer, to none of its copies.
//! * A responder that restarts begins a new epoch, and carries out no atomic of another.
//! * A read counts as one of a front-end only if it carries the node's clock of the last
//!   [`READ_AGE_MAX`], which a first read cannot know and a recorded one no longer has.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_core::time::{Timestamp, nanos};

use super::wire::{Request, Status, Verb};
use crate::region::AGE_MAX;

/// Farthest that a number may lie ahead of the node's clock. Initiators count on from an answer,
/// so only a node that stood still for a while is behind their numbers.
pub(super) const AHEAD_MAX: Duration = Duration::from_millis(100);
/// Oldest clock in a read that counts as one of a front-end.
pub(super) const READ_AGE_MAX: Duration = Duration::from_secs(1);
/// Initiators of atomics that are kept.
pub(super) const INITIATORS_MAX: usize = 1024;
/// Readers that are distinguished within a second; more are not counted.
const READERS_MAX: usize = 1024;
/// Over this time readers are counted.
const READERS_WINDOW: Duration = Duration::from_secs(1);

/// Whether a number lies farther back than `age_max`.
fn is_too_old(sequence: u64, age_max: Duration, now: Timestamp) -> bool {
    sequence.saturating_add(nanos(age_max)) < now.nanos()
}

/// Whether a number lies too far ahead.
fn is_too_new(sequence: u64, now: Timestamp) -> bool {
    sequence > now.nanos().saturating_add(nanos(AHEAD_MAX))
}

/// Whether a read with this number proves that its front-end has lately had an answer.
pub(super) fn is_fresh(sequence: u64, now: Timestamp) -> bool {
    sequence != 0 && !is_too_old(sequence, READ_AGE_MAX, now) && !is_too_new(sequence, now)
}

/// Why what is asked once, and not again by a copy, is refused by its number alone.
pub(super) fn refused_by_age(sequence: u64, now: Timestamp) -> Option<Status> {
    if is_too_old(sequence, AGE_MAX, now) {
        Some(Status::TooOld)
    } else if is_too_new(sequence, now) {
        Some(Status::TooNew)
    } else {
        None
    }
}

/// What an atomic is, without what changes when it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    verb: Verb,
    word: u16,
    operand: u64,
    expected: u64,
}

/// How an atomic ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VerbOutcome {
    pub(crate) status: Status,
    pub(crate) value: u64,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    sequence: u64,
    operation: Operation,
    /// Nothing if it is not known.
    outcome: Option<VerbOutcome>,
}

/// What to do with an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicVerdict {
    /// Carry it out, then [`Initiators::keep`] how it ended.
    New,
    /// It was carried out before and ended like this.
    Repeated(VerbOutcome),
    /// It was begun before, and it is not known how it ended.
    Unknown,
    /// It is not carried out, with this status.
    Refused(Status),
}

/// The last atomic of every initiator.
#[derive(Debug, Default)]
pub(crate) struct Initiators {
    last: HashMap<u64, Last>,
}

impl Initiators {
    /// Judges an atomic; makes room for its initiator if it is to be carried out.
    pub(crate) fn judge(&mut self, request: &Request, now: Timestamp) -> AtomicVerdict {
        let last = self.last.get(&request.initiator);
        if let Some(last) = last
            && request.sequence <= last.sequence
        {
            let same = request.sequence == last.sequence && last.operation == operation(request);
            return match (same, last.outcome) {
                (true, Some(outcome)) => AtomicVerdict::Repeated(outcome),
                (true, None) => AtomicVerdict::Unknown,
                (false, _) => AtomicVerdict::Refused(Status::Stale),
            };
        }
        let known = last.is_some();
        if is_too_old(request.sequence, AGE_MAX, now) {
            return AtomicVerdict::Refused(Status::TooOld);
        }
        if is_too_new(request.sequence, now) {
            return AtomicVerdict::Refused(Status::TooNew);
        }
        if !known && self.last.len() >= INITIATORS_MAX && !self.forget_oldest(now) {
            return AtomicVerdict::Refused(Status::Full);
        }
        AtomicVerdict::New
    }

    /// Keeps how an atomic ended; nothing if that is not known.
    pub(crate) fn keep(&mut self, request: &Request, outcome: Option<VerbOutcome>) {
        let last = Last {
            sequence: request.sequence,
            operation: operation(request),
            outcome,
        };
        self.last.insert(request.initiator, last);
    }

    /// Forgets the initiator with the oldest number, if all copies of its atomics are too old.
    fn forget_oldest(&mut self, now: Timestamp) -> bool {
        let oldest = self.last.iter().min_by_key(|(_, last)| last.sequence);
        let Some((&initiator, &last)) = oldest else {
            return false;
        };
        let dead = is_too_old(last.sequence, AGE_MAX, now);
        if dead {
            self.last.remove(&initiator);
        }
        dead
    }
}

fn operation(request: &Request) -> Operation {
    Operation {
        verb: request.verb,
        word: request.word,
        operand: request.operand,
        expected: request.expected,
    }
}

/// How many initiators read within the last second. Open addressing, a cache line or two per
/// read, no allocation.
#[derive(Debug)]
pub(super) struct Readers {
    slots: Box<[Reader]>,
    window: u64,
    now_count: u32,
    last_count: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    initiator: u64,
    /// The window in which it was seen last; 0: never.
    window: u64,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            // Twice the readers, so that the search stays short.
            slots: vec![Reader::default(); 2 * READERS_MAX].into(),
            window: 0,
            now_count: 0,
            last_count: 0,
        }
    }
}

impl Readers {
    /// Counts a read; gives the number of readers: those of this second so far or of the last,
    /// whichever are more.
    pub(super) fn note(&mut self, initiator: u64, now: Timestamp) -> u32 {
        self.turn(now);
        let mut at = initiator.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize;
        let mut free = None;
        for _ in 0..self.slots.len() {
            at %= self.slots.len();
            let slot = &mut self.slots[at];
            if slot.window != 0 && slot.initiator == initiator {
                if slot.window != self.window {
                    slot.window = self.window;
                    self.now_count += 1;
                }
                return self.count();
            }
            // One that was not seen for two windows makes room, and is none behind which
            // others may stand: those would have been put into its place.
            if slot.window + 1 < self.window && free.is_none() {
                free = Some(at);
            }
            if slot.window == 0 {
                break;
            }
            at += 1;
        }
        if let (Some(free), true) = (free, (self.now_count as usize) < READERS_MAX) {
            self.slots[free] = Reader {
                initiator,
                window: self.window,
            };
            self.now_count += 1;
        }
        self.count()
    }

    /// The number of readers as of now.
    pub(super) fn current(&mut self, now: Timestamp) -> u32 {
        self.turn(now);
        self.count()
    }

    fn count(&self) -> u32 {
        self.now_count.max(self.last_count)
    }

    fn turn(&mut self, now: Timestamp) {
        let nanos = READERS_WINDOW.as_nanos() as u64;
        // Begins at 2, so that a slot never seen (0) is older than any window.
        let window = now.nanos() / nanos + 2;
        if window != self.window {
            self.last_count = if window == self.window + 1 {
                self.now_count
            } else {
                0
            };
            self.now_count = 0;
            self.window = window;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: VerbOutcome = VerbOutcome {
        status: Status::Done,
        value: 5,
    };
    const TOO_OLD: AtomicVerdict = AtomicVerdict::Refused(Status::TooOld);
    const TOO_NEW: AtomicVerdict = AtomicVerdict::Refused(Status::TooNew);
    const STALE: AtomicVerdict = AtomicVerdict::Refused(Status::Stale);

    /// An addition that its initiator numbers at this millisecond of the node's clock.
    fn add(initiator: u64, ms: u64) -> Request {
        Request {
            verb: Verb::FetchAndAdd,
            sequence: Timestamp::from_millis(ms).nanos(),
            operand: 1,
            ..Request::read(0, initiator, 1)
        }
    }

    fn at(seconds: u64) -> Timestamp {
        ms(seconds * 1000)
    }

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn an_atomic_is_carried_out_once_and_its_answer_kept() {
        let mut initiators = Initiators::default();
        assert_eq!(
            initiators.judge(&add(1, 1000), ms(1000)),
            AtomicVerdict::New
        );
        initiators.keep(&add(1, 1000), Some(DONE));
        for later in [1000, 1001, 61_000] {
            assert_eq!(
                initiators.judge(&add(1, 1000), ms(later)),
                AtomicVerdict::Repeated(DONE)
            );
        }
        assert_eq!(initiators.judge(&add(1, 999), ms(1001)), STALE);
        let other = Request {
            operand: 2,
            ..add(1, 1000)
        };
        assert_eq!(initiators.judge(&other, ms(1001)), STALE);
        assert_eq!(
            initiators.judge(&add(1, 1001), ms(1001)),
            AtomicVerdict::New
        );
        assert_eq!(
            initiators.judge(&add(2, 1000), ms(1001)),
            AtomicVerdict::New
        );
    }

    #[test]
    fn an_atomic_of_unknown_fate_is_neither_answered_nor_carried_out_again() {
        let mut initiators = Initiators::default();
        let unknown = add(1, 1000);
        assert_eq!(initiators.judge(&unknown, ms(1000)), AtomicVerdict::New);
        initiators.keep(&unknown, None);
        for later in [1000, 1010, 61_000] {
            let verdict = initiators.judge(&unknown, ms(later));
            assert_eq!(verdict, AtomicVerdict::Unknown);
        }
        let next = initiators.judge(&add(1, 1001), ms(1001));
        assert_eq!(next, AtomicVerdict::New);
    }

    #[test]
    fn atomics_age_by_the_nodes_clock() {
        let now = at(100);
        let numbered = |sequence| Request {
            sequence,
            ..add(1, 0)
        };
        let (age, ahead) = (nanos(AGE_MAX), nanos(AHEAD_MAX));
        for (sequence, verdict) in [
            (0, TOO_OLD),
            (now.nanos() - 60_000_000_000, TOO_OLD),
            (now.nanos() - age - 1, TOO_OLD),
            (now.nanos() - age, AtomicVerdict::New),
            (now.nanos(), AtomicVerdict::New),
            (now.nanos() + ahead, AtomicVerdict::New),
            (now.nanos() + ahead + 1, TOO_NEW),
            (u64::MAX - 2, TOO_NEW),
            (u64::MAX, TOO_NEW),
        ] {
            let mut initiators = Initiators::default();
            assert_eq!(initiators.judge(&numbered(sequence), now), verdict);
            // An initiator that is known gets no more than a fresh one.
            let before = numbered(sequence.saturating_sub(1));
            initiators.keep(&before, Some(DONE));
            if sequence > 0 {
                assert_eq!(initiators.judge(&numbered(sequence), now), verdict);
            }
        }
    }

    /// As many initiators as there is room for, with numbers from a second of the clock on, a
    /// microsecond apart.
    fn full(second: u64) -> (Initiators, impl Fn(u64) -> Request) {
        let request = move |initiator: u64| Request {
            sequence: at(second).nanos() + initiator * 1000,
            ..add(initiator, 0)
        };
        let mut initiators = Initiators::default();
        for initiator in 0..INITIATORS_MAX as u64 {
            assert_eq!(
                initiators.judge(&request(initiator), ms(second * 1000 + 2)),
                AtomicVerdict::New
            );
            initiators.keep(&request(initiator), Some(DONE));
        }
        (initiators, request)
    }

    #[test]
    fn a_full_table_forgets_the_oldest_and_none_that_is_alive() {
        let (mut initiators, request) = full(1);
        let full = AtomicVerdict::Refused(Status::Full);
        assert_eq!(initiators.judge(&add(5000, 1200), ms(1200)), full);
        // Those that are known go on all the same.
        assert_eq!(
            initiators.judge(&add(7, 1200), ms(1200)),
            AtomicVerdict::New
        );
        assert_eq!(
            initiators.judge(&add(5000, 1201), ms(1201)),
            AtomicVerdict::New
        );
        initiators.keep(&add(5000, 1201), Some(DONE));
        assert_eq!(initiators.last.len(), INITIATORS_MAX);
        let gone: Vec<_> = (0..INITIATORS_MAX as u64)
            .filter(|known| !initiators.last.contains_key(known))
            .collect();
        assert_eq!(gone, [0]);
        // What was forgotten is too old to be carried out again.
        assert_eq!(initiators.judge(&request(0), ms(1201)), TOO_OLD);
    }

    #[test]
    fn replays_keep_no_initiator_in_the_table() {
        let (mut initiators, request) = full(1);
        for initiator in 0..INITIATORS_MAX as u64 {
            let replayed = initiators.judge(&request(initiator), at(60));
            assert_eq!(replayed, AtomicVerdict::Repeated(DONE));
        }
        for fresh in 5000..6000 {
            let request = add(fresh, 60_000);
            assert_eq!(initiators.judge(&request, at(60)), AtomicVerdict::New);
            initiators.keep(&request, Some(DONE));
        }
    }

    #[test]
    fn numbers_of_the_future_block_no_fresh_front_end() {
        let mut initiators = Initiators::default();
        for initiator in 0..INITIATORS_MAX as u64 {
            let request = Request {
                sequence: u64::MAX - 2,
                ..add(initiator, 0)
            };
            assert_eq!(initiators.judge(&request, at(1)), TOO_NEW);
        }
        assert_eq!(
            initiators.judge(&add(5000, 1000), at(1)),
            AtomicVerdict::New
        );
    }

    #[test]
    fn only_a_read_with_the_clock_of_now_counts() {
        let now = at(100);
        for (sent, fresh) in [
            (0, false),
            (98_999, false),
            (99_000, true),
            (100_100, true),
            (100_101, false),
        ] {
            let sequence = Timestamp::from_millis(sent).nanos();
            assert_eq!(is_fresh(sequence, now), fresh, "{sent}");
        }
    }

    #[test]
    fn readers_are_those_of_the_last_second() {
        let mut readers = Readers::default();
        for initiator in 1..=5 {
            for _ in 0..3 {
                readers.note(initiator, at(1));
            }
        }
        assert_eq!(readers.current(at(1)), 5);
        // The next second has begun; those of the last one count until it has more.
        assert_eq!(readers.note(1, at(2)), 5);
        assert_eq!(readers.note(1, at(3)), 1);
        assert_eq!(readers.current(at(9)), 0);
    }

    #[test]
    fn more_readers_than_there_is_room_for_do_no_harm() {
        let mut readers = Readers::default();
        for second in 1..4 {
            for initiator in 0..5000 {
                readers.note(initiator + second * 10_000, at(second));
            }
            assert_eq!(readers.current(at(second)), READERS_MAX as u32);
        }
        assert_eq!(readers.note(7, at(9)), 1);
    }
}
