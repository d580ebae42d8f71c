//! The thread that tells the kernel to take no new clients, when the data plane drains.
//!
//! Some kernels want CAP_NET_ADMIN for a filter at a socket. Workers read what strangers send, and so give that
//! capability away; this thread reads nothing, and waits for the drain alone.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use socket2::SockRef;

use crate::config::ProxyThread;
use crate::sockets::{ListenerSockets, stop_new};

/// The thread; it ends when it is asked, or dropped.
#[derive(Debug)]
pub(crate) struct Closer {
    ask: SyncSender<Vec<SocketAddr>>,
    thread: JoinHandle<()>,
    sockets: Arc<Vec<ListenerSockets>>,
}

impl Closer {
    /// Starts the thread for these listening sockets.
    pub(crate) fn start(
        sockets: Vec<ListenerSockets>,
        thread_start: fn(ProxyThread) -> io::Result<()>,
    ) -> io::Result<Self> {
        let sockets = Arc::new(sockets);
        let own = Arc::clone(&sockets);
        let (ask, asked) = sync_channel(1);
        let (tell, told) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("tidegate-close".into())
            .spawn(move || {
                let begun = thread_start(ProxyThread::Closer);
                let failed = begun.is_err();
                // The thread that spawned this one waits for it.
                tell.send(begun).unwrap_or_default();
                if !failed {
                    run(&own, &asked);
                }
            })?;
        told.recv().unwrap_or(Ok(()))?;
        Ok(Self {
            ask,
            thread,
            sockets,
        })
    }

    /// The sockets, for another process.
    pub(crate) fn sockets(&self) -> io::Result<Vec<ListenerSockets>> {
        let copied = self.sockets.iter().map(|listener| {
            let sockets = listener.sockets.iter().map(OwnedFd::try_clone);
            Ok(ListenerSockets {
                configured: listener.configured,
                address: listener.address,
                sockets: sockets.collect::<io::Result<_>>()?,
            })
        });
        copied.collect()
    }

    /// Takes no new clients from now on, but at the addresses that another process has taken over. When this
    /// returns, its sockets are closed.
    pub(crate) fn close(self, taken_over: &[SocketAddr]) {
        self.ask.send(taken_over.to_vec()).unwrap_or_default();
        // A panic was printed by the thread itself; workers drain all the same.
        self.thread.join().unwrap_or_default();
    }
}

fn run(listeners: &[ListenerSockets], asked: &Receiver<Vec<SocketAddr>>) {
    let Ok(taken_over) = asked.recv() else { return };
    let closing = listeners
        .iter()
        .filter(|listener| !taken_over.contains(&listener.address));
    for socket in closing.flat_map(|listener| &listener.sockets) {
        // Where it is not permitted, workers go on accepting for a moment, as they do in any case.
        stop_new(&SockRef::from(socket)).unwrap_or_default();
    }
}
