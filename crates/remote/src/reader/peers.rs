//! Which addresses are asked, and which answer.
//!
//! An answer counts only if it comes from the address that was asked. Each address is asked under an
//! initiator of its own, so that no node can pass on what another one was asked. Nodes that share an agent
//! share its address, and its initiator of reads: the agent counts front-ends by these. Each has an
//! initiator of its own for atomics, whose sequences would mix otherwise.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::time::nanos;

use crate::memory::random;
use crate::region::RegionError;
use crate::udp::address::Name;

/// An address that is asked.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// The same for the kernel.
    pub(super) name: Name,
    /// Which of the reader's sockets.
    pub(super) socket: usize,
    /// Under which it is read.
    pub(super) initiator: u64,
    /// Nodes that are read there.
    pub(super) nodes: Vec<usize>,
    /// The number of the latest read.
    number: u64,
}

/// Numbers of a clock that began anew lie farther back than this.
const BEHIND_MAX: Duration = Duration::from_secs(1);

impl Peer {
    /// The number of the next read, of a node that takes the peer's clock for this; 0 is not known. Numbers grow, for an
    /// agent takes what has none that is greater for a copy; its nodes know its clock one better than the other.
    pub(super) fn next_number(&mut self, clock: u64) -> u64 {
        let began_anew = clock != 0 && self.number.saturating_sub(clock) >= nanos(BEHIND_MAX);
        self.number = match self.number {
            0 => clock,
            _ if began_anew => clock,
            last => clock.max(last.saturating_add(1)),
        };
        self.number
    }

    /// Whether a datagram came from here.
    pub(super) fn is(&self, source: SocketAddr) -> bool {
        let same = |own: SocketAddr, other: SocketAddr| {
            own.ip() == other.ip() && own.port() == other.port()
        };
        match (self.address, source) {
            // The scope names the interface of a link-local address; others have none.
            (SocketAddr::V6(own), SocketAddr::V6(other)) => {
                same(own.into(), other.into())
                    && (own.scope_id() == 0 || own.scope_id() == other.scope_id())
            }
            (own, other) => same(own, other),
        }
    }
}

/// What an initiator was drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Reads at this peer.
    Reads(usize),
    /// Atomics of this node.
    Atomics(usize),
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Peers {
    all: Vec<Peer>,
    /// Those that nothing is asked at any more, to be used again.
    free: Vec<usize>,
    by_address: HashMap<SocketAddr, usize>,
    by_initiator: HashMap<u64, Asked>,
}

impl Peers {
    /// Adds a node that is asked at this address through this socket: its peer, and its initiator of
    /// atomics.
    pub(super) fn add(
        &mut self,
        node: usize,
        address: SocketAddr,
        socket: usize,
    ) -> Result<(usize, u64), RegionError> {
        let peer = match self.by_address.get(&address) {
            Some(known) => *known,
            None => {
                let peer = self.free.last().copied().unwrap_or(self.all.len());
                let new = Peer {
                    address,
                    name: address.into(),
                    socket,
                    initiator: self.draw(Asked::Reads(peer))?,
                    nodes: Vec::new(),
                    number: 0,
                };
                match self.free.pop() {
                    Some(free) => self.all[free] = new,
                    None => self.all.push(new),
                }
                self.by_address.insert(address, peer);
                peer
            }
        };
        self.all[peer].nodes.push(node);
        Ok((peer, self.draw(Asked::Atomics(node))?))
    }

    /// Takes a node away, which is asked at this peer and has this initiator of atomics. Answers that come late are to
    /// nothing that was asked.
    pub(super) fn remove(&mut self, node: usize, peer: usize, atomics: u64) {
        self.by_initiator.remove(&atomics);
        let at = &mut self.all[peer];
        at.nodes.retain(|it| *it != node);
        if at.nodes.is_empty() {
            self.by_initiator.remove(&at.initiator);
            self.by_address.remove(&at.address);
            self.free.push(peer);
        }
    }

    /// An initiator that is not taken.
    fn draw(&mut self, what_for: Asked) -> Result<u64, RegionError> {
        loop {
            if let Entry::Vacant(free) = self.by_initiator.entry(random()?) {
                let initiator = *free.key();
                free.insert(what_for);
                return Ok(initiator);
            }
        }
    }

    pub(super) fn get(&self, peer: usize) -> &Peer {
        &self.all[peer]
    }

    pub(super) fn get_mut(&mut self, peer: usize) -> &mut Peer {
        &mut self.all[peer]
    }

    /// What an answer with this initiator claims to be about.
    pub(super) fn asked(&self, initiator: u64) -> Option<Asked> {
        self.by_initiator.get(&initiator).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_at_one_address_share_the_initiator_of_reads_and_no_other() {
        let mut peers = Peers::default();
        let one = "10.0.0.1:9901".parse().unwrap();
        let other = "10.0.0.2:9901".parse().unwrap();
        let added =
            [(0, one), (1, other), (2, one)].map(|(node, at)| peers.add(node, at, 0).unwrap());
        assert_eq!(added.map(|(peer, _)| peer), [0, 1, 0]);
        assert_eq!(peers.get(0).nodes, [0, 2]);
        assert_ne!(peers.get(0).initiator, peers.get(1).initiator);
        assert_eq!(peers.asked(peers.get(1).initiator), Some(Asked::Reads(1)));
        for (node, (_, initiator)) in added.iter().enumerate() {
            assert_eq!(peers.asked(*initiator), Some(Asked::Atomics(node)));
        }
    }

    #[test]
    fn numbers_of_reads_grow_however_well_each_node_knows_the_clock() {
        let mut peers = Peers::default();
        let (peer, _) = peers.add(0, "10.0.0.1:9901".parse().unwrap(), 0).unwrap();
        let peer = peers.get_mut(peer);
        assert_eq!([0, 0].map(|clock| peer.next_number(clock)), [0, 0]);
        let clocks = [5000, 5000, 4000, 0, 6000, 5999];
        let numbers = clocks.map(|clock| peer.next_number(clock));
        assert_eq!(numbers, [5000, 5001, 5002, 5003, 6000, 6001]);
        // A clock that began anew is followed.
        let second = nanos(BEHIND_MAX);
        assert_eq!(peer.next_number(6001 + second), 6001 + second);
        assert_eq!(peer.next_number(6002), 6002 + second);
        assert_eq!(peer.next_number(6001), 6001);
        assert_eq!(peer.next_number(u64::MAX), u64::MAX);
        assert_eq!(peer.next_number(7000), 7000);
    }

    #[test]
    fn a_peer_is_its_address_and_its_port() {
        let cases = [
            ("10.0.0.1:9901", "10.0.0.1:9901", true),
            ("10.0.0.1:9901", "10.0.0.1:9902", false),
            ("10.0.0.1:9901", "10.0.0.2:9901", false),
            ("[2001:db8::1]:9901", "[2001:db8::1]:9901", true),
            ("[2001:db8::1]:9901", "10.0.0.1:9901", false),
            ("[fe80::1%3]:9901", "[fe80::1%3]:9901", true),
            ("[fe80::1%3]:9901", "[fe80::1%4]:9901", false),
        ];
        for (asked, source, same) in cases {
            let mut peers = Peers::default();
            let (peer, _) = peers.add(0, asked.parse().unwrap(), 0).unwrap();
            assert_eq!(
                peers.get(peer).is(source.parse().unwrap()),
                same,
                "{asked} {source}"
            );
        }
    }
}
