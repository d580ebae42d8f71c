//! The socket for operators: a successor goes on with it.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use tidegate_proxy::{ListenerSockets, Ports};
use tokio::net::TcpListener;

use super::{Running, cannot_listen};
use crate::admin::server;
use crate::failure::Failure;
use crate::output::Output;
use crate::upgrade::Offer;

/// The socket for operators, and a copy for a successor.
pub(super) struct AdminSocket {
    pub(super) listener: TcpListener,
    pub(super) copy: ListenerCopy,
}

/// See [`AdminSocket`].
pub(super) struct ListenerCopy {
    configured: SocketAddr,
    address: SocketAddr,
    socket: OwnedFd,
}

impl AdminSocket {
    /// One that was given, or a new one.
    pub(super) fn open(
        configured: SocketAddr,
        given: Vec<OwnedFd>,
        ports: Ports,
    ) -> Result<Self, Failure> {
        let opened = match given.into_iter().next() {
            Some(socket) => server::adopt(socket),
            None => server::bind(configured, ports),
        };
        let copied = opened.and_then(|listener| {
            let copy = ListenerCopy {
                configured,
                address: listener.local_addr()?,
                socket: listener.as_fd().try_clone_to_owned()?,
            };
            Ok(Self { listener, copy })
        });
        copied.map_err(|error| cannot_listen(&format!("the admin address {configured}"), &error))
    }
}

impl ListenerCopy {
    /// What a successor is offered.
    pub(super) fn offer(
        &self,
        running: &Running,
        upgrades: u64,
        output: Output,
    ) -> std::io::Result<Offer> {
        Ok(Offer {
            listeners: running.proxy.listening()?,
            admin: self.try_clone()?,
            learned: running.gatherer().for_successor(),
            upgrades,
            output,
        })
    }

    fn try_clone(&self) -> std::io::Result<ListenerSockets> {
        Ok(ListenerSockets {
            configured: self.configured,
            address: self.address,
            sockets: vec![self.socket.try_clone()?],
        })
    }
}
