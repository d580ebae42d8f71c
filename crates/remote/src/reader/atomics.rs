//! Atomics on one node's words, as the director asks for them. Pure: time and answers come in.
//!
//! ```text
//! asked ──(a link to the node stands, and grants its words)──> posted behind the next READ (`links`). Done when that is;
//!   │                                        lost with the link, and never repeated: it may have been carried out
//!   v
//! by UDP ──> sent with a new sequence ──> no answer for 2 ms: sent again with the same one, which
//!                                        the node carries out once
//! answered: settled as `udp::sequences` says: the director gets the value, or that it is lost; or it is sent with
//!           a new sequence
//! ```
//!
//! Words of another life than the known one are not touched: the director gets to know that they began anew, whichever
//! way shows it. One that has begun by UDP ends there.
//!
//! An atomic without an answer for a quarter of a second is given up. Whether it was carried out is not
//! known then, as [`WordReply::Lost`] says.

use std::time::Duration;

use tidegate_core::load::{WordOp, WordReply, WordRequest};
use tidegate_core::time::Timestamp;

use crate::memory::WORDS;
use crate::udp::sequences::{RENEWALS_MAX, Sequences, Settled};
use crate::udp::wire::{Reply, Request, Unverified, Verb};

/// Sent again after this long.
const AGAIN: Duration = Duration::from_millis(2);
/// Given up after this long.
const GIVEN_UP: Duration = Duration::from_millis(250);

/// One that is under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    asked: WordRequest,
    sequence: u64,
    /// What its answer must repeat; nothing until it is sent. One that is sent again has the same, so that
    /// an answer counts however slow the node is, and once.
    nonce: Option<u64>,
    begun_at: Timestamp,
    sent_at: Timestamp,
    /// Datagrams with this sequence.
    sent: u32,
    renewals: u32,
}

impl UnderWay {
    fn verb(&self) -> Verb {
        match self.asked.op {
            WordOp::FetchAndAdd { .. } => Verb::FetchAndAdd,
            WordOp::CompareAndSwap { .. } => Verb::CompareAndSwap,
        }
    }

    fn word(&self) -> u32 {
        match self.asked.op {
            WordOp::FetchAndAdd { word, .. } | WordOp::CompareAndSwap { word, .. } => word,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Atomics {
    sequences: Sequences,
    under_way: Option<UnderWay>,
}

/// What names a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestIds {
    /// The front-end that makes it.
    pub(super) initiator: u64,
    /// What its answer must repeat.
    pub(super) nonce: u64,
}

/// What a link is to do for a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnLink {
    /// Carry it out.
    Post,
    /// Nothing: it goes by UDP.
    Leave,
    /// Nothing came of it: the node's words have begun anew.
    Lost,
}

/// What is to be done for a question.
#[derive(Debug)]
pub(super) enum Due {
    /// Nothing now.
    Nothing,
    /// Send this.
    Send(Request),
    /// Nothing came of the question with this number.
    GiveUp(u32),
}

impl Atomics {
    /// The node's clock was this at some moment between these two.
    pub(super) fn note_clock(
        &mut self,
        node_now_ns: u64,
        sent_at: Timestamp,
        received_at: Timestamp,
    ) {
        self.sequences.note_clock(node_now_ns, sent_at, received_at);
    }

    /// The node's clock as far as known, ns; 0: not yet.
    pub(super) fn node_clock(&self, now: Timestamp) -> u64 {
        self.sequences.node_clock(now)
    }

    /// Whether a question goes over a link, where one stands that grants words.
    pub(super) fn goes_by_link(&self, asked: WordRequest, now: Timestamp) -> bool {
        let (WordOp::FetchAndAdd { word, .. } | WordOp::CompareAndSwap { word, .. }) = asked.op;
        let has_begun = self.under_way.is_some_and(|it| it.asked == asked);
        // Its answer tells the node's clock; and a word that is not there is for the node to refuse.
        !has_begun && self.node_clock(now) != 0 && (word as usize) < WORDS
    }

