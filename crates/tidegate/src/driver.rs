//! The driver: the one thread that owns the [`Director`].
//!
//! ```text
//!  overrides ─┐                            ┌──> Topology into the ArcSwap, nodes to the reader
//!  changes  ──┤                            │
//!  probes   ──┼──> channel ─> Director tick ┼──> probes to send
//!  readers,                  each 1 to 200 ms└──> events to report
//!  agents,    │
//!  requests ──┘
//!  words of nodes that have changed ──────────> the task that moves nodes looks
//! ```
//!
//! It decides nothing and waits for nothing: a probe is sent by the task that takes it from the
//! channel, and its answer comes back as a message. If this thread dies, traffic goes on with
//! the last topology, and overrides are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::director::learned::LearnedCluster;
use tidegate_core::director::{Cause, CheckDue, Concerned, Director, Event, HEARTBEAT, TICK_MIN};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{
    AdminState, AgentNews, AgentState, ChangeError, CheckConfig, CheckFailure, CheckId,
    CheckResult, CheckSet, ClusterChange, Health, Node, NodeId, Topology,
};
use tidegate_proxy::{Shared, Sleep};
use tokio::sync::{Notify, oneshot};

use crate::events::About;
use crate::output::Output;
use crate::reads::{ReadNode, Reads, WantedReads};
use crate::rungs::{KeyWatch, RungWatch};

/// While it ticks this often, what happens can wait for the next tick.
const AWAKE: Duration = Duration::from_millis(5);
/// Time between two looks at the readers and rungs, which change slowly.
const SLOW: Duration = Duration::from_millis(100);
/// Most messages that wait for a tick; an override more is refused.
const MESSAGES_MAX: usize = 1024;

/// What the director wants of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    /// Whether it answers at all.
    Probe(NodeId),
    /// Whether it is well, as its site says what that is.
    Check(CheckDue),
}

/// What has become of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probed {
    /// Something was answered.
    Answered,
    /// Nothing was, in time.
    Unanswered,
    /// This machine could not ask.
    Unsent,
}

/// A message to the thread.
#[derive(Debug)]
enum Message {
    Override(NodeId, AdminState, oneshot::Sender<()>),
    Probed(NodeId, Probed),
    /// Nothing: this machine could not ask.
    Checked(CheckDue, Option<CheckResult>),
    Change(Box<Change>),
    Learned(oneshot::Sender<LearnedCluster>),
    /// A request waits, or has come after a time without any.
    Wake,
    Stop,
}

/// What is to become of the cluster, and of its nodes' loads.
#[derive(Debug)]
struct Change {
    change: ClusterChange,
    reads: WantedReads,
    done: oneshot::Sender<Result<Changed, ChangeError>>,
}

/// What a change has come to.
#[derive(Debug)]
pub(crate) struct Changed {
    /// The topology with the change.
    pub(crate) topology: Arc<Topology>,
    /// Why loads are not read as wanted; none if they are.
    pub(crate) unread: Option<String>,
}

/// Why a change was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeFailure {
    #[error(transparent)]
    Refused(#[from] ChangeError),
    #[error(transparent)]
    Override(#[from] OverrideError),
}

/// Why an override was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OverrideError {
    #[error("too many overrides are waiting")]
    Busy,
    #[error("this process is about to end; after an upgrade another one answers")]
    Gone,
}

/// A handle to tell the driver something; as many as needed.
#[derive(Clone, Debug)]
pub(crate) struct Overrides(SyncSender<Message>);

impl Overrides {
    /// Wants a node in this state; returns when the topology says so.
    pub(crate) async fn give(&self, node: NodeId, state: AdminState) -> Result<(), OverrideError> {
        let (done, published) = oneshot::channel();
        self.send(Message::Override(node, state, done))?;
        published.await.map_err(|_| OverrideError::Gone)
    }

