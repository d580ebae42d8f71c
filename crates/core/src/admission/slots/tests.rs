//! Front-ends that share a server's slots, on words that answer late, out of order, or not at all.

use super::*;
use crate::prng::Prng;

/// A server's words, and what happens to questions.
struct Server {
    words: [u64; 64],
}

impl Server {
    fn new() -> Self {
        Self { words: [0; 64] }
    }

    fn carry_out(&mut self, op: WordOp, now: Timestamp) -> WordReply {
        let (word, change): (u32, Box<dyn Fn(u64) -> u64>) = match op {
            WordOp::FetchAndAdd { word, delta } => {
                (word, Box::new(move |held| held.wrapping_add(delta)))
            }
            WordOp::CompareAndSwap {
                word,
                expected,
                new,
            } => (
                word,
                Box::new(move |held| if held == expected { new } else { held }),
            ),
        };
        let word = &mut self.words[word as usize];
        let held = *word;
        *word = change(held);
        WordReply::Done {
            held,
            node_now: now,
        }
    }

    fn at(&self, now: Timestamp) -> WordTally {
        WordTally::unpacked(self.words[word(now.nanos() / LIFE_NS) as usize])
    }
}

struct FrontEnd {
    slots: Slots,
    in_flight: i64,
    waiting: bool,
    under_way: Option<WordOp>,
    ticket: u32,
    answer: Option<WordReply>,
}

impl FrontEnd {
    fn new() -> Self {
        Self {
            slots: Slots::default(),
            in_flight: 0,
            waiting: false,
            under_way: None,
            ticket: 0,
            answer: None,
        }
    }

    /// A tick: as the controller does it, for one server.
    fn tick(&mut self, limit: f64, now: Timestamp) {
        let (ticket, answer) = (self.ticket, &mut self.answer);
        let answered = |asked| if asked == ticket { answer.take() } else { None };
        self.slots.take_in(answered, now);
        let total = self.slots.total(self.in_flight, 0, now);
        let near = total.is_some_and(|total| !Slots::is_far(&total, limit));
        let (held, _) = match near {
            true => self.slots.keep(self.in_flight, self.waiting),
            false => (self.in_flight, 0),
        };
        let room = total.is_some_and(|total| (total.held as f64) < limit);
        let wanted = Wanted {
            in_flight: self.in_flight,
            held,
            vote: 0,
            asked: i64::from(self.waiting && near && room),
            limit,
            ended: 0,
            share: 0.125,
            near,
        };
        if let Some(op) = self.slots.ask(&wanted, now) {
            self.ticket += 1;
            self.slots.asked_as(self.ticket);
            self.under_way = Some(op);
        }
    }

    fn deliver(&mut self, server: &mut Server, now: Timestamp) {
        if let Some(op) = self.under_way.take() {
            self.answer = Some(server.carry_out(op, now));
        }
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + ms)
}

#[test]
fn what_has_ended_never_falls() {
    let mut slots = Slots {
        ended: 7,
        ..Slots::default()
    };
    let asked = |slots: &mut Slots, what| {
        slots.pending = Some(Pending { what, ticket: 1 });
    };
    asked(&mut slots, What::Clock);
    slots.take_in(|_| Some(WordReply::Lost), at(0));
    assert_eq!(slots.ended(), 7, "the server is lost");
    let register = What::Register {
        life: slots.life,
        delta: WordTally::default(),
        asked: 0,
        limit: 1.0,
    };
    asked(&mut slots, register);
    let (held, node_now) = (fresh(slots.life + 1), at(0));
    slots.take_in(|_| Some(WordReply::Done { held, node_now }), at(0));
    assert_eq!(slots.ended(), 7, "the word is of another life");
}

#[test]
fn a_tally_comes_back_from_its_word() {
    let tally = |in_flight, held, votes, ended| WordTally {
        in_flight,
        held,
        votes,
        ended,
    };
    for (in_flight, held, votes, ended) in [
        (0, 0, 0, 0),
        (3, 5, 63, 1),
        (-1, 2, 0, 0),
        (2, -1, -4, 7),
        (-7, -9, 4095, 262_143),
        (16_383, -16_384, -4096, 3),
    ] {
        let tally = tally(in_flight, held, votes, ended);
        assert_eq!(WordTally::unpacked(tally.packed()), tally);
    }
    let (one, other) = (tally(3, 5, 9, 2), tally(-4, -6, -9, 3));
    let sum = one.packed().wrapping_add(other.packed());
    assert_eq!(WordTally::unpacked(sum), one.plus(other));
}

#[test]
fn the_mean_vote_decides() {
    for scale in [1.0, 0.5, 0.3, 0.01] {
        let agreed = scale_by(vote_for(scale) * 4, 4.0);
        assert!((agreed / scale - 1.0).abs() < 0.05, "{scale} {agreed}");
    }
    // One of sixteen that wants a quarter.
    let agreed = scale_by(vote_for(0.25), 16.0);
    assert!((0.9..1.0).contains(&agreed), "{agreed}");
    assert_eq!(vote_for(f64::INFINITY), 0);
    assert_eq!(scale_by(-5, 4.0), 1.0);
    assert!(scale_by(i64::MAX, 1.0) > 0.0);
}

