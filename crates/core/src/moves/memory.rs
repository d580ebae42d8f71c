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

use super::numbering::Constitution;
use super::plan::{NodeReading, SiteReading};
use super::steps::{MoveOp, MoveReply};
use super::words::{Assignment, Count24, NodeNumber, SiteLock, SiteNumber, WordError};
use crate::time::Timestamp;

/// See the module.
#[derive(Clone, Debug)]
pub struct MemoryWords {
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
            locks: vec![SiteLock::idle(Count24::FIRST).pack(); constitution.sites()],
            updates: vec![0; constitution.sites()],
            assignments: numbers.map(first).collect(),
        }
    }

    /// Does it. Of a site or node that has no word nothing is known.
    pub fn carry_out(&mut self, op: MoveOp) -> MoveReply {
        let held = match op {
            MoveOp::ReadLock(site) => self.locks.get(site.index()).copied(),
            MoveOp::SwapLock {
                site,
                expected,
                new,
            } => swap(&mut self.locks, site.index(), expected.pack(), new.pack()),
            MoveOp::CountUpdate(site) => self.updates.get_mut(site.index()).map(|updates| {
                let held = *updates;
                *updates = held.wrapping_add(1);
                held
            }),
            MoveOp::ReadNode(node) => self.assignments.get(node.index()).copied(),
            MoveOp::SwapNode {
                node,
                expected,
                new,
                ..
            } => swap(
                &mut self.assignments,
                node.index(),
                expected.pack(),
                new.pack(),
            ),
        };
        held.map_or(MoveReply::Lost, MoveReply::Held)
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

fn swap(words: &mut [u64], place: usize, expected: u64, new: u64) -> Option<u64> {
    let word = words.get_mut(place)?;
    let held = *word;
    if held == expected {
        *word = new;
    }
    Some(held)
}
