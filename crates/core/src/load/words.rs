//! How the director gets at a node's shared words: a letter box between it and the node's reader.
//!
//! ```text
//!  director ── ask ──> [ ticket, verb, word, operand, expected ] ──> reader ──> the node's region
//!  director <─ answered ── [ ticket, value that the word held, node's clock ] <── answer ── reader
//! ```
//!
//! One question is under way at a time. The director never waits: it looks for the answer at its
//! next tick. A question that is not taken costs nothing; its asker notices that no answer comes.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::time::Timestamp;

/// An atomic on a node's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordOp {
    /// Adds to it, wrapping.
    FetchAndAdd {
        /// Which word.
        word: u32,
        /// What is added.
        delta: u64,
    },
    /// Sets it, if it holds what is expected.
    CompareAndSwap {
        /// Which word.
        word: u32,
        /// What it must hold.
        expected: u64,
        /// What it is set to.
        new: u64,
    },
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordRequest {
    /// Its number, never 0.
    pub ticket: u32,
    /// What is wanted.
    pub op: WordOp,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordReply {
    /// It was done.
    Done {
        /// What the word held before.
        held: u64,
        /// The node's clock then.
        node_now: Timestamp,
    },
    /// It was not done, or the words have begun anew since: nothing of ours is in them.
    Lost,
}

const ADD: u32 = 0;
const SWAP: u32 = 1;
const DONE: u32 = 0;
const LOST: u32 = 1;

/// What front-ends have agreed upon at a node, by its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Slots that all of them hold.
    pub held: u32,
    /// How many there are for all.
    pub limit: u32,
}

/// See the module. One thread asks, one answers.
#[derive(Debug, Default)]
pub(super) struct WordBox {
    asked: AtomicU32,
    verb: AtomicU32,
    word: AtomicU32,
    operand: AtomicU64,
    expected: AtomicU64,
    answered: AtomicU32,
    status: AtomicU32,
    held: AtomicU64,
    node_now: AtomicU64,
    /// What came of it: held and limit, from 1; 0: nothing is agreed.
    agreed: AtomicU64,
}

impl WordBox {
    /// Puts a question in; the last one has been answered, or given up for good.
    pub(super) fn ask(&self, op: WordOp) -> u32 {
        let put = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        let (verb, word) = match op {
            WordOp::FetchAndAdd { word, delta } => {
                put(&self.operand, delta);
                (ADD, word)
            }
            WordOp::CompareAndSwap {
                word,
                expected,
                new,
            } => {
                put(&self.operand, new);
                put(&self.expected, expected);
                (SWAP, word)
            }
        };
        self.verb.store(verb, Ordering::Relaxed);
        self.word.store(word, Ordering::Relaxed);
        let ticket = self.asked.load(Ordering::Relaxed).wrapping_add(1).max(1);
        self.asked.store(ticket, Ordering::Release);
        ticket
    }

    /// The question that has not been answered yet.
    #[inline]
    pub(super) fn asked(&self) -> Option<WordRequest> {
        let ticket = self.asked.load(Ordering::Acquire);
        if ticket == self.answered.load(Ordering::Relaxed) {
            return None;
        }
        let word = self.word.load(Ordering::Relaxed);
        let operand = self.operand.load(Ordering::Relaxed);
        let op = match self.verb.load(Ordering::Relaxed) {
            ADD => WordOp::FetchAndAdd {
                word,
                delta: operand,
            },
            _ => WordOp::CompareAndSwap {
                word,
                expected: self.expected.load(Ordering::Relaxed),
                new: operand,
            },
        };
        Some(WordRequest { ticket, op })
    }

    /// Answers it.
    pub(super) fn answer(&self, ticket: u32, reply: WordReply) {
        let status = match reply {
            WordReply::Done { held, node_now } => {
                self.held.store(held, Ordering::Relaxed);
                self.node_now.store(node_now.nanos(), Ordering::Relaxed);
                DONE
            }
            WordReply::Lost => LOST,
        };
        self.status.store(status, Ordering::Relaxed);
        self.answered.store(ticket, Ordering::Release);
    }

