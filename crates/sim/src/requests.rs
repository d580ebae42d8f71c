//! Requests in flight: one entry per try, from the choice of a node to the end of the answer.
//!
//! Entries are used again, so that what is in flight stays in the cache and nothing is allocated
//! per request. An entry whose request was given up lives on until the node or the answer
//! notices.

use std::time::Duration;

use tidegate_core::admission::Priority;
use tidegate_core::picker::{Resting, Ticket};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;

/// What a request wants and since when: the same for each of its tries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) site: u32,
    pub(crate) priority: Priority,
    /// What it asks for, where that says what it costs.
    pub(crate) path: Option<&'static str>,
    pub(crate) front_end: u32,
    pub(crate) arrived: Timestamp,
    /// CPU time at speed 1.
    pub(crate) demand: Duration,
    /// IO between the two halves of it, at slowness 1.
    pub(crate) io: Duration,
    /// Whether it is one that is held open.
    pub(crate) held: bool,
    /// Whether it came after the warm-up.
    pub(crate) measured: bool,
    /// A node that failed it, by the front-end's number.
    pub(crate) tried: Option<NodeId>,
}

/// Where a try is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryStage {
    /// On its way to the node.
    Sent,
    /// At the node, which stands still.
    Held,
    /// At the node, and no worker has accepted it.
    Unaccepted,
    /// On the run queue, before IO.
    First,
    /// Queued for IO.
    Queued,
    /// In IO.
    Io,
    /// On the run queue, for the last time.
    Last,
    /// The answer is on its way.
    Back,
}

/// How a try ended at the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryOutcome {
    Served,
    /// Too many requests are in flight there.
    Refused,
    /// It failed, and the node said so.
    Failed,
    /// It began to answer, and broke off.
    Broken,
    /// No connection.
    Unreachable,
    /// The connection broke before any answer, or there was none in time.
    Lost,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) version: u32,
    pub(crate) wanted: Wanted,
    pub(crate) node: u32,
    pub(crate) stage: TryStage,
    pub(crate) ended: TryOutcome,
    pub(crate) reached_at: Timestamp,
    /// The answer is not waited for any more.
    pub(crate) abandoned: bool,
    /// While it rests; no longer than there is a ticket.
    pub(crate) resting: Option<Resting>,
    /// None if the oracle chose, or if it was given up.
    pub(crate) ticket: Option<Ticket>,
    /// Requests in flight and latency that the answer tells.
    pub(crate) report: Option<(f32, f32)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    entries: Vec<Request>,
    free: Vec<u32>,
}

impl Requests {
    pub(crate) fn add(&mut self, wanted: Wanted, node: u32, ticket: Option<Ticket>) -> u32 {
        let request = Request {
            version: 0,
            wanted,
            node,
            stage: TryStage::Sent,
            ended: TryOutcome::Served,
            reached_at: wanted.arrived,
            abandoned: false,
            resting: None,
            ticket,
            report: None,
        };
        match self.free.pop() {
            Some(number) => {
                let entry = &mut self.entries[number as usize];
                let version = entry.version;
                *entry = Request { version, ..request };
                number
            }
            None => {
                self.entries.push(request);
                (self.entries.len() - 1) as u32
            }
        }
    }

    pub(crate) fn remove(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        entry.version = entry.version.wrapping_add(1);
        entry.resting = None;
        entry.ticket = None;
        entry.stage = TryStage::Back;
        self.free.push(number);
    }

    pub(crate) fn get(&mut self, number: u32) -> &mut Request {
        &mut self.entries[number as usize]
    }

    /// The entry, if it is still the one that had this version.
    pub(crate) fn same(&mut self, number: u32, version: u32) -> Option<&mut Request> {
        let entry = &mut self.entries[number as usize];
        (entry.version == version).then_some(entry)
    }

    /// Those at the node, in order of their numbers.
    pub(crate) fn at_node(&self, node: u32) -> Vec<u32> {
        let here = |request: &Request| {
            let reached = !matches!(request.stage, TryStage::Sent | TryStage::Back);
            request.node == node && reached
        };
        let numbers = 0..self.entries.len() as u32;
        numbers
            .filter(|number| here(&self.entries[*number as usize]))
            .collect()
    }
}