    /// Wants the cluster changed; returns when the topology says so. Nothing of a change that is refused is done.
    pub(crate) async fn change(
        &self,
        change: ClusterChange,
        reads: WantedReads,
    ) -> Result<Changed, ChangeFailure> {
        let (done, published) = oneshot::channel();
        self.send(Message::Change(Box::new(Change {
            change,
            reads,
            done,
        })))?;
        Ok(published.await.map_err(|_| OverrideError::Gone)??)
    }

    /// What is learned of nodes by now: it comes with the next tick.
    pub(crate) fn learned(&self) -> Result<oneshot::Receiver<LearnedCluster>, OverrideError> {
        let (tell, learned) = oneshot::channel();
        self.send(Message::Learned(tell))?;
        Ok(learned)
    }

    fn send(&self, message: Message) -> Result<(), OverrideError> {
        self.0.try_send(message).map_err(|error| match error {
            TrySendError::Full(_) => OverrideError::Busy,
            TrySendError::Disconnected(_) => OverrideError::Gone,
        })
    }

    /// A probe was answered or not. A probe whose answer is lost is sent again by the director.
    pub(crate) fn probed(&self, node: NodeId, probed: Probed) {
        self.0.try_send(Message::Probed(node, probed)).ok();
    }

    /// A check has ended, or could not be made. One whose end is lost is made again.
    pub(crate) fn checked(&self, due: CheckDue, result: Option<CheckResult>) {
        self.0.try_send(Message::Checked(due, result)).ok();
    }
}

/// Counters of the thread, for the metrics.
#[derive(Debug, Default)]
pub(crate) struct DriverStats {
    /// Ticks so far.
    pub(crate) ticks: AtomicU64,
    /// Ticks that came late by a millisecond or more.
    pub(crate) late: AtomicU64,
    /// Nodes ejected so far.
    pub(crate) ejections: AtomicU64,
    /// Front-ends known to serve these nodes.
    pub(crate) front_ends: AtomicU64,
}

/// What the thread works on.
#[derive(Debug)]
pub(crate) struct DriverParts {
    /// The state machine.
    pub(crate) director: Director,
    /// Loads, outcomes, and where topologies are published.
    pub(crate) shared: Arc<Shared>,
    /// How loads are read.
    pub(crate) reads: Arc<Reads>,
    /// Where probes and checks are asked for.
    pub(crate) probes: tokio::sync::mpsc::Sender<Ask>,
    /// Where events go.
    pub(crate) output: Output,
    /// The process's clock.
    pub(crate) clock: fn() -> Timestamp,
}

/// The running thread; dropping it stops and joins.
#[derive(Debug)]
pub(crate) struct Driver {
    overrides: Overrides,
    stats: Arc<DriverStats>,
    words_changed: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts the thread.
    pub(crate) fn spawn(parts: DriverParts) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(MESSAGES_MAX);
        let stats = Arc::new(DriverStats::default());
        let words_changed = Arc::new(Notify::new());
        let waking = sender.clone();
        // A full channel wakes it as well.
        let wake = move || drop(waking.try_send(Message::Wake));
        parts.shared.wake_up.set(wake);
        let mut running = Running::new(parts, Arc::clone(&stats), Arc::clone(&words_changed));
        let thread = std::thread::Builder::new()
            .name("director".into())
            .spawn(move || running.run(&receiver))?;
        Ok(Self {
            overrides: Overrides(sender),
            stats,
            words_changed,
            thread: Some(thread),
        })
    }

    /// A handle for overrides and probes' answers.
    pub(crate) fn overrides(&self) -> Overrides {
        self.overrides.clone()
    }

    /// What is notified, for one, within a tick of a read that finds a node's word 0 changed.
    pub(crate) fn words_changed(&self) -> Arc<Notify> {
        Arc::clone(&self.words_changed)
    }

    /// Its counters.
    pub(crate) fn stats(&self) -> Arc<DriverStats> {
        Arc::clone(&self.stats)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A full channel empties within a tick, a closed one has no thread to stop.
        self.overrides.0.send(Message::Stop).ok();
        if let Some(thread) = self.thread.take() {
            // Its panic stands on standard error already.
            thread.join().ok();
        }
    }
}

