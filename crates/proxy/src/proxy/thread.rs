//! A worker's thread: it runs workers one after the other, until one ends at the signal.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{mpsc, watch};

use super::WorkerFailure;
use super::run::{Command, Failed, run};
use crate::config::ProxyConfig;
use crate::config::requests::RequestConfig;
use crate::gate::queue::SharedQueues;
use crate::listen::Clients;
use crate::record::log::{Batch, Logger};
use crate::record::observed::Observer;
use crate::record::traced::{TraceSink, TracedRequest};
use crate::worker::seats::AllSeats;
use crate::worker::sites::SiteSettings;
use crate::worker::{Parts, Shared, Worker};

/// Before a worker that failed is replaced: one that fails at once shall not take the processor.
const RESTART_PAUSE: Duration = Duration::from_millis(50);

/// What a worker thread is made from: the worker itself never leaves its thread.
pub(super) struct WorkerSeed {
    pub(super) config: Arc<ProxyConfig>,
    pub(super) shared: Arc<Shared>,
    pub(super) sites: Arc<ArcSwap<SiteSettings>>,
    pub(super) requests: Arc<ArcSwap<RequestConfig>>,
    pub(super) seats: Arc<AllSeats>,
    pub(super) queues: Arc<SharedQueues>,
    pub(super) index: usize,
    pub(super) sender: Option<SyncSender<Batch>>,
    pub(super) traces: mpsc::Sender<Vec<TracedRequest>>,
    pub(super) commands: watch::Receiver<Command>,
    pub(super) observer: Cell<Option<Observer>>,
    pub(super) failures: mpsc::Sender<WorkerFailure>,
}

impl WorkerSeed {
    /// Runs workers on this thread, one after the other, until one ends at the signal. Listeners stay,
    /// so clients that connect in between wait for the next one.
    pub(super) fn run_on(self, mut made: LocalRuntime) {
        let observer = self.observer.take().map(Rc::new);
        loop {
            let run = || self.run(&made, observer.clone());
            let failed = match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(())) => return,
                Ok(Err(failed)) => failed,
                Err(payload) => Failed::of_panic(&*payload),
            };
            self.shared.stats.worker(self.index).on_failure();
            // If too many of them wait to be read, the counter tells of the rest.
            let failure = WorkerFailure {
                worker: self.index,
                cause: failed.0,
            };
            drop(self.failures.try_send(failure));
            drop(made);
            made = loop {
                std::thread::sleep(RESTART_PAUSE);
                if let Ok(made) = runtime() {
                    break made;
                }
            };
        }
    }

    fn run(&self, runtime: &LocalRuntime, observer: Option<Rc<Observer>>) -> Result<(), Failed> {
        let stats = Arc::clone(&self.shared.stats);
        let sender = self.sender.clone();
        let logger = Logger::new(sender, Arc::clone(&stats), self.index);
        let traces = TraceSink::new(Some(self.traces.clone()), stats, self.index);
        let worker = Worker::new(Parts {
            config: Arc::clone(&self.config),
            shared: Arc::clone(&self.shared),
            sites: Arc::clone(&self.sites),
            requests: Arc::clone(&self.requests),
            seats: Arc::clone(&self.seats),
            queues: Arc::clone(&self.queues),
            index: self.index,
            observer,
            logger,
            traces,
        });
        let clients = Clients::new(
            worker,
            Arc::clone(&self.seats.connections),
            self.config.give_back_memory,
        );
        runtime.block_on(run(clients, self.index, self.commands.clone()))
    }
}

pub(super) fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
}
