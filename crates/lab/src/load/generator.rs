//! The generator: one thread that hands requests out when they are due and drives all
//! connections. It runs one plan to its end.
//!
//! The pacer spawns each request at its time and never waits for one. It shares its thread with
//! the requests, so it can only be held up by the generator's own lack of CPU; that is measured
//! (`late`, [`Generator`]) and said.
//!
//! After the last intended start every request still has until its own time-out.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use http::header::HeaderName;
use rustix::thread::ClockId;
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;
use tokio::task::{JoinSet, LocalSet};

use super::arrivals::{self, Arrival};
use super::client::{Client, ExchangeOutcome, Head, Headers};
use super::plan::{Arrivals, LoadPlan, Pacing, Requests, Stream};
use super::process::LoadError;
use super::requests::{Asked, Source};
use super::result::{Generator, LoadResult};
use super::tally::{EndedRequest, Stretch, Tally};
use super::traces::{self, Trace, TraceError};
use super::walk::Session;
use tidegate_emulator::load::Timer;

/// From having everything ready to the run's beginning.
const LEAD: Duration = Duration::from_millis(2);
/// Tasks between two looks at the sockets and the timer: few, for the pacer's sake.
const EVENT_INTERVAL: u32 = 8;

/// Runs the plan in this thread.
pub(super) fn run(plan: &LoadPlan) -> Result<LoadResult, LoadError> {
    plan.check().map_err(LoadError::Plan)?;
    let prepared = Prepared::new(plan)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .build()
        .map_err(LoadError::Runtime)?;
    LocalSet::new()
        .block_on(&runtime, drive(plan, prepared))
        .map_err(LoadError::Runtime)
}

/// Everything that is drawn or looked up before the clock starts.
struct Prepared {
    arrivals: Vec<Arrival>,
    sources: Vec<Source>,
    heads: Vec<Head>,
    headers: Headers,
    said: Vec<String>,
}

impl Prepared {
    fn new(plan: &LoadPlan) -> Result<Self, LoadError> {
        let traces = Traces::load(plan)?;
        let mut streams = Vec::new();
        let mut sources = Vec::new();
        let mut heads = Vec::new();
        for (number, stream) in plan.streams.iter().enumerate() {
            let prng = |what| prng(plan.seed, what, number);
            if let Pacing::Open { rate, arrivals } = stream.pacing {
                let trace = traces.of_arrivals(arrivals);
                streams.push(arrivals::draw(
                    arrivals,
                    rate,
                    plan.total(),
                    trace,
                    &mut prng(1),
                ));
            } else {
                streams.push(Vec::new());
            }
            let log = traces.nasa.as_ref();
            sources.push(Source::new(&stream.requests, log, plan.seed, prng(2)));
            heads.push(Head::of(stream).map_err(LoadError::Plan)?);
        }
        let header = |name: &Option<String>| {
            let name = name
                .as_ref()
                .map(|name| HeaderName::from_bytes(name.as_bytes()));
            name.transpose()
                .map_err(|error| LoadError::Plan(format!("a header of answers: {error}")))
        };
        Ok(Self {
            arrivals: arrivals::merge(streams),
            sources,
            heads,
            headers: Headers {
                count_by: header(&plan.count_by)?,
                sum_by: header(&plan.sum_by)?,
            },
            said: traces.said(),
        })
    }
}

/// A generator of random numbers for one purpose of one stream.
fn prng(seed: u64, purpose: u64, stream: usize) -> Prng {
    let mixed = Prng::new(seed).bits() ^ (purpose << 32) ^ stream as u64;
    Prng::new(Prng::new(mixed).bits())
}

/// The traces that the plan needs.
#[derive(Default)]
struct Traces {
    world_cup: Option<Trace>,
    nasa: Option<Trace>,
}

impl Traces {
    fn load(plan: &LoadPlan) -> Result<Self, TraceError> {
        let folder = traces::folder();
        let mut traces = Self::default();
        for stream in &plan.streams {
            let arrivals = match stream.pacing {
                Pacing::Open { arrivals, .. } => Some(arrivals),
                Pacing::Closed { .. } => None,
            };
            let log = matches!(stream.requests, Requests::Nasa { .. });
            if arrivals == Some(Arrivals::WorldCup) && traces.world_cup.is_none() {
                traces.world_cup = Some(traces::world_cup(&folder)?);
            }
            if (log || arrivals == Some(Arrivals::Nasa)) && traces.nasa.is_none() {
                traces.nasa = Some(traces::nasa(&folder)?);
            }
        }
        Ok(traces)
    }

    fn of_arrivals(&self, arrivals: Arrivals) -> Option<&Trace> {
        match arrivals {
            Arrivals::WorldCup => self.world_cup.as_ref(),
            Arrivals::Nasa => self.nasa.as_ref(),
            Arrivals::Poisson
            | Arrivals::Paced
            | Arrivals::Bursts { .. }
            | Arrivals::Steps { .. } => None,
        }
    }

    fn said(&self) -> Vec<String> {
        let used = self.world_cup.iter().chain(&self.nasa);
        used.map(|trace| trace.said.clone()).collect()
    }
}

/// What all requests share.
struct Run {
    client: Client,
    tallies: Vec<RefCell<Tally>>,
    heads: Vec<Head>,
    timeout: Duration,
    rest: Duration,
    start: Timestamp,
}

