//! The words of a cluster that one front-end serves alone: in its own process, as no other one could read them.
//!
//! ```text
//! S[x] begins free, U[x] at 0, A[n] with the site of the configuration
//! an operation is done at once, or is not: nothing is lost, late or silent
//! ```
//!
//! The protocol is the same as over remote memory, so what holds there holds here. Inputs: operations. Failure case: the
//! process ends, and the words with it: nodes are where the configuration has them.
//! Source: not in Reconfiguration-2004.

use super::atomics::{HomeWords, WordAtomic, WordPlace};
use super::numbering::Constitution;
use super::plan::{NodeReading, SiteReading};
use super::steps::{MoveOp, MoveReply};
use super::words::{
    Assignment, CONSTITUTION_WORD, Count24, NodeNumber, SiteLock, SiteNumber, WordError,
};
use crate::time::Timestamp;

/// See the module.
#[derive(Clone, Debug)]
pub struct MemoryWords {
    constitution: u64,
    locks: Vec<u64>,
    updates: Vec<u64>,
    assignments: Vec<u64>,
}

impl MemoryWords {
    /// Words for these sites and nodes; `sites` says where each node serves now.
    pub fn new(constitution: &Constitution, sites: impl Fn(NodeNumber) -> SiteNumber) -> Self {
        let numbers = (0..constitution.nodes()).map(|number| NodeNumber(number as u16));
        let first = |node| {
            let site = sites(node);
            let lent = constitution.home(node) != Some(site);
            Assignment::first(Count24::FIRST, site, lent).pack()
        };
        Self {
            constitution: constitution.word().pack(),
            locks: vec![SiteLock::idle(Count24::FIRST).pack(); constitution.sites()],
            updates: vec![0; constitution.sites()],
            assignments: numbers.map(first).collect(),
        }
    }

    /// Does it. Of a site or node that has no word nothing is known.
    pub fn carry_out(&mut self, op: MoveOp) -> MoveReply {
        self.atomic(op.atomic())
    }

    /// The same, of bare words.
    pub fn atomic(&mut self, atomic: WordAtomic) -> MoveReply {
        let Some(word) = self.word(atomic.place()) else {
            return MoveReply::Lost;
        };
        let held = *word;
        match atomic {
            WordAtomic::Swap { expected, new, .. } if held == expected => *word = new,
            WordAtomic::Count(_) => *word = held.wrapping_add(1),
            WordAtomic::Read(_) | WordAtomic::Swap { .. } => {}
        }
        MoveReply::Held(held)
    }

    fn word(&mut self, place: WordPlace) -> Option<&mut u64> {
        let word = match place {
            WordPlace::Node(node) => return self.assignments.get_mut(node.index()),
            WordPlace::Home(CONSTITUTION_WORD) => return Some(&mut self.constitution),
            WordPlace::Home(word) => word,
        };
        let of = |site: &SiteNumber| site.lock_word() == word || site.updates_word() == word;
        let mut sites = (0..self.locks.len()).map(|number| SiteNumber(number as u8));
        let site = sites.find(of)?;
        match word == site.lock_word() {
            true => self.locks.get_mut(site.index()),
            false => self.updates.get_mut(site.index()),
        }
    }

    /// All words but those of nodes.
    pub fn home(&self, now: Timestamp) -> HomeWords {
        HomeWords {
            constitution: self.constitution,
            sites: self
                .locks
                .iter()
                .copied()
                .zip(self.updates.iter().copied())
                .collect(),
            at: now,
        }
    }

    /// What a node's word holds.
    pub fn assignment(&self, node: NodeNumber) -> Option<u64> {
        self.assignments.get(node.index()).copied()
    }

    /// All sites' words.
    ///
    /// # Errors
    /// A word holds what no front-end writes.
    pub fn sites(&self, now: Timestamp) -> Result<Vec<Option<SiteReading>>, WordError> {
        let words = self.locks.iter().zip(&self.updates);
        words
            .map(|(lock, updates)| {
                let lock = SiteLock::unpack(*lock)?;
                Ok(lock.map(|lock| SiteReading {
                    lock,
                    updates: *updates,
                    at: now,
                }))
            })
            .collect()
    }

    /// All nodes' words.
    ///
    /// # Errors
    /// A word holds what no front-end writes.
    pub fn nodes(&self, now: Timestamp) -> Result<Vec<NodeReading>, WordError> {
        let read = |word: &u64| {
            let assignment = Assignment::unpack(*word)?;
            Ok(match assignment {
                Some(assignment) => NodeReading::Read {
                    assignment,
                    asked_at: now,
                },
                None => NodeReading::Unread,
            })
        };
        self.assignments.iter().map(read).collect()
    }
}
