//! A node's actual load, window by window, beside what each scheme reports at the window's end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use tidegate_core::record::LINES_MAX;
use tidegate_core::time::Timestamp;
use tidegate_remote::realtime::{PRIORITY, try_fifo};
use tidegate_remote::shm::ShmRegion;
use tidegate_remote::udp::{UdpOptions, UdpRegion};
use tidegate_remote::{Region, clock};

use crate::cluster::{Cluster, LoadAt, Node};

use super::super::ExperimentError;
use super::known::Known;
use super::schemes::{Scheme, WINDOW};

/// Time between two reads of an agent.
const READ: Duration = Duration::from_millis(1);
/// Before anything counts.
const SETTLE: Duration = Duration::from_millis(500);

/// One window: actual load, and what each scheme reported at its end.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: f64,
    pub(super) actual: f64,
    pub(super) reported: Vec<f64>,
}

impl Sample {
    /// As raw data, in ten-thousandths.
    pub(super) fn row(&self) -> Vec<f64> {
        [self.at, self.actual]
            .into_iter()
            .chain(self.reported.iter().copied())
            .map(|value| (value * 1e4).round() / 1e4)
            .collect()
    }
}

/// Reads every scheme and the processes' clocks until the time is over.
pub(super) fn watch(
    cluster: &Cluster,
    schemes: &[Scheme],
    length: Duration,
) -> Result<Vec<Sample>, ExperimentError> {
    let node = &cluster.nodes()[0];
    let start = clock::now();
    let end = start + length;
    let over = AtomicBool::new(false);
    let known: Vec<Mutex<Known>> = schemes.iter().map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = schemes
            .iter()
            .zip(&known)
            .map(|(scheme, known)| {
                let (over, place) = (&over, cluster.front());
                scope.spawn(move || place.inside(|| read(node, scheme, READ, known, over)))
            })
            .collect();
        let sampler = scope.spawn(|| {
            punctual();
            sample(node, schemes, &known, start, end)
        });
        let samples = join(sampler);
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            join(reader)??;
        }
        Ok(samples)
    })
}

/// Reads one scheme at an interval for some time; how often it was read.
pub(super) fn only(
    cluster: &Cluster,
    scheme: &Scheme,
    interval: Duration,
    length: Duration,
) -> Result<u64, ExperimentError> {
    let node = &cluster.nodes()[0];
    let (known, over) = (Mutex::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            cluster
                .front()
                .inside(|| read(node, scheme, interval, &known, &over))
        });
        clock::sleep_until(clock::now() + length);
        over.store(true, Ordering::Relaxed);
        join(reader)?
    })
}

/// What a thread gives; if it panics, so does the thread that waits for it.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(given) => given,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Both the reading and the comparing thread are on time where that is permitted, as the product's reader
/// is: what is measured is not their own lateness.
fn punctual() {
    try_fifo(PRIORITY).ok();
}

/// The windows until the end.
fn sample(
    node: &Node,
    schemes: &[Scheme],
    known: &[Mutex<Known>],
    start: Timestamp,
    end: Timestamp,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut due = start + SETTLE;
    clock::sleep_until(due);
    // They live as long as the round.
    let processes = node.place().processes();
    let used = || -> Duration {
        processes
            .iter()
            .filter_map(|it| clock::process_time(*it))
            .sum()
    };
    let (mut last_at, mut last) = (clock::now(), used());
    while due < end {
        due = due + WINDOW;
        clock::sleep_until(due);
        let (at, used) = (clock::now(), used());
        let reported = schemes.iter().zip(known);
        let reported = reported.map(|(scheme, known)| known_of(known).reported(scheme.over));
        let wall = at.seconds_since(last_at).max(f64::MIN_POSITIVE);
        samples.push(Sample {
            at: at.seconds_since(start),
            actual: used.saturating_sub(last).as_secs_f64() / (wall * node.share),
            reported: reported.map(|it| it.unwrap_or(f64::NAN)).collect(),
        });
        (last_at, last) = (at, used);
    }
    samples
}

fn known_of(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    // A thread that panicked had nothing half done.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads one agent at an interval until it is over; how often.
fn read(
    node: &Node,
    scheme: &Scheme,
    interval: Duration,
    known: &Mutex<Known>,
    over: &AtomicBool,
) -> Result<u64, ExperimentError> {
    let name = scheme.agent.name;
    let failed =
        |why: String| ExperimentError::Read(format!("reading {name} of {}: {why}", node.name));
    let agent = node.agents.iter().find(|agent| agent.name == name);
    let agent = agent.ok_or_else(|| failed("there is no such agent".into()))?;
    let mut region = region(&agent.load).map_err(failed)?;
    punctual();
    let (mut due, mut reads) = (clock::now(), 0);
    while !over.load(Ordering::Relaxed) {
        // An agent that is held up gives no answer in time: then the last record stands.
        if let Ok(record) = region
            .read(LINES_MAX)
            .map_err(drop)
            .and_then(|it| it.record().map_err(drop))
        {
            known_of(known).note(record);
        }
        reads += 1;
        due = (due + interval).max(clock::now());
        clock::sleep_until(due);
    }
    Ok(reads)
}

fn region(load: &LoadAt) -> Result<Box<dyn Region>, String> {
    Ok(match load {
        LoadAt::Udp { address, key } => {
            let options = UdpOptions {
                tries: 1,
                ..UdpOptions::default()
            };
            let region = UdpRegion::connect(*address, key.read()?, options);
            Box::new(region.map_err(|error| error.to_string())?)
        }
        LoadAt::Shm { path } => Box::new(ShmRegion::new(path)),
    })
}
