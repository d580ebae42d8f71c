//! How front-ends agree on a server's slots: by words of its memory that all of them add to.
//!
//! ```text
//! word    sum over the front-ends of requests in flight (15 bits), slots held (15 bits), votes (13 bits)
//!         and requests that ended (18 bits), and for which life it is (3 bits)
//! vote    by how much a front-end would have all limits scaled, 2^(-vote / 8); all take the mean
//! far     held < 0.7 L: none waits for a slot; each says what it has in flight within 10 ms, or
//!         at once if that has changed by its share of half of 0.7 L
//! near    a request needs a slot that its front-end holds. An empty slot stays with a front-end
//!         where a request waits, and else is given back at the next tick
//! ask     fetch-and-add of 1 where there seems to be room; what turns out to be above L is given
//!         back
//! yield   where L is full, a front-end keeps a slot that comes free with probability
//!         min(1, share / own), so that those with nothing get their turn
//! life    a word counts for a second of the server's clock; there are four, used in turn. In the last
//!         quarter all register in the next word too. A front-end that finds a word of another life
//!         clears it: that of this life at once, those of the next two from the second quarter on.
//!         Nothing is added to a word before it was seen to be of its life
//! ```
//!
//! Slots are held ahead of requests, so no request waits for the network: it waits for a tick at
//! most. Sums by themselves would keep what a front-end held that died; here every front-end that
//! lives says anew each second what it holds, and what is not said again is gone. That needs no list of
//! front-ends, no heartbeats to watch and no clean-up after others, and as many front-ends as
//! there are may take part. The clock is the server's, which its answers tell: front-ends need
//! none in common.
//!
//! Inputs: the limit, own requests in flight, answers. What it does not know: sites, priorities,
//! transports.
//!
//! Failure case: more than 16 383 in flight, or 262 143 that end in a second, at one server: there are
//! no more bits. What a front-end held that crashed is believed for up to 1.25 s; and for two seconds
//! once more if it was the last one and the next comes a multiple of 32 s later. No answer for a tenth
//! of a second; then there is no view, and the caller goes by equal shares.
//!
//! Source: the admission study, "Agreement: reserve", and its pitfall 10 (counts that a crash leaks);
//! it has sub-counts with heartbeats for that.

use std::time::Duration;

use crate::load::{WordOp, WordReply};
use crate::time::Timestamp;

/// The words that admission uses, by the life's number.
pub const SLOT_WORDS: [u32; 4] = [60, 61, 62, 63];
/// How long a word counts.
const LIFE_NS: u64 = 1_000_000_000;
/// Below this part of the limit none waits for slots.
const FAR: f64 = 0.7;
/// What is seen is believed for so long.
const BELIEVED: Duration = Duration::from_millis(100);
/// Far from the limit the sum is looked at so often.
const LOOK_FAR: Duration = Duration::from_millis(10);
/// And near it.
const LOOK_NEAR: Duration = Duration::from_millis(2);
/// After words that are lost, nothing is asked for so long.
const REST: Duration = Duration::from_millis(100);

/// What a word sums up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WordTally {
    /// Requests in flight.
    pub(super) in_flight: i64,
    /// Slots held, those of the requests in flight included.
    pub(super) held: i64,
    /// Votes.
    pub(super) votes: i64,
    /// Requests that ended in this life.
    pub(super) ended: i64,
}

/// Bits of the life, of what ended, and of the votes, from the lowest on.
const TAG: u32 = 3;
const ENDED: u32 = 18;
const VOTES: u32 = 13;
/// Bits of each of the others above these.
const COUNT: u32 = 15;
const _: () = assert!(TAG + ENDED + VOTES + 2 * COUNT == u64::BITS);
/// Most that all front-ends together can count, of either and of what ended.
const COUNT_MAX: i64 = (1 << (COUNT - 1)) - 1;
const ENDED_MAX: i64 = (1 << ENDED) - 1;
/// Votes per halving, and the greatest one.
const VOTES_PER_HALF: f64 = 8.0;
const VOTE_MAX: f64 = 63.0;

impl WordTally {
    fn packed(self) -> u64 {
        let at = |value: i64, place: u32| (value as u64) << (TAG + place);
        at(self.in_flight, ENDED + VOTES + COUNT)
            .wrapping_add(at(self.held, ENDED + VOTES))
            .wrapping_add(at(self.votes, ENDED))
            .wrapping_add(at(self.ended, 0))
    }

