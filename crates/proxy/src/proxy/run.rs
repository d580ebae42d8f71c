//! A worker at work: it listens, keeps time, and ends at the signal.

use std::any::Any;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::timers::keep_time;
use crate::base::Removal;
use crate::listen::{Clients, Listener, OpenListener, OpenListeners, accept};
use crate::record::reason::Reason;

/// What the workers are to do.
#[derive(Clone, Debug)]
pub(super) enum Command {
    /// Accept clients there.
    Run(OpenListeners),
    /// Take in nothing new, and end when all is done. At these addresses another process accepts.
    Drain(Vec<SocketAddr>),
    /// End now.
    Cut,
}

/// Runs the worker of this number until the signal to stop, or until one of its own tasks fails: without its clock, say,
/// no time-out holds, so the worker ends, and its connections with it. Then listeners stay open for its successor.
pub(super) async fn run(
    clients: Rc<Clients>,
    index: usize,
    mut commands: watch::Receiver<Command>,
) -> Result<(), Failed> {
    let worker = &clients.worker;
    let mut accepting = Accepting::new(&clients, index);
    let mut timers = JoinSet::new();
    timers.spawn_local(keep_time(Rc::clone(&clients)));
    timers.spawn_local(Rc::clone(&worker.queue).run_timers());
    timers.spawn_local(Rc::clone(&worker.throttles).run_timers());
    let stopped = async {
        if let Some(taken_over) = accept_until_stopped(&mut accepting, &mut commands).await? {
            worker.base.drain.leave(&taken_over);
            tokio::select! {
                () = drain(&clients, &mut accepting) => {}
                _ = commands.wait_for(|command| matches!(command, Command::Cut)) => {}
            }
        }
        Ok(())
    };
    let ended = tokio::select! {
        ended = stopped => ended,
        failed = failure(&mut timers) => Err(failed),
    };
    if ended.is_err() {
        worker.base.drain.cut_for.set(Reason::WorkerFailed);
    }
    drop(accepting);
    cut(&clients).await;
    worker.pool.borrow_mut().clear();
    worker.base.record.flush();
    ended
}

/// Accepts at the listeners that there are; where another process accepts when this one is to drain, and none when it is
/// to end at once.
async fn accept_until_stopped(
    accepting: &mut Accepting,
    commands: &mut watch::Receiver<Command>,
) -> Result<Option<Vec<SocketAddr>>, Failed> {
    loop {
        let command = commands.borrow_and_update().clone();
        match command {
            Command::Run(listeners) => accepting.follow(&listeners),
            Command::Drain(taken_over) => return Ok(Some(taken_over)),
            Command::Cut => return Ok(None),
        }
        tokio::select! {
            changed = commands.changed() => if changed.is_err() {
                return Ok(None);
            },
            failed = accepting.failure() => return Err(failed),
        }
    }
}

/// The listeners that a worker accepts at.
struct Accepting {
    clients: Rc<Clients>,
    /// The worker's number.
    index: usize,
    tasks: JoinSet<()>,
    at: Vec<(Arc<OpenListener>, Rc<Removal>)>,
}

impl Accepting {
    fn new(clients: &Rc<Clients>, index: usize) -> Self {
        Self {
            clients: Rc::clone(clients),
            index,
            tasks: JoinSet::new(),
            at: Vec::new(),
        }
    }

    /// Accepts at these and no others.
    fn follow(&mut self, listeners: &[Arc<OpenListener>]) {
        let is_there = |it: &Arc<OpenListener>| listeners.iter().any(|new| Arc::ptr_eq(new, it));
        for (_, removal) in self.at.extract_if(.., |(it, _)| !is_there(it)) {
            self.clients.remove(removal);
        }
        for listener in listeners {
            if self.at.iter().all(|(it, _)| !Arc::ptr_eq(it, listener)) {
                let removal = Rc::default();
                self.begin(listener, &removal);
                self.at.push((Arc::clone(listener), removal));
            }
        }
    }

    fn begin(&mut self, listener: &OpenListener, removal: &Rc<Removal>) {
        for socket in listener.of_worker(self.index) {
            let copy = socket.try_clone();
            let made = copy.and_then(|socket| {
                Listener::new(socket, Rc::clone(removal), Arc::clone(&listener.plan))
            });
            match made {
                Ok(listener) => {
                    let accepting = accept(Rc::clone(&self.clients), listener);
                    self.tasks.spawn_local(accepting);
                }
                Err(_) => self.clients.worker.base.stats().accept_errors.add(1),
            }
        }
    }

