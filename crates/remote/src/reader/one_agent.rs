//! Several nodes of one agent: one read for all of them.
//!
//! A server that serves several sites is a node of each, with one agent. The first of its nodes, as they were added, is read;
//! its answers are those of the others too, each of which keeps what it makes of them, since own traffic differs. One that
//! has had no answer for a while reads for itself, so that what is wrong is seen for each.

use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::node::{Node, UdpPath};
use super::worker::Worker;

impl Worker {
    /// Whether another node of the same agent is read for this one, and answered of late.
    pub(super) fn is_read_for(&self, index: usize, now: Timestamp) -> bool {
        let Some(path) = self.path(index) else {
            return false;
        };
        let nodes = &self.peers.get(path.peer).nodes;
        if nodes.len() == 1 {
            return false;
        }
        let mut alike = nodes.iter().filter(|other| self.is_alike(path, **other));
        let answered = |at| now.since(at) < self.patience();
        alike.next() != Some(&index) && path.answered_at.is_some_and(answered)
    }

    /// Does something for a node and for the others of its agent.
    pub(super) fn for_those_of(&mut self, index: usize, mut act: impl FnMut(&mut Self, usize)) {
        act(self, index);
        let Some(peer) = self.path(index).map(|path| path.peer) else {
            return;
        };
        for at in 0..self.peers.get(peer).nodes.len() {
            let other = self.peers.get(peer).nodes[at];
            let path = self.path(index);
            if other != index && path.is_some_and(|path| self.is_alike(path, other)) {
                act(self, other);
            }
        }
    }

    /// An interval, and as long as an answer may take or another one.
    fn patience(&self) -> Duration {
        let interval = self.interval_now();
        interval + interval.max(self.timeout())
    }

    fn path(&self, index: usize) -> Option<&UdpPath> {
        self.nodes[index].as_ref().and_then(Node::udp)
    }

    fn is_alike(&self, path: &UdpPath, other: usize) -> bool {
        let other = self.path(other);
        other.is_some_and(|other| other.keys.is_same(&path.keys))
    }
}
