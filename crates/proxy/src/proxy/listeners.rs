//! Listeners of a data plane, at its start and as they change.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::ProxyError;
use super::run::Command;
use crate::config::ProxyConfig;
use crate::listen::{CloserAsks, OpenListener, OpenListeners, Opening, kept};
use crate::sockets::{Ports, try_bind};

/// What changes where a running data plane listens. One change at a time.
#[derive(Clone, Debug)]
pub struct ListenerSetter {
    pub(super) commands: watch::Sender<Command>,
    pub(super) closer: CloserAsks,
    pub(super) addresses: Arc<ArcSwap<Vec<SocketAddr>>>,
    pub(super) workers: usize,
    pub(super) ports: Ports,
}

/// Listeners that are open, and of which no client was accepted yet that is new.
#[derive(Debug)]
pub struct OpenedListeners {
    next: Vec<Arc<OpenListener>>,
    gone: Vec<Arc<OpenListener>>,
}

/// What a change of listeners has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenersChanged {
    /// Where clients are accepted that were not before.
    pub new: Vec<SocketAddr>,
    /// Where none are accepted any more.
    pub gone: Vec<SocketAddr>,
}

impl ListenerSetter {
    /// Opens those of these addresses that are not there yet; they accept nothing before they are set.
    ///
    /// # Errors
    /// One cannot be opened. Then none is.
    pub fn open(
        &self,
        wanted: &[SocketAddr],
        keepalive: Duration,
    ) -> Result<OpenedListeners, ProxyError> {
        let opening = Opening {
            workers: self.workers,
            ports: self.ports,
            keepalive,
        };
        let (kept, gone) = kept(&self.open_now(), wanted);
        let next = kept
            .into_iter()
            .zip(wanted)
            .map(|(kept, address)| match kept {
                Some(listener) => Ok(listener),
                None => open(*address, Vec::new(), opening),
            });
        Ok(OpenedListeners {
            next: next.collect::<Result<_, _>>()?,
            gone,
        })
    }

    /// Whether those of these addresses that are not there yet could be opened now. None is.
    ///
    /// # Errors
    /// One could not.
    pub fn check(&self, wanted: &[SocketAddr]) -> Result<(), ProxyError> {
        let (kept, _) = kept(&self.open_now(), wanted);
        let new = kept.iter().zip(wanted).filter(|(kept, _)| kept.is_none());
        for (_, address) in new {
            let address = *address;
            try_bind(address, self.ports.sharing)
                .map_err(|error| ProxyError::Listen { address, error })?;
        }
        Ok(())
    }

    /// From now on clients are accepted there. What waits at the others is still served; their connections close
    /// behind their next answer, or are cut off when [`Timeouts::leaving`](crate::Timeouts) is over.
    pub fn set(&self, opened: OpenedListeners) -> ListenersChanged {
        let OpenedListeners { next, gone } = opened;
        let (before, after) = (self.addresses.load_full(), addresses(&next));
        let changed = ListenersChanged {
            new: (after.iter().copied())
                .filter(|it| !before.contains(it))
                .collect(),
            gone: addresses(&gone),
        };
        let is_running = self.commands.send_if_modified(|command| match command {
            Command::Run(listeners) => {
                *listeners = Arc::new(next);
                true
            }
            Command::Drain(_) | Command::Cut => false,
        });
        if !is_running {
            return ListenersChanged::default();
        }
        self.addresses.store(Arc::new(after));
        if !gone.is_empty() {
            self.closer.stop(gone);
        }
        changed
    }

    /// Where it listens, as that changes.
    pub fn addresses(&self) -> Arc<ArcSwap<Vec<SocketAddr>>> {
        Arc::clone(&self.addresses)
    }

    /// The listeners that there are; none once it drains.
    pub(super) fn open_now(&self) -> OpenListeners {
        match &*self.commands.borrow() {
            Command::Run(listeners) => Arc::clone(listeners),
            Command::Drain(_) | Command::Cut => OpenListeners::default(),
        }
    }
}

/// Opens the listeners of the start, with the sockets that are given for them, in their order.
pub(super) fn listen(
    config: &ProxyConfig,
    workers: usize,
    adopted: Vec<Vec<OwnedFd>>,
) -> Result<Vec<Arc<OpenListener>>, ProxyError> {
    let opening = Opening {
        workers,
        ports: config.ports,
        keepalive: config.timeouts.keepalive,
    };
    let mut adopted = adopted.into_iter();
    let listeners = config.listeners.iter().map(|listener| {
        let given = adopted.next().unwrap_or_default();
        open(listener.address, given, opening)
    });
    listeners.collect()
}

fn open(
    address: SocketAddr,
    given: Vec<OwnedFd>,
    opening: Opening,
) -> Result<Arc<OpenListener>, ProxyError> {
    let opened = OpenListener::open(address, given, opening);
    opened
        .map(Arc::new)
        .map_err(|error| ProxyError::Listen { address, error })
}

pub(super) fn addresses(listeners: &[Arc<OpenListener>]) -> Vec<SocketAddr> {
    listeners.iter().map(|it| it.address).collect()
}