    /// What a link to words of this life is to do for a question.
    pub(super) fn on_link(&mut self, asked: WordRequest, epoch: u32, now: Timestamp) -> OnLink {
        if !self.goes_by_link(asked, now) {
            return OnLink::Leave;
        }
        match self.sequences.is_life(epoch) {
            true => OnLink::Post,
            false => OnLink::Lost,
        }
    }

    /// What to do for what is asked; a question that is new takes the nonce.
    pub(super) fn due(&mut self, asked: WordRequest, ids: RequestIds, now: Timestamp) -> Due {
        let Some(mut under_way) = self.under_way.filter(|it| it.asked == asked) else {
            let sequence = self.sequences.next(now);
            let under_way = UnderWay {
                asked,
                sequence,
                nonce: None,
                begun_at: now,
                sent_at: now,
                sent: 0,
                renewals: 0,
            };
            return self.send(under_way, ids);
        };
        if now.since(under_way.begun_at) >= GIVEN_UP {
            self.under_way = None;
            return Due::GiveUp(asked.ticket);
        }
        if now.since(under_way.sent_at) < AGAIN {
            return Due::Nothing;
        }
        under_way.sent_at = now;
        self.send(under_way, ids)
    }

    fn send(&mut self, mut under_way: UnderWay, ids: RequestIds) -> Due {
        let nonce = *under_way.nonce.get_or_insert(ids.nonce);
        under_way.sent += 1;
        self.under_way = Some(under_way);
        let (word, operand, expected) = match under_way.asked.op {
            WordOp::FetchAndAdd { word, delta } => (word, delta, 0),
            WordOp::CompareAndSwap {
                word,
                expected,
                new,
            } => (word, new, expected),
        };
        Due::Send(Request {
            verb: under_way.verb(),
            sequence: under_way.sequence,
            // A word that no region has is refused by the node.
            word: u16::try_from(word).unwrap_or(u16::MAX),
            epoch: self.sequences.epoch(),
            operand,
            expected,
            ..Request::read(0, ids.initiator, nonce)
        })
    }

    /// When the question that this claims to answer was sent last, if it is under way.
    pub(super) fn expected(&self, reply: &Unverified<'_>) -> Option<Timestamp> {
        let asked = self.under_way.as_ref()?;
        let same = asked.nonce == Some(reply.nonce()) && asked.sequence == reply.sequence();
        (same && asked.verb() == reply.verb()).then_some(asked.sent_at)
    }

    /// Takes an answer in; what the asker gets, if that is settled.
    pub(super) fn accept(&mut self, reply: &Reply, now: Timestamp) -> Option<(u32, WordReply)> {
        let mut under_way = self
            .under_way
            .filter(|it| it.nonce == Some(reply.nonce) && it.sequence == reply.sequence)?;
        // It may answer the first of the copies.
        self.note_clock(reply.node_now_ns, under_way.begun_at, now);
        let ticket = under_way.asked.ticket;
        let lost = Some((ticket, WordReply::Lost));
        self.under_way = None;
        match self
            .sequences
            .settle(reply, under_way.word(), under_way.sent)
        {
            Settled::Done(held) => {
                let node_now = Timestamp::from_nanos(reply.node_now_ns);
                return Some((ticket, WordReply::Done { held, node_now }));
            }
            Settled::Renew(_) => {}
            Settled::Lost(_) => return lost,
        }
        if under_way.renewals == RENEWALS_MAX {
            return lost;
        }
        under_way.renewals += 1;
        under_way.sent = 0;
        under_way.sequence = self.sequences.next(now);
        under_way.nonce = None;
        // It goes out at the next look.
        under_way.sent_at = Timestamp::ZERO;
        self.under_way = Some(under_way);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::wire::Status;

    const ASKED: WordRequest = WordRequest {
        ticket: 7,
        op: WordOp::FetchAndAdd { word: 3, delta: 5 },
    };

    fn ids(initiator: u64, nonce: u64) -> RequestIds {
        RequestIds { initiator, nonce }
    }

    fn at(us: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000 + us * 1000)
    }

