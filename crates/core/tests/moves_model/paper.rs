//! The paper's own lock, for comparison: a lock of the receiver, a second atomic on the node, update counters. With a
//! lease that is over, another front-end frees the lock; without one it stays with a front-end that died.
//!
//! Source: Reconfiguration-2004, section 3.1.2 and its figure 4.

use tidegate_core::moves::numbering::Constitution;
use tidegate_core::moves::plan::{MovePlan, moved};
use tidegate_core::moves::steps::{MoveOp, MoveReply};
use tidegate_core::moves::words::{SiteLock, SiteNumber};
use tidegate_core::time::Timestamp;

/// Where a front-end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PaperAttempt {
    Lock(MovePlan),
    Move(MovePlan),
    Count(MovePlan),
    Free(MovePlan),
    /// A lock that stands still is freed.
    TakeOver(SiteNumber, SiteLock),
}

impl PaperAttempt {
    pub(crate) fn op(&self, constitution: &Constitution) -> MoveOp {
        let swap = |site, expected, new| MoveOp::SwapLock {
            site,
            expected,
            new,
        };
        match self {
            Self::Lock(plan) => swap(plan.receiver, plan.receiver_lock, plan.taken()),
            Self::Move(plan) => MoveOp::SwapNode {
                node: plan.intention.node,
                expected: plan.assignment,
                new: moved(
                    constitution,
                    plan.assignment,
                    plan.receiver,
                    plan.taken(),
                    plan.intention,
                ),
                born: Timestamp::ZERO,
            },
            Self::Count(plan) => MoveOp::CountUpdate(plan.receiver),
            Self::Free(plan) => swap(plan.receiver, plan.taken(), plan.taken().released()),
            Self::TakeOver(site, lock) => swap(*site, *lock, lock.released()),
        }
    }

    pub(crate) fn on_reply(self, reply: MoveReply) -> Option<Self> {
        let MoveReply::Held(held) = reply else {
            return None;
        };
        match self {
            Self::Lock(plan) => (held == plan.receiver_lock.pack()).then_some(Self::Move(plan)),
            Self::Move(plan) => Some(Self::Count(plan)),
            Self::Count(plan) => Some(Self::Free(plan)),
            Self::Free(_) | Self::TakeOver(..) => None,
        }
    }
}
