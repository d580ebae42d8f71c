//! What the discovery of culprits reads of requests: when each went to a server, and when its last byte
//! was back; or that admission refused it.
//!
//! ```text
//! worker ── Sent, Ended, Refused ──> ring of its own (bounded, no lock) ──> whoever drains it: Observed
//! ```
//!
//! A worker never waits: what finds no room is counted and lost. A request that is tried again is sent
//! once, at its first try; one that becomes a tunnel ends there.

use std::cell::RefCell;

use rtrb::{Consumer, Producer, RingBuffer};
use tidegate_core::classes::Words;
use tidegate_core::culprits::RequestEvent;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::SiteId;

/// Bits of a request's number that a worker counts in.
const WORKER_SHIFT: u32 = 48;

/// A worker's side.
#[derive(Debug)]
pub(crate) struct Observer(RefCell<Telling>);

#[derive(Debug)]
struct Telling {
    ring: Producer<RequestEvent>,
    next: u64,
}

impl Observer {
    /// The request's number; none if its end will not be read.
    pub(crate) fn on_sent(
        &self,
        site: SiteId,
        words: &Words,
        asked: Timestamp,
        at: Timestamp,
    ) -> Option<u64> {
        let mut telling = self.0.borrow_mut();
        let id = telling.next;
        telling.next += 1;
        let sent = RequestEvent::Sent {
            id,
            asked,
            at,
            site,
            words: *words,
        };
        telling.ring.push(sent).ok().map(|()| id)
    }

    /// A request finds no room. One that is lost counts for nothing.
    pub(crate) fn on_refused(&self, site: SiteId, words: &Words, at: Timestamp) {
        let refused = RequestEvent::Refused {
            at,
            site,
            words: *words,
        };
        self.0.borrow_mut().ring.push(refused).ok();
    }

    /// A lost end is seen by the reader: the ring was full.
    pub(crate) fn on_end(&self, id: u64, at: Timestamp) {
        // If there is no room the drainer sees a full ring, and knows what that means.
        self.0
            .borrow_mut()
            .ring
            .push(RequestEvent::Ended { id, at })
            .ok();
    }
}

/// The other side of all workers' rings.
#[derive(Debug, Default)]
pub struct Observed {
    rings: Vec<Consumer<RequestEvent>>,
}

impl Observed {
    /// Rings for one worker more, with room for so many events.
    pub(crate) fn add_worker(&mut self, index: usize, events: usize) -> Observer {
        let (producer, consumer) = RingBuffer::new(events);
        self.rings.push(consumer);
        Observer(RefCell::new(Telling {
            ring: producer,
            next: (index as u64) << WORKER_SHIFT,
        }))
    }

    /// Takes what there is, of each worker in its order. True if a ring had run full: then events are
    /// missing, and requests may seem to never end.
    pub fn drain(&mut self, mut take: impl FnMut(RequestEvent)) -> bool {
        let mut full = false;
        for ring in &mut self.rings {
            full |= ring.slots() == ring.buffer().capacity();
            while let Ok(event) = ring.pop() {
                take(event);
            }
        }
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_tells_in_order_and_never_waits() {
        let mut observed = Observed::default();
        let observers = [observed.add_worker(0, 3), observed.add_worker(1, 3)];
        let at = Timestamp::from_nanos;
        let words = Words::new("GET", "/", 1);
        let ids = observers
            .each_ref()
            .map(|it| it.on_sent(SiteId(0), &words, at(1), at(1)).unwrap());
        assert_ne!(ids[0], ids[1]);
        observers[1].on_end(ids[1], at(2));
        let mut told = Vec::new();
        assert!(!observed.drain(|event| told.push(event)));
        let sent = |id| RequestEvent::Sent {
            id,
            asked: at(1),
            at: at(1),
            site: SiteId(0),
            words,
        };
        let ended = RequestEvent::Ended {
            id: ids[1],
            at: at(2),
        };
        assert_eq!(told, [sent(ids[0]), sent(ids[1]), ended]);
        let numbers: Vec<_> = (0..5)
            .map(|_| observers[0].on_sent(SiteId(0), &words, at(3), at(3)))
            .collect();
        assert!(numbers[2].is_some() && numbers[3].is_none());
        observers[0].on_end(ids[0], at(4));
        let mut count = 0;
        assert!(observed.drain(|_| count += 1));
        assert_eq!(count, 3);
        assert!(!observed.drain(|_| count += 1));
    }
}
