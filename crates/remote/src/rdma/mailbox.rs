//! One atomic at a time between threads that ask for it and the one that has the queue pair. Pure: time comes in.
//!
//! ```text
//! free ──ask──> asked ──take──> taken ──finish──> done ──fetch──> free
//!                 │               └─ leave: nothing is known of it; free once it is finished
//!                 └─ leave, or its deadline before it is taken: it was not carried out
//! down: no queue pair stands. What is asked is refused at once, and so it is while one that was left is under way
//! ```
//!
//! Failure case: a thread that never finishes what it took. All that is asked afterwards is refused.

use tidegate_core::time::Timestamp;

use crate::memory::words::{NotChanged, WordChange};

/// What became of an atomic.
pub(super) type Fate = Result<u64, NotChanged>;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AskedChange {
    pub(super) word: u32,
    pub(super) change: WordChange,
    /// It is not begun later.
    pub(super) deadline: Timestamp,
}

/// What comes of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    /// Its number.
    Numbered(u64),
    /// Another one is under way: ask again.
    Busy,
    /// It is not carried out.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free,
    Asked(AskedChange),
    Taken { is_left: bool },
    Done(Fate),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Mailbox {
    place: Place,
    /// Of what is in the place.
    number: u64,
    is_up: bool,
}

impl Mailbox {
    /// Without a queue pair yet.
    pub(super) fn new() -> Self {
        Self {
            place: Place::Free,
            number: 0,
            is_up: false,
        }
    }

    /// Asks for something.
    pub(super) fn ask(&mut self, asked: AskedChange) -> Asking {
        match self.place {
            Place::Taken { is_left: true } => Asking::Refused,
            _ if !self.is_up => Asking::Refused,
            Place::Asked(_) | Place::Taken { is_left: false } | Place::Done(_) => Asking::Busy,
            Place::Free => {
                self.number += 1;
                self.place = Place::Asked(asked);
                Asking::Numbered(self.number)
            }
        }
    }

    /// What became of the one with this number, once that is known.
    pub(super) fn fetch(&mut self, number: u64) -> Option<Fate> {
        match self.place {
            Place::Done(fate) if number == self.number => {
                self.place = Place::Free;
                Some(fate)
            }
            Place::Free | Place::Asked(_) | Place::Taken { .. } | Place::Done(_) => None,
        }
    }

    /// The asker of this number waits no longer.
    pub(super) fn leave(&mut self, number: u64) -> Fate {
        if let Some(fate) = self.fetch(number) {
            return fate;
        }
        match self.place {
            Place::Asked(_) if number == self.number => {
                self.place = Place::Free;
                Err(NotChanged::NotNow)
            }
            Place::Taken { .. } if number == self.number => {
                self.place = Place::Taken { is_left: true };
                Err(NotChanged::Unknown)
            }
            Place::Free | Place::Asked(_) | Place::Taken { .. } | Place::Done(_) => {
                Err(NotChanged::Unknown)
            }
        }
    }

    /// The next one, which is carried out now.
    pub(super) fn take(&mut self, now: Timestamp) -> Option<AskedChange> {
        let Place::Asked(asked) = self.place else {
            return None;
        };
        if now >= asked.deadline {
            self.place = Place::Done(Err(NotChanged::NotNow));
            return None;
        }
        self.place = Place::Taken { is_left: false };
        Some(asked)
    }

    /// What became of the one that was taken. What may have broken the queue pair takes it down.
    pub(super) fn finish(&mut self, fate: Fate) {
        match self.place {
            Place::Taken { is_left: false } => self.place = Place::Done(fate),
            Place::Taken { is_left: true } => self.place = Place::Free,
            Place::Free | Place::Asked(_) | Place::Done(_) => {}
        }
        self.is_up = fate.is_ok();
    }

    /// A queue pair stands.
    pub(super) fn is_up(&mut self) {
        self.is_up = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000 + us * 1000)
    }

    /// One of this word that is to be begun within ten microseconds.
    fn asked(word: u32) -> AskedChange {
        AskedChange {
            word,
            change: WordChange::NOTHING,
            deadline: at(10),
        }
    }

    fn up() -> Mailbox {
        let mut mailbox = Mailbox::new();
        assert_eq!(mailbox.ask(asked(0)), Asking::Refused, "no queue pair");
        mailbox.is_up();
        mailbox
    }

    #[test]
    fn one_after_the_other_is_carried_out() {
        let mut mailbox = up();
        for number in 1..4 {
            assert_eq!(mailbox.take(at(0)), None);
            assert_eq!(mailbox.ask(asked(7)), Asking::Numbered(number));
            assert_eq!(mailbox.ask(asked(8)), Asking::Busy);
            assert_eq!(mailbox.fetch(number), None);
            assert_eq!(mailbox.take(at(9)), Some(asked(7)));
            assert_eq!(mailbox.take(at(9)), None, "it is taken once");
            assert_eq!(mailbox.ask(asked(8)), Asking::Busy);
            mailbox.finish(Ok(40));
            assert_eq!(mailbox.ask(asked(8)), Asking::Busy, "it is not fetched yet");
            assert_eq!(mailbox.fetch(number + 1), None, "another's");
            assert_eq!(mailbox.fetch(number), Some(Ok(40)));
            assert_eq!(mailbox.fetch(number), None);
        }
    }

    #[test]
    fn what_was_not_begun_is_not_carried_out_any_more() {
        let mut mailbox = up();
        assert_eq!(mailbox.ask(asked(7)), Asking::Numbered(1));
        assert_eq!(mailbox.leave(1), Err(NotChanged::NotNow));
        assert_eq!(mailbox.take(at(0)), None);
        // Its thread comes too late, and its asker has not noticed.
        assert_eq!(mailbox.ask(asked(7)), Asking::Numbered(2));
        assert_eq!(mailbox.take(at(10)), None);
        assert_eq!(mailbox.leave(2), Err(NotChanged::NotNow));
        assert_eq!(mailbox.ask(asked(7)), Asking::Numbered(3));
    }

    #[test]
    fn of_what_is_left_nothing_is_known_and_none_waits_behind_it() {
        let mut mailbox = up();
        assert_eq!(mailbox.ask(asked(7)), Asking::Numbered(1));
        assert!(mailbox.take(at(0)).is_some());
        assert_eq!(mailbox.leave(1), Err(NotChanged::Unknown));
        assert_eq!(mailbox.ask(asked(8)), Asking::Refused);
        mailbox.finish(Ok(3));
        // The next one does not get its answer.
        assert_eq!(mailbox.ask(asked(8)), Asking::Numbered(2));
        assert_eq!(mailbox.fetch(2), None);
        assert_eq!(mailbox.leave(1), Err(NotChanged::Unknown));
        assert_eq!(mailbox.take(at(0)), Some(asked(8)));
    }

    #[test]
    fn what_comes_at_the_last_moment_is_given_out() {
        let mut mailbox = up();
        mailbox.ask(asked(7));
        mailbox.take(at(0));
        mailbox.finish(Ok(3));
        assert_eq!(mailbox.leave(1), Ok(3));
    }

    #[test]
    fn after_a_failure_all_is_refused_until_a_queue_pair_stands() {
        let mut mailbox = up();
        mailbox.ask(asked(7));
        mailbox.take(at(0));
        mailbox.finish(Err(NotChanged::Unknown));
        assert_eq!(mailbox.fetch(1), Some(Err(NotChanged::Unknown)));
        assert_eq!(mailbox.ask(asked(7)), Asking::Refused);
        mailbox.is_up();
        assert_eq!(mailbox.ask(asked(7)), Asking::Numbered(2));
    }
}
