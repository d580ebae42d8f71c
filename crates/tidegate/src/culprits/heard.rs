//! Which front-end has answered at which address, so that the requests of each count once, and never this one's own.
//!
//! ```text
//! answer: identity, requests number first..next
//! own identity                                -> refused: this front-end itself
//! identity heard at another address < 10 s ago -> refused: the same front-end
//! otherwise                                   -> requests from the first number that has not come from this identity
//! ```
//!
//! All peers have one key, so what is proven (`peer_auth`) may still be another peer's answer than that of the address:
//! a wrong line in `peers`, or a machine on the way that leads elsewhere. Each process has an identity of its own,
//! random at its start: a peer that was restarted is a new one. Numbers are kept by identity rather than by address, so
//! an answer that moves from one address to another brings nothing twice. Identities beyond [`KNOWN_MAX`] are forgotten,
//! the longest unheard first; only holders of the key can make them.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_culprits::live::exchange::Shipment;

use crate::peer_auth::Identity;

/// For so long an address has an identity for itself after an answer.
const CLAIM_LASTS: Duration = Duration::from_secs(10);
/// Identities that are kept: more than there are peers.
const KNOWN_MAX: usize = 256;

/// Why an answer of a front-end does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAnother {
    /// It is this process's own.
    Itself,
    /// It is of the process that answers at this address.
    SameAs(SocketAddr),
}

/// A process that has answered.
#[derive(Debug)]
struct Known {
    identity: Identity,
    /// Where it did last.
    address: SocketAddr,
    at: Timestamp,
    /// The number of the first request that has not come from it.
    next: u64,
}

/// All processes that have answered at any address.
#[derive(Debug)]
pub(crate) struct Heard {
    own: Identity,
    known: Mutex<Vec<Known>>,
}

impl Heard {
    /// For the process with this identity.
    pub(crate) fn new(own: Identity) -> Self {
        Self {
            own,
            known: Mutex::default(),
        }
    }

    /// The identity of this process.
    pub(crate) fn own(&self) -> Identity {
        self.own
    }

    /// What to ask a process for.
    pub(crate) fn next(&self, identity: Identity) -> u64 {
        let known = self.known();
        let found = known.iter().find(|it| it.identity == identity);
        found.map_or(0, |it| it.next)
    }

    /// Takes an answer that came from an address; what it has brought before is no longer in it.
    pub(crate) fn take(
        &self,
        identity: Identity,
        address: SocketAddr,
        shipment: &mut Shipment,
        now: Timestamp,
    ) -> Result<(), NotAnother> {
        if identity == self.own {
            return Err(NotAnother::Itself);
        }
        let mut known = self.known();
        let Some(found) = known.iter_mut().find(|it| it.identity == identity) else {
            make_room(&mut known);
            known.push(Known {
                identity,
                address,
                at: now,
                next: shipment.next,
            });
            return Ok(());
        };
        if found.address != address && now.since(found.at) < CLAIM_LASTS {
            return Err(NotAnother::SameAs(found.address));
        }
        let first = shipment.next.saturating_sub(shipment.ended.len() as u64);
        let again = found.next.saturating_sub(first) as usize;
        shipment.ended.drain(..again.min(shipment.ended.len()));
        found.address = address;
        found.at = now;
        found.next = shipment.next;
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Vec<Known>> {
        // What a thread that panicked left behind is still a list.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make_room(known: &mut Vec<Known>) {
    if known.len() < KNOWN_MAX {
        return;
    }
    let oldest = known.iter().enumerate().min_by_key(|(_, it)| it.at);
    if let Some((oldest, _)) = oldest {
        known.swap_remove(oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: &str = "10.0.0.2:9900";
    const C: &str = "10.0.0.3:9900";

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1000 * (100 + seconds))
    }

    fn identity(number: u32) -> Identity {
        Identity::parse(&format!("{number:032x}")).unwrap()
    }

    /// A front-end that knows itself by 0.
    fn heard() -> Heard {
        Heard::new(identity(0))
    }

    /// The numbers that count of requests `first..next` that this identity has shipped from an address.
    fn take(
        heard: &Heard,
        number: u32,
        address: &str,
        first_to_next: std::ops::Range<u64>,
        now: Timestamp,
    ) -> Result<Vec<u64>, NotAnother> {
        let mut shipment = Shipment {
            next: first_to_next.end,
            ended: first_to_next.map(|it| (0, 0, it, it)).collect(),
            ..Shipment::default()
        };
        let address = address.parse().unwrap();
        heard.take(identity(number), address, &mut shipment, now)?;
        Ok(shipment.ended.into_iter().map(|it| it.2).collect())
    }

    fn same_as(address: &str) -> Result<Vec<u64>, NotAnother> {
        Err(NotAnother::SameAs(address.parse().unwrap()))
    }

    #[test]
    fn its_own_answer_does_not_count_wherever_it_comes_from() {
        let heard = heard();
        for address in [B, C] {
            let own = take(&heard, 0, address, 0..5, at(0));
            assert_eq!(own, Err(NotAnother::Itself));
        }
    }

    #[test]
    fn a_front_end_counts_at_one_address_for_as_long_as_it_answers_there() {
        let heard = heard();
        assert_eq!(take(&heard, 3, C, 0..2, at(0)), Ok(vec![0, 1]));
        assert_eq!(take(&heard, 3, B, 0..2, at(0)), same_as(C));
        assert_eq!(take(&heard, 3, C, 2..3, at(9)), Ok(vec![2]));
        assert_eq!(take(&heard, 3, B, 0..3, at(18)), same_as(C));
        // The refused answers have prolonged nothing: from now on it may have another address.
        assert_eq!(take(&heard, 3, B, 0..5, at(19)), Ok(vec![3, 4]));
        assert_eq!(take(&heard, 3, C, 3..5, at(20)), same_as(B));
    }

    /// A machine on the way that shows one front-end now at this address and now at that brings nothing twice.
    #[test]
    fn what_an_identity_has_shipped_counts_once_however_addresses_change() {
        let heard = heard();
        assert_eq!(take(&heard, 3, B, 0..2, at(0)), Ok(vec![0, 1]));
        assert_eq!(take(&heard, 2, B, 7..9, at(1)), Ok(vec![7, 8]));
        assert_eq!(heard.next(identity(3)), 2);
        assert_eq!(heard.next(identity(2)), 9);
        assert_eq!(take(&heard, 3, B, 0..4, at(2)), Ok(vec![2, 3]));
        assert_eq!(take(&heard, 3, C, 0..4, at(20)), Ok(vec![]));
    }

    #[test]
    fn a_peer_that_was_restarted_is_a_new_one_at_its_address() {
        let heard = heard();
        assert_eq!(take(&heard, 2, B, 0..2, at(0)), Ok(vec![0, 1]));
        assert_eq!(take(&heard, 4, B, 0..1, at(1)), Ok(vec![0]));
        assert_eq!(take(&heard, 4, C, 0..1, at(2)), same_as(B));
    }

    #[test]
    fn so_many_identities_are_kept_and_no_more() {
        let heard = heard();
        for number in 1..=KNOWN_MAX as u32 {
            let now = at(u64::from(number));
            take(&heard, number, B, 0..7, now).unwrap();
        }
        assert_eq!(heard.next(identity(1)), 7);
        take(&heard, KNOWN_MAX as u32 + 1, B, 0..7, at(1000)).unwrap();
        assert_eq!(heard.known().len(), KNOWN_MAX);
        assert_eq!(heard.next(identity(1)), 0);
        assert_eq!(heard.next(identity(2)), 7);
    }
}
