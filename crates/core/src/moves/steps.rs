//! The steps of one move, by the front-end that wants it and by any that finds it unfinished.
//!
//! ```text
//! owner  1 S[x] free -> TAKE(n, y)     lost: end
//!        2 S[y] free -> GIVE(n, x)     lost: 2' S[x] TAKE -> free, then rule C
//!        3 S[x] TAKE -> COMMIT         lost: another one ended it; rule C
//!        4 A[n] (gen, serves y) -> (gen + 1, drains, x)      with a deadline, born when COMMIT was asked for
//!        5 U[x] + 1, U[y] + 1          6 S[x] COMMIT -> free          7 S[y] GIVE -> free
//! helper TAKE    S[y] gives to this very lock: 3, else 2'
//!        COMMIT  4 to 7; n is silent: S[x] COMMIT -> VOID
//!        VOID    no order to n can be young enough any more: n has moved: 5 to 7, else 6 and 7
//!        GIVE    rule C: S[x] has another sequence, or is free: S[y] GIVE -> free; else x is to be helped first
//! ```
//!
//! The decision is one swap of one word, step 3: before it any front-end may end the move, after it none, and the node's
//! word is touched only after it. That word's generation never comes back, so of many swaps of step 4 one succeeds. Only the owner takes step 2, since it alone has counted the donor's nodes under that lock.
//! A front-end that loses an answer forgets the move: what is left in the words is finished by helpers. So no lease is
//! needed for safety; it only says when to help (`lease.rs`).
//!
//! What time must bound is a step 4 that is late: it was sent, n vanished, the move was made void. Its birth is the
//! moment when the front-end *asked* for what showed it COMMIT, so it lies before VOID however late the answer came; a
//! birth at the answer lets a front-end that slept on the answer move n long after.
//!
//! Inputs: a plan or a lock that has stood still, and the answer to the last operation. What it does not know: load,
//! clocks, transports. Failure case: a node whose operations are all refused as too old keeps its receiver's
//! lock at COMMIT until one is not, or until it is silent. Two updates where two helpers finish one move: a window more.
//! Source: Reconfiguration-2004, section 3.1.2, made safe under crashes and pauses;
//! `docs/decisions/046-locks-say-what-is-to-be-done.md`.

use super::numbering::Constitution;
use super::plan::{MovePlan, moved};
use super::words::{
    Assignment, Intention, LockPhase, LockState, NodeNumber, SiteLock, SiteNumber, WordError,
    gift_low,
};
use crate::time::Timestamp;

/// An atomic on a shared word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoveOp {
    /// Reads S.
    ReadLock(SiteNumber),
    /// Swaps S.
    SwapLock {
        /// Of this site.
        site: SiteNumber,
        /// If it holds this.
        expected: SiteLock,
        /// For this.
        new: SiteLock,
    },
    /// Adds 1 to U.
    CountUpdate(SiteNumber),
    /// Reads A.
    ReadNode(NodeNumber),
    /// Swaps A. The node refuses it when it is older than `AGE_MAX`, by the node's clock.
    SwapNode {
        /// Of this node.
        node: NodeNumber,
        /// If it holds this.
        expected: Assignment,
        /// For this.
        new: Assignment,
        /// How old it is, whenever it is sent.
        born: Timestamp,
    },
}

/// What became of an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoveReply {
    /// What the word held before.
    Held(u64),
    /// Nothing is known: the answer was lost, or the words began anew.
    Lost,
    /// The other side has not answered for so long that it counts as gone.
    Silent,
    /// It was refused as too old, and not done.
    TooOld,
}

/// How a front-end's part in a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptEnd {
    /// All words are free again.
    Finished,
    /// Another front-end was faster.
    Overtaken,
    /// The node is silent: the move is void, and its lock free once no order can be young enough.
    Voided,
    /// The receiver's lock stands still as well: that one is to be helped.
    HelpFirst(SiteNumber),
    /// An answer is missing. Helpers finish what is left.
    Unknown,
    /// The node refused as too old what was too long under way.
    TooOld,
    /// A word holds what no front-end writes.
    Garbled(WordError),
}

/// Where a front-end is in a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// The receiver, or the site whose lock stands still.
    site: SiteNumber,
    step: AttemptStep,
    /// When the operation under way was asked for.
    asked_at: Timestamp,
}

