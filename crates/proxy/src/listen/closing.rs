//! The thread that tells the kernel to take no new clients at a socket: when its listener is taken out, and when the data
//! plane drains.
//!
//! Some kernels want CAP_NET_ADMIN for a filter at a socket. Workers read what strangers send, and so give that
//! capability away; this thread reads nothing, and waits to be asked.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use socket2::SockRef;

use super::listeners::OpenListener;
use crate::config::ProxyThread;
use crate::sockets::stop_new;

/// The thread; it ends when it is asked.
#[derive(Debug)]
pub(crate) struct Closer {
    asks: CloserAsks,
    thread: JoinHandle<()>,
}

/// Asks it, while it is there.
#[derive(Clone, Debug)]
pub(crate) struct CloserAsks(SyncSender<Ask>);

#[derive(Debug)]
struct Ask {
    listeners: Vec<Arc<OpenListener>>,
    /// Said once it is done.
    done: SyncSender<()>,
    is_last: bool,
}

impl Closer {
    /// Starts the thread.
    pub(crate) fn start(thread_start: fn(ProxyThread) -> io::Result<()>) -> io::Result<Self> {
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
                    run(&asked);
                }
            })?;
        told.recv().unwrap_or(Ok(()))?;
        Ok(Self {
            asks: CloserAsks(ask),
            thread,
        })
    }

    /// What asks it.
    pub(crate) fn asks(&self) -> CloserAsks {
        self.asks.clone()
    }

    /// These take no new clients from now on. The thread has ended when this returns.
    pub(crate) fn close(self, listeners: Vec<Arc<OpenListener>>) {
        self.asks.ask(listeners, true);
        // A panic was printed by the thread itself; workers drain all the same.
        self.thread.join().unwrap_or_default();
    }
}

impl CloserAsks {
    /// These take no new clients from now on.
    pub(crate) fn stop(&self, listeners: Vec<Arc<OpenListener>>) {
        self.ask(listeners, false);
    }

    fn ask(&self, listeners: Vec<Arc<OpenListener>>, is_last: bool) {
        let (done, awaited) = sync_channel(1);
        let ask = Ask {
            listeners,
            done,
            is_last,
        };
        // Without the thread workers go on accepting for a moment, as they do in any case.
        if self.0.send(ask).is_ok() {
            awaited.recv().unwrap_or_default();
        }
    }
}

fn run(asked: &Receiver<Ask>) {
    for ask in asked {
        for socket in ask.listeners.iter().flat_map(|listener| listener.all()) {
            // Where it is not permitted, workers go on accepting for a moment, as they do in any case.
            stop_new(&SockRef::from(socket)).unwrap_or_default();
        }
        let is_last = ask.is_last;
        drop(ask.listeners);
        ask.done.send(()).unwrap_or_default();
        if is_last {
            return;
        }
    }
}
