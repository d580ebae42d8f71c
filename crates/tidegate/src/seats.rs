//! Which connections a door keeps when more come than it has room for: the admin interface's, those of an agent's reports.
//!
//! There is always room for one more: a connection that waits, or reads slowly, is closed in favour of a new one.
//! So connections that are opened and left alone keep neither health checks nor operators out.
//!
//! 1. One source has at most [`PER_SOURCE_MAX`] seats, and beyond them its own oldest one goes. A source is an
//!    address, or a network of 64 bits for IPv6. The machine itself is exempt: its proxies ask for many.
//! 2. Other machines have at most [`REMOTE_MAX`] of all [`SEATS_MAX`] seats; the rest are for loopback, where the
//!    supervisor and the operator's command line ask.
//! 3. Of those that may go, the one that has been quiet for longest goes first, and one that has shown
//!    its right to ask goes after all that have not. (Where all may ask, a request shows it.)
//! 4. A request with that right, once it is here whole, is never cut off while its answer is worked out. If nothing
//!    else is left, the new connection is refused.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Connections at a time.
pub(crate) const SEATS_MAX: usize = 64;
/// Of which other machines have so many.
pub(crate) const REMOTE_MAX: usize = 56;
/// And one of them so many.
pub(crate) const PER_SOURCE_MAX: usize = 16;

/// What names a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeatId(u64);

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// No request of it has shown a right to ask.
    Stranger,
    /// One has, and is answered.
    Known,
    /// One has, and its answer is worked out.
    Served,
}

#[derive(Debug)]
struct Seat<C> {
    source: IpAddr,
    standing: Standing,
    /// Grows with each thing that any connection does: the least is the one that was quiet for longest.
    stirred: u64,
    connection: C,
}

/// All seats; `C` is what closes a connection.
#[derive(Debug)]
pub(crate) struct Seats<C> {
    taken: BTreeMap<SeatId, Seat<C>>,
    stirs: u64,
}

impl<C> Seats<C> {
    pub(crate) fn new() -> Self {
        Self {
            taken: BTreeMap::new(),
            stirs: 0,
        }
    }

    /// Makes room for a connection from there. Gives the one that must be closed for it, if one must; an
    /// error if there is no room, which takes the rights of all others.
    pub(crate) fn make_room(&mut self, from: IpAddr) -> Result<Option<C>, Full> {
        let source = source(from);
        let remote = !source.is_loopback();
        let count = |of: &dyn Fn(&Seat<C>) -> bool| self.taken.values().filter(|it| of(it)).count();
        let own = count(&|it| it.source == source);
        let others = count(&|it| !it.source.is_loopback());
        let goes = if remote && own >= PER_SOURCE_MAX {
            self.first_to_go(&|it| it.source == source)
        } else if remote && others >= REMOTE_MAX {
            self.first_to_go(&|it| !it.source.is_loopback())
        } else if self.taken.len() >= SEATS_MAX {
            self.first_to_go(&|_| true)
        } else {
            return Ok(None);
        };
        let seat = goes.and_then(|goes| self.taken.remove(&goes)).ok_or(Full)?;
        Ok(Some(seat.connection))
    }

    /// Gives a connection a seat, for which there must be room.
    pub(crate) fn take(&mut self, from: IpAddr, connection: impl FnOnce(SeatId) -> C) -> SeatId {
        let stirred = self.stir();
        let seat = SeatId(stirred);
        let taken = Seat {
            source: source(from),
            standing: Standing::Stranger,
            stirred,
            connection: connection(seat),
        };
        self.taken.insert(seat, taken);
        seat
    }

    /// A request that has shown its right to ask is here whole, and is answered from now on.
    pub(crate) fn begin(&mut self, seat: SeatId) {
        self.set(seat, Standing::Served);
    }

    /// Its answer is there.
    pub(crate) fn end(&mut self, seat: SeatId) {
        self.set(seat, Standing::Known);
    }

    /// The connection is over.
    pub(crate) fn leave(&mut self, seat: SeatId) {
        self.taken.remove(&seat);
    }

    fn set(&mut self, seat: SeatId, standing: Standing) {
        let stirred = self.stir();
        if let Some(seat) = self.taken.get_mut(&seat) {
            (seat.standing, seat.stirred) = (standing, stirred);
        }
    }

    fn stir(&mut self) -> u64 {
        self.stirs += 1;
        self.stirs
    }

    fn first_to_go(&self, may: &dyn Fn(&Seat<C>) -> bool) -> Option<SeatId> {
        let seats = self.taken.iter();
        let seats = seats.filter(|(_, it)| it.standing != Standing::Served && may(it));
        let first = seats.min_by_key(|(_, it)| (it.standing, it.stirred));
        first.map(|(seat, _)| *seat)
    }
}

