//! Start and end of the data plane: sockets, worker threads, drain.

mod listeners;
mod run;
mod thread;
mod timers;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::time::Timestamp;
use tokio::sync::{mpsc, watch};

use crate::config::requests::RequestConfig;
use crate::config::site::SiteConfig;
use crate::config::{LogFormat, LogTarget, ProxyConfig, ProxyThread};
use crate::gate::queue::SharedQueues;
use crate::listen::Closer;
use crate::record::log::{LogHealth, LogReopener, Writer};
use crate::record::observed::Observed;
use crate::record::reason::Reason;
use crate::record::stats::{Snapshot, Stats};
use crate::record::traced::{BATCHES_MAX, TracedRequest};
use crate::sockets::ListenerSockets;
use crate::worker::seats::AllSeats;
use crate::worker::sites::SiteSettings;
use crate::worker::{RequestSetter, Shared, SiteSetter};
pub use listeners::{ListenerSetter, ListenersChanged, OpenedListeners};
use listeners::{addresses, listen};
use run::Command;
use thread::{WorkerSeed, runtime};

/// Failures of workers that wait to be read.
const FAILURES_MAX: usize = 16;

/// Why the data plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// A socket cannot be opened.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The access log cannot be opened.
    #[error("cannot open the access log: {0}")]
    Log(io::Error),
    /// A thread or its runtime cannot be made.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
    /// There are counters for fewer workers than there would be.
    #[error("counters for {have} workers do not do for {want}")]
    Counters {
        /// Counters that there are.
        have: usize,
        /// Workers that there would be.
        want: usize,
    },
}

/// A worker has failed: its connections are gone, and another one has taken its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerFailure {
    /// Which.
    pub worker: usize,
    /// What its panic said.
    pub cause: String,
}

/// How a drain went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Requests that ended by themselves after the drain began.
    pub finished: u64,
    /// Requests that were cut off at the deadline, tunnels among them.
    pub cut: u64,
    /// Lines of the access log were still to be written at the deadline.
    pub log_cut: bool,
}

/// Time for the last lines of the access log, whenever the workers have ended.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// The running data plane. Dropping it cuts everything off; [`Proxy::drain`] does not.
#[derive(Debug)]
pub struct Proxy {
    listeners: ListenerSetter,
    sites: SiteSetter,
    requests: RequestSetter,
    shared: Arc<Shared>,
    commands: watch::Sender<Command>,
    workers: Vec<JoinHandle<()>>,
    /// The counters when the drain began, once it has.
    drained_from: Option<Snapshot>,
    /// Says, by being closed, that all workers have ended. The mutex makes the proxy shareable.
    running: Mutex<Receiver<()>>,
    /// Behind the workers: it ends when they have let go of it.
    writer: Option<Writer>,
    /// The mutex makes the proxy shareable, here too.
    observed: Mutex<Observed>,
    failures: mpsc::Receiver<WorkerFailure>,
    traced: mpsc::Receiver<Vec<TracedRequest>>,
    /// Until the drain.
    closer: Option<Closer>,
    clock: fn() -> Timestamp,
}

impl Proxy {
    /// Opens the sockets and starts the workers.
    pub fn start(config: ProxyConfig, shared: Arc<Shared>) -> Result<Self, ProxyError> {
        Self::start_with(config, shared, Vec::new())
    }

