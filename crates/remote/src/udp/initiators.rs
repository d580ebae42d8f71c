//! Who has asked: exactly-once for atomics, and how many front-ends read. Pure: no socket, and
//! time comes in.
//!
//! A datagram may be lost, come twice, come late, or be recorded and sent again by somebody
//! else. An atomic must be carried out once all the same.
//!
//! * An initiator numbers its atomics with the node's clock, in nanoseconds, as it knows it from
//!   earlier answers: numbers grow per initiator and always lie in the past of the node.
//! * The number and the answer of its last atomic are kept. The same number gets the same
//!   answer; a smaller one is [`Verdict::Stale`].
//! * An initiator that has been silent for [`EXPIRY`] may be forgotten when room is needed. All
//!   numbers up to its last are then of the past for everybody (the floor): a recorded atomic
//!   is either known or below the floor. As initiators wait some milliseconds for an answer
//!   and not [`EXPIRY`], none loses an answer by it.
//! * A responder that restarts begins a new epoch, and carries out no atomic of another.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::wire::{Request, Status, Verb};

/// Initiators of atomics that are kept.
const INITIATORS_MAX: usize = 1024;
/// Silence after which an initiator may be forgotten.
const EXPIRY: Duration = Duration::from_secs(60);
/// Readers that are told apart within a second; more are not counted.
const READERS_MAX: usize = 1024;
/// Over this time readers are counted.
const READERS_WINDOW: Duration = Duration::from_secs(1);

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
pub(super) struct Outcome {
    pub(super) status: Status,
    pub(super) value: u64,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    sequence: u64,
    operation: Operation,
    outcome: Outcome,
    at: Timestamp,
}

/// What to do with an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Carry it out, then [`Initiators::keep`] how it ended.
    New,
    /// It was carried out before and ended like this.
    Repeated(Outcome),
    /// It is one of the past.
    Stale,
    /// There is no room for another initiator.
    Full,
}

/// The last atomic of every initiator.
#[derive(Debug, Default)]
pub(super) struct Initiators {
    last: HashMap<u64, Last>,
    /// Numbers up to here are of the past for initiators that are not known.
    floor: u64,
}

impl Initiators {
    /// Judges an atomic; makes room for its initiator if it is to be carried out.
    pub(super) fn judge(&mut self, request: &Request, now: Timestamp) -> Verdict {
        if let Some(last) = self.last.get_mut(&request.initiator) {
            last.at = now;
            return match request.sequence {
                same if same == last.sequence && last.operation == operation(request) => {
                    Verdict::Repeated(last.outcome)
                }
                newer if newer > last.sequence => Verdict::New,
                _ => Verdict::Stale,
            };
        }
        if request.sequence <= self.floor {
            return Verdict::Stale;
        }
        if self.last.len() >= INITIATORS_MAX && !self.forget_one(now) {
            return Verdict::Full;
        }
        Verdict::New
    }

    /// Keeps how an atomic ended.
    pub(super) fn keep(&mut self, request: &Request, outcome: Outcome, now: Timestamp) {
        let last = Last {
            sequence: request.sequence,
            operation: operation(request),
            outcome,
            at: now,
        };
        self.last.insert(request.initiator, last);
    }

    /// Forgets the initiator that has been silent for longest, if it may be.
    fn forget_one(&mut self, now: Timestamp) -> bool {
        let oldest = self.last.iter().min_by_key(|(_, last)| last.at);
        let Some((&initiator, &last)) = oldest else {
            return false;
        };
        if now.since(last.at) < EXPIRY {
            return false;
        }
        self.floor = self.floor.max(last.sequence);
        self.last.remove(&initiator);
        true
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

    const DONE: Outcome = Outcome {
        status: Status::Done,
        value: 5,
    };

    fn add(initiator: u64, sequence: u64) -> Request {
        Request {
            verb: Verb::FetchAndAdd,
            sequence,
            operand: 1,
            ..Request::read(0, initiator, 1)
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn an_atomic_is_carried_out_once_and_its_answer_kept() {
        let mut initiators = Initiators::default();
        assert_eq!(initiators.judge(&add(1, 10), at(1)), Verdict::New);
        initiators.keep(&add(1, 10), DONE, at(1));
        assert_eq!(
            initiators.judge(&add(1, 10), at(2)),
            Verdict::Repeated(DONE)
        );
        assert_eq!(initiators.judge(&add(1, 9), at(2)), Verdict::Stale);
        let other = Request {
            operand: 2,
            ..add(1, 10)
        };
        assert_eq!(initiators.judge(&other, at(2)), Verdict::Stale);
        assert_eq!(initiators.judge(&add(1, 11), at(2)), Verdict::New);
        assert_eq!(initiators.judge(&add(2, 10), at(2)), Verdict::New);
    }

    #[test]
    fn what_was_forgotten_can_not_be_replayed() {
        let mut initiators = Initiators::default();
        for initiator in 0..INITIATORS_MAX as u64 {
            let request = add(initiator, 100 + initiator);
            assert_eq!(initiators.judge(&request, at(1)), Verdict::New);
            initiators.keep(&request, DONE, at(1));
        }
        let late = add(u64::MAX, 5000);
        assert_eq!(initiators.judge(&late, at(60)), Verdict::Full);
        // One of them is heard of again, and is not the one to go.
        initiators.judge(&add(0, 100), at(60));
        assert_eq!(initiators.judge(&late, at(61)), Verdict::New);
        initiators.keep(&late, DONE, at(61));
        assert_eq!(
            initiators.judge(&add(0, 100), at(61)),
            Verdict::Repeated(DONE)
        );
        let gone = (1..INITIATORS_MAX as u64).find(|known| !initiators.last.contains_key(known));
        let gone = gone.unwrap();
        assert_eq!(
            initiators.judge(&add(gone, 100 + gone), at(61)),
            Verdict::Stale
        );
        assert_eq!(initiators.last.len(), INITIATORS_MAX);
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
