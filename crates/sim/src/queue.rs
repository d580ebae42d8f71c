//! Events to come, in order of time; among equals in the order in which they were scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::time::Timestamp;

/// What happens. Numbers are those of requests in flight, nodes, front-ends, and places in the
/// scenario's lists; a version tells an event of a request from those of earlier ones that had
/// its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A request for the site comes to a front-end.
    Arrival { site: u32 },
    /// A request has reached its node.
    Delivered { request: u32 },
    /// The IO of a request has ended.
    IoDone { request: u32, version: u32 },
    /// The answer to a request has reached its front-end.
    Answered { request: u32 },
    /// A request begins to take none of its node's time.
    Rests {
        request: u32,
        version: u32,
        answered: bool,
    },
    /// A front-end has waited for an answer for long enough.
    TimedOut { request: u32, version: u32 },
    /// A node learns that its answer is not waited for any more.
    Cancelled { request: u32, version: u32 },
    /// A probe of a director has ended.
    Probed {
        front_end: u32,
        node: u32,
        answered: bool,
    },
    /// A front-end's question about a word has reached the node.
    WordAsked {
        front_end: u32,
        node: u32,
        ticket: u32,
    },
    /// Its answer has reached the front-end.
    WordAnswered {
        front_end: u32,
        node: u32,
        ticket: u32,
        held: u64,
        node_now: Timestamp,
    },
    /// A node's antagonist comes or goes.
    Antagonist { node: u32 },
    /// A front-end looks after its ejected nodes.
    Wake { front_end: u32 },
    /// A window of the report ends.
    Window,
    /// An operator overrides a node.
    Override { index: u32 },
    /// A node leaves the cluster.
    Left { index: u32 },
    /// It comes back.
    Joined { index: u32 },
    /// A fault begins.
    Broke { index: u32 },
    /// A fault ends.
    Mended { index: u32 },
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(Timestamp, u64, Event)>>,
    scheduled: u64,
}

impl Queue {
    pub(crate) fn schedule(&mut self, at: Timestamp, event: Event) {
        self.scheduled += 1;
        self.heap.push(Reverse((at, self.scheduled, event)));
    }

    /// When the first one happens.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.heap.pop().map(|Reverse((.., event))| event)
    }
}