    /// The same with sockets that listen already, in the order of the listeners: another process's, or the service
    /// manager's. A listener without any opens its own.
    pub fn start_with(
        mut config: ProxyConfig,
        shared: Arc<Shared>,
        adopted: Vec<Vec<OwnedFd>>,
    ) -> Result<Self, ProxyError> {
        let count = config.workers.max(1);
        if shared.stats.workers() < count {
            return Err(ProxyError::Counters {
                have: shared.stats.workers(),
                want: count,
            });
        }
        let listeners = listen(&config, count, adopted)?;
        let closer = Closer::start(config.thread_start).map_err(ProxyError::Worker)?;
        let writer = start_writer(&config, &shared.stats)?;
        let mut sites = std::mem::take(&mut config.sites);
        let known = shared.topology.load().sites.len().max(sites.len());
        sites.resize_with(known, SiteConfig::default);
        let sites = Arc::new(ArcSwap::from_pointee(SiteSettings::new(sites)));
        let seats = Arc::new(AllSeats::new(&config.limits));
        let queues = Arc::new(SharedQueues::new(count));
        let requests = Arc::new(ArcSwap::from_pointee(take_requests(&mut config)));
        let config = Arc::new(config);
        let addresses = addresses(&listeners);
        let (commands, receiver) = watch::channel(Command::Run(Arc::new(listeners)));
        let (alive, running) = channel();
        let (failures, failed) = mpsc::channel(FAILURES_MAX);
        let (traces, traced) = mpsc::channel(BATCHES_MAX);
        let mut proxy = Self {
            listeners: ListenerSetter {
                commands: commands.clone(),
                closer: closer.asks(),
                addresses: Arc::new(ArcSwap::from_pointee(addresses)),
                workers: count,
                ports: config.ports,
            },
            sites: SiteSetter::new(Arc::clone(&sites), Arc::clone(&shared.news)),
            requests: RequestSetter {
                published: Arc::clone(&requests),
                seats: Arc::clone(&seats),
                news: Arc::clone(&shared.news),
            },
            shared,
            commands,
            workers: Vec::with_capacity(count),
            drained_from: None,
            running: Mutex::new(running),
            writer: Some(writer),
            observed: Mutex::default(),
            failures: failed,
            traced,
            closer: Some(closer),
            clock: config.clock,
        };
        let events = config.events;
        for index in 0..count {
            let observer = (events > 0).then(|| proxy.observed_mut().add_worker(index, events));
            let seed = WorkerSeed {
                observer: Cell::new(observer),
                config: Arc::clone(&config),
                shared: Arc::clone(&proxy.shared),
                sites: Arc::clone(&sites),
                requests: Arc::clone(&requests),
                seats: Arc::clone(&seats),
                queues: Arc::clone(&queues),
                index,
                sender: proxy.writer.as_ref().and_then(Writer::sender),
                traces: traces.clone(),
                commands: receiver.clone(),
                failures: failures.clone(),
            };
            proxy.spawn(seed, alive.clone())?;
        }
        Ok(proxy)
    }

