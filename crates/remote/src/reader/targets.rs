//! Nodes that come and go while the reader reads: what is known of those that stay is kept, what an index or a key was
//! used for before is forgotten with it.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tidegate_core::load::Rung;

use super::keys::KeyChoice;
use super::node::{Node, Path, UdpPath};
use super::status::ReadFault;
use super::worker::{Socket, Worker};
use super::{Target, Transport};
use crate::region::RegionError;
use crate::shm::ShmRegion;
use crate::udp::Key;
use crate::udp::socket::for_requests;

impl Worker {
    /// Goes over to what is wanted, if that has changed.
    pub(super) fn take_wanted(&mut self) -> bool {
        if !self.shared.is_wanted.swap(false, Ordering::Acquire) {
            return false;
        }
        let wanted = self.shared.wanted.lock();
        let Some(wanted) = wanted.unwrap_or_else(PoisonError::into_inner).take() else {
            return false;
        };
        self.interval = wanted.interval;
        self.set_budget(wanted.budget);
        for index in 0..self.nodes.len() {
            let stays = |node: &Node| wanted.targets.contains(&node.target);
            if self.nodes[index].as_ref().is_some_and(|node| !stays(node)) {
                self.remove(index);
            }
        }
        for target in wanted.targets {
            let is_read = |node: &Node| node.target == target;
            if self.nodes.iter().flatten().any(is_read) {
                continue;
            }
            let node = target.node;
            if self.add(target).is_err() {
                // No socket for its addresses, or no random numbers.
                let shared = &self.shared.nodes[node.index()];
                shared.begin(false);
                shared.faults(ReadFault::Unreachable, 1);
            }
        }
        self.put_in_order();
        self.ask_for_links_anew();
        self.shared
            .followed
            .store(wanted.version, Ordering::Release);
        true
    }

    /// Reads a node from now on.
    pub(super) fn add(&mut self, target: Target) -> Result<(), RegionError> {
        let free = self.nodes.iter().position(Option::is_none);
        let index = free.unwrap_or(self.nodes.len());
        let path = match &target.transport {
            Transport::Shm { path } => {
                let region = ShmRegion::impatient(path).counted(self.name);
                Path::Local(Box::new(region), Rung::SharedMemory)
            }
            Transport::Udp {
                address,
                keys,
                rdma,
            } => {
                let socket = self.socket(address.is_ipv4())?;
                let (peer, initiator) = self.peers.add(index, *address, socket)?;
                let mut own = Vec::with_capacity(keys.len());
                for key in keys {
                    own.push(self.key(key, &own));
                }
                let keys = KeyChoice::new(own);
                Path::Udp(Box::new(UdpPath::new(peer, keys, initiator, *rdma)))
            }
        };
        let rdma = target.transport.wants_rdma();
        self.shared.nodes[target.node.index()].begin(rdma);
        let node = Some(Node::new(target, path));
        match free {
            Some(index) => self.nodes[index] = node,
            None => self.nodes.push(node),
        }
        Ok(())
    }

    fn remove(&mut self, index: usize) {
        self.give_up_link(index, None);
        let Some(node) = self.nodes[index].take() else {
            return;
        };
        if let Some(path) = node.udp() {
            self.peers.remove(index, path.peer, path.initiator);
        }
        self.shared.nodes[node.id.index()].end();
    }

    /// The socket for a family of addresses.
    fn socket(&mut self, ipv4: bool) -> Result<usize, RegionError> {
        if let Some(socket) = self.sockets.iter().position(|socket| socket.ipv4 == ipv4) {
            return Ok(socket);
        }
        let socket = for_requests(ipv4)?;
        self.sockets.push(Socket { socket, ipv4 });
        Ok(self.sockets.len() - 1)
    }

    /// The index of a key, which many nodes may share. One that no node has any more makes room, but for these.
    fn key(&mut self, key: &Key, own: &[usize]) -> usize {
        if let Some(known) = self.keys.iter().position(|known| known == key) {
            return known;
        }
        let nodes = || self.nodes.iter().flatten().filter_map(Node::udp);
        let is_named = |index| own.contains(&index) || nodes().any(|path| path.keys.names(index));
        match (0..self.keys.len()).find(|index| !is_named(*index)) {
            Some(free) => {
                self.keys[free] = key.clone();
                free
            }
            None => {
                self.keys.push(key.clone());
                self.keys.len() - 1
            }
        }
    }
}
