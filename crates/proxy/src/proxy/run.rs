//! A worker at work: it listens, keeps time, and ends at the signal.

use std::any::Any;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use socket2::Socket;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::timers::keep_time;
use crate::listen::{Clients, Listener, accept};
use crate::record::reason::Reason;
use crate::worker::Worker;

/// What the workers are to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Go on.
    Run,
    /// Take in nothing new, and end when all is done. At these addresses another process accepts.
    Drain(Vec<SocketAddr>),
    /// End now.
    Cut,
}

/// Runs a worker until the signal to stop, or until one of its own tasks fails: without its clock, say, no
/// time-out holds, so the worker ends, and its connections with it. Then its listening `sockets` stay
/// open for its successor.
pub(super) async fn run(
    clients: Rc<Clients>,
    sockets: &Cell<Vec<Socket>>,
    mut commands: watch::Receiver<Command>,
) -> Result<(), Failed> {
    let worker = &clients.worker;
    let mut accepting = JoinSet::new();
    for listener in listeners(worker, sockets) {
        accepting.spawn_local(accept(Rc::clone(&clients), listener));
    }
    let mut timers = JoinSet::new();
    timers.spawn_local(keep_time(Rc::clone(&clients)));
    timers.spawn_local(Rc::clone(&worker.queue).run_timers());
    timers.spawn_local(Rc::clone(&worker.throttles).run_timers());
    let stopped = async {
        let command = tokio::select! {
            command = commands.wait_for(|command| *command != Command::Run) => command.map(|it| it.clone()),
            failed = failure(&mut accepting) => return Err(failed),
        };
        if let Ok(Command::Drain(taken_over)) = command {
            worker.base.drain.leave(&taken_over);
            tokio::select! {
                () = drain(&clients, &mut accepting, sockets) => {}
                _ = commands.wait_for(|command| *command == Command::Cut) => {}
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
    worker.base.record.flush_log();
    ended
}

/// Listens on these, and leaves them as they are.
fn listeners(worker: &Worker, sockets: &Cell<Vec<Socket>>) -> Vec<Listener> {
    let kept = sockets.take();
    let listening = (kept.iter())
        .map(|socket| socket.try_clone().and_then(Listener::new))
        .filter_map(|made| match made {
            Ok(listener) => Some(listener),
            Err(_) => {
                worker.base.stats().accept_errors.add(1);
                None
            }
        });
    let listening = listening.collect();
    sockets.set(kept);
    listening
}

/// Lets end what there is. Idle connections stay: each closes behind its next answer.
async fn drain(clients: &Clients, accepting: &mut JoinSet<()>, sockets: &Cell<Vec<Socket>>) {
    clients.worker.base.drain.begin();
    // The listeners take in what is connected already.
    while accepting.join_next().await.is_some() {}
    drop(sockets.take());
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
    use std::sync::Arc;

    use arc_swap::ArcSwap;
    use tidegate_core::admission::{AdmissionConfig, AdmissionKind, StaticLimits};
    use tidegate_core::director::Director;
    use tidegate_core::load::LoadTable;
    use tidegate_core::policy::PolicyConfig;
    use tidegate_core::time::Timestamp;
    use tidegate_core::topology::{ClusterSpec, NodeId, NodeSpec, SiteId, SiteSpec};
    use tokio::runtime::{Builder, LocalOptions};
    use tokio::sync::Notify;

    use super::*;
    use crate::config::ProxyConfig;
    use crate::gate::delay::DelayExperiments;
    use crate::gate::throttle::Throttling;
    use crate::record::log::Logger;
    use crate::record::stats::Stats;
    use crate::worker::seats::AllSeats;
    use crate::worker::sites::SiteSettings;
    use crate::worker::{Parts, Shared};

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
            }],
            groups: Vec::new(),
            front_ends: 1,
        };
        Arc::new(Shared {
            table: Arc::new(LoadTable::new(1, 1)),
            topology: Arc::new(ArcSwap::new(Director::new(spec, 1).topology())),
            room_freed: Arc::new(Notify::new()),
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
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
            .unwrap();
        runtime.block_on(async move {
            let seats = Arc::new(AllSeats::new(&config.limits));
            let connections = Arc::clone(&seats.connections);
            let worker = Worker::new(Parts {
                config,
                shared,
                sites: Arc::new(ArcSwap::from_pointee(SiteSettings::new(Vec::new()))),
                requests: Arc::default(),
                seats,
                index: 0,
                observer: None,
                logger,
            });
            let clients = Clients::new(worker, connections);
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = listener.local_addr().unwrap();
            let (commands, receiver) = watch::channel(Command::Run);
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
            let sockets = Cell::new(vec![listener.into()]);
            run(clients, &sockets, receiver).await.unwrap();
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