    /// Publishes what is agreed, if anything is.
    pub(super) fn set_agreed(&self, agreed: Option<Agreed>) {
        let word = agreed.map_or(0, |it| {
            ((u64::from(it.held) << 32) | u64::from(it.limit)).saturating_add(1)
        });
        self.agreed.store(word, Ordering::Relaxed);
    }

    /// What is agreed, if anything is.
    pub(super) fn agreed(&self) -> Option<Agreed> {
        let word = self.agreed.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Agreed {
            held: (word >> 32) as u32,
            limit: word as u32,
        })
    }

    /// The answer to this question, if it is here.
    pub(super) fn answered(&self, ticket: u32) -> Option<WordReply> {
        if self.answered.load(Ordering::Acquire) != ticket {
            return None;
        }
        Some(match self.status.load(Ordering::Relaxed) {
            DONE => WordReply::Done {
                held: self.held.load(Ordering::Relaxed),
                node_now: Timestamp::from_nanos(self.node_now.load(Ordering::Relaxed)),
            },
            _ => WordReply::Lost,
        })
    }
}

/// A node's word 0, which every read tells beside the record. What it held, and when the read was sent, are each
/// whole by themselves; the time is never later than what it belongs to.
#[derive(Debug, Default)]
pub(super) struct FirstWord {
    held: AtomicU64,
    /// 0: nothing was read yet.
    sent_at: AtomicU64,
}

impl FirstWord {
    /// Written by the node's reader alone. Whether it is another one than before.
    pub(super) fn note(&self, held: u64, sent_at: Timestamp) -> bool {
        let before = self.get();
        self.held.store(held, Ordering::Release);
        self.sent_at.store(sent_at.nanos(), Ordering::Release);
        before.is_none_or(|(before, _)| before != held)
    }

    /// Another node has the place.
    pub(super) fn clear(&self) {
        self.sent_at.store(0, Ordering::Release);
    }

    pub(super) fn get(&self) -> Option<(u64, Timestamp)> {
        let sent_at = self.sent_at.load(Ordering::Acquire);
        let held = self.held.load(Ordering::Acquire);
        (sent_at != 0).then_some((held, Timestamp::from_nanos(sent_at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_0_is_what_the_last_read_found() {
        let word = FirstWord::default();
        assert_eq!(word.get(), None);
        assert!(word.note(7, Timestamp::from_millis(5)), "the first one");
        assert_eq!(word.get(), Some((7, Timestamp::from_millis(5))));
        assert!(!word.note(7, Timestamp::from_millis(6)));
        assert!(word.note(8, Timestamp::from_millis(7)));
        word.clear();
        assert_eq!(word.get(), None);
        assert!(word.note(8, Timestamp::from_millis(8)), "another node's");
    }

    #[test]
    fn a_question_is_answered_once() {
        let letters = WordBox::default();
        assert_eq!(letters.asked(), None);
        let op = WordOp::FetchAndAdd {
            word: 60,
            delta: u64::MAX,
        };
        let ticket = letters.ask(op);
        assert_eq!(letters.asked(), Some(WordRequest { ticket, op }));
        assert_eq!(letters.answered(ticket), None);
        let reply = WordReply::Done {
            held: 7,
            node_now: Timestamp::from_millis(5),
        };
        letters.answer(ticket, reply);
        assert_eq!(letters.asked(), None);
        assert_eq!(letters.answered(ticket), Some(reply));
        let op = WordOp::CompareAndSwap {
            word: 61,
            expected: 1,
            new: 0,
        };
        let next = letters.ask(op);
        assert_eq!(letters.answered(next), None);
        assert_eq!(letters.asked(), Some(WordRequest { ticket: next, op }));
        letters.answer(next, WordReply::Lost);
        assert_eq!(letters.answered(next), Some(WordReply::Lost));
        for agreed in [
            None,
            Some(Agreed { held: 0, limit: 0 }),
            Some(Agreed { held: 7, limit: 5 }),
        ] {
            letters.set_agreed(agreed);
            assert_eq!(letters.agreed(), agreed);
        }
    }
}