struct Running {
    parts: DriverParts,
    stats: Arc<DriverStats>,
    words_changed: Arc<Notify>,
    /// As of the last tick.
    word_changes: u64,
    rungs: RungWatch,
    keys: KeyWatch,
    /// Nodes that are not read over RDMA, though that was asked for.
    without_rdma: KeyWatch,
    /// Overrides that wait for the topology with their effect.
    waiting: Vec<oneshot::Sender<()>>,
    tick: u64,
    slow_at: Timestamp,
    events_dropped: u64,
    /// That connections could not be marked was said.
    told_unmarked: bool,
}

impl Running {
    fn new(parts: DriverParts, stats: Arc<DriverStats>, words_changed: Arc<Notify>) -> Self {
        let front_ends = parts.director.front_ends();
        stats.front_ends.store(front_ends.into(), Ordering::Relaxed);
        Self {
            parts,
            stats,
            words_changed,
            word_changes: 0,
            rungs: RungWatch::default(),
            keys: KeyWatch::default(),
            without_rdma: KeyWatch::default(),
            waiting: Vec::new(),
            tick: 0,
            slow_at: Timestamp::ZERO,
            events_dropped: 0,
            told_unmarked: false,
        }
    }

    fn run(&mut self, messages: &Receiver<Message>) {
        let mut ticked = (self.parts.clock)();
        self.slow_at = ticked;
        let mut tick = TICK_MIN;
        self.forget_unasked_agents();
        loop {
            let due = ticked + tick;
            let wait = due.since((self.parts.clock)());
            if tick > AWAKE {
                let is_deep = tick >= HEARTBEAT;
                let sleep = if is_deep { Sleep::Deep } else { Sleep::Light };
                self.parts.shared.wake_up.arm(sleep);
            }
            let message = messages.recv_timeout(wait);
            if message.is_ok() {
                // What has come is seen to now, or a millisecond after the last tick.
                let slept = (self.parts.clock)().since(ticked);
                tick = tick.min(slept.max(TICK_MIN));
            }
            match message {
                Ok(Message::Override(node, state, done)) => {
                    self.parts.director.handle_override(node, state);
                    self.waiting.push(done);
                }
                Ok(Message::Probed(node, probed)) => {
                    let now = (self.parts.clock)();
                    let director = &mut self.parts.director;
                    match probed {
                        Probed::Answered => director.handle_probe(node, true, now),
                        Probed::Unanswered => director.handle_probe(node, false, now),
                        Probed::Unsent => director.handle_unsent_probe(node, now),
                    }
                }
                Ok(Message::Checked(due, result)) => {
                    let now = (self.parts.clock)();
                    match result {
                        Some(result) => self.parts.director.handle_check(due, result, now),
                        None => self.parts.director.handle_unsent_check(due, now),
                    }
                }
                Ok(Message::Change(change)) => self.handle_change(*change),
                Ok(Message::Learned(tell)) => {
                    let learned = self.parts.director.learned((self.parts.clock)());
                    // The one that asked may have left since.
                    tell.send(learned).ok();
                }
                Ok(Message::Wake) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = (self.parts.clock)();
            let due = ticked + tick;
            if now < due {
                continue;
            }
            self.handle_tick(now);
            tick = self.parts.reads.follow_pace(&self.parts.director);
            // Ticks that were slept over are not made up for.
            let is_late = now.since(due) >= TICK_MIN;
            self.stats.late.fetch_add(is_late.into(), Ordering::Relaxed);
            ticked = if is_late { now } else { due };
        }
    }

    fn handle_change(&mut self, change: Change) {
        let Change {
            change,
            reads,
            done,
        } = change;
        let parts = &mut self.parts;
        let applied = parts.director.handle_change(&change, &parts.shared.table);
        let changed = applied.map(|()| {
            if let Some(topology) = parts.director.poll_topology() {
                parts.shared.publish(topology);
            }
            let topology = parts.director.topology();
            let nodes = ReadNode::all(&topology);
            let followed = parts.reads.follow(&reads, &nodes, topology.version);
            Changed {
                unread: followed.err().map(|error| error.to_string()),
                topology,
            }
        });
        self.forget_unasked_agents();
        // The one that asked may have left since.
        done.send(changed).ok();
    }

    /// What a node's agent has said, to a process before this one or before a reload, stands while that agent is asked.
    fn forget_unasked_agents(&mut self) {
        let now = (self.parts.clock)();
        let parts = &mut self.parts;
        let unheard = AgentState::default();
        for (id, node) in parts.director.topology().members() {
            let asked = parts.reads.agent(id);
            let is_it = asked.is_some_and(|it| it.address == node.agent.from);
            if node.agent != unheard && !is_it {
                let (generation, table) = (node.generation, &parts.shared.table);
                let news = AgentNews::anew();
                let director = &mut parts.director;
                director.handle_agent(id, generation, &news, table, now);
            }
        }
    }

    fn handle_tick(&mut self, now: Timestamp) {
        self.tick += 1;
        self.stats.ticks.store(self.tick, Ordering::Relaxed);
        if now.since(self.slow_at) >= SLOW {
            self.slow_at = now;
            self.look_slowly(now);
        }
        let parts = &mut self.parts;
        let followed = parts.shared.stats.followed();
        parts
            .director
            .handle_followed(followed.min(parts.reads.followed()));
        for said in parts.reads.poll_agents() {
            let (node, generation) = (said.node, said.generation);
            let (director, table) = (&mut parts.director, &parts.shared.table);
            director.handle_agent(node, generation, &said.news, table, now);
        }
        parts.director.handle_tick(&parts.shared.table, now);
        if let Some(topology) = parts.director.poll_topology() {
            parts.shared.publish(topology);
        }
        let changes = parts.shared.table.word_changes();
        if std::mem::replace(&mut self.word_changes, changes) != changes {
            self.words_changed.notify_one();
        }
        if parts.director.has_room_for_waiting(&parts.shared.table) {
            parts.shared.room_freed.notify_waiters();
        }
        for done in self.waiting.drain(..) {
            // The one that set the override may have left since.
            done.send(()).ok();
        }
        while let Some(node) = parts.director.poll_probe(now) {
            if parts.probes.try_send(Ask::Probe(node)).is_err() {
                parts.director.handle_unsent_probe(node, now);
            }
        }
        while let Some(due) = parts.director.poll_check(now) {
            if parts.probes.try_send(Ask::Check(due)).is_err() {
                parts.director.handle_unsent_check(due, now);
            }
        }
        while let Some(event) = parts.director.poll_event() {
            let topology = parts.director.topology();
            let about = concerned(event, &topology);
            let (name, text) = describe(event, &topology);
            parts.output.event_about(name, about, &text);
        }
        let ejections = parts.director.ejections();
        self.stats.ejections.store(ejections, Ordering::Relaxed);
    }

    fn look_slowly(&mut self, now: Timestamp) {
        let parts = &mut self.parts;
        let readers = parts.reads.readers();
        parts.director.handle_front_ends(readers);
        let front_ends = parts.director.front_ends();
        let known = &self.stats.front_ends;
        known.store(front_ends.into(), Ordering::Relaxed);
        let dropped = parts.director.events_dropped();
        if dropped > self.events_dropped {
            let text = format!(
                "{} events were too many to tell",
                dropped - self.events_dropped
            );
            parts.output.event("events_dropped", &text);
            self.events_dropped = dropped;
        }
        while let Some(ended) = parts.shared.throttles.poll_ended(now) {
            let text = format!(
                "{}: not throttled any more, its time is over",
                ended.pattern
            );
            parts.output.event("released", &text);
        }
        if let Some(why) = parts.shared.throttles.unmarked()
            && !std::mem::replace(&mut self.told_unmarked, true)
        {
            let text = format!("connections of throttled classes go unmarked: {why}");
            parts.output.event("unmarked", &text);
        }
        let topology = parts.director.topology();
        for (id, node) in topology.members() {
            let load = parts.shared.table.fresh(id, now);
            let said = self
                .rungs
                .look(id, node.generation, load.map(|load| load.rung), || {
                    parts.reads.trouble(id)
                });
            let key = (self.keys).look(id, node.generation, load.is_some(), || {
                parts.reads.wrong_key(id)
            });
            let rdma = parts.reads.asked_rdma(id);
            let stands = matches!(rdma, Some(Ok(())));
            let rdma = (self.without_rdma).look(id, node.generation, stands, || {
                let why = rdma.as_ref()?.as_ref().err()?;
                Some(format!("load is not read over RDMA: {why}"))
            });
            let key = key.map(|key| ("wrong_key", key));
            let rdma = rdma.map(|text| ("rung", text));
            for (event, text) in said.into_iter().chain(key).chain(rdma) {
                let about = About::node(&node.name, &topology.site(node.site).name);
                let text = format!("node {}: {text}", node.name);
                parts.output.event_about(event, about, &text);
            }
        }
    }
}

/// What an event concerns.
fn concerned(event: Event, topology: &Topology) -> About<'_> {
    match event.concerns() {
        Concerned::Node(id) => {
            let node = topology.node(id);
            About::node(&node.name, &topology.site(node.site).name)
        }
        Concerned::Site(id) => About::site(&topology.site(id).name),
    }
}

