//! Idle connections by node, and those that several requests share.
//!
//! An idle connection that the node closes is found out by the next user, which gets the request
//! back unsent, or by the sweep. The pool gives the youngest first, so that what is not needed
//! grows old and goes. A connection of HTTP/2 is in the pool while it is open.

use std::rc::Rc;

use tidegate_core::topology::{NodeId, Topology};

use super::http1::Http1;
use super::http2::{Http2, Http2Connection};
use super::{Upstream, UpstreamKey};
use crate::connection::introduction::IntroductionId;

/// Idle connections by node.
#[derive(Default)]
#[expect(
    clippy::vec_box,
    reason = "a connection is large and changes hands with every request: its box moves instead"
)]
pub(crate) struct Pool {
    nodes: Vec<Vec<Box<Http1>>>,
    /// Those that serve several requests at a time.
    shared: Vec<Vec<Rc<Http2Connection>>>,
}

impl Pool {
    /// The youngest idle connection of this key, or a stream of one that is shared.
    #[inline]
    pub(crate) fn take(&mut self, key: &UpstreamKey) -> Option<Upstream> {
        match key.http2 {
            true => self.take_stream(key).map(Upstream::Http2),
            false => self.take_idle(key).map(Upstream::Http1),
        }
    }

    #[inline]
    fn take_idle(&mut self, key: &UpstreamKey) -> Option<Box<Http1>> {
        let idle = self.nodes.get_mut(key.node.index())?;
        // The youngest has the same marks, unless some of the node's requests have others, and is no client's own.
        let is_like = |it: &Http1| {
            let its = it.key_ref();
            its.introduces == key.introduces && its.marks == key.marks
        };
        while let Some(place) = idle.iter().rposition(|it| is_like(it)) {
            let upstream = idle.remove(place);
            // A node that has moved is another server, and one that other rules of TLS are for may be any.
            let serves = upstream.key_ref().is_of_same_server(key);
            upstream.count(|node| {
                node.unparked.add(1);
                node.reuses.add(serves.into());
            });
            if serves {
                return Some(upstream);
            }
        }
        None
    }

    fn take_stream(&self, key: &UpstreamKey) -> Option<Http2> {
        let shared = self.shared.get(key.node.index())?;
        shared
            .iter()
            .find(|it| it.key() == *key && it.has_room())
            .map(|connection| {
                connection.count(|node| node.reuses.add(1));
                Http2::of(connection)
            })
    }

    /// A connection that others may share from now on.
    pub(crate) fn share(&mut self, connection: &Rc<Http2Connection>) {
        let index = connection.key().node.index();
        if self.shared.len() <= index {
            self.shared.resize_with(index + 1, Vec::new);
        }
        self.shared[index].push(Rc::clone(connection));
    }

    /// Keeps an idle connection, unless its node is none of the topology's any more or has `most` of them.
    #[inline]
    pub(crate) fn put(&mut self, upstream: Upstream, topology: &Topology, tick: u64, most: usize) {
        let mut upstream = match upstream {
            Upstream::Http1(upstream) => upstream,
            // The connection is there already, and its stream ends here.
            Upstream::Http2(stream) => return stream.park(tick),
        };
        let key = upstream.key_ref();
        if !key.is_current(topology) {
            return;
        }
        let index = key.node.index();
        if self.nodes.len() <= index {
            self.nodes.resize_with(index + 1, Vec::new);
        }
        let idle = &mut self.nodes[index];
        if idle.len() < most {
            upstream.park(tick);
            upstream.count(|node| node.parked.add(1));
            idle.push(upstream);
        }
    }

    /// Drops what goes to nodes that have left, have another address or are on their way to another site.
    pub(crate) fn keep(&mut self, topology: &Topology) {
        for idle in &mut self.nodes {
            idle.retain(|upstream| {
                let keep = upstream.key().is_current(topology);
                if !keep {
                    upstream.count(|node| node.unparked.add(1));
                }
                keep
            });
        }
        for shared in &mut self.shared {
            shared.retain(|connection| connection.key().is_current(topology));
        }
    }

    /// Drops what goes to this node for a client connection that is over.
    pub(crate) fn forget(&mut self, introduction: IntroductionId, node: NodeId) {
        if let Some(idle) = self.nodes.get_mut(node.index()) {
            idle.retain(|upstream| {
                let keep = upstream.key().introduces != Some(introduction);
                if !keep {
                    upstream.count(|node| node.unparked.add(1));
                }
                keep
            });
        }
    }

    /// Drops what was parked before `oldest` or has ended.
    pub(crate) fn sweep(&mut self, oldest: u64) {
        for idle in &mut self.nodes {
            idle.retain_mut(|upstream| {
                let keep = upstream.parked_at() >= oldest && !upstream.drive();
                if !keep {
                    upstream.count(|node| node.unparked.add(1));
                }
                keep
            });
        }
        for shared in &mut self.shared {
            shared.retain(|connection| connection.is_used_since(oldest));
        }
    }

    /// Drops all.
    pub(crate) fn clear(&mut self) {
        self.sweep(u64::MAX);
        self.shared.clear();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.clear();
    }
}
