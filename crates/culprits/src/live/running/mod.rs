//! What the thread of discovery does: it takes in requests and counters, asks which classes are to blame, and answers.

mod act;
mod actions;
mod follow;
mod report;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::classes::{ClassId, SLOTS};
use tidegate_core::culprits::{Confidence, Discovery, Limits};
use tidegate_core::time::Timestamp;

use super::asks::{Ask, Asks};
use super::cluster::Cluster;
use super::experiment::RunningExperiment;
use super::findings::{Finding, Findings};
use super::front_end::{Clocks, DelayExperiments, EventLog, KeptFile, RequestEvents, Throttles};
use super::handed_over::HandedOver;
use super::memory::Memory;
use super::policy::Policy;
use super::requests::Requests;
use super::watch::{Actions, WatchParts};
use super::watched::{RESOURCES_MAX, Watched, WatchedAll};
use crate::delay_experiment::ExperimentReport;
use crate::names::ClassNames;

/// Time between two looks at what has come.
const TICK: Duration = Duration::from_millis(20);
/// The same while no request comes.
const REST: Duration = Duration::from_millis(100);
/// Time between two looks at what is to be done about culprits.
const ACT_EVERY: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Running {
    cluster: Cluster,
    /// Which of its versions is taken over.
    followed: (u64, u64),
    throttles: Box<dyn Throttles>,
    delay_experiments: Box<dyn DelayExperiments>,
    clocks: Clocks,
    discovery: Discovery,
    /// None: nothing was read yet.
    memory: Option<Memory>,
    events: Box<dyn RequestEvents>,
    requests: Requests,
    watched: WatchedAll,
    findings: Arc<ArcSwap<Findings>>,
    names: ClassNames,
    evaluations: u64,
    evaluated: Duration,
    /// Slows culprits down by itself, if that is wanted, and when it looks next.
    policy: Option<Policy>,
    policy_due: Timestamp,
    /// What others' requests take, as a part of what they shall take.
    latency: f64,
    experiment: Option<RunningExperiment>,
    /// The last experiment, or the one that runs.
    last_experiment: Option<ExperimentReport>,
    /// When experiments on classes and resources were begun by themselves.
    experimented_at: BTreeMap<(String, String), Timestamp>,
    actions: Actions,
    /// What it is to do by itself from the next tick on.
    wanted: Arc<ArcSwap<Actions>>,
    /// The other front-ends, from the next look on.
    peers: Arc<ArcSwap<Vec<SocketAddr>>>,
    /// Those that are known to be there.
    followed_peers: Arc<Vec<SocketAddr>>,
    log: Arc<dyn EventLog>,
}

impl Running {
    /// Before anything is known; it publishes there what it finds.
    pub(super) fn new(parts: WatchParts, asks: &Asks) -> Self {
        let WatchParts {
            events,
            topology,
            table,
            resources,
            throttles,
            delay_experiments,
            settings,
            kept: _,
            handed_over,
            log,
            clocks,
        } = parts;
        let names = ClassNames::new(&settings.patterns);
        let limits = Limits {
            classes: SLOTS as u16,
            resources: RESOURCES_MAX as u16,
        };
        let policy = |bounds| Policy::new(bounds, names.clone());
        let cluster = Cluster {
            topology,
            table,
            resources,
        };
        let mut running = Self {
            policy: settings.actions.automatic.map(policy),
            discovery: Discovery::new(limits),
            events,
            requests: Requests::new(settings.patterns, &settings.peers),
            watched: WatchedAll::default(),
            cluster,
            // No topology has this version.
            followed: (u64::MAX, u64::MAX),
            throttles,
            delay_experiments,
            clocks,
            memory: None,
            findings: Arc::clone(&asks.findings),
            evaluations: 0,
            evaluated: Duration::ZERO,
            names,
            policy_due: Timestamp::ZERO,
            latency: 0.0,
            experiment: None,
            last_experiment: None,
            experimented_at: BTreeMap::new(),
            actions: settings.actions,
            wanted: Arc::clone(&asks.actions),
            peers: Arc::clone(&asks.peers),
            followed_peers: asks.peers.load_full(),
            log,
        };
        running.follow((running.clocks.now)());
        if let Some(known) = handed_over.automatic {
            running.take_over(&known);
        }
        running
    }

    /// Reads what was kept, on this thread: a slow disk holds no request up.
    pub(super) fn remember(&mut self, kept: Option<Box<dyn KeptFile>>, handed_over: Option<&[u8]>) {
        let Clocks { now, unix } = self.clocks;
        let log = Arc::clone(&self.log);
        self.memory = Some(Memory::open(kept, handed_over, log, unix, now()));
    }

    /// What a successor goes on from.
    fn hand_over(&mut self, now: Timestamp) -> HandedOver {
        let names = self.requests.names();
        let (watched, discovery) = (self.watched.iter(), &self.discovery);
        let memory = self.memory.as_mut();
        let costs = memory.map(|it| it.handed_over(watched, &names, discovery));
        let alone = self.requests.alone().map(str::to_owned);
        let policy = self.policy.as_ref();
        HandedOver {
            costs,
            automatic: policy.map(|it| it.learned(alone, now)),
        }
    }