/// An event's name and its line.
fn describe(event: Event, topology: &Topology) -> (&'static str, String) {
    let line = |id: NodeId, what: &str| format!("node {}: {what}", topology.node(id).name);
    match event {
        Event::Ejected(id, cause) => {
            let text = line(id, &format!("ejected {}", why_ejected(cause)));
            ("ejected", text)
        }
        Event::Left(id) => {
            let text = line(id, "has no requests any more, and is out of the cluster");
            ("left", text)
        }
        Event::Returned(id) => ("returned", line(id, "answers again")),
        Event::CheckFailed(id, check, failure) => {
            let (check, what) = (its_check(id, check, topology), wrong(failure));
            let text = format!("{check} fails, {what}: no requests until it passes");
            ("check_failed", line(id, &text))
        }
        Event::CheckPassed(id, check) => {
            let text = check_passed(id, check, topology);
            ("check_passed", line(id, &text))
        }
        Event::ServicesFailed(id, failing) => {
            let text = format!("{}: no requests until all pass", failing_services(failing));
            ("services_failed", line(id, &text))
        }
        Event::ServicesPassed(id) => {
            let text = "no service check of its agent is known to fail";
            ("services_passed", line(id, text))
        }
        Event::SoftLimitCrossed(id, crossing) => {
            let text = format!("{crossing}: no requests until it has more");
            ("soft_limit_crossed", line(id, &text))
        }
        Event::SoftLimitIgnored(id, crossing) => {
            let text = format!("{crossing}: used all the same, as too many nodes are out");
            ("soft_limit_ignored", line(id, &text))
        }
        Event::SoftLimitCleared(id) => {
            let text = line(id, "is over no soft limit any more");
            ("soft_limit_cleared", text)
        }
        Event::AgentDown(id) => ("agent_down", line(id, &agent_down(topology.node(id)))),
        Event::AgentUp(id) => ("agent_up", line(id, "its agent has it out no more")),
        Event::AgentState(id, state) => ("agent_state", line(id, agent_state(state))),
        Event::SlowStart(id) => {
            let text = line(id, "starts slowly, with a part of its share that grows");
            ("slow_start", text)
        }
        Event::FullShare(id) => ("full_share", line(id, "has its full share")),
        Event::FailOpen(id) => (
            "fail_open",
            format!(
                "site {}: no node is up, so ejected ones are used",
                topology.site(id).name
            ),
        ),
        Event::FailClosed(id) => (
            "fail_closed",
            format!("site {}: ejections count again", topology.site(id).name),
        ),
        Event::Admin(id, state) => {
            let site = topology.site(topology.node(id).site);
            let last = match site.candidates.is_empty() {
                true => format!("; no node of site {} takes requests now", site.name),
                false => String::new(),
            };
            let text = format!("{}{last}", state.label());
            ("state", line(id, &text))
        }
    }
}

