//! Whether a move may begin, whatever the load says: what a front-end must have read, and the rules that it must keep.
//!
//! ```text
//! window   lock k and update counter u of the receiver x, as they were when the evidence began
//! begins   S[x] = k, free; U[x] = u; S[y] free; then each A read anew, or its node silent
//! node n   A[n] serves y, not pinned, gives y != x
//! transit  no A has site x and does not serve
//! floor    nodes that are seen to serve y > floor(y)          those on their way to y may come back, so they do not count
//! ceiling  nodes of x, those that left x and may come back, and the silent ones < ceiling(x)
//! ```
//!
//! Locks are read before assignments. So what is counted is what is true while both locks stay as they were read,
//! and the compare-and-swaps on both locks prove that they did. A revert needs no lock: it takes a node
//! from x and gives it back to y, which neither count minds.
//!
//! Inputs: the window, words with the times at which they were read, the constitution. Failure case: a node that is
//! silent to this front-end alone, and moves to x for another one: then x gets two nodes for one event.
//! Source: Reconfiguration-2004, section 3.1.2 (local and shared update counters are u and U); floors are its least
//! of one node per site.

use super::numbering::Constitution;
use super::words::{
    Assignment, AssignmentState, Gift, Intention, LockState, MoveCause, NodeNumber, SiteLock,
    SiteNumber, gift_low, sequence_low,
};
use crate::time::Timestamp;

/// The words of a site, as they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteReading {
    /// S.
    pub lock: SiteLock,
    /// U.
    pub updates: u64,
    /// When the answer was there.
    pub at: Timestamp,
}

/// What is known of a node's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeReading {
    /// It was read.
    Read {
        /// What it held.
        assignment: Assignment,
        /// When it was asked for.
        asked_at: Timestamp,
    },
    /// The node has not answered for so long that it counts as gone.
    Silent,
    /// It was never read.
    Unread,
}

/// Where the evidence of a site began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventWindow {
    /// k.
    pub lock: SiteLock,
    /// u.
    pub updates: u64,
    /// When both were read.
    pub began_at: Timestamp,
}

/// What a front-end has read.
#[derive(Clone, Copy, Debug)]
pub struct MoveView<'a> {
    /// What it has in common with the others.
    pub constitution: &'a Constitution,
    /// By site number; `None` is a site whose words cannot be had.
    pub sites: &'a [Option<SiteReading>],
    /// By node number.
    pub nodes: &'a [NodeReading],
}

/// A move that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MoveWish {
    /// The node.
    pub node: NodeNumber,
    /// The site that is to get it.
    pub receiver: SiteNumber,
    /// Why.
    pub cause: MoveCause,
    /// Four bits of this front-end, for people.
    pub owner: u8,
    /// An operator wants it below the floor, too.
    pub force: bool,
}

/// A move that may begin: what its first two swaps expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MovePlan {
    /// The site that gets the node.
    pub receiver: SiteNumber,
    /// Its lock, free.
    pub receiver_lock: SiteLock,
    /// The lock of the site that gives it, free.
    pub donor_lock: SiteLock,
    /// The node's word.
    pub assignment: Assignment,
    /// What the receiver's lock is to say.
    pub intention: Intention,
}

/// Why a move may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NoMove {
    /// The constitution has no such site or node.
    #[error("the constitution has no such site or node")]
    Unknown,
    /// A site's words cannot be had.
    #[error("the words of a site cannot be read")]
    NoWords,
    /// The lock of the receiver is taken.
    #[error("the receiving site's lock is taken")]
    ReceiverTaken,
    /// Operators have frozen the receiver or the donor.
    #[error("operators have frozen the site")]
    Frozen,
    /// The lock of the donor is taken.
    #[error("the giving site's lock is taken")]
    DonorTaken,
    /// A move came after the evidence began.
    #[error("a move came after the evidence began")]
    WindowOver,
    /// A node's word is older than the locks.
    #[error("the word of node {0} is older than the locks")]
    OldView(u16),
    /// The node is silent, or on its way.
    #[error("the node does not serve")]
    NotServing,
    /// The node is of that site already.
    #[error("the node is of that site already")]
    OwnSite,
    /// Operators keep the node where it is.
    #[error("operators keep the node where it is")]
    Pinned,
    /// Another node is on its way to the receiver.
    #[error("another node is on its way to the receiving site")]
    OnItsWay,
    /// The donor would have too few.
    #[error("the giving site has no node above its floor")]
    AtFloor,
    /// The receiver would have too many.
    #[error("the receiving site is at its ceiling")]
    AtCeiling,
}

