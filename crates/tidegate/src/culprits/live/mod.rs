//! Discovery in a running front-end: a thread that hears of requests, reads counters, asks which classes are to blame,
//! and draws the picture.
//!
//! ```text
//! workers ── events ──> Requests ──┐
//! readers ── counters ──> Series ──┴──> Discovery ── each 2.5 s ──> verdicts ──> Findings (metrics, why)
//!                                                                      ├──> Policy ──> throttles
//!                                                                      └──> Report, when asked
//!                    Memory ── what was learned, each minute ──> file ──> the next process
//! ```
//!
//! It decides nothing on a request's way; if it is slow or dies, traffic goes on. Resources are the nodes
//! of each site together (a request may go to any of them), and each node with `role = "resource"`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use tidegate_core::classes::{ClassId, SLOTS};
use tidegate_core::culprits::delay_experiment::may_delay;
use tidegate_core::culprits::{Confidence, Discovery, Limits};
use tidegate_core::throttle::Throttle;
use tidegate_core::time::Timestamp;
use tidegate_culprits::Lived;
use tidegate_culprits::delay_experiment::ExperimentReport;
use tidegate_culprits::live::exchange::Shipment;
use tidegate_culprits::live::experiment::{RunningExperiment, Suspect};
use tidegate_culprits::live::findings::{Finding, Findings};
use tidegate_culprits::live::front_end::Throttles as _;
use tidegate_culprits::live::memory::{FILE, Memory};
use tidegate_culprits::live::policy::{OthersDo, Policy, Scene};
use tidegate_culprits::live::requests::Requests;
use tidegate_culprits::live::watched::{RESOURCES_MAX, Watched, WatchedAll};
use tidegate_culprits::names::ClassNames;
use tidegate_culprits::picture::report::{self, Mode, Report};
use tidegate_culprits::picture::{self, ClassMaterial, Material};
use tidegate_proxy::{Observed, Shared};
use tidegate_remote::clock;
use tokio::sync::oneshot;

use super::front_end::{Events, Gates};
use crate::config::Culprits;
use crate::output::Output;
use crate::resources::Resources;
use crate::state::StateFile;

/// Time between two looks at what has come.
const TICK: Duration = Duration::from_millis(20);
/// Time between two looks at what is to be done about culprits.
const ACT_EVERY: Duration = Duration::from_secs(1);
/// Part of what requests shall take from which on one that waits for room is held back.
const HELD_BACK: f64 = 0.1;
/// What a picture shows.
const SHOWN: Duration = Duration::from_secs(60);
/// For so long a class gets no further experiment by itself.
const EXPERIMENT_LASTS: Duration = Duration::from_secs(600);
/// Most questions that wait.
const ASKS_MAX: usize = 16;

/// What the thread is made from.
#[derive(Debug)]
pub(crate) struct WatchParts {
    /// What workers tell of requests.
    pub(crate) observed: Observed,
    /// Loads, topology and throttles.
    pub(crate) shared: Arc<Shared>,
    /// Nodes that are resources alone.
    pub(crate) resources: Arc<Resources>,
    /// Names of the sites.
    pub(crate) sites: Vec<String>,
    /// What the operator wants.
    pub(crate) config: Culprits,
    /// Where it is said what was done.
    pub(crate) output: Output,
    /// The process's clock.
    pub(crate) clock: fn() -> Timestamp,
}

#[derive(Debug)]
enum Ask {
    Report(oneshot::Sender<Report>),
    /// Begin an experiment on this class, against this resource or the one that it is thought to use most.
    Experiment(
        ExperimentRequest,
        oneshot::Sender<Result<ExperimentReport, String>>,
    ),
    /// What ended after this, for another front-end.
    Requests(u64, oneshot::Sender<Shipment>),
    /// What another front-end said, and when.
    Told(SocketAddr, Result<Shipment, String>, Timestamp),
    /// Keep what was learned, and learn no more for the next process.
    Keep,
    Stop,
}