/// Eight front-ends that want more than there is, one of which dies; then the word tells of
/// the others alone.
#[test]
fn slots_in_use_stay_within_the_limit_and_outlive_no_front_end() {
    const LIMIT: f64 = 20.0;
    let mut prng = Prng::new(7);
    let mut server = Server::new();
    let mut front_ends: Vec<_> = (0..8).map(|_| FrontEnd::new()).collect();
    let mut most = 0;
    for ms in 0..6000 {
        let now = at(ms);
        if ms == 2500 {
            front_ends.truncate(7);
        }
        for front_end in &mut front_ends {
            front_end.tick(LIMIT, now);
            // It uses what it may, and a tenth of the requests end.
            front_end.waiting = true;
            let ended = (0..front_end.in_flight)
                .filter(|_| prng.unit() < 0.1)
                .count();
            front_end.in_flight -= ended as i64;
            let total = front_end.slots.total(front_end.in_flight, 0, now);
            let usable = match total {
                Some(total) if !Slots::is_far(&total, LIMIT) => front_end.slots.usable(),
                _ => 2,
            };
            front_end.in_flight = front_end.in_flight.max(usable);
        }
        // In no order.
        let first = prng.below(front_ends.len());
        let count = front_ends.len();
        for place in 0..count {
            front_ends[(first + place) % count].deliver(&mut server, now);
        }
        if ms > 100 {
            let in_flight: i64 = front_ends.iter().map(|it| it.in_flight).sum();
            most = most.max(in_flight);
            // A front-end at rest reports what is so.
            if ms > 4000 && ms % 1000 < 700 && ms % 1000 > 50 {
                let told = server.at(now).held;
                assert!((told - in_flight).abs() <= 8, "{ms}: {told} {in_flight}");
            }
        }
    }
    assert!(most <= 21, "{most} in flight");
    let used: i64 = front_ends.iter().map(|it| it.in_flight).sum();
    assert!(used >= 19, "{used}: the dead one's slots are used again");
}

#[test]
fn one_that_falls_silent_or_starts_anew_is_believed_no_more() {
    let mut server = Server::new();
    let mut one = FrontEnd::new();
    one.in_flight = 3;
    for ms in 0..30 {
        one.tick(10.0, at(ms));
        one.deliver(&mut server, at(ms));
    }
    assert_eq!(one.slots.total(3, 0, at(30)).map(|it| it.held), Some(3));
    // No answers.
    for ms in 30..140 {
        one.tick(10.0, at(ms));
    }
    assert_eq!(one.slots.total(3, 0, at(140)), None);
    one.under_way = None;
    one.answer = Some(WordReply::Lost);
    server = Server::new();
    for ms in 140..400 {
        one.tick(10.0, at(ms));
        one.deliver(&mut server, at(ms));
    }
    assert_eq!(one.slots.total(3, 0, at(400)).map(|it| it.held), Some(3));
    assert_eq!(server.at(at(400)).held, 3);
}

#[test]
fn what_front_ends_held_that_are_gone_is_not_believed_whenever_the_next_one_comes() {
    for pause in 0..12 {
        let mut server = Server::new();
        let mut gone = FrontEnd::new();
        gone.in_flight = 3;
        let from = (0..4000).chain(4000 + 500 * pause..4000 + 500 * pause + 6000);
        let mut next = FrontEnd::new();
        next.in_flight = 1;
        let mut believed = 0;
        for ms in from {
            let front_end = if ms < 4000 { &mut gone } else { &mut next };
            front_end.tick(10.0, at(ms));
            front_end.deliver(&mut server, at(ms));
            if ms >= 4050 + 500 * pause {
                let total = front_end.slots.total(1, 0, at(ms)).map(|it| it.held);
                assert!(
                    total == Some(1) || total == Some(4),
                    "{pause} {ms} {total:?}"
                );
                believed += u64::from(total == Some(4));
            }
        }
        // It may be alive for a second and a quarter; then it is not, and stays so.
        let most = 1250_u64.saturating_sub(500 * pause);
        assert!(believed <= most, "{pause}: {believed} ms");
    }
}

#[test]
fn what_comes_free_can_be_somebody_elses_turn() {
    let mut slots = Slots {
        mine: WordTally {
            in_flight: 4,
            held: 4,
            votes: 0,
            ended: 0,
        },
        ..Slots::default()
    };
    slots.give_up(1);
    // All four are in use: the next one that ends is not followed.
    assert_eq!(slots.keep(4, true), (4, 3));
    assert_eq!(slots.keep(3, true), (3, 3));
    assert_eq!(slots.keep(1, false), (1, 1));
}