    fn sent(due: Due) -> Request {
        match due {
            Due::Send(request) => request,
            Due::Nothing | Due::GiveUp(_) => panic!("{due:?}"),
        }
    }

    fn reply(to: &Request, status: Status) -> Reply {
        Reply {
            verb: to.verb,
            lines: 0,
            status,
            initiator: to.initiator,
            sequence: to.sequence,
            nonce: to.nonce,
            node_now_ns: 9_000_000_000,
            value: 42,
            readers: 1,
            epoch: 77,
        }
    }

    #[test]
    fn one_without_an_answer_is_sent_again_with_its_sequence_and_given_up_in_the_end() {
        let mut atomics = Atomics::default();
        let first = sent(atomics.due(ASKED, ids(1, 20), at(0)));
        assert!(matches!(
            atomics.due(ASKED, ids(1, 2), at(1900)),
            Due::Nothing
        ));
        let again = sent(atomics.due(ASKED, ids(1, 21), at(2000)));
        assert_eq!(again.sequence, first.sequence);
        assert_eq!(again.nonce, first.nonce, "an answer to either counts");
        assert!(matches!(
            atomics.due(ASKED, ids(1, 2), at(250_000)),
            Due::GiveUp(7)
        ));
        // A late answer finds no asker.
        assert!(
            atomics
                .accept(&reply(&first, Status::Done), at(250_001))
                .is_none()
        );
    }

    #[test]
    fn the_nodes_life_is_learned_and_a_new_one_noticed() {
        let mut atomics = Atomics::default();
        let first = sent(atomics.due(ASKED, ids(1, 10), at(0)));
        assert_eq!(first.epoch, 0);
        assert!(
            atomics
                .accept(&reply(&first, Status::Epoch), at(100))
                .is_none()
        );
        let second = sent(atomics.due(ASKED, ids(1, 11), at(200)));
        assert_eq!(second.epoch, 77);
        assert_ne!(second.sequence, first.sequence);
        assert_eq!((first.nonce, second.nonce), (10, 11));
        let done = atomics.accept(&reply(&second, Status::Done), at(300));
        let node_now = Timestamp::from_nanos(9_000_000_000);
        assert_eq!(done, Some((7, WordReply::Done { held: 42, node_now })));
        let third = sent(atomics.due(ASKED, ids(1, 12), at(400)));
        let lost = atomics.accept(&reply(&third, Status::Epoch), at(500));
        assert_eq!(lost, Some((7, WordReply::Lost)));
    }

    #[test]
    fn a_question_goes_over_a_link_once_the_nodes_clock_is_known_unless_it_has_begun() {
        let mut atomics = Atomics::default();
        assert_eq!(atomics.on_link(ASKED, 77, at(0)), OnLink::Leave);
        atomics.note_clock(20_000_000_000, at(0), at(0));
        assert_eq!(atomics.on_link(ASKED, 77, at(0)), OnLink::Post);
        let no_word = WordRequest {
            op: WordOp::FetchAndAdd {
                word: WORDS as u32,
                delta: 1,
            },
            ..ASKED
        };
        assert_eq!(atomics.on_link(no_word, 77, at(0)), OnLink::Leave);
        // It fell back to datagrams, and the link came back before the answer.
        sent(atomics.due(ASKED, ids(1, 10), at(0)));
        assert_eq!(atomics.on_link(ASKED, 77, at(1)), OnLink::Leave);
        let next = WordRequest { ticket: 8, ..ASKED };
        assert_eq!(atomics.on_link(next, 77, at(1)), OnLink::Post);
    }