/// No connection may be closed for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// What one client can have many addresses of: its network for IPv6.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        canonical @ (IpAddr::V4(_) | IpAddr::V6(_)) => canonical,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn remote(number: usize) -> IpAddr {
        IpAddr::from([10, 0, (number >> 8) as u8, number as u8])
    }

    /// Seats whose connections are numbered as they come.
    struct Room {
        seats: Seats<usize>,
        came: usize,
    }

    impl Room {
        fn new() -> Self {
            Self {
                seats: Seats::new(),
                came: 0,
            }
        }

        /// A connection comes; its seat and the connection that was closed for it.
        fn come(&mut self, from: IpAddr) -> Result<(SeatId, Option<usize>), Full> {
            let goes = self.seats.make_room(from)?;
            let number = self.came;
            self.came += 1;
            Ok((self.seats.take(from, |_| number), goes))
        }
    }

    #[test]
    fn each_beyond_the_last_seat_takes_that_of_the_quietest() {
        let mut room = Room::new();
        for _ in 0..SEATS_MAX {
            assert_eq!(room.come(LOOPBACK).unwrap().1, None);
        }
        assert_eq!(room.come(LOOPBACK).unwrap().1, Some(0));
        assert_eq!(room.come(LOOPBACK).unwrap().1, Some(1));
        assert_eq!(room.seats.taken.len(), SEATS_MAX);
    }

    #[test]
    fn one_address_has_its_share_and_then_loses_its_own() {
        let mut room = Room::new();
        room.come(remote(2)).unwrap();
        for _ in 0..PER_SOURCE_MAX {
            assert_eq!(room.come(remote(1)).unwrap().1, None);
        }
        // The first of its own, not the one of the other address, which is older.
        assert_eq!(room.come(remote(1)).unwrap().1, Some(1));
    }

    #[test]
    fn addresses_of_one_network_are_one_source() {
        let mut room = Room::new();
        for host in 0..=PER_SOURCE_MAX as u128 {
            let address = Ipv6Addr::from_bits(0x2001_0db8 << 96 | host);
            let goes = room.come(address.into()).unwrap().1;
            let full = host == PER_SOURCE_MAX as u128;
            assert_eq!(goes, full.then_some(0));
        }
        let neighbour = Ipv6Addr::from_bits((0x2001_0db8_0000_0001_u128) << 64);
        assert_eq!(room.come(neighbour.into()).unwrap().1, None);
        // One client over both families has not two shares.
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(source(mapped), remote(1));
        assert!(source("::1".parse().unwrap()).is_loopback());
    }

    #[test]
    fn other_machines_leave_room_for_this_one() {
        let mut room = Room::new();
        for number in 0..REMOTE_MAX {
            assert_eq!(room.come(remote(number)).unwrap().1, None);
        }
        assert_eq!(room.come(remote(REMOTE_MAX)).unwrap().1, Some(0));
        for _ in REMOTE_MAX..SEATS_MAX {
            assert_eq!(room.come(LOOPBACK).unwrap().1, None);
        }
        // All are taken: the oldest goes, wherever it comes from.
        assert_eq!(room.come(LOOPBACK).unwrap().1, Some(1));
    }

    #[test]
    fn a_connection_with_a_right_goes_after_strangers_and_never_while_it_is_served() {
        let mut room = Room::new();
        let known = room.come(LOOPBACK).unwrap().0;
        room.seats.begin(known);
        room.seats.end(known);
        for _ in 1..SEATS_MAX {
            room.come(LOOPBACK).unwrap();
        }
        assert_eq!(room.come(LOOPBACK).unwrap().1, Some(1));
        let mut served: Vec<_> = room.seats.taken.keys().copied().collect();
        served.retain(|seat| *seat != known);
        served.iter().for_each(|seat| room.seats.begin(*seat));
        assert_eq!(room.come(LOOPBACK).unwrap().1, Some(0));
        let last = *room.seats.taken.last_key_value().unwrap().0;
        room.seats.begin(last);
        assert_eq!(room.come(LOOPBACK), Err(Full));
        room.seats.leave(last);
        assert_eq!(room.come(LOOPBACK).unwrap().1, None);
    }

    #[test]
    fn what_was_closed_and_then_ends_changes_nothing() {
        let mut room = Room::new();
        let (first, _) = room.come(LOOPBACK).unwrap();
        for _ in 0..SEATS_MAX {
            room.come(LOOPBACK).unwrap();
        }
        room.seats.end(first);
        room.seats.leave(first);
        assert_eq!(room.seats.taken.len(), SEATS_MAX);
    }
}