    fn unpacked(word: u64) -> Self {
        let word = word >> TAG;
        // Only what ended never falls; the others borrow from above while they are below zero.
        let ended = word & ((1 << ENDED) - 1);
        let (votes, upper) = lowest((word - ended) >> ENDED, VOTES);
        let (held, upper) = lowest(upper, COUNT);
        let (in_flight, _) = lowest(upper, COUNT);
        Self {
            in_flight,
            held,
            votes,
            ended: ended as i64,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            in_flight: self.in_flight + other.in_flight,
            held: self.held + other.held,
            votes: self.votes + other.votes,
            ended: self.ended + other.ended,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            in_flight: self.in_flight - other.in_flight,
            held: self.held - other.held,
            votes: self.votes - other.votes,
            ended: self.ended - other.ended,
        }
    }
}

/// The word of a life before anything is added: what of its number the place does not tell.
fn fresh(life: u64) -> u64 {
    life / SLOT_WORDS.len() as u64 % (1 << TAG)
}

/// Whether a word is of this life.
fn is_of(life: u64, word: u64) -> bool {
    word % (1 << TAG) == fresh(life)
}

/// The lowest bits as a number that may be below zero, and what lies above it.
fn lowest(word: u64, bits: u32) -> (i64, u64) {
    let value = ((word << (64 - bits)) as i64) >> (64 - bits);
    (value, word.wrapping_sub(value as u64) >> bits)
}

/// The vote for scaling all limits by so much.
pub(super) fn vote_for(scale: f64) -> i64 {
    (-scale.log2() * VOTES_PER_HALF)
        .clamp(0.0, VOTE_MAX)
        .round() as i64
}

/// What limits are scaled by if so many front-ends cast these votes together.
pub(super) fn scale_by(votes: i64, front_ends: f64) -> f64 {
    let mean = (votes as f64 / front_ends).clamp(0.0, VOTE_MAX);
    (-mean / VOTES_PER_HALF).exp2()
}

/// What was asked of the words and not answered yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    ticket: u32,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// To learn the server's clock.
    Clock,
    /// To add to the word of this life; so many slots of it are asked for, up to the limit.
    Register {
        life: u64,
        delta: WordTally,
        asked: i64,
        limit: f64,
    },
    /// To make the word of a life one of that life, if it is what is expected.
    Clear { life: u64, expected: u64 },
}

/// How a front-end wants to stand at a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Wanted {
    /// Own requests in flight.
    pub(super) in_flight: i64,
    /// Slots to hold, without those that are asked for.
    pub(super) held: i64,
    /// Its vote.
    pub(super) vote: i64,
    /// Slots to ask for.
    pub(super) asked: i64,
    /// The limit that these must keep to.
    pub(super) limit: f64,
    /// Own requests that have ended, ever.
    pub(super) ended: u64,
    /// This front-end's part of all of them.
    pub(super) share: f64,
    /// Whether slots count: the sum is looked at more often then.
    pub(super) near: bool,
}

/// One front-end's part in one server's slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// The server's clock and ours, as of the last answer.
    clock: Option<(Timestamp, Timestamp)>,
    life: u64,
    /// What is registered in the word of this life and of the next.
    mine: WordTally,
    next: WordTally,
    /// What the others have in this one.
    others: WordTally,
    seen_at: Option<Timestamp>,
    /// Own requests that have ended and are registered.
    told_ended: Option<u64>,
    /// What all have ended in this life, as seen, and ever since they are watched.
    ended_here: i64,
    ended: u64,
    pending: Option<Pending>,
    /// Of those that were asked for, above the limit.
    surplus: i64,
    /// To be given back as they come free.
    yields: i64,
    /// Of the last question that was answered: whether it gave slots.
    granted: Option<bool>,
    /// The first life whose word is not known to be of it, and what was seen there instead.
    unsure: u64,
    old: u64,
    rests_until: Timestamp,
    last_was_next: bool,
}

impl Slots {
    /// Takes an answer in, and turns to the next word when it is time.
    pub(super) fn take_in(
        &mut self,
        answered: impl FnOnce(u32) -> Option<WordReply>,
        now: Timestamp,
    ) {
        if let Some(pending) = self.pending
            && let Some(reply) = answered(pending.ticket)
        {
            self.pending = None;
            match reply {
                WordReply::Done { held, node_now } => {
                    self.clock = Some((node_now, now));
                    self.done(pending.what, held, now);
                }
                WordReply::Lost => {
                    self.start_anew();
                    self.rests_until = now + REST;
                }
            }
        }
        self.turn(now);
    }