    #[test]
    fn words_that_began_anew_are_not_touched_whichever_way_shows_it() {
        let mut atomics = Atomics::default();
        atomics.note_clock(20_000_000_000, at(0), at(0));
        assert_eq!(atomics.on_link(ASKED, 70, at(0)), OnLink::Post);
        assert_eq!(atomics.on_link(ASKED, 71, at(1)), OnLink::Lost);
        assert_eq!(atomics.on_link(ASKED, 71, at(2)), OnLink::Post);
        // By UDP the life that the link has shown is known.
        let request = sent(atomics.due(ASKED, ids(1, 10), at(3)));
        assert_eq!(request.epoch, 71);
        let given = atomics.accept(&reply(&request, Status::Epoch), at(4));
        assert_eq!(given, Some((7, WordReply::Lost)));
        assert_eq!(atomics.on_link(ASKED, 77, at(5)), OnLink::Post);
        assert_eq!(atomics.on_link(ASKED, 71, at(6)), OnLink::Lost);
    }

    #[test]
    fn a_refusal_of_the_node_is_lost() {
        for status in [
            Status::NoWord,
            Status::Full,
            Status::TooNew,
            Status::Other(99),
        ] {
            let mut atomics = Atomics::default();
            let request = sent(atomics.due(ASKED, ids(1, 10), at(0)));
            let given = atomics.accept(&reply(&request, status), at(1));
            assert_eq!(given, Some((7, WordReply::Lost)), "{status:?}");
        }
        let mut atomics = Atomics::default();
        for round in 0..=RENEWALS_MAX {
            let request = sent(atomics.due(ASKED, ids(1, 0), at(u64::from(round) * 10)));
            let given = atomics.accept(&reply(&request, Status::Stale), at(u64::from(round) * 10));
            let last = round == RENEWALS_MAX;
            assert_eq!(given.is_some(), last, "{round}");
        }
    }

    #[test]
    fn one_that_was_too_old_is_numbered_anew_unless_a_copy_was_sent() {
        let lost = Some((7, WordReply::Lost));
        let mut atomics = Atomics::default();
        let first = sent(atomics.due(ASKED, ids(1, 0), at(0)));
        assert_eq!(atomics.accept(&reply(&first, Status::TooOld), at(1)), None);
        let second = sent(atomics.due(ASKED, ids(1, 0), at(2)));
        // The answer had the node's clock.
        assert_eq!(second.sequence, 9_000_000_000);
        sent(atomics.due(ASKED, ids(1, 0), at(2002)));
        let given = atomics.accept(&reply(&second, Status::TooOld), at(2003));
        assert_eq!(given, lost, "a copy may have been carried out");
    }

    #[test]
    fn one_that_is_always_too_old_is_lost_after_its_renewals() {
        let mut atomics = Atomics::default();
        for round in 0..=u64::from(RENEWALS_MAX) {
            let request = sent(atomics.due(ASKED, ids(1, 0), at(round * 10)));
            let given = atomics.accept(&reply(&request, Status::TooOld), at(round * 10));
            let last = round == u64::from(RENEWALS_MAX);
            assert_eq!(given.is_some(), last, "{round}");
        }
    }

    #[test]
    fn an_answer_that_was_taken_in_late_makes_the_next_number_no_older() {
        let mut atomics = Atomics::default();
        atomics.note_clock(20_000_000_000, at(0), at(0));
        atomics.note_clock(20_000_000_000, at(0), at(300_000));
        let next = sent(atomics.due(ASKED, ids(1, 0), at(300_000)));
        assert_eq!(next.sequence, 20_300_000_000);
    }

    #[test]
    fn numbers_follow_a_clock_that_stood_still() {
        let mut atomics = Atomics::default();
        atomics.note_clock(20_000_000_000, at(0), at(0));
        let ahead = sent(atomics.due(ASKED, ids(1, 0), at(0)));
        assert_eq!(ahead.sequence, 20_000_000_000);
        let given = atomics.accept(&reply(&ahead, Status::TooNew), at(1));
        assert_eq!(given, Some((7, WordReply::Lost)));
        let next = sent(atomics.due(ASKED, ids(1, 0), at(1)));
        assert_eq!(next.sequence, 9_000_000_000);
    }
}
