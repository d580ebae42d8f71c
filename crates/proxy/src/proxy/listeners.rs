//! Listeners of a data plane, at its start and as they change.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::ProxyError;
use super::run::Command;
use crate::config::ProxyConfig;
use crate::config::listener::{ListenerConfig, ListenerPlan};
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
    /// How connections of each of them are to be served.
    plans: Vec<ListenerPlan>,
    gone: Vec<Arc<OpenListener>>,
}

/// What a change of listeners has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenersChanged {
    /// Where clients are accepted that were not before.
    pub new: Vec<SocketAddr>,
    /// Where none are accepted any more.
    pub gone: Vec<SocketAddr>,
    /// Where they are shown other certificates than before, or meet TLS or plain HTTP instead of the other.
    pub shown_anew: Vec<SocketAddr>,
}

impl ListenerSetter {
    /// Opens those of these listeners that are not there yet; they accept nothing before they are set.
    ///
    /// # Errors
    /// One cannot be opened. Then none is.
    pub fn open(
        &self,
        wanted: &[ListenerConfig],
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
            .map(|(kept, config)| match kept {
                Some(listener) => Ok(listener),
                None => open(config, Vec::new(), opening),
            });
        Ok(OpenedListeners {
            next: next.collect::<Result<_, _>>()?,
            plans: wanted.iter().map(|it| it.plan.clone()).collect(),
            gone,
        })
    }

    /// Whether those of these listeners that are not there yet could be opened now. None is.
    ///
    /// # Errors
    /// One could not.
    pub fn check(&self, wanted: &[ListenerConfig]) -> Result<(), ProxyError> {
        let (kept, _) = kept(&self.open_now(), wanted);
        let new = kept.iter().zip(wanted).filter(|(kept, _)| kept.is_none());
        for (_, config) in new {
            let address = config.address;
            try_bind(address, self.ports.sharing)
                .map_err(|error| ProxyError::Listen { address, error })?;
        }
        Ok(())
    }

    /// From now on clients are accepted there. What waits at the others is still served; their connections close
    /// behind their next answer, or are cut off when [`Timeouts::leaving`](crate::Timeouts) is over. Connections that are
    /// there already keep what they were shown.
    pub fn set(&self, opened: OpenedListeners) -> ListenersChanged {
        let OpenedListeners { next, plans, gone } = opened;
        let (before, after) = (self.addresses.load_full(), addresses(&next));
        let mut changed = ListenersChanged {
            new: (after.iter().copied())
                .filter(|it| !before.contains(it))
                .collect(),
            gone: addresses(&gone),
            shown_anew: Vec::new(),
        };
        let listeners = next.clone();
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
        for (listener, plan) in listeners.iter().zip(plans) {
            let before = listener.plan.load();
            if plan.shows_another(&before) {
                changed.shown_anew.push(listener.address);
            }
            listener.plan.store(Arc::new(plan.succeeding(&before)));
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
    /// Names of the certificates of the configuration that clients are shown now, and when each ends, in seconds since 1970;
    /// in the order of their names, each once.
    pub fn certificate_ends(&self) -> BTreeMap<Vec<Box<str>>, u64> {
        let mut ends = BTreeMap::new();
        for listener in self.open_now().iter() {
            let plan = listener.plan.load();
            for (names, end) in plan.tls.iter().flat_map(|tls| tls.ends()) {
                let known = ends.entry(names.to_vec()).or_insert(end);
                *known = end.min(*known);
            }
        }
        ends
    }

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
        open(listener, given, opening)
    });
    listeners.collect()
}

fn open(
    config: &ListenerConfig,
    given: Vec<OwnedFd>,
    opening: Opening,
) -> Result<Arc<OpenListener>, ProxyError> {
    let opened = OpenListener::open(config, given, opening);
    let address = config.address;
    opened
        .map(Arc::new)
        .map_err(|error| ProxyError::Listen { address, error })
}

pub(super) fn addresses(listeners: &[Arc<OpenListener>]) -> Vec<SocketAddr> {
    listeners.iter().map(|it| it.address).collect()
}
