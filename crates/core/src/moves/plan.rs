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

/// What a front-end has read. Nodes are counted once, so that each plan costs the same however many there are.
#[derive(Clone, Debug)]
pub struct MoveView<'a> {
    constitution: &'a Constitution,
    sites: &'a [Option<SiteReading>],
    nodes: &'a [NodeReading],
    /// By site number.
    counts: Vec<SiteCount>,
    /// Nodes that were not read.
    unseen: usize,
    /// The node that was asked longest ago, of those that answered; one that was never read is older than all.
    oldest: Option<(Option<Timestamp>, NodeNumber)>,
}

/// Nodes of a site.
#[derive(Clone, Copy, Debug, Default)]
struct SiteCount {
    serving: usize,
    /// On their way to it.
    awaited: usize,
    /// On their way from it.
    left: usize,
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
    /// The node is silent, or its word is about to begin anew.
    #[error("the word of the node is not read")]
    NotRead,
    /// The node is on its way.
    #[error("the node does not serve")]
    NotServing,
    /// The node is of that site already.
    #[error("the node is of that site already")]
    OwnSite,
    /// The node is on its way to that site.
    #[error("the node is on its way to that site already")]
    ComesAlready,
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

impl NoMove {
    /// Whether it holds until operators or another move change that. Anything else is over with a next look or a few.
    pub fn is_rule(self) -> bool {
        match self {
            Self::Frozen | Self::Pinned | Self::AtFloor | Self::AtCeiling => true,
            Self::Unknown
            | Self::NoWords
            | Self::ReceiverTaken
            | Self::DonorTaken
            | Self::WindowOver
            | Self::OldView(_)
            | Self::NotRead
            | Self::NotServing
            | Self::OwnSite
            | Self::ComesAlready
            | Self::OnItsWay => false,
        }
    }
}

impl<'a> MoveView<'a> {
    /// Sites by number, `None` for one whose words cannot be had; nodes by number.
    pub fn new(
        constitution: &'a Constitution,
        sites: &'a [Option<SiteReading>],
        nodes: &'a [NodeReading],
    ) -> Self {
        let mut view = Self {
            constitution,
            sites,
            nodes,
            counts: vec![SiteCount::default(); constitution.sites()],
            unseen: 0,
            oldest: None,
        };
        for (number, node) in nodes.iter().enumerate() {
            view.count(NodeNumber(number as u16), node);
        }
        view
    }

    fn count(&mut self, number: NodeNumber, node: &NodeReading) {
        let asked_at = match node {
            NodeReading::Read {
                assignment,
                asked_at,
            } => {
                self.count_at(assignment.site, |it| match assignment.is_serving() {
                    true => it.serving += 1,
                    false => it.awaited += 1,
                });
                // A word that says so of its own site is no word of ours; it counts once.
                if let Some(from) = assignment.from().filter(|it| *it != assignment.site) {
                    self.count_at(from, |it| it.left += 1);
                }
                Some(*asked_at)
            }
            NodeReading::Silent => {
                self.unseen += 1;
                return;
            }
            NodeReading::Unread => {
                self.unseen += 1;
                None
            }
        };
        if self.oldest.is_none_or(|(at, _)| asked_at < at) {
            self.oldest = Some((asked_at, number));
        }
    }

    fn count_at(&mut self, site: SiteNumber, add: impl FnOnce(&mut SiteCount)) {
        self.counts.get_mut(site.index()).map(add);
    }

    /// What front-ends have in common.
    pub(super) fn constitution(&self) -> &'a Constitution {
        self.constitution
    }

    /// What was read of a site.
    pub(super) fn site(&self, site: SiteNumber) -> Option<SiteReading> {
        self.sites.get(site.index()).copied().flatten()
    }

    /// What was read of nodes, by number.
    pub(super) fn nodes(&self) -> &'a [NodeReading] {
        self.nodes
    }

    fn reading(&self, site: SiteNumber) -> Result<SiteReading, NoMove> {
        self.site(site).ok_or(NoMove::NoWords)
    }

    fn counted(&self, site: SiteNumber) -> SiteCount {
        self.counts.get(site.index()).copied().unwrap_or_default()
    }

    /// Nodes that are seen to serve a site: what it has at least.
    pub fn serving(&self, site: SiteNumber) -> usize {
        self.counted(site).serving
    }

    /// Nodes that a site may have, whatever becomes of moves under way and of silent nodes: what it has at most.
    pub fn at_most(&self, site: SiteNumber) -> usize {
        let SiteCount {
            serving,
            awaited,
            left,
        } = self.counted(site);
        serving + awaited + left + self.unseen
    }

    /// Whether a node is on its way to a site.
    pub fn is_awaited(&self, site: SiteNumber) -> bool {
        self.counted(site).awaited > 0
    }

    /// Whether all nodes were asked after a moment, silent ones left out.
    fn is_newer(&self, than: Timestamp) -> Result<(), NoMove> {
        match self.oldest {
            Some((at, node)) if at.is_none_or(|at| at < than) => Err(NoMove::OldView(node.0)),
            Some(_) | None => Ok(()),
        }
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
            Some(NodeReading::Silent | NodeReading::Unread) => return Err(NoMove::NotRead),
            None => return Err(NoMove::Unknown),
        };
        let donor = self.reading(assignment.site)?;
        if assignment.site == wish.receiver {
            return Err(match assignment.is_serving() {
                true => NoMove::OwnSite,
                false => NoMove::ComesAlready,
            });
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
