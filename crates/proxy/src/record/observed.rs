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
use tidegate_core::classes::WORDS_BYTES_MAX;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::SiteId;

/// Method and target are cut to this many bytes together.
const WORDS_BYTES: usize = WORDS_BYTES_MAX;
/// The path alone is shown up to this many bytes.
const PATH_BYTES: usize = 80;
/// Bits of a request's number that a worker counts in.
const WORKER_SHIFT: u32 = 48;

/// Method and target of a request, or their beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Words {
    bytes: [u8; WORDS_BYTES],
    length: u8,
    target_from: u8,
    path_to: u8,
}

const _: () = assert!(WORDS_BYTES <= u8::MAX as usize);

impl Default for Words {
    fn default() -> Self {
        Self {
            bytes: [0; WORDS_BYTES],
            length: 0,
            target_from: 0,
            path_to: 0,
        }
    }
}

impl std::fmt::Debug for Words {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.method(), self.target())
    }
}

impl Words {
    /// Of a target whose path is so many bytes long.
    pub(crate) fn new(method: &str, target: &str, path_length: usize) -> Self {
        let mut words = Self::default();
        let (method, target) = (method.as_bytes(), target.as_bytes());
        // No method has this length.
        let method = &method[..method.len().min(WORDS_BYTES / 2)];
        let from = method.len();
        let to = WORDS_BYTES.min(from + target.len());
        words.bytes[..from].copy_from_slice(method);
        words.bytes[from..to].copy_from_slice(&target[..to - from]);
        words.target_from = from as u8;
        words.path_to = to.min(from + path_length.min(PATH_BYTES)) as u8;
        words.length = to as u8;
        words
    }

    /// Of a method and a target.
    pub fn of(method: &str, target: &str) -> Self {
        let path = target.split('?').next().unwrap_or_default();
        Self::new(method, target, path.len())
    }

    /// Like `GET`.
    pub fn method(&self) -> &str {
        self.text(0, self.target_from)
    }

    /// Path and query, as the client sent them.
    pub fn target(&self) -> &str {
        self.text(self.target_from, self.length)
    }

    /// The beginning of the path.
    pub(crate) fn path(&self) -> &str {
        self.text(self.target_from, self.path_to)
    }

    fn text(&self, from: u8, to: u8) -> &str {
        let bytes = &self.bytes[usize::from(from)..usize::from(to)];
        match std::str::from_utf8(bytes) {
            Ok(text) => text,
            // Cut in the middle of a character.
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request went to a server.
    Sent {
        /// Its number; no other has it.
        id: u64,
        /// Since when it had waited for room.
        asked: Timestamp,
        /// When.
        at: Timestamp,
        /// Whose it is.
        site: SiteId,
        /// What it asks for.
        words: Words,
    },
    /// The server has no more work with it.
    Ended {
        /// Its number.
        id: u64,
        /// When.
        at: Timestamp,
    },
    /// There was no room for a request at any server.
    Refused {
        /// When.
        at: Timestamp,
        /// Whose it is.
        site: SiteId,
        /// What it asks for.
        words: Words,
    },
}

/// A worker's side.
#[derive(Debug)]
pub(crate) struct Observer(RefCell<Telling>);

#[derive(Debug)]
struct Telling {
    ring: Producer<Event>,
    next: u64,
}

impl Observer {
    /// The request's number; none if its end will not be read.
    pub(crate) fn on_sent(
        &self,
        site: SiteId,
        words: Words,
        asked: Timestamp,
        at: Timestamp,
    ) -> Option<u64> {
        let mut telling = self.0.borrow_mut();
        let id = telling.next;
        telling.next += 1;
        let sent = Event::Sent {
            id,
            asked,
            at,
            site,
            words,
        };
        telling.ring.push(sent).ok().map(|()| id)
    }

    /// A request finds no room. One that is lost counts for nothing.
    pub(crate) fn on_refused(&self, site: SiteId, words: Words, at: Timestamp) {
        let refused = Event::Refused { at, site, words };
        self.0.borrow_mut().ring.push(refused).ok();
    }

    /// A lost end is seen by the reader: the ring was full.
    pub(crate) fn on_end(&self, id: u64, at: Timestamp) {
        // If there is no room the drainer sees a full ring, and knows what that means.
        self.0.borrow_mut().ring.push(Event::Ended { id, at }).ok();
    }
}

/// The other side of all workers' rings.
#[derive(Debug, Default)]
pub struct Observed {
    rings: Vec<Consumer<Event>>,
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
    pub fn drain(&mut self, mut take: impl FnMut(Event)) -> bool {
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
    fn words_are_cut_where_they_are_too_long() {
        let words = Words::new("GET", "/a/\u{e4}?q=1", 5);
        assert_eq!((words.method(), words.target()), ("GET", "/a/\u{e4}?q=1"));
        assert_eq!(words.path(), "/a/\u{e4}");
        // A cut in the middle of a character takes all of it away.
        assert_eq!(Words::new("GET", "/\u{e4}", 2).path(), "/");
        let long = "/".repeat(500);
        let words = Words::new("OPTIONS", &long, 500);
        assert_eq!(words.target().len(), WORDS_BYTES - "OPTIONS".len());
        assert_eq!(words.path().len(), PATH_BYTES);
        let words = Words::new(&long, &long, 1);
        assert_eq!(words.method().len() + words.target().len(), WORDS_BYTES);
        assert_eq!(Words::default().target(), "");
    }

    #[test]
    fn each_worker_tells_in_order_and_never_waits() {
        let mut observed = Observed::default();
        let observers = [observed.add_worker(0, 3), observed.add_worker(1, 3)];
        let at = Timestamp::from_nanos;
        let words = Words::new("GET", "/", 1);
        let ids = observers
            .each_ref()
            .map(|it| it.on_sent(SiteId(0), words, at(1), at(1)).unwrap());
        assert_ne!(ids[0], ids[1]);
        observers[1].on_end(ids[1], at(2));
        let mut told = Vec::new();
        assert!(!observed.drain(|event| told.push(event)));
        let sent = |id| Event::Sent {
            id,
            asked: at(1),
            at: at(1),
            site: SiteId(0),
            words,
        };
        let ended = Event::Ended {
            id: ids[1],
            at: at(2),
        };
        assert_eq!(told, [sent(ids[0]), sent(ids[1]), ended]);
        let numbers: Vec<_> = (0..5)
            .map(|_| observers[0].on_sent(SiteId(0), words, at(3), at(3)))
            .collect();
        assert!(numbers[2].is_some() && numbers[3].is_none());
        observers[0].on_end(ids[0], at(4));
        let mut count = 0;
        assert!(observed.drain(|_| count += 1));
        assert_eq!(count, 3);
        assert!(!observed.drain(|_| count += 1));
    }
}
