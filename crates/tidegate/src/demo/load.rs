//! The load: open loop, so a slow answer delays no request behind it, and every latency counts
//! from the moment at which the request was *meant* to be sent (no coordinated omission).
//!
//! One thread keeps the time, hands each request out when it is due and sends it over a kept
//! connection to its front-end, or over a new one. Requests that have no answer some seconds
//! after the last one was sent are cut off and count as failed.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;
use http::Request;
use http::header::HOST;
use tidegate_core::time::Timestamp;
use tidegate_lab::load::{Connections, NoBody, Timer};
use tidegate_lab::server::TOOK_HEADER;
use tidegate_remote::clock;
use tokio::task::{JoinSet, LocalSet};

use super::cluster::Arrival;

/// How long requests may take after the last one was sent.
const DRAIN: Duration = Duration::from_secs(3);
/// Longest sleep of the time keeper: it sees at least as often that it shall stop.
const NAP: Duration = Duration::from_millis(20);
/// Longest latency that is told apart, microseconds.
const LATENCY_MAX: u64 = 600_000_000;
/// Digits of a latency that are right.
const DIGITS: u8 = 3;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What came of the requests. Those that were due before the warm-up ended are counted as sent
/// and ended, and measured in nothing else.
#[derive(Debug)]
pub(super) struct Tally {
    /// Requests sent so far.
    pub(super) sent: u64,
    /// Requests ended so far: answered, failed or cut off.
    pub(super) ended: u64,
    /// Measured requests that were answered.
    pub(super) completed: u64,
    /// Of these, before the last one was due.
    pub(super) in_time: u64,
    /// Measured requests that were not answered, or with an error.
    pub(super) failed: u64,
    /// Requests cut off because the demo was interrupted.
    pub(super) interrupted: u64,
    /// From the moment due to the whole answer, microseconds; answered requests.
    pub(super) latencies: Histogram<u64>,
    /// The part of it that was not spent at the node: what the machine itself takes, with
    /// the front-end's work and everything that came late.
    pub(super) overheads: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        let histogram = || {
            let histogram = Histogram::new_with_bounds(1, LATENCY_MAX, DIGITS);
            histogram.expect("the bounds are constant and valid")
        };
        Self {
            sent: 0,
            ended: 0,
            completed: 0,
            in_time: 0,
            failed: 0,
            interrupted: 0,
            latencies: histogram(),
            overheads: histogram(),
        }
    }

    /// Adds another run's.
    pub(super) fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.ended += other.ended;
        self.completed += other.completed;
        self.in_time += other.in_time;
        self.failed += other.failed;
        self.interrupted += other.interrupted;
        // All have the same bounds.
        self.latencies.add(&other.latencies).ok();
        self.overheads.add(&other.overheads).ok();
    }

    /// What 99 of 100 answered requests did not exceed outside the nodes, milliseconds.
    pub(super) fn overhead_ms(&self) -> f64 {
        self.overheads.value_at_quantile(0.99) as f64 * 1e-3
    }

    /// A quantile of the latencies in milliseconds.
    pub(super) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 * 1e-3
    }
}

/// What is sent, and where to.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) arrivals: Arc<[Arrival]>,
    /// Of the front-ends.
    pub(super) addresses: Arc<[SocketAddr]>,
    /// Of the sites.
    pub(super) hosts: Arc<[&'static str]>,
    pub(super) start: Timestamp,
    /// Requests due before this much of the run are not measured.
    pub(super) warm_up: Duration,
    /// When the last request is due.
    pub(super) length: Duration,
}

