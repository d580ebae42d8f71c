//! Requests sent when they are due, whatever became of those before: open loop, so a slow answer delays
//! no request behind it.
//!
//! One thread keeps the time, hands each request out when it is due and sends it over a kept
//! connection to its front-end, or over a new one. Requests that have no answer some seconds
//! after the last one was sent are cut off.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use http::{Request, StatusCode};
use tidegate_core::time::Timestamp;
use tidegate_emulator::TOOK_HEADER;
use tidegate_emulator::load::{Connections, NoBody, Timer};
use tidegate_remote::clock;
use tokio::task::{JoinSet, LocalSet};

/// How long requests may take after the last one was sent.
const DRAIN: Duration = Duration::from_secs(3);
/// Longest sleep of the time keeper: it sees at least as often that it shall stop.
const NAP: Duration = Duration::from_millis(20);

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What is sent, and what hears what came of it. Requests have numbers from 0 on, in the order in which
/// they are due.
pub(super) trait Arrivals: Send + Sync + 'static {
    /// When a request is due, since the start; none if there is no such request.
    fn due(&self, number: usize) -> Option<Duration>;
    /// The front-end that it goes to.
    fn front_end(&self, number: usize) -> usize;
    /// What is sent.
    fn request(&self, number: usize) -> http::Result<Request<NoBody>>;
    /// It is sent now.
    fn on_sent(&self, number: usize);
    /// It has ended now.
    fn on_ended(&self, number: usize, outcome: ExchangeOutcome, now: Timestamp);
    /// The end: those that have not ended are cut off, because all were asked to stop or because they
    /// take too long.
    fn on_cut(&self, stopped: bool);
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeOutcome {
    /// A node answered, and had it for so many microseconds.
    Answered(u64),
    /// An answer that says no.
    Refused(StatusCode),
    /// No answer, or none that can be read.
    Broken,
}

/// A load that is being applied. Dropping it ends it.
#[derive(Debug)]
pub(super) struct OpenLoop {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl OpenLoop {
    /// Begins to send to these front-ends; times count from `start`.
    pub(super) fn start<A: Arrivals>(
        arrivals: Arc<A>,
        front_ends: &[SocketAddr],
        start: Timestamp,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let timer = {
            let _inside = runtime.enter();
            Timer::new()?
        };
        let (stopped, front_ends) = (Arc::clone(&stop), front_ends.to_vec());
        let thread = std::thread::Builder::new().name("demo-load".into());
        let thread = thread.spawn(move || {
            let client = Rc::new(Client {
                connections: Connections::new(&front_ends, true),
                arrivals,
                start,
                stop: stopped,
            });
            LocalSet::new().block_on(&runtime, client.run(&timer));
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Whether all requests have ended.
    pub(super) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends no more, and cuts off what has not ended.
    pub(super) fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself.
            thread.join().ok();
        }
    }
}

impl Drop for OpenLoop {
    fn drop(&mut self) {
        self.end();
    }
}

struct Client<A> {
    arrivals: Arc<A>,
    connections: Connections,
    start: Timestamp,
    stop: Arc<AtomicBool>,
}

impl<A: Arrivals> Client<A> {
    async fn run(self: Rc<Self>, timer: &Timer) {
        let mut requests = JoinSet::new();
        let mut number = 0;
        while let Some(due) = self.arrivals.due(number) {
            self.wait(timer, self.start + due).await;
            if self.stopped() {
                break;
            }
            self.arrivals.on_sent(number);
            let client = Rc::clone(&self);
            requests.spawn_local(async move { client.request(number).await });
            while requests.try_join_next().is_some() {}
            number += 1;
        }
        let left = async {
            while !requests.is_empty() && !self.stopped() {
                // Woken at least now and then to see whether it shall stop.
                tokio::time::timeout(NAP, requests.join_next()).await.ok();
            }
        };
        tokio::time::timeout(DRAIN, left).await.ok();
        let stopped = self.stopped();
        requests.shutdown().await;
        self.arrivals.on_cut(stopped);
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

    async fn request(&self, number: usize) {
        let outcome = self.exchange(number).await;
        let outcome = outcome.unwrap_or(ExchangeOutcome::Broken);
        self.arrivals.on_ended(number, outcome, clock::now());
    }

    async fn exchange(&self, number: usize) -> Result<ExchangeOutcome, Error> {
        let request = self.arrivals.request(number)?;
        let target = self.arrivals.front_end(number);
        let head = self.connections.send(target, request).await?;
        if !head.status.is_success() {
            return Ok(ExchangeOutcome::Refused(head.status));
        }
        let took = head.headers.get(TOOK_HEADER);
        let took = took.ok_or("who answered is no node")?;
        Ok(ExchangeOutcome::Answered(took.to_str()?.parse()?))
    }
}
