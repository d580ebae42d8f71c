//! Atomics of moves as an engine carries them out: on words, without what these say.
//!
//! ```text
//! home  K = word 8, S[x] = word 64 + 4x, U[x] = word 65 + 4x      node  A[n] = word 0 of its region
//! read  the word as it is        swap  new if it holds `expected`        count  the word + 1
//! ```
//!
//! Inputs: an operation of a move. Failure case: none here; what becomes of an atomic is a
//! [`MoveReply`](super::steps::MoveReply). Source: Reconfiguration-2004, section 3.1.2, which asks for
//! compare-and-swap and fetch-and-add and nothing else.

use super::steps::MoveOp;
use super::words::{NodeNumber, SiteNumber};
use crate::time::Timestamp;

/// Where a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WordPlace {
    /// This word of the home.
    Home(u32),
    /// The assignment of this node, in its region.
    Node(NodeNumber),
}

/// An atomic on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WordAtomic {
    /// What it holds.
    Read(WordPlace),
    /// If it holds what is expected, it holds something new.
    Swap {
        /// Where.
        place: WordPlace,
        /// If it holds this.
        expected: u64,
        /// For this.
        new: u64,
        /// A node refuses a swap that was born more than `AGE_MAX` ago.
        born: Option<Timestamp>,
    },
    /// Adds 1 to a word of the home.
    Count(u32),
}

/// What a home holds, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeWords {
    /// K.
    pub constitution: u64,
    /// S and U by site.
    pub sites: Vec<(u64, u64)>,
    /// When the last answer was there.
    pub at: Timestamp,
}

impl WordAtomic {
    /// Where it is carried out.
    pub const fn place(self) -> WordPlace {
        match self {
            Self::Read(place) | Self::Swap { place, .. } => place,
            Self::Count(word) => WordPlace::Home(word),
        }
    }
}

impl MoveOp {
    /// What it is to an engine, which carries it out.
    pub fn atomic(self) -> WordAtomic {
        let lock = |site: SiteNumber| WordPlace::Home(site.lock_word());
        match self {
            Self::ReadLock(site) => WordAtomic::Read(lock(site)),
            Self::SwapLock {
                site,
                expected,
                new,
            } => WordAtomic::Swap {
                place: lock(site),
                expected: expected.pack(),
                new: new.pack(),
                born: None,
            },
            Self::CountUpdate(site) => WordAtomic::Count(site.updates_word()),
            Self::ReadNode(node) => WordAtomic::Read(WordPlace::Node(node)),
            Self::SwapNode {
                node,
                expected,
                new,
                born,
            } => WordAtomic::Swap {
                place: WordPlace::Node(node),
                expected: expected.pack(),
                new: new.pack(),
                born: Some(born),
            },
        }
    }
}