    /// Keeps what was learned, if that is wanted.
    fn keep(&mut self, now: Timestamp) {
        if let Some(memory) = &mut self.memory {
            let (watched, names) = (self.watched.iter(), self.requests.names());
            memory.keep(watched, &names, &self.discovery, now);
        }
    }

    /// The same for the last time.
    fn end_keeping(&mut self) {
        if let Some(memory) = &mut self.memory {
            let (watched, names) = (self.watched.iter(), self.requests.names());
            memory.end(watched, &names, &self.discovery);
        }
    }

    /// Until it is asked to stop.
    pub(super) fn run(&mut self, asks: &Receiver<Ask>) {
        let mut due = (self.clocks.now)() + TICK;
        loop {
            match asks.recv_timeout(due.since((self.clocks.now)())) {
                Ok(Ask::Report(answer)) => {
                    // The one that asked may have left since.
                    answer.send(self.report()).ok();
                }
                Ok(Ask::Experiment(order, answer)) => {
                    let class = order.class.as_str();
                    answer
                        .send(self.begin_experiment(class, order.resource.as_deref()))
                        .ok();
                }
                Ok(Ask::Requests(after, answer)) => {
                    let now = (self.clocks.now)();
                    self.hear(now);
                    answer.send(self.requests.ship(after, now)).ok();
                }
                Ok(Ask::Told(from, shipment, at)) => {
                    self.follow_peers();
                    self.requests
                        .accept(from, shipment, at, &mut self.discovery);
                }
                Ok(Ask::HandOver(answer)) => {
                    let now = (self.clocks.now)();
                    answer.send(self.hand_over(now)).ok();
                }
                Ok(Ask::Keep) => self.end_keeping(),
                Ok(Ask::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = (self.clocks.now)();
            if now >= due {
                self.handle_tick(now);
                due = now + if self.requests.is_quiet() { REST } else { TICK };
            }
        }
    }

    fn handle_tick(&mut self, now: Timestamp) {
        self.follow_actions(now);
        self.follow_peers();
        self.hear(now);
        self.watched.read(&self.cluster, &mut self.discovery, now);
        self.evaluate_experiment(now);
        if now >= self.policy_due {
            self.policy_due = now + ACT_EVERY;
            self.act(now);
        }
        if self.memory.as_ref().is_some_and(|it| it.is_due(now)) {
            self.keep(now);
        }
        let Some(due) = self.watched.due(now) else {
            return;
        };
        if let Some(memory) = &mut self.memory {
            let names = self.requests.names();
            memory.recall(self.watched.get(due), &names, &mut self.discovery);
        }
        let begun = (self.clocks.now)();
        let then = self.watched.known_until() - self.requests.behind();
        self.requests.tell_unfinished(&mut self.discovery, then);
        self.watched.evaluate(due, &mut self.discovery, then, now);
        self.watched.record(due, &self.requests.names());
        self.evaluations += 1;
        self.evaluated += (self.clocks.now)().since(begun);
        let all = self.found();
        self.publish(all);
    }

    fn publish(&self, all: Vec<Finding>) {
        self.findings.store(Arc::new(Findings {
            all,
            experiment: self.last_experiment.clone(),
            overflows: self.requests.overflows,
            evaluations: self.evaluations,
            evaluated: self.evaluated,
        }));
    }

    fn found(&self) -> Vec<Finding> {
        let names: Vec<Arc<str>> = self.requests.names().into_iter().map(Arc::from).collect();
        let patterns: Vec<Option<Arc<str>>> = (self.requests.class_patterns().into_iter())
            .map(|text| text.map(Arc::from))
            .collect();
        let of = |watched: &Watched| -> Vec<Finding> {
            let resource: Arc<str> = watched.name.as_str().into();
            let verdicts = watched.verdicts.iter().flat_map(|it| &it.classes);
            let verdicts = verdicts.filter(|it| self.requests.is_served(it.class));
            let found = verdicts.filter_map(|it| {
                let class = names
                    .get(it.class.index())
                    .filter(|name| !name.is_empty())?;
                let confidence = it.culprit.unwrap_or(Confidence::Likely);
                let since = watched.named_at.get(&it.class).filter(|_| it.flagged);
                Some(Finding {
                    class: Arc::clone(class),
                    pattern: patterns.get(it.class.index()).cloned().flatten(),
                    resource: Arc::clone(&resource),
                    share: it.share,
                    cost_seconds: it.cost_seconds,
                    cost_error: it.relative_error,
                    evidence: [it.t, it.z, it.shift_ratio],
                    in_progress: self.requests.in_progress(it.class),
                    flagged: since.map(|since| (confidence, *since)),
                    suspected: it.suspected,
                    presumed: it.presumed,
                })
            });
            found.collect()
        };
        let mut all: Vec<_> = self.watched.iter().flat_map(of).collect();
        all.sort_by(|one, other| {
            let flagged = other.flagged.is_some().cmp(&one.flagged.is_some());
            flagged.then(other.share.total_cmp(&one.share))
        });
        all
    }
}

/// Class numbers fit the core's.
const _: () = assert!(SLOTS <= u16::MAX as usize && size_of::<ClassId>() == 2);