    fn spawn(&mut self, seed: WorkerSeed, alive: Sender<()>) -> Result<(), ProxyError> {
        // The runtime stays on its thread, so that thread reports whether it can be made.
        let (said, made) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("tidegate-w{}", seed.index))
            .spawn(move || {
                match (seed.config.thread_start)(ProxyThread::Worker).and_then(|()| runtime()) {
                    Ok(runtime) => {
                        drop(said);
                        seed.run_on(runtime);
                    }
                    // The caller waits for this.
                    Err(error) => said.send(error).unwrap_or_default(),
                }
                drop(alive);
            });
        self.workers.push(thread.map_err(ProxyError::Worker)?);
        match made.recv() {
            Ok(error) => Err(ProxyError::Worker(error)),
            Err(_) => Ok(()),
        }
    }

    /// Workers that failed, as they do. Given once: then nothing more comes.
    pub fn failures(&mut self) -> mpsc::Receiver<WorkerFailure> {
        std::mem::replace(&mut self.failures, mpsc::channel(1).1)
    }

    /// Requests that are traced, in batches; it ends when all workers have. Given once: then nothing more comes.
    pub fn traced(&mut self) -> mpsc::Receiver<Vec<TracedRequest>> {
        std::mem::replace(&mut self.traced, mpsc::channel(1).1)
    }

    /// Where it listens, one address per configured listener.
    pub fn addresses(&self) -> Arc<Vec<SocketAddr>> {
        self.listeners.addresses.load_full()
    }

    /// What changes where it listens.
    pub fn listener_setter(&self) -> ListenerSetter {
        self.listeners.clone()
    }

    /// What changes the settings of its sites.
    pub fn site_setter(&self) -> SiteSetter {
        self.sites.clone()
    }

    /// What changes by what requests are served.
    pub fn request_setter(&self) -> RequestSetter {
        self.requests.clone()
    }

    /// Its listening sockets, for a successor. None once it drains.
    pub fn listening(&self) -> io::Result<Vec<ListenerSockets>> {
        let open = self.listeners.open_now();
        open.iter().map(|listener| listener.copies()).collect()
    }

    /// What it counts.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.shared.stats
    }

    /// What workers tell of requests. Given once: then nothing more is in there.
    pub fn observed(&mut self) -> Observed {
        std::mem::take(self.observed_mut())
    }

    fn observed_mut(&mut self) -> &mut Observed {
        let observed = self.observed.get_mut();
        observed.unwrap_or_else(PoisonError::into_inner)
    }

    /// What opens the access log's file anew, and has lines go elsewhere.
    pub fn log_reopener(&self) -> LogReopener {
        let writer = self.writer.as_ref();
        writer.map(Writer::reopener).unwrap_or_default()
    }

    /// How the writing of the access log goes, as that changes. None once it drains.
    pub fn log_health(&self) -> Option<watch::Receiver<LogHealth>> {
        self.writer.as_ref().map(Writer::health)
    }

    /// Takes in nothing new from now on.
    pub fn begin_drain(&mut self) {
        self.leave(&[]);
    }

    /// The same where another process has the sockets at these addresses, and accepts there: to clients nothing changes.
    pub fn leave(&mut self, taken_over: &[SocketAddr]) {
        if self.drained_from.is_none() {
            self.drained_from = Some(self.shared.stats.snapshot());
            let open = self.listeners.open_now();
            if let Some(closer) = self.closer.take() {
                let closing = open.iter().filter(|it| !taken_over.contains(&it.address));
                closer.close(closing.cloned().collect());
            }
            drop(open);
            let drain = Command::Drain(taken_over.to_vec());
            self.commands.send_replace(drain);
        }
    }

    /// Takes in nothing new, lets what is in flight end, and cuts off what is left at the
    /// deadline; what is logged by then is written, if that takes no longer. The counts are from
    /// [`Proxy::begin_drain`] on.
    pub fn drain(mut self, deadline: Duration) -> Drained {
        self.begin_drain();
        let began = (self.clock)();
        self.join(deadline);
        let left = deadline.saturating_sub((self.clock)().since(began));
        let writer = self.writer.as_mut();
        let log_cut = writer.is_some_and(|it| !it.end(left.max(LOG_PATIENCE)));
        let before = self.drained_from.take().unwrap_or_default();
        let after = self.shared.stats.snapshot();
        let cut = after.reason(Reason::Drained) - before.reason(Reason::Drained);
        Drained {
            finished: after.ended() - before.ended() - cut,
            cut,
            log_cut,
        }
    }

    /// Waits until all workers have ended; those that have not in this time are cut off.
    fn join(&mut self, patience: Duration) {
        let running = self.running.get_mut();
        match running
            .unwrap_or_else(PoisonError::into_inner)
            .recv_timeout(patience)
        {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
            Err(RecvTimeoutError::Timeout) => {
                self.commands.send_replace(Command::Cut);
            }
        }
        for worker in self.workers.drain(..) {
            // A worker that panicked has said so already, and has nothing left to end.
            worker.join().ok();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.commands.send_replace(Command::Cut);
        self.join(Duration::ZERO);
    }
}

/// The log's writer, with its file or without: lines may be wanted later.
fn start_writer(config: &ProxyConfig, stats: &Arc<Stats>) -> Result<Writer, ProxyError> {
    let target = match config.log.format {
        LogFormat::Off => &LogTarget::Stdout,
        LogFormat::Json | LogFormat::Combined => &config.log.target,
    };
    let started = Writer::start(target, config.thread_start, Arc::clone(stats), config.clock);
    started.map_err(ProxyError::Log)
}

/// What requests are served by at first.
fn take_requests(config: &mut ProxyConfig) -> RequestConfig {
    RequestConfig {
        limits: config.limits,
        timeouts: config.timeouts,
        forwarded: std::mem::take(&mut config.forwarded),
        node_header: config.node_header,
        log: config.log.format,
        log_fields: config.log.fields.clone(),
        recent: config.log.recent,
        id_header: config.log.id_header,
        traces: config.traces,
    }
}