impl MoveView<'_> {
    fn reading(&self, site: SiteNumber) -> Result<SiteReading, NoMove> {
        let reading = self.sites.get(site.index()).copied().flatten();
        reading.ok_or(NoMove::NoWords)
    }

    fn assignments(&self) -> impl Iterator<Item = Assignment> {
        self.nodes.iter().filter_map(|it| match it {
            NodeReading::Read { assignment, .. } => Some(*assignment),
            NodeReading::Silent | NodeReading::Unread => None,
        })
    }

    /// Nodes that are seen to serve a site: what it has at least.
    pub fn serving(&self, site: SiteNumber) -> usize {
        let of = |it: &Assignment| it.site == site && it.is_serving();
        self.assignments().filter(of).count()
    }

    /// Nodes that a site may have, whatever becomes of moves under way and of silent nodes: what it has at most.
    pub fn at_most(&self, site: SiteNumber) -> usize {
        let of = |it: &Assignment| it.site == site || it.from() == Some(site);
        let unseen = |it: &&NodeReading| !matches!(it, NodeReading::Read { .. });
        self.assignments().filter(of).count() + self.nodes.iter().filter(unseen).count()
    }

    /// Whether a node is on its way to a site.
    pub fn is_awaited(&self, site: SiteNumber) -> bool {
        self.assignments()
            .any(|it| it.site == site && !it.is_serving())
    }

    /// Whether all nodes were asked after a moment, silent ones left out.
    fn is_newer(&self, than: Timestamp) -> Result<(), NoMove> {
        for (number, node) in self.nodes.iter().enumerate() {
            let new = match node {
                NodeReading::Read { asked_at, .. } => *asked_at >= than,
                NodeReading::Silent => true,
                NodeReading::Unread => false,
            };
            if !new {
                return Err(NoMove::OldView(number as u16));
            }
        }
        Ok(())
    }

    /// The plan of a move, or why there is none.
    ///
    /// # Errors
    /// Each rule of the module's head that does not hold.
    pub fn plan(&self, window: &EventWindow, wish: MoveWish) -> Result<MovePlan, NoMove> {
        let receiver = self.reading(wish.receiver)?;
        if receiver.lock != window.lock || receiver.updates != window.updates {
            return Err(NoMove::WindowOver);
        }
        is_free(receiver.lock, NoMove::ReceiverTaken)?;
        let assignment = match self.nodes.get(wish.node.index()) {
            Some(NodeReading::Read { assignment, .. }) => *assignment,
            Some(NodeReading::Silent | NodeReading::Unread) => return Err(NoMove::NotServing),
            None => return Err(NoMove::Unknown),
        };
        let donor = self.reading(assignment.site)?;
        if assignment.site == wish.receiver {
            return Err(NoMove::OwnSite);
        }
        is_free(donor.lock, NoMove::DonorTaken)?;
        self.is_newer(receiver.at.max(donor.at))?;
        self.keeps_rules(assignment, wish)?;
        Ok(MovePlan {
            receiver: wish.receiver,
            receiver_lock: receiver.lock,
            donor_lock: donor.lock,
            assignment,
            intention: Intention {
                node: wish.node,
                generation_low: assignment.generation_low(),
                donor: assignment.site,
                cause: wish.cause,
                owner: wish.owner & 15,
            },
        })
    }

    fn keeps_rules(&self, node: Assignment, wish: MoveWish) -> Result<(), NoMove> {
        let rules = |site| self.constitution.site(site).ok_or(NoMove::Unknown);
        let (receiver, donor) = (rules(wish.receiver)?, rules(node.site)?);
        if !node.is_serving() {
            return Err(NoMove::NotServing);
        }
        if node.pinned && wish.cause != MoveCause::Operator {
            return Err(NoMove::Pinned);
        }
        if self.is_awaited(wish.receiver) {
            return Err(NoMove::OnItsWay);
        }
        if self.serving(node.site) <= usize::from(donor.floor) && !wish.force {
            return Err(NoMove::AtFloor);
        }
        if self.at_most(wish.receiver) >= usize::from(receiver.ceiling) {
            return Err(NoMove::AtCeiling);
        }
        Ok(())
    }
}

fn is_free(lock: SiteLock, taken: NoMove) -> Result<(), NoMove> {
    match lock.state {
        LockState::Idle => Ok(()),
        LockState::Frozen => Err(NoMove::Frozen),
        LockState::Receives(..) | LockState::Gives(_) => Err(taken),
    }
}

impl MovePlan {
    /// What the receiver's lock says once it is taken.
    pub fn taken(&self) -> SiteLock {
        self.receiver_lock.taken(self.intention)
    }

    /// What the donor's lock says once it gives.
    pub fn given(&self) -> SiteLock {
        self.donor_lock.giving(Gift {
            node: self.intention.node,
            generation_low: self.intention.generation_low,
            receiver: self.receiver,
            receiver_sequence_low: gift_low(self.taken()),
        })
    }
}

/// What a node's word says once it is moved for this lock of this site.
pub fn moved(
    constitution: &Constitution,
    before: Assignment,
    receiver: SiteNumber,
    taken: SiteLock,
    intention: Intention,
) -> Assignment {
    let from = before.site;
    Assignment {
        generation: before.generation.next(),
        state: match constitution.drains() {
            true => AssignmentState::Draining { from },
            false => AssignmentState::Serving,
        },
        site: receiver,
        cause: intention.cause,
        pinned: before.pinned,
        lent: constitution.home(intention.node) != Some(receiver),
        by: sequence_low(taken),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