fn check_passed(id: NodeId, check: CheckId, topology: &Topology) -> String {
    let node = topology.node(id);
    let out = match node.health {
        Health::Up => "",
        Health::Ejected if node.fails_check() => "; another one still fails",
        Health::Ejected => "; it is still ejected, and probed now",
    };
    format!("passes {}{out}", its_check(id, check, topology))
}

/// A node's check: by its label, where there are several.
fn its_check(node: NodeId, check: CheckId, topology: &Topology) -> String {
    let configs = &topology.site(topology.node(node).site).health.checks;
    let config = configs.get(check.index());
    config.map_or_else(|| "its check".into(), |it| named_check(it, configs))
}

/// The same, of a site's checks.
pub(crate) fn named_check(check: &CheckConfig, all: &[CheckConfig]) -> String {
    match all {
        [_] => "its check".into(),
        _ => format!("its check `{}`", check.label),
    }
}

fn agent_down(node: &Node) -> String {
    let why = why_agent_has_it_out(node).unwrap_or_default();
    format!("{why}: no requests until it says otherwise")
}

fn agent_state(state: AdminState) -> &'static str {
    match state {
        AdminState::Ready => "its agent lets it have requests again",
        AdminState::Drain => "its agent drains it",
        AdminState::Maint => "its agent took it out of service",
    }
}