    fn done(&mut self, what: What, held: u64, now: Timestamp) {
        match what {
            What::Clock => {}
            What::Register { life, .. } if !is_of(life, held) => {
                // Cleared or counted anew by others: our clock was wrong.
                self.start_anew();
            }
            What::Register {
                life,
                delta,
                asked,
                limit,
            } if life == self.life => {
                let before = WordTally::unpacked(held);
                self.others = before.minus(self.mine);
                self.mine = self.mine.plus(delta);
                self.seen_at = Some(now);
                let ended = before.ended + delta.ended;
                self.ended += u64::try_from(ended - self.ended_here).unwrap_or(0);
                self.ended_here = ended;
                if asked > 0 {
                    let room = limit - (before.held + delta.held - asked) as f64;
                    let given = (room.ceil() as i64).clamp(0, asked);
                    self.surplus = asked - given;
                    self.granted = Some(given > 0);
                }
            }
            What::Register { life, delta, .. } if life == self.life + 1 => {
                self.next = self.next.plus(delta);
            }
            // Of a life that is over.
            What::Register { .. } => {}
            What::Clear { life, expected } if life == self.unsure => {
                match held == expected || is_of(life, held) {
                    true => (self.unsure, self.old) = (life + 1, 0),
                    false => self.old = held,
                }
            }
            What::Clear { .. } => {}
        }
    }

    /// The server's clock now, ns, if it is known.
    pub(super) fn node_now(&self, now: Timestamp) -> Option<u64> {
        let (node, ours) = self.clock?;
        Some(
            node.nanos()
                .saturating_add((now.since(ours)).as_nanos() as u64),
        )
    }

    /// Forgets everything but what has ended so far, which never falls.
    fn start_anew(&mut self) {
        *self = Self {
            ended: self.ended,
            ..Self::default()
        };
    }

    fn turn(&mut self, now: Timestamp) {
        let Some(node_now) = self.node_now(now) else {
            return;
        };
        let life = node_now / LIFE_NS;
        if life != self.life {
            let follows = life == self.life + 1;
            self.mine = if follows {
                self.next
            } else {
                WordTally::default()
            };
            self.next = WordTally::default();
            self.ended_here = 0;
            self.life = life;
        }
        // A life that is over matters no more.
        if self.unsure < life {
            (self.unsure, self.old) = (life, 0);
        }
    }

    /// What all hold and have in flight, if it is known.
    pub(super) fn total(&self, in_flight: i64, vote: i64, now: Timestamp) -> Option<WordTally> {
        let seen = self.seen_at?;
        let others = WordTally {
            in_flight: self.others.in_flight.max(0),
            held: self.others.held.max(0),
            votes: self.others.votes.max(0),
            ended: 0,
        };
        let own = WordTally {
            in_flight,
            held: self.mine.held.max(in_flight),
            votes: vote,
            ended: 0,
        };
        (now.since(seen) <= BELIEVED).then(|| others.plus(own))
    }

    /// Requests that have ended, of all front-ends, as far as they are reported.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// Own slots that may be used: not those that are on their way back.
    pub(super) fn usable(&self) -> i64 {
        let going = match self.pending.map(|it| it.what) {
            Some(What::Register { life, delta, .. }) if life == self.life => delta.held.min(0),
            Some(What::Register { .. } | What::Clock | What::Clear { .. }) | None => 0,
        };
        (self.mine.held + going - self.surplus).max(0)
    }

    /// Whether the limit is so far off that none waits for slots.
    pub(super) fn is_far(total: &WordTally, limit: f64) -> bool {
        (total.held as f64) < FAR * limit
    }

    /// Room up to where slots begin to count.
    pub(super) fn far_room(total: &WordTally, limit: f64) -> f64 {
        (FAR * limit - total.held as f64).max(0.0)
    }

    /// So many slots came free and are another front-end's turn.
    pub(super) fn give_up(&mut self, slots: i64) {
        self.yields = (self.yields + slots).min(self.usable());
    }

    /// Whether something can be asked.
    pub(super) fn is_ready(&self, now: Timestamp) -> bool {
        self.pending.is_none() && now >= self.rests_until
    }