/// `POST /api/culprits/experiment`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExperimentRequest {
    /// The class's name.
    pub(crate) class: String,
    /// The resource's; null is the one of which the class is thought to use most.
    pub(crate) resource: Option<String>,
}

/// Why there is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AskError {
    #[error("too many wait for a report")]
    Busy,
    #[error("nobody watches for culprits")]
    Gone,
}

/// A handle to ask the thread; as many as needed.
#[derive(Clone, Debug)]
pub(crate) struct Asks {
    sender: SyncSender<Ask>,
    findings: Arc<ArcSwap<Findings>>,
}

impl Asks {
    /// The picture as it is now.
    pub(crate) async fn report(&self) -> Result<Report, AskError> {
        let (sender, answer) = oneshot::channel();
        self.ask(Ask::Report(sender))?;
        answer.await.map_err(|_| AskError::Gone)
    }

    /// Begins a delay experiment.
    pub(crate) async fn experiment(
        &self,
        request: ExperimentRequest,
    ) -> Result<ExperimentReport, String> {
        let (sender, answer) = oneshot::channel();
        let sent = self.ask(Ask::Experiment(request, sender));
        sent.map_err(|error| error.to_string())?;
        answer.await.map_err(|_| AskError::Gone.to_string())?
    }

    /// What another front-end gets that asks for what ended after this.
    pub(crate) async fn requests(&self, after: u64) -> Result<Shipment, AskError> {
        let (sender, answer) = oneshot::channel();
        self.ask(Ask::Requests(after, sender))?;
        answer.await.map_err(|_| AskError::Gone)
    }

    /// Another front-end has said this, or nothing; false if it is not asked for.
    pub(crate) fn deliver(
        &self,
        from: SocketAddr,
        shipment: Result<Shipment, String>,
        at: Timestamp,
    ) -> bool {
        // If there is no room what it tells is lost, and what comes next is not.
        self.ask(Ask::Told(from, shipment, at)) != Err(AskError::Gone)
    }

    fn ask(&self, ask: Ask) -> Result<(), AskError> {
        self.sender.try_send(ask).map_err(|error| match error {
            TrySendError::Full(_) => AskError::Busy,
            TrySendError::Disconnected(_) => AskError::Gone,
        })
    }

    /// One that has found this, and draws nothing.
    #[cfg(test)]
    pub(crate) fn with(findings: Findings) -> Self {
        Self {
            sender: sync_channel(1).0,
            findings: Arc::new(ArcSwap::from_pointee(findings)),
        }
    }

    /// Which classes are named.
    pub(crate) fn findings(&self) -> Arc<Findings> {
        self.findings.load_full()
    }
}

/// The running thread; dropping it stops and joins.
#[derive(Debug)]
pub(crate) struct Watch {
    asks: Asks,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread.
    pub(crate) fn spawn(parts: WatchParts) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(ASKS_MAX);
        let findings = Arc::new(ArcSwap::default());
        let state = parts.config.state.clone();
        let mut running = Running::new(parts, Arc::clone(&findings));
        let thread = std::thread::Builder::new()
            .name("culprits".into())
            .spawn(move || {
                running.remember(state);
                running.run(&receiver);
            })?;
        Ok(Self {
            asks: Asks { sender, findings },
            thread: Some(thread),
        })
    }

    /// A handle to ask it.
    pub(crate) fn asks(&self) -> Asks {
        self.asks.clone()
    }

    /// Has what was learned so far kept; from now on it gets worse, since the front-end drains.
    pub(crate) fn keep(&self) {
        // Without the thread nothing is known.
        self.asks.sender.send(Ask::Keep).ok();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A full channel empties within a tick, a closed one has no thread to stop.
        self.asks.sender.send(Ask::Stop).ok();
        if let Some(thread) = self.thread.take() {
            // Its panic stands on standard error already.
            thread.join().ok();
        }
    }
}