impl Run {
    /// Sends one request, and counts what came of it. In a closed loop it is due when it is
    /// begun: there time counts from the sending.
    async fn request(
        &self,
        stream: usize,
        target: usize,
        asked: &Asked,
        (due, begun): (Duration, Duration),
    ) -> bool {
        let left = (due + self.timeout).saturating_sub(begun);
        let exchange = self.client.exchange(target, &self.heads[stream], asked);
        let outcome = tokio::time::timeout(left, exchange)
            .await
            .unwrap_or_else(|_| ExchangeOutcome::Failed("timed out".to_owned()));
        let completed = matches!(outcome, ExchangeOutcome::Completed(_));
        self.tallies[stream].borrow_mut().request(&EndedRequest {
            due,
            begun,
            ended: clock::now().since(self.start),
            page: asked.page,
            ends: asked.ends,
            outcome,
        });
        completed
    }
}

async fn drive(plan: &LoadPlan, prepared: Prepared) -> io::Result<LoadResult> {
    let timer = Timer::new()?;
    let stretch = Stretch {
        from: plan.warm_up,
        to: plan.total(),
    };
    let tally =
        |stream: &Stream| RefCell::new(Tally::new(stream, stretch, (plan.windows, plan.slo)));
    let meter = Meter::start();
    let run = Rc::new(Run {
        client: Client::new(&plan.targets, plan.connection_per_request, prepared.headers),
        tallies: plan.streams.iter().map(tally).collect(),
        heads: prepared.heads,
        timeout: plan.timeout,
        rest: plan.rest,
        start: clock::now() + LEAD,
    });
    let sources: Rc<[_]> = prepared.sources.into_iter().map(RefCell::new).collect();
    let mut tasks = JoinSet::new();
    closed_loops(plan, &run, &sources, &mut tasks);
    let mut targets = prng(plan.seed, 3, 0);
    for arrival in &prepared.arrivals {
        timer.sleep_until(run.start + arrival.at).await?;
        let Arrival { at, stream, record } = *arrival;
        let target = targets.below(plan.targets.len());
        let asked = Asked::get(sources[stream].borrow_mut().next(record));
        let run = Rc::clone(&run);
        tasks.spawn_local(async move {
            let begun = clock::now().since(run.start);
            run.request(stream, target, &asked, (at, begun)).await;
        });
        while tasks.try_join_next().is_some() {}
    }
    timer.sleep_until(run.start + plan.total()).await?;
    let generator = meter.stop();
    while tasks.join_next().await.is_some() {}
    let started_ns = run.start.nanos();
    let run = Rc::into_inner(run).expect("all tasks have ended, and they alone share it");
    let tallies = run.tallies.into_iter().map(RefCell::into_inner);
    let mut result = LoadResult {
        streams: tallies.map(Tally::finish).collect(),
        generator,
        started_ns,
        said: prepared.said,
    };
    result.judge();
    Ok(result)
}

fn closed_loops(
    plan: &LoadPlan,
    run: &Rc<Run>,
    sources: &Rc<[RefCell<Source>]>,
    tasks: &mut JoinSet<()>,
) {
    for (stream, wanted) in plan.streams.iter().enumerate() {
        let Pacing::Closed { clients, think } = wanted.pacing else {
            continue;
        };
        for number in 0..clients as usize {
            let user = User {
                stream,
                think,
                targets: plan.targets.len(),
                end: run.start + plan.total(),
                prng: prng(plan.seed, 4 + stream as u64, number),
                session: Session::default(),
            };
            tasks.spawn_local(user.live(Rc::clone(run), Rc::clone(sources)));
        }
    }
}

/// One client of a closed loop.
struct User {
    stream: usize,
    think: Duration,
    targets: usize,
    end: Timestamp,
    prng: Prng,
    session: Session,
}

impl User {
    /// Thinks, asks, waits, until the run ends. It begins by thinking, so that clients are not
    /// in step.
    async fn live(mut self, run: Rc<Run>, sources: Rc<[RefCell<Source>]>) {
        loop {
            let think = self.prng.exponential(self.think.as_secs_f64());
            if !self.think.is_zero() {
                // Streams that would ask after the end need not be waited for.
                let left = self.end.since(clock::now());
                tokio::time::sleep(Duration::from_secs_f64(think).min(left)).await;
            }
            let now = clock::now();
            if now >= self.end {
                return;
            }
            // The same moment for the end and for the count: a request that is sent is counted.
            let begun = now.since(run.start);
            let target = self.prng.below(self.targets);
            let asked = sources[self.stream].borrow_mut().next_of(&mut self.session);
            if !run
                .request(self.stream, target, &asked, (begun, begun))
                .await
            {
                tokio::time::sleep(run.rest).await;
            }
        }
    }
}

/// How much CPU this thread takes, and how long it waits for one.
struct Meter {
    at: Timestamp,
    cpu: Duration,
    waited: Option<Duration>,
}

impl Meter {
    fn start() -> Self {
        Self {
            at: clock::now(),
            cpu: thread_cpu(),
            waited: thread_waited(),
        }
    }

    fn stop(&self) -> Generator {
        let wall = clock::now().seconds_since(self.at).max(f64::MIN_POSITIVE);
        let share = |since: Duration| since.as_secs_f64() / wall;
        Generator {
            cpu: share(thread_cpu().saturating_sub(self.cpu)),
            waited: self
                .waited
                .zip(thread_waited())
                .map(|(before, now)| share(now.saturating_sub(before))),
            saturated: false,
        }
    }
}

fn thread_cpu() -> Duration {
    let cpu = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    // The kernel never gives a negative CPU time.
    Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32)
}

/// Time on the run queue, if the kernel accounts for it.
fn thread_waited() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let waited = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(waited))
}

#[cfg(test)]
#[path = "generator_tests.rs"]
mod tests;
