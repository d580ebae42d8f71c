//! The thread that tells the kernel to take no new clients, when the data plane drains.
//!
//! Some kernels want CAP_NET_ADMIN for a filter at a socket. Workers read what strangers send, and so give that
//! capability away; this thread reads nothing, and waits for the drain alone.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use socket2::Socket;

use crate::config::ProxyThread;
use crate::sockets::stop_new;

/// The thread; it ends when it is asked, or dropped.
#[derive(Debug)]
pub(crate) struct Closer {
    ask: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Closer {
    /// Starts the thread for these listening sockets.
    pub(crate) fn start(
        sockets: &[Vec<Socket>],
        thread_start: fn(ProxyThread) -> io::Result<()>,
    ) -> io::Result<Self> {
        let sockets = sockets.iter().flatten().map(Socket::try_clone);
        let sockets: Vec<_> = sockets.collect::<io::Result<_>>()?;
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
                    run(&sockets, &asked);
                }
            })?;
        told.recv().unwrap_or(Ok(()))?;
        Ok(Self { ask, thread })
    }

    /// Takes no new clients from now on. When this returns, its sockets are closed.
    pub(crate) fn close(self) {
        self.ask.send(()).unwrap_or_default();
        // A panic was printed by the thread itself; workers drain all the same.
        self.thread.join().unwrap_or_default();
    }
}

fn run(sockets: &[Socket], asked: &Receiver<()>) {
    if asked.recv().is_ok() {
        for socket in sockets {
            // Where it is not permitted, workers go on accepting for a moment, as they do in any case.
            stop_new(socket).unwrap_or_default();
        }
    }
}