struct Running {
    shared: Arc<Shared>,
    gates: Gates,
    clock: fn() -> Timestamp,
    discovery: Discovery,
    /// None: what is learned is not kept.
    memory: Option<Memory>,
    events: Events,
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
    config: Culprits,
    output: Output,
}

impl Running {
    fn new(parts: WatchParts, findings: Arc<ArcSwap<Findings>>) -> Self {
        let names = ClassNames::new(&parts.config.patterns);
        let limits = Limits {
            classes: SLOTS as u16,
            resources: RESOURCES_MAX as u16,
        };
        let watched = WatchedAll::new(&parts.shared.topology.load(), parts.resources, &parts.sites);
        let policy = |bounds| Policy::new(bounds, names.clone());
        Self {
            policy: parts.config.automatic.map(policy),
            discovery: Discovery::new(limits),
            events: Events(parts.observed),
            requests: Requests::new(
                parts.sites,
                parts.config.patterns.clone(),
                &parts.config.peers,
            ),
            watched,
            gates: Gates(Arc::clone(&parts.shared)),
            shared: parts.shared,
            clock: parts.clock,
            memory: None,
            findings,
            evaluations: 0,
            evaluated: Duration::ZERO,
            names,
            policy_due: Timestamp::ZERO,
            latency: 0.0,
            experiment: None,
            last_experiment: None,
            experimented_at: BTreeMap::new(),
            config: parts.config,
            output: parts.output,
        }
    }