/// Which service checks of its own agent a node fails, as a sentence. The record has their places alone: they count from 1, in
/// the order of the agent's file.
pub(crate) fn failing_services(failing: CheckSet) -> String {
    let places: Vec<_> = failing
        .iter()
        .map(|it| (it.index() + 1).to_string())
        .collect();
    match places.as_slice() {
        [place] => format!("service check {place} of its agent fails"),
        _ => format!("service checks {} of its agent fail", places.join(" and ")),
    }
}

/// Why a node gets no requests, and until when.
fn why_ejected(cause: Cause) -> &'static str {
    match cause {
        Cause::Failures => {
            "because requests to it failed and it answered nothing, until it answers a probe"
        }
        Cause::Silence => "because it answers neither requests nor a probe, until it answers one",
        Cause::Errors => {
            "because most of its answers are errors and the others' are not, for a while"
        }
        Cause::Check => "because its check fails, until it passes",
        Cause::SoftLimit => "because it is about to run out of a resource, until it has more",
        Cause::Agent => "because its agent says so, until it says otherwise",
    }
}

/// That a node's agent has it out, if it has.
pub(crate) fn why_agent_has_it_out(node: &Node) -> Option<String> {
    let agent = &node.agent;
    let Some(down) = &agent.down else {
        return agent
            .weightless_since
            .map(|_| "its agent gives it no weight".into());
    };
    let reason = match down.reason.is_empty() {
        true => String::new(),
        false => format!(" ({})", down.reason),
    };
    Some(format!("its agent says `{}`{reason}", down.word))
}