/// The operation that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AttemptStep {
    /// 1
    Take(MovePlan),
    /// 2
    Give(MovePlan),
    /// 2'
    GiveUp { taken: Taken },
    /// 3. What the owner knows of the node and of the gift, helpers do not.
    Commit { taken: Taken, known: Known },
    /// Before 4: what the node's word holds.
    FindNode {
        taken: Taken,
        known: Known,
        born: Timestamp,
    },
    /// 4
    Move {
        taken: Taken,
        known: Known,
        before: Assignment,
        born: Timestamp,
    },
    /// 5, of the receiver.
    CountReceiver { taken: Taken, known: Known },
    /// 5, of the donor.
    CountDonor { taken: Taken, known: Known },
    /// 6
    Release { taken: Taken, known: Known },
    /// 7
    ReleaseDonor { donor: SiteNumber, given: SiteLock },
    /// COMMIT -> VOID
    Void { taken: Taken },
    /// VOID: whether the node has moved all the same.
    FindVoided { taken: Taken },
    /// What the lock holds that has stood still.
    Look { stood: SiteLock },
    /// TAKE: whether the donor gives.
    FindGift { taken: Taken },
    /// Whether the donor still gives to a lock that has ended.
    FindLeft { taken: Taken },
    /// Rule C: whether the receiver of a gift has moved on.
    FindReceiver { given: SiteLock },
}

/// The receiver's lock with what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Taken {
    lock: SiteLock,
    intention: Intention,
}

/// What the owner need not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Known {
    assignment: Option<Assignment>,
    given: Option<SiteLock>,
}

impl Taken {
    fn of(lock: SiteLock) -> Option<(LockPhase, Self)> {
        match lock.state {
            LockState::Receives(phase, intention) => Some((phase, Self { lock, intention })),
            LockState::Idle | LockState::Gives(_) | LockState::Frozen => None,
        }
    }

    fn in_phase(self, phase: LockPhase) -> Self {
        Self {
            lock: self.lock.in_phase(phase),
            intention: self.intention,
        }
    }
}

type Next = Result<AttemptStep, AttemptEnd>;

impl Attempt {
    /// Begins a move.
    pub const fn begin(plan: MovePlan, now: Timestamp) -> Self {
        Self {
            site: plan.receiver,
            step: AttemptStep::Take(plan),
            asked_at: now,
        }
    }

    /// Helps with the lock of a site that has stood still as `lease.rs` says. It is read again first.
    pub const fn help(site: SiteNumber, stood: SiteLock, now: Timestamp) -> Self {
        Self {
            site,
            step: AttemptStep::Look { stood },
            asked_at: now,
        }
    }

    /// The receiver, or the site whose lock stands still.
    pub const fn site(&self) -> SiteNumber {
        self.site
    }

    /// The operation that is to be done now.
    pub fn op(&self, constitution: &Constitution) -> MoveOp {
        let site = self.site;
        let swap = |site, expected, new| MoveOp::SwapLock {
            site,
            expected,
            new,
        };
        match self.step {
            AttemptStep::Take(plan) => swap(site, plan.receiver_lock, plan.taken()),
            AttemptStep::Give(plan) => swap(plan.intention.donor, plan.donor_lock, plan.given()),
            AttemptStep::GiveUp { taken } | AttemptStep::Release { taken, .. } => {
                swap(site, taken.lock, taken.lock.released())
            }
            AttemptStep::Commit { taken, .. } => {
                swap(site, taken.lock, taken.in_phase(LockPhase::Commit).lock)
            }
            AttemptStep::Void { taken } => {
                swap(site, taken.lock, taken.in_phase(LockPhase::Void).lock)
            }
            AttemptStep::ReleaseDonor { donor, given } => swap(donor, given, given.released()),
            AttemptStep::FindNode { taken, .. } | AttemptStep::FindVoided { taken } => {
                MoveOp::ReadNode(taken.intention.node)
            }
            AttemptStep::Move {
                taken,
                before,
                born,
                ..
            } => MoveOp::SwapNode {
                node: taken.intention.node,
                expected: before,
                new: moved(constitution, before, site, taken.lock, taken.intention),
                born,
            },
            AttemptStep::CountReceiver { .. } => MoveOp::CountUpdate(site),
            AttemptStep::CountDonor { taken, .. } => MoveOp::CountUpdate(taken.intention.donor),
            AttemptStep::Look { .. } => MoveOp::ReadLock(site),
            AttemptStep::FindGift { taken } | AttemptStep::FindLeft { taken } => {
                MoveOp::ReadLock(taken.intention.donor)
            }
            AttemptStep::FindReceiver { given } => match given.state {
                LockState::Gives(gift) => MoveOp::ReadLock(gift.receiver),
                LockState::Idle | LockState::Receives(..) | LockState::Frozen => {
                    MoveOp::ReadLock(site)
                }
            },
        }
    }

