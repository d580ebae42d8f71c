//! What a front-end makes of a home's words: whether it may move nodes by them, and how a blank home begins.
//!
//! ```text
//! K  ours: moves.  blank for 2 AGE_MAX + lease: K 0 -> ours.  older serial, all locks free: -> ours.  else: no moves
//! S  blank for as long, once K is ours: S 0 -> free, at a random sequence; no words of that site until then
//! ```
//!
//! Nothing of a home whose K is not ours is believed: its numbers mean other sites. While a home is blank, swaps that
//! were under way when its words were lost grow too old (`lease.rs`).
//!
//! Inputs: words as they were read, `now`, random numbers. Failure case: a home that is lost more often than each half
//! second never begins. Source: not in Reconfiguration-2004, whose shared state never goes away.

use super::atomics::{HomeWords, WordAtomic, WordPlace};
use super::lease::{LockCare, LockWatch, Patience, first_lock};
use super::numbering::{Constitution, ConstitutionWord, Joining};
use super::plan::SiteReading;
use super::words::{CONSTITUTION_WORD, LockState, SITES_MAX, SiteLock, SiteNumber, WordError};
use crate::prng::Prng;
use crate::time::Timestamp;

/// Whether this front-end may move nodes by a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeState {
    /// What it says is what this front-end says.
    Joined,
    /// It has no words yet, or lost them.
    Blank,
    /// It has an older constitution, and moves by that one are under way.
    Older,
    /// It has another constitution.
    Disagrees(ConstitutionWord),
}

/// What is to be made of a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeLook {
    /// Whether nodes may be moved.
    pub state: HomeState,
    /// Words by site; none where they say nothing.
    pub sites: Vec<Option<SiteReading>>,
    /// Words that are to begin.
    pub begin: Vec<WordAtomic>,
    /// A lock that no front-end writes.
    pub garbled: Option<WordError>,
}

/// What a front-end has seen of a home.
#[derive(Clone, Debug)]
pub struct HomeWatch {
    constitution: Option<LockWatch>,
    locks: Vec<Option<LockWatch>>,
    is_older: bool,
    prng: Prng,
}

impl HomeWatch {
    /// One that has seen nothing.
    pub fn new(seed: u64) -> Self {
        Self {
            constitution: None,
            locks: vec![None; SITES_MAX],
            is_older: false,
            prng: Prng::new(seed),
        }
    }

    /// Of how many sites the words are to be read: of all that an older constitution may have, before it is replaced.
    pub fn sites_to_read(&self, constitution: &Constitution) -> usize {
        match self.is_older {
            true => SITES_MAX,
            false => constitution.sites(),
        }
    }

    /// Takes in what was read.
    pub fn look(
        &mut self,
        words: &HomeWords,
        constitution: &Constitution,
        patience: &Patience,
    ) -> HomeLook {
        let held = words.constitution;
        let watch = self
            .constitution
            .get_or_insert(LockWatch::new(held, words.at));
        watch.on_read(held, words.at);
        let may_begin = watch.may_begin(patience);
        let is_idle = self.is_older && words.sites.iter().all(|(lock, _)| is_free(*lock));
        let swap = |expected, new| WordAtomic::Swap {
            place: WordPlace::Home(CONSTITUTION_WORD),
            expected,
            new,
            born: None,
        };
        let (state, begin) = match constitution.join(held, is_idle) {
            Joining::Agrees => (HomeState::Joined, None),
            Joining::Swap { expected: 0, new } => {
                (HomeState::Blank, may_begin.then(|| swap(0, new)))
            }
            Joining::Swap { expected, new } => (HomeState::Older, Some(swap(expected, new))),
            Joining::Waits => (HomeState::Older, None),
            Joining::Disagrees(there) => (HomeState::Disagrees(there), None),
        };
        self.is_older = state == HomeState::Older;
        let mut look = HomeLook {
            state,
            sites: vec![None; constitution.sites()],
            begin: begin.into_iter().collect(),
            garbled: None,
        };
        for (number, (lock, updates)) in words.sites.iter().enumerate().take(SITES_MAX) {
            self.look_at_site(number, (*lock, *updates), words.at, patience, &mut look);
        }
        look
    }

    fn look_at_site(
        &mut self,
        number: usize,
        (word, updates): (u64, u64),
        at: Timestamp,
        patience: &Patience,
        look: &mut HomeLook,
    ) {
        let watch = self.locks[number].get_or_insert(LockWatch::new(word, at));
        watch.on_read(word, at);
        let Some(slot) = look.sites.get_mut(number) else {
            return;
        };
        if look.state != HomeState::Joined {
            return;
        }
        match SiteLock::unpack(word) {
            Ok(Some(lock)) => *slot = Some(SiteReading { lock, updates, at }),
            Ok(None) if watch.care(patience) == Ok(LockCare::Begin) => {
                let site = SiteNumber(number as u8);
                look.begin.push(WordAtomic::Swap {
                    place: WordPlace::Home(site.lock_word()),
                    expected: 0,
                    new: first_lock(self.prng.bits()).pack(),
                    born: None,
                });
            }
            Ok(None) => {}
            Err(error) => look.garbled = Some(error),
        }
    }
}

/// Whether no move is under way by a lock.
fn is_free(word: u64) -> bool {
    match SiteLock::unpack(word) {
        Ok(None) => true,
        Ok(Some(lock)) => matches!(lock.state, LockState::Idle | LockState::Frozen),
        Err(_) => false,
    }
}

#[cfg(test)]
#[path = "home_tests.rs"]
mod tests;