    /// Reads what was kept, on this thread: a slow disk holds no request up.
    fn remember(&mut self, state: Option<PathBuf>) {
        let open = |folder| {
            let file = Box::new(StateFile::new(folder, FILE));
            Memory::open(file, Arc::new(self.output), clock::unix, (self.clock)())
        };
        self.memory = state.map(open);
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

    fn run(&mut self, asks: &Receiver<Ask>) {
        let mut due = (self.clock)() + TICK;
        loop {
            match asks.recv_timeout(due.since((self.clock)())) {
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
                    let now = (self.clock)();
                    self.requests
                        .drain(&mut self.events, &mut self.discovery, now);
                    answer.send(self.requests.ship(after, now)).ok();
                }
                Ok(Ask::Told(from, shipment, at)) => {
                    self.requests
                        .accept(from, shipment, at, &mut self.discovery);
                }
                Ok(Ask::Keep) => self.end_keeping(),
                Ok(Ask::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = (self.clock)();
            if now >= due {
                self.handle_tick(now);
                due = now + TICK;
            }
        }
    }

    fn handle_tick(&mut self, now: Timestamp) {
        self.requests
            .drain(&mut self.events, &mut self.discovery, now);
        self.watched
            .read(&self.shared.table, &mut self.discovery, now);
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
        let begun = (self.clock)();
        let then = self.watched.known_until() - self.requests.behind();
        self.requests.tell_unfinished(&mut self.discovery, then);
        self.watched.evaluate(due, &mut self.discovery, then, now);
        self.evaluations += 1;
        self.evaluated += (self.clock)().since(begun);
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

    /// Does by itself what the operator lets it do.
    fn act(&mut self, now: Timestamp) {
        let findings = self.findings.load_full();
        let flagged: BTreeSet<&str> = findings.flagged().map(|it| &*it.class).collect();
        let slo = self.config.slo.as_secs_f64();
        let own = |name: &str| self.policy.as_ref().is_some_and(|it| it.throttles(name));
        let but = |name: &str| flagged.contains(name) || own(name);
        let fare = self.requests.others_fare(&but, HELD_BACK * slo, now);
        let others = OthersDo {
            latency: fare.seconds.map(|seconds| seconds / slo),
            held_back: fare.held_back,
        };
        self.latency = others.latency.unwrap_or_default();
        if let Some(policy) = &mut self.policy {
            let pressed = self.watched.pressed();
            let requests = &self.requests;
            let held_back = |class: &str| {
                let fare = requests.others_fare(&|name| name != class, HELD_BACK * slo, now);
                fare.held_back
            };
            let scene = Scene {
                found: &findings.all,
                pressed: &pressed,
                others,
                held_back: &held_back,
            };
            for it in policy.act(&scene, &self.gates, now) {
                self.output.event(it.event, &it.text);
            }
        }
        if self.config.delay_experiments && self.experiment.is_none() && self.latency <= 1.0 {
            self.experiment_on_ambiguous(&findings, now);
        }
    }

    /// Begins an experiment on the first class that cannot be separated from others and had none of late.
    fn experiment_on_ambiguous(&mut self, findings: &Findings, now: Timestamp) {
        self.experimented_at
            .retain(|_, at| now.since(*at) < EXPERIMENT_LASTS);
        let unsure = findings.flagged().find(|it| {
            let ambiguous = matches!(it.flagged, Some((Confidence::Ambiguous, _)));
            let class = (it.class.to_string(), it.resource.to_string());
            ambiguous && !self.experimented_at.contains_key(&class)
        });
        let Some(unsure) = unsure else { return };
        let class = (unsure.class.to_string(), unsure.resource.to_string());
        self.experimented_at.insert(class, now);
        match self.begin_experiment(&unsure.class, Some(&unsure.resource)) {
            Ok(begun) => self.output.event("experiment", &begun.text),
            Err(why) => self.output.event("experiment", &why),
        }
    }

    /// Begins a delay experiment on a class against a resource, or the one of which it is thought to use most.
    fn begin_experiment(
        &mut self,
        class: &str,
        resource: Option<&str>,
    ) -> Result<ExperimentReport, String> {
        if self.experiment.is_some() {
            return Err("an experiment on another class runs".into());
        }
        may_delay(true, self.latency > 1.0).map_err(|why| format!("not now: {why}"))?;
        let found = self.found();
        let own = found.iter().filter(|it| &*it.class == class);
        let own = own.filter(|it| resource.is_none_or(|name| &*it.resource == name));
        let most = own.max_by(|one, other| one.share.total_cmp(&other.share));
        let most = most.ok_or_else(|| match resource {
            Some(resource) => format!("no requests of `{class}` are known with {resource} in use"),
            None => format!("no requests of `{class}` are known with any resource in use"),
        })?;
        let text = most.pattern.as_deref();
        let text = text.ok_or_else(|| format!("`{class}` has no method and path of its own"))?;
        let pattern = self.names.pattern(text);
        let pattern = pattern.map_err(|error| format!("`{text}` cannot be tested: {error}"))?;
        let watched = self.watched.iter().find(|it| it.name == *most.resource);
        let watched = watched.ok_or("the resource is gone")?;
        let names = self.requests.names();
        let number = names.iter().position(|name| name == class);
        let suspect = Suspect {
            class: ClassId(number.unwrap_or_default() as u16),
            class_name: class,
            pattern,
            resource: watched.id,
            resource_name: &watched.name,
            cost_seconds: most.cost_seconds,
        };
        let now = (self.clock)();
        let experiment = RunningExperiment::begin(&suspect, &self.gates, now)?;
        let report = experiment.report(now);
        self.last_experiment = Some(report.clone());
        self.experiment = Some(experiment);
        self.publish(found);
        Ok(report)
    }

    fn evaluate_experiment(&mut self, now: Timestamp) {
        let Some(experiment) = &mut self.experiment else {
            return;
        };
        let known = self.watched.known_until();
        let above_slo = self.latency > 1.0;
        let over = experiment.look(&mut self.discovery, above_slo, known, now);
        let report = experiment.report(now);
        if over {
            self.output.event("experiment", &report.text);
            self.experiment = None;
        }
        self.last_experiment = Some(report);
    }

    fn found(&self) -> Vec<Finding> {
        let names: Vec<Arc<str>> = self.requests.names().into_iter().map(Arc::from).collect();
        let patterns: Vec<Option<Arc<str>>> = (self.requests.class_patterns().into_iter())
            .map(|text| text.map(Arc::from))
            .collect();
        let of = |watched: &Watched| -> Vec<Finding> {
            let resource: Arc<str> = watched.name.as_str().into();
            let verdicts = watched.verdicts.iter().flat_map(|it| &it.classes);
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

    /// The picture of the last minute.
    fn report(&mut self) -> Report {
        let now = (self.clock)();
        self.requests
            .drain(&mut self.events, &mut self.discovery, now);
        let unix = clock::unix().as_nanos() as i64;
        // The Unix time at the clock's zero.
        let base = unix - now.nanos() as i64;
        let on_unix = |at: Timestamp| Timestamp::from_nanos((at.nanos() as i64 + base) as u64);
        let lived = |it: &Lived| Lived {
            class: it.class,
            sent: on_unix(it.sent),
            ended: on_unix(it.ended),
        };
        let requests: Vec<_> = self.requests.ended().map(lived).collect();
        let unfinished: Vec<_> = (self.requests.unfinished())
            .map(|(class, sent)| (class, on_unix(sent)))
            .collect();
        let spans = self.watched.spans(base);
        let material = Material {
            mode: Mode::Live,
            from: unix - SHOWN.as_nanos() as i64,
            to: unix,
            notes: self.notes(),
            classes: self.classes(base),
            requests: &requests,
            unfinished: &unfinished,
            resources: self.watched.materials(&spans, base),
        };
        picture::report(&material)
    }

    fn classes(&self, base: i64) -> Vec<ClassMaterial> {
        let throttles = self.gates.all();
        let throttle = |text: &String| {
            let pattern = self.names.pattern(text).ok()?;
            let own = throttles.iter().filter(|it| it.pattern.covers(&pattern));
            let own = own.max_by(|one, other| one.pattern.compare(&other.pattern))?;
            Some(shown(own, base))
        };
        let names = self.requests.names().into_iter();
        let class = |(name, pattern): (String, Option<String>)| ClassMaterial {
            throttle: pattern.as_ref().and_then(throttle),
            pattern,
            name,
        };
        names
            .zip(self.requests.class_patterns())
            .map(class)
            .collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.watched.iter().len() == 0 {
            notes.push(
                "No node's load is read, so there is no resource to explain: run `tidegate agent` on the \
                 nodes, or on a database's host with `role = \"resource\"`."
                    .into(),
            );
        }
        notes.extend(self.watched.notes());
        notes.extend(
            self.last_experiment
                .iter()
                .map(|it| format!("Experiment: {}.", it.text)),
        );
        for (address, why) in self.requests.silent() {
            notes.push(format!(
                "What the front-end at {address} sends to servers is missing: {why}"
            ));
        }
        if self.requests.overflows > 0 {
            notes.push(format!(
                "{} times there were more requests than could be followed.",
                self.requests.overflows
            ));
        }
        notes
    }
}

/// What slows a class, for the picture.
fn shown(throttle: &Throttle, base: i64) -> report::Throttle {
    let seconds = |at: Timestamp| (at.nanos() as i64 + base) as f64 * 1e-9;
    report::Throttle {
        class: throttle.pattern.name().into(),
        limits: throttle.limits.to_string(),
        by: throttle.set_by.label().into(),
        since: Some(seconds(throttle.since)),
        until: throttle.until.map(seconds),
        held: Some(throttle.counters.held),
        held_ms: Some(throttle.counters.delayed.as_secs_f64() * 1e3),
        in_flight: Some(throttle.in_flight),
        waiting: Some(throttle.waiting),
    }
}

/// Class numbers fit the core's.
const _: () = assert!(SLOTS <= u16::MAX as usize && size_of::<ClassId>() == 2);
