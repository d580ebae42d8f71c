//! The last requests of a worker, for `why`: a fixed ring, nothing allocated after the start.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tidegate_core::classes::Words;
use tidegate_core::picker::Why;
use tidegate_core::throttle::ThrottleId;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{NodeId, SiteId};

use crate::record::id::RequestId;
use crate::record::reason::Reason;
use crate::wire::trace::TraceId;

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recent {
    /// By what it is known.
    pub id: RequestId,
    /// The trace that it is exported with.
    pub trace: Option<TraceId>,
    /// When its head was read.
    pub at: Timestamp,
    /// From then to its end.
    pub duration: Duration,
    /// The client that sent it.
    pub client: IpAddr,
    /// Its site, if there is one.
    pub site: Option<SiteId>,
    /// The node that had it last.
    pub node: Option<NodeId>,
    /// Why that node.
    pub why: Option<Why>,
    /// Nodes that it was tried at.
    pub tries: u32,
    /// The throttle that it met.
    pub throttle: Option<ThrottleId>,
    /// How long that held it, if it did.
    pub held: Option<Duration>,
    /// By how much a delay experiment delayed it, if one did.
    pub delayed: Option<Duration>,
    /// The status that was sent.
    pub status: u16,
    /// Why it did not end with the node's own answer.
    pub reason: Option<Reason>,
    pub(crate) words: Words,
}

impl Recent {
    /// Of no request yet.
    const BLANK: Self = Self {
        id: RequestId::NONE,
        trace: None,
        at: Timestamp::ZERO,
        duration: Duration::ZERO,
        client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        site: None,
        node: None,
        why: None,
        tries: 0,
        throttle: None,
        held: None,
        delayed: None,
        status: 0,
        reason: None,
        words: Words::EMPTY,
    };

    /// Whether it was refused or failed, or a node answered with a server error.
    pub fn is_wrong(&self) -> bool {
        self.reason.is_some() || self.status >= 500
    }

    /// The beginning of its method.
    pub fn method(&self) -> &str {
        self.words.method()
    }

    /// The beginning of its path.
    pub fn path(&self) -> &str {
        self.words.path()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    slots: Vec<Recent>,
    capacity: usize,
    next: usize,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            slots: Vec::with_capacity(capacity),
            capacity,
            next: 0,
        }
    }

    /// Keeps so many from now on: of those that are there the newest.
    pub(crate) fn resize(&mut self, capacity: usize) {
        if capacity == self.capacity {
            return;
        }
        let mut next = Self::new(capacity);
        self.iter().for_each(|recent| next.push(*recent));
        *self = next;
    }

    pub(crate) fn push(&mut self, recent: Recent) {
        if let Some(place) = self.next_place() {
            *place = recent;
        }
    }

    /// Where the next one is to be written, which costs less than to copy it: the oldest's, once all places are taken.
    pub(crate) fn next_place(&mut self) -> Option<&mut Recent> {
        if self.slots.len() < self.capacity {
            self.slots.push(Recent::BLANK);
            return self.slots.last_mut();
        }
        let place = self.slots.get_mut(self.next)?;
        self.next = (self.next + 1) % self.capacity;
        Some(place)
    }

    /// Oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Recent> {
        let (newer, older) = self.slots.split_at(self.next);
        older.iter().chain(newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(number: u64) -> Recent {
        Recent {
            at: Timestamp::from_nanos(number),
            ..Recent::BLANK
        }
    }

    #[test]
    fn the_ring_keeps_the_last_in_order() {
        for (capacity, pushes, expected) in [
            (3, 2, vec![0, 1]),
            (3, 3, vec![0, 1, 2]),
            (3, 8, vec![5, 6, 7]),
            (0, 5, vec![]),
        ] {
            let mut ring = Ring::new(capacity);
            (0..pushes).for_each(|number| ring.push(recent(number)));
            let kept: Vec<_> = ring.iter().map(|recent| recent.at.nanos()).collect();
            assert_eq!(kept, expected);
        }
        let mut ring = Ring::new(4);
        (0..6).for_each(|number| ring.push(recent(number)));
        for (capacity, expected) in [(6, vec![2, 3, 4, 5]), (2, vec![4, 5]), (0, vec![])] {
            ring.resize(capacity);
            let kept: Vec<_> = ring.iter().map(|recent| recent.at.nanos()).collect();
            assert_eq!(kept, expected);
        }
    }
}
