//! One client connection and what serves its present request: the worker, and the connection to the node that has it.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_core::topology::{Node, Topology};

use super::state::RequestState;
use crate::base::Removal;
use crate::config::listener::ListenerPlan;
use crate::connection::{ClientConnection, Phase};
use crate::head::interim;
use crate::upstream::Upstream;
use crate::worker::Worker;

/// See the module.
pub(crate) struct Client {
    pub(crate) worker: Rc<Worker>,
    pub(crate) connection: Rc<ClientConnection>,
    /// The connection to the node that has the present request.
    pub(crate) upstream: RefCell<Option<Upstream>>,
    /// The node that has the present request answers nothing any more.
    pub(crate) stranded: Cell<bool>,
    spare: Cell<Option<Box<RequestState>>>,
}

impl Client {
    pub(crate) fn new(
        worker: Rc<Worker>,
        address: IpAddr,
        listener: Rc<Removal>,
        plan: Arc<ListenerPlan>,
    ) -> Rc<Self> {
        Rc::new(Self {
            connection: ClientConnection::new(Rc::clone(&worker.base), address, listener, plan),
            worker,
            upstream: RefCell::new(None),
            stranded: Cell::new(false),
            spare: Cell::new(None),
        })
    }

    /// One stream of this connection, whose requests are served as if they came on a connection of their own.
    pub(crate) fn of_stream(&self) -> Rc<Self> {
        Rc::new(Self {
            worker: Rc::clone(&self.worker),
            connection: self.connection.of_stream(),
            upstream: RefCell::new(None),
            stranded: Cell::new(false),
            spare: Cell::new(None),
        })
    }

    /// Lets the upstream connection do what it can do now. True if it has ended.
    pub(crate) fn drive(&self) -> bool {
        match &mut *self.upstream.borrow_mut() {
            Some(upstream) => upstream.drive(),
            None => true,
        }
    }

    /// Interim responses of the node go to a client that reads them.
    #[inline]
    pub(crate) fn take_interims(&self) {
        if let Some(upstream) = &*self.upstream.borrow()
            && upstream.has_interims()
        {
            self.pass_on(&upstream.take_interims());
        }
    }

    #[cold]
    fn pass_on(&self, heads: &[u8]) {
        if self.connection.reads_interim() {
            let forwarded = self.connection.settings.forwarded();
            let mut interims = self.connection.interims.borrow_mut();
            interim::forward(heads, forwarded.via.as_deref(), &mut interims);
        }
    }

    /// Puts the upstream connection back into the pool if it can be used again.
    pub(crate) fn release_upstream(&self) {
        let Some(mut upstream) = self.upstream.take() else {
            return;
        };
        if upstream.settle() {
            self.worker.park(upstream);
        }
    }

    /// Some nodes answer nothing: the request is looked at anew if it waits for one of them.
    pub(crate) fn on_unresponsive(&self, topology: &Topology) {
        let upstream = self.upstream.borrow();
        let node = upstream.as_ref().and_then(|upstream| upstream.awaited());
        let node = node.and_then(|node| topology.nodes.get(node.index()));
        if self.connection.phase() == Phase::Busy && node.is_some_and(Node::is_unresponsive) {
            self.stranded.set(true);
            self.connection.wake();
        }
    }

    // The memory of the present request, kept for the next.

    pub(super) fn take_spare(&self) -> Box<RequestState> {
        self.spare.take().unwrap_or_default()
    }

    pub(super) fn put_spare(&self, state: Box<RequestState>) {
        self.spare.set(Some(state));
    }

    /// Lets go of what would keep the connection's memory after its end.
    pub(crate) fn close(&self) {
        drop(self.upstream.take());
        self.connection.close();
    }
}