    /// Takes what became of the operation.
    ///
    /// # Errors
    /// How this front-end's part ended; there is nothing more to do then.
    pub fn on_reply(self, reply: MoveReply, now: Timestamp) -> Result<Self, AttemptEnd> {
        let step = match reply {
            MoveReply::Held(held) => self.on_held(held)?,
            MoveReply::Lost => return Err(AttemptEnd::Unknown),
            MoveReply::TooOld => return Err(AttemptEnd::TooOld),
            MoveReply::Silent => self.on_silence()?,
        };
        Ok(Self {
            site: self.site,
            step,
            asked_at: now,
        })
    }

    fn on_silence(self) -> Next {
        match self.step {
            AttemptStep::FindNode { taken, .. } | AttemptStep::Move { taken, .. } => {
                Ok(AttemptStep::Void { taken })
            }
            AttemptStep::FindVoided { taken } => Ok(AttemptStep::Release {
                taken,
                known: Known::default(),
            }),
            // The home: nothing can be done without it.
            AttemptStep::Take(_)
            | AttemptStep::Give(_)
            | AttemptStep::GiveUp { .. }
            | AttemptStep::Commit { .. }
            | AttemptStep::CountReceiver { .. }
            | AttemptStep::CountDonor { .. }
            | AttemptStep::Release { .. }
            | AttemptStep::ReleaseDonor { .. }
            | AttemptStep::Void { .. }
            | AttemptStep::Look { .. }
            | AttemptStep::FindGift { .. }
            | AttemptStep::FindLeft { .. }
            | AttemptStep::FindReceiver { .. } => Err(AttemptEnd::Unknown),
        }
    }

    fn on_held(self, held: u64) -> Next {
        match self.step {
            AttemptStep::Take(plan) => match held == plan.receiver_lock.pack() {
                true => Ok(AttemptStep::Give(plan)),
                false => Err(AttemptEnd::Overtaken),
            },
            AttemptStep::Give(plan) => self.on_given(plan, held),
            AttemptStep::Commit { taken, known } => self.on_committed(taken, known, held),
            AttemptStep::FindNode { taken, known, born } => {
                let found = assignment(held)?;
                Ok(match found.filter(|it| it.is_wanted_by(taken.intention)) {
                    // It is done, or the node has changed: the rest is the same.
                    None => AttemptStep::CountReceiver { taken, known },
                    Some(before) => AttemptStep::Move {
                        taken,
                        known,
                        before,
                        born,
                    },
                })
            }
            AttemptStep::Move { taken, known, .. } => {
                Ok(AttemptStep::CountReceiver { taken, known })
            }
            AttemptStep::CountReceiver { taken, known } => {
                Ok(AttemptStep::CountDonor { taken, known })
            }
            AttemptStep::CountDonor { taken, known } => Ok(AttemptStep::Release { taken, known }),
            AttemptStep::FindVoided { taken } => {
                let known = Known::default();
                let moved = assignment(held)?;
                Ok(match moved {
                    Some(it) if it.was_moved_by(self.site, taken.lock) => {
                        AttemptStep::CountReceiver { taken, known }
                    }
                    Some(_) | None => AttemptStep::Release { taken, known },
                })
            }
            AttemptStep::Void { taken } => match held == taken.lock.pack() {
                true => Err(AttemptEnd::Voided),
                false => Err(AttemptEnd::Overtaken),
            },
            AttemptStep::GiveUp { taken } => ended(taken, Known::default(), held),
            AttemptStep::Release { taken, known } => ended(taken, known, held),
            AttemptStep::ReleaseDonor { .. } => Err(AttemptEnd::Finished),
            AttemptStep::Look { stood } => self.on_look(stood, held),
            AttemptStep::FindGift { taken } => self.on_gift(taken, held),
            AttemptStep::FindLeft { taken } => {
                let donor = taken.intention.donor;
                match lock(held)?.filter(|it| it.is_given_to(self.site, taken.lock)) {
                    Some(given) => Ok(AttemptStep::ReleaseDonor { donor, given }),
                    None => Err(AttemptEnd::Finished),
                }
            }
            AttemptStep::FindReceiver { given } => self.on_receiver(given, held),
        }
    }

