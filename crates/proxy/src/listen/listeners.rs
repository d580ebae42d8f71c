//! Where a data plane listens: listeners come and go while it serves.
//!
//! ```text
//! wanted ── open: what is new is bound, or an error changes nothing ── set ──> workers: accept at what is new,
//!                                                                              leave what is gone
//! ```

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use socket2::Socket;

use crate::config::listener::{ListenerConfig, ListenerPlan};
use crate::sockets::{ListenerSockets, Ports, adopt, listen_again, listen_first};

/// A listener and its sockets. They close when the last one lets go of it.
#[derive(Debug)]
pub(crate) struct OpenListener {
    /// The address as it was configured, maybe with port 0.
    pub(crate) configured: SocketAddr,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// How its connections are served from now on.
    pub(crate) plan: Arc<ArcSwap<ListenerPlan>>,
    /// By worker.
    sockets: Vec<Vec<Socket>>,
}

/// All of them.
pub(crate) type OpenListeners = Arc<Vec<Arc<OpenListener>>>;

/// How listeners are opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) workers: usize,
    pub(crate) ports: Ports,
    pub(crate) keepalive: Duration,
}

impl OpenListener {
    /// A socket for each worker. The first finds a free port where none is given. Of those that were adopted each has
    /// its worker, whose number may be another one than before: a connection that waits in one would be lost with it.
    pub(crate) fn open(
        config: &ListenerConfig,
        adopted: Vec<OwnedFd>,
        opening: Opening,
    ) -> io::Result<Self> {
        let configured = config.address;
        let Opening {
            workers,
            ports,
            keepalive,
        } = opening;
        let given = adopted.into_iter().map(|socket| adopt(socket, keepalive));
        let mut own = given.collect::<io::Result<Vec<_>>>()?;
        let is_adopted = !own.is_empty();
        if !is_adopted {
            own.push(listen_first(configured, ports, keepalive)?);
        }
        let address = own[0].local_addr()?.as_socket().unwrap_or(configured);
        while own.len() < workers {
            let more = match listen_again(address, keepalive) {
                // Of a port that is another user's, or not shared: two workers accept at one socket.
                Err(_) if is_adopted => own[0].try_clone(),
                made => made,
            };
            own.push(more?);
        }
        let mut sockets: Vec<_> = (0..workers).map(|_| Vec::new()).collect();
        for (index, socket) in own.into_iter().enumerate() {
            sockets[index % workers].push(socket);
        }
        Ok(Self {
            configured,
            address,
            plan: Arc::new(ArcSwap::from_pointee(config.plan.clone())),
            sockets,
        })
    }

    /// Those of this worker.
    pub(crate) fn of_worker(&self, index: usize) -> &[Socket] {
        self.sockets.get(index).map_or(&[], Vec::as_slice)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Socket> {
        self.sockets.iter().flatten()
    }

    /// Copies of them, for another process.
    pub(crate) fn copies(&self) -> io::Result<ListenerSockets> {
        let copies = self.all().map(|socket| Ok(socket.try_clone()?.into()));
        Ok(ListenerSockets {
            configured: self.configured,
            address: self.address,
            sockets: copies.collect::<io::Result<_>>()?,
        })
    }
}

/// Those that are kept of what there is, by the addresses that are wanted, and those that are not.
pub(crate) fn kept(
    present: &[Arc<OpenListener>],
    wanted: &[ListenerConfig],
) -> (Vec<Option<Arc<OpenListener>>>, Vec<Arc<OpenListener>>) {
    let mut rest = present.to_vec();
    let mut take = |fits: &dyn Fn(&OpenListener) -> bool| {
        let place = rest.iter().position(|it| fits(it));
        place.map(|place| rest.remove(place))
    };
    let mut kept: Vec<_> = wanted
        .iter()
        .map(|config| take(&|it| it.configured == config.address))
        .collect();
    for (kept, config) in kept.iter_mut().zip(wanted) {
        if kept.is_none() {
            *kept = take(&|it| it.address == config.address);
        }
    }
    (kept, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_kept_by_what_was_configured_and_then_by_where_they_are() {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let opening = Opening {
            workers: 2,
            ports: Ports::default(),
            keepalive: Duration::from_secs(60),
        };
        let open = || {
            let config = ListenerConfig::plain(any);
            Arc::new(OpenListener::open(&config, Vec::new(), opening).unwrap())
        };
        let present = [open(), open(), open()];
        let places = |wanted: &[SocketAddr]| {
            let wanted: Vec<_> = wanted.iter().copied().map(ListenerConfig::plain).collect();
            let (kept, gone) = kept(&present, &wanted);
            let place =
                |it: &Arc<OpenListener>| present.iter().position(|own| Arc::ptr_eq(own, it));
            let kept: Vec<_> = kept.iter().map(|it| it.as_ref().and_then(place)).collect();
            (kept, gone.iter().filter_map(place).collect::<Vec<_>>())
        };
        let other: SocketAddr = ([127, 0, 0, 2], 1).into();
        assert_eq!(places(&[any, any]), (vec![Some(0), Some(1)], vec![2]));
        assert_eq!(
            places(&[present[1].address, other]),
            (vec![Some(1), None], vec![0, 2])
        );
        // The one that is wanted as it was configured has the first choice.
        let wanted = [present[0].address, any];
        assert_eq!(places(&wanted), (vec![None, Some(0)], vec![1, 2]));
        assert_eq!(places(&[]), (vec![], vec![0, 1, 2]));
    }
}
