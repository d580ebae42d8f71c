//! What a picked request holds until it ends: its ticket, and its rest.

use std::cell::Cell;
use std::sync::Arc;

use super::Why;
use crate::admission::Kind;
use crate::load::{LoadTable, RestKind};
use crate::time::Timestamp;
use crate::topology::{GroupId, NodeId, SiteId};

/// One request on its way. Dropping it ends it.
#[derive(Debug)]
#[must_use = "a dropped ticket is an ended request"]
pub struct Ticket {
    /// The node that has it.
    pub node: NodeId,
    /// Why it went there.
    pub why: Why,
    pub(super) site: SiteId,
    /// The group of the node when the request went there.
    pub(super) group: Option<GroupId>,
    /// None if this is not its first try, or it has an account of its own: then it says nothing of its kind.
    pub(super) kind: Option<Kind>,
    /// Whether a throttle bounds it, and no slot.
    pub(super) throttled: Cell<bool>,
    pub(super) slowdown: f32,
    /// Whether it has no answer yet, and whether it found hardly another one there and has none yet.
    pub(super) unanswered: Cell<bool>,
    pub(super) first: Cell<bool>,
    pub(super) dispatched_at: Timestamp,
    /// When the head of the answer came.
    pub(super) began_at: Option<Timestamp>,
    pub(super) table: TicketTable,
}

/// The table as the tickets of one picker share it: counted by a counter of this picker's own,
/// for the table's would be fought over by all workers, twice per request.
pub(super) type TicketTable = Arc<Arc<LoadTable>>;

impl Ticket {
    /// The site that it belongs to.
    pub fn site(&self) -> SiteId {
        self.site
    }

    /// Whether it has an account of its own, as one of a throttled class.
    pub fn is_throttled(&self) -> bool {
        self.throttled.get()
    }

    /// Its answer has begun, or it has become a tunnel: from now on it counts as all others do, until it ends or
    /// rests.
    pub fn end_account(&self) {
        self.leave_account(false);
    }

    pub(super) fn leave_account(&self, ended: bool) {
        if self.throttled.replace(false) {
            self.table.accounts().end(self.site, self.node, ended);
        }
    }

    /// The answer has come, or will not.
    pub(super) fn end_wait(&self) {
        if self.first.replace(false) {
            self.table.first_ended(self.site);
        }
        if let (Some(kind), true) = (self.kind, self.unanswered.replace(false)) {
            self.table.kinds(self.site).end_wait(kind);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave_account(true);
        self.table.complete(self.node, self.group);
        self.end_wait();
    }
}

/// A request rests while this lives, which is no longer than its ticket.
#[derive(Debug)]
#[must_use = "dropped, it rests no more"]
pub struct Resting {
    pub(super) node: NodeId,
    pub(super) rest: RestKind,
    pub(super) table: TicketTable,
}

impl Drop for Resting {
    fn drop(&mut self) {
        self.table.end_rest(self.node, self.rest);
    }
}