    /// Waits until one of them fails; one that was taken out just ends.
    async fn failure(&mut self) -> Failed {
        loop {
            match self.tasks.join_next().await {
                Some(Err(error)) if error.is_panic() => {
                    return Failed::of_panic(&*error.into_panic());
                }
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// Lets end what there is. Idle connections stay: each closes behind its next answer.
async fn drain(clients: &Clients, accepting: &mut Accepting) {
    clients.worker.base.drain.begin();
    // The listeners take in what is connected already.
    while accepting.tasks.join_next().await.is_some() {}
    accepting.at.clear();
    clients.idle().await;
}

async fn cut(clients: &Clients) {
    clients.worker.base.drain.begin();
    clients.for_each(|client| {
        client.connection.cut.set(true);
        client.connection.wake();
    });
    clients.idle().await;
}

/// Why a worker failed, as its panic said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed(pub(super) String);

impl Failed {
    pub(super) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self(text.unwrap_or("a panic without a text").to_owned())
    }
}

/// Waits until one of these tasks ends; none does unless it fails.
async fn failure(tasks: &mut JoinSet<()>) -> Failed {
    match tasks.join_next().await {
        Some(Err(error)) if error.is_panic() => Failed::of_panic(&*error.into_panic()),
        Some(_) | None => Failed("a task ended that has no end".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use arc_swap::ArcSwap;
    use tidegate_core::admission::{AdmissionConfig, AdmissionKind, StaticLimits};
    use tidegate_core::director::Director;
    use tidegate_core::load::LoadTable;
    use tidegate_core::policy::PolicyConfig;
    use tidegate_core::time::Timestamp;
    use tidegate_core::topology::{Capacity, ClusterSpec, NodeId, NodeSpec, SiteId, SiteSpec};
    use tokio::runtime::{Builder, LocalOptions};
    use tokio::sync::Notify;

    use super::*;
    use crate::config::ProxyConfig;
    use crate::config::listener::ListenerConfig;
    use crate::gate::delay::DelayExperiments;
    use crate::gate::queue::SharedQueues;
    use crate::gate::throttle::Throttling;
    use crate::listen::Opening;
    use crate::record::log::Logger;
    use crate::record::stats::Stats;
    use crate::record::traced::TraceSink;
    use crate::worker::seats::AllSeats;
    use crate::worker::sites::SiteSettings;
    use crate::worker::{LoadReports, Parts, Shared, Worker};

    fn shared() -> Arc<Shared> {
        let spec = ClusterSpec {
            sites: vec![SiteSpec {
                name: "site".into(),
                hosts: vec!["*".into()],
                paths: Vec::new(),
                policy: PolicyConfig::default(),
                admission: AdmissionConfig {
                    limits: StaticLimits {
                        connections: Some(0),
                        ..StaticLimits::default()
                    },
                    ..AdmissionConfig::new(AdmissionKind::Static)
                },
                health: Default::default(),
            }],
            nodes: vec![NodeSpec {
                name: "n0".into(),
                address: ([127, 0, 0, 1], 1).into(),
                site: SiteId(0),
                weight: 1.0,
                capacity: Capacity::default(),
            }],
            groups: Vec::new(),
            front_ends: 1,
        };
        let table = Arc::new(LoadTable::new(1, 1));
        Arc::new(Shared {
            load_reports: Arc::new(LoadReports::new(Arc::clone(&table))),
            table,
            topology: Arc::new(ArcSwap::new(Director::new(spec, 1).topology())),
            room_freed: Arc::new(Notify::new()),
            wake_up: Arc::default(),
            news: Arc::default(),
            throttles: Arc::new(Throttling::new(0)),
            delay_experiments: Arc::new(DelayExperiments::new(0)),
            stats: Arc::new(Stats::new(1, 1, 1)),
        })
    }

    /// What two clients read that ask one after the other; time stands still.
    fn answers(shared: &Arc<Shared>) -> [String; 2] {
        let shared = Arc::clone(shared);
        let config = Arc::new(ProxyConfig::new(|| Timestamp::from_nanos(1)));
        let logger = Logger::new(None, Arc::clone(&shared.stats), 0);
        let traces = TraceSink::new(None, Arc::clone(&shared.stats), 0);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
            .unwrap();
        runtime.block_on(async move {
            let seats = Arc::new(AllSeats::new(&config.limits));
            let connections = Arc::clone(&seats.connections);
            let config_keepalive = config.timeouts.keepalive;
            let worker = Worker::new(Parts {
                config,
                shared,
                sites: Arc::new(ArcSwap::from_pointee(SiteSettings::new(Vec::new()))),
                requests: Arc::default(),
                seats,
                queues: Arc::new(SharedQueues::new(1)),
                index: 0,
                observer: None,
                logger,
                traces,
            });
            let clients = Clients::new(worker, connections, || ());
            let opening = Opening {
                workers: 1,
                ports: Default::default(),
                keepalive: config_keepalive,
            };
            let any = ([127, 0, 0, 1], 0).into();
            let config = ListenerConfig::plain(any);
            let listener = OpenListener::open(&config, Vec::new(), opening).unwrap();
            let address = listener.address;
            let listeners = Arc::new(vec![Arc::new(listener)]);
            let (commands, receiver) = watch::channel(Command::Run(listeners));
            let client = std::thread::spawn(move || {
                let ask = || {
                    let mut stream = std::net::TcpStream::connect(address).unwrap();
                    stream
                        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                        .unwrap();
                    let mut answer = String::new();
                    stream.read_to_string(&mut answer).unwrap();
                    answer
                };
                let answers = [ask(), ask()];
                commands.send_replace(Command::Cut);
                answers
            });
            run(clients, 0, receiver).await.unwrap();
            client.join().unwrap()
        })
    }

    #[test]
    fn admission_refuses_after_the_head_and_then_before_it() {
        let shared = shared();
        for answer in answers(&shared) {
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(
                answer.contains("x-tidegate-reason: overload\r\n"),
                "{answer}"
            );
            assert!(answer.contains("\r\nretry-after: "), "{answer}");
        }
        let seen = shared.stats.snapshot();
        // A connection that is not read has brought no request.
        assert_eq!(seen.refused[Reason::Overload.index()], 1);
        assert_eq!(seen.reason(Reason::Overload), 1);
        assert_eq!(shared.table.own(NodeId(0)).dispatched, 0);
    }
}