    fn on_given(self, plan: MovePlan, held: u64) -> Next {
        let taken = Taken {
            lock: plan.taken(),
            intention: plan.intention,
        };
        match held == plan.donor_lock.pack() {
            true => Ok(AttemptStep::Commit {
                taken,
                known: Known {
                    assignment: Some(plan.assignment),
                    given: Some(plan.given()),
                },
            }),
            false => Ok(AttemptStep::GiveUp { taken }),
        }
    }

    /// Whichever front-end swapped it, a lock that was seen at COMMIT in answer to this question was so after it was asked.
    fn on_committed(self, taken: Taken, known: Known, held: u64) -> Next {
        let committed = taken.in_phase(LockPhase::Commit);
        if held == taken.lock.pack() || held == committed.lock.pack() {
            return Ok(self.at_commit(committed, known));
        }
        match lock(held)? {
            Some(it) if it.sequence == taken.lock.sequence => Err(AttemptEnd::Overtaken),
            Some(_) | None => Ok(AttemptStep::FindLeft { taken }),
        }
    }

    fn at_commit(self, taken: Taken, known: Known) -> AttemptStep {
        let born = self.asked_at;
        match known.assignment {
            Some(before) => AttemptStep::Move {
                taken,
                known,
                before,
                born,
            },
            None => AttemptStep::FindNode { taken, known, born },
        }
    }

    fn on_look(self, stood: SiteLock, held: u64) -> Next {
        if held != stood.pack() {
            return Err(AttemptEnd::Overtaken);
        }
        match (stood.state, Taken::of(stood)) {
            (_, Some((LockPhase::Take, taken))) => Ok(AttemptStep::FindGift { taken }),
            (_, Some((LockPhase::Commit, taken))) => Ok(self.at_commit(taken, Known::default())),
            (_, Some((LockPhase::Void, taken))) => Ok(AttemptStep::FindVoided { taken }),
            (LockState::Gives(_), None) => Ok(AttemptStep::FindReceiver { given: stood }),
            (LockState::Idle | LockState::Frozen | LockState::Receives(..), None) => {
                Err(AttemptEnd::Finished)
            }
        }
    }

    fn on_gift(self, taken: Taken, held: u64) -> Next {
        let given = lock(held)?.filter(|it| it.is_given_to(self.site, taken.lock));
        Ok(match given {
            None => AttemptStep::GiveUp { taken },
            Some(_) => AttemptStep::Commit {
                taken,
                known: Known {
                    assignment: None,
                    given,
                },
            },
        })
    }

    fn on_receiver(self, given: SiteLock, held: u64) -> Next {
        let LockState::Gives(gift) = given.state else {
            return Err(AttemptEnd::Finished);
        };
        let stands = lock(held)?.is_some_and(|it| {
            gift.receiver_sequence_low == gift_low(it) && Taken::of(it).is_some()
        });
        match stands {
            true => Err(AttemptEnd::HelpFirst(gift.receiver)),
            false => Ok(AttemptStep::ReleaseDonor {
                donor: self.site,
                given,
            }),
        }
    }
}

/// A receiver's lock was swapped for a free one. Unless another front-end keeps it at the same sequence, the donor's is
/// next.
fn ended(taken: Taken, known: Known, held: u64) -> Next {
    if held != taken.lock.pack() {
        let there = lock(held)?;
        if there.is_some_and(|it| it.sequence == taken.lock.sequence) {
            return Err(AttemptEnd::Overtaken);
        }
    }
    let donor = taken.intention.donor;
    Ok(match known.given {
        Some(given) => AttemptStep::ReleaseDonor { donor, given },
        None => AttemptStep::FindLeft { taken },
    })
}

fn lock(word: u64) -> Result<Option<SiteLock>, AttemptEnd> {
    SiteLock::unpack(word).map_err(AttemptEnd::Garbled)
}

fn assignment(word: u64) -> Result<Option<Assignment>, AttemptEnd> {
    Assignment::unpack(word).map_err(AttemptEnd::Garbled)
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