    /// The slots to keep, and how many of them may be in use. Empty ones are kept where a request
    /// waits.
    pub(super) fn keep(&mut self, in_flight: i64, waits: bool) -> (i64, i64) {
        let usable = self.usable();
        let free = (usable - in_flight).max(0);
        let back = self.yields.clamp(0, free);
        self.yields -= back;
        let kept = match waits {
            true => usable - back,
            false => (usable - back).min(in_flight),
        };
        (kept.max(in_flight), kept - self.yields)
    }

    /// Whether the last slots that were asked for were given, said once.
    pub(super) fn granted(&mut self) -> Option<bool> {
        self.granted.take()
    }

    /// What to ask of the words now, if anything; to be called after [`Slots::take_in`].
    pub(super) fn ask(&mut self, wanted: &Wanted, now: Timestamp) -> Option<WordOp> {
        if !self.is_ready(now) {
            return None;
        }
        let Some(node_now) = self.node_now(now) else {
            return Some(self.ask_the_time());
        };
        let (phase, life) = (node_now % LIFE_NS, self.life);
        // One thing after the other: what was too much goes back first.
        let asked = if self.surplus > 0 { 0 } else { wanted.asked };
        let most = part(COUNT_MAX, wanted.share);
        let staying = WordTally {
            in_flight: wanted.in_flight.min(most),
            held: wanted.held.min(most),
            votes: wanted.vote,
            ended: 0,
        };
        // A front-end that comes anew registers first; and the others may still be in the life before.
        let registered = self.seen_at.is_some();
        let sure = match registered && phase >= LIFE_NS / 4 {
            true => life + 2,
            false => life,
        };
        if self.unsure <= sure {
            return Some(self.make_sure());
        }
        let turns = phase >= LIFE_NS / 4 * 3 && self.unsure > life + 1;
        if turns && self.next != staying && !self.last_was_next {
            self.last_was_next = true;
            let delta = staying.minus(self.next);
            return Some(self.register(life + 1, delta, 0, wanted.limit));
        }
        self.last_was_next = false;
        let mut delta = staying.minus(WordTally {
            ended: 0,
            ..self.mine
        });
        delta.held += asked;
        let told = self.told_ended.unwrap_or(wanted.ended);
        let ended = i64::try_from(wanted.ended.saturating_sub(told)).unwrap_or(0);
        let room = part(ENDED_MAX, wanted.share) - self.mine.ended;
        delta.ended = ended.min(room.max(0));
        let every = if wanted.near { LOOK_NEAR } else { LOOK_FAR };
        let looked = self.seen_at.is_some_and(|seen| now.since(seen) < every);
        let changes = match wanted.near {
            true => delta.held != 0 || asked > 0,
            false => delta.held.abs() as f64 >= slack(wanted.limit, wanted.share).max(1.0),
        };
        if looked && !changes && delta.votes == 0 {
            return None;
        }
        self.surplus = 0;
        self.told_ended = Some(wanted.ended);
        Some(self.register(life, delta, asked, wanted.limit))
    }

    fn register(&mut self, life: u64, delta: WordTally, asked: i64, limit: f64) -> WordOp {
        let what = What::Register {
            life,
            delta,
            asked,
            limit,
        };
        self.note(what);
        WordOp::FetchAndAdd {
            word: word(life),
            delta: delta.packed(),
        }
    }

    fn ask_the_time(&mut self) -> WordOp {
        self.note(What::Clock);
        WordOp::FetchAndAdd {
            word: SLOT_WORDS[0],
            delta: 0,
        }
    }

    /// Clears the first word that may be of another life; in vain if it is not, or not as expected.
    fn make_sure(&mut self) -> WordOp {
        let (life, expected) = (self.unsure, self.old);
        self.note(What::Clear { life, expected });
        WordOp::CompareAndSwap {
            word: word(life),
            expected,
            new: fresh(life),
        }
    }

    fn note(&mut self, what: What) {
        self.pending = Some(Pending { ticket: 0, what });
    }

    /// The number under which the last operation was asked.
    pub(super) fn asked_as(&mut self, ticket: u32) {
        if let Some(pending) = &mut self.pending {
            pending.ticket = ticket;
        }
    }
}

/// What one of many front-ends may have in flight there beside what it reported.
fn slack(limit: f64, share: f64) -> f64 {
    FAR * 0.5 * limit * share
}

/// A front-end's part of what all can count.
fn part(all: i64, share: f64) -> i64 {
    (all as f64 * share) as i64
}

fn word(life: u64) -> u32 {
    SLOT_WORDS[(life % SLOT_WORDS.len() as u64) as usize]
}

#[cfg(test)]
mod tests;
