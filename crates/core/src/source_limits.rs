//! What one source may take: connections at a time, and requests per second.
//!
//! ```text
//! source      an IPv4 address, or the first 64 bits of an IPv6 address: what one client can choose among
//! connections taken(source) < most
//! rate        due' = max(due, now) + 1 / rate;   admitted if due' - now <= burst / rate, and then due = due'
//! ```
//!
//! So `burst` requests are admitted at once, and one more each 1 / rate after that; what is refused costs nothing. A
//! source without connections whose due has passed is as one that never came, and is forgotten.
//!
//! Inputs: sources, a clock. Memory: one entry for each source with connections or a due ahead, at most
//! [`SOURCES_MAX`].
//!
//! Failure case: sources beyond that number are not limited, for a table that is full would else refuse whatever is new;
//! clients behind one address (a company's, a carrier's) are one source.
//!
//! Source: LeakyBucket-1986, kept as the one number of VirtualClock-1990.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::time::Timestamp;

/// Sources that are known at once; about 64 bytes each.
pub const SOURCES_MAX: usize = 65_536;
/// Those that mean nothing any more are looked for no more often than this while there is no room.
const SWEEP: Duration = Duration::from_millis(100);

/// A source; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An IPv4 address.
    V4(u32),
    /// A network of IPv6.
    V6(u64),
}

impl Source {
    /// The source that an address is of. An IPv4 address mapped into IPv6 counts as itself.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

/// How many requests a source may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRate {
    /// 1 / rate.
    pub interval: Duration,
    /// At once.
    pub burst: u32,
}

/// What is known of a source.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    connections: u32,
    due: Timestamp,
}

impl Known {
    fn means_something(&self, now: Timestamp) -> bool {
        self.connections > 0 || self.due > now
    }
}

/// See the module.
#[derive(Debug)]
pub struct Sources {
    known: BTreeMap<Source, Known>,
    most: usize,
    swept_at: Timestamp,
}

impl Sources {
    /// None is known; so many may be.
    pub fn new(most: usize) -> Self {
        Self {
            known: BTreeMap::new(),
            most,
            swept_at: Timestamp::ZERO,
        }
    }

    /// The entry of a source, if there is room for one.
    fn known(&mut self, source: Source, now: Timestamp) -> Option<&mut Known> {
        let is_full = self.known.len() >= self.most && !self.known.contains_key(&source);
        if is_full && (self.swept_at == Timestamp::ZERO || now.since(self.swept_at) >= SWEEP) {
            self.swept_at = now;
            self.known.retain(|_, known| known.means_something(now));
        }
        match is_full && self.known.len() >= self.most {
            true => None,
            false => Some(self.known.entry(source).or_default()),
        }
    }

    /// A connection of the source begins, which may have `most`. Whether it may; if so, and it is counted, it ends with
    /// [`Sources::end`].
    pub fn begin(&mut self, source: Source, most: u32, now: Timestamp) -> Begun {
        match self.known(source, now) {
            None => Begun::Uncounted,
            Some(known) if known.connections >= most => Begun::Refused,
            Some(known) => {
                known.connections += 1;
                Begun::Counted
            }
        }
    }

    /// A connection that was counted has ended.
    pub fn end(&mut self, source: Source, now: Timestamp) {
        if let Some(known) = self.known.get_mut(&source) {
            known.connections = known.connections.saturating_sub(1);
            if !known.means_something(now) {
                self.known.remove(&source);
            }
        }
    }

    /// A request of the source has come. Whether it is within the rate.
    pub fn admits(&mut self, source: Source, rate: SourceRate, now: Timestamp) -> bool {
        let Some(known) = self.known(source, now) else {
            return true;
        };
        let due = known.due.max(now) + rate.interval;
        let admits = due.since(now) <= rate.interval.saturating_mul(rate.burst);
        if admits {
            known.due = due;
        }
        admits
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Its source has too many.
    Refused,
    /// It may go on, and counts until it ends.
    Counted,
    /// It may go on: there is no room to count it.
    Uncounted,
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: SourceRate = SourceRate {
        interval: Duration::from_millis(100),
        burst: 3,
    };

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1000 + ms)
    }

    fn source(address: &str) -> Source {
        Source::of(address.parse().unwrap())
    }

    #[test]
    fn a_network_of_64_bits_is_one_source_and_an_address_of_32() {
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.2"), source("192.0.2.1"));
    }

    #[test]
    fn a_burst_is_admitted_at_once_and_then_one_each_interval() {
        let mut sources = Sources::new(10);
        let one = source("192.0.2.1");
        let admitted = |sources: &mut Sources, ms| {
            (0..10)
                .filter(|_| sources.admits(one, RATE, at(ms)))
                .count()
        };
        assert_eq!(admitted(&mut sources, 0), 3);
        assert_eq!(admitted(&mut sources, 99), 0);
        assert_eq!(admitted(&mut sources, 100), 1);
        assert_eq!(admitted(&mut sources, 300), 2);
        assert_eq!(admitted(&mut sources, 10_000), 3, "no more is saved up");
        assert!(sources.admits(source("192.0.2.2"), RATE, at(10_000)));
    }

    #[test]
    fn connections_are_counted_by_source() {
        let mut sources = Sources::new(10);
        let (one, two) = (source("192.0.2.1"), source("192.0.2.2"));
        for expected in [Begun::Counted, Begun::Counted, Begun::Refused] {
            assert_eq!(sources.begin(one, 2, at(0)), expected);
        }
        assert_eq!(sources.begin(two, 2, at(0)), Begun::Counted);
        sources.end(one, at(1));
        assert_eq!(sources.begin(one, 2, at(1)), Begun::Counted);
        for gone in [one, one, two] {
            sources.end(gone, at(2));
        }
        assert!(sources.is_empty(), "they are forgotten");
    }

    #[test]
    fn so_many_sources_are_known_and_no_more() {
        let mut sources = Sources::new(4);
        let of = |number: u32| Source::V4(number);
        for number in 0..100 {
            assert!(sources.admits(of(number), RATE, at(0)));
            assert!(sources.len() <= 4);
        }
        assert_eq!(sources.begin(of(100), 1, at(50)), Begun::Uncounted);
        // Their dues have passed by then.
        assert_eq!(sources.begin(of(100), 1, at(200)), Begun::Counted);
        assert_eq!(sources.len(), 1);
    }
}