/// What is wrong with a node whose check fails.
pub(crate) fn wrong(failure: CheckFailure) -> String {
    match failure {
        CheckFailure::Connect => "there was no connection".into(),
        CheckFailure::Tls(why) => format!("there was no TLS: {why}"),
        CheckFailure::Timeout => "no answer came in time".into(),
        CheckFailure::Broken => "the connection broke off".into(),
        CheckFailure::Refused => "nothing listens at the port".into(),
        CheckFailure::Malformed(protocol) => format!("what came was no {protocol}"),
        CheckFailure::Status(status) => format!("the status was {status}"),
        CheckFailure::Body => "the body had not what is wanted".into(),
        CheckFailure::Answer => "the answer had not what is wanted".into(),
        CheckFailure::NotStarted => "the program did not start".into(),
        CheckFailure::NotTrusted => {
            "the program must not be run as it is now: `tidegate check` says why".into()
        }
        CheckFailure::Code(what, code @ 0x1_0000..) => format!("the {what} was {code:#x}"),
        CheckFailure::Code(what, code) => format!("the {what} was {code}"),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::topology::{Crossing, NodeResource};

    use super::*;
    use crate::testing;

    #[test]
    fn an_order_is_in_the_topology_when_it_is_answered() {
        let (driver, shared) = testing::driver();
        let overrides = driver.overrides();
        let runtime = testing::runtime();
        for state in [AdminState::Drain, AdminState::Maint, AdminState::Ready] {
            runtime.block_on(overrides.give(NodeId(0), state)).unwrap();
            let topology = shared.topology.load();
            assert_eq!(topology.node(NodeId(0)).admin, state);
        }
        drop(driver);
        let late = runtime.block_on(overrides.give(NodeId(0), AdminState::Ready));
        assert_eq!(late, Err(OverrideError::Gone));
    }

    #[test]
    fn a_word_that_changes_is_said_at_the_next_tick() {
        let (driver, shared) = testing::driver();
        let (changed, runtime) = (driver.words_changed(), testing::runtime());
        for held in [1, 2] {
            let now = tidegate_remote::clock::now();
            shared.table.note_first_word(NodeId(0), held, now);
            runtime.block_on(changed.notified());
        }
    }

    #[test]
    fn every_event_has_a_line() {
        let (_driver, shared) = testing::driver();
        let topology = shared.topology.load();
        let site = tidegate_core::topology::SiteId(0);
        let crossing = Crossing {
            resource: NodeResource::Files,
            used: 0.91,
            limit: 0.9,
            full_in: None,
        };
        for event in [
            Event::Ejected(NodeId(0), Cause::Failures),
            Event::Ejected(NodeId(0), Cause::Silence),
            Event::Ejected(NodeId(0), Cause::Errors),
            Event::Ejected(NodeId(0), Cause::Check),
            Event::Ejected(NodeId(0), Cause::SoftLimit),
            Event::Ejected(NodeId(0), Cause::Agent),
            Event::Returned(NodeId(0)),
            Event::CheckFailed(NodeId(0), CheckId(0), CheckFailure::Status(503)),
            Event::CheckPassed(NodeId(0), CheckId(0)),
            Event::ServicesFailed(NodeId(0), CheckSet::from_bits(0b101)),
            Event::ServicesPassed(NodeId(0)),
            Event::SoftLimitCrossed(NodeId(0), crossing),
            Event::SoftLimitIgnored(NodeId(0), crossing),
            Event::SoftLimitCleared(NodeId(0)),
            Event::AgentDown(NodeId(0)),
            Event::AgentUp(NodeId(0)),
            Event::AgentState(NodeId(0), AdminState::Drain),
            Event::SlowStart(NodeId(0)),
            Event::FullShare(NodeId(0)),
            Event::FailOpen(site),
            Event::FailClosed(site),
            Event::Admin(NodeId(0), AdminState::Drain),
        ] {
            let (_, text) = describe(event, &topology);
            assert!(text.contains("n1") || text.contains("shop"), "{text}");
        }
    }
}