/// A load that is being applied.
#[derive(Debug)]
pub(super) struct Load {
    tally: Arc<Mutex<Tally>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Begins to send.
    pub(super) fn start(plan: Plan) -> io::Result<Self> {
        let tally = Arc::new(Mutex::new(Tally::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let timer = {
            let _inside = runtime.enter();
            Timer::new()?
        };
        let (shared, stopped) = (Arc::clone(&tally), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("demo-load".into());
        let thread = thread.spawn(move || {
            let client = Rc::new(Client {
                connections: Connections::new(&plan.addresses, true),
                plan,
                tally: shared,
                stop: stopped,
            });
            LocalSet::new().block_on(&runtime, client.run(&timer));
        })?;
        Ok(Self {
            tally,
            stop,
            thread: Some(thread),
        })
    }

    /// Whether all requests have ended.
    pub(super) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// What came of it so far.
    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.tally)
    }

    /// Sends no more, and gives what came of it.
    pub(super) fn finish(mut self) -> Tally {
        self.end();
        std::mem::replace(&mut *lock(&self.tally), Tally::new())
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself.
            thread.join().ok();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has said so; what was counted is still worth showing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Client {
    plan: Plan,
    connections: Connections,
    tally: Arc<Mutex<Tally>>,
    stop: Arc<AtomicBool>,
}

impl Client {
    async fn run(self: Rc<Self>, timer: &Timer) {
        let mut requests = JoinSet::new();
        for arrival in Arc::clone(&self.plan.arrivals).iter().copied() {
            self.wait(timer, self.plan.start + arrival.at).await;
            if self.stopped() {
                break;
            }
            lock(&self.tally).sent += 1;
            let client = Rc::clone(&self);
            requests.spawn_local(async move { client.request(&arrival).await });
            while requests.try_join_next().is_some() {}
        }
        let left = async {
            while !requests.is_empty() && !self.stopped() {
                // Woken at least now and then to see whether it shall stop.
                tokio::time::timeout(NAP, requests.join_next()).await.ok();
            }
        };
        tokio::time::timeout(DRAIN, left).await.ok();
        let interrupted = self.stopped();
        requests.shutdown().await;
        self.cut(interrupted);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Returns at the deadline, or soon after it shall stop.
    async fn wait(&self, timer: &Timer, deadline: Timestamp) {
        loop {
            let now = clock::now();
            if now >= deadline || self.stopped() {
                return;
            }
            let woken = timer.sleep_until(deadline.min(now + NAP)).await;
            woken.expect("a timer that was made goes on");
        }
    }

    /// Counts the requests that have not ended.
    fn cut(&self, interrupted: bool) {
        let mut tally = lock(&self.tally);
        let cut = tally.sent - tally.ended;
        tally.ended += cut;
        if interrupted {
            tally.interrupted += cut;
        } else {
            tally.failed += cut;
        }
    }

    async fn request(&self, arrival: &Arrival) {
        let answered = self.exchange(arrival).await;
        let now = clock::now();
        let measured = arrival.at >= self.plan.warm_up;
        let mut tally = lock(&self.tally);
        tally.ended += 1;
        if !measured {
            return;
        }
        if let Ok(Some(took)) = answered {
            tally.completed += 1;
            tally.in_time += u64::from(now <= self.plan.start + self.plan.length);
            let latency = now.since(self.plan.start + arrival.at).as_micros();
            let micros = u64::try_from(latency).unwrap_or(LATENCY_MAX);
            tally.latencies.saturating_record(micros);
            tally
                .overheads
                .saturating_record(micros.saturating_sub(took));
        } else {
            tally.failed += 1;
        }
    }

    /// How long the request was at the node, microseconds; nothing if it answered with an error.
    async fn exchange(&self, arrival: &Arrival) -> Result<Option<u64>, Error> {
        let request = Request::builder()
            .uri(format!("/work?cpu={}us", arrival.demand.as_micros()))
            .header(HOST, self.plan.hosts[arrival.site.index()])
            .body(NoBody::new())?;
        let target = arrival.front_end as usize;
        let head = self.connections.send(target, request).await?;
        let took = head.headers.get(TOOK_HEADER);
        let took = took.filter(|_| head.status.is_success());
        took.map(|took| took.to_str()?.parse().map_err(Error::from))
            .transpose()
    }
}
